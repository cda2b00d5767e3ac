"""Polling of a job of the asynchronous queue: the delays, and the reaction to failed polls. No I/O."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workers_ai._wire.batch import UnclearReplyError
from workers_ai._wire.batch_worker import MismatchedResultError
from workers_ai._wire.error_mapping import is_unknown_job
from workers_ai.errors import APIResponseValidationError, BatchError, RateLimitError, WorkersAIError
from workers_ai.retry import backoff_s, required_wait_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from workers_ai.types import BatchJob

__all__ = ["EXECUTION", "UNKNOWN_S", "PolledJob", "PollingPace", "is_unknown", "with_request_ids"]

UNKNOWN: Final = (400, 404, 410)
"""HTTP statuses of a poll whose request id is unknown."""

UNKNOWN_S: Final = 60.0
"""Seconds for which polls must report an unknown request id until the job counts as lost."""

FAILED_S: Final = 900.0
"""Seconds for which polls may fail in a row. After that the wait ends; the job can be collected later."""

EXECUTION: Final = (1000, 5001)
"""Codes of a failed execution. Their class is retryable, but single inputs cause them too."""

_MAX_UNKNOWN_WAIT_S: Final = 20.0
_FIRST_FAILED_WAIT_S: Final = 0.5


def is_unknown(error: WorkersAIError) -> bool:
    """Return whether an error reports an unknown request id."""
    return error.status_code in UNKNOWN or is_unknown_job(error.code, error.message)


@dataclass(frozen=True, slots=True)
class PollingPace:
    """Delays between the polls of a job: first ``first_s``, then ``factor`` times longer each, up to ``longest_s``."""

    first_s: float = 0.1
    factor: float = 1.7
    longest_s: float = 30.0

    def wait_s(self, polls: int) -> float:
        """Return the seconds to wait after poll number ``polls`` (from 1)."""
        return backoff_s(polls, self.first_s, self.longest_s, self.factor)


class PolledJob:
    """A job that is polled.

    A failed poll does not mean that the job failed, so polling continues. The job is lost if its request id is unknown
    for a minute. If polls fail for 15 minutes, the wait ends; the job can be collected later.

    Args:
        job: The job.
        pace: Delays between polls.
        clock: Function that returns a monotonic time in seconds.
        unknown_s: Seconds to continue polling after the explicit error for an unknown id (5504).

    Attributes:
        polls: Polls so far.
        failures: Failed polls in a row, without rate limits.
        error: The error of the last poll, or None.
    """

    def __init__(
        self, job: BatchJob, pace: PollingPace, clock: Callable[[], float] = time.monotonic, *, unknown_s: float = 0.0
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
        """Record a successful poll."""
        self.polls += 1
        self.failures = 0
        self.error = self._hold_s = self._failing_since = self._unknown_since = None

    def failed(self, error: WorkersAIError) -> None:
        """Record a poll that failed.

        Raises:
            BatchError: The job is lost.
            WorkersAIError: The error is final, or polls have failed for too long.
        """
        self.polls += 1
        self.error, self._hold_s = error, None
        if isinstance(error, RateLimitError) and error.is_retryable:
            self._hold_s = required_wait_s(error)
            return
        now = self._clock()
        self.failures += 1
        if is_unknown(error):
            self._failing_since = None
            since = self._unknown_since = now if self._unknown_since is None else self._unknown_since
            self._hold_s = backoff_s(self.failures, 2.0, _MAX_UNKNOWN_WAIT_S)
            is_explicit = is_unknown_job(error.code, error.message)
            if now - since >= (self._unknown_s if is_explicit else UNKNOWN_S):
                raise self.lost(error) from error
            return
        since = self._failing_since = now if self._failing_since is None else self._failing_since
        self._hold_s = backoff_s(self.failures, _FIRST_FAILED_WAIT_S, self._pace.longest_s)
        is_unreadable = isinstance(error, (APIResponseValidationError, UnclearReplyError))
        if isinstance(error, MismatchedResultError) or not (is_unreadable or error.is_retryable):
            raise error
        if now - since >= FAILED_S:
            raise (self.lost(error) if error.code in EXECUTION else error) from error.__cause__

    def lost(self, error: WorkersAIError) -> BatchError:
        """Return the error of a job without a result: its request id is unknown, or its execution failed."""
        job_id = self.job.request_id
        what = f"the request id {job_id} is unknown to" if is_unknown(error) else f"the job {job_id} failed in"
        lost = BatchError(
            f"{what} the asynchronous queue: {error.message}",
            model=self.job.model,
            request_ids=[self.job.request_id],
        )
        lost.code, lost.status_code, lost.request_id = error.code, error.status_code, error.request_id
        lost.response = error.response
        lost.hint = "" if is_unknown(error) else "Submit the requests again."
        return lost

    def wait_s(self) -> float:
        """Return the seconds until the next poll."""
        return self._pace.wait_s(self.polls) if self._hold_s is None else self._hold_s


@contextmanager
def with_request_ids(request_ids: Sequence[str]) -> Iterator[None]:
    """Add the request ids of pending submissions to an exception that leaves the block.

    Args:
        request_ids: The ids, read when the exception is raised. Empty ones are ignored.
    """
    try:
        yield
    except BaseException as exc:
        pending = [request_id for request_id in request_ids if request_id]
        if isinstance(exc, WorkersAIError):
            exc.request_ids = tuple(dict.fromkeys([*exc.request_ids, *pending]))
        elif pending:
            exc.add_note(f"pending in the asynchronous queue: {' '.join(pending)}")
        raise
