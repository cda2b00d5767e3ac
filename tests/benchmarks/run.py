"""Run all benchmarks and write docs/benchmarks.md and its plots.

uv run --group rivals python tests/benchmarks/run.py           # about ten minutes
uv run --group rivals python tests/benchmarks/run.py --whole   # generation and ingestion at full size; an hour
"""

from __future__ import annotations

import argparse
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import bench_clients
import bench_generation
import bench_ingest
import bench_langchain
import bench_llama_index
import plots
from measure import Figure, figures

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS: Final = Path(__file__).parents[2] / "docs"
PACKAGES: Final = (
    "langchain-core", "langchain-cloudflare", "langchain-openai", "llama-index-core", "llama-index-llms-openai-like",
    "llama-index-embeddings-cloudflare-workersai", "openai", "cloudflare", "httpx",
)  # fmt: skip
FASTER: Final = 0.98
"""Another package is first if its figure is below this share of this project's."""

PAGE: Final = """\
# Benchmarks

CPU and wall time of this project, compared with other packages and with raw httpx. All packages send the same requests
to a local server with canned replies, so that only the client is measured. A real call spends most of its time at the
service.

- Measured on {date}, on a shared machine with {cores} cores, Python {python}.
- The runs of all packages alternate. A figure is the median, in CPU time unless the title has "wall time".
- `ratio` is the figure divided by the floor of its table, from the same run. Lower is better.
- Versions: {versions}.

Run it yourself (ten minutes; `--whole` takes an hour):

```console
uv run --group rivals python tests/benchmarks/run.py
```

![CPU and wall time of calls, this project and other packages](images/benchmarks-calls.svg)

## Where this project is not first

{behind}

Ingestion and generation store every input and every result in a ledger on disk. Raw httpx stores nothing, so it is
faster there. The rates are measured with the emulator. A second rate of generation is measured with canned answers,
which take the server almost no time, so that it shows only the cost of the client. A real queue takes far longer than
both.

{tables}
## Growth with size

![Cost by size of the input](images/benchmarks-growth.svg)

{growth}"""


def behind(all_figures: Sequence[Figure]) -> str:
    """Return the list of sections in which another package is faster."""
    lines = []
    for title, group in groupby(all_figures, key=lambda figure: figure.section):
        found = [figure for figure in group if figure.unit in ("ms", "us", "s")]
        ours, other = (
            min((figure for figure in found if figure.kind == kind), key=lambda figure: figure.value, default=None)
            for kind in ("ours", "other")
        )
        if ours is not None and other is not None and other.value < FASTER * ours.value:
            lines.append(
                f"- {title}: {other.name} needs {number(other.value)} {other.unit}, "
                f"{ours.name} {number(ours.value)} {ours.unit}."
            )
    return "\n".join(lines) or "In every table below, a class of this project is first among the packages."


def number(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(title: str, rows: Sequence[Figure]) -> str:
    """Return one section as a Markdown table. This project's rows are bold."""
    lines = [f"### {title}\n", "| | value | ratio |", "|---|---:|---:|"]
    for figure in rows:
        name = f"**{figure.name}**" if figure.kind == "ours" else figure.name
        if figure.size is not None and str(figure.size) not in title.replace(",", ""):
            name = f"{name}, {figure.size:,}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        lines.append(f"| {name} | {number(figure.value)} {figure.unit} | {ratio} |")
    return "\n".join(lines) + "\n"


def tables(all_figures: Sequence[Figure], *, growth: bool) -> str:
    """Return the tables of all sections: those of growth, or the others."""
    chosen = [figure for figure in all_figures if figure.section.startswith("Growth") == growth]
    parts = []
    topics = groupby(chosen, key=lambda figure: figure.section.partition(":")[0])
    for topic, of_topic in topics:
        if not growth:
            parts.append(f"## {topic}\n")
        for title, rows in groupby(of_topic, key=lambda figure: figure.section):
            parts.append(table(title.partition(": ")[2], list(rows)))
    return "\n".join(parts)


def versions() -> str:
    """Return the versions of the packages that are installed."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def measure(*, whole: bool) -> None:
    """Run all benchmarks."""
    bench_clients.main()
    bench_langchain.main()
    bench_llama_index.main()
    for count in (2_000, 20_000, 100_000) if whole else (2_000, 20_000):
        bench_generation.sizes(count)
    bench_generation.langchain(10_000 if whole else 5_000)
    bench_generation.second_run(1_000_000 if whole else 50_000)
    bench_generation.kills(20 if whole else 5, 20_000 if whole else 1_000)
    bench_generation.limits(20_000 if whole else 5_000)
    bench_generation.two_processes(20_000 if whole else 5_000)
    bench_ingest.sizes([20_000, 100_000, 1_000_000] if whole else [5_000, 20_000], polls=1)
    bench_ingest.kills(20 if whole else 5, 20_000 if whole else 2_000)


def write() -> None:
    """Write the page and its plots."""
    (DOCS / "images").mkdir(exist_ok=True)
    plots.calls(figures, DOCS / "images" / "benchmarks-calls.svg")
    plots.growth(figures, DOCS / "images" / "benchmarks-growth.svg")
    text = PAGE.format(
        date=f"{datetime.now(UTC):%-d %B %Y}",
        cores=os.cpu_count(),
        python=platform.python_version(),
        versions=versions(),
        behind=behind(figures),
        tables=tables(figures, growth=False),
        growth=tables(figures, growth=True),
    )
    (DOCS / "benchmarks.md").write_text(text, encoding="utf-8")


def main() -> None:
    """Run the benchmarks and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true", help="generation and ingestion at full size; takes an hour")
    options = parser.parse_args()
    measure(whole=options.whole)
    write()


if __name__ == "__main__":
    main()
