"""One ingestion: workers, each a flow that takes texts, has them embedded, and records what came of it."""

from __future__ import annotations

import struct
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from workers_ai._calls.polling import UNKNOWN_S, PolledJob, with_request_ids
from workers_ai._calls.queue import was_surely_rejected
from workers_ai._flow.steps import Do, Sleep
from workers_ai._wire.batch import MAX_SUBMISSION_BYTES, UnclearReplyError, json_bytes
from workers_ai._wire.error_mapping import CODES, error_from_reply
from workers_ai._wire.usage import read_usage
from workers_ai._wire.vectors import EmbedOptions, embed_inputs, embed_request, read_vectors
from workers_ai.catalogue import TEXTS_PER_REQUEST, USD_PER_NEURON, lookup
from workers_ai.errors import (
    APIResponseValidationError,
    APIStatusError,
    BadRequestError,
    BatchError,
    BatchItemError,
    BatchTimeoutError,
    QuotaExhaustedError,
    RequestTooLargeError,
    WorkersAIError,
)
from workers_ai.ingest._report import neurons_of
from workers_ai.ledger._failure_policy import EXECUTION, Health, Verdict, error_class, judge, judge_lost, unreachable
from workers_ai.ledger._polling_queue import Watched, Watchlist
from workers_ai.ledger._records import Claim, as_sent, input_window
from workers_ai.types import BatchItem, BatchJob, BatchStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from workers_ai._calls.queue import BatchFlows
    from workers_ai._flow.steps import Flow
    from workers_ai.ingest._report import Bar, Tally
    from workers_ai.ingest._source import Documents
    from workers_ai.ledger._ledger import Ledger, Probe
    from workers_ai.ledger._records import Limits

__all__ = ["Engine", "Mode"]

Mode = Literal["queue", "direct"]

JOB_DEADLINE_S: Final = 86_400.0
"""Seconds after which a run gives up a job that is still unfinished; nothing is said to be kept longer than a day."""

_OLD_JOB_S: Final = 900.0
"""The same for a job that an earlier run submitted more than a day ago."""

_LAST_COLLECT_S: Final = 3600.0
"""Seconds for which a run that sends nothing more (quota, cost limit) still collects what is in flight."""

_UNREACHED_POLLS: Final = 3

_HEARD_S: Final = 300.0
"""A queue that answered a poll within so many seconds is there; a job whose polls fail all the while is at fault."""

_COLLECTORS: Final = 2
"""Workers that fetch results. Each result is large, so that memory stays flat however many submissions there are."""

QUEUE_WORKERS: Final = _COLLECTORS + 1
"""Workers that the queue can keep busy: one sends, the others fetch."""

_CHUNK: Final = 1000
_IDLE_S: Final = 0.1
_GLANCE_S: Final = 0.1
_FOREIGN_S: Final = 0.5
_LOOK_AROUND_S: Final = 2.0
_OPEN_KEPT: Final = 20_000
_SMALLEST_SUBMISSION: Final = 100_000


@dataclass
class Engine:
    """What the workers of one run share.

    Attributes:
        ledger: Where everything is recorded.
        run: The run's number.
        batch: The queue, and through its ``calls`` the direct requests.
        source: Documents.
        mode: ``"queue"`` or ``"direct"``.
        limits: Bounds.
        tally: Running numbers.
        bar: Shows them.
        empty_text: ``"space"`` embeds one space in the place of an empty text, which otherwise fails.
        clock: Gives the time in seconds; never goes back.
    """

    ledger: Ledger
    run: int
    batch: BatchFlows
    source: Documents
    mode: Mode
    limits: Limits
    tally: Tally
    bar: Bar
    empty_text: Literal["raise", "space"] = "raise"
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        fingerprint = self.ledger.fingerprint
        self._model = fingerprint.model
        self._options = EmbedOptions(fingerprint.pooling, fingerprint.truncate_inputs, None, fingerprint.normalize)
        card = lookup(self._model)
        self._part = card.max_items or TEXTS_PER_REQUEST
        self._max_tokens = card.context_window
        self._window = input_window(self._model)
        # A batch Worker makes requests of its own out of a submission, so that halves must not share one.
        self._alone = self.batch.calls.settings.batch_worker is not None
        self._length = self.ledger.dimensions()
        self._texts_per_claim = self.limits.texts_per_job if self.mode == "queue" else self._part
        self._exhausted = self._sending = False
        self._open: set[int] = set()
        self._open_kept = _OPEN_KEPT
        self._stray: set[int] = set()
        self._health = Health()
        self._watched = Watchlist()
        self._taking = threading.Lock()  # held by the worker that reads the source, which may be slow
        self._lock = threading.RLock()  # around what all of them count
        self.stopped: WorkersAIError | None = None
        self._collect_until = float("inf")
        self._reserved = 0.0
        self._looked = -_LOOK_AROUND_S
        self._began = self._heard = self.clock()
        self._idle = threading.Condition()
        self._at_work = 0

    # Workers

    def worker(self, number: int) -> Flow[None]:
        """Take work until nothing of this run is left. The first workers also fetch what the queue has done."""
        with self._counted():
            while True:
                task = yield Do(partial(self._next, number < _COLLECTORS))
                if task is None:
                    return
                if isinstance(task, Sleep):
                    yield task
                elif isinstance(task, Watched):
                    yield from self._collect(task)
                elif task.request_id:
                    self._watch(task, BatchJob(task.request_id, self._model, len(task.groups)))
                else:
                    yield from self._submit(task) if self.mode == "queue" else self._direct(task)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._idle:
            self._at_work += 1
        try:
            yield
        except BaseException:
            self.source.close()  # another worker may wait for documents that never come
            raise
        finally:
            with self._idle:
                self._at_work -= 1
                self._idle.notify_all()

    def wait_for_workers(self, timeout_s: float) -> None:
        """Wait until no worker is at work any more, ``timeout_s`` seconds at most."""
        with self._idle:
            self._idle.wait_for(lambda: self._at_work == 0, timeout_s)

    def _submit(self, claim: Claim) -> Flow[None]:
        """Submit a claim. No other one is sent until it is on disk that this one was accepted."""
        requests = [embed_inputs(self._model, texts, self._options, kind="document") for texts in claim.texts]
        try:
            try:
                job = yield from self.batch.send(self._model, requests)
            except WorkersAIError as exc:
                pause = yield Do(partial(self._refused, claim, exc))
                yield Sleep(pause, str(exc))
                return
            if (yield Do(partial(self._accepted, claim, job))):
                self._watch(claim, job)
        finally:
            self._sending = False

    def _accepted(self, claim: Claim, job: BatchJob) -> bool:
        """Record an accepted submission; False if its request id is not its own."""
        claim.texts, claim.request_id = [], job.request_id or None
        self._health.accepted()
        with with_request_ids([job.request_id]):
            if not job.request_id or self.ledger.accepted(self.run, claim.job, job.request_id):
                return True
        self._settle(claim, retries=1)
        self._stop(
            BatchError(
                f"the queue gave the request id {job.request_id} to more than one submission, so that their results "
                "cannot be told apart; none was stored: run the same ingestion again",
                model=self._model,
                request_ids=[job.request_id],
            )
        )
        return False

    def _watch(self, claim: Claim, job: BatchJob) -> None:
        now = self.clock()
        patience = _OLD_JOB_S if claim.age_s > JOB_DEADLINE_S else JOB_DEADLINE_S
        watch = PolledJob(job, self.batch.pace, self.clock, unknown_s=UNKNOWN_S)
        self._watched.put(Watched(now, claim, watch, now + patience))

    def _collect(self, watched: Watched) -> Flow[None]:
        """Poll a submission once."""
        claim, watch = watched.claim, watched.watch
        try:
            status = yield from self.batch.poll_once(watch)
        except WorkersAIError as exc:
            if isinstance(exc, BatchError) and not isinstance(exc, UnclearReplyError):
                pause = yield Do(partial(self._lost, claim, exc))
                yield Sleep(pause, str(exc))
                return
            # Polls of this job have failed for a quarter of an hour. It may be there all the same.
            there = isinstance(exc, UnclearReplyError) or self.clock() - self._heard < _HEARD_S
            if not (there and self._health.succeeded):
                raise
            yield Do(partial(self._give_up, claim, f"cannot be polled ({exc.message})"))
            return
        if watch.error is None:
            self._heard = self.clock()
        if status is not None:
            pause = yield Do(partial(self._record, claim, status))
            yield Sleep(pause, "failed requests")
            return
        if watch.error is None:
            self._health.reached = True
        elif unreachable(watch.error) and watch.failures >= _UNREACHED_POLLS and not self._health.reached:
            raise watch.error
        if (yield Do(partial(self._still_ours, watched))):
            watched.due = self.clock() + watch.wait_s()
            self._watched.put(watched)

    def _still_ours(self, watched: Watched) -> bool:
        """Whether an unfinished job is to be polled again: it was neither forgotten nor is it too old."""
        claim = watched.claim
        if not self.ledger.holds(self.run, claim.job):
            self._settle(claim)
            return False
        if self.clock() < watched.until:
            return True
        if not self._health.succeeded:
            raise BatchTimeoutError("a submission is still unfinished after a day", model=self._model)
        self._give_up(claim, "is still unfinished after a day")
        return False

    def _give_up(self, claim: Claim, why: str) -> None:
        """Report the texts of a job as failed in this run. It stays in the ledger, since it may be paid for."""
        message = (
            f"the submission {claim.request_id} {why}; the next run polls it again, unless "
            f"`workers-ai jobs {self.ledger.path} --forget {claim.request_id}` has its texts sent again"
        )
        failed = self.ledger.give_up(self.run, claim.job, message)
        with self._lock:
            self._open.difference_update(text_id for group in claim.groups for text_id in group)
            self._settle(claim, failed=failed)

    def _stop(self, error: WorkersAIError) -> None:
        """Send nothing more, collect what is in flight, then end the run with ``error``."""
        with self._lock:
            if self.stopped is None:
                self.stopped = error
                self._collect_until = self.clock() + _LAST_COLLECT_S

    def _direct(self, claim: Claim) -> Flow[None]:
        """Embed a claim of one request by a direct request."""
        calls = self.batch.calls
        reject = calls.settings.on_busy != "wait"
        request = embed_request(self._model, claim.texts[0], self._options, kind="document", reject_if_busy=reject)
        try:
            reply = yield from calls.exchange(request)
        except WorkersAIError as exc:
            pause = yield Do(partial(self._refused, claim, exc))
            yield Sleep(pause, str(exc))
            return
        payload = reply.data.get("result", reply.data) if isinstance(reply.data, dict) else {}
        usage = payload.get("usage") if isinstance(payload, dict) else None
        items = [BatchItem(0, None, True, reply.data, None)]
        status = BatchStatus("done", items, read_usage(usage, reply.headers.get("cf-ai-neurons")))
        pause = yield Do(partial(self._record, claim, status))
        yield Sleep(pause, "failed requests")

    # Taking work

    def _next(self, collects: bool) -> Watched | Claim | Sleep | None:
        """What a worker does next. One that collects does not wait for another one that reads the source."""
        now, deadline_s = self.clock(), self.limits.deadline_s
        if deadline_s is not None and now - self._began > deadline_s:
            raise BatchTimeoutError(f"the deadline of {deadline_s:g} s has passed", model=self._model)
        if self.stopped and now > self._collect_until:
            raise self.stopped
        self.bar.tick(self.tally)
        if collects and (watched := self._watched.take(now)):
            return watched
        task: Claim | Sleep | None = Sleep(_IDLE_S, "other workers")
        if self._taking.acquire(blocking=not (collects and self._watched)):
            try:
                task = self._take()
            finally:
                self._taking.release()
        if collects and self._watched and not isinstance(task, Claim):
            return Sleep(self._watched.due_in(now, _GLANCE_S), "queue")
        return task

    def _take(self) -> Claim | Sleep | None:
        if self.stopped:
            return Sleep(_IDLE_S, "jobs in flight") if self.tally.jobs else None
        if (adopted := self._look_around()) is not None:
            with self._lock:
                self._reserved += neurons_of(self._model, adopted.tokens) or 0.0
                self._count(jobs=1)
            return adopted
        if self._may_send():
            full = self._part if self._probing() == "wide" else None
            while not self._exhausted and self.ledger.waiting(full) < self._texts_per_claim:
                self._feed()
            claim = self._claim() if self.ledger.waiting() else None
            if claim is not None or self.stopped:
                return claim
        if self.tally.jobs:
            return Sleep(_IDLE_S, "other workers")
        with self._lock:
            self._open = self.ledger.still_open(self._open)
        if not self._open:
            return None
        self._wait_for(self.ledger.silent_run())
        return Sleep(_FOREIGN_S, "other processes")

    def _probing(self) -> Probe | None:
        """How to find out why everything has failed so far: by one failed request, then by requests of other texts."""
        if self._health.succeeded or not self._health.blamed:
            return "deep" if self._alone else None
        return "wide" if self._health.is_deep else "deep"

    def _may_send(self) -> bool:
        """Direct requests are bounded by the workers; submissions go one after the other, and wait in the queue."""
        if self._health.hold_s(self.clock()) > 0 or (
            self.tally.jobs and self._health.blamed and not self._health.succeeded
        ):
            return False
        return self.mode == "direct" or (self.tally.jobs < self.limits.jobs and not self._sending)

    def _look_around(self) -> Claim | None:
        """Take over a job of a run that has ended; every two seconds."""
        if self.clock() - self._looked < _LOOK_AROUND_S:
            return None
        adopted = self.ledger.adopt(self.run)
        if adopted is None:
            self._looked = self.clock()
        return adopted

    def _feed(self) -> None:
        chunk = [(doc_id, self._sent(text)) for doc_id, text in self.source.read(_CHUNK)]
        if not chunk:
            self._exhausted = True
            return
        with self._lock:
            fed = self.ledger.feed(
                self.run, chunk, part=self._part, max_bytes=MAX_SUBMISSION_BYTES, window=self._window
            )
            if len(self._open) > self._open_kept:
                self._open = self.ledger.still_open(self._open)
                self._open_kept = max(_OPEN_KEPT, 2 * len(self._open))
            fresh = len(fed.open - self._open)
            self._open |= fed.open
            mine = self._stray & fed.held
            self._stray -= mine
            reused = len(chunk) - fresh - len(mine) - fed.failed
            self._count(
                documents=len(chunk),
                embedded=len(mine),
                failed=fed.failed,
                reused=reused,
                truncated=fed.truncated,
            )

    def _sent(self, text: str) -> str:
        return as_sent(text, self.ledger.fingerprint.instruction, self.empty_text)

    def _claim(self) -> Claim | None:
        claim = self.ledger.claim(
            self.run,
            texts=self._texts_per_claim,
            part=self._part,
            max_bytes=self.limits.max_bytes,
            max_tokens=self._max_tokens,
            requests=None if self.mode == "queue" else 1,
            probe=self._probing(),
        )
        if claim is None:
            return None
        with self._lock:
            self._reserved += neurons_of(self._model, claim.tokens) or 0.0
            self._count(jobs=1)
            spent = ((self.tally.neurons or 0.0) + self._reserved) * USD_PER_NEURON
        if self.limits.cost_usd is not None and spent > self.limits.cost_usd:
            self._give_back(claim)
            limit = (
                f"the cost limit of ${self.limits.cost_usd:g} is reached; the ledger is ready to go on (the limit is "
                "per run: the next one may spend as much again)"
            )
            self._stop(BatchError(limit, model=self._model))
            return None
        self._sending = self.mode == "queue"
        return claim

    def _give_back(self, claim: Claim) -> None:
        self.ledger.release(claim.job)
        self._settle(claim)

    def _settle(self, claim: Claim, **deltas: int) -> None:
        """A claim has come to its end."""
        with self._lock:
            self._reserved -= neurons_of(self._model, claim.tokens) or 0.0
            self._count(jobs=-1, **deltas)

    # What came of it

    def _record(self, claim: Claim, status: BatchStatus) -> float:
        """Put a result on disk: vectors, failures, and what is tried again; return the seconds to wait then."""
        vectors: list[tuple[int, bytes]] = []
        failed: list[tuple[list[int], BatchError]] = []
        for group, item in zip(claim.groups, status.items, strict=True):
            found = item.error or packed(
                item, self._model, len(group), normalize=self._options.normalize, length=self._length
            )
            if isinstance(found, BatchItemError):
                failed.append((group, found))
            else:
                vectors += zip(group, found, strict=True)
                self._length = len(found[0]) // 4
        if vectors:
            self._health.well()
        verdict = judge(
            failed,
            self.ledger.tries(claim.job) if failed else {},
            size=self._part,
            alone=self._alone,
            outage=len(failed) == len(claim.groups) > 1,
        )
        usage = status.usage
        told = usage.input_tokens if usage else 0
        tokens = told or claim.tokens * len(vectors) // max(1, claim.size)
        stored = {text_id for text_id, _ in vectors}
        with self._lock:
            self.ledger.store(
                claim.job, vectors, verdict.again, verdict.failures, run=self.run, request_id=claim.request_id
            )
            mine = stored & self._open
            self._stray |= stored - mine
            self._open -= mine
            self.tally.charge(tokens, usage.neurons if usage else None)
            self._settle(claim, embedded=len(mine), failed=len(verdict.failures), retries=1 if verdict.again else 0)
        self._health.mismatch([error for _, error in failed if isinstance(error, LengthError)])
        return self._heed(verdict)

    def _heed(self, verdict: Verdict) -> float:
        """Draw the conclusions for the run; return the seconds to wait.

        Raises:
            WorkersAIError: Everything fails.
        """
        if verdict.stops is not None:
            self._stop(as_status_error(verdict.stops))
        self._health.blame(verdict.blamed)
        if verdict.waits is None:
            return 0.0
        return self._health.strike(as_status_error(verdict.waits), self.clock(), items=True)

    def _lost(self, claim: Claim, error: BatchError) -> float:
        """The queue has lost or failed a whole submission: charge it, and decide about its texts."""
        tries = self.ledger.tries(claim.job)
        kind = error_class(error)
        said = error.status_code is None and error.code not in EXECUTION  # by a reply about the job, not about its id
        if said and kind is not None and (kind.is_retryable or issubclass(kind, QuotaExhaustedError)):
            verdict = judge([(list(tries), error)], tries, outage=True) if tries else Verdict([], [])
        else:
            verdict = judge_lost(error, tries)
        with self._lock:
            self.ledger.store(claim.job, (), verdict.again, verdict.failures, run=self.run)
            self.tally.charge(claim.tokens, None)
            self._settle(claim, failed=len(verdict.failures), retries=1)
        pause = self._heed(verdict)
        return pause if verdict.waits or verdict.stops else self._health.strike(error, self.clock())

    def _refused(self, claim: Claim, error: WorkersAIError) -> float:
        """A submission was not accepted: return the seconds until the next one, or end the run.

        One that may have been accepted all the same, since its reply was lost, is sent again once.
        """
        if isinstance(error, (BadRequestError, RequestTooLargeError)):
            self._unfit(claim, error)
            return 0.0
        self._give_back(claim)
        if isinstance(error, QuotaExhaustedError):
            self._stop(error)
            return 0.0
        if not error.is_retryable:
            raise error
        if self.mode == "queue" and not was_surely_rejected(error):
            self._health.unanswered(error)
        self._count(retries=1)
        return self._health.strike(error, self.clock())

    def _unfit(self, claim: Claim, error: APIStatusError) -> None:
        """The service will not have these texts together: they go in smaller submissions, a single one has failed."""
        half = sum(json_bytes(text) for texts in claim.texts for text in texts) // 2
        if isinstance(error, RequestTooLargeError) and claim.size > 1 and half >= _SMALLEST_SUBMISSION:
            self._give_back(claim)
            self.limits.max_bytes = min(self.limits.max_bytes, half)
            return
        ids = [text_id for group in claim.groups for text_id in group]
        item = BatchItemError(error.message, index=0, code=error.code, model=self._model)
        verdict = judge([(ids, item)], self.ledger.tries(claim.job), alone=True)
        self.ledger.store(claim.job, (), verdict.again, verdict.failures, run=self.run)
        self._settle(claim, failed=len(verdict.failures), retries=1)
        self._health.refused(error)

    def _wait_for(self, run: tuple[str, int, float] | None) -> None:
        with self._lock:
            self.tally.waits_for = run
            self.bar.show(self.tally)

    def _count(self, **deltas: int) -> None:
        with self._lock:
            for name, delta in deltas.items():
                setattr(self.tally, name, getattr(self.tally, name) + delta)
            self.tally.waits_for = None
            self.bar.show(self.tally)


class LengthError(BatchItemError):
    """The vectors of an item have another length than those of the ledger."""


def packed(
    item: BatchItem, model: str, count: int, *, normalize: bool, length: int | None = None
) -> list[bytes] | BatchItemError:
    """Return the vectors of an item as little-endian float32, or an error that says what is wrong with them.

    Args:
        item: The item.
        model: Model id.
        count: Number of texts.
        normalize: Scale each vector to length 1.
        length: Dimensions that vectors of this ledger have, or None if not known.
    """
    try:
        rows = read_vectors(item.result, model, count, normalize=normalize).vectors
        if length not in (None, len(rows[0])):
            return LengthError(
                f"the vectors have {len(rows[0])} dimensions, not {length}", index=item.index, model=model
            )
        pack = struct.Struct(f"<{len(rows[0])}f").pack
        return [pack(*row) for row in rows]
    except (APIResponseValidationError, OverflowError) as exc:
        return BatchItemError(str(exc), index=item.index, model=model)


def as_status_error(error: BatchError) -> WorkersAIError:
    """Return an item's error as the class that its code or text stands for."""
    if error_class(error) is None:
        return error
    status = CODES[error.code][1] if error.code in CODES else 429
    body = {"success": False, "errors": [{"code": error.code, "message": error.message}]}
    known = error_from_reply(status, {}, error.message, model=error.model, body=body)
    known.request_ids = error.request_ids
    return known
