"""Ingestion for callers: :func:`ingest` and :func:`aingest`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from workers_ai._calls.queued_embeddings import TEXTS_PER_JOB
from workers_ai._settings.settings import CLIENT_KEYWORDS, mask_secrets, reject_settings
from workers_ai._validation import require_int, require_one_of
from workers_ai.catalogue import lookup
from workers_ai.client import AsyncClient, Client
from workers_ai.errors import ConfigurationError
from workers_ai.ingest._report import IngestReport
from workers_ai.ingest._task import EmbedTask
from workers_ai.ledger._engine import Mode
from workers_ai.ledger._fingerprints import Fingerprint
from workers_ai.ledger._progress import Bar
from workers_ai.ledger._records import Limits, check_mode
from workers_ai.ledger._run import Outline, Run, arun, run, shown, total_of

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterable, Iterable

__all__ = ["aingest", "ingest"]


@dataclass(frozen=True)
class _Options:
    """Checked arguments of :func:`ingest` that are not connection settings."""

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
        _ = self.fingerprint, self.limits  # their constructors check the arguments
        check_mode(self.model, self.mode)
        require_one_of("empty_text", self.empty_text, ("raise", "space"))
        require_int("total", self.total, 0, None)
        if self.limit_cost_usd is not None and lookup(self.model).usd_per_m_in is None:
            raise ConfigurationError(f"limit_cost_usd needs a price, and no price of {self.model} is known")

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.model, self.pooling, self.instruction, self.truncate_inputs, self.normalize)

    @property
    def limits(self) -> Limits:
        texts = TEXTS_PER_JOB if self.texts_per_job is None else self.texts_per_job
        return Limits(texts, deadline_s=self.deadline_s, cost_usd=self.limit_cost_usd)

    def outline(self, source: object, task: EmbedTask) -> Outline:
        """Return the options of the run."""
        total = total_of(source, self.total)
        return Outline(
            self.ledger, self.fingerprint, self.mode, self.limits, shown(self.progress, total, task), total,
            take_over=self.take_over, raise_on_failure=self.raise_on_failure,
        )  # fmt: skip


def _report(ended: Run) -> IngestReport:
    tally = ended.tally
    return IngestReport(
        model=tally.model,
        embedded=tally.done,
        reused=tally.reused,
        failed=tally.failed,
        failures=ended.failures,
        retries=tally.retries,
        tokens=tally.tokens,
        neurons=tally.neurons,
        cost_usd=tally.cost_usd,
        seconds=ended.seconds,
        ledger=ended.ledger.path,
        run=ended.number,
        truncated=tally.truncated,
        duplicate_ids=ended.duplicate_ids,
    )


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

    Everything is recorded in the ledger, one SQLite file on a local disk. After a kill at any point, the same call
    continues: it collects what was submitted, and sends what is missing. Identical texts are sent once. Several
    processes may share a ledger. A kill can cost one submission twice, the one whose acceptance was not on disk yet;
    with ``mode="direct"``, the requests in flight.

    Args:
        source: Documents as (id, text), or as mappings with ``id`` and ``text``; read once, during the run, on the
            calling thread. Ids are strings or integers.
        ledger: Path of the ledger; created if it is missing.
        model: Model id.
        client: A client to use; otherwise one is created from ``settings``. Its ``max_concurrency`` (8) bounds the
            direct requests in flight; a run has up to 64 submissions in the queue.
        mode: ``"queue"``, or ``"direct"`` for synchronous requests.
        pooling: ``"mean"`` or ``"cls"``, for the bge family.
        instruction: Text before each document, for models whose documentation requires one.
        truncate_inputs: Let the service truncate texts that are too long, for models with that option.
        normalize: Scale each vector to length 1.
        empty_text: ``"space"`` embeds one space in place of an empty text, which otherwise is reported as failed.
        texts_per_job: Texts of one submission; 1,000 by default.
        deadline_s: Seconds the run may take; None for no bound.
        limit_cost_usd: USD by list price that this run may spend; the next run has the same limit anew. None for no
            limit.
        raise_on_failure: Raise when a document failed, in place of reporting it.
        progress: Show a tqdm bar, or without a terminal a line on stderr every half minute; False shows nothing.
        total: Number of documents for the bar, if ``source`` has no length.
        take_over: Treat runs of other hosts as dead at once. Otherwise a run of another host keeps its claims until it
            was silent for a lease (at most 15 minutes); the bar shows the time left.
        **settings: Connection settings, as for :class:`~workers_ai.Client`.

    Returns:
        The report; its ``vectors()`` yields (id, vector).

    Raises:
        ConfigurationError: A setting is invalid, the model has no queue, or the ledger belongs to another model.
        BadRequestError: A document is neither a pair of id and text nor a mapping with both.
        LedgerError: The ledger cannot be used: it is damaged, or its disk is full.
        BatchTimeoutError: ``deadline_s`` has passed.
        BatchItemError: A document failed, with ``raise_on_failure``.
        WorkersAIError: An error that stops the run, such as :class:`~workers_ai.errors.QuotaExhaustedError`. The ledger
            is ready to go on, and ``request_ids`` lists the submissions still in the queue.
    """
    options = _Options(
        ledger, model, mode, pooling, instruction, truncate_inputs, normalize, empty_text, texts_per_job, deadline_s,
        limit_cost_usd, raise_on_failure, progress, total, take_over,
    )  # fmt: skip
    mask_secrets(settings, CLIENT_KEYWORDS)
    own = client is None
    if client is not None:
        reject_settings("ingest", settings)
    client = client or Client(**settings)
    try:
        task = EmbedTask(options.fingerprint, options.empty_text, client._connection.calls)
        return _report(run(task, source, options.outline(source, task), client._connection))
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
    """:func:`ingest` without blocking the event loop; also accepts asynchronous iterables.

    The ledger, and an iterable that is not asynchronous, are used in threads.
    """
    import anyio

    options = _Options(
        ledger, model, mode, pooling, instruction, truncate_inputs, normalize, empty_text, texts_per_job, deadline_s,
        limit_cost_usd, raise_on_failure, progress, total, take_over,
    )  # fmt: skip
    mask_secrets(settings, CLIENT_KEYWORDS)
    own = client is None
    if client is not None:
        reject_settings("aingest", settings)
    client = client or AsyncClient(**settings)
    try:
        task = EmbedTask(options.fingerprint, options.empty_text, client._connection.calls)
        return _report(await arun(task, source, options.outline(source, task), client._connection))
    finally:
        if own:
            with anyio.CancelScope(shield=True):
                await client.aclose()
