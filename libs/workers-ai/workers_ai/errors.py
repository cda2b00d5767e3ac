"""The error tree: what failed, whether a retry can help, and the remedy.

    WorkersAIError
    ├── ConfigurationError            an account, token, URL or option is missing or malformed
    ├── APIConnectionError            no response                                       retryable
    │   └── APITimeoutError           timeout= or total_timeout= expired                retryable
    ├── APIStatusError                the service returned an error response
    │   ├── BadRequestError           the input is invalid
    │   │   ├── ContextWindowExceededError
    │   │   └── StructuredOutputError
    │   ├── AuthenticationError
    │   ├── PermissionDeniedError
    │   │   └── PaidPlanRequiredError
    │   ├── NotFoundError
    │   │   └── ModelRetiredError
    │   ├── RequestTooLargeError
    │   ├── RequestTimeoutError       the service timed out                             retryable
    │   ├── RateLimitError            a rate limit (3021)                               retryable
    │   │   ├── CapacityError         the service is at capacity (3040)                 retryable
    │   │   └── QuotaExhaustedError   the daily allocation is used up (3036, 4006)      never
    │   └── InternalServerError                                                         retryable
    ├── APIResponseValidationError    an invalid 2xx response
    ├── StreamInterruptedError        an interrupted stream
    └── BatchError
        ├── BatchTimeoutError         the deadline passed; has the request ids
        └── BatchItemError            one item of a batch failed

An error that a retry cannot repair is also a ``ValueError`` or a ``RuntimeError``. Frameworks that decide by built-in
base classes (LangGraph's ``default_retry_on``) then do not retry it. Error responses are a ``RuntimeError``:
pydantic would turn a ``ValueError`` raised inside a validator into a ``ValidationError``. Every error can be pickled.
None contains the API token.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "APIConnectionError", "APIResponseValidationError", "APIStatusError", "APITimeoutError",
    "AuthenticationError", "BadRequestError", "BatchError", "BatchItemError", "BatchTimeoutError",
    "CapacityError", "ConfigurationError", "ContextWindowExceededError", "ErrorResponse", "InternalServerError",
    "ModelRetiredError", "NotFoundError", "PaidPlanRequiredError", "PermissionDeniedError", "QuotaExhaustedError",
    "RateLimitError", "RequestTimeoutError", "RequestTooLargeError", "StreamInterruptedError",
    "StructuredOutputError", "WorkersAIError",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The HTTP response of an error, without the request, which contains the token.

    Attributes:
        status_code: HTTP status.
        headers: Response headers.
        text: Response body.
    """

    status_code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    def json(self) -> Any:
        """Parse ``text`` as JSON.

        Raises:
            ValueError: The text is not JSON.
        """
        return json.loads(self.text)


_SUBMIT_AGAIN = "Submit the requests again: the queue keeps results for a limited time."


def _rebuild(cls: type[WorkersAIError], args: tuple[object, ...], state: dict[str, object]) -> WorkersAIError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class WorkersAIError(Exception):
    """Base class of all errors of this package.

    ``str()`` returns one line: message, model, status, code, ray id, and the remedy.

    Attributes:
        message: What happened, without the context that ``str()`` adds.
        is_retryable: Whether the same request can succeed later without a change.
        retry_after: Seconds to wait before a retry, as the service requested, or None.
        attempts: Number of requests sent.
        partial: Text that a stream had delivered before the error, or "".
        model: The requested model, or None.
        status_code: HTTP status of the response, or None.
        code: Cloudflare's error code, or None.
        request_id: The service's id of the request, or None.
        response: The response as an :class:`ErrorResponse`, or None.
        request_ids: Ids of accepted submissions without a result; they can be polled again.
        hint: Remedy of this error, shown before the remedy of its class, or "". Replaces the remedy about the token.
        index: Position of the failed text or item in the caller's list, or None.
        arguments: Names of the arguments to change, such as ``("max_tokens",)``; empty if they are unknown.
        remedy: Remedy of all errors of the class, or "".
    """

    is_retryable: bool = False
    retry_after: float | None = None
    attempts: int = 1
    partial: str = ""
    model: str | None = None
    status_code: int | None = None
    code: int | None = None
    request_id: str | None = None
    response: ErrorResponse | None = None
    request_ids: tuple[str, ...] = ()
    index: int | None = None
    hint: str = ""
    arguments: tuple[str, ...] = ()
    _text_reason: str = ""
    remedy: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        model: str | None = None,
        retry_after: float | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        if arguments:
            self.arguments = arguments
        if model is not None:
            self.model = model
        if retry_after is not None:
            self.retry_after = retry_after

    def __str__(self) -> str:
        facts = [f"model {self.model}"] if self.model else []
        facts += self._facts()
        if self.attempts > 1:
            facts.append(f"after {self.attempts} attempts")
        line = self.message.rstrip(". ") or type(self).__name__
        if facts:
            line += f" ({', '.join(facts)})"
        remedy = " ".join(filter(None, [self.hint, self._remedy()]))
        return " ".join(f"{line}. {remedy}".split()) if remedy else " ".join(line.split())

    def _facts(self) -> list[str]:
        return []

    def _remedy(self) -> str:
        unknown_job = self.code == 5504 or "not found in queue" in self.message
        return _SUBMIT_AGAIN if unknown_job else self.remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


class ConfigurationError(WorkersAIError, ValueError):
    """An account, token, URL, model or option is missing or malformed. The message contains its name."""


class APIConnectionError(WorkersAIError):
    """No response: the host could not be reached, or the connection broke before the response was complete.

    Attributes:
        delivered: False if no connection was made, so that the service cannot have received the request.
    """

    is_retryable = True
    delivered: bool = True
    remedy = "Check the network, the proxy settings and base_url."


class APITimeoutError(APIConnectionError):
    """``timeout`` or ``total_timeout`` expired before the response was complete.

    It is not the built-in ``TimeoutError``: that is an ``OSError``, which LangGraph does not retry.
    """

    remedy = "Increase timeout= (or total_timeout=) for a slow model."


class APIStatusError(WorkersAIError):
    """The service returned an error response.

    Attributes:
        status_code: HTTP status; None for input that was rejected before it was sent.
        code: Cloudflare's error code, or None.
        ray_id: The ``cf-ray`` header, or None.
        gateway_log_id: The ``cf-aig-log-id`` header, or None.
        body: The parsed response body, or its text.
    """

    def __init__(
        self,
        message: str,
        *,
        status_code: int | None = None,
        code: int | None = None,
        model: str | None = None,
        request_id: str | None = None,
        ray_id: str | None = None,
        gateway_log_id: str | None = None,
        body: Any = None,
        response: ErrorResponse | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, model=model, retry_after=retry_after)
        self.status_code = status_code
        self.code = code
        self.request_id = request_id or ray_id
        self.ray_id = ray_id
        self.gateway_log_id = gateway_log_id
        self.body = body
        self.response = response

    def _facts(self) -> list[str]:
        named = {"HTTP": self.status_code, "code": self.code, "ray": self.ray_id, "gateway log": self.gateway_log_id}
        return [f"{name} {value}" for name, value in named.items() if value is not None]


class BadRequestError(APIStatusError, RuntimeError):
    """The input is invalid for the model or the route (400; codes such as 5004, 5006, 8001)."""

    def _remedy(self) -> str:
        if "required properties at '/' are 'input'" in self.message:  # the service's own words
            return "The native route of this model does not accept messages: use api='chat_completions'."
        return self.remedy


class ContextWindowExceededError(BadRequestError):
    """Input and requested output exceed the context window of the model (5021, 3010; 3030 and 8007 by their text)."""

    remedy = "Shorten the input, lower max_tokens, or use a model with a larger context window."


class StructuredOutputError(BadRequestError):
    """The model could not produce the requested structure (5023, 5025, 8006, "JSON Mode couldn't be met")."""

    remedy = "Increase max_tokens, simplify the schema, or use another method= or model."


class AuthenticationError(APIStatusError, RuntimeError):
    """The token was rejected (401; codes 10000 and 9109), or the AI Gateway requires its own token (2009)."""

    def _remedy(self) -> str:
        if self.code == 2009:
            return "The AI Gateway requires a token: set gateway=GatewayOptions(id, token=...)."
        if self.hint:  # a batch Worker rejected its headers, not the token
            return ""
        return (
            "Check that CLOUDFLARE_API_TOKEN has the permission Workers AI Read and belongs to the account "
            "CLOUDFLARE_ACCOUNT_ID."
        )


class PermissionDeniedError(APIStatusError, RuntimeError):
    """The account has no access to this model or feature (403; codes such as 5018, 5016, 3041, 3023)."""

    remedy = "Check that the account may use this model or feature, or use another model."


class PaidPlanRequiredError(PermissionDeniedError):
    """The model requires the Workers Paid plan (5035)."""

    remedy = (
        "Upgrade to the Workers Paid plan, pay with AI Gateway credits (unified billing), or use a model of the "
        "Free plan: https://developers.cloudflare.com/workers-ai/platform/pricing/."
    )


class NotFoundError(APIStatusError, RuntimeError):
    """The model, account or route does not exist (404; codes 5007, 3042, 7000, 7003), or the queued job (5504)."""

    remedy = "Check the model id, CLOUDFLARE_ACCOUNT_ID and base_url."


class ModelRetiredError(NotFoundError):
    """The model was retired (410; code 5028).

    Attributes:
        successor: A current model to use instead, or None if the catalogue has none.
    """

    successor: str | None = None

    def _remedy(self) -> str:
        if self.successor:
            return f"Use {self.successor} instead."
        return "Use a current model: https://developers.cloudflare.com/workers-ai/models/."


class RequestTooLargeError(APIStatusError, RuntimeError):
    """The request body exceeds the limit of the service (413; code 3006)."""

    remedy = "Send fewer or shorter inputs in one request."


class RequestTimeoutError(APIStatusError):
    """The service timed out (408; codes 3007, 3008, 3046)."""

    is_retryable = True
    remedy = "Lower max_tokens, stream the answer, or use the asynchronous queue."


class RateLimitError(APIStatusError):
    """A rate limit was exceeded (429; 3021 is the limit per minute of the task)."""

    is_retryable = True
    remedy = "Wait, set requests_per_minute=, or use the asynchronous queue."


class CapacityError(RateLimitError):
    """The service is at capacity for this model (429; code 3040)."""

    remedy = "Retry later, use on_busy='wait', fall back to another model, or use the asynchronous queue."


class QuotaExhaustedError(RateLimitError, RuntimeError):
    """The daily allocation of the account is used up (429; codes 3036 and 4006). A retry does not help.

    Attributes:
        resets_at: Time when the allocation is renewed: the next 00:00 UTC
            (https://developers.cloudflare.com/workers-ai/platform/pricing/). None for a spending limit.
    """

    is_retryable = False
    resets_at: dt.datetime | None = None

    def _remedy(self) -> str:
        renewal = f"It is renewed at {self.resets_at:%Y-%m-%d %H:%M} UTC; to continue now, " if self.resets_at else ""
        action = "upgrade to the Workers Paid plan or increase the spending limit."
        return renewal + action if renewal else f"To continue, {action}"


class InternalServerError(APIStatusError):
    """The service failed (5xx, 52x pages; codes such as 3043, 3050, 8008)."""

    is_retryable = True
    remedy = "Retry later, or use another model."


class APIResponseValidationError(WorkersAIError, ValueError):
    """An invalid 2xx response: no result, a wrong number of vectors, or text in place of JSON.

    Attributes:
        body: The parsed response body or its text, shortened.
    """

    remedy = "Send the request again; if the error persists, check base_url and the model."

    def __init__(
        self,
        message: str,
        *,
        model: str | None = None,
        body: Any = None,
        status_code: int | None = None,
        code: int | None = None,
        request_id: str | None = None,
        response: ErrorResponse | None = None,
    ) -> None:
        super().__init__(message, model=model)
        self.body = body
        self.status_code = status_code
        self.code = code
        self.request_id = request_id
        self.response = response


class StreamInterruptedError(WorkersAIError, RuntimeError):
    """A stream ended without an end mark and without a finish reason, or with an error frame without a known code.

    ``partial`` has the text received so far. The call is not retried automatically, because part of the answer was
    already delivered.
    """

    remedy = "The answer is incomplete: send the request again."


class BatchError(WorkersAIError, RuntimeError):
    """The asynchronous queue lost, rejected or failed a whole batch.

    Attributes:
        request_ids: Ids of the affected submissions.
    """

    def __init__(self, message: str, *, model: str | None = None, request_ids: Sequence[str] = ()) -> None:
        super().__init__(message, model=model)
        self.request_ids = tuple(request_ids)

    def _facts(self) -> list[str]:
        return [] if self.code is None else [f"code {self.code}"]


class BatchTimeoutError(BatchError):
    """The deadline passed before the asynchronous queue was done. ``request_ids`` can be polled again."""

    remedy = "Poll the request ids again, or run the same call again with its ledger."

    def _facts(self) -> list[str]:
        return [f"unfinished: {' '.join(self.request_ids)}"] if self.request_ids else []


class BatchItemError(BatchError):
    """One item of a batch failed.

    Attributes:
        index: Position of the item in the list of requests.
        external_reference: The caller's own reference, or None.
    """

    remedy = "Correct the input, or submit it again."

    def __init__(
        self,
        message: str,
        *,
        index: int,
        external_reference: str | None = None,
        code: int | None = None,
        model: str | None = None,
        request_ids: Sequence[str] = (),
    ) -> None:
        super().__init__(message, model=model, request_ids=request_ids)
        self.index = index
        self.external_reference = external_reference
        self.code = code

    def _facts(self) -> list[str]:
        facts = {"item": self.index, "reference": self.external_reference, "code": self.code}
        return [f"{name} {value}" for name, value in facts.items() if value is not None]
