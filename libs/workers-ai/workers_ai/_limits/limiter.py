"""One limiter per account, shared by every object of the process, and one gate per object.

Capacity (3040) is a matter of one model: a window bounds its requests in flight. A rejection shrinks the window to what
the service was serving at that moment; success lets it grow again, slowly. Limits per minute (3021) are a matter of one
task, or of one model with a limit of its own: its calls wait until the minute is over.

Neither limiter nor gate sleeps. A call asks with its ticket, and gets the seconds to sleep before it asks again; zero
admits it. Waiting calls are admitted in the order of their arrival, whatever thread or event loop they run on. A
rejected call keeps its place.

Garbage collection and signal handlers run our own code at any point, also while their thread holds a lock here: an
abandoned stream ends, a handler makes a call. So the end of a call never waits for the lock. It leaves a note, and the
holder of the lock reads it.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["REQUESTS_PER_MINUTE", "Gate", "Limiter", "Ticket", "limiter_for"]

REQUESTS_PER_MINUTE: Final = {"chat": 300, "embeddings": 3000, "rerank": 2000}
"""Documented limits per account and task (https://developers.cloudflare.com/workers-ai/platform/limits/).

Single models have their own: see :attr:`workers_ai.catalogue.ModelCard.requests_per_minute`."""

IDLE_STREAM_S: Final = 5.0
"""Seconds after which an open stream that nobody reads no longer counts as in flight."""

_MINUTE_S: Final = 60.0
_FIRST_WINDOW: Final = 8.0
_LARGEST_WINDOW: Final = 1024.0
_SLOW_GROWTH: Final = 4.0
_SHORTEST_WAIT_S: Final = 0.004
_LONGEST_WAIT_S: Final = 1.0
_ABSENT_S: Final = 5.0
_FORGET_S: Final = 600.0
"""Seconds after which a limit that was met, a model and an account that nobody uses are forgotten."""
_LOCK_S: Final = 1.0
"""The lock is held for microseconds. A call that waits longer interrupts its own thread, which holds it."""

_arrivals = itertools.count(1)


@dataclass(eq=False, slots=True)
class Ticket:
    """One call in limiter and gate.

    Attributes:
        model: The model of the call.
        task: The task of the call.
        patient: Whether the call may wait; one that may not retry is sent at once, held or not. The caller's own
            limit per minute holds for it all the same.
        gentle: Whether the call asks to be rejected when the service is at capacity; such calls start with a small
            window.
        requests_per_minute: The caller's own limit for the task, or None.
        model_limit: The documented limit of the model, where it differs from that of the task; else None.
        documented: Whether the documented limit is kept before it was ever met.
        ahead: Seconds that the call has slept, and the clock has not counted.
        idle_since: When the consumer of an open stream got its last piece; None while the call waits for the service.
        number: Order of arrival.
    """

    model: str
    task: str
    patient: bool = True
    gentle: bool = False
    requests_per_minute: int | None = None
    model_limit: int | None = None
    documented: bool = False
    in_flight: bool = False
    since: float = 0.0
    due: float = 0.0
    ahead: float = 0.0
    idle_since: float | None = None
    number: int = field(default_factory=partial(next, _arrivals))

    @property
    def scope(self) -> str:
        """What the documented limit per minute counts: a model with a limit of its own, or the task."""
        return self.task if self.model_limit is None else self.model

    def is_idle(self, now: float) -> bool:
        """Whether this is an open stream that nobody reads."""
        return self.idle_since is not None and now - self.idle_since > IDLE_STREAM_S


def _number(ticket: Ticket) -> int:
    return ticket.number


class _Queue:
    """Waiting tickets in the order of their numbers, and those that come back after a rejection."""

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
        """Keep a slot for a rejected call from the moment it is due."""
        self._returning[ticket] = None

    def remove(self, ticket: Ticket) -> None:
        """Remove a ticket, if it is here."""
        self._returning.pop(ticket, None)
        if (index := self._index(ticket)) is not None:
            del self._tickets[index]

    def returning(self, now: float) -> int:
        """Count the rejected calls that are due."""
        if not self._returning:
            return 0
        for gone in [other for other in self._returning if now > other.due + _ABSENT_S]:
            del self._returning[gone]
        return sum(other.due < now for other in self._returning)

    def admits(self, ticket: Ticket, free: int, now: float) -> bool:
        """Enqueue ``ticket``, and remove it again if it is among the first ``free``; returns whether it is."""
        self._returning.pop(ticket, None)
        if self._index(ticket) is None:
            insort(self._tickets, ticket, key=_number)
        free -= self.returning(now)
        for place, other in enumerate(self._tickets[: max(free, 1) + 1]):
            if other is ticket and place < free:
                self.remove(ticket)
                return True
            if other is not ticket and now > other.due + _ABSENT_S:
                self.remove(other)  # its owner is gone; if not, it comes back
        return False

    def wait_s(self, ticket: Ticket, free: int, size: float, latency_s: float) -> float:
        """Estimate, in seconds, half of the time until ``ticket`` is admitted."""
        ahead = max(1, (self._index(ticket) or 0) + 1 - max(free, 0))
        return min(max(ahead * latency_s / size / 2, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)


@dataclass(slots=True)
class _Lane:
    """What is known of one model's capacity."""

    moved_at: float
    window: float = _FIRST_WINDOW
    congested: bool = False
    probing: bool = True
    busy_at: float = 0.0
    hold_until: float = 0.0
    latency_s: float = 0.1
    waiting: _Queue = field(default_factory=_Queue)
    flying: dict[Ticket, None] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        return len(self.flying)

    def is_unused(self, now: float) -> bool:
        busy = self.flying or any(self.waiting)
        return not busy and now - max(self.moved_at, self.hold_until) > _FORGET_S


@dataclass(slots=True)
class _Minute:
    """What is known of one limit per minute."""

    hold_until: float = 0.0
    limited_until: float = 0.0
    sent: deque[float] = field(default_factory=deque)
    waiting: _Queue = field(default_factory=_Queue)

    def is_unused(self, now: float) -> bool:
        last = self.sent[-1] if self.sent else 0.0
        return not any(self.waiting) and now - max(self.hold_until, self.limited_until, last) > _FORGET_S


_all: weakref.WeakSet[_Guarded] = weakref.WeakSet()


class _Guarded:
    """State behind a lock. Code that interrupts the holder of the lock does not wait for it."""

    def __init__(self) -> None:
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._notes: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def _acquire(self) -> bool:
        """Take the lock; False where this thread holds it already, and was interrupted."""
        return self._lock.acquire(blocking=False) or self._lock.acquire(timeout=_LOCK_S)

    def _release(self) -> None:
        self._lock.release()
        if self._notes:
            self._drain()

    def _note(self, work: Callable[..., None], *args: Any) -> None:
        """Do ``work`` at once, or leave it to the holder of the lock."""
        self._notes.append((work, args))
        self._drain()

    def _drain(self) -> None:
        # A note can arrive between the holder's last look and its release: look again after each release.
        while self._notes and self._lock.acquire(blocking=False):
            try:
                self._read_notes()
            finally:
                self._lock.release()

    def _read_notes(self) -> None:
        while self._notes:
            work, args = self._notes.popleft()
            work(*args)


class Gate(_Guarded):
    """The bound of one object's requests in flight, in all threads and event loops together.

    Args:
        limit: Requests in flight at most.

    Attributes:
        moves: Counts the requests that began and ended.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._holders: dict[Ticket, float] = {}
        self._waiting = _Queue()
        self._latency_s = 0.1
        self.moves = 0

    def wait_s(self, ticket: Ticket, now: float) -> float:
        """Seconds to sleep before asking again; 0.0 when the ticket has a slot."""
        if not self._acquire():
            return 0.0
        try:
            self._read_notes()
            return self._ask(ticket, now)
        finally:
            self._release()

    def _ask(self, ticket: Ticket, now: float) -> float:
        if ticket in self._holders:
            return 0.0
        if len(self._holders) >= self.limit:
            for other in [other for other in self._holders if other.is_idle(now)]:
                del self._holders[other]
        free = self.limit - len(self._holders)
        if self._waiting.admits(ticket, free, now):
            self._holders[ticket] = now
            self.moves += 1
            return 0.0
        wait = self._waiting.wait_s(ticket, free, self.limit, self._latency_s)
        ticket.due = now + wait
        return wait

    def step_back(self, ticket: Ticket) -> None:
        """Release the slot of a call that is not sent yet; it comes back with the same number."""
        self._note(self._step_back, ticket)

    def _step_back(self, ticket: Ticket) -> None:
        self._holders.pop(ticket, None)

    def leave(self, ticket: Ticket, now: float) -> None:
        """Release the slot of a call that ended or backs off."""
        self._note(self._leave, ticket, now)

    def _leave(self, ticket: Ticket, now: float) -> None:
        self._waiting.remove(ticket)
        if (since := self._holders.pop(ticket, None)) is not None:
            self.moves += 1
            self._latency_s += (max(0.0, now - since) - self._latency_s) / 8


class Limiter(_Guarded):
    """The state of one account. All methods are quick, and safe from any thread, finalizer and signal handler.

    Args:
        clock: Gives the time in seconds; never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.used_at = clock()
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._lanes: dict[str, _Lane] = {}
        self._minutes: dict[str, _Minute] = {}

    def now(self) -> float:
        """The time in seconds, by the clock of this limiter."""
        return self._clock()

    def wait_s(self, ticket: Ticket, patience_s: float | None = None) -> float:
        """Seconds to sleep before asking again; 0.0 when the ticket is admitted, and so counts as in flight.

        Args:
            ticket: The call's ticket.
            patience_s: A congested model does not hold a call longer than this, if no call of the model began or ended
                meanwhile; in seconds, None for no bound.
        """
        if not self._acquire():
            return 0.0
        try:
            self._read_notes()
            return self._ask(ticket, patience_s)
        finally:
            self._release()

    def _ask(self, ticket: Ticket, patience_s: float | None) -> float:
        self.used_at = self._clock()
        now = self.used_at + ticket.ahead
        lane = self._lanes.get(ticket.model) or self._new_lane(ticket.model, now)
        minute = self._minutes.get(ticket.scope) or self._new_minute(ticket.scope, now)
        wait = self._minute_wait(minute, ticket, now)
        if ticket.patient and not wait:
            wait = max(lane.hold_until, minute.hold_until) - now
            if wait <= 0:
                wait = self._window_wait(lane, ticket, now, patience_s)
        if wait > 0:
            ticket.due = now + wait
            return wait
        self._admit(lane, minute, ticket, now)
        return 0.0

    def _admit(self, lane: _Lane, minute: _Minute, ticket: Ticket, now: float) -> None:
        minute.waiting.remove(ticket)
        lane.waiting.remove(ticket)
        lane.flying[ticket] = None
        lane.moved_at = now
        ticket.in_flight, ticket.since = True, now - ticket.ahead
        if ticket.requests_per_minute is not None:
            self._own_minute(ticket, now).sent.append(now)
        elif ticket.documented or minute.limited_until > now:
            minute.sent.append(now)

    def _new_lane(self, model: str, now: float) -> _Lane:
        _forget(self._lanes, now)
        return self._lanes.setdefault(model, _Lane(now))

    def _new_minute(self, scope: str, now: float) -> _Minute:
        _forget(self._minutes, now)
        return self._minutes.setdefault(scope, _Minute())

    def _own_minute(self, ticket: Ticket, now: float) -> _Minute:
        return self._minutes.get(ticket.task) or self._new_minute(ticket.task, now)

    def _minute_wait(self, minute: _Minute, ticket: Ticket, now: float) -> float:
        limit = ticket.requests_per_minute
        if limit is not None:
            minute = self._own_minute(ticket, now)
        elif ticket.documented or (ticket.patient and minute.limited_until > now):
            limit = ticket.model_limit or REQUESTS_PER_MINUTE.get(ticket.task)
        while minute.sent and now - minute.sent[0] >= _MINUTE_S:
            minute.sent.popleft()
        if limit is None:
            return 0.0
        minute.waiting.remove(ticket)  # one that comes back after a rejection is not held by those that do
        if len(minute.sent) + minute.waiting.returning(now) < limit:
            return 0.0
        return minute.sent[0] + _MINUTE_S - now if minute.sent else _LONGEST_WAIT_S

    def _window_wait(self, lane: _Lane, ticket: Ticket, now: float, patience_s: float | None) -> float:
        if lane.congested and now - lane.busy_at > _MINUTE_S:
            lane.congested, lane.probing = False, True
        if not (lane.congested or ticket.gentle):
            return 0.0
        free = int(lane.window) - lane.in_flight
        if lane.waiting.admits(ticket, free, now) or (
            patience_s is not None and self.used_at - lane.moved_at > patience_s
        ):
            return 0.0
        for other in [other for other in lane.flying if other.is_idle(now)]:
            self._land(other)
        return lane.waiting.wait_s(ticket, free, lane.window, lane.latency_s)

    def done(self, ticket: Ticket) -> None:
        """The call was served, or failed for a reason that says nothing of capacity."""
        self._note(self._done, ticket)

    def _done(self, ticket: Ticket) -> None:
        lane = self._land(ticket)
        if lane is None:
            return
        lane.latency_s += ((self._clock() - ticket.since) - lane.latency_s) / 8
        if lane.in_flight + 1 >= lane.window / 2:  # otherwise the window was not put to the test
            growth = 1.0 if lane.probing else 1.0 / (_SLOW_GROWTH * lane.window)
            lane.window = min(lane.window + growth, _LARGEST_WINDOW)

    def busy(self, ticket: Ticket, wait_s: float, *, told: bool, returns: bool = False) -> None:
        """The call was rejected for want of capacity.

        Args:
            ticket: Its ticket.
            wait_s: Seconds that it will wait.
            told: Whether the service named that time; then everyone who asks for the model waits as long.
            returns: Whether the call comes back; then a slot is kept for it when it is due.
        """
        self._note(self._busy, ticket, wait_s, told, returns)

    def _busy(self, ticket: Ticket, wait_s: float, told: bool, returns: bool) -> None:
        lane = self._land(ticket)
        if lane is None:
            return
        now = self._clock()
        lane.congested, lane.probing, lane.busy_at = True, False, now
        lane.window = float(max(1, lane.in_flight))
        if told or lane.in_flight == 0:
            lane.hold_until = max(lane.hold_until, now + wait_s)
        if returns:
            ticket.due = now + wait_s
            lane.waiting.expect(ticket)

    def limited(self, ticket: Ticket, wait_s: float, *, returns: bool = False) -> None:
        """The call met a limit per minute: everyone it counts for waits.

        Args:
            ticket: Its ticket.
            wait_s: Seconds to wait.
            returns: Whether the call comes back; then a request of the next minute is kept for it.
        """
        self._note(self._limited, ticket, wait_s, returns)

    def _limited(self, ticket: Ticket, wait_s: float, returns: bool) -> None:
        self._land(ticket)
        now = self._clock()
        minute = self._minutes.get(ticket.scope) or self._new_minute(ticket.scope, now)
        minute.limited_until = now + _FORGET_S
        minute.hold_until = max(minute.hold_until, now + wait_s)
        if returns:
            ticket.due = now + wait_s
            minute.waiting.expect(ticket)

    def leave(self, ticket: Ticket) -> None:
        """The call ended without an answer: cancelled, or failed before it was sent."""
        self._note(self._leave, ticket)

    def _leave(self, ticket: Ticket) -> None:
        self._land(ticket)
        if lane := self._lanes.get(ticket.model):
            lane.waiting.remove(ticket)
        if minute := self._minutes.get(ticket.scope):
            minute.waiting.remove(ticket)

    def _land(self, ticket: Ticket) -> _Lane | None:
        if not ticket.in_flight:
            return None
        ticket.in_flight = False
        lane = self._lanes.get(ticket.model)
        if lane is not None:  # else this is a child process, where a new lane has begun
            lane.flying.pop(ticket, None)
            lane.moved_at = self._clock()
        return lane


def _forget(known: dict[str, _Lane] | dict[str, _Minute], now: float) -> None:
    for name in [name for name, one in known.items() if one.is_unused(now)]:
        del known[name]


_limiters: dict[tuple[str, str], Limiter | weakref.ref[Limiter]] = {}
"""By URL and account. A limiter that was not used for a while is kept only as long as an object holds it."""


def _after_fork() -> None:
    """Begin anew in a child: what its parent has in flight never lands here."""
    for one in list(_all):
        one._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def limiter_for(base_url: str, account_id: str) -> Limiter:
    """Return the limiter that every object of this process with this URL and account shares."""
    # No lock: each step on the dict is atomic.
    for other, limiter in list(_limiters.items()):
        if not isinstance(limiter, weakref.ref):
            if limiter.now() - limiter.used_at > _FORGET_S:
                _limiters[other] = weakref.ref(limiter)
        elif limiter() is None:
            _limiters.pop(other, None)
    key = (base_url, account_id)
    known = _limiters.get(key)
    if isinstance(known, weakref.ref):
        if (living := known()) is None:
            _limiters.pop(key, None)
        else:
            _limiters[key] = living
    found = _limiters.setdefault(key, Limiter())
    return limiter_for(base_url, account_id) if isinstance(found, weakref.ref) else found
