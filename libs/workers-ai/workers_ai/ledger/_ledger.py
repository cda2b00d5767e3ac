"""Working with a ledger: what of a corpus is embedded, what is in flight, and what has failed. One SQLite file.

Every change is one transaction, so that a process may die at any point. Whoever works on a ledger does so under a
*run*, whose claims are leases: those of a process that has died are taken over by the next one that looks.
"""

from __future__ import annotations

import json
import os
import platform
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from workers_ai._wire.batch import json_bytes
from workers_ai.errors import APIResponseValidationError, ConfigurationError
from workers_ai.ledger._file import LedgerFile
from workers_ai.ledger._liveness import process_start
from workers_ai.ledger._packing import Packer
from workers_ai.ledger._records import Claim, Fed, estimated_tokens, text_hash, unsendable
from workers_ai.ledger._schema import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from sqlite3 import Connection

    from workers_ai.ledger._failure_policy import Retry

__all__ = ["Ledger", "Probe"]

Probe: TypeAlias = Literal["deep", "wide"]

_KEPT_RUNS: Final = 3
_KEPT_S: Final = 3600.0


class Ledger(LedgerFile):
    """A ledger that is worked on: runs, documents in, claims and what came of them."""

    # Runs

    def begin_run(self) -> int:
        """Begin to work; gives the run's number. Forgets what runs that died had not yet claimed."""
        with self._change() as db:
            cursor = db.execute(
                "INSERT INTO runs (host, pid, started, lease_until) VALUES (?, ?, ?, ?)",
                (platform.node(), os.getpid(), process_start(os.getpid()), self._clock() + self._lease_s),
            )
            run = int(cursor.lastrowid or 0)
            self._observer.beat(run)
            alive = self._alive(db)
            if alive == {run}:  # never while another one may still need them
                db.execute("DELETE FROM work WHERE job IS NULL")
            self._forget(db, alive)
        return run

    def _forget(self, db: Connection, alive: set[int]) -> None:
        """Drop the documents of runs whose report nobody can be about to read."""
        finished = "SELECT id FROM runs WHERE finished IS NOT NULL"
        gone = db.execute(
            "DELETE FROM runs WHERE id NOT IN (SELECT value FROM json_each(?)) "
            f"AND id NOT IN ({finished} AND finished > ?) "
            f"AND id NOT IN ({finished} ORDER BY finished DESC, id DESC LIMIT ?)",
            (json.dumps(list(alive)), self._clock() - _KEPT_S, _KEPT_RUNS),
        )
        if gone.rowcount:
            db.execute("DELETE FROM docs WHERE run NOT IN (SELECT id FROM runs)")

    def end_run(self, run: int, *, finished: bool) -> None:
        """Give back what the run has claimed and not sent; jobs that were accepted stay for the next one.

        Raises:
            LedgerError: It was silent for longer than its lease, so that the ledger has forgotten its documents.
        """
        self._observer.ended(run)  # first: even where the disk is full, others may go on
        with self._change() as db:
            for (job,) in db.execute("SELECT id FROM jobs WHERE run = ? AND request_id IS NULL", (run,)).fetchall():
                self._release(db, job)
            now = self._clock()
            ended = "UPDATE runs SET lease_until = 0, finished = ? WHERE id = ?"
            known = db.execute(ended, (now if finished else None, run)).rowcount
        if finished and not known:
            raise LedgerError(
                f"the ledger {self.path} has forgotten run {run}, which was silent for too long: run the same "
                "ingestion again; what it has embedded is kept"
            )

    def renew(self, run: int) -> None:
        """Keep the run's claims for another lease."""
        self._observer.beat(run)
        with self._change() as db:
            db.execute("UPDATE runs SET lease_until = ? WHERE id = ?", (self._clock() + self._lease_s, run))

    # Documents in

    def feed(
        self, run: int, documents: Sequence[tuple[Any, str]], *, part: int, max_bytes: int, window: int | None = None
    ) -> Fed:
        """Take documents of a run; texts that are new, or have failed in an earlier run, become work.

        Args:
            run: The run.
            documents: Ids and texts.
            part: Texts of one request at most.
            max_bytes: Largest text that can be sent.
            window: Tokens that the model reads of one text, or None.
        """
        hashes = [text_hash(text) for _, text in documents]
        with self._change() as db:
            last = db.execute("SELECT MAX(id) FROM texts").fetchone()[0] or 0
            db.executemany("INSERT OR IGNORE INTO texts (hash) VALUES (?)", [(digest,) for digest in hashes])
            marks = ", ".join("?" * len(hashes))
            by_hash = dict(db.execute(f"SELECT hash, id FROM texts WHERE hash IN ({marks})", hashes))
            ids = [by_hash[digest] for digest in hashes]
            texts = dict(zip(ids, (text for _, text in documents), strict=True))
            db.executemany(
                "INSERT INTO docs (run, doc_id, text_id) VALUES (?, ?, ?)",
                [(run, doc_id, text_id) for (doc_id, _), text_id in zip(documents, ids, strict=True)],
            )
            known = self._known(db, run, [text_id for text_id in texts if text_id <= last])
            new = {text_id: text for text_id, text in texts.items() if text_id not in known.all}
            failed = known.failed | self._insert_work(db, run, new, part, max_bytes, window)
        truncated = sum(estimated_tokens(json_bytes(text)) > window for _, text in documents) if window else 0
        failing = sum(text_id in failed for text_id in ids)
        return Fed((new.keys() | known.open) - failed, known.held, failing, truncated)

    def _known(self, db: Connection, run: int, ids: Iterable[int]) -> _Known:
        wanted = json.dumps(list(ids))
        if wanted == "[]":
            return _Known(set(), set(), set())
        inside = "IN (SELECT value FROM json_each(?))"
        held = {row[0] for row in db.execute(f"SELECT id FROM vectors WHERE id {inside}", (wanted,))}
        in_work = {row[0] for row in db.execute(f"SELECT id FROM work WHERE id {inside}", (wanted,))}
        db.execute(f"DELETE FROM failures WHERE run <> ? AND id {inside}", (run, wanted))
        failed = {row[0] for row in db.execute(f"SELECT id FROM failures WHERE id {inside}", (wanted,))}
        return _Known(held, in_work, failed)

    def _insert_work(
        self, db: Connection, run: int, texts: dict[int, str], part: int, max_bytes: int, window: int | None
    ) -> set[int]:
        """Make work of texts; gives the ids of those that cannot be sent."""
        rows: list[tuple[Any, ...]] = []
        refused: list[tuple[int, int | None, str]] = []
        for text_id, text in texts.items():
            size = json_bytes(text)
            if why := unsendable(text, size, max_bytes):
                refused.append((text_id, None, why))
            else:
                rows.append((text_id, text, size, estimated_tokens(size, window), part))
        db.executemany("INSERT INTO work (id, text, bytes, tokens, part) VALUES (?, ?, ?, ?, ?)", rows)
        _insert_failures(db, run, refused)
        return {row[0] for row in refused}

    def still_open(self, ids: set[int]) -> set[int]:
        """Those of ``ids`` that are still to be embedded."""
        with self._reading() as db:
            return ids & {row[0] for row in db.execute("SELECT id FROM work")}

    def waiting(self, part: int | None = None) -> int:
        """Return the number of texts that nobody has claimed; with ``part``, of those in requests of that size."""
        query = "SELECT COUNT(*) FROM work WHERE job IS NULL AND ? IN (part, 0)"
        with self._reading() as db:
            return int(db.execute(query, (part or 0,)).fetchone()[0])

    # Claims

    def claim(
        self,
        run: int,
        *,
        texts: int,
        part: int,
        max_bytes: int,
        max_tokens: int | None,
        requests: int | None = None,
        probe: Probe | None = None,
    ) -> Claim | None:
        """Take up to ``texts`` waiting texts as one submission; None where nothing waits.

        Texts that go in smaller requests, since one of them has failed, go first, packed like all others. Those whose
        whole submission was rejected go one request at a time.

        Args:
            run: The run.
            texts: Maximum texts.
            part: Maximum texts of one request.
            max_bytes: Maximum bytes of the submission.
            max_tokens: Maximum estimated tokens of one request, if the model has such a bound.
            requests: Maximum requests of the submission, or None.
            probe: ``"deep"`` to take one request of failed texts alone, ``"wide"`` to take texts that have not failed.
        """
        with self._change() as db:
            smallest = db.execute("SELECT MIN(part) FROM work WHERE job IS NULL").fetchone()[0]
            if smallest is None:
                return None
            which = "part > 0"
            full = "SELECT 1 FROM work WHERE job IS NULL AND part = ? LIMIT 1"
            if probe == "wide" and db.execute(full, (part,)).fetchone():
                which = f"part = {int(part)}"
            elif smallest < 0 or (probe and smallest < part):
                which, texts, requests = f"part = {int(smallest)}", abs(smallest), 1
            rows = db.execute(
                f"SELECT id, text, bytes, tokens, part FROM work WHERE job IS NULL AND {which} "
                "ORDER BY part, id LIMIT ?",
                (texts,),
            ).fetchall()
            claim = _grouped(rows, Packer(texts, max_bytes, max_tokens, requests))
            cursor = db.execute(
                "INSERT INTO jobs (run, groups, since) VALUES (?, ?, ?)", (run, json.dumps(claim.groups), self._clock())
            )
            claim.job = int(cursor.lastrowid or 0)
            taken = json.dumps([text_id for group in claim.groups for text_id in group])
            db.execute("UPDATE work SET job = ? WHERE id IN (SELECT value FROM json_each(?))", (claim.job, taken))
        return claim

    def accepted(self, run: int, job: int, request_id: str) -> bool:
        """Record that the queue has accepted a submission. It is on disk when this returns.

        Returns:
            False if the queue has given this request id before. Which submission its result belongs to cannot be told,
            so all submissions with it are dropped, and their texts wait again.
        """
        with self._reading() as db:
            db.execute("PRAGMA synchronous = FULL")
        try:
            with self._change() as db:
                if db.execute("INSERT OR IGNORE INTO request_ids (id) VALUES (?)", (request_id,)).rowcount:
                    db.execute("UPDATE jobs SET request_id = ? WHERE id = ? AND run = ?", (request_id, job, run))
                    return True
                db.execute("UPDATE request_ids SET reused = 1 WHERE id = ?", (request_id,))
                earlier = db.execute("SELECT id FROM jobs WHERE request_id = ?", (request_id,)).fetchall()
                for (dropped,) in [*earlier, (job,)]:
                    self._release(db, dropped)
                return False
        finally:
            with self._reading() as db:
                db.execute("PRAGMA synchronous = NORMAL")

    def store(
        self,
        job: int,
        vectors: Sequence[tuple[int, bytes]],
        again: Sequence[Retry] = (),
        failures: Sequence[tuple[int, int | None, str]] = (),
        *,
        run: int,
        request_id: str | None = None,
    ) -> None:
        """Record what became of a job, and forget the job.

        Args:
            job: Its number.
            vectors: Text ids with their vectors.
            again: Texts to try again.
            failures: Texts that have failed for good: text id, code, message.
            run: The run that has the job.
            request_id: The queue's id of the job. A result is dropped if the queue has reused the id.

        Raises:
            APIResponseValidationError: The vectors have another length than those of the ledger.
        """
        with self._change() as db:
            if db.execute("SELECT 1 FROM request_ids WHERE id = ? AND reused", (request_id,)).fetchone():
                return
            for length in {len(vector) // 4 for _, vector in vectors}:
                self._check_length(db, length)
            db.executemany("INSERT OR REPLACE INTO vectors (id, vector) VALUES (?, ?)", vectors)
            stored = json.dumps([text_id for text_id, _ in vectors])
            db.execute("DELETE FROM failures WHERE id IN (SELECT value FROM json_each(?))", (stored,))
            if not db.execute("DELETE FROM jobs WHERE id = ? AND run = ?", (job, run)).rowcount:
                return  # another run has taken it over, and records the rest
            db.executemany("UPDATE work SET job = NULL, part = ?, tries = ? WHERE id = ?", again)
            _insert_failures(db, run, failures)
            db.execute("DELETE FROM work WHERE job = ?", (job,))

    def tries(self, job: int) -> dict[int, tuple[int, int]]:
        """Texts per request at most, and tries so far, of each text of a job."""
        with self._reading() as db:
            rows = db.execute("SELECT id, part, tries FROM work WHERE job = ?", (job,))
            return {text_id: (part, tries) for text_id, part, tries in rows}

    def _check_length(self, db: Connection, length: int) -> None:
        row = db.execute("SELECT value FROM meta WHERE key = 'dimensions'").fetchone()
        if row is None:
            db.execute("INSERT INTO meta VALUES ('dimensions', ?)", (str(length),))
        elif row[0] != str(length):
            raise APIResponseValidationError(
                f"the vectors have {length} dimensions; those of the ledger {self.path} have {row[0]}",
                model=self.fingerprint.model,
            )

    def release(self, job: int) -> None:
        """Give the texts of a job back, as if it had never been claimed."""
        with self._change() as db:
            self._release(db, job)

    def _release(self, db: Connection, job: int) -> None:
        db.execute("UPDATE work SET job = NULL WHERE job = ?", (job,))
        db.execute("DELETE FROM jobs WHERE id = ?", (job,))

    def adopt(self, run: int) -> Claim | None:
        """Take over one accepted job of a run that has ended; its unsent ones go back to the texts that wait."""
        with self._change() as db:
            dead = [row.run for row in self._unfinished(db) if self._observer.dead_in(row) <= 0]
            db.executemany("UPDATE runs SET lease_until = 0 WHERE id = ?", [(gone,) for gone in dead])
            alive = json.dumps([run, *(row.run for row in self._unfinished(db))])
            orphans = "SELECT id FROM jobs WHERE run NOT IN (SELECT value FROM json_each(?)) AND request_id IS NULL"
            for (job,) in db.execute(orphans, (alive,)).fetchall():
                self._release(db, job)
            row = db.execute(
                "SELECT id, groups, request_id, since, (SELECT SUM(tokens) FROM work WHERE job = jobs.id) FROM jobs "
                "WHERE run NOT IN (SELECT value FROM json_each(?)) LIMIT 1",
                (alive,),
            ).fetchone()
            if row is None:
                return None
            db.execute("UPDATE jobs SET run = ? WHERE id = ?", (run, row[0]))
        age_s = self._clock() - row[3]
        return Claim(row[0], self._groups(row[1]), tokens=row[4] or 0, request_id=row[2], age_s=age_s)

    def holds(self, run: int, job: int) -> bool:
        """Whether a job is still that of this run: it was neither forgotten nor taken over."""
        with self._reading() as db:
            return db.execute("SELECT 1 FROM jobs WHERE id = ? AND run = ?", (job, run)).fetchone() is not None

    def give_up(self, run: int, job: int, message: str) -> int:
        """Report the texts of a job as failed in this run, and keep the job for the next one; return their number."""
        with self._change() as db:
            ids = [text_id for (text_id,) in db.execute("SELECT id FROM work WHERE job = ?", (job,))]
            _insert_failures(db, run, [(text_id, None, message) for text_id in ids])
        return len(ids)

    def forget(self, request_id: str) -> int:
        """Forget a submission: its result is not collected, and its texts are sent again. Return their number.

        Raises:
            ConfigurationError: No submission in flight has this id.
        """
        with self._change() as db:
            job = db.execute("SELECT id FROM jobs WHERE request_id = ?", (request_id,)).fetchone()
            if job is None:
                raise ConfigurationError(f"the ledger {self.path} has no submission {request_id!r:.200} in flight")
            count = int(db.execute("SELECT COUNT(*) FROM work WHERE job = ?", job).fetchone()[0])
            self._release(db, job[0])
        return count


class _Known(NamedTuple):
    """Of the ids asked for: those with a vector, those in work, and those that have failed in this run."""

    held: set[int]
    open: set[int]
    failed: set[int]

    @property
    def all(self) -> set[int]:
        return self.held | self.open | self.failed


def _insert_failures(db: Connection, run: int, failures: Sequence[tuple[int, int | None, str]]) -> None:
    rows = [(text_id, run, code, message) for text_id, code, message in failures]
    db.executemany("INSERT OR REPLACE INTO failures (id, run, code, message) VALUES (?, ?, ?, ?)", rows)


def _grouped(rows: Sequence[tuple[int, str, int, int, int]], packer: Packer) -> Claim:
    """Group rows (id, text, bytes, tokens, part) into the requests of one submission."""
    claim = Claim(0, [], [])
    for text_id, text, size, tokens, part in rows:
        where = packer.add(size, tokens, abs(part))
        if where == "full":
            break
        if where == "new":
            claim.groups.append([])
            claim.texts.append([])
        claim.groups[-1].append(text_id)
        claim.texts[-1].append(text)
        claim.tokens += tokens
    return claim
