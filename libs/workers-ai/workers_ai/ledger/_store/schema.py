"""The ledger's file: its tables, its connection, and the mapping of SQLite's errors."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workers_ai.errors import BatchError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["VERSION", "LedgerError", "connect", "files_beside", "guarded", "identity", "undamaged"]

VERSION: Final = 1
"""Version of the tables."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- Every distinct input, by its hash. Rows are never deleted.
CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE);
-- float32, little-endian.
CREATE TABLE IF NOT EXISTS vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL);
-- The assistant message as JSON, its finish reason and usage. estimated: whether the usage is our own estimate.
CREATE TABLE IF NOT EXISTS answers (
    id INTEGER PRIMARY KEY, answer TEXT NOT NULL, finish TEXT, input_tokens INTEGER, output_tokens INTEGER,
    neurons REAL, estimated INTEGER NOT NULL DEFAULT 0, request_id TEXT, at REAL NOT NULL);
-- Inputs that still need a result: waiting (job is null) or part of a job. ahead: the neurons it may cost at most.
-- repairs: number of invalid answers so far.
CREATE TABLE IF NOT EXISTS work (
    id INTEGER PRIMARY KEY, text TEXT NOT NULL, bytes INTEGER NOT NULL, tokens INTEGER NOT NULL,
    part INTEGER NOT NULL, tries INTEGER NOT NULL DEFAULT 0, job INTEGER, ahead REAL NOT NULL DEFAULT 0,
    repairs INTEGER NOT NULL DEFAULT 0);
-- Waiting inputs are claimed in this order. Ledgers of earlier releases have an index without the part.
DROP INDEX IF EXISTS work_by_job;
CREATE INDEX IF NOT EXISTS work_by_part ON work (job, part);
CREATE TABLE IF NOT EXISTS failures (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, code INTEGER, message TEXT NOT NULL);
-- One submission: about to be sent (request_id is null), or accepted. groups: the text ids of each of its requests.
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, request_id TEXT, groups TEXT NOT NULL,
    since REAL NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT NOT NULL, pid INTEGER NOT NULL, lease_until REAL NOT NULL,
    finished REAL, started TEXT);
-- Every request id of the queue. reused: the queue returned it for two submissions, so its result belongs to neither.
CREATE TABLE IF NOT EXISTS request_ids (id TEXT PRIMARY KEY, reused INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
-- The inputs of each run, in their order.
CREATE TABLE IF NOT EXISTS docs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, doc_id, text_id INTEGER NOT NULL);
"""

_ALL: Final = frozenset(re.findall(r"TABLE IF NOT EXISTS (\w+)", _TABLES))
_NAMES: Final = _ALL - {"request_ids", "answers"}
"""Tables that every ledger has; later ones are added when it is opened."""
_COLUMNS: Final = (
    ("runs", "started", "TEXT"),
    ("work", "ahead", "REAL NOT NULL DEFAULT 0"),
    ("work", "repairs", "INTEGER NOT NULL DEFAULT 0"),
)
"""Columns that ledgers of earlier releases lack."""
_DAMAGED: Final = "restore a copy, or choose another path to start over"
_BUSY_S: Final = 120.0
_BUSY_CODES: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_RETRY_S: Final = 0.01
_HINTS: Final = {
    **dict.fromkeys(
        (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
        "free some space and run the same call again; what was recorded is kept",
    ),
    **dict.fromkeys(_BUSY_CODES, "another process holds it; wait for it, and keep ledgers off network file systems"),
    **dict.fromkeys(
        (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM),
        "check that its folder exists and is writable",
    ),
    **dict.fromkeys(
        (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB), f"the file is damaged or not a ledger: {_DAMAGED}"
    ),
}
"""Remedies by SQLite's result code (https://www.sqlite.org/rescode.html)."""
_CACHE_KIB: Final = 48 * 1024
_CHECKPOINT_PAGES: Final = 8192


class LedgerError(BatchError):
    """The ledger cannot be used: the file is damaged, is not a ledger, or its disk is full.

    Nothing is written after such an error; what was on disk stays there.
    """


@contextlib.contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Convert an error of SQLite to a :class:`LedgerError` with a remedy."""
    try:
        yield
    except OSError as exc:
        raise LedgerError(f"the ledger {path} cannot be used ({exc.strerror}): choose another path") from exc
    except sqlite3.Error as exc:
        hint = _HINTS.get(_primary_code(exc), "check the file and its disk")
        raise LedgerError(f"the ledger {path} cannot be used ({exc}): {hint}") from exc


def _primary_code(exc: sqlite3.Error) -> int:
    """Return SQLite's result code without its details; 0 if the error is not from SQLite itself."""
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Raise a :class:`LedgerError` for damaged contents."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RecursionError, ConfigurationError) as exc:
        raise LedgerError(f"the ledger {path} has invalid contents ({exc}): {_DAMAGED}") from exc


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open the file; create the tables if it is new and ``create`` is set. Other SQLite files are not changed.

    Raises:
        ConfigurationError: The file is empty, and ``create`` is not set.
        LedgerError: The file cannot be used.
    """
    with guarded(path):
        _require_whole(path)
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            _wait_while_busy(lambda: _set_up(connection, path, create=create))
        except BaseException:
            connection.close()
            raise
        return connection


def _wait_while_busy(step: Callable[[], None]) -> None:
    """Repeat a step while another connection holds the file, for at most two minutes.

    SQLite's own timeout does not cover the change to a write-ahead log: while another connection creates the
    tables of a new ledger, it fails with SQLITE_BUSY at once (https://www.sqlite.org/c3ref/busy_handler.html).
    """
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            return step()
        except sqlite3.OperationalError as exc:
            if _primary_code(exc) not in _BUSY_CODES or time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_S)  # noqa: TID251 - blocks as SQLite's own wait for a lock does


def _set_up(connection: sqlite3.Connection, path: Path, *, create: bool) -> None:
    """Check that the file is a ledger, set the connection's options, and create missing tables and columns."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if names and not names >= _NAMES:
        raise LedgerError(f"{path} is an SQLite file, but not a ledger: choose another path")
    if not names and not create:
        raise ConfigurationError(f"the ledger {path} is empty: pass the ledger of a run")
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise LedgerError(f"the file system of the ledger {path} has no write-ahead log: put it on a local disk")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    if not names >= _ALL:
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
    for table, column, kind in _COLUMNS:
        _add_column(connection, table, column, kind)


def _add_column(connection: sqlite3.Connection, table: str, column: str, kind: str) -> None:
    if any(row[1] == column for row in connection.execute(f"PRAGMA table_info({table})")):
        return
    try:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    except sqlite3.OperationalError as exc:
        if _primary_code(exc) != sqlite3.SQLITE_ERROR:  # SQLITE_ERROR: another process has just added it
            raise


def files_beside(path: Path) -> tuple[Path, Path]:
    """Return the paths of a ledger's write-ahead log and of the log's index."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file at a path; None if there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _require_whole(path: Path) -> None:
    """Raise an error if a file is shorter than its header states, before SQLite writes to it."""
    if not path.exists():
        return
    if not path.is_file():
        raise LedgerError(f"the ledger {path} cannot be used (it is a folder or a device): choose another path")
    if not (size := path.stat().st_size):
        return
    wal, _ = files_beside(path)
    if wal.exists() and wal.stat().st_size:
        return
    with path.open("rb") as file:
        header = file.read(100)
    if not header.startswith(b"SQLite format 3\0"):
        raise LedgerError(f"{path} exists and is not a ledger: choose another path")
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    if size < pages * (65536 if page == 1 else page):
        raise LedgerError(f"the ledger {path} is truncated ({size:,} bytes): {_DAMAGED}")
