"""Slots and the capacity queue.

A request without a free slot waits in a queue, unless it sets ``rejectIfBusy``
(https://developers.cloudflare.com/workers-ai/features/reject-if-busy/). It is not documented whether the wait has a
limit. Here, it ends with the same error after ``max_wait_s``.
"""

from __future__ import annotations

import collections
import threading
from typing import TYPE_CHECKING

from workers_ai_emulator.clock import Clock, Wait
from workers_ai_emulator.wire import ServiceError

if TYPE_CHECKING:
    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.wire import Json


class Slot:
    """A slot of a model; release it once."""

    __slots__ = ("_capacity", "_model")

    def __init__(self, capacity: Capacity, model: str) -> None:
        self._capacity: Capacity | None = capacity
        self._model = model

    def release(self) -> None:
        """Release the slot; a second call does nothing."""
        capacity, self._capacity = self._capacity, None
        if capacity is not None:
            capacity.release(self._model)


class _Waiter:
    """One request in the capacity queue. ``wait`` is its current wait."""

    __slots__ = ("granted", "model", "wait")

    def __init__(self, model: str) -> None:
        self.model = model
        self.granted = False
        self.wait: Wait | None = None


class Capacity:
    """Slots, the capacity queue, and busy periods.

    Args:
        clock: The emulator's clock.
        slots: Requests that may run at once over all models; None for no limit.
        max_wait_s: Maximum wait in seconds. After it, the request fails with 3040.
    """

    def __init__(self, clock: Clock, slots: int | None = None, max_wait_s: float = 60.0) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slots = slots
        self.max_wait_s = max_wait_s
        self._model_slots: dict[str, int] = {}
        self._busy_until: dict[str | None, float] = {}
        self._in_work: collections.Counter[str] = collections.Counter()
        self._waiting: collections.deque[_Waiter] = collections.deque()
        self.peak = 0

    @property
    def slots(self) -> int | None:
        """Return the number of requests that may run at once; None for no limit. It can be set at any time."""
        return self._slots

    @slots.setter
    def slots(self, value: int | None) -> None:
        with self._lock:
            self._slots = value
        self._grant_slots()

    @property
    def in_work(self) -> int:
        """Return the number of running requests."""
        return self._in_work.total()

    @property
    def waiting(self) -> int:
        """Return the number of requests in the capacity queue."""
        return len(self._waiting)

    def set_model_slots(self, model: str, slots: int | None) -> None:
        """Set the number of slots of one model; None removes the limit."""
        with self._lock:
            if slots is None:
                self._model_slots.pop(model, None)
            else:
                self._model_slots[model] = slots
        self._grant_slots()

    def busy_for(self, seconds: float, model: str | None = None) -> None:
        """Accept no new requests for ``seconds``, for one model or for all."""
        with self._lock:
            self._busy_until[model] = self._clock.now() + seconds

    def enter(self, model: str, *, reject_if_busy: bool) -> Flow[Slot]:
        """Take a slot. Wait for a free slot unless ``reject_if_busy`` is set.

        Raises:
            ServiceError: 3040, at once with ``reject_if_busy``, else after ``max_wait_s``.
        """
        with self._lock:
            if not self._waiting_for(model) and self._has_room(model):
                return self._take(model)
            if reject_if_busy:
                raise _busy()
            waiter = _Waiter(model)
            self._waiting.append(waiter)
        deadline = self._clock.now() + self.max_wait_s
        granted = False
        try:
            while (wait := self._next_wait(waiter, deadline)) is not None:
                yield wait
                self._grant_slots()
            granted = waiter.granted
        finally:
            if not granted:
                self._leave_queue(waiter)
        if not granted:
            raise _busy()
        return Slot(self, model)

    def release(self, model: str) -> None:
        """Release a slot of a model; called by :class:`Slot`."""
        with self._lock:
            self._in_work[model] -= 1
        self._grant_slots()

    def snapshot(self) -> Json:
        """Return the current state as plain data."""
        with self._lock:
            return {
                "slots": self._slots,
                "max_wait_s": self.max_wait_s,
                "model_slots": dict(self._model_slots),
                "in_work": self._in_work.total(),
                "waiting": len(self._waiting),
                "peak": self.peak,
            }

    def _take(self, model: str) -> Slot:
        self._in_work[model] += 1
        self.peak = max(self.peak, self._in_work.total())
        return Slot(self, model)

    def _waiting_for(self, model: str) -> bool:
        return any(waiter.model == model for waiter in self._waiting)

    def _has_room(self, model: str) -> bool:
        now = self._clock.now()
        if any(self._busy_until.get(key, 0.0) > now for key in (None, model)):
            return False
        if self._slots is not None and self._in_work.total() >= self._slots:
            return False
        own = self._model_slots.get(model)
        return own is None or self._in_work[model] < own

    def _next_wait(self, waiter: _Waiter, deadline: float) -> Wait | None:
        """Return the wait for a slot, the end of a busy period or the deadline; None after the deadline."""
        with self._lock:
            now = self._clock.now()
            if waiter.granted or now >= deadline:
                return None
            times = [self._busy_until.get(key, 0.0) for key in (None, waiter.model)]
            opening = max((moment for moment in times if moment > now), default=deadline)
            waiter.wait = Wait(min(deadline, opening), resource=True)
            return waiter.wait

    def _grant_slots(self) -> None:
        granted: list[_Waiter] = []
        with self._lock:
            kept: collections.deque[_Waiter] = collections.deque()
            for waiter in self._waiting:
                if self._has_room(waiter.model):
                    self._take(waiter.model)
                    waiter.granted = True
                    granted.append(waiter)
                else:
                    kept.append(waiter)
            self._waiting = kept
        for waiter in granted:
            if waiter.wait is not None:
                waiter.wait.set()

    def _leave_queue(self, waiter: _Waiter) -> None:
        with self._lock:
            if not waiter.granted:
                self._waiting.remove(waiter)
                return
        self.release(waiter.model)


def _busy() -> ServiceError:
    return ServiceError(429, 3040, "Capacity temporarily exceeded, please try again.")
