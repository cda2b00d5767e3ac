"""How much the service takes at once, and what becomes of the rest.

A request that finds no slot waits in a queue, unless it asked to be rejected
(https://developers.cloudflare.com/workers-ai/features/reject-if-busy/). Whether the wait has a limit is not
documented; here it ends in the same error after ``max_wait_s``.
"""

from __future__ import annotations

import collections
import threading
from typing import TYPE_CHECKING, Any

from workers_ai_emulator.clock import Clock, Wait
from workers_ai_emulator.wire import ServiceError

if TYPE_CHECKING:
    from workers_ai_emulator.flow import Flow


class Slot:
    """A place at the model; give it back once."""

    __slots__ = ("_capacity", "_model")

    def __init__(self, capacity: Capacity, model: str) -> None:
        self._capacity: Capacity | None = capacity
        self._model = model

    def release(self) -> None:
        """Give the place back; a second call does nothing."""
        capacity, self._capacity = self._capacity, None
        if capacity is not None:
            capacity.free(self._model)


class _Place:
    """One place in the queue; ``wait`` is what its request waits on at the moment."""

    __slots__ = ("granted", "model", "wait")

    def __init__(self, model: str) -> None:
        self.model = model
        self.granted = False
        self.wait: Wait | None = None


class Capacity:
    """Slots, the queue in front of them, and times at which nothing is free.

    Args:
        clock: The emulator's clock.
        slots: Requests in work at once over all models; None for any number.
        max_wait_s: Seconds after which a waiting request is refused with 3040.
    """

    def __init__(self, clock: Clock, slots: int | None = None, max_wait_s: float = 60.0) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slots = slots
        self.max_wait_s = max_wait_s
        self._model_slots: dict[str, int] = {}
        self._busy_until: dict[str | None, float] = {}
        self._in_work: collections.Counter[str] = collections.Counter()
        self._waiting: collections.deque[_Place] = collections.deque()
        self.peak = 0

    @property
    def slots(self) -> int | None:
        """Requests in work at once over all models; None for any number. May be set at any time."""
        return self._slots

    @slots.setter
    def slots(self, value: int | None) -> None:
        with self._lock:
            self._slots = value
        self._hand_out()

    @property
    def in_work(self) -> int:
        """Requests in work now."""
        return self._in_work.total()

    @property
    def waiting(self) -> int:
        """Requests in the capacity queue now."""
        return len(self._waiting)

    def set_model_slots(self, model: str, slots: int | None) -> None:
        """Give one model its own number of slots; None lifts it."""
        with self._lock:
            if slots is None:
                self._model_slots.pop(model, None)
            else:
                self._model_slots[model] = slots
        self._hand_out()

    def busy_for(self, seconds: float, model: str | None = None) -> None:
        """Take nothing new for so many seconds, in one model or in all."""
        with self._lock:
            self._busy_until[model] = self._clock.now() + seconds

    def enter(self, model: str, *, reject_if_busy: bool) -> Flow[Slot]:
        """Take a slot, waiting for one unless told not to.

        Raises:
            ServiceError: 3040, at once with ``reject_if_busy``, else after ``max_wait_s``.
        """
        with self._lock:
            if not self._waiting_for(model) and self._has_room(model):
                return self._take(model)
            if reject_if_busy:
                raise _busy()
            place = _Place(model)
            self._waiting.append(place)
        deadline = self._clock.now() + self.max_wait_s
        served = False
        try:
            while (wait := self._next_wait(place, deadline)) is not None:
                yield wait
                self._hand_out()
            served = place.granted
        finally:
            if not served:
                self._give_up(place)
        if not served:
            raise _busy()
        return Slot(self, model)

    def free(self, model: str) -> None:
        """A request left; called by its slot."""
        with self._lock:
            self._in_work[model] -= 1
        self._hand_out()

    def snapshot(self) -> dict[str, Any]:
        """The present state as plain data."""
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
        return any(place.model == model for place in self._waiting)

    def _has_room(self, model: str) -> bool:
        now = self._clock.now()
        if any(self._busy_until.get(key, 0.0) > now for key in (None, model)):
            return False
        if self._slots is not None and self._in_work.total() >= self._slots:
            return False
        own = self._model_slots.get(model)
        return own is None or self._in_work[model] < own

    def _next_wait(self, place: _Place, deadline: float) -> Wait | None:
        """What the request waits on next: a free slot, the end of a busy time, its deadline; None at the end."""
        with self._lock:
            now = self._clock.now()
            if place.granted or now >= deadline:
                return None
            times = [self._busy_until.get(key, 0.0) for key in (None, place.model)]
            opening = max((moment for moment in times if moment > now), default=deadline)
            place.wait = Wait(min(deadline, opening), resource=True)
            return place.wait

    def _hand_out(self) -> None:
        granted: list[_Place] = []
        with self._lock:
            kept: collections.deque[_Place] = collections.deque()
            for place in self._waiting:
                if self._has_room(place.model):
                    self._take(place.model)
                    place.granted = True
                    granted.append(place)
                else:
                    kept.append(place)
            self._waiting = kept
        for place in granted:
            if place.wait is not None:
                place.wait.set()

    def _give_up(self, place: _Place) -> None:
        with self._lock:
            if not place.granted:
                self._waiting.remove(place)
                return
        self.free(place.model)


def _busy() -> ServiceError:
    return ServiceError(429, 3040, "Capacity temporarily exceeded, please try again.")
