"""Measure alternately, so that a drift of the machine affects all equally. Print and keep the figures."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

ROUNDS = 7
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Environment of measured processes: modules are compiled once, as after an installation."""

Kind: TypeAlias = Literal["floor", "ours", "other"]


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        section: Title of its section.
        name: What was measured.
        value: The value.
        unit: Its unit.
        ratio: Ratio to the floor of the section, or None.
        kind: A floor, this project, or another package.
        size: Size of the input, for figures that show growth.
    """

    section: str
    name: str
    value: float
    unit: str
    ratio: float | None
    kind: Kind
    size: int | None


OURS = frozenset(
    {"ChatWorkersAI", "WorkersAIEmbeddings", "WorkersAIRerank", "WorkersAI", "WorkersAIEmbedding", "Client"}
)
"""Classes of this project."""

figures: list[Figure] = []
"""All figures of this process."""

_titles = [""]


def section(title: str) -> None:
    """Begin a section."""
    print(title)
    _titles.append(title)


def show(
    name: str,
    value: float,
    unit: str,
    ratio: float | None = None,
    *,
    kind: Kind = "ours",
    size: int | None = None,
) -> None:
    """Print and keep one figure, with its ratio to the floor of the same run."""
    print(f"  {name:<44} {value:9.3f} {unit:<10}" + (f"  x {ratio:.3f}" if ratio is not None else ""))
    figures.append(Figure(_titles[-1], name, value, unit, ratio, kind, size))


def show_against(found: dict[str, float], unit: str, *, floor: float | None, scale: float = 1.0) -> None:
    """Show one figure for each package."""
    for name, value in found.items():
        kind: Kind = "ours" if name in OURS else "other"
        show(name, value * scale, unit, None if floor is None else value / floor, kind=kind)


def cpu_ms(work: Callable[[], object], times: int) -> float:
    """Return the CPU milliseconds of one piece of work."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) * 1000 / times


async def acpu_ms(work: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the CPU milliseconds of one piece of asynchronous work."""
    began = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - began) * 1000 / times


def interleaved(works: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Return the median CPU milliseconds of each, measured in turn so that a drift affects all equally."""
    for work in works.values():
        cpu_ms(work, max(1, times // 4))
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            samples[name].append(cpu_ms(work, times))
    return {name: statistics.median(values) for name, values in samples.items()}


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # ``ru_maxrss`` starts with the memory of the parent process
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def import_ms(base: str, more: str) -> float:
    """Return the median CPU milliseconds of the import ``more`` in a new process that has run ``base``."""
    command = f"import time; {base}; began = time.process_time(); {more}; print(time.process_time() - began)"
    runs = [
        float(
            subprocess.run(
                [sys.executable, "-c", command], capture_output=True, text=True, check=True, env=ENVIRONMENT
            ).stdout
        )
        for _ in range(ROUNDS)
    ]
    return statistics.median(runs) * 1000
