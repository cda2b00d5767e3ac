"""Check whether the process of a run is alive, independent of clock changes."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Observer", "RunRow", "own_runs", "process_start"]

own_runs: dict[tuple[str, int], float] = {}
"""Monotonic time of the last heartbeat of each run of this process, by (resolved path of the ledger, run)."""

_SHORT: Final = 5
"""A run whose lease has passed by the clock is dead after this fraction of a lease without a heartbeat."""


class RunRow(NamedTuple):
    """A run that has not finished.

    Attributes:
        run: Its number.
        host: Host name of its process.
        pid: Process number.
        started: When the process started, as :func:`process_start` returns it; None if unknown.
        lease_until: End of its lease, in seconds since the epoch. Every heartbeat changes it.
    """

    run: int
    host: str
    pid: int
    started: str | None
    lease_until: float


def process_start(pid: int) -> str | None:
    """Return when a process started (boot id and clock ticks); None if unknown."""
    with suppress(OSError, IndexError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # The command in parentheses may itself contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return f"{boot} {fields[19]}"
    return None


class Observer:
    """Watch the runs of one ledger.

    The clock may jump, so it is not the only criterion. Runs of this process record their heartbeats by monotonic time.
    A run of another process is dead if its process is gone, or if its heartbeat did not change for a whole lease of
    this process's monotonic time. For a run of another host a fifth of a lease is enough if its lease has also expired
    by the clock.

    Args:
        path: Resolved path of the ledger.
        lease_s: Seconds of a lease.
        clock: Function that returns the seconds since the epoch.
        monotonic: Function that returns a monotonic time in seconds.
        take_over: Whether to treat runs of other hosts as dead at once.
    """

    def __init__(
        self,
        path: str,
        lease_s: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        *,
        take_over: bool = False,
    ) -> None:
        self._path = path
        self._lease_s = lease_s
        self._clock = clock
        self._monotonic = monotonic
        self._take_over = take_over
        self._seen: dict[int, tuple[float, float]] = {}

    def beat(self, run: int) -> None:
        """Record a heartbeat of a run of this process."""
        own_runs[self._path, run] = self._monotonic()

    def ended(self, run: int) -> None:
        """Forget a run of this process."""
        own_runs.pop((self._path, run), None)

    def is_own(self, row: RunRow) -> bool:
        """Return whether a run belongs to this process and has not ended."""
        return row.pid == os.getpid() and (self._path, row.run) in own_runs

    def dead_in(self, row: RunRow) -> float:
        """Return the seconds until a run without a new heartbeat counts as dead; 0 or less for a dead run."""
        if self.is_own(row):
            return own_runs[self._path, row.run] + self._lease_s - self._monotonic()
        process = self._process(row)
        if process == "gone" or (process == "foreign" and self._take_over):
            return 0.0
        now = self._monotonic()
        beat, since = self._seen.get(row.run, (None, now))
        if beat != row.lease_until:
            since = now
            self._seen[row.run] = row.lease_until, now
        left = since + self._lease_s - now
        if process == "foreign":
            left = min(left, max(row.lease_until - self._clock(), since + self._lease_s / _SHORT - now))
        return left

    def _process(self, row: RunRow) -> Literal["gone", "here", "foreign"]:
        if row.host != platform.node():
            return "foreign"
        if row.pid == os.getpid():
            return "gone"  # not among our own runs
        if os.name != "posix":
            return "foreign"
        try:
            os.kill(row.pid, 0)
        except ProcessLookupError:
            return "gone"
        except PermissionError:
            pass
        started = process_start(row.pid)
        return "gone" if started and row.started and started != row.started else "here"
