"""The submissions that the queue has, and when each is to be asked for next."""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers_ai._calls.polling import PolledJob
    from workers_ai.ledger._records import Claim

__all__ = ["Watched", "Watchlist"]


@dataclass(order=True)
class Watched:
    """A submission that is waited for.

    Attributes:
        due: When to ask for it next.
        claim: Its texts.
        watch: How often it was asked for, and with what luck.
        until: When the wait ends.
    """

    due: float
    claim: Claim = field(compare=False)
    watch: PolledJob = field(compare=False)
    until: float = field(compare=False)


class Watchlist:
    """Submissions by the time they are due. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[Watched] = []

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, watched: Watched) -> None:
        """Wait for a submission until it is due."""
        with self._lock:
            heapq.heappush(self._heap, watched)

    def take(self, now: float) -> Watched | None:
        """Take out the submission that is due first; None where none is due yet."""
        with self._lock:
            return heapq.heappop(self._heap) if self._heap and self._heap[0].due <= now else None

    def due_in(self, now: float, at_most: float) -> float:
        """Seconds until the next one is due, or ``at_most``."""
        with self._lock:
            return max(0.0, min(at_most, self._heap[0].due - now)) if self._heap else at_most
