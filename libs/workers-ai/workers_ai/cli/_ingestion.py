"""What ``workers-ai ingest`` does: documents in, Parquet out, a ledger between them."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from workers_ai.cli._documents import TEXT_SUFFIXES, Columns, InputError, read_documents
from workers_ai.ingest import Estimate, Fingerprint, IngestReport, Ledger, estimate, ingest
from workers_ai.ingest._parquet import arrow, write_parquet
from workers_ai.ledger._progress import LineBar
from workers_ai.ledger._schema import files_beside, identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from workers_ai.cli._documents import Document
    from workers_ai.ingest import Row

__all__ = ["Ingestion"]

SOME_FAILED: Final = 3
_BAD_SHOWN: Final = 5


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
        columns: Columns of the input, and how long a document may be.
        quarantine: JSONL file for rows that cannot be read; None to stop at them.
        take_over: Take runs of other hosts for dead at once.
        as_json: Print the report as JSON.
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
    columns: Columns = field(default_factory=Columns)
    quarantine: Path | None = None
    take_over: bool = False
    as_json: bool = False
    settings: dict[str, Any] = field(default_factory=dict, repr=False)

    def estimate(self) -> Estimate:
        """What it would take; sends nothing, and needs no account.

        Raises:
            ConfigurationError: The input cannot be read, or the ledger is that of another model.
        """
        self._check_places()
        self._check_rows()
        return estimate(
            self._pairs(), ledger=self.ledger, mode=self.mode, empty_text=self.empty_text, **self._options()
        )

    def run(self) -> int:
        """Embed, write, and report; return the exit status.

        The whole input is read once before anything is sent, so that a bad row costs nothing.

        Raises:
            WorkersAIError: What stopped it; the ledger is ready to go on.
            OSError: A file cannot be read or written.
        """
        arrow()
        self._check_places()
        options = self._options()
        total = self._check_rows()
        terminal = sys.stderr.isatty()
        report = ingest(
            self._pairs(), ledger=self.ledger, mode=self.mode, limit_cost_usd=self.limit_cost_usd,
            empty_text=self.empty_text, progress=True if terminal else LineBar(total, last=False), total=total,
            take_over=self.take_over, **options, **self.settings,
        )  # fmt: skip
        count = write_parquet(self._rows(report), self.output)
        if self.as_json:
            facts = {**report.to_dict(), "written": count, "output": str(self.output)}
            typer.echo(json.dumps(facts, ensure_ascii=False, default=str))
        else:
            typer.echo(report.summary(failures=len(report.failures)))
            typer.echo(f"  written   {count:,} rows to {self.output}")
            self._tell_duplicates(report)
        return SOME_FAILED if report.failed else 0

    def _tell_duplicates(self, report: IngestReport) -> None:
        if report.duplicate_ids:
            with Ledger(self.ledger) as ledger:
                _, ids = ledger.duplicate_ids(report.run, 3)
            shown = ", ".join(map(repr, ids)) + (" ..." if report.duplicate_ids > len(ids) else "")
            typer.echo(f"  duplicate {report.duplicate_ids:,} ids belong to several documents: {shown}")

    def _check_rows(self) -> int:
        """Read the whole input; return the number of documents. Rows that cannot be read go to the quarantine.

        Raises:
            InputError: There are such rows, and no quarantine; names the first ones.
        """
        bad: list[str] = []
        count = 0

        def note(error: InputError, raw: Any) -> None:
            bad.append(error.message if len(bad) < _BAD_SHOWN else "")
            if file is not None:
                file.write(json.dumps({"error": error.message, "row": raw}, default=str) + "\n")

        with self.quarantine.open("w", encoding="utf-8") if self.quarantine else nullcontext() as file:
            for _ in read_documents(self.source, self.columns, note):
                count += 1
        if not bad:
            if self.quarantine is not None:
                self.quarantine.unlink()
        elif self.quarantine is not None:
            typer.echo(f"workers-ai: {len(bad):,} rows cannot be read: see {self.quarantine}", err=True)
        elif len(bad) == 1:
            raise InputError(bad[0])
        else:
            more = f"; and {len(bad) - _BAD_SHOWN:,} more" if len(bad) > _BAD_SHOWN else ""
            raise InputError(
                f"{len(bad):,} rows cannot be read: {'; '.join(filter(None, bad))}{more} (--quarantine FILE skips them)"
            )
        return count

    def _check_places(self) -> None:
        """Refuse an output that cannot be made, and one that would take the place of the input or the ledger."""
        if not (folder := self.output.absolute().parent).is_dir():
            raise InputError(f"there is no folder {folder} for the output")
        for what, path in (("output", self.output), ("ledger", self.ledger)):
            if path.is_dir():
                raise InputError(f"the {what} {path} is a folder: name a file in it")
        whole = self.source.resolve() if self.source.is_dir() else None
        taken = {_place(self.source)}
        more = () if self.quarantine is None else (self.quarantine,)
        for path in (self.output, self.ledger, *files_beside(self.ledger), *more):
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

    def _read(self) -> Iterator[Document]:
        skip = None if self.quarantine is None else lambda error, raw: None
        return read_documents(self.source, self.columns, skip)

    def _pairs(self) -> Iterator[tuple[str | int, str]]:
        return ((document.id, document.text) for document in self._read())

    def _rows(self, report: IngestReport) -> Iterator[tuple[Row, str | None]]:
        """Rows of the report, each with the metadata of its document, which is read anew in the same order."""
        documents = self._read()
        for row in report.rows():
            document = next(documents, None)
            if document is None or document.id != row.id:
                raise InputError(f"{self.source} has changed while it was embedded: run the same command again")
            yield row, document.metadata


def _place(path: Path) -> Any:
    """Equal for two paths that lead to one file, whether or not it is there already."""
    return identity(path) or path.resolve()
