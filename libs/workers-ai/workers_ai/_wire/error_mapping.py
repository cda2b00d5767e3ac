"""Map error responses to typed errors: every envelope and every known code.

Cloudflare's code takes precedence over the HTTP status (5021 comes with 413; 5007 and 5028 have come with 400). Without
a known code, the status decides. The documented codes are those of
https://developers.cloudflare.com/workers-ai/platform/errors/; the others were seen in public traces.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from workers_ai import errors as e
from workers_ai._wire.json_types import JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CODES: Final[dict[int, tuple[type[e.APIStatusError], int]]] = {
    # code: (class, HTTP status it usually comes with)
    1000: (e.InternalServerError, 500),
    1001: (e.BadRequestError, 400),
    1031: (e.BadRequestError, 400),
    2003: (e.RateLimitError, 429),
    2008: (e.BadRequestError, 400),
    2009: (e.AuthenticationError, 401),
    2016: (e.BadRequestError, 424),
    2017: (e.BadRequestError, 424),
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

NAMES: Final[dict[str, type[e.APIStatusError]]] = {
    "authentication_error": e.AuthenticationError,
    "context_length_exceeded": e.ContextWindowExceededError,
    "insufficient_quota": e.QuotaExhaustedError,
    "invalid_api_key": e.AuthenticationError,
    "invalid_prompt": e.BadRequestError,
    "invalid_request_error": e.BadRequestError,
    "model_not_found": e.NotFoundError,
    "not_found_error": e.NotFoundError,
    "overloaded_error": e.InternalServerError,
    "api_error": e.InternalServerError,
    "permission_error": e.PermissionDeniedError,
    "rate_limit_error": e.RateLimitError,
    "rate_limit_exceeded": e.RateLimitError,
    "server_error": e.InternalServerError,
}
"""Error codes and types of OpenAI and Anthropic. They choose the class of an error with HTTP 200 and no known code.

Sources: https://platform.openai.com/docs/api-reference/responses/object (``error.code``) and
https://docs.anthropic.com/en/api/errors.
"""

_USUAL_STATUSES: Final = {**dict(reversed(CODES.values())), e.PermissionDeniedError: 403}
"""HTTP status that usually comes with each class."""

UNKNOWN_JOB: Final = 5504
"""Code of a poll for a job that the queue does not have, or no longer has."""
_UNKNOWN_JOB_TEXT: Final = re.compile(r"request not found in (?:the )?queue", re.IGNORECASE)


class _TextRule(NamedTuple):
    """An error text that overrides the code or the status of its response."""

    pattern: re.Pattern[str]
    cls: type[e.APIStatusError]
    overrides: tuple[type[e.APIStatusError], ...] = ()
    """Classes that the text overrides. Without a known code or a 4xx status, it overrides any class."""


def _rule(pattern: str, cls: type[e.APIStatusError], *overrides: type[e.APIStatusError]) -> _TextRule:
    return _TextRule(re.compile(pattern, re.IGNORECASE), cls, overrides)


# The binding throws texts without a code, so every documented text is listed, the most specific first.
_TEXT_RULES: Final = (
    _TextRule(_UNKNOWN_JOB_TEXT, e.NotFoundError, (e.APIStatusError,)),
    _rule(
        r"max context reached|maximum context length|context window limit|context length exceeded"
        r"|(?:input|prompt|text|sequence) (?:is )?too long|(?:input|prompt|sequence) length \d+ exceeds",
        e.ContextWindowExceededError, e.BadRequestError, e.RequestTooLargeError,
    ),
    _rule(r"json mode couldn.?t be met", e.StructuredOutputError, e.APIStatusError),
    _rule(r"daily free allocation|spend limit exceeded", e.QuotaExhaustedError, e.APIStatusError),
    _rule(
        r"capacity temporarily exceeded|no more data centers to forward", e.CapacityError,
        e.RateLimitError, e.InternalServerError,
    ),
    _rule(r"requires? a workers paid plan", e.PaidPlanRequiredError, e.PermissionDeniedError),
    _rule(r"deprecated on \d{4}-\d\d-\d\d", e.ModelRetiredError, e.BadRequestError, e.NotFoundError),
    _rule(r"json schema mode is not supported|doesn'?t support json schema", e.StructuredOutputError),
    _rule(r"per min rate reached|\brate limit", e.RateLimitError),
    _rule(r"no such model|no route for that uri|could not route to", e.NotFoundError),
    _rule(r"authentication error|invalid access token", e.AuthenticationError),
    _rule(r"not allowed to access|has not agreed to|service unavailable for account", e.PermissionDeniedError),
    _rule(r"request is too large", e.RequestTooLargeError),
    _rule(r"request timeout|request was aborted", e.RequestTimeoutError),
    _rule(r"(?:one|any)of at '|bad input|invalid input|invalid data type", e.BadRequestError),
    _rule(r"internal (?:server )?error", e.InternalServerError),
)  # fmt: skip

# Possessive quantifiers keep the time linear in the length of the text.
_ERROR_NAME: Final = r"(?:(?:Ai|(?:Ai|AiInternal|AiGateway|InferenceUpstream)?Error|undefined|null)\s*+:\s*+)"
_PREFIX = re.compile(rf"^\s*+{_ERROR_NAME}++", re.IGNORECASE)
_UUID = re.compile(r"\(([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\)\s*$", re.IGNORECASE)
_LEADING_CODE = re.compile(rf"^\s*+{_ERROR_NAME}*+(\d{{4,5}})\s*+:\s*+", re.IGNORECASE)
_CODE_ALONE = re.compile(r"^error code:\s*(\d{4,5})$", re.IGNORECASE)
_TITLE = re.compile(r"<title[^<>]{0,200}>([^<]{0,500})</title>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,500}>")
_NO_REASON: Final = "the service gave no reason"
_MAX_NESTED_ERRORS: Final = 4
_MAX_SEARCHED_CHARACTERS: Final = 20_000
"""Characters of a page that are searched for its title."""
_MAX_MESSAGE_CHARACTERS: Final = 2_000
_CODE_LIMIT: Final = 10**9
"""Larger numbers are neither codes nor statuses."""


class ErrorDetails(NamedTuple):
    """The content of an error envelope.

    Attributes:
        message: The text, without prefixes and request id.
        code: Cloudflare's code; None if missing.
        http_status: The HTTP status inside the envelope; None if missing.
        request_id: The request id inside the text; None if missing.
        name: The code or type of OpenAI or Anthropic, of :data:`NAMES`; None if missing.
    """

    message: str
    code: int | None = None
    http_status: int | None = None
    request_id: str | None = None
    name: str | None = None


def read_error(body: JSON, *, is_error: bool = False, max_nested: int = _MAX_NESTED_ERRORS) -> ErrorDetails | None:
    """Return the details of an error envelope; None for any other body.

    Accepts ``errors`` as a list or an object; ``error`` as a list, an object or a text; the form of the binding
    (``name``, ``internalCode``, ``httpCode``); the form of vLLM (``object: "error"``); a bare ``success: false``; and
    the events ``error`` and ``response.failed`` of the Responses route.
    If a message is itself a JSON error, the details are those of the inner error.

    Args:
        body: The parsed body, or the text that a binding throws (``"<code>: <text>"``).
        is_error: Whether the response is known to be an error. Then a list of errors and an object that has only
            ``message``, ``description`` or ``detail`` are accepted, too.
        max_nested: Maximum depth of errors inside errors.
    """
    if isinstance(body, str):
        return _details(body, {}) if _LEADING_CODE.match(body) else None
    if is_error and isinstance(body, list) and body:
        body = {"error": body}
    if not isinstance(body, dict):
        return None
    entry = body.get("errors") or body.get("error") or (body.get("success") is False and body.get("messages"))
    if isinstance(entry, list):
        entry = entry[0] if entry else None
    if isinstance(entry, str):
        text = body.get("message")  # beside a name such as BATCH_ERROR
        return _details(text if isinstance(text, str) and text else entry, body, max_nested)
    if isinstance(entry, dict):
        if "message" not in entry and max_nested and (inner := read_error(entry, max_nested=max_nested - 1)):
            return inner
        return _details(entry.get("message") or entry.get("error") or entry.get("msg"), {**body, **entry}, max_nested)
    if body.get("type") == "response.failed" and max_nested:
        return read_error(body.get("response"), max_nested=max_nested - 1)
    if _is_flat_error(body):
        return _details(body.get("message") or body.get("description"), body, max_nested)
    message = _bare_message(body) if is_error else None
    return _details(message, body, max_nested) if message else None


def _is_flat_error(body: Mapping[str, JSON]) -> bool:
    """Return whether an object is itself an error: of a binding, of vLLM, an event ``error``, or a bare failure."""
    return (
        "internalCode" in body
        or "httpCode" in body
        or "error" in (body.get("object"), body.get("type"))
        or body.get("success") is False
    )


def _bare_message(body: Mapping[str, JSON]) -> str | None:
    """Return the message of an error without envelope, as proxies and web frameworks write it."""
    text = body.get("message") or body.get("description") or body.get("detail")
    if isinstance(text, list) and text and isinstance(text[0], dict):
        text = text[0].get("msg")
    return text if isinstance(text, str) else None


def _details(message: JSON, fields: Mapping[str, JSON], max_nested: int = _MAX_NESTED_ERRORS) -> ErrorDetails:
    """Return the details of a message and the fields beside it."""
    text = message if isinstance(message, str) else _dump(message) if message else ""
    status = _to_int(fields.get("httpCode") or fields.get("statusCode"))
    code = _to_int(fields.get("code"))
    if code is not None and 100 <= code < 600:  # some servers write the HTTP status as the code
        status, code = status or code, None
    if code is None:
        code = _to_int(fields.get("internalCode"))
    leading = _LEADING_CODE.match(text)
    if leading and code in (None, int(leading[1])):
        text, code = text[leading.end() :], int(leading[1])
    uuid = _UUID.search(text)
    text = _PREFIX.sub("", _UUID.sub("", text)).strip()
    if code is None and (alone := _CODE_ALONE.match(text)):
        code = int(alone[1])
    names = (fields.get("code"), fields.get("type"))
    name = next((name for name in names if isinstance(name, str) and name in NAMES), None)
    details = ErrorDetails(text or _NO_REASON, code, status, uuid[1] if uuid else None, name)
    inner = _read_embedded(text, max_nested - 1) if max_nested else None
    if inner is None:
        return details
    return ErrorDetails(
        inner.message,
        inner.code if code is None else code,
        status or inner.http_status,
        details.request_id or inner.request_id,
        name or inner.name,
    )


def _dump(value: JSON) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return ""


def _read_embedded(text: str, max_nested: int) -> ErrorDetails | None:
    """Return the details of a message that is a JSON error, with its field errors; None for any other message."""
    if not text.startswith(("{", "[")):
        return None
    try:
        inner: JSON = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    details = read_error(inner, is_error=True, max_nested=max_nested)
    if details is None or details.message == _NO_REASON:
        return None
    fields = _field_errors(inner)
    return details._replace(message=f"{details.message} ({fields})") if fields else details


def _field_errors(error: JSON) -> str:
    """Return the field errors in a Clef validation error, such as ``images: image payload is invalid``; "" if none."""
    for key in ("error", "details", "fieldErrors"):
        error = error.get(key) if isinstance(error, dict) else None
    if not isinstance(error, dict):
        return ""
    return "; ".join(
        f"{name}: {', '.join(map(str, texts)) if isinstance(texts, list) else texts}" for name, texts in error.items()
    )


def _to_int(value: JSON) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < _CODE_LIMIT else None


def _to_float(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def classify(details: ErrorDetails, status: int) -> type[e.APIStatusError] | None:
    """Return the class of an error; None if code, text and status all report success."""
    status = details.http_status or status
    cls = CODES[details.code][0] if details.code in CODES else _class_of_status(status)
    is_unspecific = details.code not in CODES and (status < 300 or status >= 500)
    if is_unspecific and status < 300 and details.name is not None:
        cls, is_unspecific = NAMES[details.name], False
    for rule in _TEXT_RULES:
        overrides = is_unspecific or (
            cls is not None and issubclass(cls, rule.overrides) and not issubclass(cls, rule.cls)
        )
        if overrides and rule.pattern.search(details.message):
            return rule.cls
    return cls


def usual_status(code: int | None, default: int) -> int:
    """Return the HTTP status that a code usually comes with; ``default`` for an unknown code."""
    return CODES[code][1] if code in CODES else default


def is_unknown_job(code: int | None, message: str) -> bool:
    """Return whether an error of the service reports an unknown job. Polling again does not help."""
    return code == UNKNOWN_JOB or bool(_UNKNOWN_JOB_TEXT.search(message))


def _class_of_status(status: int) -> type[e.APIStatusError] | None:
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
    body: JSON = None,
    scrub: Callable[[str], str] = lambda text: text,
    successor: Callable[[str], str | None] = lambda model: None,
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> e.WorkersAIError:
    """Create the typed error of an error response.

    Args:
        status: HTTP status.
        headers: Response headers, with names in lower case.
        text: The body as text.
        model: Model id of the request.
        body: The parsed body; None if it is not JSON.
        scrub: Function that removes secrets from a text.
        successor: Function that returns the replacement of a retired model.
        now: Function that returns the current time in UTC.

    Returns:
        An :class:`~workers_ai.errors.APIStatusError`; an ``APIResponseValidationError`` for a 2xx response whose
        envelope reports a failure without a known code or text.
    """
    text = scrub(text)
    details = read_error(text if body is None else body, is_error=True)
    if details is None:
        details = ErrorDetails(_first_line(text) or f"HTTP {status} with an empty body")
    details = details._replace(message=scrub(details.message))
    cls = classify(details, status)
    if status >= 300 and headers.get("cf-mitigated") == "challenge":  # a challenge for browsers: a retry fails, too
        cls = e.PermissionDeniedError
    details = details._replace(message=_shortened(details.message))
    response = e.ErrorResponse(status, {k: scrub(v) for k, v in headers.items() if k.lower() != "set-cookie"}, text)
    ray = headers.get("cf-ray")
    request_id = headers.get("cf-ai-req-id") or details.request_id or ray
    scrubbed = text if body is None else _scrub_json(body, scrub)
    if cls is None:
        return e.APIResponseValidationError(
            f"the service reported a failure with HTTP {status}: {details.message}",
            model=model, body=scrubbed, status_code=status, code=details.code, request_id=request_id,
            response=response,
        )  # fmt: skip
    usual = details.http_status or usual_status(details.code, _USUAL_STATUSES.get(cls, status))
    error = cls(
        details.message,
        status_code=status if status >= 300 else usual,
        code=details.code,
        model=model,
        request_id=request_id,
        ray_id=ray,
        gateway_log_id=headers.get("cf-aig-log-id"),
        body=scrubbed,
        response=response,
        retry_after=retry_after_s(headers, now),
    )
    if cls is e.APIStatusError:
        error.is_retryable = status == 409
    if isinstance(error, e.QuotaExhaustedError) and details.code != 2041:
        error.resets_at = next_midnight_utc(now())
    if isinstance(error, e.ModelRetiredError) and model:
        error.successor = successor(model)
    return error


def scrub_error(error: e.WorkersAIError, scrub: Callable[[str], str]) -> None:
    """Remove secrets from the message and the body of an error that was created from a reply."""
    error.message = scrub(error.message)
    error.args = (error.message,)
    if isinstance(error, e.APIResponseValidationError):
        error.body = _scrub_json(error.body, scrub)


def _scrub_json(value: JSON, scrub: Callable[[str], str]) -> JSON:
    """Return parsed JSON with every text scrubbed; None if the nesting exceeds Python's recursion limit."""

    def scrubbed(value: JSON) -> JSON:
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


def _shortened(message: str) -> str:
    """Return a message of at most :data:`_MAX_MESSAGE_CHARACTERS`. The whole text stays in ``body``."""
    return message if len(message) <= _MAX_MESSAGE_CHARACTERS else message[: _MAX_MESSAGE_CHARACTERS - 3] + "..."


def _first_line(text: str) -> str:
    """Return the title of an HTML page, or the text in one line, at most 300 characters long."""
    text = text[:_MAX_SEARCHED_CHARACTERS]
    title = _TITLE.search(text)
    line = " ".join((title[1] if title else _TAG.sub(" ", text)).split())
    return line if len(line) <= 300 else line[:297] + "..."


def retry_after_s(headers: Mapping[str, str], now: Callable[[], dt.datetime]) -> float | None:
    """Return the seconds to wait before a retry; None if no header states them.

    Reads ``retry-after-ms``, else ``retry-after`` as seconds or as an HTTP date.
    """
    if (milliseconds := _to_float(headers.get("retry-after-ms"))) is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after") or ""
    if (seconds := _to_float(value)) is not None:
        return max(0.0, seconds)
    try:
        when = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.UTC)
    return max(0.0, (when - now()).total_seconds())


def next_midnight_utc(now: dt.datetime) -> dt.datetime:
    """Return the next 00:00 UTC, when the daily allocation is renewed."""
    return (now + dt.timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
