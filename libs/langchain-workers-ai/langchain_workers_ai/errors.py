"""Errors of the core that are also errors of ``langchain_core.exceptions``.

``except workers_ai.errors.CapacityError``, ``except langchain_core.exceptions.ModelRateLimitError`` and
``except langchain_workers_ai.CapacityError`` all catch the same error. With default arguments,
``ModelRetryMiddleware``, ``with_retry`` of the classes of this package, and LangGraph's ``RetryPolicy`` retry only
errors that a retry can solve (``is_retryable``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """An account, token, URL, model or option is missing or invalid."""


class APIConnectionError(core.APIConnectionError, lc.ModelConnectionError):
    """The service did not reply. Retryable."""


class APITimeoutError(core.APITimeoutError, APIConnectionError, lc.ModelTimeoutError):
    """The reply did not arrive within ``timeout``. Retryable."""


class APIStatusError(core.APIStatusError, lc.ModelError):
    """The service returned an error response."""


class BadRequestError(core.BadRequestError, APIStatusError, lc.ModelInvalidRequestError):
    """The input does not fit the model or the route."""


class ContextWindowExceededError(core.ContextWindowExceededError, BadRequestError, lc.ContextOverflowError):
    """The input exceeds the context window. ``SummarizationMiddleware`` catches this error and shortens the history."""


class StructuredOutputError(core.StructuredOutputError, BadRequestError):
    """The service could not produce the requested structure."""


class AuthenticationError(core.AuthenticationError, APIStatusError, lc.ModelAuthenticationError):
    """The token is invalid."""


class PermissionDeniedError(core.PermissionDeniedError, APIStatusError, lc.ModelPermissionDeniedError):
    """The account may not use this model or feature."""


class PaidPlanRequiredError(core.PaidPlanRequiredError, PermissionDeniedError):
    """The model needs the Workers Paid plan."""


class NotFoundError(core.NotFoundError, APIStatusError, lc.ModelNotFoundError):
    """The model, account or route does not exist."""


class ModelRetiredError(core.ModelRetiredError, NotFoundError):
    """The model was retired. ``successor`` is its replacement, or None."""


class RequestTooLargeError(core.RequestTooLargeError, APIStatusError, lc.ModelInvalidRequestError):
    """The request body is too large."""


class RequestTimeoutError(core.RequestTimeoutError, APIStatusError, lc.ModelTimeoutError):
    """The service timed out. Retryable."""


class RateLimitError(core.RateLimitError, APIStatusError, lc.ModelRateLimitError):
    """A rate limit was reached. Retryable."""


class CapacityError(core.CapacityError, RateLimitError):
    """The model is at capacity (3040). Retryable."""


class QuotaExhaustedError(core.QuotaExhaustedError, RateLimitError):
    """The daily allocation is exhausted (3036). Not retryable before ``resets_at``."""


class InternalServerError(core.InternalServerError, APIStatusError, lc.ModelAPIError):
    """The service failed. Retryable."""


class APIResponseValidationError(core.APIResponseValidationError, lc.ModelError):
    """A 2xx response is invalid."""


class StreamInterruptedError(core.StreamInterruptedError, lc.ModelError):
    """A stream was interrupted. ``partial`` is the received text."""


class BatchError(core.BatchError, lc.ModelError):
    """The queue lost, rejected or failed a whole batch."""


class BatchTimeoutError(core.BatchTimeoutError, BatchError):
    """The deadline passed before the batch was finished."""


class BatchItemError(core.BatchItemError, BatchError):
    """One item of a batch failed."""


_BY_CORE_CLASS: dict[type[WorkersAIError], type[WorkersAIError]] = {
    cls.__bases__[0]: cls
    for cls in (
        ConfigurationError,
        APIConnectionError,
        APITimeoutError,
        APIStatusError,
        BadRequestError,
        ContextWindowExceededError,
        StructuredOutputError,
        AuthenticationError,
        PermissionDeniedError,
        PaidPlanRequiredError,
        NotFoundError,
        ModelRetiredError,
        RequestTooLargeError,
        RequestTimeoutError,
        RateLimitError,
        CapacityError,
        QuotaExhaustedError,
        InternalServerError,
        APIResponseValidationError,
        StreamInterruptedError,
        BatchError,
        BatchTimeoutError,
        BatchItemError,
    )
}


def as_model_error(error: WorkersAIError) -> WorkersAIError:
    """Return the error as an error of this module. An error of this module is returned unchanged."""
    ours = _BY_CORE_CLASS.get(type(error))
    if ours is None:
        return error
    converted = ours.__new__(ours, *error.args)
    converted.__dict__.update(error.__dict__)
    return converted.with_traceback(error.__traceback__)


class _Boundary:
    """Raise errors of the core as errors of this module: ``with framework_errors:``. The object has no state."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, WorkersAIError) and type(error) in _BY_CORE_CLASS:
            raise as_model_error(error) from error.__cause__


framework_errors = _Boundary()


def is_retryable(error: BaseException) -> bool:
    """Return whether a retry of the same call can succeed. ``with_retry`` of this package uses it by default.

    True for errors with a true ``is_retryable``, and for answers that could not be parsed.
    For chains: ``chain.with_retry(retry_if_exception_type=is_retryable)``.
    """
    return bool(getattr(error, "is_retryable", isinstance(error, lc.OutputParserException)))
