"""One run from begin to end: :func:`run` and :func:`arun`."""

from __future__ import annotations

import time
from collections.abc import Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from workers_ai._flow.concurrency import agather, gather
from workers_ai.errors import BatchItemError, WorkersAIError
from workers_ai.ledger._engine import QUEUE_WORKERS, Engine, Mode
from workers_ai.ledger._ledger import Ledger
from workers_ai.ledger._progress import Bar, NoBar, Tally, progress_bar
from workers_ai.ledger._source import AsyncDocuments, SyncDocuments
from workers_ai.ledger._store.file import LEASE_S
from workers_ai.ledger._store.schema import LedgerError

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator

    from workers_ai._connection import Connection, Transport
    from workers_ai._flow.steps import Flow
    from workers_ai.ledger._records import Failure, Limits
    from workers_ai.ledger._source import Documents
    from workers_ai.ledger._store.fingerprints import AnyFingerprint
    from workers_ai.ledger._task import Task

__all__ = ["Outline", "Run", "arun", "run", "shown", "total_of"]

FAILURES_LISTED: Final = 10_000

_WORKERS_END_S: Final = 30.0
"""Seconds to wait for requests in flight after an error."""

_INTERRUPTED_S: Final = 2.0
"""Seconds to wait after an interrupt or a cancellation, since a user waits for the end."""

_BEATS_PER_LEASE: Final = 10


@dataclass(frozen=True)
class Outline:
    """Options of a run.

    Attributes:
        ledger: Path of the ledger.
        fingerprint: Options that change the results.
        mode: ``"queue"`` or ``"direct"``.
        limits: Limits of the run.
        bar: Display of the progress.
        total: Number of inputs, or None.
        wait: Whether to wait for the results of submissions.
        take_over: Treat runs of other hosts as dead at once.
        raise_on_failure: Raise when an input failed.
        on_stored: Function to call with the run and the input ids of new results.
    """

    ledger: str | os.PathLike[str]
    fingerprint: AnyFingerprint
    mode: Mode
    limits: Limits
    bar: Bar
    total: int | None = None
    wait: bool = True
    take_over: bool = False
    raise_on_failure: bool = False
    on_stored: Callable[[Run, list[int]], None] | None = None


def shown(progress: bool | Bar, total: int | None, task: Task) -> Bar:
    """Return the progress bar for the argument ``progress``."""
    if not isinstance(progress, bool):
        return progress
    return progress_bar(total, task.verb, task.noun) if progress else NoBar()


def total_of(source: object, total: int | None) -> int | None:
    """Return the number of inputs: as given, else the length of the source; None if unknown."""
    return len(source) if total is None and isinstance(source, Sized) else total


@dataclass
class Run:
    """One run: its engine, its options and its results."""

    engine: Engine
    outline: Outline
    began: float
    finished: bool = False
    interrupted: bool = False
    failures: list[Failure] = field(default_factory=list)
    pending: int = 0
    duplicate_ids: int = 0
    request_ids: tuple[str, ...] = ()
    seconds: float = 0.0
    ended: Event = field(default_factory=Event)

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return self.engine.ledger

    @property
    def number(self) -> int:
        """The run's number in the ledger."""
        return self.engine.run

    @property
    def tally(self) -> Tally:
        """The counters."""
        return self.engine.tally

    @classmethod
    def begin(cls, task: Task, documents: Documents, outline: Outline, connection: Connection) -> Run:
        """Open the ledger and begin a run."""
        began = time.monotonic()
        ledger = Ledger(outline.ledger, outline.fingerprint, take_over=outline.take_over)
        try:
            number = ledger.begin_run()
        except BaseException:
            ledger.close()
            raise
        engine = Engine(
            ledger=ledger,
            run=number,
            task=task,
            batch=connection.queue,
            source=documents,
            mode=outline.mode,
            limits=outline.limits,
            tally=Tally(task.model, task.verb),
            bar=outline.bar,
            total=outline.total,
            wait=outline.wait,
            clock=connection.calls.clock,
        )
        begun = cls(engine, outline, began)
        if (on_stored := outline.on_stored) is not None:
            ledger.index_inputs()
            engine.on_stored = lambda ids: on_stored(begun, ids)
        Thread(target=begun._keep_lease, name="workers-ai-lease", daemon=True).start()
        return begun

    def _keep_lease(self) -> None:
        """Renew the lease until the run ends, even while the source, the queue or a request is slow."""
        while not self.ended.wait(LEASE_S / _BEATS_PER_LEASE):
            with suppress(LedgerError):  # a worker raises the same error
                self.ledger.renew(self.number)

    def complete(self) -> None:
        """Read the failures and counts of the run, after all workers have ended without an error."""
        engine, tally = self.engine, self.tally
        tally.failed, self.failures = self.ledger.failures(self.number, FAILURES_LISTED)
        if engine.stopped is None and (open_inputs := self.ledger.unfinished(self.number)):
            if self.outline.wait:
                raise LedgerError(
                    f"{open_inputs:,} {engine.task.noun} have no result in the ledger {self.ledger.path}, since "
                    "another process deleted them: run the same call again; its results are kept"
                )
            self.pending = open_inputs
        tally.reused = tally.documents - tally.done - tally.failed - self.pending
        if not self.outline.wait and self.outline.total is not None:
            self.pending += max(0, self.outline.total - tally.documents)  # not read yet
        tally.waits_for = None
        engine.bar.show(tally)
        self.finished = engine.stopped is None
        self.duplicate_ids = self.ledger.duplicate_ids(self.number, 0)[0]
        self.request_ids = self._in_flight()
        self.seconds = time.monotonic() - self.began

    def _in_flight(self) -> tuple[str, ...]:
        return tuple(job.request_id for job in self.ledger.in_flight(self.number) if job.request_id)

    def end(self) -> None:
        """Wait for the requests in flight, release the unsent inputs, and close the ledger."""
        engine = self.engine
        engine.bar.close()
        self.ended.set()
        try:
            engine.wait_for_workers(_INTERRUPTED_S if self.interrupted else _WORKERS_END_S)
        finally:  # release the ledger even on a second interrupt
            try:
                self.ledger.end_run(self.number, finished=self.finished)
            finally:
                self.ledger.close()

    def raise_errors(self) -> None:
        """Raise the error that stopped the run, or with ``raise_on_failure`` the first failure."""
        if self.engine.stopped is not None:
            raise self.engine.stopped
        if self.tally.failed and self.outline.raise_on_failure:
            first = self.failures[0]
            raise BatchItemError(
                f"{self.tally.failed} of {self.tally.documents} inputs failed; the first: {first.message}",
                index=first.position, external_reference=str(first.id), code=first.code, model=self.tally.model,
            )  # fmt: skip

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Add the ids of pending submissions to the error that ends the run; end quickly after an interrupt."""
        try:
            yield
        except WorkersAIError as exc:
            if not exc.request_ids:
                exc.request_ids = self._in_flight()
            raise
        except BaseException as exc:
            self.interrupted = not isinstance(exc, Exception)
            raise


def run(
    task: Task,
    source: Iterable[object],
    outline: Outline,
    connection: Connection,
    complete: Callable[[Run], None] | None = None,
) -> Run:
    """Process a source, and return the ended run.

    Args:
        task: The kind of work.
        source: The inputs.
        outline: Options of the run.
        connection: The connection.
        complete: Function to call at the end, while the ledger is open.
    """
    documents = SyncDocuments(source, task.document)
    begun = Run.begin(task, documents, outline, connection)
    try:
        with begun.ending():
            gather(*_workers(begun, connection), documents)
            begun.complete()
            if complete is not None:
                complete(begun)
    finally:
        begun.end()
    begun.raise_errors()
    return begun


async def arun(
    task: Task,
    source: Iterable[object] | AsyncIterable[object],
    outline: Outline,
    connection: Connection,
    complete: Callable[[Run], None] | None = None,
) -> Run:
    """:func:`run` without blocking the event loop."""
    import anyio

    in_thread = anyio.to_thread.run_sync
    documents = AsyncDocuments(source, task.document)
    begun = await in_thread(Run.begin, task, documents, outline, connection)
    try:
        with begun.ending():
            await _serving(documents, agather(*_workers(begun, connection)))
            await in_thread(begun.complete)
            if complete is not None:
                await in_thread(complete, begun)
    finally:
        with anyio.CancelScope(shield=True):
            await in_thread(begun.end)
    begun.raise_errors()
    return begun


async def _serving(documents: AsyncDocuments, work: Awaitable[object]) -> None:
    """Await the workers while a task reads documents for them; raise their error."""
    import anyio

    error: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(documents.serve)
        try:
            await work
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as exc:  # noqa: BLE001 - raised below, without the group around it
            error = exc
        tasks.cancel_scope.cancel()
    if error is not None:
        raise error


def _workers(begun: Run, connection: Connection) -> tuple[list[Flow[None]], Transport, int]:
    count = connection.calls.concurrency
    if begun.outline.mode == "queue":
        count = min(count, QUEUE_WORKERS)
    return [begun.engine.worker(number) for number in range(count)], connection.transport, count
