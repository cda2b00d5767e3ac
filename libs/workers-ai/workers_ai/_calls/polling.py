"""How a job of the queue is waited for: how often it is asked, what a failed question means, what is left at the end.

Rules without I/O.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workers_ai._wire.batch import UnclearReplyError
from workers_ai._wire.error_mapping import is_unknown_job
from workers_ai.errors import APIResponseValidationError, BatchError, RateLimitError, WorkersAIError
from workers_ai.retry import MAX_RETRY_AFTER_S, MINUTE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from workers_ai.types import BatchJob

__all__ = ["EXECUTION", "UNKNOWN_S", "Pace", "Watch", "is_unknown", "naming"]

UNKNOWN: Final = (400, 404, 410)
"""HTTP statuses of a question about an id that the queue does not know."""

UNKNOWN_S: Final = 60.0
"""Seconds for which the queue must say that it does not know an id until the job counts as lost."""

FAILED_S: Final = 900.0
"""Seconds for which polls may fail in a row. The job is not lost then: it can be collected later."""

EXECUTION: Final = (1000, 5001)
"""Codes of a failed execution. Retryable by their class, yet also seen for single inputs."""

_UNKNOWN_PACE_S: Final = 20.0


def is_unknown(error: WorkersAIError) -> bool:
    """Return whether an error says that the queue does not know a request id."""
    return error.status_code in UNKNOWN or is_unknown_job(error.code, error.message)


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
    """One job while it is waited for: how often it was polled, and what its failed polls mean.

    A poll may fail for reasons that have nothing to do with the job; those are waited out. An id that the queue has
    not known for a minute is lost. A queue that has failed for a quarter of an hour ends the wait, not the job.

    Args:
        job: The job.
        pace: How often it is polled.
        clock: Returns seconds that never go back.
        unknown_s: Seconds to go on polling after the queue said that it does not know the id (5504).
    """

    def __init__(
        self, job: BatchJob, pace: Pace, clock: Callable[[], float] = time.monotonic, *, unknown_s: float = 0.0
    ) -> None:
        self.job = job
        self._unknown_s = unknown_s
        self.polls = 0
        self.error: WorkersAIError | None = None
        self.failures = 0
        self._pace = pace
        self._clock = clock
        self._failing_since: float | None = None
        self._unknown_since: float | None = None
        self._hold_s: float | None = None

    def answered(self) -> None:
        """Record that the queue has answered a poll."""
        self.polls += 1
        self.failures = 0
        self.error = self._hold_s = self._failing_since = self._unknown_since = None

    def failed(self, error: WorkersAIError) -> None:
        """Record that a poll has failed.

        Raises:
            BatchError: The id is lost.
            WorkersAIError: The account is rejected, or the queue has failed for too long.
        """
        self.polls += 1
        self.error, self._hold_s = error, None
        if isinstance(error, RateLimitError) and error.is_retryable:
            hold = error.retry_after if error.retry_after is not None else MINUTE_S if error.code == 3021 else None
            self._hold_s = None if hold is None else min(hold, MAX_RETRY_AFTER_S)
            return
        now = self._clock()
        self.failures += 1
        if is_unknown(error):
            self._failing_since = None
            since = self._unknown_since = now if self._unknown_since is None else self._unknown_since
            self._hold_s = min(2.0**self.failures, _UNKNOWN_PACE_S)
            is_explicit = is_unknown_job(error.code, error.message)
            if now - since >= (self._unknown_s if is_explicit else UNKNOWN_S):
                raise self.lost(error) from error
            return
        since = self._failing_since = now if self._failing_since is None else self._failing_since
        self._hold_s = min(0.25 * 2.0 ** min(self.failures, 60), self._pace.longest_s)
        unreadable = isinstance(error, (APIResponseValidationError, UnclearReplyError))
        if not (unreadable or error.is_retryable):
            raise error
        if now - since >= FAILED_S:
            raise (self.lost(error) if error.code in EXECUTION else error) from error.__cause__

    def lost(self, error: WorkersAIError) -> BatchError:
        """Return the error of a job without a result: the queue does not know the id, or its execution failed."""
        what = "does not know" if is_unknown(error) else "failed to give the result of"
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
