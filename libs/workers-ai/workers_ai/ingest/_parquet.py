"""Vectors as a Parquet file: ``id``, ``text_hash``, ``vector`` (float32, fixed size) and ``metadata`` (JSON text)."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    from workers_ai.ledger._records import Row

__all__ = ["arrow", "whole_file", "write_parquet"]

_ROWS_AT_ONCE: Final = 2000


def write_parquet(rows: Iterable[tuple[Row, str | None]], path: str | os.PathLike[str]) -> int:
    """Write embedded documents, in bounded memory. Return their number.

    The file appears when it is complete, even if several processes write it at the same time. Documents without a
    vector are omitted.

    Args:
        rows: Documents, such as those of :meth:`~workers_ai.ingest.IngestReport.rows`, each with its metadata as JSON
            text or None.
        path: The file. An existing file is replaced.

    Raises:
        ConfigurationError: pyarrow is not installed.
        OSError: The file cannot be written.
    """
    count = 0
    with whole_file(path) as file, _writer(file) as write:
        chunk: list[tuple[Row, str | None]] = []
        for row, metadata in rows:
            if row.vector is not None:
                chunk.append((row, metadata))
            if len(chunk) == _ROWS_AT_ONCE:
                write(chunk)
                count += len(chunk)
                chunk = []
        write(chunk)
        count += len(chunk)
    return count


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield an open file that becomes ``path`` when the block ends; after an error, ``path`` is as before.

    Raises:
        OSError: The file cannot be written.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:  # pyarrow cannot open every path (lone surrogates)
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def arrow() -> tuple[ModuleType, ModuleType]:
    """Return the modules ``pyarrow`` and ``pyarrow.parquet``.

    Raises:
        ConfigurationError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError as exc:
        raise ConfigurationError("Parquet requires pyarrow: pip install 'workers-ai[cli]'") from exc
    return pa, pq


@contextmanager
def _writer(file: BinaryIO) -> Iterator[Callable[[list[tuple[Row, str | None]]], None]]:
    pa, pq = arrow()
    writer: Any = None

    def write(chunk: list[tuple[Row, str | None]]) -> None:
        nonlocal writer
        if not chunk and writer is not None:
            return
        data = b"".join(row.vector.tobytes() for row, _ in chunk if row.vector is not None)
        # Vectors have no nulls. A non-nullable field makes writing four times faster.
        kind = pa.list_(pa.field("element", pa.float32(), nullable=False), len(data) // 4 // max(1, len(chunk)))
        floats = pa.Array.from_buffers(pa.float32(), len(data) // 4, [None, pa.py_buffer(data)])
        vectors = pa.FixedSizeListArray.from_arrays(floats, type=kind) if chunk else pa.array([], kind)
        schema = pa.schema(
            [
                pa.field("id", pa.string(), nullable=False),
                pa.field("text_hash", pa.string(), nullable=False),
                pa.field("vector", kind, nullable=False),
                pa.field("metadata", pa.string()),
            ]
        )
        columns = [
            pa.array([str(row.id) for row, _ in chunk], pa.string()),
            pa.array([row.hash.hex() for row, _ in chunk], pa.string()),
            vectors,
            pa.array([metadata for _, metadata in chunk], pa.string()),
        ]
        if writer is None:
            # Vectors do not repeat and do not compress, so a dictionary and compression only cost time.
            names = ("id", "text_hash", "metadata")
            writer = pq.ParquetWriter(
                file, schema, use_dictionary=False, write_statistics=False,
                compression={**dict.fromkeys(names, "zstd"), "vector.list.element": "none"},
            )  # fmt: skip
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
