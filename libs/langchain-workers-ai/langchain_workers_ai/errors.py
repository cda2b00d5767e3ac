"""Errors that are both ours and LangChain's: the core's tree, each class also of the kind ``langchain_core`` knows.

``except workers_ai.errors.CapacityError``, ``except langchain_core.exceptions.ModelRateLimitError`` and
``except langchain_workers_ai.CapacityError`` all catch the same thing. With default arguments,
``ModelRetryMiddleware``, ``with_retry`` of our classes and LangGraph's ``RetryPolicy`` repeat what another try can mend
(``is_retryable``), and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core import exceptions as lc

from workers_ai import errors as core
from workers_ai.errors import WorkersAIError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "APIConnectionError",
    "APIResponseValidationError",
    "APIStatusError",
    "APITimeoutError",
    "AuthenticationError",
    "BadRequestError",
    "BatchError",
    "BatchItemError",
    "BatchTimeoutError",
    "CapacityError",
    "ConfigurationError",
    "ContextWindowExceededError",
    "InternalServerError",
    "ModelRetiredError",
    "NotFoundError",
    "PaidPlanRequiredError",
    "PermissionDeniedError",
    "QuotaExhaustedError",
    "RateLimitError",
    "RequestTimeoutError",
    "RequestTooLargeError",
    "StreamInterruptedError",
    "StructuredOutputError",
    "WorkersAIError",
    "is_retryable",
]


class ConfigurationError(core.ConfigurationError, lc.ModelInvalidRequestError):
    """An account, token, URL, model or option is missing or malformed."""


class APIConnectionError(core.APIConnectionError, lc.ModelConnectionError):
    """No reply. Retryable."""


class APITimeoutError(core.APITimeoutError, APIConnectionError, lc.ModelTimeoutError):
    """The reply did not come within ``timeout``. Retryable."""


class APIStatusError(core.APIStatusError, lc.ModelError):
    """The service answered, and refused."""


class BadRequestError(core.BadRequestError, APIStatusError, lc.ModelInvalidRequestError):
    """The input does not fit the model or the route."""


class ContextWindowExceededError(core.ContextWindowExceededError, BadRequestError, lc.ContextOverflowError):
    """The context window is exceeded; ``SummarizationMiddleware`` catches this one and shortens the history."""


class StructuredOutputError(core.StructuredOutputError, BadRequestError):
    """The service could not give the structure asked for."""


class AuthenticationError(core.AuthenticationError, APIStatusError, lc.ModelAuthenticationError):
    """The token was refused."""


class PermissionDeniedError(core.PermissionDeniedError, APIStatusError, lc.ModelPermissionDeniedError):
    """The account may not use this model or feature."""


class PaidPlanRequiredError(core.PaidPlanRequiredError, PermissionDeniedError):
    """The model needs the Workers Paid plan."""


class NotFoundError(core.NotFoundError, APIStatusError, lc.ModelNotFoundError):
    """No such model, account or route."""


class ModelRetiredError(core.ModelRetiredError, NotFoundError):
    """The model was withdrawn; ``successor`` names another where one is known."""


class RequestTooLargeError(core.RequestTooLargeError, APIStatusError, lc.ModelInvalidRequestError):
    """The request body is larger than the service takes."""


class RequestTimeoutError(core.RequestTimeoutError, APIStatusError, lc.ModelTimeoutError):
    """The service gave up on the request. Retryable."""


class RateLimitError(core.RateLimitError, APIStatusError, lc.ModelRateLimitError):
    """A rate limit was reached. Retryable."""


class CapacityError(core.CapacityError, RateLimitError):
    """No capacity for this model at this moment (3040). Retryable."""


class QuotaExhaustedError(core.QuotaExhaustedError, RateLimitError):
    """The day's allocation is used up. Not retryable before ``resets_at``."""


class InternalServerError(core.InternalServerError, APIStatusError, lc.ModelAPIError):
    """The service failed. Retryable."""


class APIResponseValidationError(core.APIResponseValidationError, lc.ModelError):
    """A success that does not fit."""


class StreamInterruptedError(core.StreamInterruptedError, lc.ModelError):
    """A stream ended without an end; ``partial`` holds the text that had arrived."""


class BatchError(core.BatchError, lc.ModelError):
    """The queue lost, refused or failed a whole batch."""


class BatchTimeoutError(core.BatchTimeoutError, BatchError):
    """The deadline passed while the queue was still working."""


class BatchItemError(core.BatchItemError, BatchError):
    """One item of a batch failed."""


_TWINS: dict[type[WorkersAIError], type[WorkersAIError]] = {
    cls.__bases__[0]: cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, WorkersAIError) and cls.__module__ == __name__
}


def as_model_error(error: WorkersAIError) -> WorkersAIError:
    """The same error as a class that is LangChain's as well; one that already is comes back as it is."""
    twin = _TWINS.get(type(error))
    if twin is None:
        return error
    made = twin.__new__(twin, *error.args)
    made.__dict__.update(error.__dict__)
    return made.with_traceback(error.__traceback__)


class _Boundary:
    """``with framework_errors:`` hands errors of the core on as LangChain's; made once, since it keeps no state."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, WorkersAIError) and type(error) in _TWINS:
            raise as_model_error(error) from error.__cause__


framework_errors = _Boundary()


def is_retryable(error: BaseException) -> bool:
    """Whether the same call can succeed when it is repeated: the default of ``with_retry`` on the classes here.

    True for errors that say so themselves, and for an answer that did not parse, which another try may mend.
    For chains: ``chain.with_retry(retry_if_exception_type=is_retryable)``.
    """
    verdict: Any = getattr(error, "is_retryable", isinstance(error, lc.OutputParserException))
    return bool(verdict)
