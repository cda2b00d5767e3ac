"""Names for data that this package passes on without validation. The core validates what it sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:
    from langchain_core.runnables.retry import ExponentialJitterParams

__all__ = ["Data", "Fields", "RetryOptions"]

Data: TypeAlias = object
"""Data of unknown shape: a content block of any provider, a field of a message, a value of a schema."""

Fields: TypeAlias = dict[str, Any]
"""A JSON object: a message, part, tool call or schema in OpenAI's form, or metadata."""


class RetryOptions(TypedDict, total=False):
    """Options of :meth:`langchain_core.runnables.Runnable.with_retry`, besides the errors to retry."""

    wait_exponential_jitter: bool
    """Whether to add jitter to the delays. Default True."""
    exponential_jitter_params: ExponentialJitterParams | None
    """Parameters of the delays."""
    stop_after_attempt: int
    """Maximum number of tries. Default 3."""
