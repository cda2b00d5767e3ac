"""The ledger for writing: runs, inputs, claims and results. One SQLite file.

Every change is one transaction, so a process can be killed at any point. All work belongs to a *run*. Its claims are
leases: the claims of a dead process are adopted by the next run that checks.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from workers_ai.errors import APIResponseValidationError, ConfigurationError
from workers_ai.ledger._packing import Packer
from workers_ai.ledger._records import Claim, Document, Fed, Measured, ResultRow, Stored
from workers_ai.ledger._store.file import LedgerFile
from workers_ai.ledger._store.liveness import process_start
from workers_ai.ledger._store.schema import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from sqlite3 import Connection

    from workers_ai.ledger._failure_policy import Retry
    from workers_ai.ledger._store.fingerprints import AnyFingerprint
    from workers_ai.ledger._task import Rewrite

__all__ = ["Ledger", "Probe", "existing_ledger"]

Probe: TypeAlias = Literal["failed", "new"]

_KEPT_RUNS: Final = 3
_KEPT_S: Final = 3600.0


class Ledger(LedgerFile):
    """A ledger of a run: inputs, claims and results."""

    # Runs

    def begin_run(self) -> int:
        """Begin a run; return its number. Delete the unclaimed inputs of dead runs."""
        with self._change() as db:
            cursor = db.execute(
                "INSERT INTO runs (host, pid, started, lease_until) VALUES (?, ?, ?, ?)",
                (platform.node(), os.getpid(), process_start(os.getpid()), self._clock() + self._lease_s),
            )
            run = int(cursor.lastrowid or 0)
            self._observer.beat(run)
            alive = self._alive(db)
            if alive == {run}:  # another active run may still need them
                db.execute("DELETE FROM work WHERE job IS NULL AND repairs = 0")
            self._forget(db, alive)
        return run

    def _forget(self, db: Connection, alive: set[int]) -> None:
        """Delete old runs and their lists of inputs. Keep runs of the last hour, and the last three."""
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
        """Release the inputs that the run has claimed but not sent. Accepted jobs stay for the next run.

        Raises:
            LedgerError: The lease of the run expired, and its inputs were deleted from the ledger.
        """
        self._observer.ended(run)  # first, so that other runs continue even if the disk is full
        with self._change() as db:
            for (job,) in db.execute("SELECT id FROM jobs WHERE run = ? AND request_id IS NULL", (run,)).fetchall():
                self._release(db, job)
            now = self._clock()
            ended = "UPDATE runs SET lease_until = 0, finished = ? WHERE id = ?"
            known = db.execute(ended, (now if finished else None, run)).rowcount
        if finished and not known:
            raise LedgerError(
                f"run {run} was deleted from the ledger {self.path}, since its lease had expired: run the same call "
                "again; its results are kept"
            )

    def renew(self, run: int) -> None:
        """Renew the run's claims for another lease."""
        self._observer.beat(run)
        with self._change() as db:
            db.execute("UPDATE runs SET lease_until = ? WHERE id = ?", (self._clock() + self._lease_s, run))

    # Inputs

    def feed(self, run: int, documents: Sequence[Document], *, part: int, measure: Callable[[str], Measured]) -> Fed:
        """Add documents to a run. Add inputs that are new, or failed in an earlier run, to the work.

        Args:
            run: The run.
            documents: The documents.
            part: Maximum inputs of one request.
            measure: Function that returns size and price of an input.
        """
        hashes = [document.key for document in documents]
        with self._change() as db:
            marks = ", ".join("?" * len(hashes))
            by_hash = dict(db.execute(f"SELECT hash, id FROM texts WHERE hash IN ({marks})", hashes))
            earlier = list(by_hash.values())
            if fresh := [digest for digest in dict.fromkeys(hashes) if digest not in by_hash]:
                last = db.execute("SELECT MAX(id) FROM texts").fetchone()[0] or 0
                by_hash.update(zip(fresh, itertools.count(last + 1)))
                db.executemany("INSERT INTO texts (hash, id) VALUES (?, ?)", [(key, by_hash[key]) for key in fresh])
            ids = [by_hash[digest] for digest in hashes]
            texts = dict(zip(ids, (document.text for document in documents), strict=True))
            db.executemany(
                "INSERT INTO docs (run, doc_id, text_id) VALUES (?, ?, ?)",
                [(run, document.id, text_id) for document, text_id in zip(documents, ids, strict=True)],
            )
            known = self._known(db, run, earlier)
            new = {text_id: text for text_id, text in texts.items() if text_id not in known.all}
            failed = known.failed | self._insert_work(db, run, new, part, measure)
        failing = sum(text_id in failed for text_id in ids)
        return Fed((new.keys() | known.open) - failed, known.held - failed, failing)

    def _known(self, db: Connection, run: int, ids: Iterable[int]) -> _Known:
        wanted = json.dumps(list(ids))
        if wanted == "[]":
            return _Known(set(), set(), set())
        inside = "IN (SELECT value FROM json_each(?))"
        held = {row[0] for row in db.execute(f"SELECT id FROM {self._results} WHERE id {inside}", (wanted,))}
        in_work = {row[0] for row in db.execute(f"SELECT id FROM work WHERE id {inside}", (wanted,))}
        # Keep the failure of an input that has an answer: it is the reason why the answer does not match the schema.
        db.execute(
            f"DELETE FROM failures WHERE run <> ? AND id {inside} AND id NOT IN (SELECT id FROM {self._results})",
            (run, wanted),
        )
        failed = {row[0] for row in db.execute(f"SELECT id FROM failures WHERE id {inside}", (wanted,))}
        return _Known(held, in_work, failed)

    def _insert_work(
        self, db: Connection, run: int, texts: dict[int, str], part: int, measure: Callable[[str], Measured]
    ) -> set[int]:
        """Add inputs to the work; return the ids of those that cannot be sent."""
        rows: list[tuple[object, ...]] = []
        unsendable_inputs: list[tuple[int, int | None, str]] = []
        for text_id, text in texts.items():
            size, tokens, ahead, why, _ = measure(text)
            if why is not None:
                unsendable_inputs.append((text_id, None, why))
            else:
                rows.append((text_id, text, size, tokens, part, ahead))
        db.executemany("INSERT INTO work (id, text, bytes, tokens, part, ahead) VALUES (?, ?, ?, ?, ?, ?)", rows)
        _insert_failures(db, run, unsendable_inputs)
        return {row[0] for row in unsendable_inputs}

    def still_open(self, ids: set[int]) -> set[int]:
        """Return the ids that still need a result."""
        with self._reading() as db:
            return ids & {row[0] for row in db.execute("SELECT id FROM work")}

    def waiting(self, part: int | None = None) -> int:
        """Return the number of unclaimed inputs; with ``part``, of those in requests of that size."""
        unclaimed = "SELECT COUNT(*) FROM work WHERE job IS NULL"
        with self._reading() as db:
            if part is None:  # counted in the index, without reading the table
                return int(db.execute(unclaimed).fetchone()[0])
            return int(db.execute(f"{unclaimed} AND part = ?", (part,)).fetchone()[0])

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
        budget: float | None = None,
    ) -> Claim | None:
        """Claim up to ``texts`` waiting inputs as one submission; None if none waits or fits the budget.

        Inputs of failed requests come first, in smaller requests. Inputs of rejected submissions are sent in separate
        submissions.

        Args:
            run: The run.
            texts: Maximum inputs.
            part: Maximum inputs of one request.
            max_bytes: Maximum bytes of the submission.
            max_tokens: Maximum estimated tokens of one request, if the model has such a bound.
            requests: Maximum requests of the submission, or None.
            probe: ``"failed"`` to claim only one request of failed inputs, ``"new"`` to claim only inputs that have not
                failed.
            budget: Neurons that the claim may cost at most, or None.
        """
        with self._change() as db:
            smallest = db.execute("SELECT MIN(part) FROM work WHERE job IS NULL").fetchone()[0]
            if smallest is None:
                return None
            which = "part > 0"
            full = "SELECT 1 FROM work WHERE job IS NULL AND part = ? LIMIT 1"
            if probe == "new" and db.execute(full, (part,)).fetchone():
                which = f"part = {int(part)}"
            elif smallest < 0 or (probe and smallest < part):
                which, texts = f"part = {int(smallest)}", abs(smallest)
                requests = 1 if part > 1 else requests
            rows = db.execute(
                f"SELECT id, text, bytes, tokens, part, ahead FROM work WHERE job IS NULL AND {which} "
                "ORDER BY part, id LIMIT ?",
                (texts,),
            ).fetchall()
            claim = _grouped(rows, Packer(texts, max_bytes, max_tokens, requests), part, budget)
            if not claim.groups:
                return None
            cursor = db.execute(
                "INSERT INTO jobs (run, groups, since) VALUES (?, ?, ?)", (run, json.dumps(claim.groups), self._clock())
            )
            claim.job = int(cursor.lastrowid or 0)
            taken = json.dumps(claim.ids)
            db.execute("UPDATE work SET job = ? WHERE id IN (SELECT value FROM json_each(?))", (claim.job, taken))
        return claim

    def accepted(self, run: int, job: int, request_id: str) -> bool:
        """Record an accepted submission. The record is on disk when this method returns.

        Returns:
            False if the queue has returned this request id before. Its result could belong to either submission, so all
            submissions with this id are dropped, and their inputs wait again.
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
        rows: Sequence[ResultRow],
        again: Sequence[Retry] = (),
        failures: Sequence[tuple[int, int | None, str]] = (),
        *,
        run: int,
        request_id: str | None = None,
        rewrites: Sequence[Rewrite] = (),
        misfits: Sequence[tuple[int, int | None, str]] = (),
    ) -> None:
        """Record the results of a job, and delete the job.

        Args:
            job: Its number.
            rows: Rows of the result table: input ids with their vectors or answers.
            again: Inputs to send again.
            failures: Inputs that have failed permanently: input id, code, message.
            run: The run that owns the job.
            request_id: The queue's id of the job. The result is dropped if the queue has reused the id.
            rewrites: Inputs to send again in another form.
            misfits: Stored answers that do not match the schema: input id, code, reason.

        Raises:
            APIResponseValidationError: The vectors have another length than those of the ledger.
        """
        with self._change() as db:
            if db.execute("SELECT 1 FROM request_ids WHERE id = ? AND reused", (request_id,)).fetchone():
                return
            self._store_rows(db, rows)
            _insert_failures(db, run, misfits)
            if not db.execute("DELETE FROM jobs WHERE id = ? AND run = ?", (job, run)).rowcount:
                return  # another run has adopted it, and records the rest
            db.executemany("UPDATE work SET job = NULL, part = ?, tries = ? WHERE id = ?", again)
            db.executemany(
                "UPDATE work SET job = NULL, text = ?, bytes = ?, tokens = ?, ahead = ?, repairs = repairs + 1 "
                "WHERE id = ?",
                [(text, sizes.size, sizes.tokens, sizes.ahead, input_id) for input_id, text, sizes in rewrites],
            )
            _insert_failures(db, run, failures)
            db.execute("DELETE FROM work WHERE job = ?", (job,))

    def _store_rows(self, db: Connection, rows: Sequence[ResultRow]) -> None:
        if not rows:
            return
        if self.task == "embed":
            for length in {len(row[1]) // 4 for row in rows}:
                self._check_length(db, length)
        marks = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT OR REPLACE INTO {self._results} VALUES ({marks})", rows)
        stored = json.dumps([row[0] for row in rows])
        db.execute("DELETE FROM failures WHERE id IN (SELECT value FROM json_each(?))", (stored,))

    def inputs(self, job: int) -> dict[int, Stored]:
        """Return the inputs of a job as they are stored, by input id."""
        query = "SELECT work.id, hash, text, repairs FROM work JOIN texts ON texts.id = work.id WHERE job = ?"
        with self._reading() as db:
            return {row[0]: Stored(*row[1:]) for row in db.execute(query, (job,))}

    def keys(self, ids: Sequence[int]) -> list[bytes]:
        """Return the hashes of inputs, in the order of their ids."""
        query = "SELECT id, hash FROM texts WHERE id IN (SELECT value FROM json_each(?))"
        with self._reading() as db:
            found = dict(db.execute(query, (json.dumps(list(ids)),)))
        return [found[input_id] for input_id in ids]

    def index_inputs(self) -> None:
        """Create the index that :meth:`new_answers` needs."""
        with self._change() as db:
            db.execute("CREATE INDEX IF NOT EXISTS docs_by_text ON docs (text_id)")

    def tries(self, job: int) -> dict[int, tuple[int, int]]:
        """Return maximum inputs per request, and attempts so far, of each input of a job."""
        with self._reading() as db:
            rows = db.execute("SELECT id, part, tries FROM work WHERE job = ?", (job,))
            return {text_id: (part, tries) for text_id, part, tries in rows}

    def _check_length(self, db: Connection, length: int) -> None:
        row = db.execute("SELECT value FROM meta WHERE key = 'dimensions'").fetchone()
        if row is None:
            db.execute("INSERT INTO meta VALUES ('dimensions', ?)", (str(length),))
        elif row[0] != str(length):
            raise APIResponseValidationError(
                f"the vectors have {length} dimensions; those of the ledger {self.path} have {row[0]}: "
                "use another ledger",
                model=self.fingerprint.model,
            )

    def release(self, job: int) -> None:
        """Release the inputs of a job, as if they had never been claimed."""
        with self._change() as db:
            self._release(db, job)

    def _release(self, db: Connection, job: int) -> None:
        db.execute("UPDATE work SET job = NULL WHERE job = ?", (job,))
        db.execute("DELETE FROM jobs WHERE id = ?", (job,))

    def adopt(self, run: int) -> Claim | None:
        """Adopt one accepted job of a run that has ended, and release its unsent ones."""
        with self._change() as db:
            dead = [row.run for row in self._unfinished(db) if self._observer.dead_in(row) <= 0]
            db.executemany("UPDATE runs SET lease_until = 0 WHERE id = ?", [(gone,) for gone in dead])
            alive = json.dumps([run, *(row.run for row in self._unfinished(db))])
            orphans = "SELECT id FROM jobs WHERE run NOT IN (SELECT value FROM json_each(?)) AND request_id IS NULL"
            for (job,) in db.execute(orphans, (alive,)).fetchall():
                self._release(db, job)
            row = db.execute(
                "SELECT id, groups, request_id, since FROM jobs "
                "WHERE run NOT IN (SELECT value FROM json_each(?)) LIMIT 1",
                (alive,),
            ).fetchone()
            if row is None:
                return None
            db.execute("UPDATE jobs SET run = ? WHERE id = ?", (run, row[0]))
            tokens, ahead = db.execute("SELECT SUM(tokens), SUM(ahead) FROM work WHERE job = ?", (row[0],)).fetchone()
        age_s = self._clock() - row[3]
        claim = Claim(row[0], self._groups(row[1]), tokens=tokens or 0, ahead=ahead or 0.0, request_id=row[2])
        claim.age_s = age_s
        return claim

    def holds(self, run: int, job: int) -> bool:
        """Return whether this run still owns a job: it was neither forgotten nor adopted."""
        with self._reading() as db:
            return db.execute("SELECT 1 FROM jobs WHERE id = ? AND run = ?", (job, run)).fetchone() is not None

    def give_up(self, run: int, job: int, message: str) -> int:
        """Report the inputs of a job as failed in this run, and keep the job for the next one; return their number."""
        with self._change() as db:
            ids = [text_id for (text_id,) in db.execute("SELECT id FROM work WHERE job = ?", (job,))]
            _insert_failures(db, run, [(text_id, None, message) for text_id in ids])
        return len(ids)

    def forget(self, request_id: str) -> int:
        """Forget a submission, so that its inputs are sent again. Return their number.

        Raises:
            ConfigurationError: No submission in flight has this id.
        """
        with self._change() as db:
            job = db.execute("SELECT id FROM jobs WHERE request_id = ?", (request_id,)).fetchone()
            if job is None:
                raise ConfigurationError(
                    f"the ledger {self.path} has no submission {request_id!r:.200} in flight: "
                    f"list them with `workers-ai jobs {self.path}`"
                )
            count = int(db.execute("SELECT COUNT(*) FROM work WHERE job = ?", job).fetchone()[0])
            self._release(db, job[0])
        return count


def existing_ledger(
    path: str | os.PathLike[str] | None, fingerprint: AnyFingerprint
) -> AbstractContextManager[Ledger | None]:
    """Open the ledger at a path if it exists. The value of the context is None if it does not."""
    return Ledger(path, fingerprint) if path is not None and Path(path).exists() else nullcontext()


class _Known(NamedTuple):
    """Input ids by state: those with a result, those in work, and those that have failed in this run."""

    held: set[int]
    open: set[int]
    failed: set[int]

    @property
    def all(self) -> set[int]:
        return self.held | self.open | self.failed


def _insert_failures(db: Connection, run: int, failures: Sequence[tuple[int, int | None, str]]) -> None:
    rows = [(text_id, run, code, message) for text_id, code, message in failures]
    db.executemany("INSERT OR REPLACE INTO failures (id, run, code, message) VALUES (?, ?, ?, ?)", rows)


def _grouped(
    rows: Sequence[tuple[int, str, int, int, int, float]], packer: Packer, full: int, budget: float | None
) -> Claim:
    """Group rows (id, text, bytes, tokens, part, ahead) into the requests of one submission."""
    claim = Claim(0, [], [])
    for input_id, text, size, tokens, part, ahead in rows:
        if budget is not None and claim.ahead + ahead > budget:
            break
        where = packer.add(size, tokens, min(abs(part), full))
        if where == "full":
            break
        if where == "new":
            claim.groups.append([])
            claim.texts.append([])
        claim.groups[-1].append(input_id)
        claim.texts[-1].append(text)
        claim.tokens += tokens
        claim.ahead += ahead
    return claim
