"""Draw the plots of the benchmarks page, readable on light and dark pages."""

from __future__ import annotations

from itertools import groupby
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from measure import Figure

COLOURS: Final = {"ours": "#f6821f", "floor": "#8a8f98", "other": "#4c8dbf"}
TEXT: Final = "#7d828a"
STYLE: Final = {
    "font.size": 9,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "svg.fonttype": "none",
    "svg.hashsalt": "benchmarks",
}
COLUMNS: Final = 2


def calls(figures: Sequence[Figure], path: Path) -> None:
    """Draw a bar chart for each section that compares packages."""
    sections = [(title, list(rows)) for title, rows in groupby(figures, key=lambda figure: figure.section)]
    compared = [(title, rows) for title, rows in sections if any(row.kind == "other" for row in rows)]
    height = 0.5 + sum(0.9 + 0.22 * len(rows) for _, rows in compared) / COLUMNS * 1.15
    with plt.rc_context(STYLE):
        grid, axes = plt.subplots(-(-len(compared) // COLUMNS), COLUMNS, figsize=(10, height), squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for axis, (title, rows) in zip(axes.flat, compared, strict=False):
            axis.set_axis_on()
            _bars(axis, title, rows)
        _save(grid, path)


def _bars(axis: Any, title: str, rows: Sequence[Figure]) -> None:
    names = [row.name.removeprefix("floor: ") for row in rows]
    bars = axis.barh(names, [row.value for row in rows], color=[COLOURS[row.kind] for row in rows])
    axis.bar_label(bars, [f"{row.value:.3g} {row.unit}" for row in rows], padding=3)
    axis.invert_yaxis()
    axis.set_title(fill(title, 44), loc="left", fontsize=9, fontweight="bold")
    axis.set_xlim(right=1.35 * max(row.value for row in rows))
    axis.xaxis.set_visible(False)
    axis.spines[["top", "right", "bottom"]].set_visible(False)


def growth(figures: Sequence[Figure], path: Path) -> None:
    """Draw the figures that have a size as lines."""
    sized = [figure for figure in figures if figure.size is not None]
    panels = {
        "ChatWorkersAI: CPU per call by messages (ms)": [row for row in sized if row.unit == "ms"],
        "Generation: CPU per input by inputs (us)": [row for row in sized if row.name.endswith("CPU per input")],
        "Ingestion: CPU per text by texts (us)": [row for row in sized if row.name.endswith("CPU per text")],
        "Peak memory by inputs, over the imports (MB)": [row for row in sized if row.unit == "MB"],
    }
    with plt.rc_context(STYLE):
        grid, axes = plt.subplots(len(panels) // COLUMNS, COLUMNS, figsize=(10, 6.5))
        for axis, (title, rows) in zip(axes.flat, panels.items(), strict=True):
            _lines(axis, title, rows)
        _save(grid, path)


def _lines(axis: Any, title: str, rows: Sequence[Figure]) -> None:
    markers = iter("osD^v")
    for name in dict.fromkeys(row.name for row in rows):
        points = sorted((row.size, row.value, row.kind) for row in rows if row.name == name and row.size)
        xs, ys, kinds = zip(*points, strict=True)
        label = name.partition(":")[0] if ":" in name else name
        axis.plot(xs, ys, marker=next(markers), color=COLOURS[kinds[0]], label=label)
    axis.set_xscale("log")
    sizes = sorted({row.size for row in rows if row.size})
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.xaxis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.set_title(title, loc="left", fontsize=9, fontweight="bold")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)


def _save(grid: Any, path: Path) -> None:
    grid.tight_layout()
    grid.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})  # titles are wider than bars
    plt.close(grid)
