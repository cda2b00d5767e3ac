"""One ingestion: workers, each a flow that takes texts, has them embedded, and records what came of it."""

from __future__ import annotations

import itertools
import struct
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from workers_ai.batch import surely_refused
from workers_ai.catalogue import TEXTS_PER_REQUEST, USD_PER_NEURON, lookup
from workers_ai.errors import (
    APIResponseValidationError,
    APIStatusError,
    BadRequestError,
    BatchError,
    BatchItemError,
    BatchTimeoutError,
    RequestTooLargeError,
    WorkersAIError,
)
from workers_ai.flow import Do, Sleep
from workers_ai.ingest.judge import Health, judge, judge_lost
from workers_ai.ingest.records import Claim, as_sent, checked
from workers_ai.ingest.report import neurons_of
from workers_ai.ingest.watchlist import Watched, Watchlist
from workers_ai.watch import Watch
from workers_ai.wire.batch import MAX_SUBMISSION_BYTES, BatchItem, BatchJob, BatchStatus, json_bytes
from workers_ai.wire.usage import read_usage
from workers_ai.wire.vectors import EmbedOptions, embed_inputs, embed_request, read_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from workers_ai.batch import BatchFlows
    from workers_ai.flow import Flow
    from workers_ai.ingest.ledger import Ledger
    from workers_ai.ingest.records import Limits
    from workers_ai.ingest.report import Bar, Tally

__all__ = ["Engine", "Mode"]

Mode = Literal["queue", "direct"]

JOB_DEADLINE_S: Final = 86_400.0
"""Seconds after which a job that is still unfinished ends the run; nothing is said to be kept longer than a day."""

_COLLECTORS: Final = 2
"""Workers that fetch results. Each result is large, so that memory stays flat however many submissions there are."""

QUEUE_WORKERS: Final = _COLLECTORS + 1
"""Workers that the queue can keep busy: one sends, the others fetch."""

_IDLE_S: Final = 0.1
_GLANCE_S: Final = 0.02
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
        source: Documents: (id, text).
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
    source: Iterable[tuple[Any, str]]
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
        self._texts_per_claim = self.limits.texts_per_job if self.mode == "queue" else self._part
        self._documents = iter(self.source)
        self._exhausted = self._sending = False
        self._open: set[int] = set()
        self._open_kept = _OPEN_KEPT
        self._stray: set[int] = set()
        self._health = Health()
        self._watched = Watchlist()
        self._taking = threading.Lock()  # held by the worker that reads the source, which may be slow
        self._lock = threading.RLock()  # around what all of them count
        self.stopped: BatchError | None = None
        self._reserved = 0.0
        self._looked = -_LOOK_AROUND_S
        self._began = self.clock()
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
        finally:
            with self._idle:
                self._at_work -= 1
                self._idle.notify_all()

    def wait_for_workers(self, timeout_s: float) -> None:
        """Wait until no worker is at work any more, ``timeout_s`` seconds at most."""
        with self._idle:
            self._idle.wait_for(lambda: self._at_work == 0, timeout_s)

    def _submit(self, claim: Claim) -> Flow[None]:
        """Hand a claim to the queue. No other one is sent until it is on disk that this one was accepted."""
        requests = [embed_inputs(self._model, texts, self._options, kind="document") for texts in claim.texts]
        try:
            job = yield from self.batch.send(self._model, requests)
            if job.request_id:
                yield Do(partial(self.ledger.accepted, self.run, claim.job, job.request_id))
        except WorkersAIError as exc:
            pause = yield Do(partial(self._refused, claim, exc))
            yield Sleep(pause, str(exc))
        else:
            claim.texts = []
            self._health.well()
            self._watch(claim, job)
        finally:
            self._sending = False

    def _watch(self, claim: Claim, job: BatchJob) -> None:
        now = self.clock()
        self._watched.put(Watched(now, claim, Watch(job, self.batch.pace), now))

    def _collect(self, watched: Watched) -> Flow[None]:
        """Ask for a submission once."""
        try:
            status = yield from self.batch.ask(watched.watch)
        except BatchError as exc:
            yield Do(partial(self._lost, watched.claim, exc))
            return
        if status is not None:
            yield Do(partial(self._record, watched.claim, status))
            return
        if self.clock() - watched.since > JOB_DEADLINE_S:
            raise BatchTimeoutError("a submission is still unfinished after a day", model=self._model)
        watched.due = self.clock() + watched.watch.wait_s()
        self._watched.put(watched)

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
        yield Do(partial(self._record, claim, status))

    # Taking work

    def _next(self, collects: bool) -> Watched | Claim | Sleep | None:
        """What a worker does next. One that collects does not wait for another one that reads the source."""
        now, deadline_s = self.clock(), self.limits.deadline_s
        if deadline_s is not None and now - self._began > deadline_s:
            raise BatchTimeoutError(f"the deadline of {deadline_s:g} s has passed", model=self._model)
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
            return None
        if (adopted := self._look_around()) is not None:
            self._count(jobs=1)
            return adopted
        if self._may_send():
            while not self._exhausted and self.ledger.waiting() < self._texts_per_claim:
                self._feed()
            claim = self._claim() if self.ledger.waiting() else None
            if claim is not None or self.stopped:
                return claim
        if self.tally.jobs:
            return Sleep(_IDLE_S, "other workers")
        with self._lock:
            self._open = self.ledger.still_open(self._open)
        return Sleep(_FOREIGN_S, "other processes") if self._open else None

    def _may_send(self) -> bool:
        """Direct requests are bounded by the workers; submissions go one after the other, and wait in the queue."""
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
        documents = map(checked, itertools.islice(self._documents, 1000))
        chunk = [(doc_id, self._sent(text)) for doc_id, text in documents]
        if not chunk:
            self._exhausted = True
            return
        with self._lock:
            fed = self.ledger.feed(self.run, chunk, part=self._part, max_bytes=MAX_SUBMISSION_BYTES)
            if len(self._open) > self._open_kept:
                self._open = self.ledger.still_open(self._open)
                self._open_kept = max(_OPEN_KEPT, 2 * len(self._open))
            fresh = len(fed.open - self._open)
            self._open |= fed.open
            mine = self._stray & fed.held
            self._stray -= mine
            reused = len(chunk) - fresh - len(mine) - fed.failed
            self._count(documents=len(chunk), embedded=len(mine), failed=fed.failed, reused=reused)

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
        )
        if claim is None:
            return None
        with self._lock:
            self._reserved += neurons_of(self._model, claim.tokens) or 0.0
            self._count(jobs=1)
            spent = ((self.tally.neurons or 0.0) + self._reserved) * USD_PER_NEURON
        if self.limits.cost_usd is not None and spent > self.limits.cost_usd:
            self._give_back(claim)
            limit = f"the cost limit of ${self.limits.cost_usd:g} is reached; the ledger is ready to go on"
            self.stopped = BatchError(limit, model=self._model)
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

    def _record(self, claim: Claim, status: BatchStatus) -> None:
        """Put a result on disk: vectors, failures, and what is to be tried again in smaller requests."""
        vectors: list[tuple[int, bytes]] = []
        failed: list[tuple[list[int], BatchItemError]] = []
        for group, item in zip(claim.groups, status.items, strict=True):
            found = item.error or packed(item, self._model, len(group), normalize=self._options.normalize)
            if isinstance(found, BatchItemError):
                failed.append((group, found))
            else:
                vectors += zip(group, found, strict=True)
        verdict = judge(failed, self.ledger.tries(claim.job) if failed else {})
        usage = status.usage
        told = usage.input_tokens if usage else 0
        tokens = told or claim.tokens * len(vectors) // claim.size
        stored = {text_id for text_id, _ in vectors}
        if vectors:
            self._health.well()
        with self._lock:
            self.ledger.store(claim.job, vectors, verdict.again, verdict.failures, run=self.run)
            mine = stored & self._open
            self._stray |= stored - mine
            self._open -= mine
            self.tally.charge(tokens, usage.neurons if usage else None)
            self._settle(claim, embedded=len(mine), failed=len(verdict.failures), retries=1 if verdict.again else 0)

    def _lost(self, claim: Claim, error: BatchError) -> None:
        """The queue has lost or failed a whole submission: its texts go through again, three times at most."""
        verdict = judge_lost(error, self.ledger.tries(claim.job))
        self.ledger.store(claim.job, (), verdict.again, verdict.failures, run=self.run)
        self._settle(claim, failed=len(verdict.failures), retries=1)
        self._health.strike(error, self.clock())

    def _refused(self, claim: Claim, error: WorkersAIError) -> float:
        """A submission was not taken: seconds until the next one, or the end of the run.

        One that may have been taken all the same, since its reply was lost, is sent again once.
        """
        if isinstance(error, (BadRequestError, RequestTooLargeError)):
            self._unfit(claim, error)
            return 0.0
        self._give_back(claim)
        if not error.is_retryable:
            raise error
        if self.mode == "queue" and not surely_refused(error):
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
        verdict = judge([(ids, item)], self.ledger.tries(claim.job))
        self.ledger.store(claim.job, (), verdict.again, verdict.failures, run=self.run)
        self._settle(claim, failed=len(verdict.failures), retries=1)
        self._health.refused(error)

    def _count(self, **deltas: int) -> None:
        with self._lock:
            for name, delta in deltas.items():
                setattr(self.tally, name, getattr(self.tally, name) + delta)
            self.bar.show(self.tally)


def packed(item: BatchItem, model: str, count: int, *, normalize: bool) -> list[bytes] | BatchItemError:
    """The vectors of an item as little-endian float32, or what is wrong with them."""
    try:
        rows = read_vectors(item.result, model, count, normalize=normalize).vectors
        pack = struct.Struct(f"<{len(rows[0])}f").pack
        return [pack(*row) for row in rows]
    except (APIResponseValidationError, OverflowError) as exc:
        return BatchItemError(str(exc), index=item.index, model=model)
