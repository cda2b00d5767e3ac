"""From a reply to the error it means: every envelope, every known code, one place.

Cloudflare's code outranks the HTTP status (5021 comes with 413; 5007 and 5028 have come with 400); a reply without a
known code is judged by its status. The documented codes are those of
https://developers.cloudflare.com/workers-ai/platform/errors/; the others were seen in public traces.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from workers_ai import errors as e

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CODES: Final[dict[int, tuple[type[e.APIStatusError], int]]] = {
    # code: (class, HTTP status it usually comes with)
    1000: (e.InternalServerError, 500),
    1001: (e.BadRequestError, 400),
    1031: (e.BadRequestError, 400),
    2008: (e.BadRequestError, 400),
    2009: (e.AuthenticationError, 401),
    2018: (e.RateLimitError, 429),
    2021: (e.PermissionDeniedError, 402),
    2036: (e.PermissionDeniedError, 403),
    2040: (e.BadRequestError, 400),
    2041: (e.QuotaExhaustedError, 429),
    3003: (e.BadRequestError, 400),
    3006: (e.RequestTooLargeError, 413),
    3007: (e.RequestTimeoutError, 408),
    3008: (e.RequestTimeoutError, 408),
    3010: (e.ContextWindowExceededError, 413),
    3021: (e.RateLimitError, 429),
    3023: (e.PermissionDeniedError, 403),
    3030: (e.BadRequestError, 400),
    3036: (e.QuotaExhaustedError, 429),
    3039: (e.BadRequestError, 400),
    3040: (e.CapacityError, 429),
    3041: (e.PermissionDeniedError, 403),
    3042: (e.NotFoundError, 404),
    3043: (e.InternalServerError, 500),
    3046: (e.RequestTimeoutError, 408),
    3050: (e.InternalServerError, 503),
    4006: (e.QuotaExhaustedError, 429),
    5001: (e.InternalServerError, 500),
    5004: (e.BadRequestError, 400),
    5005: (e.BadRequestError, 405),
    5006: (e.BadRequestError, 400),
    5007: (e.NotFoundError, 400),
    5016: (e.PermissionDeniedError, 403),
    5018: (e.PermissionDeniedError, 403),
    5019: (e.BadRequestError, 405),
    5021: (e.ContextWindowExceededError, 413),
    5023: (e.StructuredOutputError, 400),
    5025: (e.StructuredOutputError, 400),
    5028: (e.ModelRetiredError, 410),
    5035: (e.PaidPlanRequiredError, 403),
    6002: (e.NotFoundError, 404),
    6003: (e.BadRequestError, 400),
    7000: (e.NotFoundError, 404),
    7001: (e.BadRequestError, 405),
    7003: (e.NotFoundError, 404),
    7009: (e.InternalServerError, 502),
    8001: (e.BadRequestError, 400),
    8006: (e.StructuredOutputError, 400),
    8007: (e.BadRequestError, 400),
    8008: (e.InternalServerError, 500),
    9109: (e.AuthenticationError, 403),
    10000: (e.AuthenticationError, 401),
    10063: (e.BadRequestError, 400),
}

_STATUSES: Final[dict[int, type[e.APIStatusError]]] = {
    401: e.AuthenticationError,
    402: e.PermissionDeniedError,
    403: e.PermissionDeniedError,
    404: e.NotFoundError,
    408: e.RequestTimeoutError,
    410: e.ModelRetiredError,
    413: e.RequestTooLargeError,
    429: e.RateLimitError,
}

# Texts that mean more than their code or status says; each narrows only the classes named.
_TEXTS: Final[tuple[tuple[re.Pattern[str], tuple[type[e.APIStatusError], ...], type[e.APIStatusError]], ...]] = (
    (
        re.compile(
            r"max context reached|maximum context length|context window limit|context length exceeded"
            r"|(?:input|prompt|text|sequence) (?:is )?too long|(?:input|prompt|sequence) length \d+ exceeds",
            re.IGNORECASE,
        ),
        (e.BadRequestError, e.RequestTooLargeError),
        e.ContextWindowExceededError,
    ),
    (re.compile(r"json mode couldn'?t be met", re.IGNORECASE), (e.APIStatusError,), e.StructuredOutputError),
    (re.compile(r"daily free allocation", re.IGNORECASE), (e.RateLimitError,), e.QuotaExhaustedError),
    (
        re.compile(r"capacity temporarily exceeded|no more data centers to forward", re.IGNORECASE),
        (e.RateLimitError,),
        e.CapacityError,
    ),
    (
        re.compile(r"requires? a workers paid plan", re.IGNORECASE),
        (e.PermissionDeniedError,),
        e.PaidPlanRequiredError,
    ),
    (
        re.compile(r"deprecated on \d{4}-\d\d-\d\d", re.IGNORECASE),
        (e.BadRequestError, e.NotFoundError),
        e.ModelRetiredError,
    ),
)

_PREFIX = re.compile(r"^(?:(?:AiError|Ai|Error)\s*:\s*)+", re.IGNORECASE)
_UUID = re.compile(r"\(([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\)\s*$", re.IGNORECASE)
_LEADING_CODE = re.compile(r"^\s*(?:(?:AiError|InferenceUpstreamError|Error)\s*:\s*)*(\d{4,5})\s*:\s*")
_TITLE = re.compile(r"<title[^<>]{0,200}>([^<]{0,500})</title>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,500}>")
_PLAIN_CHARACTERS: Final = 20_000
"""Characters of a page that are searched for its title."""


class Refusal(NamedTuple):
    """What an error envelope says."""

    message: str
    code: int | None = None
    http_status: int | None = None
    request_id: str | None = None


def read_refusal(body: Any) -> Refusal | None:
    """Read any error envelope; None where the body is not one.

    Accepts ``errors`` as a list or an object, ``error`` as a list, an object or a text, the form of the binding
    (``name``, ``internalCode``, ``httpCode``), that of vLLM (``object: "error"``), and ``success: false`` with no more
    than that.
    """
    if isinstance(body, str):
        return _from_text(body)
    if not isinstance(body, dict):
        return None
    entry = body.get("errors") or body.get("error") or (body.get("success") is False and body.get("messages"))
    if isinstance(entry, list):
        entry = entry[0] if entry else None
    if isinstance(entry, str):
        return _refusal(entry, body)
    if isinstance(entry, dict):
        if "message" not in entry and (inner := read_refusal(entry)):
            return inner
        return _refusal(entry.get("message") or entry.get("error"), {**body, **entry})
    if "internalCode" in body or "httpCode" in body or body.get("object") == "error":
        return _refusal(body.get("message") or body.get("description"), body)
    if body.get("success") is False:
        return _refusal(body.get("message"), body)
    return None


def _read_loosely(body: Any) -> Refusal | None:
    """Read what a reply that failed by its status says, in the forms that others write; None where it says nothing."""
    if isinstance(body, list) and body:
        return read_refusal({"error": body})
    if not isinstance(body, dict):
        return None
    text = body.get("message") or body.get("description") or body.get("detail")
    if isinstance(text, list) and text and isinstance(text[0], dict):
        text = text[0].get("msg")
    return _refusal(text, body) if isinstance(text, str) and text else None


def _refusal(message: Any, facts: Mapping[str, Any]) -> Refusal:
    text = message if isinstance(message, str) else json.dumps(message) if message else ""
    status = _as_int(facts.get("httpCode") or facts.get("statusCode"))
    code = _as_int(facts.get("code"))
    if code is not None and 100 <= code < 600:  # an HTTP status in the place of a code
        status, code = status or code, None
    if code is None:
        code = _as_int(facts.get("internalCode"))
    leading = _LEADING_CODE.match(text)
    if leading and code in (None, int(leading[1])):
        text, code = text[leading.end() :], int(leading[1])
    uuid = _UUID.search(text)
    text = _PREFIX.sub("", _UUID.sub("", text)).strip()
    if embedded := _embedded_message(text):
        text = embedded
    return Refusal(text or "the service gave no reason", code, status, uuid[1] if uuid else None)


def _from_text(text: str) -> Refusal | None:
    """Read ``"<code>: <text>"``, the way the binding throws; None for any other text."""
    return _refusal(text, {}) if _LEADING_CODE.match(text) else None


def _embedded_message(text: str) -> str | None:
    """Read the upstream's own error out of the JSON text that code 8007 carries."""
    if not text.startswith("{"):
        return None
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return None
    message = inner.get("message") if isinstance(inner, dict) else None
    return message if isinstance(message, str) else None


def _as_int(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _as_float(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def classify(refusal: Refusal, status: int) -> type[e.APIStatusError] | None:
    """Choose the class; None where neither code, text nor status says that anything failed."""
    cls = CODES[refusal.code][0] if refusal.code in CODES else _by_status(refusal.http_status or status)
    for pattern, bases, narrower in _TEXTS:
        fits = cls is None or (issubclass(cls, bases) and not issubclass(cls, narrower))
        if fits and pattern.search(refusal.message):
            return narrower
    return cls


def _by_status(status: int) -> type[e.APIStatusError] | None:
    if status < 300:
        return None
    if status >= 500:
        return e.InternalServerError
    if status == 409:
        return e.APIStatusError
    return _STATUSES.get(status, e.BadRequestError)


def error_from_reply(
    status: int,
    headers: Mapping[str, str],
    text: str,
    *,
    model: str | None = None,
    body: Any = None,
    scrub: Callable[[str], str] = lambda text: text,
    successor: Callable[[str], str | None] = lambda model: None,
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> e.WorkersAIError:
    """Make the typed error of a reply that is one.

    Args:
        status: HTTP status.
        headers: Reply headers, looked up in lower case.
        text: The body as text.
        model: The model asked for.
        body: The parsed body, or None where it is not JSON.
        scrub: Removes secrets from a text.
        successor: Names the model that replaced a retired one.
        now: The present time, in UTC.
    """
    text = scrub(text)
    said = text if body is None else body
    refusal = read_refusal(said) or _read_loosely(said)
    refusal = refusal or Refusal(_plain(text) or f"HTTP {status} with an empty body")
    refusal = refusal._replace(message=scrub(refusal.message))
    cls = classify(refusal, status)
    reply = e.ErrorResponse(status, {k: scrub(v) for k, v in headers.items() if k.lower() != "set-cookie"}, text)
    ray = headers.get("cf-ray")
    request_id = headers.get("cf-ai-req-id") or refusal.request_id or ray
    shown = text if body is None else _scrubbed(body, scrub)
    if cls is None:
        return e.APIResponseValidationError(
            f"the service reported a failure with HTTP {status}: {refusal.message}",
            model=model, body=shown, status_code=status, code=refusal.code, request_id=request_id, response=reply,
        )  # fmt: skip
    error = cls(
        refusal.message,
        status_code=status if status >= 300 else refusal.http_status or _usual_status(refusal.code, status),
        code=refusal.code,
        model=model,
        request_id=request_id,
        ray_id=ray,
        gateway_log_id=headers.get("cf-aig-log-id"),
        body=shown,
        response=reply,
        retry_after=retry_after_s(headers, now),
    )
    if cls is e.APIStatusError:
        error.is_retryable = status == 409
    if isinstance(error, e.QuotaExhaustedError) and refusal.code != 2041:
        error.resets_at = next_midnight_utc(now())
    if isinstance(error, e.ModelRetiredError) and model:
        error.successor = successor(model)
    return error


def scrub_error(error: e.WorkersAIError, scrub: Callable[[str], str]) -> None:
    """Remove secrets from what an error has taken over from a reply that is none."""
    error.message = scrub(error.message)
    error.args = (error.message,)
    if isinstance(error, e.APIResponseValidationError):
        error.body = _scrubbed(error.body, scrub)


def _scrubbed(value: Any, scrub: Callable[[str], str]) -> Any:
    """Parsed JSON with every text in it scrubbed."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, list):
        return [_scrubbed(item, scrub) for item in value]
    if isinstance(value, dict):
        return {scrub(key): _scrubbed(item, scrub) for key, item in value.items()}
    return value


def _usual_status(code: int | None, status: int) -> int:
    return CODES[code][1] if code in CODES else status


def _plain(text: str) -> str:
    """One short line out of an HTML page or a text."""
    text = text[:_PLAIN_CHARACTERS]
    title = _TITLE.search(text)
    line = " ".join((title[1] if title else _TAG.sub(" ", text)).split())
    return line if len(line) <= 300 else line[:297] + "..."


def retry_after_s(headers: Mapping[str, str], now: Callable[[], dt.datetime]) -> float | None:
    """Seconds to wait, from ``retry-after-ms``, or ``retry-after`` as seconds or an HTTP date; None if neither fits."""
    if (milliseconds := _as_float(headers.get("retry-after-ms"))) is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after") or ""
    if (seconds := _as_float(value)) is not None:
        return max(0.0, seconds)
    try:
        when = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.UTC)
    return max(0.0, (when - now()).total_seconds())


def next_midnight_utc(now: dt.datetime) -> dt.datetime:
    """The next 00:00 UTC, when the daily allocation is renewed."""
    return (now + dt.timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
