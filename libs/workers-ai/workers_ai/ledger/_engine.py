"""The engine of a run: workers, each a flow that claims inputs, sends them, and records the results."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, Literal
from weakref import WeakValueDictionary

from workers_ai._calls.polling import UNKNOWN_S, PolledJob, with_request_ids
from workers_ai._calls.queue import was_surely_rejected
from workers_ai._flow.steps import Do, Sleep
from workers_ai._wire.batch import UnclearReplyError, json_bytes
from workers_ai._wire.error_mapping import CODES, error_from_reply
from workers_ai.catalogue import USD_PER_NEURON
from workers_ai.errors import (
    APIResponseValidationError,
    BadRequestError,
    BatchError,
    BatchItemError,
    BatchTimeoutError,
    QuotaExhaustedError,
    RequestTooLargeError,
    WorkersAIError,
)
from workers_ai.ledger._failure_policy import (
    EXECUTION,
    SINGLE_REJECTIONS,
    Decision,
    Health,
    after_failed_requests,
    after_lost_job,
    error_class,
    unreachable,
)
from workers_ai.ledger._polling_queue import PendingJob, PollingQueue
from workers_ai.ledger._records import LARGE_RUN, Claim
from workers_ai.types import BatchJob, BatchStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from workers_ai._calls.queue import BatchFlows
    from workers_ai._flow.steps import Flow
    from workers_ai._wire.json_types import JSON
    from workers_ai.ledger._ledger import Ledger, Probe
    from workers_ai.ledger._progress import Bar, Tally
    from workers_ai.ledger._records import Limits
    from workers_ai.ledger._source import Documents
    from workers_ai.ledger._task import Outcome, Prepared, Task

__all__ = ["Engine", "LengthError", "Mode"]

Mode = Literal["queue", "direct"]

JOB_DEADLINE_S: Final = 86_400.0
"""Seconds after which a run gives up an unfinished job. Longer retention in the queue is not documented."""

_OLD_JOB_S: Final = 900.0
"""Seconds after which a run gives up a job that an earlier run submitted more than a day ago."""

_LAST_COLLECT_S: Final = 3600.0
"""Seconds for which a run that has stopped sending (quota, cost limit) collects the jobs in flight."""

_UNREACHED_POLLS: Final = 3

_REACHED_S: Final = 300.0
"""If any poll has succeeded within these seconds, the queue is reachable: failed polls concern one job only."""

_COLLECTORS: Final = 2
"""Workers that fetch results. Results are large, so few collectors bound the memory."""

QUEUE_WORKERS: Final = _COLLECTORS + 1
"""Workers that the queue can keep busy: one sends, the others fetch."""

_CHUNK: Final = 1000
_IDLE_S: Final = 0.1
_TURN_S: Final = 0.02
_MAX_TURN_S: Final = 10.0
_POLL_SLEEP_S: Final = 0.1
_FOREIGN_S: Final = 0.5
_ADOPT_INTERVAL_S: Final = 2.0
_OPEN_KEPT: Final = 20_000
_SMALLEST_SUBMISSION: Final = 100_000


_turns: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
if hasattr(os, "register_at_fork"):  # a lock that is held at a fork is never released in the child
    os.register_at_fork(after_in_child=_turns.clear)


def _turn_of(path: Path) -> threading.Lock:
    """Return the lock of a ledger in this process, held while a submission is sent and recorded.

    A killed process then repeats at most one submission, even if several of its runs share the ledger. A run waits at
    most ten seconds for the lock.
    """
    return _turns.setdefault(str(path.resolve()), threading.Lock())


@dataclass
class _Reading:
    """The results of a job, before they are recorded."""

    outcomes: list[Outcome]
    failed: list[tuple[list[int], BatchError]]
    misfits: list[tuple[int, int | None, str]]


@dataclass
class Engine:
    """State that the workers of one run share.

    Attributes:
        ledger: The ledger.
        run: Number of the run.
        task: The kind of work.
        batch: The flows of the queue.
        source: Documents.
        mode: ``"queue"`` or ``"direct"``.
        limits: Limits of submissions, retries and cost.
        tally: Counters of the run.
        bar: Progress bar of the counters.
        total: Number of documents, or None if unknown.
        wait: Whether to wait for the results of submissions; otherwise submit, poll once, and end.
        on_stored: Function to call with the input ids of new results, after they are on disk.
        clock: Function that returns a monotonic time in seconds.
    """

    ledger: Ledger
    run: int
    task: Task
    batch: BatchFlows
    source: Documents
    mode: Mode
    limits: Limits
    tally: Tally
    bar: Bar
    total: int | None = None
    wait: bool = True
    on_stored: Callable[[list[int]], None] | None = None
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        self._model = self.task.model
        self._part = self.task.per_request
        # A batch Worker splits submissions itself, so the halves of a failed request need separate submissions.
        self._alone = self.batch.calls.settings.batch_worker is not None
        self.task.begin(self.ledger.dimensions())
        self._exhausted = self._sending = False
        self._open: set[int] = set()
        self._open_kept = _OPEN_KEPT
        self._stray: set[int] = set()  # inputs with a new result, whose documents were not read yet in this run
        self._health = Health(SINGLE_REJECTIONS if self._part == 1 else None)
        self._pending = PollingQueue()
        self._turn = _turn_of(self.ledger.path)
        self._source_lock = threading.Lock()  # held by the worker that reads the source, which may be slow
        self._callback_lock = threading.Lock()  # held while ``on_stored`` runs
        self._lock = threading.RLock()  # held while shared counters change
        self.stopped: WorkersAIError | None = None
        self._collect_until = float("inf")
        self._reserved = self._risked = 0.0
        self._left = 0
        self._adopt_checked_at = -_ADOPT_INTERVAL_S
        self._began = self._reached_at = self.clock()
        self._idle = threading.Condition()
        self._at_work = 0

    @property
    def _per_claim(self) -> int:
        """Inputs of one submission; more in a large run, as submissions are limited per minute."""
        if self.mode == "direct":
            return self._part
        if self.limits.grown is not None and max(self.total or 0, self.tally.documents) > LARGE_RUN:
            return self.limits.grown
        return self.limits.per_job

    # Workers

    def worker(self, number: int) -> Flow[None]:
        """Process work until nothing of this run is left. The first workers also collect results."""
        with self._counted():
            while True:
                task = yield Do(partial(self._next, number < _COLLECTORS))
                if task is None:
                    return
                if isinstance(task, Sleep):
                    yield task
                elif isinstance(task, PendingJob):
                    yield from self._collect(task)
                elif task.request_id:
                    self._await_result(task, BatchJob(task.request_id, self._model, len(task.groups)))
                else:
                    yield from self._submit(task) if self.mode == "queue" else self._direct(task)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._idle:
            self._at_work += 1
        try:
            yield
        except BaseException:
            self.source.close()  # end workers that wait for documents
            raise
        finally:
            with self._idle:
                self._at_work -= 1
                self._idle.notify_all()

    def wait_for_workers(self, timeout_s: float) -> None:
        """Wait until every worker has ended, at most ``timeout_s`` seconds."""
        with self._idle:
            self._idle.wait_for(lambda: self._at_work == 0, timeout_s)

    def _submit(self, claim: Claim) -> Flow[None]:
        """Submit a claim. The next one of this process is sent once the acceptance of this one is on disk."""
        try:
            held = yield from self._await_turn()
            try:
                yield from self._send(claim)
            finally:
                if held:
                    self._turn.release()
        finally:
            self._sending = False

    def _await_turn(self) -> Flow[bool]:
        """Wait for the lock of the ledger; return whether this run holds it. After ten seconds, continue without it."""
        until = self.clock() + _MAX_TURN_S
        while not (held := self._turn.acquire(blocking=False)) and self.clock() < until:
            yield Sleep(_TURN_S, "another submission")  # a blocked thread could not end
        return held

    def _send(self, claim: Claim) -> Flow[None]:
        prepared = yield Do(partial(self._prepare, claim))
        try:
            job = yield from self.batch.send(self._model, [request.body for request in prepared])
        except WorkersAIError as exc:
            pause = yield Do(partial(self._rejected, claim, exc))
            yield Sleep(pause, str(exc))
            return
        if (yield Do(partial(self._accepted, claim, job))):
            self._await_result(claim, job)

    def _prepare(self, claim: Claim) -> list[Prepared]:
        keys = iter(self.ledger.keys(claim.ids) if self.task.reads_inputs else [b""] * claim.size)
        prepared = [self.task.prepare(texts, [next(keys) for _ in texts]) for texts in claim.texts]
        claim.contexts = [request.context for request in prepared]
        return prepared

    def _accepted(self, claim: Claim, job: BatchJob) -> bool:
        """Record an accepted submission; return False if its request id was used before."""
        claim.texts, claim.request_id = [], job.request_id or None
        self._health.accepted()
        with with_request_ids([job.request_id]):
            if not job.request_id or self.ledger.accepted(self.run, claim.job, job.request_id):
                return True
        self._settle(claim, retries=1)
        self._stop(
            BatchError(
                f"the queue returned the request id {job.request_id} for more than one submission, so that their "
                f"results cannot be assigned; none was stored: run the same call again",
                model=self._model,
                request_ids=[job.request_id],
            )
        )
        return False

    def _await_result(self, claim: Claim, job: BatchJob) -> None:
        now = self.clock()
        wait_s = _OLD_JOB_S if claim.age_s > JOB_DEADLINE_S else JOB_DEADLINE_S
        polled = PolledJob(job, self.batch.pace, self.clock, unknown_s=UNKNOWN_S)
        self._pending.put(PendingJob(now, claim, polled, now + wait_s))

    def _collect(self, pending: PendingJob) -> Flow[None]:
        """Poll a submission once."""
        claim, polled = pending.claim, pending.polled
        try:
            status = yield from self.batch.poll_once(polled)
        except WorkersAIError as exc:
            if isinstance(exc, BatchError) and not isinstance(exc, UnclearReplyError):
                pause = yield Do(partial(self._lost, claim, exc))
                yield Sleep(pause, str(exc))
                return
            # Polls of this job have failed for a quarter of an hour. The job may still exist.
            is_up = isinstance(exc, UnclearReplyError) or self.clock() - self._reached_at < _REACHED_S
            if not (is_up and self._health.succeeded):
                raise
            yield Do(partial(self._give_up, claim, f"cannot be polled ({exc.message})"))
            return
        if polled.error is None:
            self._reached_at = self.clock()
        if status is not None:
            pause = yield Do(partial(self._record, claim, status))
            yield Sleep(pause, "failed requests")
            return
        if polled.error is None:
            self._health.reached = True
        elif unreachable(polled.error) and polled.failures >= _UNREACHED_POLLS and not self._health.reached:
            raise polled.error
        if not self.wait and (polled.error is None or self._health.reached):
            with self._lock:
                self._left += 1
                self._settle(claim)
        elif (yield Do(partial(self._poll_again, pending))):
            pending.due = self.clock() + polled.wait_s()
            self._pending.put(pending)

    def _poll_again(self, pending: PendingJob) -> bool:
        """Return whether to poll an unfinished job again: it was not forgotten, and is not too old."""
        claim = pending.claim
        if not self.ledger.holds(self.run, claim.job):
            self._settle(claim)
            return False
        if self.clock() < pending.until:
            return True
        if not self._health.succeeded:
            raise BatchTimeoutError("a submission is not finished after a day", model=self._model)
        self._give_up(claim, "is still unfinished after a day")
        return False

    def _give_up(self, claim: Claim, why: str) -> None:
        """Report the inputs of a job as failed in this run. The job stays in the ledger, since it may be paid for."""
        message = (
            f"the submission {claim.request_id} {why}; the next run polls it again. To send its {self.task.noun} "
            f"again: `workers-ai jobs {self.ledger.path} --forget {claim.request_id}`"
        )
        failed = self.ledger.give_up(self.run, claim.job, message)
        with self._lock:
            self._open.difference_update(claim.ids)
            self._settle(claim, failed=failed)

    def _stop(self, error: WorkersAIError) -> None:
        """Send nothing more, collect what is in flight, then end the run with ``error``."""
        with self._lock:
            if self.stopped is None:
                self.stopped = error
                self._collect_until = self.clock() + _LAST_COLLECT_S

    def _direct(self, claim: Claim) -> Flow[None]:
        """Send a claim of one request directly."""
        try:
            status = yield from self.task.send(claim.texts[0])
        except WorkersAIError as exc:
            pause = yield Do(partial(self._rejected, claim, exc))
            yield Sleep(pause, str(exc))
            return
        pause = yield Do(partial(self._record, claim, status))
        yield Sleep(pause, "failed requests")

    # Claiming work

    def _next(self, collects: bool) -> PendingJob | Claim | Sleep | None:
        """Return the next work of a worker. A collector does not wait for the worker that reads the source."""
        now, deadline_s = self.clock(), self.limits.deadline_s
        if deadline_s is not None and now - self._began > deadline_s:
            raise BatchTimeoutError(f"the deadline of {deadline_s:g} s has passed", model=self._model)
        if self.stopped and now > self._collect_until:
            raise self.stopped
        self.bar.tick(self.tally)
        if collects and (pending := self._pending.take(now)):
            return pending
        task: Claim | Sleep | None = Sleep(_IDLE_S, "other workers")
        if self._source_lock.acquire(blocking=not (collects and self._pending)):
            try:
                task = self._take()
            finally:
                self._source_lock.release()
        if collects and self._pending and not isinstance(task, Claim):
            return Sleep(self._pending.due_in(now, _POLL_SLEEP_S), "queue")
        return task

    def _take(self) -> Claim | Sleep | None:
        if self.stopped:
            return Sleep(_IDLE_S, "jobs in flight") if self.tally.jobs else None
        if (adopted := self._adopt()) is not None:
            with self._lock:
                self._reserved += adopted.ahead
                self._count(jobs=1)
            return adopted
        if self._may_send():
            full = self._part if self._probing() == "new" else None
            while not self._exhausted and self.ledger.waiting(full) < self._per_claim:
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
        if not self.wait:
            hold_s = self._health.hold_s(self.clock())
            return Sleep(hold_s, "the service") if hold_s > 0 else None
        self._wait_for(self.ledger.silent_run())
        return Sleep(_FOREIGN_S, "other processes")

    def _probing(self) -> Probe | None:
        """Return which inputs to send next to find why everything has failed so far: failed ones, then new ones."""
        if self._health.succeeded or not self._health.blamed:
            return "failed" if self._alone else None
        return "new" if self._health.can_probe_new else "failed"

    def _may_send(self) -> bool:
        """Return whether to send now. The number of workers limits direct requests; submissions are sent one by one."""
        if self._health.hold_s(self.clock()) > 0 or (
            self.tally.jobs and self._health.blamed and not self._health.succeeded
        ):
            return False
        return self.mode == "direct" or (self.tally.jobs + self._left < self.limits.jobs and not self._sending)

    def _adopt(self) -> Claim | None:
        """Adopt a job of a run that has ended. Check for one every two seconds; None if there is none."""
        if self.clock() - self._adopt_checked_at < _ADOPT_INTERVAL_S:
            return None
        adopted = self.ledger.adopt(self.run)
        if adopted is None:
            self._adopt_checked_at = self.clock()
        return adopted

    def _feed(self) -> None:
        chunk = self.source.read(_CHUNK)
        if not chunk:
            self._exhausted = True
            return
        with self._lock:
            fed = self.ledger.feed(self.run, chunk, part=self._part, measure=self.task.measure)
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
                done=len(mine),
                failed=fed.failed,
                reused=reused,
                truncated=sum(document.is_long for document in chunk),
            )

    def _claim(self) -> Claim | None:
        budget = self._budget()
        claim = self.ledger.claim(
            self.run,
            texts=self._per_claim,
            part=self._part,
            max_bytes=self.limits.max_bytes,
            max_tokens=self.task.request_tokens,
            requests=None if self.mode == "queue" else 1,
            probe=self._probing(),
            budget=budget,
        )
        if claim is None:
            if budget is not None and not self.tally.jobs:
                self._stop(self._over_limit())
            return None
        with self._lock:
            self._reserved += claim.ahead
            self._count(jobs=1)
        self._sending = self.mode == "queue"
        return claim

    def _budget(self) -> float | None:
        """Return the neurons that may still be spent; None without a limit."""
        if self.limits.cost_usd is None:
            return None
        with self._lock:
            return self.limits.cost_usd / USD_PER_NEURON - (self.tally.neurons or 0.0) - self._reserved - self._risked

    def _over_limit(self) -> BatchError:
        limit = f"${Decimal(str(self.limits.cost_usd)).normalize():f}"
        message = f"the cost limit of {limit} is reached: run the same call again to continue "
        message += "(the limit applies to each run)"
        if not self.tally.neurons:
            message += "; nothing was sent, since one input may cost more: raise the limit"
        return BatchError(message, model=self._model)

    def _release(self, claim: Claim) -> None:
        self.ledger.release(claim.job)
        self._settle(claim)

    def _settle(self, claim: Claim, **deltas: int) -> None:
        """End a claim: release its reserved cost and count its results."""
        with self._lock:
            self._reserved -= claim.ahead
            self._count(jobs=-1, **deltas)

    # Results

    def _read(self, claim: Claim, status: BatchStatus) -> _Reading | None:
        """Read the results of a job; None if another run has recorded them."""
        stored = self.ledger.inputs(claim.job) if self.task.reads_inputs else {}
        if self.task.reads_inputs and not stored.keys() >= set(claim.ids):
            return None
        keys = [stored[input_id].key for input_id in claim.ids] if stored else None
        reading = _Reading([], [], [])
        for index, (group, item) in enumerate(zip(claim.groups, self.task.match(status.items, keys), strict=True)):
            if item.error is not None:
                reading.failed.append((group, item.error))
                continue
            inputs = [stored[input_id] for input_id in group] if stored else []
            if stored and not claim.contexts:
                context = self.task.prepare([entry.text for entry in inputs], [entry.key for entry in inputs]).context
            else:
                context = claim.contexts[index] if claim.contexts else None
            outcome = self.task.read(group, item, inputs, context, claim.request_id)
            if outcome.error is not None:
                reading.failed.append((group, outcome.error))
            else:
                reading.outcomes.append(outcome)
                reading.misfits += [(row[0], None, outcome.misfit) for row in outcome.rows if outcome.misfit]
        return reading

    def _record(self, claim: Claim, status: BatchStatus) -> float:
        """Store the results of a job; return the seconds to wait before the next request."""
        reading = self._read(claim, status)
        if reading is None:
            self._settle(claim)
            return 0.0
        failed = reading.failed
        if reading.outcomes:
            self._health.succeed()
        decision = after_failed_requests(
            failed,
            self.ledger.tries(claim.job) if failed else {},
            size=self._part,
            alone=self._alone,
            outage=len(failed) == len(claim.groups) > 1,
            per_request=self._part,
        )
        answered = sum(max(1, len(outcome.rows)) for outcome in reading.outcomes)
        usage = self.task.share(reading.outcomes, status.usage, claim.tokens * answered // max(1, claim.size))
        rows = [row for outcome in reading.outcomes for row in outcome.rows]
        rewrites = [outcome.again for outcome in reading.outcomes if outcome.again is not None]
        with self._lock:
            self.ledger.store(
                claim.job, rows, decision.again, decision.failures, run=self.run, request_id=claim.request_id,
                rewrites=rewrites, misfits=reading.misfits,
            )  # fmt: skip
            stored = {row[0] for row in rows}
            misfit = {input_id for input_id, _, _ in reading.misfits}
            mine = (stored - misfit) & self._open
            self._stray |= stored - misfit - mine
            misfit &= self._open
            self._open -= stored
            self.tally.charge(usage.input_tokens, self.task.neurons(usage), usage.output_tokens)
            retries = len(rewrites) + bool(decision.again)
            self._settle(claim, done=len(mine), failed=len(decision.failures) + len(misfit), retries=retries)
        if self.on_stored is not None and rows:
            with self._callback_lock:
                self.on_stored([row[0] for row in rows])
        self._health.mismatch([error for _, error in failed if isinstance(error, LengthError)])
        return self._apply(decision)

    def _apply(self, decision: Decision) -> float:
        """Apply a decision to the run; return the seconds to wait.

        Raises:
            WorkersAIError: All requests so far have failed.
        """
        if decision.stops is not None:
            self._stop(as_status_error(decision.stops))
        self._health.blame(decision.blamed)
        if decision.waits is None:
            return 0.0
        return self._health.strike(as_status_error(decision.waits), self.clock(), items=True)

    def _lost(self, claim: Claim, error: BatchError) -> float:
        """Charge a submission that was lost or failed as a whole, and decide about its inputs."""
        tries = self.ledger.tries(claim.job)
        kind = error_class(error)
        explained = error.status_code is None and error.code not in EXECUTION  # the reply was about the job, not its id
        if explained and kind is not None and (kind.is_retryable or issubclass(kind, QuotaExhaustedError)):
            decision = (
                after_failed_requests([(list(tries), error)], tries, outage=True, per_request=self._part)
                if tries
                else Decision([], [])
            )
        else:
            decision = after_lost_job(error, tries, per_request=self._part)
        with self._lock:
            self.ledger.store(claim.job, (), decision.again, decision.failures, run=self.run)
            self.tally.charge(claim.tokens, None if self.tally.neurons is None else claim.ahead)
            self._settle(claim, failed=len(decision.failures), retries=1)
        pause = self._apply(decision)
        return pause if decision.waits or decision.stops else self._health.strike(error, self.clock())

    def _rejected(self, claim: Claim, error: WorkersAIError) -> float:
        """Handle a request that was not accepted: return the seconds until the next one, or end the run.

        A submission without a reply, or with an unreadable one, may have been accepted; it is sent again once.
        """
        unfit = (BadRequestError, RequestTooLargeError)
        if isinstance(error, unfit) or (self.mode == "direct" and isinstance(error, APIResponseValidationError)):
            self._unfit(claim, error)
            return 0.0
        self._release(claim)
        if isinstance(error, QuotaExhaustedError):
            self._stop(error)
            return 0.0
        is_unclear = self.mode == "queue" and isinstance(error, (APIResponseValidationError, BatchError))
        if not (error.is_retryable or is_unclear):
            raise error
        if not was_surely_rejected(error):
            self._risked += claim.ahead
            if self.mode == "queue":
                self._health.unanswered(error)
        self._count(retries=1)
        return self._health.strike(error, self.clock())

    def _unfit(self, claim: Claim, error: BadRequestError | RequestTooLargeError | APIResponseValidationError) -> None:
        """Split a rejected submission in half; a single rejected input fails."""
        half = sum(json_bytes(text) for texts in claim.texts for text in texts) // 2
        if isinstance(error, RequestTooLargeError) and claim.size > 1 and half >= _SMALLEST_SUBMISSION:
            self._release(claim)
            self.limits.max_bytes = min(self.limits.max_bytes, half)
            return
        code = getattr(error, "code", None)
        item = BatchItemError(error.message, index=0, code=code, model=self._model)
        tries = self.ledger.tries(claim.job)
        decision = after_failed_requests([(claim.ids, item)], tries, alone=True, per_request=self._part)
        self.ledger.store(claim.job, (), decision.again, decision.failures, run=self.run)
        self._settle(claim, failed=len(decision.failures), retries=1)
        self._health.rejected(error)

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

    remedy = "Use another ledger."


def as_status_error(error: BatchError) -> WorkersAIError:
    """Return an item's error in the class that its code or text determines."""
    if error_class(error) is None:
        return error
    status = CODES[error.code][1] if error.code in CODES else 429
    body: JSON = {"success": False, "errors": [{"code": error.code, "message": error.message}]}
    known = error_from_reply(status, {}, error.message, model=error.model, body=body)
    known.request_ids = error.request_ids
    return known
