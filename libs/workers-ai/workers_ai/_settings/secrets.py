"""Mask the secrets among keywords, before a traceback can show them."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from workers_ai._settings.gateway import GATEWAY_OPTIONS
from workers_ai._settings.masking import blank, masked_text, masked_url, masked_values

__all__ = ["mask_secrets"]


def mask_secrets(given: dict[str, Any], known: Collection[str] | None = None) -> None:
    """Mask the secrets among keywords in place, so that the local variables in a traceback do not show them.

    A malformed value that may contain a secret is replaced by an empty one of its type: errors show only the type.

    Args:
        given: Settings of a constructor or of a call.
        known: Names of all valid keywords. Values of other keywords are removed: one may be a misspelt token. If None,
            only values of names that look like a misspelt secret are removed.
    """
    for name, value in given.items():
        mask = _MASKS.get(name)
        if mask is not None:
            given[name] = mask(value)
        elif _is_misspelt_secret(name) if known is None else name not in known:
            given[name] = blank(value)


@functools.lru_cache(maxsize=1024)
def _is_misspelt_secret(name: str) -> bool:
    return bool(difflib.get_close_matches(name, _MASKS, n=1, cutoff=0.8))


def _masked_gateway(gateway: object) -> object:
    if not isinstance(gateway, Mapping):
        return gateway if isinstance(gateway, str) else blank(gateway)
    options = {name: value if name in GATEWAY_OPTIONS else blank(value) for name, value in gateway.items()}
    return {**options, "token": masked_text(options["token"])} if "token" in options else options


def _masked_worker(worker: object) -> object:
    if not isinstance(worker, Mapping):
        return masked_url(worker)
    masks: dict[object, Callable[[object], object]] = {"url": masked_url, "headers": masked_values}
    return {name: masks.get(name, blank)(value) for name, value in worker.items()}


_MASKS: Final[dict[str, Callable[[object], object]]] = {
    **dict.fromkeys(("api_token", "api_key", "auth_token"), masked_text),
    **dict.fromkeys(("default_headers", "extra_headers"), masked_values),
    **dict.fromkeys(("base_url", "api_base"), masked_url),
    "gateway": _masked_gateway,
    "batch_worker": _masked_worker,
}
"""Functions that mask a value, by the keywords that may contain a secret."""
