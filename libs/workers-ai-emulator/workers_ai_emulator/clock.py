"""The emulator's clock, and the waits of requests."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

ClockMode = Literal["real", "jump", "manual"]

_JUMP_GRACE_S = 0.05


class Wait:
    """One wait of one request. It ends when it is set, or when the clock reaches ``until``.

    Args:
        until: Clock time in seconds at which the wait ends; None for a wait without end time.
        resource: Whether another request may end the wait by releasing a slot.
    """

    __slots__ = ("_callbacks", "_event", "_lock", "resource", "until")

    def __init__(self, until: float | None, *, resource: bool = False) -> None:
        self.until = until
        self.resource = resource
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_set(self) -> bool:
        """Return whether :meth:`set` was called."""
        return self._event.is_set()

    def set(self) -> None:
        """End the wait; callable from any thread."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_set(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the wait is set; at once if it already is."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def block(self, timeout_s: float | None) -> bool:
        """Block this thread until the wait is set or ``timeout_s`` real seconds pass."""
        return self._event.wait(timeout_s)


class Clock:
    """The emulator's clock.

    Args:
        mode: ``"real"``: time passes, and :meth:`advance` adds to it. ``"jump"``: a wait moves the clock to the end
            of the wait, so that nothing sleeps. ``"manual"``: only :meth:`advance` moves the clock, and requests wait
            for it.
        start: Initial time in seconds since the epoch; None for the current time.
    """

    def __init__(self, mode: ClockMode = "real", *, start: float | None = None) -> None:
        self.mode: ClockMode = mode
        self._start = time.time() if start is None else start
        self._born = time.monotonic()
        self._offset = 0.0
        self._lock = threading.Lock()
        self._waiting: set[Wait] = set()

    def now(self) -> float:
        """Return the emulated time in seconds since the epoch."""
        elapsed = time.monotonic() - self._born if self.mode == "real" else 0.0
        return self._start + elapsed + self._offset

    def advance(self, seconds: float) -> None:
        """Move time forward by ``seconds``; end all waits that are due."""
        with self._lock:
            self._offset += seconds
        self._wake()

    def reach(self, moment: float) -> None:
        """Move time forward to ``moment``; do nothing if it has passed."""
        with self._lock:
            self._offset += max(0.0, moment - self.now())
        self._wake()

    def pause(self, seconds: float) -> Wait:
        """Return a wait that ends ``seconds`` from now."""
        return Wait(self.now() + seconds)

    def timeout_s(self, wait: Wait) -> float | None:
        """Return how long a driver may block on ``wait``, in real seconds; None for no limit."""
        if self.mode == "manual":
            return None if wait.until is None or wait.until > self.now() else 0.0
        if self.mode == "jump":
            return _JUMP_GRACE_S if wait.resource else 0.0
        return None if wait.until is None else max(0.0, wait.until - self.now())

    def enter(self, wait: Wait) -> None:
        """Register a wait, so that :meth:`advance` can end it."""
        with self._lock:
            self._waiting.add(wait)

    def leave(self, wait: Wait) -> None:
        """Remove a wait; in ``"jump"`` mode, move the clock to its end."""
        with self._lock:
            self._waiting.discard(wait)
        if self.mode == "jump" and not wait.is_set and wait.until is not None:
            self.reach(wait.until)

    def _wake(self) -> None:
        now = self.now()
        with self._lock:
            due = [wait for wait in self._waiting if wait.until is not None and wait.until <= now]
        for wait in due:
            wait.set()
