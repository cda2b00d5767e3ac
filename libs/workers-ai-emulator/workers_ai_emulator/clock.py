"""Time as the emulator sees it, and the one thing a request can do with it: wait."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

ClockMode = Literal["real", "jump", "manual"]

_JUMP_GRACE_S = 0.05


class Wait:
    """One wait of one request: over when it is set, or when the clock reaches ``until``.

    Args:
        until: Clock time in seconds at which the wait is over by itself; None for never.
        resource: True when another request may end the wait (a slot that becomes free).
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
        """Whether somebody ended the wait."""
        return self._event.is_set()

    def set(self) -> None:
        """End the wait, from any thread."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_set(self, callback: Callable[[], None]) -> None:
        """Call back when the wait is ended; at once when it already is."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def block(self, timeout_s: float | None) -> bool:
        """Block this thread until the wait is ended or ``timeout_s`` real seconds passed."""
        return self._event.wait(timeout_s)


class Clock:
    """The emulator's clock.

    Args:
        mode: ``"real"``: time passes by itself and :meth:`advance` adds to it. ``"jump"``: time stands still,
            and whoever waits makes it jump to the end of the wait, so that nothing ever sleeps. ``"manual"``:
            time moves only by :meth:`advance`, and waiting requests stay until it does.
        start: Clock time at the beginning, in seconds since the epoch; None for now.
    """

    def __init__(self, mode: ClockMode = "real", *, start: float | None = None) -> None:
        self.mode: ClockMode = mode
        self._start = time.time() if start is None else start
        self._born = time.monotonic()
        self._offset = 0.0
        self._lock = threading.Lock()
        self._waiting: set[Wait] = set()

    def now(self) -> float:
        """Seconds since the epoch, as the emulator sees them."""
        elapsed = time.monotonic() - self._born if self.mode == "real" else 0.0
        return self._start + elapsed + self._offset

    def advance(self, seconds: float) -> None:
        """Move time forward and end every wait that is over by then."""
        with self._lock:
            self._offset += seconds
        self._wake()

    def reach(self, moment: float) -> None:
        """Move time forward to ``moment``; does nothing when it has passed."""
        with self._lock:
            self._offset += max(0.0, moment - self.now())
        self._wake()

    def pause(self, seconds: float) -> Wait:
        """A wait of so many seconds from now."""
        return Wait(self.now() + seconds)

    def timeout_s(self, wait: Wait) -> float | None:
        """How long, in real seconds, a driver may block on ``wait`` before it looks again; None for ever."""
        if self.mode == "manual":
            return None if wait.until is None or wait.until > self.now() else 0.0
        if self.mode == "jump":
            return _JUMP_GRACE_S if wait.resource else 0.0
        return None if wait.until is None else max(0.0, wait.until - self.now())

    def enter(self, wait: Wait) -> None:
        """Take part in :meth:`advance` while waiting."""
        with self._lock:
            self._waiting.add(wait)

    def leave(self, wait: Wait) -> None:
        """The wait is over; in ``"jump"`` mode the clock then stands at its end."""
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
