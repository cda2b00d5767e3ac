"""The ledger as a file: open, check and read it."""

from __future__ import annotations

import json
import os
import threading
import time
from array import array
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workers_ai.errors import ConfigurationError
from workers_ai.ledger._records import AnswerRow, Failure, InFlight, Row, text_hash
from workers_ai.ledger._store.fingerprints import differences, read_fingerprint, task_of
from workers_ai.ledger._store.liveness import Observer, RunRow
from workers_ai.ledger._store.schema import VERSION, LedgerError, connect, guarded, identity, undamaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from sqlite3 import Connection
    from typing import Self

    from workers_ai.ledger._store.fingerprints import AnyFingerprint, TaskName

__all__ = ["LEASE_S", "LedgerFile"]

LEASE_S: Final = 900.0
"""Seconds for which a run without heartbeats keeps its claims: longer than any request. The claims of a dead process of
this machine are released at once."""

_CHUNK: Final = 1000
_ANSWER: Final = "answer, finish, input_tokens, output_tokens, neurons"


class LedgerFile:
    """One ledger file. Methods are safe from any thread; several processes may share the file on a local disk.

    Args:
        path: The file; created if it is missing.
        fingerprint: Options that change the results; None to read a ledger as it is.
        task: The kind of ledger that is expected if ``fingerprint`` is None; None for any.
        lease_s: Seconds for which a run without heartbeats keeps its claims.
        clock: Function that returns the seconds since the epoch.
        monotonic: Function that returns a monotonic time in seconds; defaults to ``clock`` if that is given.
        take_over: Treat runs of other hosts as dead at once.

    Raises:
        ConfigurationError: The ledger has another fingerprint or task, or ``path`` is not a path.
        LedgerError: The file cannot be used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fingerprint: AnyFingerprint | None = None,
        *,
        task: TaskName | None = None,
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
            raise ConfigurationError(f"there is no ledger at {self.path}: check the path")
        monotonic = monotonic or (time.monotonic if clock is time.time else clock)
        self._observer = Observer(str(self.path.resolve()), lease_s, clock, monotonic, take_over=take_over)
        self._db: Connection = connect(self.path, create=fingerprint is not None)
        self._file = identity(self.path)
        try:
            self._check(fingerprint, task)
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
        """Run one transaction; roll it back on any error."""
        with self._lock, guarded(self.path):
            if identity(self._absolute) != self._file:  # writing to a deleted file would lose paid results
                raise LedgerError(
                    f"the ledger {self.path} was deleted, moved or replaced while it was in use: restore it, "
                    "or run the same call again with another ledger"
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

    def _check(self, fingerprint: AnyFingerprint | None, task: TaskName | None) -> None:
        with self._change() as db:
            meta = dict(db.execute("SELECT key, value FROM meta"))
            if not meta and fingerprint is None:
                raise ConfigurationError(f"the ledger {self.path} is empty: pass the ledger of a run")
            if not meta and fingerprint is not None:
                self._write_fingerprint(db, fingerprint)
                return
        if meta.get("version") != str(VERSION):
            raise LedgerError(
                f"the ledger {self.path} has version {meta.get('version')}, not {VERSION}: "
                "use the release that wrote it, or another ledger"
            )
        with undamaged(self.path):
            self.fingerprint = read_fingerprint(meta.get("task", "embed"), meta["fingerprint"])
        self.task = task_of(self.fingerprint)
        wanted = task if fingerprint is None else task_of(fingerprint)
        if fingerprint is not None and fingerprint != self.fingerprint and self._replaced(fingerprint):
            return
        if wanted not in (None, self.task):
            holds = {"embed": "embeddings", "generate": "answers"}
            raise ConfigurationError(
                f"the ledger {self.path} holds {holds[self.task]}, not {holds[wanted]}: use another ledger"
            )
        if fingerprint is not None and fingerprint != self.fingerprint:
            raise ConfigurationError(
                f"the ledger {self.path} was created with {differences(self.fingerprint, fingerprint)}: their results "
                "cannot be mixed; use another ledger"
            )

    def _write_fingerprint(self, db: Connection, fingerprint: AnyFingerprint) -> None:
        self.fingerprint, self.task = fingerprint, task_of(fingerprint)
        # Earlier releases read ledgers of embeddings without the entry "task".
        entries = {"version": str(VERSION), "fingerprint": json.dumps(asdict(fingerprint))}
        if self.task != "embed":
            entries["task"] = self.task
        db.execute("DELETE FROM meta WHERE key = 'task'")
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", entries.items())

    def _replaced(self, fingerprint: AnyFingerprint) -> bool:
        """Replace the fingerprint if nothing depends on it: no result, no submission, and no active run."""
        with self._change() as db:
            held = db.execute(
                "SELECT 1 FROM vectors UNION ALL SELECT 1 FROM answers UNION ALL SELECT 1 FROM jobs LIMIT 1"
            ).fetchone()
            if held or self._alive(db):
                return False
            self._write_fingerprint(db, fingerprint)
        return True

    @property
    def _results(self) -> str:
        """The table of results."""
        return "vectors" if self.task == "embed" else "answers"

    def _unfinished(self, db: Connection) -> list[RunRow]:
        query = "SELECT id, host, pid, started, lease_until FROM runs WHERE finished IS NULL AND lease_until > 0"
        return [RunRow(*row) for row in db.execute(query)]

    def _alive(self, db: Connection) -> set[int]:
        return {row.run for row in self._unfinished(db) if self._observer.dead_in(row) > 0}

    def silent_run(self) -> tuple[str, int, float] | None:
        """Return host and process of the run whose claims expire next, and the seconds until then.

        None if no other run is active. The heartbeats of an active run renew its claims.
        """
        with self._reading() as db:
            others = [(self._observer.dead_in(row), row) for row in self._unfinished(db)]
        others = [(seconds, row) for seconds, row in others if not self._observer.is_own(row)]
        if not others:
            return None
        seconds, row = min(others)
        return row.host, row.pid, max(0.0, seconds)

    def in_flight(self, run: int | None = None) -> list[InFlight]:
        """Return the submissions that were not collected yet: all of them, or those of one run."""
        with self._reading() as db:
            alive, now = self._alive(db), self._clock()
            rows = db.execute("SELECT run, request_id, groups, since FROM jobs ORDER BY id").fetchall()
        return [
            InFlight(request_id, sum(map(len, self._groups(groups))), now - since, owner in alive)
            for owner, request_id, groups, since in rows
            if run in (None, owner)
        ]

    def duplicate_ids(self, run: int, limit: int) -> tuple[int, list[Any]]:
        """Return the number of ids that several documents of a run share, and the first ``limit`` of these ids."""
        query = "FROM docs WHERE run = ? GROUP BY doc_id HAVING COUNT(*) > 1"
        with self._reading() as db:
            count = db.execute(f"SELECT COUNT(*) FROM (SELECT 1 {query})", (run,)).fetchone()[0]
            rows = db.execute(f"SELECT doc_id {query} ORDER BY MIN(seq) LIMIT ?", (run, limit)) if count else ()
            return count, [row[0] for row in rows]

    def unfinished(self, run: int) -> int:
        """Return the number of documents of a run with neither a result nor a failure."""
        query = (
            "SELECT COUNT(*) FROM docs WHERE run = ? "
            f"AND NOT EXISTS (SELECT 1 FROM {self._results} WHERE id = text_id) "
            "AND NOT EXISTS (SELECT 1 FROM failures WHERE id = text_id)"
        )
        with self._reading() as db:
            return int(db.execute(query, (run,)).fetchone()[0])

    def _groups(self, text: str) -> list[list[int]]:
        """Return the input ids of each request of a job."""
        with undamaged(self.path):
            return [list(group) for group in json.loads(text)]

    def counts(self) -> dict[str, int]:
        """Return the rows of the ledger: distinct ``texts``, ``vectors`` or ``answers``, ``waiting``, ``failures``."""
        with self._reading() as db:
            tables = {
                "texts": "texts",
                self._results: self._results,
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

    def failures(self, run: int, limit: int) -> tuple[int, list[Failure]]:
        """Return the number of failed documents of a run, and the first ``limit`` of them."""
        numbered = "SELECT doc_id, text_id, ROW_NUMBER() OVER (ORDER BY seq) - 1 AS place FROM docs WHERE run = ?"
        query = f"FROM ({numbered}) JOIN failures ON failures.id = text_id"
        with self._reading() as db:
            if not db.execute("SELECT EXISTS (SELECT 1 FROM failures)").fetchone()[0]:
                return 0, []
            count = db.execute(f"SELECT COUNT(*) {query}", (run,)).fetchone()[0]
            rows = db.execute(f"SELECT doc_id, code, message, place {query} ORDER BY place LIMIT ?", (run, limit))
            return count, [Failure(*row) for row in rows]

    def rows(self, run: int) -> Iterator[Row]:
        """Yield the documents of a run in their order, in bounded memory.

        Raises:
            LedgerError: The run was deleted: the ledger keeps runs of the last hour, and the last three.
        """
        for chunk in self._chunks(run, "vector", "LEFT JOIN vectors ON vectors.id = text_id"):
            with undamaged(self.path):
                rows = [Row(doc_id, digest, _floats(vector)) for _, doc_id, digest, vector in chunk]
            yield from rows

    def answers(self, run: int) -> Iterator[AnswerRow]:
        """Yield the inputs of a run in their order, with their answers, in bounded memory.

        Raises:
            LedgerError: The run was deleted: the ledger keeps runs of the last hour, and the last three.
        """
        joins = "LEFT JOIN answers ON answers.id = text_id LEFT JOIN failures ON failures.id = text_id"
        position = 0
        for chunk in self._chunks(run, f"{_ANSWER}, code, message", joins):
            for row in chunk:
                yield AnswerRow._make((*row[1:], position))
                position += 1

    def answer_counts(self, run: int) -> tuple[int, int]:
        """Return the number of inputs of a run with an invalid answer, and the number with a truncated one."""
        query = (
            "SELECT COUNT(failures.id), SUM(finish = 'length') FROM docs JOIN answers ON answers.id = text_id "
            "LEFT JOIN failures ON failures.id = text_id WHERE docs.run = ?"
        )
        with self._reading() as db:
            invalid, truncated = db.execute(query, (run,)).fetchone()
        return int(invalid), int(truncated or 0)

    def new_answers(self, run: int, ids: Iterable[int]) -> list[AnswerRow]:
        """Return the inputs of a run that have one of the ids, with their answers. Positions are not counted."""
        query = (
            f"SELECT doc_id, hash, {_ANSWER}, code, message, -1 FROM json_each(?) "
            "CROSS JOIN docs ON docs.text_id = value AND docs.run = ? JOIN texts ON texts.id = value "
            "LEFT JOIN answers ON answers.id = value LEFT JOIN failures ON failures.id = value ORDER BY seq"
        )
        with self._reading() as db:
            return [AnswerRow(*row) for row in db.execute(query, (json.dumps(list(ids)), run))]

    def find_answers(self, hashes: Iterable[bytes]) -> list[AnswerRow | None]:
        """Return the answers to inputs by their hashes; None where the ledger has none. Ids are None."""
        query = f"SELECT NULL, hash, {_ANSWER}, NULL, NULL, -1 FROM texts JOIN answers USING (id) WHERE hash = ?"
        with self._reading() as db:
            rows = [db.execute(query, (digest,)).fetchone() for digest in hashes]
        return [None if row is None else AnswerRow(*row) for row in rows]

    def find_failures(self, hashes: Iterable[bytes]) -> list[tuple[int | None, str] | None]:
        """Return code and message of the failures of inputs by their hashes; None for an input that has not failed."""
        query = "SELECT code, message FROM texts JOIN failures USING (id) WHERE hash = ?"
        with self._reading() as db:
            return [db.execute(query, (digest,)).fetchone() for digest in hashes]

    def has_any(self, hashes: Iterable[bytes]) -> bool:
        """Return whether the ledger has ever recorded one of the inputs, by their hashes."""
        query = "SELECT 1 FROM texts WHERE hash = ?"
        with self._reading() as db:
            return any(db.execute(query, (digest,)).fetchone() for digest in hashes)

    def _chunks(self, run: int, columns: str, joins: str) -> Iterator[list[tuple[Any, ...]]]:
        last = 0
        while True:
            with self._reading() as db:
                chunk = db.execute(
                    f"SELECT seq, doc_id, hash, {columns} FROM docs JOIN texts ON texts.id = text_id {joins} "
                    "WHERE docs.run = ? AND seq > ? ORDER BY seq LIMIT ?",
                    (run, last, _CHUNK),
                ).fetchall()
                if not chunk and not last and not db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone():
                    raise LedgerError(
                        f"the ledger {self.path} has no run {run}, since it keeps only runs of the last hour and the "
                        "last three: run the same call again"
                    )
            yield chunk
            if len(chunk) < _CHUNK:
                return
            last = chunk[-1][0]

    def find(self, texts: Iterable[str]) -> list[array[float] | None]:
        """Return the vectors of texts, in their order; None where the ledger has none."""
        with self._reading() as db:
            query = "SELECT vector FROM texts JOIN vectors USING (id) WHERE hash = ?"
            rows = [db.execute(query, (text_hash(text),)).fetchone() for text in texts]
        with undamaged(self.path):
            return [None if row is None else _floats(row[0]) for row in rows]

    def message(self, text: str) -> str | None:
        """Return the message of the failure of a text; None if it has not failed."""
        with self._reading() as db:
            query = "SELECT message FROM texts JOIN failures USING (id) WHERE hash = ?"
            row = db.execute(query, (text_hash(text),)).fetchone()
            return None if row is None else str(row[0])


def _checked_path(path: str | os.PathLike[str]) -> Path:
    try:
        checked = Path(path)
        os.fsencode(checked)
    except (TypeError, UnicodeEncodeError):  # a lone surrogate has no bytes
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
