"""List the models of the account."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from workers_ai._validation import unknown_keyword
from workers_ai._wire.chat.reply import shortened
from workers_ai._wire.params import ModelFilters
from workers_ai._wire.request import Request
from workers_ai.errors import APIResponseValidationError
from workers_ai.types import JSON

if TYPE_CHECKING:
    from workers_ai._calls.requests import Calls
    from workers_ai._flow.steps import Flow

__all__ = ["list_models"]

_PER_PAGE: Final = 100
_MAX_PAGES: Final = 100


def list_models(calls: Calls, filters: ModelFilters) -> Flow[list[dict[str, JSON]]]:
    """Return the models, page by page, up to the first page that is not full.

    The total in the response is not used: it counts the models of the whole platform.

    Raises:
        ConfigurationError: A filter is unknown.
    """
    if unknown := filters.keys() - ModelFilters.__annotations__.keys():
        raise unknown_keyword("a list of models", min(unknown), ModelFilters.__annotations__)
    chosen = {name: _query_value(value) for name, value in filters.items() if value is not None}
    models: list[dict[str, JSON]] = []
    for page in range(1, _MAX_PAGES + 1):
        query = urlencode({**chosen, "page": page, "per_page": _PER_PAGE}, errors="replace")
        reply = yield from calls.exchange(Request("models/search", None, "", "catalogue", "GET", query))
        rows = calls.read(_read_models, reply.data)
        models += rows
        if len(rows) < _PER_PAGE:
            break
    return models


def _query_value(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _read_models(data: JSON) -> list[dict[str, JSON]]:
    rows = data.get("result") if isinstance(data, dict) else data  # a binding returns the bare list
    if not isinstance(rows, list):
        raise APIResponseValidationError("the response has no list of models", body=shortened(data), status_code=200)
    return rows
