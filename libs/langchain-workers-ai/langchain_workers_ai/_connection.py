"""What the classes of this package share: the settings of a connection, and what a retry means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.runnables import Runnable

from langchain_workers_ai.errors import framework_errors, is_retryable
from workers_ai.fields import ConnectionFields

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Connection", "RetriesWhatHelps"]

In = TypeVar("In")
Out = TypeVar("Out")


class Connection(ConnectionFields):
    """The settings of every class here, with errors that LangChain knows; see
    :class:`workers_ai.fields.ConnectionFields`.
    """

    def __init__(self, **data: Any) -> None:
        with framework_errors:
            super().__init__(**data)


class RetriesWhatHelps(Runnable[In, Out]):
    """Gives ``with_retry`` a default that leaves alone what another try cannot mend."""

    def with_retry(
        self,
        *,
        retry_if_exception_type: tuple[type[BaseException], ...] | Callable[[BaseException], bool] = is_retryable,
        **kwargs: Any,
    ) -> Runnable[In, Out]:
        """Repeat failed calls as :meth:`langchain_core.runnables.Runnable.with_retry` does.

        Args:
            retry_if_exception_type: What to repeat; by default :func:`~langchain_workers_ai.is_retryable` decides, not
                every exception.
            **kwargs: ``wait_exponential_jitter``, ``exponential_jitter_params``, ``stop_after_attempt`` (3).
        """
        return super().with_retry(retry_if_exception_type=retry_if_exception_type, **kwargs)
