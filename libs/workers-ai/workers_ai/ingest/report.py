"""What an ingestion tells while it runs, and at its end."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from workers_ai.catalogue import USD_PER_NEURON, lookup
from workers_ai.ingest.ledger_file import LedgerFile
from workers_ai.ingest.records import Failure, Row

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Bar", "IngestReport", "Tally"]


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

    def close(self) -> None:
        """Leave the last state on the screen."""
        ...


class TqdmBar:
    """A tqdm bar: documents, submissions in flight, retries, neurons and cost."""

    def __init__(self, total: int | None) -> None:
        from tqdm.auto import tqdm

        self._bar: Any = tqdm(total=total, unit=" texts", desc="embedding", dynamic_ncols=True, mininterval=0.2)

    def show(self, tally: Tally) -> None:
        """Move the bar."""
        self._bar.set_postfix_str(_postfix(tally), refresh=False)
        self._bar.update(tally.embedded + tally.reused + tally.failed - self._bar.n)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()


class NoBar:
    """Shows nothing."""

    def show(self, tally: Tally) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def _postfix(tally: Tally) -> str:
    parts = [f"jobs {tally.jobs}", f"retries {tally.retries}"]
    if tally.failed:
        parts.append(f"failed {tally.failed}")
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
