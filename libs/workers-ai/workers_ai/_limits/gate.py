"""The gate of one object, and the lock that gate and limiter share."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final

from workers_ai._limits.tickets import TicketQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai._limits.tickets import Ticket

__all__ = ["Gate", "Guarded"]

_LOCK_S: Final = 1.0
"""Longest wait for the lock. The lock is held for microseconds: a call that waits longer has interrupted the thread
that holds it."""

_all: weakref.WeakSet[Guarded] = weakref.WeakSet()


class Guarded:
    """State protected by a lock. Code that interrupts the holder of the lock never waits for it."""

    def __init__(self) -> None:
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._updates: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()

    def _acquire(self) -> bool:
        """Acquire the lock. Return False if the interrupted code of this thread holds it."""
        return self._lock.acquire(blocking=False) or self._lock.acquire(timeout=_LOCK_S)

    def _release(self) -> None:
        self._lock.release()
        if self._updates:
            self._drain()

    def _update(self, work: Callable[..., None], *args: object) -> None:
        """Run ``work`` now; if the lock is held, its holder runs it."""
        self._updates.append((work, args))
        self._drain()

    def _drain(self) -> None:
        # An update can arrive between the holder's last check and its release: check again after each release.
        while self._updates and self._lock.acquire(blocking=False):
            try:
                self._apply_updates()
            finally:
                self._lock.release()

    def _apply_updates(self) -> None:
        while self._updates:
            work, args = self._updates.popleft()
            work(*args)


class Gate(Guarded):
    """The limit of one object's requests in flight, in all threads and event loops together.

    Args:
        limit: Maximum number of requests in flight.

    Attributes:
        changes: Number of admissions and releases so far.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._holders: dict[Ticket, float] = {}
        self._waiting = TicketQueue()
        self._latency_s = 0.1
        self.changes = 0

    def wait_s(self, ticket: Ticket, now: float) -> float:
        """Return the seconds to sleep before the next call of this method; 0.0 if the ticket has a slot."""
        if not self._acquire():
            return 0.0
        try:
            self._apply_updates()
            return self._admission_wait(ticket, now)
        finally:
            self._release()

    def _admission_wait(self, ticket: Ticket, now: float) -> float:
        if ticket in self._holders:
            return 0.0
        if len(self._holders) >= self.limit:
            for other in [other for other in self._holders if other.is_idle(now)]:
                del self._holders[other]
        free = self.limit - len(self._holders)
        if self._waiting.admits(ticket, free, now):
            self._holders[ticket] = now
            self.changes += 1
            return 0.0
        wait = self._waiting.wait_s(ticket, free, self.limit, self._latency_s)
        ticket.due = now + wait
        return wait

    def step_back(self, ticket: Ticket) -> None:
        """Release the slot of a call that was not sent yet. It keeps its number."""
        self._update(self._step_back, ticket)

    def _step_back(self, ticket: Ticket) -> None:
        self._holders.pop(ticket, None)

    def leave(self, ticket: Ticket, now: float) -> None:
        """Release the slot of a call that ended, or that waits for a retry."""
        self._update(self._leave, ticket, now)

    def _leave(self, ticket: Ticket, now: float) -> None:
        self._waiting.remove(ticket)
        if (since := self._holders.pop(ticket, None)) is not None:
            self.changes += 1
            self._latency_s += (max(0.0, now - since) - self._latency_s) / 8


def _after_fork() -> None:
    """Reset the state in a child process: the requests of its parent never end there."""
    for one in list(_all):
        one._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
