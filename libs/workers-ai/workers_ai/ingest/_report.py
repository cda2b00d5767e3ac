"""The report of an ingestion."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from workers_ai.ledger._records import Failure, Row
from workers_ai.ledger._report_text import report_html, report_text
from workers_ai.ledger._store.file import LedgerFile

if TYPE_CHECKING:
    import os
    from array import array
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import Self

__all__ = ["IngestReport", "Vectors"]


@dataclass(frozen=True)
class IngestReport:
    """The result of one ingestion. ``embedded + reused + failed`` is the number of documents.

    Attributes:
        model: Model id.
        embedded: Documents embedded in this run.
        reused: Documents that cost nothing: their vector was in the ledger, another process with the same ledger
            embedded them, or another document has the same text.
        failed: Documents that could not be embedded.
        failures: The first 10,000 failures, as (id, code, message, position).
        retries: Submissions and requests that were sent again, whole or in part.
        tokens: Input tokens of this run; estimated where the service does not report them.
        neurons: Neurons of this run; by list price where the service does not report them, None without a price.
        cost_usd: Their list price in USD, without the free allocation; None without a price.
        seconds: Duration in seconds.
        ledger: The ledger's file.
        run: Number of the run in the ledger.
        truncated: Documents whose text is probably longer than the model reads: text beyond its window has no influence
            on the vector. Estimated as a quarter of the bytes.
        duplicate_ids: Number of ids that several documents share.
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
        """Return the report as JSON-compatible values: failures as objects, the ledger as text."""
        facts = {name.name: getattr(self, name.name) for name in fields(self)}
        return {**facts, "failures": [failure._asdict() for failure in self.failures], "ledger": str(self.ledger)}

    def rows(self) -> Iterator[Row]:
        """Yield every document of this run in order, failed ones with ``vector=None``; in bounded memory.

        Raises:
            LedgerError: The run was deleted: the ledger keeps runs of the last hour, and the last three.
        """
        with LedgerFile(self.ledger) as ledger:
            yield from ledger.rows(self.run)

    def vectors(self) -> Iterator[tuple[Any, array[float]]]:
        """Yield (id, vector) of every embedded document of this run, in the order of the source; in bounded memory.

        Raises:
            LedgerError: The run was deleted: the ledger keeps runs of the last hour, and the last three.
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
        """Return the report as lines of text, with at most this number of failures."""
        return report_text(f"Ingestion with {self.model}", self._facts(), self.failures[:failures], self.failed)

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return report_html(f"Ingestion with {self.model}", self._facts(), self.failures, self.failed)


class Vectors:
    """Vectors of a ledger by text, for adapters of frameworks.

    Args:
        ledger: Path of the ledger.

    Raises:
        ConfigurationError: There is no ledger, or it contains answers.
        LedgerError: The file cannot be used.
    """

    def __init__(self, ledger: str | os.PathLike[str]) -> None:
        self._ledger = LedgerFile(ledger, task="embed")

    def find(self, texts: Iterable[str]) -> list[array[float] | None]:
        """Return the vectors of texts, in their order; None for a text without one."""
        return self._ledger.find(texts)

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
