"""Ingestion for callers: :func:`ingest` and :func:`aingest`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai.ingest._options import IngestOptions, Options
from workers_ai.ingest._report import IngestReport
from workers_ai.ingest._task import EmbedTask
from workers_ai.ledger._keywords import async_client, split_keywords, sync_client, with_signature
from workers_ai.ledger._run import Run, arun, run

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterable, Iterable
    from typing import Unpack

    from workers_ai.client import AsyncClient, Client
    from workers_ai.ingest._options import IngestKeywords

__all__ = ["aingest", "ingest"]


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


@with_signature(IngestOptions, Options, settings=True)
def ingest(
    source: Iterable[object],
    *,
    ledger: str | os.PathLike[str],
    model: str,
    client: Client | None = None,
    **keywords: Unpack[IngestKeywords],
) -> IngestReport:
    """Embed a corpus of any size, in bounded memory, and pay for no text twice.

    ::

        report = ingest(documents, ledger="corpus.ledger", model="@cf/baai/bge-m3")
        for doc_id, vector in report.vectors(): ...

    Everything is recorded in the ledger, one SQLite file on a local disk. After a kill at any point, the same call
    continues: it collects what was submitted, and sends what is missing. Identical texts are sent once. Several
    processes may share a ledger. After a kill, at most one submission is paid for twice: one that was accepted but not
    yet recorded. With ``mode="direct"``, the requests in flight may be paid for twice.

    Args:
        source: Documents as (id, text), or as mappings with ``id`` and ``text``; read once, during the run, on the
            calling thread. Ids are strings or integers.
        ledger: Path of the ledger; created if it is missing.
        model: Model id.
        client: A client to use; otherwise one is created from the other keywords. Its ``max_concurrency`` (8) bounds
            the direct requests in flight; a run has up to 64 submissions in the queue.
        mode: ``"queue"``, or ``"direct"`` for synchronous requests.
        pooling: ``"mean"`` or ``"cls"``, for the bge family.
        instruction: Text before each document, for models whose documentation requires one.
        truncate_inputs: Let the service truncate texts that are too long, for models with that option.
        normalize: Scale each vector to length 1.
        empty_text: ``"space"`` embeds one space in place of an empty text, which otherwise is reported as failed.
        texts_per_job: Maximum texts of one submission; 1,000 by default.
        deadline_s: Maximum seconds of the run; None for no bound.
        limit_cost_usd: Maximum USD by list price that this run may spend; each run has its own limit. None for no
            limit.
        raise_on_failure: Raise :class:`~workers_ai.errors.BatchItemError` if a document failed.
        progress: Show a tqdm bar, or without a terminal a line on stderr every half minute; False shows nothing.
        total: Number of documents for the bar, if ``source`` has no length.
        take_over: Treat runs of other hosts as dead at once. Otherwise a run of another host keeps its claims until it
            has sent no heartbeat for a lease (at most 15 minutes); the bar shows the time left.
        **keywords: The options above, and arguments of :class:`~workers_ai.Client`.

    Returns:
        The report; its ``vectors()`` yields (id, vector).

    Raises:
        ConfigurationError: A setting is invalid, the model has no queue, or the ledger belongs to another model.
        BadRequestError: A document is neither a pair of id and text nor a mapping with both.
        LedgerError: The ledger cannot be used: it is damaged, or its disk is full.
        BatchTimeoutError: ``deadline_s`` has passed.
        BatchItemError: A document failed, with ``raise_on_failure``.
        WorkersAIError: An error that stops the run, such as :class:`~workers_ai.errors.QuotaExhaustedError`. The same
            call continues later; ``request_ids`` lists the submissions still in the queue.
    """
    chosen, settings = split_keywords(keywords, IngestOptions, "ingest")
    options = Options(ledger, model, **chosen)
    with sync_client("ingest", client, settings) as used:
        task = EmbedTask(options.fingerprint, options.empty_text, used._connection.calls)
        return _report(run(task, source, options.outline(source, task), used._connection))


@with_signature(IngestOptions, Options, settings=True)
async def aingest(
    source: Iterable[object] | AsyncIterable[object],
    *,
    ledger: str | os.PathLike[str],
    model: str,
    client: AsyncClient | None = None,
    **keywords: Unpack[IngestKeywords],
) -> IngestReport:
    """:func:`ingest` without blocking the event loop; also accepts asynchronous iterables.

    The ledger, and an iterable that is not asynchronous, are used in threads.
    """
    chosen, settings = split_keywords(keywords, IngestOptions, "aingest")
    options = Options(ledger, model, **chosen)
    async with async_client("aingest", client, settings) as used:
        task = EmbedTask(options.fingerprint, options.empty_text, used._connection.calls)
        return _report(await arun(task, source, options.outline(source, task), used._connection))
