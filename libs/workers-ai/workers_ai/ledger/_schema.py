"""The ledger's file: tables, connection, and SQLite's errors in our own words."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workers_ai.errors import BatchError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["VERSION", "LedgerError", "connect", "files_beside", "guarded", "identity", "undamaged"]

VERSION: Final = 1
"""Version of the tables."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- Every distinct text ever seen; only ever added to.
CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE);
-- float32, little-endian.
CREATE TABLE IF NOT EXISTS vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL);
-- Texts that are still to be embedded: waiting (job is null) or part of a job.
CREATE TABLE IF NOT EXISTS work (
    id INTEGER PRIMARY KEY, text TEXT NOT NULL, bytes INTEGER NOT NULL, tokens INTEGER NOT NULL,
    part INTEGER NOT NULL, tries INTEGER NOT NULL DEFAULT 0, job INTEGER);
CREATE INDEX IF NOT EXISTS work_by_job ON work (job);
CREATE TABLE IF NOT EXISTS failures (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, code INTEGER, message TEXT NOT NULL);
-- One submission: about to be sent (request_id is null), or accepted. groups: the text ids of each of its requests.
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, request_id TEXT, groups TEXT NOT NULL,
    since REAL NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT NOT NULL, pid INTEGER NOT NULL, lease_until REAL NOT NULL,
    finished REAL, started TEXT);
-- Every request id the queue has given. reused: given to two submissions, so that its result belongs to neither.
CREATE TABLE IF NOT EXISTS request_ids (id TEXT PRIMARY KEY, reused INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
-- The documents of each run, in their order.
CREATE TABLE IF NOT EXISTS docs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, doc_id, text_id INTEGER NOT NULL);
"""

_NAMES: Final = frozenset(re.findall(r"TABLE IF NOT EXISTS (\w+)", _TABLES)) - {"request_ids"}
"""Tables that every ledger has; later ones are added when it is opened."""
_DAMAGED: Final = "restore a copy, or choose another path to embed everything anew"
_BUSY_S: Final = 120.0
_CACHE_KIB: Final = 48 * 1024
_CHECKPOINT_PAGES: Final = 8192


class LedgerError(BatchError):
    """The ledger cannot be used: its file is damaged, its disk is full, or it is no ledger at all.

    What was on disk before is still there: nothing is written after such an error.
    """


@contextlib.contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Turn an error of SQLite into a :class:`LedgerError` that says what to do."""
    try:
        yield
    except OSError as exc:
        raise LedgerError(f"the ledger {path} cannot be used ({exc.strerror}): choose another path") from exc
    except sqlite3.Error as exc:
        text = str(exc)
        if "full" in text or "I/O" in text:
            hint = "free some space and run the same ingestion again; what was recorded is kept"
        elif "locked" in text or "busy" in text:
            hint = "another process holds it; wait for it, and keep ledgers off network file systems"
        elif "unable to open" in text or "readonly" in text:
            hint = "check that its folder exists and can be written to"
        elif isinstance(exc, sqlite3.DatabaseError) and not isinstance(exc, sqlite3.OperationalError):
            hint = f"the file is damaged or no ledger: {_DAMAGED}"
        else:
            hint = "see the text of SQLite"
        raise LedgerError(f"the ledger {path} cannot be used ({text}): {hint}") from exc


@contextlib.contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Turn what contents that are none of ours lead to into a :class:`LedgerError`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RecursionError, ConfigurationError) as exc:
        raise LedgerError(f"the ledger {path} holds what no ledger holds ({exc}): {_DAMAGED}") from exc


def connect(path: Path, *, make: bool) -> sqlite3.Connection:
    """Open the file, and make the tables where it is new and ``make`` is set. A file of others stays as it is.

    Raises:
        ConfigurationError: It is empty, and ``make`` is not set.
        LedgerError: It cannot be used.
    """
    with guarded(path):
        _require_whole(path)
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
            if names and not names >= _NAMES:
                raise LedgerError(f"{path} is an SQLite file, but no ledger: choose another path")
            if not names and not make:
                raise ConfigurationError(f"the ledger {path} is empty")
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                raise LedgerError(f"the ledger {path} cannot be used: its file system has no write-ahead log")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            if "request_ids" not in names:
                connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
            if not any(row[1] == "started" for row in connection.execute("PRAGMA table_info(runs)")):
                connection.execute("ALTER TABLE runs ADD COLUMN started TEXT")
        except BaseException:
            connection.close()
            raise
        return connection


def files_beside(path: Path) -> tuple[Path, Path]:
    """The write-ahead log of a ledger and its index, which SQLite keeps while it is in use."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def identity(path: Path) -> tuple[int, int] | None:
    """What tells the file at a path from any other one; None where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _require_whole(path: Path) -> None:
    """Refuse a file that is shorter than its own header says, before SQLite writes to it."""
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
        raise LedgerError(f"{path} exists and is no ledger: choose another path")
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    if size < pages * (65536 if page == 1 else page):
        raise LedgerError(f"the ledger {path} is truncated ({size:,} bytes): {_DAMAGED}")
