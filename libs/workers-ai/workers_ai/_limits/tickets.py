"""Tickets: the calls of a limiter or a gate, and the queue in which they wait."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LONGEST_WAIT_S", "Ticket", "TicketQueue"]

IDLE_STREAM_S: Final = 5.0
"""Seconds after which an open stream that nobody reads no longer counts as in flight."""

_SHORTEST_WAIT_S: Final = 0.004
LONGEST_WAIT_S: Final = 1.0
_ABSENT_S: Final = 5.0

_arrivals = itertools.count(1)


@dataclass(eq=False, slots=True)
class Ticket:
    """One call in limiter and gate.

    Attributes:
        model: The model of the call.
        task: The task of the call.
        may_wait: Whether the call may wait. A call without retries is sent at once; only the caller's own limit per
            minute applies to it.
        rejects_if_busy: Whether the service rejects the call at capacity. Such calls start with a small window.
        requests_per_minute: The caller's own limit for the task, or None.
        model_limit: The documented limit of the model if it differs from that of the task; else None.
        documented: Whether the documented limit applies before the service has reported it.
        rejected: Whether the service has rejected the call at capacity.
        in_flight: Whether the call counts as in flight.
        position: Number of requests in flight when the call was admitted, with itself.
        since: When the call was admitted.
        due: When the call presents the ticket again.
        ahead: Seconds that the call has slept, but that the clock does not show (a patched clock or sleep).
        idle_since: When the consumer of an open stream received its last delta; None while the call waits for the
            service.
        number: Order of arrival.
    """

    model: str
    task: str
    may_wait: bool = True
    rejects_if_busy: bool = False
    requests_per_minute: int | None = None
    model_limit: int | None = None
    documented: bool = False
    rejected: bool = False
    in_flight: bool = False
    position: int = 0
    since: float = 0.0
    due: float = 0.0
    ahead: float = 0.0
    idle_since: float | None = None
    number: int = field(default_factory=partial(next, _arrivals))

    @property
    def scope(self) -> str:
        """The key of the limit per minute: the model if it has a limit of its own, else the task."""
        return self.task if self.model_limit is None else self.model

    def is_idle(self, now: float) -> bool:
        """Return whether this is an open stream that nobody reads."""
        return self.idle_since is not None and now - self.idle_since > IDLE_STREAM_S


def _number(ticket: Ticket) -> int:
    return ticket.number


class TicketQueue:
    """Waiting tickets in the order of their numbers, and rejected tickets that will return."""

    __slots__ = ("_returning", "_tickets")

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []
        self._returning: dict[Ticket, None] = {}

    def __iter__(self) -> Iterator[Ticket]:
        return itertools.chain(self._returning, self._tickets)

    def _index(self, ticket: Ticket) -> int | None:
        index = bisect_left(self._tickets, ticket.number, key=_number)
        found = index < len(self._tickets) and self._tickets[index] is ticket
        return index if found else None

    def expect(self, ticket: Ticket) -> None:
        """Reserve a slot for a rejected call from the time it is due."""
        self._returning[ticket] = None

    def remove(self, ticket: Ticket) -> None:
        """Remove a ticket. Do nothing if it is not waiting."""
        self._returning.pop(ticket, None)
        if (index := self._index(ticket)) is not None:
            del self._tickets[index]

    def returning(self, now: float) -> int:
        """Count the rejected calls that are due."""
        if not self._returning:
            return 0
        for absent in [other for other in self._returning if now > other.due + _ABSENT_S]:
            del self._returning[absent]
        return sum(other.due < now for other in self._returning)

    def admits(self, ticket: Ticket, free: int, now: float) -> bool:
        """Return whether ``ticket`` is among the first ``free`` tickets. If so, remove it; else keep it waiting."""
        self._returning.pop(ticket, None)
        if self._index(ticket) is None:
            insort(self._tickets, ticket, key=_number)
        free -= self.returning(now)
        for position, other in enumerate(self._tickets[: max(free, 1) + 1]):
            if other is ticket and position < free:
                self.remove(ticket)
                return True
            if other is not ticket and now > other.due + _ABSENT_S:
                self.remove(other)  # abandoned; an active call enqueues again
        return False

    def ahead(self, ticket: Ticket) -> int:
        """Count the waiting tickets before ``ticket``."""
        return self._index(ticket) or 0

    def wait_s(self, ticket: Ticket, free: int, size: float, latency_s: float) -> float:
        """Return half of the estimated seconds until ``ticket`` is admitted."""
        ahead = max(1, self.ahead(ticket) + 1 - max(free, 0))
        return min(max(ahead * latency_s / size / 2, _SHORTEST_WAIT_S), LONGEST_WAIT_S)
