"""What ``workers-ai ingest`` does: documents in, Parquet out, a ledger between them."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from workers_ai.cli.documents import TEXT_SUFFIXES, InputError, read_documents
from workers_ai.ingest import Estimate, Fingerprint, IngestReport, Ledger, estimate, ingest
from workers_ai.ingest.parquet import arrow, part_of, write_parquet
from workers_ai.ingest.schema import files_beside, identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from workers_ai.ingest import Row

__all__ = ["Ingestion"]

SOME_FAILED: Final = 3


@dataclass
class Ingestion:
    """One ingestion of the command line.

    Attributes:
        source: The input.
        output: The Parquet file to make.
        ledger: The ledger.
        shape: Model and options; None for those of the ledger.
        resume: Whether the ledger must exist.
        mode: ``"queue"`` or ``"direct"``.
        limit_cost_usd: USD it may cost, or None.
        empty_text: What becomes of an empty text.
        settings: Connection settings.
    """

    source: Path
    output: Path
    ledger: Path
    shape: Fingerprint | None
    resume: bool = False
    mode: Literal["queue", "direct"] = "queue"
    limit_cost_usd: float | None = None
    empty_text: Literal["raise", "space"] = "raise"
    settings: dict[str, Any] = field(default_factory=dict, repr=False)

    def estimate(self) -> Estimate:
        """What it would take; sends nothing, and needs no account.

        Raises:
            ConfigurationError: The input cannot be read, or the ledger is that of another model.
        """
        self._check_places()
        return estimate(
            self._pairs(), ledger=self.ledger, mode=self.mode, empty_text=self.empty_text, **self._options()
        )

    def run(self) -> int:
        """Embed, write, and tell; gives the exit status.

        The whole input is read once before anything is sent, so that a bad row costs nothing.

        Raises:
            WorkersAIError: What stopped it; the ledger is ready to go on.
            OSError: A file cannot be read or written.
        """
        arrow()
        self._check_places()
        options = self._options()
        total = sum(1 for _ in read_documents(self.source))
        report = ingest(
            self._pairs(), ledger=self.ledger, mode=self.mode, limit_cost_usd=self.limit_cost_usd,
            empty_text=self.empty_text, progress=sys.stderr.isatty(), total=total, **options, **self.settings,
        )  # fmt: skip
        count = write_parquet(self._rows(report), self.output)
        typer.echo(report.summary(failures=len(report.failures)))
        typer.echo(f"  written   {count:,} rows to {self.output}")
        return SOME_FAILED if report.failed else 0

    def _check_places(self) -> None:
        """Refuse an output that cannot be made, and one that would take the place of the input or the ledger."""
        if not (folder := self.output.absolute().parent).is_dir():
            raise InputError(f"there is no folder {folder} for the output")
        for what, path in (("output", self.output), ("ledger", self.ledger)):
            if path.is_dir():
                raise InputError(f"the {what} {path} is a folder: name a file in it")
        whole = self.source.resolve() if self.source.is_dir() else None
        taken = {_place(self.source)}
        for path in (self.output, part_of(self.output), self.ledger, *files_beside(self.ledger)):
            is_document = whole in path.resolve().parents and path.suffix.lower() in TEXT_SUFFIXES
            if is_document or _place(path) in taken:
                raise InputError(
                    f"{path} would be overwritten: name an output and a ledger that are files of their own"
                )
            taken.add(_place(path))
        if self.output.suffix.lower() != ".parquet":
            raise InputError(f"the output {self.output} is to be Parquet: name it .parquet")

    def _options(self) -> dict[str, Any]:
        shape = self.shape
        if self.resume:
            with Ledger(self.ledger) as ledger:
                shape = shape or ledger.fingerprint
        assert shape is not None
        return asdict(shape)

    def _pairs(self) -> Iterator[tuple[str | int, str]]:
        return ((document.id, document.text) for document in read_documents(self.source))

    def _rows(self, report: IngestReport) -> Iterator[tuple[Row, str | None]]:
        """Rows of the report, each with the metadata of its document, which is read anew in the same order."""
        documents = read_documents(self.source)
        for row in report.rows():
            document = next(documents, None)
            if document is None or document.id != row.id:
                raise InputError(f"{self.source} has changed while it was embedded: run the same command again")
            yield row, document.metadata


def _place(path: Path) -> Any:
    """Equal for two paths that lead to one file, whether or not it is there already."""
    return identity(path) or path.resolve()
