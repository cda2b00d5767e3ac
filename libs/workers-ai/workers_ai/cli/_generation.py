"""``workers-ai generate``: read inputs, answer them with a ledger, write JSONL or Parquet."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

import typer

from workers_ai._wire.json_writing import plain_json
from workers_ai.cli._batch_lines import chat_of_line, is_batch_line
from workers_ai.cli._documents import SUFFIXES, Columns, InputError
from workers_ai.cli._errors import PARTIAL
from workers_ai.cli._outputs import foreign_output
from workers_ai.errors import BadRequestError, ConfigurationError
from workers_ai.generation import Answer, GenerateEstimate, GenerateReport, estimate, generate
from workers_ai.generation._inputs import PromptTemplate, Renderer
from workers_ai.ingest._parquet import arrow, whole_file
from workers_ai.ledger._progress import LineBar
from workers_ai.ledger._records import checked_id
from workers_ai.ledger._store.file import LedgerFile
from workers_ai.ledger._store.fingerprints import ChatFingerprint
from workers_ai.ledger._store.schema import files_beside, identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from workers_ai.generation import ChatInput
    from workers_ai.types import JSON

__all__ = ["Generation", "read_inputs", "read_prompt", "read_schema"]

_ROWS_AT_ONCE: Final = 1000
_COLUMNS: Final = (
    "id", "input_hash", "answer", "data", "finish_reason", "input_tokens", "output_tokens", "error_code", "error",
    "metadata",
)  # fmt: skip
_NUMBERS: Final = ("input_tokens", "output_tokens", "error_code")


class _Input(NamedTuple):
    """One input with its id, and the other columns of its row."""

    id: str | int
    given: JSON | ChatInput
    metadata: dict[str, object] | None


def read_inputs(
    path: Path, id_column: str = "id", *, as_rows: bool = False, model: str | None = None
) -> Iterator[_Input]:
    """Yield the inputs of a file, in their order. Each call reads the file again.

    A row has an id, and ``messages`` or ``text``. A line of OpenAI's batch format has ``custom_id`` and ``body``.

    Args:
        path: JSONL, CSV or Parquet.
        id_column: Column of the ids.
        as_rows: Whether an input is the whole row, for a prompt template.
        model: Model id of the generation, which lines of OpenAI's batch format may repeat.

    Raises:
        InputError: The file or a row cannot be read.
    """
    name = path.name.lower()
    reader = SUFFIXES.get(Path(name.removesuffix(".gz")).suffix)
    if reader is None:
        raise InputError(f"{path}: unknown kind of input; pass a file with the suffix {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path} does not exist: check the path")
    for row in reader(path, Columns(id_column, id_column)):
        if isinstance(row.values, InputError):
            raise row.values
        try:
            if is_batch_line(row.values):
                yield _Input(checked_id(row.values["custom_id"]), chat_of_line(row.values, model), None)
            else:
                yield _input(row.values, id_column, as_rows=as_rows)
        except BadRequestError as exc:
            raise InputError(f"{row.place}: {exc.message}") from exc


def _input(row: Mapping[str, object], id_column: str, *, as_rows: bool) -> _Input:
    if id_column not in row:
        raise BadRequestError(
            f"{id_column!r} is missing; found {', '.join(map(repr, row)) or 'nothing'}: pass --id-column"
        )
    rest = {name: value for name, value in row.items() if name not in (id_column, "text", "messages")}
    metadata = rest or None
    doc_id = checked_id(row[id_column])
    if as_rows:
        return _Input(doc_id, dict(row), metadata)
    if row.get("messages") is not None:
        return _Input(doc_id, _messages(row["messages"]), metadata)
    if not {"text", "messages"} & row.keys():
        raise BadRequestError("the row has neither 'text' nor 'messages': add one, or pass --prompt")
    text = row.get("text")
    return _Input(doc_id, "" if text is None else text, metadata)  # an empty input fails, and the others are answered


def _messages(given: object) -> object:
    """Return a column of messages; in a CSV file they are JSON text."""
    if not isinstance(given, str):
        return given
    try:
        found = json.loads(given)
    except ValueError as exc:
        raise BadRequestError(f"'messages' is not a JSON list: {exc}") from exc
    if not isinstance(found, list):
        raise BadRequestError("'messages' is not a JSON list")
    return found


@dataclass
class Generation:
    """Arguments of ``workers-ai generate``.

    Attributes:
        source: The input.
        output: The JSONL or Parquet file to write.
        ledger: The ledger.
        options: Arguments of :func:`workers_ai.generation.generate` for the answers and the run.
        resume: Whether to use the options of the answers that the ledger stores. The ledger must exist.
        id_column: Column of the ids.
        as_json: Print the report as JSON.
        settings: Connection settings.
    """

    source: Path
    output: Path
    ledger: Path
    options: dict[str, JSON]
    resume: bool = False
    id_column: str = "id"
    as_json: bool = False
    settings: dict[str, JSON] = field(default_factory=dict, repr=False)

    def estimate(self) -> GenerateEstimate:
        """Estimate requests and cost; send nothing.

        Raises:
            ConfigurationError: The input cannot be read, or an option is invalid.
        """
        self._check_paths()
        options = self._shaped()
        for name in ("limit_cost_usd", "repair"):
            options.pop(name, None)
        return estimate(self._pairs(options), ledger=self.ledger, **options)

    def run(self) -> int:
        """Answer, write, and report; return the exit status.

        Raises:
            WorkersAIError: The run was stopped; the same command continues.
            OSError: A file cannot be read or written.
        """
        self._check_paths()
        if self.output.suffix.lower() == ".parquet":
            arrow()
        options = self._shaped()
        total = self._count(options)
        progress = True if sys.stderr.isatty() else LineBar(total, last=False, noun="inputs")
        report = generate(
            self._pairs(options), ledger=self.ledger, progress=progress, total=total, **options, **self.settings
        )
        count = self._write(report, options)
        if self.as_json:
            facts = {**report.to_dict(), "written": count, "output": str(self.output)}
            typer.echo(json.dumps(facts, ensure_ascii=False, default=str))
        else:
            typer.echo(report.summary(failures=len(report.failures)))
            typer.echo(f"  written    {count:,} rows to {self.output}")
        return PARTIAL if report.failed else 0

    def _count(self, options: Mapping[str, JSON]) -> int:
        """Return the number of inputs. An invalid row raises here, before anything is sent."""
        renderer = Renderer(PromptTemplate(options["prompt"])) if options.get("prompt") is not None else Renderer()
        count = 0
        for entry in self._inputs(options):
            renderer.render(entry.id, entry.given)
            count += 1
        return count

    def _shaped(self) -> dict[str, JSON]:
        """Return the options; with ``resume``, those of the answers from the ledger."""
        if not self.resume:
            return dict(self.options)
        with LedgerFile(self.ledger, task="generate") as ledger:
            found = ledger.fingerprint
        assert isinstance(found, ChatFingerprint)
        shape = {"model": found.model, "prompt": found.prompt, "system": found.system, **found.params}
        shape |= {"labels": found.labels} if found.labels else {"schema": found.schema}
        return {**self.options, **{name: value for name, value in shape.items() if value is not None}}

    def _inputs(self, options: Mapping[str, JSON]) -> Iterator[_Input]:
        as_rows = options.get("prompt") is not None
        return read_inputs(self.source, self.id_column, as_rows=as_rows, model=options["model"])

    def _pairs(self, options: Mapping[str, JSON]) -> Iterator[tuple[str | int, JSON]]:
        return ((entry.id, entry.given) for entry in self._inputs(options))

    def _check_paths(self) -> None:
        """Raise a usage error if the output cannot be written or would replace a file that this run does not own."""
        suffix = self.output.suffix.lower()
        if suffix not in (".jsonl", ".parquet"):
            raise typer.BadParameter(f"{self.output} must have the suffix .jsonl or .parquet", param_hint="OUTPUT")
        if not (folder := self.output.absolute().parent).is_dir():
            raise typer.BadParameter(f"the folder {folder} does not exist", param_hint="OUTPUT")
        taken = {identity(self.source) or self.source.resolve()}
        for path in (self.output, self.ledger, *files_beside(self.ledger)):
            if path.is_dir() or (place := identity(path) or path.resolve()) in taken:
                raise typer.BadParameter(
                    f"{path} is a folder or would be overwritten: pass other files as output and ledger",
                    param_hint="OUTPUT",
                )
            taken.add(place)
        if why := foreign_output(self.output, self.ledger, "input_hash"):
            raise typer.BadParameter(why, param_hint="OUTPUT")

    def _write(self, report: GenerateReport, options: Mapping[str, JSON]) -> int:
        """Write the answers. The file appears whole or not at all; return the number of rows."""
        write = _write_parquet if self.output.suffix.lower() == ".parquet" else _write_jsonl
        with whole_file(self.output) as file:
            return write(file, self._rows(report, options))

    def _rows(self, report: GenerateReport, options: Mapping[str, JSON]) -> Iterator[dict[str, object]]:
        entries = self._inputs(options)
        for answer in report.answers():
            entry = next(entries, None)
            if entry is None or entry.id != answer.id:
                raise InputError(f"{self.source} changed during the run: run the same command again")
            yield _row(answer, entry.metadata)


def _row(answer: Answer, metadata: dict[str, object] | None) -> dict[str, object]:
    usage, error = answer.usage, answer.error
    values = (
        answer.id, answer.hash.hex(), answer.text, answer.data, answer.finish_reason, usage and usage.input_tokens,
        usage and usage.output_tokens, error and error.code, error and error.message, metadata,
    )  # fmt: skip
    return dict(zip(_COLUMNS, values, strict=True))


def _write_jsonl(file: BinaryIO, rows: Iterable[dict[str, object]]) -> int:
    count = 0
    for row in rows:
        file.write(plain_json(row).encode() + b"\n")
        count += 1
    return count


def _write_parquet(file: BinaryIO, rows: Iterable[dict[str, object]]) -> int:
    """Write a table. Ids are texts, and values of any form are JSON text: a column of Parquet has one type."""
    pa, pq = arrow()
    schema = pa.schema([(name, pa.int64() if name in _NUMBERS else pa.string()) for name in _COLUMNS])
    count = 0
    chunk: list[dict[str, object]] = []
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for row in rows:
            texts = {name: plain_json(row[name]) for name in ("data", "metadata") if row[name] is not None}
            chunk.append({**row, **texts, "id": str(row["id"])})
            count += 1
            if len(chunk) == _ROWS_AT_ONCE:
                writer.write_batch(pa.RecordBatch.from_pylist(chunk, schema=schema))
                chunk = []
        writer.write_batch(pa.RecordBatch.from_pylist(chunk, schema=schema))
    return count


def read_prompt(path: Path) -> str:
    """Return the prompt in a file.

    Raises:
        ConfigurationError: The file is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigurationError(f"{path} is not UTF-8 ({exc.reason}): convert it") from exc


def read_schema(path: Path) -> dict[str, JSON]:
    """Return the JSON schema in a file.

    Raises:
        ConfigurationError: The file is not JSON.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as exc:
        raise ConfigurationError(f"{path} is not JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} is not a JSON schema: it is a {type(found).__name__}, not an object")
    return found
