"""Mask the secrets among keywords, before a traceback can show them."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from pydantic import SecretStr

from workers_ai._settings.gateway import GATEWAY_OPTIONS

__all__ = ["mask_secrets", "masked_url"]

_USER_OF_URL: Final = re.compile(r"//.*(?<!/)@")
"""User and password of a URL. The ``@`` of a model id follows a slash."""
_QUERY_OF_URL: Final = re.compile(r"([?#]).*")


def mask_secrets(given: dict[str, Any], known: Collection[str] | None = None) -> None:
    """Mask the secrets among keywords in place, so that the local variables in a traceback do not show them.

    A malformed value that may hold a secret is replaced by an empty one of its type: the error needs the type alone.

    Args:
        given: Settings of a constructor or of a call.
        known: Names of all valid keywords. Values of other ones are removed: one may be a misspelt token. None: only
            values of names that look like a misspelt secret are removed.
    """
    for name, value in given.items():
        mask = _MASKS.get(name)
        if mask is not None:
            given[name] = mask(value)
        elif _is_misspelt_secret(name) if known is None else name not in known:
            given[name] = _blank(value)


@functools.lru_cache(maxsize=1024)
def _is_misspelt_secret(name: str) -> bool:
    return bool(difflib.get_close_matches(name, _MASKS, n=1, cutoff=0.8))


def _blank(value: object) -> object:
    return type(value)() if isinstance(value, (str, bytes, bytearray, list, tuple, set, dict)) else value


def _masked_text(value: object) -> object:
    return SecretStr(value) if isinstance(value, str) else _blank(value)


def _masked_values(headers: object) -> object:
    if not isinstance(headers, Mapping):
        return _blank(headers)
    return {name: _masked_text(value) for name, value in headers.items()}


def _masked_gateway(gateway: object) -> object:
    if not isinstance(gateway, Mapping):
        return gateway if isinstance(gateway, str) else _blank(gateway)
    options = {name: value if name in GATEWAY_OPTIONS else _blank(value) for name, value in gateway.items()}
    return {**options, "token": _masked_text(options["token"])} if "token" in options else options


def _masked_worker(worker: object) -> object:
    if not isinstance(worker, Mapping):
        return masked_url(worker)
    masks: dict[object, Callable[[object], object]] = {"url": masked_url, "headers": _masked_values}
    return {name: masks.get(name, _blank)(value) for name, value in worker.items()}


def masked_url(url: object) -> object:
    """Return a URL with user, password and query replaced. Such a URL is rejected."""
    if not isinstance(url, str):
        return _blank(url)
    return _QUERY_OF_URL.sub(r"\1redacted", _USER_OF_URL.sub("//redacted@", url))


_MASKS: Final[dict[str, Callable[[object], object]]] = {
    **dict.fromkeys(("api_token", "api_key", "auth_token"), _masked_text),
    **dict.fromkeys(("default_headers", "extra_headers"), _masked_values),
    **dict.fromkeys(("base_url", "api_base"), masked_url),
    "gateway": _masked_gateway,
    "batch_worker": _masked_worker,
}
"""Function that masks the value, by keyword that may hold a secret."""
