"""Virtual time for the tests of ingestion and generation: runs with several workers, sync or async."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from workers_ai import AsyncClient, Client
from workers_ai._flow import concurrency, drivers
from workers_ai._limits import limiter

_PATIENCE_S = 0.1
"""Real seconds after which time advances although a worker is busy: it may wait for something that takes time."""
_is_worker: ContextVar[bool] = ContextVar("is_worker", default=False)


class VirtualTime:
    """A clock that advances to the next wake-up when all workers of a run sleep, at any speed of the machine.

    Attributes:
        now: Seconds.
        waits: Seconds of every sleep.
        step_s: Smallest advance while several workers wait: idle workers check for work ten times a second.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []
        self.step_s = 1.5
        self._lock = threading.Lock()
        self._busy = 0
        self._sleepers: list[tuple[float, int, bool, Callable[[], Any]]] = []
        self._numbers = itertools.count()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Sleep in a thread."""
        woken = threading.Event()
        self._add(seconds, woken.set)
        while not woken.wait(_PATIENCE_S):
            self._advance()

    async def asleep(self, seconds: float) -> None:
        """Sleep in a task."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        number = self._add(seconds, partial(loop.call_soon_threadsafe, woken.set))
        patience = loop.call_later(_PATIENCE_S, self._advance)
        try:
            while not woken.is_set():
                await woken.wait()
        finally:
            patience.cancel()
            self._remove(number)

    def _add(self, seconds: float, wake: Callable[[], Any]) -> int:
        number = next(self._numbers)
        with self._lock:
            self.waits.append(seconds)
            heapq.heappush(self._sleepers, (self.now + seconds, number, _is_worker.get(), wake))
            self._busy -= _is_worker.get()
        self._advance(only_if_idle=True)
        return number

    def _remove(self, number: int) -> None:
        """Remove a cancelled sleep."""
        with self._lock:
            left = [sleeper for sleeper in self._sleepers if sleeper[1] != number]
            if len(left) < len(self._sleepers):
                self._sleepers = left
                heapq.heapify(left)
                self._busy += _is_worker.get()

    def _advance(self, *, only_if_idle: bool = False) -> None:
        with self._lock:
            if not self._sleepers or (only_if_idle and self._busy > 0):
                return
            step = self.step_s if len(self._sleepers) > 1 else 0.0
            self.now = max(self._sleepers[0][0], self.now + step)
            while self._sleepers and self._sleepers[0][0] <= self.now:
                _, _, is_worker, wake = heapq.heappop(self._sleepers)
                self._busy += is_worker
                wake()

    def _leave(self) -> None:
        with self._lock:
            self._busy -= 1
        self._advance(only_if_idle=True)

    def thread(self, target: Callable[[], None], **options: Any) -> threading.Thread:
        """Create a thread that counts as a worker from now to its end."""

        def work() -> None:
            _is_worker.set(True)
            try:
                target()
            finally:
                self._leave()

        with self._lock:
            self._busy += 1
        return threading.Thread(target=work, **options)

    async def adrive(self, *args: Any) -> Any:
        """Run a flow in a task that counts as a worker until it ends."""
        token = _is_worker.set(True)
        with self._lock:
            self._busy += 1
        try:
            return await drivers.adrive(*args)
        finally:
            _is_worker.reset(token)
            self._leave()


def virtual_time(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """Return the clock that the drivers of flows sleep on, until the test ends."""
    virtual = VirtualTime()
    monkeypatch.setattr(drivers, "time", SimpleNamespace(sleep=virtual.sleep))
    monkeypatch.setattr(anyio, "sleep", virtual.asleep)
    monkeypatch.setattr(concurrency, "Thread", virtual.thread)
    monkeypatch.setattr(concurrency, "adrive", virtual.adrive)
    monkeypatch.setattr(concurrency, "_CHECK_INTERVAL_S", 60.0)  # one sleep, not many short ones
    return virtual


def use_clock(client: Client | AsyncClient, clock: Callable[[], float]) -> None:
    """Use this clock for the calls and the limiter of a client."""
    client._connection.calls.clock = clock
    client._connection.calls.limiter = limiter.AccountLimiter(clock)
