"""One limiter per account, shared by every object of the process: a busy service slows all who ask it, and fairly.

Capacity (3040) is a matter of one model: a window bounds its requests in flight. A rejection shrinks the window to what
the service was serving at that moment; success lets it grow again, slowly. Limits per minute (3021) are a matter of one
task: all its calls wait until the minute is over.

The limiter does not wait itself. A call asks with its ticket, and is told how long to sleep before it asks again; zero
means go. Those who wait are let in in the order they came, whatever thread or event loop they run on.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REQUESTS_PER_MINUTE", "Limiter", "Ticket", "limiter_for"]

REQUESTS_PER_MINUTE: Final = {"chat": 300, "embeddings": 3000, "rerank": 2000}
"""Documented limits per account and task (https://developers.cloudflare.com/workers-ai/platform/limits/).

Single models have their own: see :attr:`workers_ai.catalogue.ModelCard.requests_per_minute`."""

_MINUTE_S: Final = 60.0
_FIRST_WINDOW: Final = 8.0
_LARGEST_WINDOW: Final = 1024.0
_SLOW_GROWTH: Final = 4.0
_SHORTEST_WAIT_S: Final = 0.004
_LONGEST_WAIT_S: Final = 1.0
_ABSENT_S: Final = 5.0


@dataclass(eq=False, slots=True)
class Ticket:
    """One call's place in the limiter.

    Attributes:
        model: The model asked for.
        task: The task asked for.
        patient: Whether the call may wait; one that may not retry is sent at once, held or not. The caller's own
            ``requests_per_minute`` holds for it all the same.
        gentle: Whether the call asks to be rejected when the service is busy; such calls feel their way up.
        requests_per_minute: The caller's own limit for the task, or None.
        ahead: Seconds that the call has slept, and the clock has not counted.
    """

    model: str
    task: str
    patient: bool = True
    gentle: bool = False
    requests_per_minute: int | None = None
    in_flight: bool = False
    since: float = 0.0
    due: float = 0.0
    ahead: float = 0.0
    number: int = 0


@dataclass(slots=True)
class _Lane:
    """What is known of one model's capacity."""

    in_flight: int = 0
    window: float = _FIRST_WINDOW
    congested: bool = False
    probing: bool = True
    busy_at: float = 0.0
    hold_until: float = 0.0
    latency_s: float = 0.1
    waiting: OrderedDict[Ticket, None] = field(default_factory=OrderedDict)


@dataclass(slots=True)
class _Minute:
    """What is known of one task's limit per minute."""

    hold_until: float = 0.0
    limited: bool = False
    sent: deque[float] = field(default_factory=deque)


_all: weakref.WeakSet[Limiter] = weakref.WeakSet()


class Limiter:
    """The state of one account. All methods are quick, and safe from any thread.

    Args:
        clock: Gives the time in seconds; never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        self._minutes: dict[str, _Minute] = {}
        self._numbers = 0

    def wait_s(self, ticket: Ticket) -> float:
        """Seconds to sleep before asking again; 0.0 when the ticket is let in, and so counts as in flight."""
        with self._lock:
            now = self._clock() + ticket.ahead
            lane = self._lanes.setdefault(ticket.model, _Lane())
            minute = self._minutes.setdefault(ticket.task, _Minute())
            wait = self._minute_wait(minute, ticket, now)
            if ticket.patient and not wait:
                wait = self._hold(lane, minute, ticket, now)
            if wait > 0:
                ticket.due = now + wait
                return wait
            lane.waiting.pop(ticket, None)
            lane.in_flight += 1
            ticket.in_flight, ticket.since = True, now - ticket.ahead
            if ticket.requests_per_minute or minute.limited:
                minute.sent.append(now)
            return 0.0

    def _hold(self, lane: _Lane, minute: _Minute, ticket: Ticket, now: float) -> float:
        held = max(lane.hold_until, minute.hold_until) - now
        if held > 0:
            return held
        if lane.congested and now - lane.busy_at > _MINUTE_S:
            lane.congested, lane.probing = False, True
        if not (lane.congested or ticket.gentle):
            return 0.0
        return self._window_wait(lane, ticket, now)

    def _minute_wait(self, minute: _Minute, ticket: Ticket, now: float) -> float:
        while minute.sent and now - minute.sent[0] >= _MINUTE_S:
            minute.sent.popleft()
        limit = ticket.requests_per_minute
        if limit is None and minute.limited and ticket.patient:
            limit = REQUESTS_PER_MINUTE.get(ticket.task)
        if limit is None:
            return 0.0
        return minute.sent[0] + _MINUTE_S - now if len(minute.sent) >= limit else 0.0

    def _window_wait(self, lane: _Lane, ticket: Ticket, now: float) -> float:
        if ticket not in lane.waiting:
            self._numbers += 1
            if not ticket.number:
                ticket.number = self._numbers
            lane.waiting[ticket] = None
            if ticket.number < self._numbers:  # a rejected call that comes back keeps its place
                lane.waiting.move_to_end(ticket, last=False)
        free = int(lane.window) - lane.in_flight
        for place, other in enumerate(list(_first(lane.waiting, free))):
            if other is ticket and place < free:
                return 0.0
            if other is not ticket and now > other.due + _ABSENT_S:
                del lane.waiting[other]  # its owner is gone; if not, it comes back
        ahead = max(1, ticket.number - next(iter(lane.waiting)).number + 1 - max(free, 0))
        estimate = ahead * lane.latency_s / lane.window / 2
        return min(max(estimate, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)

    def done(self, ticket: Ticket) -> None:
        """The call was served, or failed for a reason that says nothing of capacity."""
        with self._lock:
            lane = self._land(ticket)
            if lane is None:
                return
            lane.latency_s += ((self._clock() - ticket.since) - lane.latency_s) / 8
            if lane.in_flight + 1 >= lane.window / 2:  # otherwise the window was not put to the test
                growth = 1.0 if lane.probing else 1.0 / (_SLOW_GROWTH * lane.window)
                lane.window = min(lane.window + growth, _LARGEST_WINDOW)

    def busy(self, ticket: Ticket, wait_s: float, *, told: bool) -> None:
        """The call was rejected for want of capacity.

        Args:
            ticket: Its ticket.
            wait_s: How long it will wait.
            told: Whether the service named that time; then everyone who asks for the model waits as long.
        """
        with self._lock:
            lane = self._land(ticket)
            if lane is None:
                return
            now = self._clock()
            lane.congested, lane.probing, lane.busy_at = True, False, now
            lane.window = float(max(1, lane.in_flight))
            if told or lane.in_flight == 0:
                lane.hold_until = max(lane.hold_until, now + wait_s)

    def limited(self, ticket: Ticket, wait_s: float) -> None:
        """The call met the limit per minute of its task: everyone who asks for the task waits ``wait_s`` seconds."""
        with self._lock:
            self._land(ticket)
            minute = self._minutes.setdefault(ticket.task, _Minute())
            minute.limited = True
            minute.hold_until = max(minute.hold_until, self._clock() + wait_s)

    def leave(self, ticket: Ticket) -> None:
        """The call ended without an answer: cancelled, or failed before it was sent."""
        with self._lock:
            self._land(ticket)
            if lane := self._lanes.get(ticket.model):
                lane.waiting.pop(ticket, None)

    def _land(self, ticket: Ticket) -> _Lane | None:
        if not ticket.in_flight:
            return None
        ticket.in_flight = False
        lane = self._lanes[ticket.model]
        lane.in_flight -= 1
        return lane


def _first(waiting: OrderedDict[Ticket, None], count: int) -> list[Ticket]:
    first: list[Ticket] = []
    for ticket in waiting:
        if len(first) >= max(count, 1) + 1:
            break
        first.append(ticket)
    return first


_limiters: dict[tuple[str, str], Limiter] = {}
_limiters_lock = threading.Lock()


def _after_fork() -> None:
    """Begin anew in a child: what its parent has in flight never lands here."""
    global _limiters_lock
    _limiters_lock = threading.Lock()
    for limiter in list(_all):
        limiter._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def limiter_for(base_url: str, account_id: str) -> Limiter:
    """The limiter that everything in this process shares which talks to this account at this URL."""
    with _limiters_lock:
        return _limiters.setdefault((base_url, account_id), Limiter())
