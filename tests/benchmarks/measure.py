"""Measurements: alternating, so that a drift of the machine affects all equally; printed as ratios."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

ROUNDS = 7


def show(name: str, value: float, unit: str, ratio: float | None = None) -> None:
    """Print one figure, with its ratio to the floor of the same run."""
    print(f"  {name:<44} {value:9.3f} {unit:<10}" + (f"  x {ratio:.3f}" if ratio is not None else ""))


def cpu_ms(work: Callable[[], object], times: int) -> float:
    """CPU milliseconds of one piece of work."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) * 1000 / times


async def acpu_ms(work: Callable[[], Awaitable[object]], times: int) -> float:
    """CPU milliseconds of one piece of asynchronous work."""
    began = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - began) * 1000 / times


def interleaved(works: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Median CPU milliseconds of each, measured in turn so that a drift of the machine meets all alike."""
    for work in works.values():
        cpu_ms(work, max(1, times // 4))
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            samples[name].append(cpu_ms(work, times))
    return {name: statistics.median(values) for name, values in samples.items()}


def import_ms(base: str, more: str) -> float:
    """Median wall milliseconds of the import statement ``more`` in a new process that has run ``base``."""
    command = f"import time; {base}; began = time.perf_counter(); {more}; print(time.perf_counter() - began)"
    # As after an installation: with compiled modules.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    runs = [
        float(
            subprocess.run(
                [sys.executable, "-c", command], capture_output=True, text=True, check=True, env=environment
            ).stdout
        )
        for _ in range(ROUNDS)
    ]
    return statistics.median(runs) * 1000
