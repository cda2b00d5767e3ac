"""The ledger as a file: opened, checked, and read."""

from __future__ import annotations

import json
import threading
import time
from array import array
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workers_ai.errors import ConfigurationError
from workers_ai.ledger._liveness import Observer, RunRow
from workers_ai.ledger._records import Failure, Fingerprint, InFlight, Row, text_hash
from workers_ai.ledger._schema import VERSION, LedgerError, connect, guarded, identity, undamaged

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator
    from sqlite3 import Connection
    from typing import Self

__all__ = ["LEASE_S", "LedgerFile"]

LEASE_S: Final = 900.0
"""Seconds a silent run keeps its claims: more than any request takes. One that died on this machine is noticed at once.
"""

_CHUNK: Final = 1000


class LedgerFile:
    """One ledger file. Methods are safe from any thread; several processes may share the file on a local disk.

    Args:
        path: The file; made where it is missing.
        fingerprint: What shapes the vectors; None to read a ledger as it is.
        lease_s: Seconds a silent run keeps its claims.
        clock: Returns the time in seconds since the epoch.
        monotonic: Returns seconds that never go back; by default those of a ``clock`` that is given, too.
        take_over: Take runs of other hosts for dead at once.

    Raises:
        ConfigurationError: The ledger was made with another fingerprint, or ``path`` is none.
        LedgerError: The file cannot be used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fingerprint: Fingerprint | None = None,
        *,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
        take_over: bool = False,
    ) -> None:
        self.path = _checked_path(path)
        self._absolute = self.path.absolute()
        self._lease_s = lease_s
        self._clock = clock
        self._lock = threading.RLock()
        if fingerprint is None and not self.path.exists():
            raise ConfigurationError(f"there is no ledger at {self.path}")
        monotonic = monotonic or (time.monotonic if clock is time.time else clock)
        self._observer = Observer(str(self.path.resolve()), lease_s, clock, monotonic, take_over=take_over)
        self._db: Connection = connect(self.path, make=fingerprint is not None)
        self._file = identity(self.path)
        try:
            self._check(fingerprint)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextmanager
    def _change(self) -> Iterator[Connection]:
        """One transaction; undone where anything fails."""
        with self._lock, guarded(self.path):
            if identity(self._absolute) != self._file:  # what it records, and is paid for, nobody would find
                raise LedgerError(
                    f"the ledger {self.path} was deleted, moved or replaced while it was in use: put it back where it "
                    "was, or begin anew"
                )
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._lock, guarded(self.path):
            yield self._db

    def _check(self, fingerprint: Fingerprint | None) -> None:
        with self._change() as db:
            meta = dict(db.execute("SELECT key, value FROM meta"))
            if not meta and fingerprint is None:
                raise ConfigurationError(f"the ledger {self.path} is empty")
            if not meta and fingerprint is not None:
                entries = {"version": str(VERSION), "fingerprint": json.dumps(asdict(fingerprint))}
                db.executemany("INSERT INTO meta VALUES (?, ?)", entries.items())
                self.fingerprint = fingerprint
                return
        if meta.get("version") != str(VERSION):
            raise LedgerError(f"the ledger {self.path} has version {meta.get('version')}, not {VERSION}")
        with undamaged(self.path):
            self.fingerprint = Fingerprint(**json.loads(meta["fingerprint"]))
        if fingerprint is not None and fingerprint != self.fingerprint:
            if self._taken_over(fingerprint):
                return
            mine, theirs = asdict(fingerprint), asdict(self.fingerprint)
            differences = ", ".join(f"{k} {theirs[k]!r}, not {mine[k]!r}" for k in mine if mine[k] != theirs[k])
            raise ConfigurationError(
                f"the ledger {self.path} was made with {differences}: their vectors do not mix; use another ledger"
            )

    def _taken_over(self, fingerprint: Fingerprint) -> bool:
        """Take another fingerprint, if nothing belongs to the old one: no vector, no submission and no run at work."""
        with self._change() as db:
            held = db.execute("SELECT 1 FROM vectors UNION ALL SELECT 1 FROM jobs LIMIT 1").fetchone()
            if held or self._alive(db):
                return False
            db.execute("UPDATE meta SET value = ? WHERE key = 'fingerprint'", (json.dumps(asdict(fingerprint)),))
        self.fingerprint = fingerprint
        return True

    def _unfinished(self, db: Connection) -> list[RunRow]:
        query = "SELECT id, host, pid, started, lease_until FROM runs WHERE finished IS NULL AND lease_until > 0"
        return [RunRow(*row) for row in db.execute(query)]

    def _alive(self, db: Connection) -> set[int]:
        return {row.run for row in self._unfinished(db) if self._observer.dead_in(row) > 0}

    def silent_run(self) -> tuple[str, int, float] | None:
        """Return host and process of the run that is taken over next if it stays silent, and in how many seconds.

        None if no other run is at work. A run that is alive is never taken over, as its heartbeats begin the time anew.
        """
        with self._reading() as db:
            others = [(self._observer.dead_in(row), row) for row in self._unfinished(db)]
        others = [(seconds, row) for seconds, row in others if not self._observer.is_own(row)]
        if not others:
            return None
        seconds, row = min(others)
        return row.host, row.pid, max(0.0, seconds)

    def in_flight(self, run: int | None = None) -> list[InFlight]:
        """The submissions that were not collected yet: all of them, or those of one run."""
        with self._reading() as db:
            alive, now = self._alive(db), self._clock()
            rows = db.execute("SELECT run, request_id, groups, since FROM jobs ORDER BY id").fetchall()
        return [
            InFlight(request_id, sum(map(len, self._groups(groups))), now - since, owner in alive)
            for owner, request_id, groups, since in rows
            if run in (None, owner)
        ]

    def duplicate_ids(self, run: int, limit: int) -> tuple[int, list[Any]]:
        """Return how many ids several documents of a run have, and the first ``limit`` of those ids."""
        query = "FROM docs WHERE run = ? GROUP BY doc_id HAVING COUNT(*) > 1"
        with self._reading() as db:
            count = db.execute(f"SELECT COUNT(*) FROM (SELECT 1 {query})", (run,)).fetchone()[0]
            rows = db.execute(f"SELECT doc_id {query} ORDER BY MIN(seq) LIMIT ?", (run, limit)) if count else ()
            return count, [row[0] for row in rows]

    def unfinished(self, run: int) -> int:
        """Return how many documents of a run have neither a vector nor a failure."""
        query = (
            "SELECT COUNT(*) FROM docs WHERE run = ? AND NOT EXISTS (SELECT 1 FROM vectors WHERE id = text_id) "
            "AND NOT EXISTS (SELECT 1 FROM failures WHERE id = text_id)"
        )
        with self._reading() as db:
            return int(db.execute(query, (run,)).fetchone()[0])

    def _groups(self, text: str) -> list[list[int]]:
        """The text ids of each request of a job."""
        with undamaged(self.path):
            return [list(group) for group in json.loads(text)]

    def counts(self) -> dict[str, int]:
        """Rows of the whole ledger: distinct ``texts``, ``vectors``, ``waiting`` texts, ``failures``."""
        with self._reading() as db:
            tables = {
                "texts": "texts",
                "vectors": "vectors",
                "waiting": "work WHERE job IS NULL",
                "failures": "failures",
            }
            return {
                name: int(db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]) for name, table in tables.items()
            }

    def dimensions(self) -> int | None:
        """Return the length of the ledger's vectors; None if it has none yet."""
        with self._reading() as db, undamaged(self.path):
            row = db.execute("SELECT value FROM meta WHERE key = 'dimensions'").fetchone()
            return None if row is None else int(row[0])

    def last_run(self) -> int | None:
        """The last run that finished, or None."""
        with self._reading() as db:
            return db.execute("SELECT MAX(id) FROM runs WHERE finished IS NOT NULL").fetchone()[0]  # type: ignore[no-any-return]

    def failures(self, run: int, limit: int) -> tuple[int, list[Failure]]:
        """How many documents of a run have failed, and the first ``limit`` of them."""
        numbered = "SELECT doc_id, text_id, ROW_NUMBER() OVER (ORDER BY seq) - 1 AS place FROM docs WHERE run = ?"
        query = f"FROM ({numbered}) JOIN failures ON failures.id = text_id"
        with self._reading() as db:
            if not db.execute("SELECT EXISTS (SELECT 1 FROM failures)").fetchone()[0]:
                return 0, []
            count = db.execute(f"SELECT COUNT(*) {query}", (run,)).fetchone()[0]
            rows = db.execute(f"SELECT doc_id, code, message, place {query} ORDER BY place LIMIT ?", (run, limit))
            return count, [Failure(*row) for row in rows]

    def rows(self, run: int) -> Iterator[Row]:
        """The documents of a run in their order, in bounded memory.

        Raises:
            LedgerError: The ledger has forgotten the run; it keeps those of the last hour, and the last three.
        """
        last = 0
        while True:
            with self._reading() as db:
                chunk = db.execute(
                    "SELECT seq, doc_id, hash, vector FROM docs JOIN texts ON texts.id = text_id "
                    "LEFT JOIN vectors ON vectors.id = text_id WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
                    (run, last, _CHUNK),
                ).fetchall()
                if not chunk and not last and not db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone():
                    raise LedgerError(f"the ledger {self.path} has no run {run}")
            with undamaged(self.path):
                rows = [Row(doc_id, digest, _floats(vector)) for _, doc_id, digest, vector in chunk]
            yield from rows
            if len(chunk) < _CHUNK:
                return
            last = chunk[-1][0]

    def find(self, texts: Iterable[str]) -> list[array[float] | None]:
        """The vectors of texts, in their order; None where the ledger has none."""
        with self._reading() as db:
            query = "SELECT vector FROM texts JOIN vectors USING (id) WHERE hash = ?"
            rows = [db.execute(query, (text_hash(text),)).fetchone() for text in texts]
        with undamaged(self.path):
            return [None if row is None else _floats(row[0]) for row in rows]

    def message(self, text: str) -> str | None:
        """Why a text failed, or None."""
        with self._reading() as db:
            query = "SELECT message FROM texts JOIN failures USING (id) WHERE hash = ?"
            row = db.execute(query, (text_hash(text),)).fetchone()
            return None if row is None else str(row[0])


def _checked_path(path: str | os.PathLike[str]) -> Path:
    try:
        checked = Path(path)
    except TypeError:
        raise ConfigurationError(f"ledger must be a path, not {path!r:.200}") from None
    if not checked.name or "\0" in checked.name:
        raise ConfigurationError(f"ledger must be the path of a file, not {str(path)!r}")
    return checked


def _floats(data: bytes | None) -> array[float] | None:
    if data is None:
        return None
    floats = array("f")
    floats.frombytes(data)
    return floats
