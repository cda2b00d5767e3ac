"""Ingestion for callers: :func:`ingest` and :func:`aingest`."""

from __future__ import annotations

import time
from collections.abc import Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Literal

from workers_ai.catalogue import lookup
from workers_ai.client import AsyncClient, Client
from workers_ai.config import reject_settings
from workers_ai.errors import BadRequestError, BatchItemError, ConfigurationError, WorkersAIError
from workers_ai.fanout import agather, gather
from workers_ai.gateway import require_int
from workers_ai.ingest.engine import QUEUE_WORKERS, Engine, Mode
from workers_ai.ingest.ledger import Ledger
from workers_ai.ingest.ledger_file import LEASE_S
from workers_ai.ingest.records import Fingerprint, Limits, check_manner
from workers_ai.ingest.report import Bar, IngestReport, NoBar, Tally, TqdmBar
from workers_ai.ingest.schema import LedgerError
from workers_ai.queued import TEXTS_PER_JOB

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from workers_ai.service import Service

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
    progress: bool = True
    total: int | None = None

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

    def bar(self, source: Iterable[Any]) -> Bar:
        if not self.progress:
            return NoBar()
        total = len(source) if self.total is None and isinstance(source, Sized) else self.total
        return TqdmBar(total)


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
    def begin(cls, source: Iterable[tuple[Any, str]], options: _Options, service: Service) -> _Ingestion:
        began = time.monotonic()
        try:
            documents = iter(source)
        except TypeError:
            message = f"the source must be an iterable of pairs of id and text, not {source!r:.200}"
            raise BadRequestError(message) from None
        ledger = Ledger(options.ledger, options.fingerprint)
        try:
            run = ledger.begin_run()
        except BaseException:
            ledger.close()
            raise
        engine = Engine(
            ledger=ledger,
            run=run,
            batch=service.queue,
            source=documents,
            mode=options.mode,
            limits=options.limits,
            tally=Tally(options.model),
            bar=options.bar(source),
            empty_text=options.empty_text,
            clock=service.calls.clock,
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
        engine.bar.show(tally)
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
    source: Iterable[tuple[Any, str]],
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
    progress: bool = True,
    total: int | None = None,
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
        source: Documents as (id, text); read once, as the work goes on. Ids are strings or integers.
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
        limit_cost_usd: Stop before more than this is spent, by list price.
        raise_on_failure: Raise when a document failed, in place of reporting it.
        progress: Show a tqdm bar.
        total: Number of documents, for the bar, where ``source`` has no length.
        **settings: Connection settings, as for :class:`~workers_ai.Client`.

    Returns:
        What came of it; its ``vectors()`` gives (id, vector).

    Raises:
        ConfigurationError: A setting does not fit, the model has no queue, or the ledger is that of another model.
        BadRequestError: A document is no pair of id and text; what came before it is not lost.
        LedgerError: The ledger cannot be used: damaged, or its disk is full.
        BatchTimeoutError: ``deadline_s`` has passed.
        BatchItemError: A document failed, with ``raise_on_failure``.
        WorkersAIError: What stops the whole run, such as :class:`~workers_ai.errors.QuotaExhaustedError`. The ledger
            is ready to go on, and ``request_ids`` names what is still with the queue.
    """
    options = _Options(
        ledger, model, mode, pooling, instruction, truncate_inputs, normalize, empty_text, texts_per_job, deadline_s,
        limit_cost_usd, raise_on_failure, progress, total,
    )  # fmt: skip
    own = client is None
    if client is not None:
        reject_settings("ingest", settings)
    client = client or Client(**settings)
    try:
        ingestion = _Ingestion.begin(source, options, client.service)
        try:
            with ingestion.judging_end():
                gather(*_workers(ingestion, client.service))
                ingestion.complete()
        finally:
            ingestion.end()
        return ingestion.result()
    finally:
        if own:
            client.close()


async def aingest(
    source: Iterable[tuple[Any, str]],
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
    progress: bool = True,
    total: int | None = None,
    **settings: Any,
) -> IngestReport:
    """:func:`ingest` without blocking the event loop; the ledger is kept, and ``source`` read, in threads."""
    import anyio

    options = _Options(
        ledger, model, mode, pooling, instruction, truncate_inputs, normalize, empty_text, texts_per_job, deadline_s,
        limit_cost_usd, raise_on_failure, progress, total,
    )  # fmt: skip
    own = client is None
    if client is not None:
        reject_settings("aingest", settings)
    client = client or AsyncClient(**settings)
    in_thread = anyio.to_thread.run_sync
    try:
        ingestion = await in_thread(_Ingestion.begin, source, options, client.service)
        try:
            with ingestion.judging_end():
                await agather(*_workers(ingestion, client.service))
                await in_thread(ingestion.complete)
        finally:
            with anyio.CancelScope(shield=True):
                await in_thread(ingestion.end)
        return ingestion.result()
    finally:
        if own:
            with anyio.CancelScope(shield=True):
                await client.aclose()


def _workers(ingestion: _Ingestion, service: Service) -> tuple[list[Any], Any, int]:
    count = service.concurrency
    if ingestion.options.mode == "queue":
        count = min(count, QUEUE_WORKERS)
    return [ingestion.engine.worker(number) for number in range(count)], service.transport, count
