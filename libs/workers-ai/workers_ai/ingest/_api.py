"""Ingestion for callers: :func:`ingest` and :func:`aingest`."""

from __future__ import annotations

import time
from collections.abc import Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Literal

from workers_ai._calls.queued_embeddings import TEXTS_PER_JOB
from workers_ai._flow.concurrency import agather, gather
from workers_ai._settings.settings import reject_settings
from workers_ai._validation import require_int
from workers_ai.catalogue import lookup
from workers_ai.client import AsyncClient, Client
from workers_ai.errors import BatchItemError, ConfigurationError, WorkersAIError
from workers_ai.ingest._engine import QUEUE_WORKERS, Engine, Mode
from workers_ai.ingest._report import Bar, IngestReport, NoBar, Tally, progress_bar
from workers_ai.ingest._source import AsyncDocuments, SyncDocuments
from workers_ai.ledger._file import LEASE_S
from workers_ai.ledger._ledger import Ledger
from workers_ai.ledger._records import Fingerprint, Limits, check_manner
from workers_ai.ledger._schema import LedgerError

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterable, Awaitable, Iterable, Iterator

    from workers_ai._connection import Connection
    from workers_ai.ingest._source import Documents

__all__ = ["aingest", "ingest"]

_FAILURES_LISTED = 10_000
_WORKERS_END_S = 30.0
"""Seconds that requests in flight are waited for after an error."""

_INTERRUPTED_S = 2.0
"""The same after an interrupt or a cancellation, when somebody waits for the end."""

_BEATS_PER_LEASE = 10


@dataclass(frozen=True)
class _Options:
    """Arguments of :func:`ingest` that are no connection settings; checked."""

    ledger: str | os.PathLike[str]
    model: str
    mode: Mode = "queue"
    pooling: Literal["mean", "cls"] | None = None
    instruction: str | None = None
    truncate_inputs: bool | None = None
    normalize: bool = False
    empty_text: Literal["raise", "space"] = "raise"
    texts_per_job: int | None = None
    deadline_s: float | None = None
    limit_cost_usd: float | None = None
    raise_on_failure: bool = False
    progress: bool | Bar = True
    total: int | None = None
    take_over: bool = False

    def __post_init__(self) -> None:
        _ = self.fingerprint, self.limits  # they check themselves
        check_manner(self.model, self.mode, self.empty_text)
        require_int("total", self.total, 0, None)
        if self.limit_cost_usd is not None and lookup(self.model).usd_per_m_in is None:
            raise ConfigurationError(f"no price of {self.model} is known, so that its cost cannot be limited")

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.model, self.pooling, self.instruction, self.truncate_inputs, self.normalize)

    @property
    def limits(self) -> Limits:
        texts = TEXTS_PER_JOB if self.texts_per_job is None else self.texts_per_job
        return Limits(texts, deadline_s=self.deadline_s, cost_usd=self.limit_cost_usd)

    def bar(self, source: object) -> Bar:
        if not isinstance(self.progress, bool):
            return self.progress
        total = len(source) if self.total is None and isinstance(source, Sized) else self.total
        return progress_bar(total) if self.progress else NoBar()


@dataclass
class _Ingestion:
    """One ingestion between its beginning and its end; what both faces share."""

    engine: Engine
    options: _Options
    began: float
    finished: bool = False
    interrupted: bool = False
    report: IngestReport | None = None
    ended: Event = field(default_factory=Event)

    @classmethod
    def begin(cls, source: object, documents: Documents, options: _Options, connection: Connection) -> _Ingestion:
        began = time.monotonic()
        ledger = Ledger(options.ledger, options.fingerprint, take_over=options.take_over)
        try:
            run = ledger.begin_run()
        except BaseException:
            ledger.close()
            raise
        engine = Engine(
            ledger=ledger,
            run=run,
            batch=connection.queue,
            source=documents,
            mode=options.mode,
            limits=options.limits,
            tally=Tally(options.model),
            bar=options.bar(source),
            empty_text=options.empty_text,
            clock=connection.calls.clock,
        )
        ingestion = cls(engine, options, began)
        Thread(target=ingestion._keep_lease, name="workers-ai-lease", daemon=True).start()
        return ingestion

    def _keep_lease(self) -> None:
        """Renew the lease, however long the source, the queue or a request takes."""
        while not self.ended.wait(LEASE_S / _BEATS_PER_LEASE):
            with suppress(LedgerError):  # the workers meet the same trouble, and tell
                self.engine.ledger.renew(self.engine.run)

    def complete(self) -> None:
        """All workers have ended well: make the report."""
        engine, tally = self.engine, self.engine.tally
        failed, failures = engine.ledger.failures(engine.run, _FAILURES_LISTED)
        tally.failed, tally.reused = failed, tally.documents - tally.embedded - failed
        tally.waits_for = None
        engine.bar.show(tally)
        if engine.stopped is None and (lost := engine.ledger.unfinished(engine.run)):
            raise LedgerError(
                f"{lost:,} documents have no vector in the ledger {engine.ledger.path}, as another process has dropped "
                "their texts: run the same ingestion again; what it has embedded is kept"
            )
        self.finished = engine.stopped is None
        self.report = IngestReport(
            model=tally.model,
            embedded=tally.embedded,
            reused=tally.reused,
            failed=failed,
            failures=failures,
            retries=tally.retries,
            tokens=tally.tokens,
            neurons=tally.neurons,
            cost_usd=tally.cost_usd,
            seconds=time.monotonic() - self.began,
            ledger=engine.ledger.path,
            run=engine.run,
            truncated=tally.truncated,
            duplicate_ids=engine.ledger.duplicate_ids(engine.run, 0)[0],
        )

    def end(self) -> None:
        """Give back what was not sent, and close the ledger, once the requests in flight have brought what they can."""
        engine = self.engine
        engine.bar.close()
        self.ended.set()
        try:
            engine.wait_for_workers(_INTERRUPTED_S if self.interrupted else _WORKERS_END_S)
        finally:  # whoever interrupts twice, too, leaves a ledger that others can go on with
            try:
                engine.ledger.end_run(engine.run, finished=self.finished)
            finally:
                engine.ledger.close()

    def result(self) -> IngestReport:
        """The report, or the error that stands for it."""
        assert self.report is not None
        if self.engine.stopped is not None:
            raise self.engine.stopped
        if self.report.failed and self.options.raise_on_failure:
            first = self.report.failures[0]
            raise BatchItemError(
                f"{self.report.failed} of {self.engine.tally.documents} documents failed; the first: {first.message}",
                index=first.position, external_reference=str(first.id), code=first.code, model=self.report.model,
            )  # fmt: skip
        return self.report

    @contextmanager
    def judging_end(self) -> Iterator[None]:
        """Put the ids of what is still with the queue on the error that ends the run; be quick after an interrupt."""
        try:
            yield
        except WorkersAIError as exc:
            if not exc.request_ids:
                jobs = self.engine.ledger.in_flight(self.engine.run)
                exc.request_ids = tuple(job.request_id for job in jobs if job.request_id)
            raise
        except BaseException as exc:
            self.interrupted = not isinstance(exc, Exception)
            raise


def ingest(
    source: Iterable[Any],
    *,
    ledger: str | os.PathLike[str],
    model: str,
    client: Client | None = None,
    mode: Mode = "queue",
    pooling: Literal["mean", "cls"] | None = None,
    instruction: str | None = None,
    truncate_inputs: bool | None = None,
    normalize: bool = False,
    empty_text: Literal["raise", "space"] = "raise",
    texts_per_job: int | None = None,
    deadline_s: float | None = None,
    limit_cost_usd: float | None = None,
    raise_on_failure: bool = False,
    progress: bool | Bar = True,
    total: int | None = None,
    take_over: bool = False,
    **settings: Any,
) -> IngestReport:
    """Embed a corpus of any size, in bounded memory, so that nothing is paid for twice.

    ::

        report = ingest(documents, ledger="corpus.ledger", model="@cf/baai/bge-m3")
        for doc_id, vector in report.vectors(): ...

    Everything is recorded in the ledger, one SQLite file on a local disk. Killed at any point, the same call goes on:
    what was submitted is collected, what is missing is sent. Identical texts are sent once. Several processes may share
    a ledger. What can be paid for twice at a kill is the one submission whose acceptance had not reached the disk: they
    are sent one after the other (or, with ``mode="direct"``, the requests that were in flight).

    Args:
        source: Documents as (id, text), or as mappings with ``id`` and ``text``; read once, as the work goes on, on the
            calling thread. Ids are strings or integers.
        ledger: Path of the ledger; made where it is missing.
        model: Model id.
        client: A client to use; else one is made from ``settings``. Its ``max_concurrency`` (8) bounds the direct
            requests in flight; the queue has up to 64 submissions of a run.
        mode: ``"queue"``, or ``"direct"`` for synchronous requests.
        pooling: ``"mean"`` or ``"cls"``, for the bge family.
        instruction: Text put before each document, where the model card asks for one.
        truncate_inputs: Let the service cut texts that are too long, where the model has that option.
        normalize: Scale each vector to length 1.
        empty_text: ``"space"`` embeds one space in place of an empty text, which otherwise is reported as failed.
        texts_per_job: Texts of one submission; 1,000 by default.
        deadline_s: Seconds the run may take; None for no bound.
        limit_cost_usd: USD by list price that this run may spend; the next run has the same limit anew. None for no
            limit.
        raise_on_failure: Raise when a document failed, in place of reporting it.
        progress: Show a tqdm bar; without a terminal, a line on stderr every half minute.
        total: Number of documents, for the bar, where ``source`` has no length.
        take_over: Take runs of other hosts for dead at once. Otherwise a run whose process cannot be looked up keeps
            its claims until it was silent for a lease (15 minutes at most); the bar says how long that takes.
        **settings: Connection settings, as for :class:`~workers_ai.Client`.

    Returns:
        What came of it; its ``vectors()`` gives (id, vector).

    Raises:
        ConfigurationError: A setting does not fit, the model has no queue, or the ledger is that of another model.
        BadRequestError: A document is neither a pair of id and text nor a mapping with both.
        LedgerError: The ledger cannot be used: damaged, or its disk is full.
        BatchTimeoutError: ``deadline_s`` has passed.
        BatchItemError: A document failed, with ``raise_on_failure``.
        WorkersAIError: What stops the whole run, such as :class:`~workers_ai.errors.QuotaExhaustedError`. The ledger
            is ready to go on, and ``request_ids`` names what is still with the queue.
    """
    options = _Options(
        ledger, model, mode, pooling, instruction, truncate_inputs, normalize, empty_text, texts_per_job, deadline_s,
        limit_cost_usd, raise_on_failure, progress, total, take_over,
    )  # fmt: skip
    own = client is None
    if client is not None:
        reject_settings("ingest", settings)
    client = client or Client(**settings)
    try:
        documents = SyncDocuments(source)
        ingestion = _Ingestion.begin(source, documents, options, client._connection)
        try:
            with ingestion.judging_end():
                gather(*_workers(ingestion, client._connection), documents)
                ingestion.complete()
        finally:
            ingestion.end()
        return ingestion.result()
    finally:
        if own:
            client.close()


async def aingest(
    source: Iterable[Any] | AsyncIterable[Any],
    *,
    ledger: str | os.PathLike[str],
    model: str,
    client: AsyncClient | None = None,
    mode: Mode = "queue",
    pooling: Literal["mean", "cls"] | None = None,
    instruction: str | None = None,
    truncate_inputs: bool | None = None,
    normalize: bool = False,
    empty_text: Literal["raise", "space"] = "raise",
    texts_per_job: int | None = None,
    deadline_s: float | None = None,
    limit_cost_usd: float | None = None,
    raise_on_failure: bool = False,
    progress: bool | Bar = True,
    total: int | None = None,
    take_over: bool = False,
    **settings: Any,
) -> IngestReport:
    """:func:`ingest` without blocking the event loop; asynchronous iterables are accepted, too.

    The ledger is kept, and an iterable that is not asynchronous read, in threads.
    """
    import anyio

    options = _Options(
        ledger, model, mode, pooling, instruction, truncate_inputs, normalize, empty_text, texts_per_job, deadline_s,
        limit_cost_usd, raise_on_failure, progress, total, take_over,
    )  # fmt: skip
    own = client is None
    if client is not None:
        reject_settings("aingest", settings)
    client = client or AsyncClient(**settings)
    in_thread = anyio.to_thread.run_sync
    try:
        documents = AsyncDocuments(source)
        ingestion = await in_thread(_Ingestion.begin, source, documents, options, client._connection)
        try:
            with ingestion.judging_end():
                await _serving(documents, agather(*_workers(ingestion, client._connection)))
                await in_thread(ingestion.complete)
        finally:
            with anyio.CancelScope(shield=True):
                await in_thread(ingestion.end)
        return ingestion.result()
    finally:
        if own:
            with anyio.CancelScope(shield=True):
                await client.aclose()


async def _serving(documents: AsyncDocuments, work: Awaitable[Any]) -> None:
    """Await the workers, while this task reads the documents they ask for; raise what they raise."""
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


def _workers(ingestion: _Ingestion, connection: Connection) -> tuple[list[Any], Any, int]:
    count = connection.calls.concurrency
    if ingestion.options.mode == "queue":
        count = min(count, QUEUE_WORKERS)
    return [ingestion.engine.worker(number) for number in range(count)], connection.transport, count
