"""Convert a response, or a failure of the transport, to a reply or a typed error."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from workers_ai import catalogue
from workers_ai._transports.http import body_text, free_body, parsed
from workers_ai._wire.chat.reply import is_failed_response, kept_headers
from workers_ai._wire.chat.responses_route import reply_in_events
from workers_ai._wire.error_mapping import error_from_reply, read_error
from workers_ai._wire.json_types import JSON
from workers_ai._wire.sse import is_event_stream, looks_like_events
from workers_ai.errors import (
    APIConnectionError,
    APIResponseValidationError,
    APITimeoutError,
    ConfigurationError,
    WorkersAIError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from workers_ai._limits.tickets import Ticket
    from workers_ai._settings.settings import Settings

__all__ = ["Reply", "connection_error", "read_reply"]

_USER_OF_URL = re.compile(r"//[^/@\s]{1,1000}@")
_PHASES = {"ConnectTimeout": "connecting", "WriteTimeout": "sending", "PoolTimeout": "waiting for a connection"}


class Reply(NamedTuple):
    """A successful reply.

    Attributes:
        data: The parsed body; None for an open event stream; raw bytes of a whole event stream.
        headers: The headers that replies report.
        stream: The response of an open event stream, else None.
        ticket: The ticket of an open event stream in the limiter, else None.
    """

    data: JSON
    headers: Mapping[str, str]
    stream: httpx.Response | None = None
    ticket: Ticket | None = None


def read_reply(
    response: httpx.Response, model: str, settings: Settings, *, reads_events: bool = False
) -> Reply | WorkersAIError:
    """Parse a response that has been read. Error responses and invalid 2xx responses become typed errors.

    Args:
        response: The response.
        model: Model id of the request.
        settings: Settings with the secrets to remove from errors.
        reads_events: Whether the caller reads a whole event stream, as some proxies send in place of a whole answer.
    """
    body: JSON = None
    is_json = True
    try:
        body = parsed(response)
    except ValueError:
        has_events = _has_events(response)
        body = reply_in_events(response.content) if has_events else None
        is_json = body is not None
        if reads_events and has_events and not is_json and response.is_success:
            return Reply(response.content, kept_headers(response.headers.raw))
    failed = False
    if isinstance(body, dict):
        result = body.get("result")
        failed = body.get("success") is False or (not result and bool(read_error(body)))
        if isinstance(result, dict) and is_failed_response(result):
            body, failed = result, True
    if response.is_success and is_json and not failed:
        free_body(response)
        return Reply(body, kept_headers(response.headers.raw))
    if response.is_success and not is_json:
        what = "an empty body" if not response.content.strip() else "a body that is not JSON"
        shown = settings._scrub(body_text(response)[:2000])
        return APIResponseValidationError(
            f"HTTP {response.status_code} with {what}", model=model, body=shown, status_code=response.status_code,
            request_id=response.headers.get("cf-ray"),
        )  # fmt: skip
    error = error_from_reply(
        response.status_code,
        response.headers,
        body_text(response),
        model=model,
        body=body,
        scrub=settings._scrub,
        successor=catalogue.successor,
    )
    error.hint = getattr(response, "hint", "")  # a ParsedResponse may have one
    return error


def _has_events(response: httpx.Response) -> bool:
    media = response.headers.get("content-type")
    return is_event_stream(response.status_code, media) or looks_like_events(response.content)


def connection_error(exc: Exception, model: str, settings: Settings) -> WorkersAIError:
    """Return the typed error for an exception of the transport; raise ``exc`` if it is not a transport error."""
    import httpx

    if isinstance(exc, APIResponseValidationError):  # the body is too large or has an unexpected encoding
        if exc.status_code is not None and exc.status_code >= 400:
            return error_from_reply(exc.status_code, {}, exc.message, model=model)
        exc.model = exc.model or model
        return exc
    host = _host_of(exc) or httpx.URL(settings.base_url).host
    if isinstance(exc, httpx.TimeoutException):
        message = f"{host} did not answer in time while {_PHASES.get(type(exc).__name__, 'waiting for the response')}"
        if settings.total_timeout is not None:
            message += f"; total_timeout is {settings.total_timeout:g} s"
        error: APIConnectionError = APITimeoutError(message, model=model)
    elif isinstance(exc, httpx.RequestError):
        detail = _USER_OF_URL.sub("//[redacted]@", settings._scrub(str(exc))) or type(exc).__name__
        error = APIConnectionError(f"no response from {host}: {detail}", model=model)
    elif isinstance(exc, (ExceptionGroup, OverflowError)):  # how anyio and socket report an impossible address
        error = APIConnectionError(f"no response from {host}: {_first_cause(exc)}", model=model)
    elif isinstance(exc, RuntimeError) and "client has been closed" in str(exc):
        return ConfigurationError(
            "the HTTP client has been closed: pass an http_client (http_async_client) that stays open", model=model
        )
    else:
        raise exc
    # `exc` remains the context of the error. Remove the token from it: the headers of the request and the tracebacks of
    # its causes contain the token.
    with suppress(RuntimeError):  # `exc` has no request
        if isinstance(exc, httpx.RequestError):
            exc.request = httpx.Request(exc.request.method, exc.request.url)
    exc.__cause__ = exc.__context__ = None
    error.delivered = not isinstance(
        exc, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, ExceptionGroup, OverflowError)
    )
    return error


def _first_cause(exc: Exception) -> Exception:
    while isinstance(exc, ExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def _host_of(exc: Exception) -> str | None:
    """Return the host of the failed request (a batch Worker has its own); None if it is unknown."""
    try:
        return exc.request.url.host  # type: ignore[attr-defined, no-any-return]
    except (AttributeError, RuntimeError):
        return None
