"""Documents out of files: JSONL, CSV, Parquet, or a folder of texts. Read row by row, in bounded memory."""

from __future__ import annotations

import csv
import json
import math
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from workers_ai.errors import BadRequestError, ConfigurationError
from workers_ai.ingest.parquet import arrow
from workers_ai.ingest.records import checked, has_half_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

__all__ = ["SUFFIXES", "TEXT_SUFFIXES", "Document", "InputError", "read_documents"]

TEXT_SUFFIXES: Final = (".txt", ".md", ".rst")
"""Files of a folder that are read as texts."""

_ROWS_AT_ONCE: Final = 1000


class InputError(ConfigurationError):
    """An input that cannot be read; names the file, and the line or row."""


class Document(NamedTuple):
    """One document.

    Attributes:
        id: Its id, a string or an integer; need not be unique.
        text: Its text.
        metadata: Whatever else is in its row, as JSON text; None where there is nothing.
    """

    id: str | int
    text: str
    metadata: str | None


def read_documents(path: Path) -> Iterator[Document]:
    """The documents of a file or folder, in their order; each call reads anew.

    A row has an ``id`` (string or integer) and a ``text``. What else it has is its metadata: the value of ``metadata``
    where that is all, else an object of all of it. A file of a folder is one document, whose id is its path in it.

    Raises:
        InputError: The input, or a row of it, cannot be read.
        ConfigurationError: pyarrow, which Parquet needs, is not installed.
    """
    if path.is_dir():
        return _folder(path)
    reader = SUFFIXES.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path} is neither a folder nor a file named {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    return reader(path)


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            with _at(f"{path}, line {number}"):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            yield text


def _jsonl(path: Path) -> Iterator[Document]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        with _at(f"{path}, line {number}"):
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"a JSON object is expected, not a {type(row).__name__}")
            document = _document(row, encode=_as_json)
        yield document


def _csv(path: Path) -> Iterator[Document]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.DictReader(_lines(path), strict=True)
    with _at(f"{path}, line 1"):
        if reader.fieldnames is not None:
            _require_names(reader.fieldnames)
    while True:
        with _at(f"{path}, line {reader.line_num + 1}"):
            row = next(reader, None)
            if row is None:
                return
            if None in row or None in row.values():
                raise ValueError(f"the row has more or fewer fields than the header's {len(reader.fieldnames or ())}")
            document = _document(row, encode=_cell_as_json)
        yield document


def _parquet(path: Path) -> Iterator[Document]:
    pa, pq = arrow()
    number = 0
    try:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    with _at(f"{path}, row {number}"):
                        document = _document(row, encode=_cell_as_json)
                    yield document
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
            if has_half_pair(str(place)):
                raise ValueError("the name is not UTF-8: rename it")
            document = Document(place.as_posix(), file.read_text(encoding="utf-8-sig"), None)
        yield document
    if not found:
        raise InputError(f"the folder {path} has no file named {', '.join(TEXT_SUFFIXES)}")


SUFFIXES: Final[Mapping[str, Callable[[Path], Iterator[Document]]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}
"""How files are read, by the end of their names."""


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Say where a row was that cannot be read."""
    try:
        yield
    except InputError:
        raise
    except UnicodeDecodeError as exc:
        raise InputError(f"{place}: not UTF-8 ({exc.reason})") from exc
    except BadRequestError as exc:
        raise InputError(f"{place}: {exc.message}") from exc
    except RecursionError as exc:
        raise InputError(f"{place}: it is nested too deep") from exc
    except (ValueError, csv.Error) as exc:
        raise InputError(f"{place}: {exc}") from exc


def _require_names(names: Collection[str]) -> None:
    for name in ("id", "text"):
        if name not in names:
            raise ValueError(f"{name!r} is missing; there is {', '.join(map(repr, names)) or 'nothing'}")


def _document(row: Mapping[str, Any], encode: Callable[[Any], str]) -> Document:
    _require_names(row)
    doc_id, text = checked((row["id"], row["text"]))
    rest = {name: value for name, value in row.items() if name not in ("id", "text")}
    metadata = None
    if rest.keys() == {"metadata"}:
        metadata = None if rest["metadata"] in (None, "") else encode(rest["metadata"])
    elif rest:
        metadata = _as_json(rest)
    return Document(doc_id, text, metadata)


def _as_json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # NaN and infinity, which JSON has not
        text = json.dumps(_finite(value), ensure_ascii=False, default=str)
    return json.dumps(json.loads(text)) if has_half_pair(text) else text


def _finite(value: Any) -> Any:
    """The value with None in the place of numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell_as_json(value: Any) -> str:
    """A cell of a table as JSON: one that holds JSON text already stays as it is."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            json.loads(value, parse_constant=_no_json)
            return value
    return _as_json(value)


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
