"""How a job of the queue is waited for: how often it is asked, what a failed question means, what is left at the end.

Rules without I/O.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workers_ai.errors import APIConnectionError, BatchError, RateLimitError, WorkersAIError
from workers_ai.refusals import says_unknown_job
from workers_ai.retry import MAX_RETRY_AFTER_S, MINUTE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workers_ai.wire.batch import BatchJob

__all__ = ["UNKNOWN", "Pace", "Watch", "naming"]

UNKNOWN: Final = (400, 404, 410)
"""HTTP statuses of a question about an id that the queue does not know."""

_UNKNOWN_LIMIT: Final = 3
_FAILURE_LIMIT: Final = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to wait between two polls of a job: ``first_s``, then ``factor`` times longer, up to ``longest_s``."""

    first_s: float = 0.1
    factor: float = 1.7
    longest_s: float = 30.0

    def wait_s(self, polls: int) -> float:
        """Seconds to wait after poll number ``polls`` (from 1)."""
        return float(min(self.first_s * self.factor ** min(polls - 1, 60), self.longest_s))


class Watch:
    """One job while it is waited for: how often it was asked, and what its failed polls mean.

    A poll may fail for reasons that have nothing to do with the job; those are waited out. An id that the queue says
    it does not know, three times in a row, is lost; a queue that fails eight times in a row has failed.
    """

    def __init__(self, job: BatchJob, pace: Pace) -> None:
        self.job = job
        self.polls = 0
        self._pace = pace
        self._failures = 0
        self._hold_s: float | None = None

    def answered(self) -> None:
        """The queue has answered a poll."""
        self.polls += 1
        self._failures = 0
        self._hold_s = None

    def failed(self, error: WorkersAIError) -> None:
        """A poll has failed.

        Raises:
            WorkersAIError: It will not get better: the id is lost, the account is refused, or the limit is reached.
        """
        self.polls += 1
        self._hold_s = None
        if isinstance(error, RateLimitError) and error.is_retryable:
            hold = error.retry_after if error.retry_after is not None else MINUTE_S if error.code == 3021 else None
            self._hold_s = None if hold is None else min(hold, MAX_RETRY_AFTER_S)
            return
        if says_unknown_job(error.code, error.message):
            raise self.lost(error) from error
        self._failures += 1
        unknown = error.status_code in UNKNOWN
        if not unknown:
            self._hold_s = min(0.25 * 2.0**self._failures, self._pace.longest_s)
        if not unknown and not error.is_retryable:
            raise error
        if self._failures < (_UNKNOWN_LIMIT if unknown else _FAILURE_LIMIT):
            return
        if isinstance(error, APIConnectionError):
            raise error
        raise self.lost(error) from error

    def lost(self, error: WorkersAIError) -> BatchError:
        """Return the error that ends the wait: the queue will not return a result."""
        unknown = error.status_code in UNKNOWN or says_unknown_job(error.code, error.message)
        what = "does not know" if unknown else "failed to give the result of"
        lost = BatchError(
            f"the queue {what} {self.job.request_id}: {error.message}",
            model=self.job.model,
            request_ids=[self.job.request_id],
        )
        lost.code, lost.status_code, lost.request_id = error.code, error.status_code, error.request_id
        lost.response = error.response
        return lost

    def wait_s(self) -> float:
        """Seconds until the next poll."""
        return self._pace.wait_s(self.polls) if self._hold_s is None else self._hold_s


@contextmanager
def naming(request_ids: Sequence[str]) -> Iterator[None]:
    """Put the ids of what the queue has taken on whatever ends the wait for it.

    Args:
        request_ids: The ids; those that are added meanwhile count, and an empty one does not.
    """
    try:
        yield
    except BaseException as exc:
        named = [request_id for request_id in request_ids if request_id]
        if isinstance(exc, WorkersAIError):
            exc.request_ids = tuple(dict.fromkeys([*exc.request_ids, *named]))
        elif named:
            exc.add_note(f"still with the queue: {' '.join(named)}")
        raise
