"""Submissions that wait for their results, by the time of the next poll."""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers_ai._calls.polling import PolledJob
    from workers_ai.ledger._records import Claim

__all__ = ["PendingJob", "PollingQueue"]


@dataclass(order=True)
class PendingJob:
    """A submission that waits for its result.

    Attributes:
        due: Time of the next poll.
        claim: The inputs of the submission.
        polled: The job, with its polls so far and their errors.
        until: When the run stops waiting.
    """

    due: float
    claim: Claim = field(compare=False)
    polled: PolledJob = field(compare=False)
    until: float = field(compare=False)


class PollingQueue:
    """Pending jobs, ordered by the time of the next poll. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[PendingJob] = []

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, job: PendingJob) -> None:
        """Add a job."""
        with self._lock:
            heapq.heappush(self._heap, job)

    def take(self, now: float) -> PendingJob | None:
        """Remove and return the job that is due first; None if no job is due."""
        with self._lock:
            return heapq.heappop(self._heap) if self._heap and self._heap[0].due <= now else None

    def due_in(self, now: float, at_most: float) -> float:
        """Return the seconds until the next job is due, at most ``at_most``."""
        with self._lock:
            return max(0.0, min(at_most, self._heap[0].due - now)) if self._heap else at_most
