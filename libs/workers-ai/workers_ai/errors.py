"""The error tree: what can go wrong, which of it is worth another try, and what to do about it.

    WorkersAIError
    ├── ConfigurationError            an account, token, URL or option is missing or malformed
    ├── APIConnectionError            no reply                                          retryable
    │   └── APITimeoutError           our own timeout                                   retryable
    ├── APIStatusError                the service refused
    │   ├── BadRequestError           the input does not fit
    │   │   ├── ContextWindowExceededError
    │   │   └── StructuredOutputError
    │   ├── AuthenticationError
    │   ├── PermissionDeniedError
    │   │   └── PaidPlanRequiredError
    │   ├── NotFoundError
    │   │   └── ModelRetiredError
    │   ├── RequestTooLargeError
    │   ├── RequestTimeoutError       the service's own timeout                         retryable
    │   ├── RateLimitError            a limit per minute                                retryable
    │   │   ├── CapacityError         no capacity at this moment (3040)                 retryable
    │   │   └── QuotaExhaustedError   the day's allocation is used up                   never
    │   └── InternalServerError                                                         retryable
    ├── APIResponseValidationError    a success that does not fit
    ├── StreamInterruptedError        a stream that ended without an end
    └── BatchError
        ├── BatchTimeoutError         carries the request ids, so that the work can be resumed
        └── BatchItemError            one item of a batch failed

Errors that another try cannot repair are also a ``ValueError`` or a ``RuntimeError``: frameworks that judge by built-in
bases (LangGraph's ``default_retry_on``) then leave them alone. Refusals of the service are ``RuntimeError``: pydantic
turns a ``ValueError`` that is raised inside a validator into a ``ValidationError``. Every error pickles, and none holds
the API token.
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
    """The reply behind an error, without the request (and so without the token) that caused it.

    Tracers read ``status_code``, ``headers``, ``text`` and ``json()``.
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


_SUBMIT_AGAIN = "Submit the requests again: the queue does not keep results for ever."


def _rebuild(cls: type[WorkersAIError], args: tuple[Any, ...], state: dict[str, Any]) -> WorkersAIError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class WorkersAIError(Exception):
    """Base of every error this package raises.

    Attributes:
        message: What happened, without the context that ``str()`` adds.
        is_retryable: Whether the same request can succeed later without a change.
        retry_after: Seconds the service asked to wait, or None.
        attempts: Requests sent before this error was raised.
        partial: Text of a stream that had arrived before the error, else "".
        model: The model asked for, or None.
        status_code: HTTP status of the reply, or None.
        code: Cloudflare's error code, or None.
        request_id: The service's id of the request, or None.
        response: The reply as an :class:`ErrorResponse`, or None.
        request_ids: Ids of what the queue has taken and the caller has no result of; they can be polled again.
        hint: What to do about this very error, before the remedy of its class, or "".
        index: Place of the one text or item that is to blame in the caller's list, or None.
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
    remedy: ClassVar[str] = ""

    def __init__(self, message: str, *, model: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
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

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


class ConfigurationError(WorkersAIError, ValueError):
    """An account, token, URL, model or option is missing or malformed; the text names the variable or option."""


class APIConnectionError(WorkersAIError):
    """No reply: the host could not be reached, or the connection broke before the reply was whole.

    Attributes:
        delivered: False where no connection was made, so that the service cannot have seen the request.
    """

    is_retryable = True
    delivered: bool = True
    remedy = "Check the network, the proxy and base_url."


class APITimeoutError(APIConnectionError):
    """The reply did not come within ``timeout``. Deliberately not a built-in ``TimeoutError`` (an ``OSError``)."""

    remedy = "Raise timeout= if the model is known to be slow."


class APIStatusError(WorkersAIError):
    """The service answered, and refused.

    Attributes:
        status_code: HTTP status; None for input refused before it was sent.
        code: Cloudflare's error code, or None where the reply had none.
        ray_id: The ``cf-ray`` header, or None.
        gateway_log_id: The ``cf-aig-log-id`` header, or None.
        body: The parsed reply, or its text.
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
    """The input does not fit the model or the route (400; codes such as 5004, 5006, 8001)."""

    def _remedy(self) -> str:
        wants_input = "required properties at '/' are 'input'" in self.message
        return (
            "The native route of this model takes no messages: use api='chat_completions'."
            if wants_input
            else self.remedy
        )


class ContextWindowExceededError(BadRequestError):
    """Input and requested output together exceed the model's context window (5021, 3010; 3030 and 8007 by text)."""

    remedy = "Shorten the input, lower max_tokens, or use a model with a larger context window."


class StructuredOutputError(BadRequestError):
    """The model could not give the structure asked for (5023, 5025, 8006, "JSON Mode couldn't be met")."""

    remedy = "Raise max_tokens, simplify the schema, or use another method= or model."


class AuthenticationError(APIStatusError, RuntimeError):
    """The token was refused (401; codes 10000 and 9109), or the AI Gateway wants its own (2009)."""

    def _remedy(self) -> str:
        if self.code == 2009:
            return "The AI Gateway refused: set gateway=GatewayOptions(id, token=...)."
        if "batch_worker=" in self.message:  # a Worker refused what it was sent, which is not the token
            return ""
        return (
            "The account API refused the token: check CLOUDFLARE_API_TOKEN (permission Workers AI Read) "
            "and CLOUDFLARE_ACCOUNT_ID."
        )


class PermissionDeniedError(APIStatusError, RuntimeError):
    """The account may not use this model or feature (403; codes such as 5018, 5016, 3041, 3023)."""


class PaidPlanRequiredError(PermissionDeniedError):
    """The model needs the Workers Paid plan (5035)."""

    remedy = (
        "Upgrade to the Workers Paid plan, pay with AI Gateway credits (unified billing), or choose a model on the "
        "Free plan: https://developers.cloudflare.com/workers-ai/platform/pricing/."
    )


class NotFoundError(APIStatusError, RuntimeError):
    """No such model, account or route (404; codes 5007, 3042, 7000, 7003), or no such job of the queue (5504)."""

    remedy = "Check the model id, CLOUDFLARE_ACCOUNT_ID and base_url."


class ModelRetiredError(NotFoundError):
    """The model was withdrawn (410; code 5028).

    Attributes:
        successor: A current model to use instead, where the catalogue knows one.
    """

    successor: str | None = None

    def _remedy(self) -> str:
        if self.successor:
            return f"Use {self.successor} instead."
        return "Choose a current model: https://developers.cloudflare.com/workers-ai/models/."


class RequestTooLargeError(APIStatusError, RuntimeError):
    """The request body is larger than the service takes (413; code 3006)."""

    remedy = "Send fewer or shorter inputs in one request."


class RequestTimeoutError(APIStatusError):
    """The service gave up on the request (408; codes 3007, 3008, 3046)."""

    is_retryable = True


class RateLimitError(APIStatusError):
    """A rate limit was reached (429; 3021 is the limit per minute of the task)."""

    is_retryable = True
    remedy = "Wait, send fewer requests per minute, or move volume to the batch queue."


class CapacityError(RateLimitError):
    """The service has no capacity for this model at this moment (429; code 3040)."""

    remedy = "Try again shortly, fall back to another model, or use the batch queue."


class QuotaExhaustedError(RateLimitError, RuntimeError):
    """The account's daily allocation is used up (429; codes 3036 and 4006). Trying again does not help.

    Attributes:
        resets_at: When the allocation is renewed: the next 00:00 UTC after the refusal
            (https://developers.cloudflare.com/workers-ai/platform/pricing/). None for a spending limit.
    """

    is_retryable = False
    resets_at: dt.datetime | None = None

    def _remedy(self) -> str:
        until = f"It is renewed at {self.resets_at:%Y-%m-%d %H:%M} UTC; " if self.resets_at else ""
        return f"{until}the Workers Paid plan or a higher spending limit lifts it sooner."


class InternalServerError(APIStatusError):
    """The service failed (5xx, 52x pages; codes such as 3043, 3050, 8008)."""

    is_retryable = True


class APIResponseValidationError(WorkersAIError, ValueError):
    """A success that does not fit: no result, a wrong count of vectors, text where JSON was due.

    Attributes:
        body: The parsed reply or its text, shortened.
    """

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
    """A stream ended with neither an end mark nor a finish reason, or with an error frame of no known code.

    ``partial`` holds the text that had arrived. It is not repeated by itself: part of the answer was already delivered.
    """

    remedy = "The answer is incomplete; ask again."


class BatchError(WorkersAIError, RuntimeError):
    """The queue lost, refused or failed a whole batch.

    Attributes:
        request_ids: Ids of the affected submissions.
    """

    def __init__(self, message: str, *, model: str | None = None, request_ids: Sequence[str] = ()) -> None:
        super().__init__(message, model=model)
        self.request_ids = tuple(request_ids)

    def _facts(self) -> list[str]:
        return [] if self.code is None else [f"code {self.code}"]


class BatchTimeoutError(BatchError):
    """The deadline passed while the queue was still working; ``request_ids`` can be polled again later."""

    remedy = "Poll the request ids again, or run the same ingestion again with its ledger."

    def _facts(self) -> list[str]:
        return [f"unfinished: {' '.join(self.request_ids)}"] if self.request_ids else []


class BatchItemError(BatchError):
    """One item of a batch failed.

    Attributes:
        index: Position of the item in the list of requests.
        external_reference: The caller's own reference for it, or None.
    """

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
