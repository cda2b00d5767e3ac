"""Read documents from JSONL, CSV, Parquet or a folder of texts: row by row, in bounded memory."""

from __future__ import annotations

import csv
import gzip
import json
import math
import sys
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from workers_ai.errors import BadRequestError, ConfigurationError
from workers_ai.ingest._parquet import arrow
from workers_ai.ledger._records import checked, has_lone_surrogate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

__all__ = ["SUFFIXES", "TEXT_SUFFIXES", "Columns", "Document", "InputError", "read_documents"]

TEXT_SUFFIXES: Final = (".txt", ".md", ".rst")
"""Suffixes of the text files in a folder."""

_ROWS_AT_ONCE: Final = 1000


class InputError(ConfigurationError):
    """The input cannot be read. The message contains the file and the line or row."""


class Document(NamedTuple):
    """One document.

    Attributes:
        id: String or integer; need not be unique.
        text: The text.
        metadata: Other columns of the row as JSON text; None if there are none.
    """

    id: str | int
    text: str
    metadata: str | None


@dataclass(frozen=True)
class Columns:
    """Names of columns, and the maximum length of a document.

    Attributes:
        id: Column of the ids.
        text: Column of the texts.
        chunk_size: Maximum characters of a document; longer documents are split. None for no maximum.
    """

    id: str = "id"
    text: str = "text"
    chunk_size: int | None = None

    def split(self, document: Document) -> Iterator[Document]:
        """Yield a document, or its chunks with the ids ``<id>#0``, ``<id>#1`` and so on."""
        if self.chunk_size is None or len(document.text) <= self.chunk_size:
            yield document
            return
        for number, text in enumerate(chunks(document.text, self.chunk_size)):
            yield document._replace(id=f"{document.id}#{number}", text=text)


class _Row(NamedTuple):
    """The values of a row, or the error that reading it raised."""

    place: str
    values: Mapping[str, object] | InputError
    raw: object = None


def read_documents(
    path: Path,
    columns: Columns = Columns(),
    on_bad: Callable[[InputError, object], None] | None = None,
) -> Iterator[Document]:
    """Return the documents of a file or folder, in their order. Each call reads the input again.

    A row has an id (string or integer) and a text. Other columns are metadata: the value of ``metadata`` if that is the
    only one, else an object. A file of a folder is one document; its id is its path in the folder.

    Args:
        path: The input. Files with a suffix such as ``.jsonl.gz`` are decompressed, except Parquet.
        columns: Names of the columns, and the maximum length of a document.
        on_bad: Function to call with the error and the content of each invalid row, which is skipped. None to raise.

    Raises:
        InputError: The input or a row cannot be read.
        ConfigurationError: The input is Parquet, and pyarrow is not installed.
    """
    if path.is_dir():
        return (chunk for document in _folder(path) for chunk in columns.split(document))
    name = path.name.lower()
    suffix = Path(name.removesuffix(".gz")).suffix
    reader = SUFFIXES.get(suffix)
    if not suffix and not path.exists():
        raise InputError(f"{path} does not exist: check the path")
    if reader is None or (suffix == ".parquet" and name.endswith(".gz")):
        raise InputError(
            f"{path}: unknown kind of input; pass a folder or a file with the suffix {', '.join(SUFFIXES)}"
        )
    if not path.is_file():
        raise InputError(f"{path} does not exist: check the path")
    return _documents(reader(path, columns), columns, _cell_as_json if reader is not _jsonl else _as_json, on_bad)


def _documents(
    rows: Iterator[_Row],
    columns: Columns,
    encode: Callable[[object], str],
    on_bad: Callable[[InputError, object], None] | None,
) -> Iterator[Document]:
    for row in rows:
        try:
            if isinstance(row.values, InputError):
                raise row.values
            with _at(row.place):
                document = _document(row.values, columns, encode)
        except InputError as exc:
            if on_bad is None:
                raise
            on_bad(exc, row.values if isinstance(row.values, dict) else row.raw)
            continue
        yield from columns.split(document)


def chunks(text: str, size: int) -> Iterator[str]:
    """Yield pieces of at most ``size`` characters; split after a paragraph, line, sentence or word."""
    start = 0
    while len(text) - start > size:
        end = start + size
        for mark in _MARKS:
            found = text.rfind(mark, start + size // 2, end)
            if found >= 0:
                end = found + len(mark)
                break
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


_MARKS: Final = ("\n\n", "\n", ". ", " ")


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with _open(path) as file:
            yield from enumerate(file, 1)
    except (gzip.BadGzipFile, zlib.error, EOFError) as exc:
        raise InputError(f"{path} cannot be decompressed ({exc}): pass a valid gzip file") from exc


def _decoded(line: bytes, number: int) -> str:
    return line.decode("utf-8-sig" if number == 1 else "utf-8")


def _jsonl(path: Path, columns: Columns) -> Iterator[_Row]:
    for number, line in _lines(path):
        place = f"{path}, line {number}"
        try:
            with _at(place):
                text = _decoded(line, number)
                row = json.loads(text) if text.strip() else None
                if row is None and not text.strip():
                    continue
                if not isinstance(row, dict):
                    raise ValueError(f"expected a JSON object, got {type(row).__name__}")
        except InputError as exc:
            yield _Row(place, exc, line.decode("utf-8", "replace").rstrip("\n"))
            continue
        yield _Row(place, row)


def _csv(path: Path, columns: Columns) -> Iterator[_Row]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.DictReader((_csv_line(path, number, line) for number, line in _lines(path)), strict=True)
    with _at(f"{path}, line 1"):
        if reader.fieldnames is not None:
            _require_names(reader.fieldnames, columns)
    while True:
        place = f"{path}, line {reader.line_num + 1}"
        row: Mapping[str, object] | None = None
        try:
            with _at(place):
                row = next(reader, None)
                if row is None:
                    return
                if None in row or None in row.values():
                    width = len(reader.fieldnames or ())
                    raise ValueError(f"expected {width} fields as in the header: correct the row")
        except InputError as exc:
            if isinstance(exc.__cause__, UnicodeDecodeError):
                raise  # the row may continue on the next line
            yield _Row(place, exc, row and {str(name): value for name, value in row.items()})
            continue
        yield _Row(place, row)


def _csv_line(path: Path, number: int, line: bytes) -> str:
    with _at(f"{path}, line {number}"):
        return _decoded(line, number)


def _parquet(path: Path, columns: Columns) -> Iterator[_Row]:
    pa, pq = arrow()
    number = 0
    try:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            with _at(str(path)):
                _require_names(file.schema_arrow.names, columns)
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    yield _Row(f"{path}, row {number}", row)
    except pa.ArrowException as exc:
        raise InputError(f"{path} cannot be read as Parquet: {exc}") from exc


def _folder(path: Path) -> Iterator[Document]:
    found = False
    for file in sorted(path.rglob("*")):
        place = file.relative_to(path)
        hidden = any(part.startswith(".") for part in place.parts)
        if hidden or file.suffix.lower() not in TEXT_SUFFIXES or not file.is_file():
            continue
        found = True
        with _at(str(file)):
            if has_lone_surrogate(str(place)):
                raise ValueError("the file name is not UTF-8: rename the file")
            document = Document(place.as_posix(), file.read_text(encoding="utf-8-sig"), None)
        yield document
    if not found:
        raise InputError(
            f"{path}: the folder has no file with the suffix {', '.join(TEXT_SUFFIXES)}: pass another folder or a file"
        )


SUFFIXES: Final[Mapping[str, Callable[[Path, Columns], Iterator[_Row]]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}
"""Readers by suffix."""


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Add the position of a row to the errors of the block."""
    try:
        yield
    except InputError:
        raise
    except UnicodeDecodeError as exc:
        raise InputError(f"{place}: not UTF-8 ({exc.reason}): convert the file to UTF-8") from exc
    except BadRequestError as exc:
        raise InputError(f"{place}: {exc.message}") from exc
    except RecursionError as exc:
        raise InputError(f"{place}: nested too deep; use flatter values") from exc
    except (ValueError, csv.Error) as exc:
        raise InputError(f"{place}: {exc}") from exc


def _require_names(names: Collection[str], columns: Columns) -> None:
    for name, option in ((columns.id, "--id-column"), (columns.text, "--text-column")):
        if name not in names:
            found = ", ".join(map(repr, names)) or "nothing"
            raise ValueError(f"{name!r} is missing; found {found}: pass {option}")
    if repeated := [name for name, count in Counter(list(names)).items() if count > 1]:
        raise ValueError(f"the column {repeated[0]!r} occurs twice: rename one of them")


def _document(row: Mapping[str, object], columns: Columns, encode: Callable[[object], str]) -> Document:
    _require_names(row, columns)
    doc_id, text = checked((row[columns.id], row[columns.text]))
    rest = {name: value for name, value in row.items() if name not in (columns.id, columns.text)}
    metadata = None
    if rest.keys() == {"metadata"}:
        metadata = None if rest["metadata"] in (None, "") else encode(rest["metadata"])
    elif rest:
        metadata = _as_json(rest)
    return Document(doc_id, text, metadata)


def _as_json(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # JSON has no NaN and no infinity
        text = json.dumps(_finite(value), ensure_ascii=False, default=str)
    return json.dumps(json.loads(text)) if has_lone_surrogate(text) else text


def _finite(value: object) -> object:
    """Replace NaN and infinities by None."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell_as_json(value: object) -> str:
    """Return a cell of a table as JSON; keep JSON text as it is."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            json.loads(value, parse_constant=_no_json)
            return value
    return _as_json(value)


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
