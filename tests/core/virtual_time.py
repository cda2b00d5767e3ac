"""Virtual time that passes only while all participants sleep, for threads and event loops.

Participating threads run in :meth:`VirtualTime.run`. When all of them sleep, the time jumps to the next wake-up, so an
hour of waiting takes no real time, and its length is reproducible.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from workers_ai_emulator import Clock
from workers_ai_emulator.clock import Wait

__all__ = ["EmulatorClock", "VirtualTime"]


class VirtualTime:
    """A clock and its sleep functions."""

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.Lock()
        self._awake = 0
        self._sleepers: list[tuple[float, int, threading.Event]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        """Return the seconds since the start."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Sleep for a number of virtual seconds."""
        woken = threading.Event()
        with self._lock:
            heapq.heappush(self._sleepers, (self._now + max(seconds, 0.0), next(self._numbers), woken))
            self._leave()
        woken.wait()

    def run(self, jobs: Sequence[Callable[[], Any]], *, patience_s: float = 100.0) -> list[Any]:
        """Run every job in its own thread. Return the result or the error of each.

        Args:
            jobs: Blocking functions. Use :meth:`awaiting` for coroutines.
            patience_s: Real seconds after which a job counts as hanging.
        """
        results: list[Any] = [None] * len(jobs)

        def work(index: int) -> None:
            try:
                results[index] = jobs[index]()
            except BaseException as exc:  # noqa: BLE001 - returned to the test
                results[index] = exc
            finally:
                with self._lock:
                    self._leave()

        self._awake = len(jobs)
        threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(jobs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience_s)
        assert not any(thread.is_alive() for thread in threads), "a job hangs"
        return results

    def awaiting(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], Any]:
        """Return a job that runs a coroutine on an event loop in this virtual time."""

        def job() -> Any:
            with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
                return runner.run(make())

        return job

    def _leave(self) -> None:
        """Count one awake participant less. The last one advances time."""
        self._awake -= 1
        if self._awake or not self._sleepers:
            return
        self._now = max(self._now, self._sleepers[0][0])
        while self._sleepers and self._sleepers[0][0] <= self._now:
            self._awake += 1
            heapq.heappop(self._sleepers)[2].set()


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that sleeps in virtual time."""

    def __init__(self, virtual: VirtualTime) -> None:
        super().__init__()
        self._virtual = virtual
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            ready = select(0)
            if ready or timeout == 0:
                return ready
            assert timeout is not None, "the loop waits for nothing"
            virtual.sleep(timeout)
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._virtual.now()


class EmulatorClock(Clock):
    """The emulator's clock, in virtual time."""

    def __init__(self, virtual: VirtualTime) -> None:
        super().__init__(start=1_800_000_000.0)
        self._virtual = virtual

    def now(self) -> float:
        return self._start + self._virtual.now()

    def timeout_s(self, wait: Wait) -> float | None:
        timeout = super().timeout_s(wait)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            assert timeout is not None, "the thread waits for nothing"
            self._virtual.sleep(timeout)
            return 0.0
        return timeout
