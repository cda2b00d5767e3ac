"""Checks of single settings. Each raises ``ConfigurationError`` for a malformed value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from pydantic import SecretStr

from workers_ai._settings.gateway import gateway_options
from workers_ai._settings.secrets import mask_secrets
from workers_ai._settings.urls import batch_worker_options, reveal
from workers_ai._validation import check_header, check_on_busy, require, require_int, require_kind
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    import httpx

    from workers_ai._settings.keywords import Timeout

__all__ = [
    "CHECKS",
    "DEFAULT_MAX_RETRIES",
    "DEFAULT_TIMEOUT_S",
    "check_handles",
    "check_max_retries",
    "check_seconds",
    "check_setting",
    "check_timeout",
    "masked_headers",
]

DEFAULT_TIMEOUT_S: Final = 300.0
DEFAULT_MAX_RETRIES: Final = 2
_LONGEST_TIMEOUT_S: Final = 1_000_000
_CONNECTION_HEADERS: Final = frozenset(
    {"connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)


def check_max_retries(max_retries: int | None) -> int:
    """Return the number of retries; the default for None.

    Raises:
        ConfigurationError: ``max_retries`` is not a whole number of 0 or more.
    """
    require_int("max_retries", max_retries, 0, None)
    return DEFAULT_MAX_RETRIES if max_retries is None else max_retries


def _check_max_concurrency(value: int | None) -> int | None:
    require_int("max_concurrency", value, 1, None)
    return value


def _check_session_id(value: object) -> str | None:
    return None if value is None else str(value)


def _check_requests_per_minute(value: int | Literal["documented"] | None) -> int | Literal["documented"] | None:
    fits = value is None or value == "documented" or (type(value) is int and value >= 1)
    what = f'"documented" or a whole number 1 or more, not {value!r:.100}'
    require(fits, f"requests_per_minute must be {what}", "requests_per_minute")
    return value


def check_seconds(name: str, seconds: float | None) -> float | None:
    """Return ``seconds``; None means no bound.

    Raises:
        ConfigurationError: ``seconds`` is not a number above 0 and at most 1,000,000.
    """
    fits = seconds is None or (type(seconds) in (int, float) and 0 < seconds <= _LONGEST_TIMEOUT_S)
    require(fits, f"{name} must be more than 0 and at most {_LONGEST_TIMEOUT_S:,} seconds, not {seconds!r:.100}", name)
    return seconds


def check_timeout(timeout: Timeout | None) -> float | httpx.Timeout:
    """Return the timeout as seconds or an ``httpx.Timeout``; the default for None.

    Args:
        timeout: Seconds, an ``httpx.Timeout``, ``(connect, read)``, ``(connect, read, write, pool)``, or a mapping of
            these four names (the form in dumps).

    Raises:
        ConfigurationError: ``timeout`` has another type, or is out of range.
    """
    if timeout is None:
        return DEFAULT_TIMEOUT_S
    if isinstance(timeout, Sequence) and not isinstance(timeout, str) and len(timeout) in (2, 4):
        parts = [*timeout, timeout[1], timeout[1]] if len(timeout) == 2 else timeout
        timeout = dict(zip(("connect", "read", "write", "pool"), parts, strict=True))
    if isinstance(timeout, Mapping):
        import httpx

        named = {name: check_seconds(f"timeout {name}", part) for name, part in timeout.items()}
        try:
            return httpx.Timeout(**named)
        except (TypeError, ValueError):
            raise ConfigurationError(
                "a timeout mapping must have the keys connect, read, write and pool, in seconds"
            ) from None
    if isinstance(timeout, (int, float)):
        check_seconds("timeout", timeout)
        return timeout
    what = "seconds or an httpx.Timeout, or (connect, read)"
    require(hasattr(timeout, "connect"), f"timeout must be {what}, not {type(timeout).__name__}")
    return cast("httpx.Timeout", timeout)


def masked_headers(name: str, headers: Mapping[str, str | SecretStr] | None) -> dict[str, SecretStr | str]:
    """Return extra headers with masked values.

    Args:
        name: The setting or keyword that holds them, for errors.
        headers: Names and values.

    Raises:
        ConfigurationError: ``headers`` is not a mapping, or a header cannot be sent.
    """
    require_kind(name, headers, Mapping, "a mapping of names to values")
    masked: dict[str, SecretStr | str] = {}
    for header, value in (headers or {}).items():
        check_header(header, value)
        if header.lower() in _CONNECTION_HEADERS:
            raise ConfigurationError(f"{name} must not contain {header}, which the HTTP client sets: remove it")
        masked[header] = SecretStr(reveal(value))
    return masked


CHECKS: Final[dict[str, Callable[[Any], object]]] = {
    "gateway": gateway_options,
    "timeout": check_timeout,
    "total_timeout": partial(check_seconds, "total_timeout"),
    "max_retries": check_max_retries,
    "on_busy": check_on_busy,
    "max_concurrency": _check_max_concurrency,
    "session_id": _check_session_id,
    "default_headers": partial(masked_headers, "default_headers"),
    "requests_per_minute": _check_requests_per_minute,
}
"""The check of each setting that has a value of its own in :class:`Settings`. A check raises ``ConfigurationError``."""


def check_setting(name: str, value: object, *, allow_insecure_http: bool = False) -> object:
    """Return the checked value of one setting, with secrets masked. Return a setting without a check unchanged.

    Raises:
        ConfigurationError: The value is malformed.
    """
    given = {name: value}
    mask_secrets(given)
    if name == "batch_worker":
        return batch_worker_options(cast("str", given[name]), allow_insecure_http)
    check = CHECKS.get(name)
    return check(given[name]) if check else given[name]


def check_handles(http_client: object, http_async_client: object, retry: object, limiter: object) -> None:
    """Check the type of the user's own HTTP clients, retry policy and limiter.

    Raises:
        ConfigurationError: ``http_client`` is not a sync client, ``http_async_client`` is not an async client, or the
            others are not objects of this package.
    """
    fits = http_client is None or (hasattr(http_client, "send") and not hasattr(http_client, "aclose"))
    require(fits, "http_client serves the sync calls: it must be an httpx.Client")
    fits = http_async_client is None or hasattr(http_async_client, "aclose")
    require(fits, "http_async_client serves the async calls: it must be an httpx.AsyncClient")
    require(retry is None or hasattr(retry, "wait_s"), "retry must be a workers_ai.RetryPolicy")
    require(limiter is None or hasattr(limiter, "_of_account"), "limiter must be a workers_ai.Limiter")
