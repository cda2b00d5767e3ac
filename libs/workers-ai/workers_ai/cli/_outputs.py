"""Check whether an existing file was written from a ledger, before a command replaces it."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from workers_ai.ingest._parquet import arrow
from workers_ai.ledger._store.file import LedgerFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["foreign_output"]

_ROWS: Final = 1000
"""Number of rows at the start of the output to compare."""


def foreign_output(output: Path, ledger: Path, column: str) -> str | None:
    """Return why ``output`` must not be replaced; None if it is missing, empty, or was written from ``ledger``.

    Args:
        output: The JSONL or Parquet file that will be written.
        ledger: The ledger of this run; need not exist.
        column: Column of the output with the hash of each input, as hex digits.
    """
    if not output.exists() or not output.stat().st_size:
        return None
    try:
        hashes = [bytes.fromhex(row[column]) for row in islice(_rows(output, column), _ROWS)]
    except (OSError, ValueError, KeyError, TypeError):
        return f"{output} exists and is not an output of this command: pass another OUTPUT, or delete the file"
    if not hashes or _has_any(ledger, hashes):
        return None
    return (
        f"{output} exists and was not written from the ledger {ledger}: pass another OUTPUT, pass its own ledger with "
        "--ledger, or delete the file"
    )


def _rows(path: Path, column: str) -> Iterator[dict[str, Any]]:
    if path.suffix.lower() == ".parquet":
        _, pq = arrow()
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS, columns=[column]):
                yield from batch.to_pylist()
        return
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _has_any(ledger: Path, hashes: list[bytes]) -> bool:
    if not ledger.exists() or not ledger.stat().st_size:
        return False
    with LedgerFile(ledger) as held:
        return held.has_any(hashes)
