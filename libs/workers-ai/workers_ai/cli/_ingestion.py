"""``workers-ai ingest``: read documents, embed them with a ledger, write Parquet."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import typer

from workers_ai.cli._documents import TEXT_SUFFIXES, Columns, InputError, read_documents
from workers_ai.cli._errors import PARTIAL
from workers_ai.cli._outputs import foreign_output
from workers_ai.ingest import Estimate, IngestReport, estimate, ingest
from workers_ai.ingest._parquet import arrow, write_parquet
from workers_ai.ledger._ledger import Ledger
from workers_ai.ledger._progress import LineBar
from workers_ai.ledger._store.fingerprints import Fingerprint
from workers_ai.ledger._store.schema import files_beside, identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from workers_ai.cli._documents import Document
    from workers_ai.ingest import Row
    from workers_ai.types import JSON

__all__ = ["Ingestion"]

_BAD_SHOWN: Final = 5


@dataclass
class Ingestion:
    """Arguments of ``workers-ai ingest``.

    Attributes:
        source: The input.
        output: The Parquet file to write.
        ledger: The ledger.
        shape: Model and options; None to use the ledger's.
        resume: Whether to continue the ledger, which must exist.
        mode: ``"queue"`` or ``"direct"``.
        limit_cost_usd: Maximum cost of this run in USD, or None.
        empty_text: Whether an empty text fails or is embedded as a space.
        columns: Columns of the input, and the maximum length of a document.
        quarantine: JSONL file for invalid rows; None to raise.
        take_over: Treat runs of other hosts as dead.
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
    settings: dict[str, JSON] = field(default_factory=dict, repr=False)

    def estimate(self) -> Estimate:
        """Return requests, cost and time; send nothing. No account is needed.

        Raises:
            ConfigurationError: The input cannot be read, or the ledger belongs to another model.
        """
        self._check_paths()
        self._check_rows()
        return estimate(
            self._pairs(), ledger=self.ledger, mode=self.mode, empty_text=self.empty_text, **self._options()
        )

    def run(self) -> int:
        """Embed the documents, write the file, print the report, return the exit status.

        The whole input is read once before anything is sent, so that an invalid row costs nothing.

        Raises:
            WorkersAIError: The run stopped; the next run continues with the ledger.
            OSError: A file cannot be read or written.
        """
        arrow()
        self._check_paths()
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
            self._print_duplicates(report)
        return PARTIAL if report.failed else 0

    def _print_duplicates(self, report: IngestReport) -> None:
        if report.duplicate_ids:
            with Ledger(self.ledger) as ledger:
                _, ids = ledger.duplicate_ids(report.run, 3)
            shown = ", ".join(map(repr, ids)) + (" ..." if report.duplicate_ids > len(ids) else "")
            typer.echo(f"  duplicate {report.duplicate_ids:,} ids belong to several documents: {shown}")

    def _check_rows(self) -> int:
        """Read the whole input; return the number of documents. Write invalid rows to the quarantine.

        Raises:
            InputError: A row is invalid and no quarantine file is set. The message contains the first invalid rows.
        """
        bad: list[str] = []
        count = 0

        def note(error: InputError, raw: object) -> None:
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
            typer.echo(f"workers-ai: {len(bad):,} invalid rows are skipped: see {self.quarantine}", err=True)
        elif len(bad) == 1:
            raise InputError(bad[0])
        else:
            more = f"; and {len(bad) - _BAD_SHOWN:,} more" if len(bad) > _BAD_SHOWN else ""
            raise InputError(
                f"{len(bad):,} rows are invalid: {'; '.join(filter(None, bad))}{more} (--quarantine FILE skips them)"
            )
        return count

    def _check_paths(self) -> None:
        """Raise InputError if the output cannot be written or would replace a file that this run does not own."""
        if not (folder := self.output.absolute().parent).is_dir():
            raise InputError(f"the folder of the output does not exist: {folder}")
        for what, path in (("output", self.output), ("ledger", self.ledger)):
            if path.is_dir():
                raise InputError(f"the {what} {path} is a folder: pass a file")
        whole = self.source.resolve() if self.source.is_dir() else None
        taken = {_file_key(self.source)}
        more = () if self.quarantine is None else (self.quarantine,)
        for path in (self.output, self.ledger, *files_beside(self.ledger), *more):
            is_document = whole in path.resolve().parents and path.suffix.lower() in TEXT_SUFFIXES
            if is_document or _file_key(path) in taken:
                raise InputError(f"{path} would be overwritten: pass other files as output and ledger")
            taken.add(_file_key(path))
        if self.output.suffix.lower() != ".parquet":
            raise InputError(f"the output {self.output} must have the suffix .parquet")
        if why := foreign_output(self.output, self.ledger, "text_hash"):
            raise InputError(why)

    def _options(self) -> dict[str, JSON]:
        shape = self.shape
        if self.resume:
            with Ledger(self.ledger, task="embed") as ledger:
                found = ledger.fingerprint
            shape = shape or (found if isinstance(found, Fingerprint) else None)
        assert shape is not None
        return asdict(shape)

    def _read(self) -> Iterator[Document]:
        skip = None if self.quarantine is None else lambda error, raw: None
        return read_documents(self.source, self.columns, skip)

    def _pairs(self) -> Iterator[tuple[str | int, str]]:
        return ((document.id, document.text) for document in self._read())

    def _rows(self, report: IngestReport) -> Iterator[tuple[Row, str | None]]:
        """Yield rows of the report with the metadata of their documents, which are read again."""
        documents = self._read()
        for row in report.rows():
            document = next(documents, None)
            if document is None or document.id != row.id:
                raise InputError(f"{self.source} changed during the run: run the same command again")
            yield row, document.metadata


def _file_key(path: Path) -> object:
    """Return a key of a file that is equal for all its paths, even if the file does not exist."""
    return identity(path) or path.resolve()
