"""Python values as strict JSON, and content blocks that say nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from pydantic_core import from_json, to_json

from workers_ai._wire.json_parsing import mended
from workers_ai.errors import BadRequestError

__all__ = ["is_cache_mark", "plain_json"]

_CACHE_MARKS: Final = frozenset({"cachePoint", "cache_point", "cache_control"})
_MARK_FIELDS: Final = _CACHE_MARKS | {"type", "ttl", "index"}


def is_cache_mark(part: Any) -> bool:
    """Return whether a content block only marks the end of a cached prefix, as Bedrock's and Anthropic's do."""
    if not isinstance(part, Mapping) or part.keys() - _MARK_FIELDS:
        return False
    return bool(_CACHE_MARKS & {str(part.get("type")), *part})


def plain_json(value: Any) -> str:
    """Return a Python value as strict JSON: dates in ISO 8601, bytes as text or base64, NaN and Infinity as null.

    Raises:
        BadRequestError: The value contains itself, or is nested too deep.
    """
    with suppress(TypeError, ValueError, RecursionError):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        with suppress(ValueError):  # bytes that are not UTF-8
            return _plain(value, "utf8")
        return _plain(value, "base64")
    except (ValueError, RecursionError) as exc:
        raise BadRequestError(f"a value cannot be written as JSON: {exc}") from None


def _plain(value: Any, bytes_mode: Literal["utf8", "base64"]) -> str:
    written = to_json(mended(value), inf_nan_mode="null", bytes_mode=bytes_mode, fallback=_listed)
    return json.dumps(from_json(written), ensure_ascii=False)


def _listed(value: Any) -> Any:
    """Return what stands for a value that pydantic does not know: the numbers of an array, else its text."""
    listed = getattr(value, "tolist", None)
    return listed() if callable(listed) else str(value)
