"""What an ingestion tells while it runs, and at its end."""

from __future__ import annotations

import html
import sys
import time
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from workers_ai.catalogue import USD_PER_NEURON, lookup
from workers_ai.ledger._file import LedgerFile
from workers_ai.ledger._records import Failure, Row

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Bar", "IngestReport", "LineBar", "NoBar", "Tally", "progress_bar"]

_TICK_S: Final = 1.0
_LINE_S: Final = 30.0


@dataclass
class Tally:
    """Running numbers of one ingestion.

    Attributes:
        model: Model id.
        documents: Documents taken from the source.
        embedded: Texts embedded in this run.
        reused: Documents whose vector was there, or is that of another document of the run.
        failed: Texts given up.
        jobs: Submissions (or direct requests) in flight.
        retries: Submissions and requests that were tried again, whole or in part.
        tokens: Tokens of what was embedded: as the service counted them, else estimated.
        neurons: Neurons of the same, as the service counted them, else by list price; None where no price is known.
        truncated: Documents whose text is probably longer than the model reads.
        waits_for: Host and process of the silent run whose texts this one waits for, and the seconds until they are
            taken over; None if it waits for no other run.
    """

    model: str
    documents: int = 0
    embedded: int = 0
    reused: int = 0
    failed: int = 0
    jobs: int = 0
    retries: int = 0
    tokens: int = 0
    neurons: float | None = 0.0
    truncated: int = 0
    waits_for: tuple[str, int, float] | None = None

    @property
    def cost_usd(self) -> float | None:
        """Price of ``neurons`` in USD; free allocations are not counted off."""
        return None if self.neurons is None else self.neurons * USD_PER_NEURON

    def charge(self, tokens: int, neurons: float | None) -> None:
        """Count what one submission has cost."""
        self.tokens += tokens
        if neurons is None:
            neurons = neurons_of(self.model, tokens)
        self.neurons = None if neurons is None or self.neurons is None else self.neurons + neurons


def neurons_of(model: str, tokens: int) -> float | None:
    """Neurons of so many input tokens by list price; None where the catalogue has no price."""
    cost = lookup(model).cost_usd(tokens)
    return None if cost is None else cost / USD_PER_NEURON


class Bar(Protocol):
    """Shows progress."""

    def show(self, tally: Tally) -> None:
        """Show the present numbers."""
        ...

    def tick(self, tally: Tally) -> None:
        """Note that time passes: nothing has changed."""
        ...

    def close(self) -> None:
        """Leave the last state on the screen."""
        ...


class TqdmBar:
    """A tqdm bar: documents, submissions in flight, retries, neurons and cost. Its clock goes on while jobs wait."""

    def __init__(self, total: int | None) -> None:
        from tqdm.auto import tqdm

        self._ticked = time.monotonic()
        self._bar: Any = tqdm(total=total, unit=" texts", desc="embedding", dynamic_ncols=True, mininterval=0.2)

    def show(self, tally: Tally) -> None:
        """Move the bar."""
        self._bar.set_postfix_str(_postfix(tally), refresh=False)
        self._bar.update(tally.embedded + tally.reused + tally.failed - self._bar.n)

    def tick(self, tally: Tally) -> None:
        """Draw the bar anew, once a second."""
        if time.monotonic() - self._ticked >= _TICK_S:
            self._ticked = time.monotonic()
            self._bar.refresh()

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()


class LineBar:
    """Lines on stderr, for a log or a file, where a bar would leave thousands: one every half minute, one at the end.

    Args:
        total: Number of documents, or None.
        last: Whether there is a line at the end of a run that was too short for any other.
    """

    def __init__(self, total: int | None, *, last: bool = True) -> None:
        self._total = total
        self._last = last
        self._line = ""
        self._shown = time.monotonic()

    def show(self, tally: Tally) -> None:
        """Write a line if the last one is old enough."""
        done = tally.embedded + tally.reused + tally.failed
        of = f"/{self._total:,} ({100 * done // max(1, self._total)}%)" if self._total is not None else ""
        self._line = f"embedding: {done:,}{of} texts, {_postfix(tally)}"
        if time.monotonic() - self._shown >= _LINE_S:
            self._shown, self._last = time.monotonic(), True
            sys.stderr.write(f"{self._line}\n")

    def tick(self, tally: Tally) -> None:
        """Write a line if the last one is old enough."""
        if time.monotonic() - self._shown >= _LINE_S:
            self.show(tally)

    def close(self) -> None:
        """Write the last line."""
        if self._last and self._line:
            sys.stderr.write(f"{self._line}\n")


class NoBar:
    """Shows nothing."""

    def show(self, tally: Tally) -> None:
        """Nothing."""

    def tick(self, tally: Tally) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def progress_bar(total: int | None) -> Bar:
    """Return a bar for a terminal or a notebook, and lines for redirected output."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    is_interactive = is_terminal or "ipykernel" in sys.modules
    return TqdmBar(total) if is_interactive and find_spec("tqdm") else LineBar(total)


def _postfix(tally: Tally) -> str:
    parts = [f"jobs {tally.jobs}", f"retries {tally.retries}"]
    if tally.failed:
        parts.append(f"failed {tally.failed}")
    if tally.waits_for is not None:
        host, pid, seconds = tally.waits_for
        parts.append(f"waiting for process {pid} on {host}, taken over in {seconds / 60:.0f} min if it stays silent")
    if tally.neurons is not None:
        parts += [f"neurons {tally.neurons:,.0f}", f"${tally.cost_usd:.4f}"]
    return ", ".join(parts)


@dataclass(frozen=True)
class IngestReport:
    """What came of one ingestion. ``embedded + reused + failed`` is the number of documents.

    Attributes:
        model: Model id.
        embedded: Documents embedded in this run.
        reused: Documents that cost nothing: their vector was in the ledger, another process sharing the ledger made
            it, or another document has the same text.
        failed: Documents that could not be embedded.
        failures: The first 10,000 of them, as (id, code, message, position).
        retries: Submissions and requests that were tried again, whole or in part.
        tokens: Input tokens of what was embedded; estimated where the service does not say.
        neurons: Neurons of the same; by list price where the service does not say, None where no price is known.
        cost_usd: Their list price in USD, without the free allocation; None where no price is known.
        seconds: How long it took.
        ledger: The ledger's file.
        run: The run's number in it.
        truncated: Documents whose text is probably longer than the model reads: what is beyond its window has no
            influence on the vector. Estimated as a quarter of the bytes.
        duplicate_ids: How many ids several documents have.
    """

    model: str
    embedded: int
    reused: int
    failed: int
    failures: list[Failure]
    retries: int
    tokens: int
    neurons: float | None
    cost_usd: float | None
    seconds: float
    ledger: Path = field(repr=False)
    run: int = field(repr=False)
    truncated: int = 0
    duplicate_ids: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can hold; failures as objects, the ledger as text."""
        facts = {name.name: getattr(self, name.name) for name in fields(self)}
        return {**facts, "failures": [failure._asdict() for failure in self.failures], "ledger": str(self.ledger)}

    def rows(self) -> Iterator[Row]:
        """Every document of this run in its order, failed ones with ``vector=None``; in bounded memory.

        Raises:
            LedgerError: The ledger has forgotten the run; it keeps those of the last hour, and the last three.
        """
        with LedgerFile(self.ledger) as ledger:
            yield from ledger.rows(self.run)

    def vectors(self) -> Iterator[tuple[Any, array[float]]]:
        """(id, vector) of every embedded document of this run, in the order of the source; in bounded memory.

        Raises:
            LedgerError: The ledger has forgotten the run; it keeps those of the last hour, and the last three.
        """
        return ((row.id, row.vector) for row in self.rows() if row.vector is not None)

    def _facts(self) -> list[tuple[str, str]]:
        facts = [
            ("embedded", f"{self.embedded:,}"),
            ("reused", f"{self.reused:,}"),
            ("failed", f"{self.failed:,}"),
            ("retries", f"{self.retries:,}"),
            ("tokens", f"{self.tokens:,}"),
        ]
        if self.neurons is not None and self.cost_usd is not None:
            facts += [("neurons", f"{self.neurons:,.2f}"), ("cost", f"${self.cost_usd:.6f}")]
        for name, count in (("truncated", self.truncated), ("duplicate ids", self.duplicate_ids)):
            facts += [(name, f"{count:,}")] if count else []
        rate = f" ({self.embedded / self.seconds:,.0f} texts/s)" if self.embedded and self.seconds else ""
        return [*facts, ("seconds", f"{self.seconds:,.1f}{rate}")]

    def summary(self, failures: int = 10) -> str:
        """The report as lines of text, with the first so many of the failures."""
        lines = [f"Ingestion with {self.model}"]
        lines += [f"  {name:<9} {value}" for name, value in self._facts()]
        listed = self.failures[:failures]
        for failure in listed:
            code = f" (code {failure.code})" if failure.code is not None else ""
            lines.append(f"  failed    {failure.id}: {failure.message}{code}")
        if self.failed > len(listed):
            lines.append(f"  failed    ... and {self.failed - len(listed):,} more")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in self._facts())
        failed = "".join(
            f"<tr><td>{html.escape(str(f.id))}</td><td>{f.code if f.code is not None else ''}</td>"
            f"<td>{html.escape(f.message)}</td></tr>"
            for f in self.failures[:100]
        )
        table = f"<table><caption>Ingestion with {html.escape(self.model)}</caption>{rows}</table>"
        if failed:
            table += f"<table><tr><th>failed id</th><th>code</th><th>message</th></tr>{failed}</table>"
        return table
