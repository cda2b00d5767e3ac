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
    5012: (e.BadRequestError, 422),
    5016: (e.PermissionDeniedError, 403),
    5018: (e.PermissionDeniedError, 403),
    5019: (e.BadRequestError, 405),
    5021: (e.ContextWindowExceededError, 413),
    5023: (e.StructuredOutputError, 400),
    5025: (e.StructuredOutputError, 400),
    5028: (e.ModelRetiredError, 410),
    5035: (e.PaidPlanRequiredError, 403),
    5504: (e.NotFoundError, 404),
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

_USUAL_STATUSES: Final = {**dict(reversed(CODES.values())), e.PermissionDeniedError: 403}
"""HTTP status that each class usually comes with."""

UNKNOWN_JOB: Final = 5504
"""Code of a poll for a job that the queue does not know, or no longer."""
_UNKNOWN_JOB_TEXT: Final = re.compile(r"request not found in (?:the )?queue", re.IGNORECASE)


class _Text(NamedTuple):
    """A text that says more than the code or the status it comes with."""

    pattern: re.Pattern[str]
    cls: type[e.APIStatusError]
    narrows: tuple[type[e.APIStatusError], ...] = ()
    """Classes that the text overrules; any class where neither a known code nor a 4xx status says more."""


def _text(pattern: str, cls: type[e.APIStatusError], *narrows: type[e.APIStatusError]) -> _Text:
    return _Text(re.compile(pattern, re.IGNORECASE), cls, narrows)


# The binding throws texts without a number, so every documented text stands here, the most telling first.
_TEXTS: Final = (
    _Text(_UNKNOWN_JOB_TEXT, e.NotFoundError, (e.APIStatusError,)),
    _text(
        r"max context reached|maximum context length|context window limit|context length exceeded"
        r"|(?:input|prompt|text|sequence) (?:is )?too long|(?:input|prompt|sequence) length \d+ exceeds",
        e.ContextWindowExceededError, e.BadRequestError, e.RequestTooLargeError,
    ),
    _text(r"json mode couldn'?t be met", e.StructuredOutputError, e.APIStatusError),
    _text(r"daily free allocation|spend limit exceeded", e.QuotaExhaustedError, e.APIStatusError),
    _text(
        r"capacity temporarily exceeded|no more data centers to forward", e.CapacityError,
        e.RateLimitError, e.InternalServerError,
    ),
    _text(r"requires? a workers paid plan", e.PaidPlanRequiredError, e.PermissionDeniedError),
    _text(r"deprecated on \d{4}-\d\d-\d\d", e.ModelRetiredError, e.BadRequestError, e.NotFoundError),
    _text(r"json schema mode is not supported|doesn'?t support json schema", e.StructuredOutputError),
    _text(r"per min rate reached|\brate limit", e.RateLimitError),
    _text(r"no such model|no route for that uri|could not route to", e.NotFoundError),
    _text(r"authentication error|invalid access token", e.AuthenticationError),
    _text(r"not allowed to access|has not agreed to|service unavailable for account", e.PermissionDeniedError),
    _text(r"request is too large", e.RequestTooLargeError),
    _text(r"request timeout|request was aborted", e.RequestTimeoutError),
    _text(r"(?:one|any)of at '|bad input|invalid input|invalid data type", e.BadRequestError),
    _text(r"internal (?:server )?error", e.InternalServerError),
)  # fmt: skip

_NAMES: Final = r"\s*(?:(?:Ai|(?:Ai|AiInternal|AiGateway|InferenceUpstream)?Error|undefined|null)\s*:\s*)"
_PREFIX = re.compile(rf"^{_NAMES}+", re.IGNORECASE)
_UUID = re.compile(r"\(([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\)\s*$", re.IGNORECASE)
_LEADING_CODE = re.compile(rf"^{_NAMES}*\s*(\d{{4,5}})\s*:\s*", re.IGNORECASE)
_CODE_ALONE = re.compile(r"^error code:\s*(\d{4,5})$", re.IGNORECASE)
_TITLE = re.compile(r"<title[^<>]{0,200}>([^<]{0,500})</title>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,500}>")
_NO_REASON: Final = "the service gave no reason"
_DEPTH: Final = 4
"""Errors inside errors that are read at most."""
_PLAIN_CHARACTERS: Final = 20_000
"""Characters of a page that are searched for its title."""


class Refusal(NamedTuple):
    """What an error envelope says."""

    message: str
    code: int | None = None
    http_status: int | None = None
    request_id: str | None = None


def read_refusal(body: Any, *, depth: int = _DEPTH) -> Refusal | None:
    """Return what an error envelope says; None if the body is not one.

    Accepts ``errors`` as a list or an object, ``error`` as a list, an object or a text, the form of the binding
    (``name``, ``internalCode``, ``httpCode``), that of vLLM (``object: "error"``), and ``success: false`` with no more
    than that. A message that is the JSON of another error is read as that error.

    Args:
        body: The parsed body, or the text that a binding throws.
        depth: Errors inside errors to read at most.
    """
    if isinstance(body, str):
        return _from_text(body)
    if not isinstance(body, dict):
        return None
    entry = body.get("errors") or body.get("error") or (body.get("success") is False and body.get("messages"))
    if isinstance(entry, list):
        entry = entry[0] if entry else None
    if isinstance(entry, str):
        text = body.get("message")  # beside a name such as BATCH_ERROR
        return _refusal(text if isinstance(text, str) and text else entry, body, depth)
    if isinstance(entry, dict):
        if "message" not in entry and depth and (inner := read_refusal(entry, depth=depth - 1)):
            return inner
        return _refusal(entry.get("message") or entry.get("error"), {**body, **entry}, depth)
    if "internalCode" in body or "httpCode" in body or body.get("object") == "error":
        return _refusal(body.get("message") or body.get("description"), body, depth)
    if body.get("success") is False:
        return _refusal(body.get("message"), body, depth)
    return None


def read_error_body(body: Any, *, depth: int = _DEPTH) -> Refusal | None:
    """Return what the body of an error reply says, in the forms that others write, too; None if it says nothing."""
    if refusal := read_refusal(body, depth=depth):
        return refusal
    if isinstance(body, list) and body:
        return read_refusal({"error": body}, depth=depth)
    if not isinstance(body, dict):
        return None
    text = body.get("message") or body.get("description") or body.get("detail")
    if isinstance(text, list) and text and isinstance(text[0], dict):
        text = text[0].get("msg")
    return _refusal(text, body, depth) if isinstance(text, str) and text else None


def _refusal(message: Any, facts: Mapping[str, Any], depth: int = _DEPTH) -> Refusal:
    text = message if isinstance(message, str) else _as_text(message) if message else ""
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
    if code is None and (alone := _CODE_ALONE.match(text)):
        code = int(alone[1])
    refusal = Refusal(text or _NO_REASON, code, status, uuid[1] if uuid else None)
    inner = _embedded(text, depth - 1) if depth else None
    if inner is None:
        return refusal
    code = inner.code if code is None else code
    return Refusal(inner.message, code, status or inner.http_status, refusal.request_id or inner.request_id)


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return ""


def _from_text(text: str) -> Refusal | None:
    """Read ``"<code>: <text>"``, the way the binding throws; None for any other text."""
    return _refusal(text, {}) if _LEADING_CODE.match(text) else None


def _embedded(text: str, depth: int) -> Refusal | None:
    """Return the error that stands in a message as JSON text, with the fields it names; None if there is none."""
    if not text.startswith(("{", "[")):
        return None
    try:
        inner = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    refusal = read_error_body(inner, depth=depth)
    if refusal is None or refusal.message == _NO_REASON:
        return None
    fields = _field_errors(inner)
    return refusal._replace(message=f"{refusal.message} ({fields})") if fields else refusal


def _field_errors(inner: Any) -> str:
    """Return the field errors of a validation error of Clef: ``images: image payload is invalid``; "" if none."""
    for key in ("error", "details", "fieldErrors"):
        inner = inner.get(key) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        return ""
    return "; ".join(
        f"{name}: {', '.join(map(str, texts)) if isinstance(texts, list) else texts}" for name, texts in inner.items()
    )


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
    """Return the class of an error; None if neither code, text nor status says that anything failed."""
    status = refusal.http_status or status
    cls = CODES[refusal.code][0] if refusal.code in CODES else _by_status(status)
    vague = refusal.code not in CODES and (status < 300 or status >= 500)
    for text in _TEXTS:
        overrules = vague or (cls is not None and issubclass(cls, text.narrows) and not issubclass(cls, text.cls))
        if overrules and text.pattern.search(refusal.message):
            return text.cls
    return cls


def usual_status(code: int | None, otherwise: int) -> int:
    """Return the HTTP status that a code usually comes with; ``otherwise`` if the code is unknown."""
    return CODES[code][1] if code in CODES else otherwise


def says_unknown_job(code: int | None, message: str) -> bool:
    """Return whether an error says that the queue does not know a job: asking again does not help."""
    return code == UNKNOWN_JOB or bool(_UNKNOWN_JOB_TEXT.search(message))


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
    refusal = read_error_body(said) or Refusal(_plain(text) or f"HTTP {status} with an empty body")
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
    usual = refusal.http_status or usual_status(refusal.code, _USUAL_STATUSES.get(cls, status))
    error = cls(
        refusal.message,
        status_code=status if status >= 300 else usual,
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
    """Return parsed JSON with every text in it scrubbed; None if it is nested deeper than Python recurses."""

    def scrubbed(value: Any) -> Any:
        if isinstance(value, str):
            return scrub(value)
        if isinstance(value, list):
            return [scrubbed(item) for item in value]
        if isinstance(value, dict):
            return {scrub(key): scrubbed(item) for key, item in value.items()}
        return value

    try:
        return scrubbed(value)
    except RecursionError:
        return None


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
