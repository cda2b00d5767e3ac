"""The attempts of one call: slots, waits, retries, and their bounds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from workers_ai._flow.steps import Flow, Sleep, Turn
from workers_ai._limits.gate import Gate
from workers_ai._limits.limiter import REQUESTS_PER_MINUTE
from workers_ai._limits.tickets import Ticket
from workers_ai._wire.batch_worker import is_submission
from workers_ai.catalogue import lookup
from workers_ai.errors import APITimeoutError, CapacityError, RateLimitError, WorkersAIError
from workers_ai.retry import RetryEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai._limits.limiter import AccountLimiter
    from workers_ai._settings.settings import Settings
    from workers_ai._validation import OnBusy
    from workers_ai._wire.request import Request
    from workers_ai.retry import RetryPolicy

__all__ = ["Attempts"]

_log = logging.getLogger("workers_ai")


class CallState(Protocol):
    """The attributes of :class:`~workers_ai._calls.requests.Calls` that :class:`Attempts` uses."""

    @property
    def settings(self) -> Settings: ...
    @property
    def limiter(self) -> AccountLimiter: ...
    @property
    def policy(self) -> RetryPolicy: ...
    @property
    def on_retry(self) -> Callable[[RetryEvent], None] | None: ...
    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def gate(self) -> Gate | None: ...
    @property
    def paced(self) -> bool: ...
    @property
    def ends(self) -> float | None: ...

    def leave_gate(self, ticket: Ticket) -> None:
        """Release the slot of a call in the gate of its object."""
        ...


class Attempts:
    """The attempts of one call: the waits before each, and their bounds.

    Args:
        calls: The flows of the client.
        request: The request.
        on_busy: What to do when the service is at capacity.

    Attributes:
        ticket: The ticket of the call in the limiter and the gate.
        made: Number of attempts so far.
    """

    def __init__(self, calls: CallState, request: Request, on_busy: OnBusy) -> None:
        self._calls = calls
        self._request = request
        self._on_busy = on_busy
        may_wait = on_busy != "raise" and calls.policy.max_retries > 0
        if request.task == "queue" and not is_submission(request):
            # A public recording has 231 polls at 58 a minute on an account with 20 requests a minute.
            self.ticket = Ticket(f"polls of {request.model}", "poll", may_wait=may_wait)
        else:
            self.ticket = _ticket(request, calls.settings, on_busy, may_wait=may_wait)
        self.made = 0
        self._began = calls.clock()
        total = calls.settings.total_timeout
        self._ends = self._began + total if calls.ends is None and total is not None else calls.ends
        pool = calls.settings.timeout
        self._pool_timeout_s = pool if isinstance(pool, (int, float)) else pool.pool

    def admit(self) -> Flow[None]:
        """Wait for a slot of the object, a turn at the framework's rate limiter, and a slot of the account's limiter.

        Raises:
            APITimeoutError: ``timeout`` or ``total_timeout`` does not allow the wait.
            RateLimitError: The caller's own limit per minute is reached, and ``on_busy`` is ``"raise"``.
        """
        calls, ticket, gate = self._calls, self.ticket, self._calls.gate
        turn_taken = not calls.paced
        if (left := self._left_s()) is not None and left <= 0:
            raise self._timeout(
                f"total_timeout={calls.settings.total_timeout} s ended before this request", "total_timeout"
            )
        changes, since = -1, 0.0
        while True:
            if gate is not None and (wait := gate.wait_s(ticket, calls.limiter.now() + ticket.ahead)):
                if changes != gate.changes:
                    changes, since = gate.changes, calls.clock()
                self._check_gate(gate, calls.clock() - since)
                yield from self._wait(wait, f"for a slot of max_concurrency={gate.limit}")
                continue
            if not turn_taken:
                yield from self._turn()
                turn_taken = True
            wait = calls.limiter.wait_s(ticket, self._pool_timeout_s)
            if not wait:
                self.made += 1
                return
            if gate is not None:
                gate.step_back(ticket)
            yield from self._wait_for_limit(wait)

    def _check_gate(self, gate: Gate, unchanged_s: float) -> None:
        if self._pool_timeout_s is not None and unchanged_s > self._pool_timeout_s:
            raise self._timeout(
                f"no slot of max_concurrency={gate.limit} became free within timeout={self._pool_timeout_s:g} s: "
                "close or read the open streams of this object, or raise max_concurrency",
                "max_concurrency",
                "timeout",
            )

    def _turn(self) -> Flow[None]:
        left = self._left_s()
        bounds = [bound for bound in (left, self._pool_timeout_s) if bound is not None]
        within = max(0.0, min(bounds)) if bounds else None
        try:
            yield Turn(within)
        except TimeoutError:
            raise self._timeout(
                f"rate_limiter admitted no request within {within:g} s: raise its rate, or make fewer calls at a time",
                "rate_limiter",
            ) from None

    def _wait_for_limit(self, wait: float) -> Flow[None]:
        own = self._calls.settings.requests_per_minute
        if self._on_busy == "raise":
            raise RateLimitError(
                f"the limit requests_per_minute={own} of this client is reached: retry in {wait:.1f} s",
                model=self._request.model,
                retry_after=wait,
            )
        yield from self._wait(wait, "for the shared limiter of the account")

    def _wait(self, seconds: float, reason: str) -> Flow[None]:
        """Wait before the next attempt.

        Raises:
            APITimeoutError: ``total_timeout`` ends before the wait does.
        """
        left = self._left_s()
        if left is not None:
            if left <= 0 or seconds > max(left, 1.0):
                total = self._calls.settings.total_timeout
                raise self._timeout(
                    f"total_timeout={total} s ends before a wait of {seconds:.1f} s {reason}", "total_timeout"
                )
            seconds = min(seconds, left)
        yield from self.sleep(seconds, reason)

    def sleep(self, seconds: float, reason: str) -> Flow[None]:
        """Sleep. If ``sleep`` is patched out, credit the time to the ticket so that the call does not spin."""
        before = self._calls.clock()
        yield Sleep(seconds, reason)
        self.ticket.ahead += max(0.0, seconds - (self._calls.clock() - before))

    def _timeout(self, message: str, *arguments: str) -> APITimeoutError:
        error = APITimeoutError(message, model=self._request.model, arguments=arguments)
        error.delivered = False
        error.attempts = self.made
        return error

    def _elapsed_s(self) -> float:
        return self._calls.clock() - self._began + self.ticket.ahead

    def _left_s(self) -> float | None:
        """Return the seconds until ``total_timeout``; None for no bound."""
        return None if self._ends is None else self._ends - self._calls.clock() - self.ticket.ahead

    def bounded_request(self) -> Request:
        """Return the request with its timeout limited to the remaining ``total_timeout``."""
        left = self._left_s()
        return self._request if left is None else self._request._replace(total_s=max(left, 0.001))

    def pause(self, error: WorkersAIError, *, give_up: bool) -> float | None:
        """Return the seconds until the next attempt; None to give up. Update the limiter, the log and the callback."""
        calls, ticket = self._calls, self.ticket
        pause = None if give_up else calls.policy.wait_s(self.made, error, self._elapsed_s())
        left = self._left_s()
        if pause is not None and left is not None and pause >= left:
            pause = None
        returns = pause is not None
        # A call that gives up must not delay other calls.
        if isinstance(error, CapacityError):
            for_all = returns and error.retry_after is not None
            calls.limiter.busy(ticket, pause or 0.0, for_all=for_all, returns=returns)
        elif isinstance(error, RateLimitError) and pause is not None:
            calls.limiter.limited(ticket, pause, returns=True)
        else:
            calls.limiter.done(ticket)
        calls.leave_gate(ticket)
        if pause is not None:
            _log.info("retrying in %.2f s (attempt %d failed): %s", pause, self.made, error)
            if calls.on_retry:
                calls.on_retry(RetryEvent(error, self.made, pause))
        return pause


def _ticket(request: Request, settings: Settings, on_busy: OnBusy, *, may_wait: bool) -> Ticket:
    """Return the ticket of a request that counts against the limits per minute."""
    limit = lookup(request.model).requests_per_minute
    own = settings.requests_per_minute
    return Ticket(
        model=f"queue of {request.model}" if request.task == "queue" else request.model,
        task=request.task,
        may_wait=may_wait,
        rejects_if_busy=on_busy == "retry",
        requests_per_minute=None if own == "documented" else own,
        model_limit=None if limit == REQUESTS_PER_MINUTE.get(request.task, limit) else limit,
        documented=own == "documented",
    )
