"""One limiter per account, shared by all objects of the process, and one gate per object.

Capacity (3040) concerns one model: a window bounds its requests in flight. A rejection shrinks the window to the
requests then in flight; successes enlarge it slowly. Only calls that were never rejected try a larger window: a
rejected call is sent again when fewer requests are in flight than the service has served at once. A rate limit (3021)
concerns one task, or one model with a limit of its own: its calls wait until the minute has passed.

Neither limiter nor gate sleeps. A call presents its ticket and receives the seconds to sleep before it presents the
ticket again; 0.0 admits it. Waiting calls are admitted in the order of their arrival, across threads and event loops. A
rejected call keeps its position.

Garbage collection and signal handlers can run a call at any point, even while their thread holds a lock here. So the
end of a call never waits for the lock: it appends to a list of pending updates, which the holder of the lock applies.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from workers_ai._limits.gate import Guarded
from workers_ai._limits.tickets import LONGEST_WAIT_S, Ticket, TicketQueue

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REQUESTS_PER_MINUTE", "AccountLimiter", "Limiter", "limiter_for"]

REQUESTS_PER_MINUTE: Final = {"chat": 300, "embeddings": 3000, "rerank": 2000}
"""Documented limits per account and task (https://developers.cloudflare.com/workers-ai/platform/limits/).

Single models have their own: see :attr:`workers_ai.catalogue.ModelCard.requests_per_minute`."""

_MINUTE_S: Final = 60.0
_FIRST_WINDOW: Final = 8.0
_LARGEST_WINDOW: Final = 1024.0
_SLOW_GROWTH: Final = 4.0
_FORGET_S: Final = 600.0
"""Seconds after which the state of an unused model, account or rate limit is deleted."""


@dataclass(slots=True)
class _ModelState:
    """The state of one model: its window, and its requests in flight."""

    changed_at: float
    window: float = _FIRST_WINDOW
    served_at_once: int = 0
    congested: bool = False
    probing: bool = True
    busy_at: float = 0.0
    hold_until: float = 0.0
    latency_s: float = 0.1
    waiting: TicketQueue = field(default_factory=TicketQueue)
    requests: dict[Ticket, None] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        return len(self.requests)

    def is_unused(self, now: float) -> bool:
        busy = self.requests or any(self.waiting)
        return not busy and now - max(self.changed_at, self.hold_until) > _FORGET_S


@dataclass(slots=True)
class _MinuteState:
    """The state of one limit per minute."""

    hold_until: float = 0.0
    limited_until: float = 0.0
    sent: deque[float] = field(default_factory=deque)
    waiting: TicketQueue = field(default_factory=TicketQueue)

    def is_unused(self, now: float) -> bool:
        last = self.sent[-1] if self.sent else 0.0
        return not any(self.waiting) and now - max(self.hold_until, self.limited_until, last) > _FORGET_S


class AccountLimiter(Guarded):
    """The limiter of one account. Methods never block, and may be called from any thread, finalizer or signal handler.

    Args:
        clock: Function that returns a monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.used_at = clock()
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._models: dict[str, _ModelState] = {}
        self._minutes: dict[str, _MinuteState] = {}

    def now(self) -> float:
        """Return the time in seconds, by the clock of this limiter."""
        return self._clock()

    def wait_s(self, ticket: Ticket, max_wait_s: float | None = None) -> float:
        """Return the seconds to sleep before the next call of this method; 0.0 if the ticket is admitted.

        An admitted ticket counts as in flight.

        Args:
            ticket: The call's ticket.
            max_wait_s: Maximum seconds to wait while no call of a congested model begins or ends; None for no bound.
        """
        if not self._acquire():
            return 0.0
        try:
            self._apply_updates()
            return self._admission_wait(ticket, max_wait_s)
        finally:
            self._release()

    def _admission_wait(self, ticket: Ticket, max_wait_s: float | None) -> float:
        self.used_at = self._clock()
        now = self.used_at + ticket.ahead
        state = self._models.get(ticket.model) or self._new_state(ticket.model, now)
        minute = self._minutes.get(ticket.scope) or self._new_minute(ticket.scope, now)
        wait = self._minute_wait(minute, ticket, now)
        if ticket.may_wait and not wait:
            wait = max(state.hold_until, minute.hold_until) - now
            if wait <= 0:
                wait = self._window_wait(state, ticket, now, max_wait_s)
        if wait > 0:
            ticket.due = now + wait
            return wait
        self._admit(state, minute, ticket, now)
        return 0.0

    def _admit(self, state: _ModelState, minute: _MinuteState, ticket: Ticket, now: float) -> None:
        minute.waiting.remove(ticket)
        state.waiting.remove(ticket)
        state.requests[ticket] = None
        state.changed_at = now
        ticket.position = state.in_flight
        ticket.in_flight, ticket.since = True, now - ticket.ahead
        if ticket.requests_per_minute is not None:
            self._own_minute(ticket, now).sent.append(now)
        elif ticket.documented or minute.limited_until > now:
            minute.sent.append(now)

    def _new_state(self, model: str, now: float) -> _ModelState:
        _forget(self._models, now)
        return self._models.setdefault(model, _ModelState(now))

    def _new_minute(self, scope: str, now: float) -> _MinuteState:
        _forget(self._minutes, now)
        return self._minutes.setdefault(scope, _MinuteState())

    def _own_minute(self, ticket: Ticket, now: float) -> _MinuteState:
        return self._minutes.get(ticket.task) or self._new_minute(ticket.task, now)

    def _minute_wait(self, minute: _MinuteState, ticket: Ticket, now: float) -> float:
        limit = ticket.requests_per_minute
        if limit is not None:
            minute = self._own_minute(ticket, now)
        elif ticket.documented or (ticket.may_wait and minute.limited_until > now):
            limit = ticket.model_limit or REQUESTS_PER_MINUTE.get(ticket.task)
        while minute.sent and now - minute.sent[0] >= _MINUTE_S:
            minute.sent.popleft()
        if limit is None or minute.waiting.admits(ticket, limit - len(minute.sent), now):
            return 0.0
        ahead = minute.waiting.ahead(ticket) + len(minute.sent) - limit  # requests that must become a minute old first
        return minute.sent[min(ahead, len(minute.sent) - 1)] + _MINUTE_S - now if minute.sent else LONGEST_WAIT_S

    def _window_wait(self, state: _ModelState, ticket: Ticket, now: float, max_wait_s: float | None) -> float:
        if state.congested and now - state.busy_at > _MINUTE_S:
            state.congested, state.probing = False, True
        if not (state.congested or ticket.rejects_if_busy):
            return 0.0
        window = int(state.window)
        free = (min(window, state.served_at_once) if ticket.rejected else window) - state.in_flight
        if state.waiting.admits(ticket, free, now) or (
            max_wait_s is not None and self.used_at - state.changed_at > max_wait_s
        ):
            return 0.0
        for other in [other for other in state.requests if other.is_idle(now)]:
            self._end(other)
        return state.waiting.wait_s(ticket, free, state.window, state.latency_s)

    def done(self, ticket: Ticket) -> None:
        """Record that a call succeeded, or failed for a reason other than capacity."""
        self._update(self._done, ticket)

    def _done(self, ticket: Ticket) -> None:
        state = self._end(ticket)
        if state is None:
            return
        state.latency_s += ((self._clock() - ticket.since) - state.latency_s) / 8
        state.served_at_once = max(state.served_at_once, ticket.position)
        if state.in_flight + 1 >= state.window / 2:  # the window was in use
            growth = 1.0 if state.probing else 1.0 / (_SLOW_GROWTH * state.window)
            state.window = min(state.window + growth, _LARGEST_WINDOW)

    def busy(self, ticket: Ticket, wait_s: float, *, for_all: bool, returns: bool = False) -> None:
        """Record that a call was rejected at capacity.

        Args:
            ticket: The ticket of the call.
            wait_s: Seconds until it is sent again.
            for_all: Whether the service requested this wait; then all calls of the model wait.
            returns: Whether the call is sent again; then a slot is reserved for it.
        """
        self._update(self._busy, ticket, wait_s, for_all, returns)

    def _busy(self, ticket: Ticket, wait_s: float, for_all: bool, returns: bool) -> None:
        state = self._end(ticket)
        if state is None:
            return
        now = self._clock()
        state.congested, state.probing, state.busy_at = True, False, now
        state.served_at_once = max(1, state.in_flight)
        state.window = float(state.served_at_once)
        ticket.rejected = True
        if for_all or state.in_flight == 0:
            state.hold_until = max(state.hold_until, now + wait_s)
        if returns:
            ticket.due = now + wait_s
            state.waiting.expect(ticket)

    def limited(self, ticket: Ticket, wait_s: float, *, returns: bool = False) -> None:
        """Record that a call was rejected by a rate limit: all calls of the limit wait.

        Args:
            ticket: The ticket of the call.
            wait_s: Seconds to wait.
            returns: Whether the call is sent again; then a request of the next minute is reserved for it.
        """
        self._update(self._limited, ticket, wait_s, returns)

    def _limited(self, ticket: Ticket, wait_s: float, returns: bool) -> None:
        self._end(ticket)
        now = self._clock()
        minute = self._minutes.get(ticket.scope) or self._new_minute(ticket.scope, now)
        minute.limited_until = now + _FORGET_S
        minute.hold_until = max(minute.hold_until, now + wait_s)
        if returns:
            ticket.due = now + wait_s
            minute.waiting.expect(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Record that a call ended without an answer: cancelled, or failed before it was sent."""
        self._update(self._leave, ticket)

    def _leave(self, ticket: Ticket) -> None:
        self._end(ticket)
        if state := self._models.get(ticket.model):
            state.waiting.remove(ticket)
        for scope in (ticket.scope, ticket.task):  # the caller's own limit always counts per task
            if minute := self._minutes.get(scope):
                minute.waiting.remove(ticket)

    def _end(self, ticket: Ticket) -> _ModelState | None:
        if not ticket.in_flight:
            return None
        ticket.in_flight = False
        state = self._models.get(ticket.model)
        if state is not None:  # None in a child process, which starts with new states
            state.requests.pop(ticket, None)
            state.changed_at = self._clock()
        return state


class Limiter:
    """A limiter for the requests of an account. It sends fewer requests after a rejection (3040, 3021).

    Share one between clients by passing it as ``limiter=``. By default, all objects of an account share one.
    """

    def __init__(self) -> None:
        self._of_account = AccountLimiter()


def _forget(known: dict[str, _ModelState] | dict[str, _MinuteState], now: float) -> None:
    for name in [name for name, one in known.items() if one.is_unused(now)]:
        del known[name]


_limiters: dict[tuple[str, str], AccountLimiter | weakref.ref[AccountLimiter]] = {}
"""Limiters by URL and account. A limiter that has not been used for a while is referenced weakly."""


def limiter_for(base_url: str, account_id: str) -> AccountLimiter:
    """Return the limiter that every object of this process with this URL and account shares."""
    # Without a lock: each operation on the dict is atomic.
    for other, limiter in list(_limiters.items()):
        if not isinstance(limiter, weakref.ref):
            if limiter.now() - limiter.used_at > _FORGET_S:
                _limiters[other] = weakref.ref(limiter)
        elif limiter() is None:
            _limiters.pop(other, None)
    key = (base_url, account_id)
    known = _limiters.get(key)
    if isinstance(known, weakref.ref):
        if (alive := known()) is None:
            _limiters.pop(key, None)
        else:
            _limiters[key] = alive
    found = _limiters.setdefault(key, AccountLimiter())
    return limiter_for(base_url, account_id) if isinstance(found, weakref.ref) else found
