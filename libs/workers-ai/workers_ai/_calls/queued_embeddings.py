"""Embed documents through the queue: all of them, or those whose direct request was rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from workers_ai._calls.embedding_requests import embed, halves
from workers_ai._calls.polling import with_request_ids
from workers_ai._calls.queue import BatchFlows, end_time, require_queue
from workers_ai._settings.settings import DEADLINE_S
from workers_ai._wire.usage import add_usage
from workers_ai._wire.vectors import EmbedOptions, embed_inputs, read_vectors
from workers_ai.catalogue import lookup
from workers_ai.errors import RateLimitError
from workers_ai.types import EmbedReply, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai._calls.requests import Calls
    from workers_ai._flow.steps import Flow

__all__ = ["TEXTS_PER_JOB", "embed_queued", "embed_with_overflow", "queued_flows"]

TEXTS_PER_JOB: Final = 1000
"""Maximum texts per submission, to bound the memory for its result. 1,000 vectors are about 15 MB of JSON."""


def queued_flows(
    calls: Calls,
    model: str,
    texts: list[str],
    options: EmbedOptions,
    *,
    size: int,
    queue: Literal["never", "overflow", "always"],
    deadline_s: float | None,
) -> list[Flow[EmbedReply]]:
    """Return the flows of one call that uses the queue.

    Args:
        calls: The flows with the settings of the call.
        model: Model id.
        texts: Checked texts.
        options: Options that change the vectors.
        size: Texts of one direct request.
        queue: ``"always"`` or ``"overflow"``.
        deadline_s: Seconds to wait for the queue; None for no bound.

    Raises:
        ConfigurationError: The model has no queue.
    """
    require_queue(model)
    batch = BatchFlows(calls)
    if queue == "always":
        return [embed_queued(batch, model, texts, options, deadline_s=deadline_s)] if texts else []
    return [
        embed_with_overflow(batch, model, texts[first : first + size], options, first=first, deadline_s=deadline_s)
        for first in range(0, len(texts), size)
    ]


def embed_queued(
    batch: BatchFlows,
    model: str,
    texts: Sequence[str],
    options: EmbedOptions,
    *,
    first: int = 0,
    deadline_s: float | None = DEADLINE_S,
) -> Flow[EmbedReply]:
    """Embed documents through the queue. A request that fails is split in half, down to a single text.

    Args:
        batch: The queue.
        model: Model id.
        texts: Checked texts.
        options: Options that change the vectors.
        first: Index of the first text in the caller's list, for errors.
        deadline_s: Seconds to wait for all results; None for no bound.

    Raises:
        BatchItemError: A single text failed; ``index`` is its index in the caller's list.
        WorkersAIError: Any other failure; ``request_ids`` are the submissions that can be collected later.
    """
    size = lookup(model).texts_per_request
    pending = [range(start, min(start + size, len(texts))) for start in range(0, len(texts), size)]
    vectors: dict[int, list[float]] = {}
    usage: Usage | None = None
    pooling: str | None = None
    requests_per_job = max(1, TEXTS_PER_JOB // size)
    clock = batch.calls.clock
    end = end_time(clock, deadline_s)
    with with_request_ids(batch.submitted):
        while pending:
            requests = [
                embed_inputs(model, texts[span.start : span.stop], options, kind="document") for span in pending
            ]
            left = max(0.0, end - clock())
            statuses = yield from batch.run_jobs(model, requests, left, max_requests=requests_per_job)
            failed: list[range] = []
            for span, item in zip(pending, [item for status in statuses for item in status.items], strict=True):
                if item.error is None:
                    reply = batch.calls.read(read_vectors, item.result, model, len(span), normalize=options.normalize)
                    vectors.update(zip(span, reply.vectors, strict=True))
                    pooling = reply.pooling
                elif len(span) == 1:
                    item.error.index = first + span.start
                    raise item.error
                else:
                    failed += halves(span)
            for status in statuses:
                usage = add_usage(usage, status.usage)
            pending = failed
            requests_per_job = 1  # a batch Worker may group the texts of one submission in another way
    return EmbedReply([vectors[index] for index in range(len(texts))], model, usage, pooling)


def embed_with_overflow(
    batch: BatchFlows,
    model: str,
    texts: Sequence[str],
    options: EmbedOptions,
    *,
    first: int = 0,
    deadline_s: float | None = DEADLINE_S,
) -> Flow[EmbedReply]:
    """Embed the documents of one request directly; through the queue if the service is at capacity."""
    try:
        return (yield from embed(batch.calls, model, texts, options, kind="document", first=first, on_busy="raise"))
    except RateLimitError as exc:
        if not exc.is_retryable:
            raise
    return (yield from embed_queued(batch, model, texts, options, first=first, deadline_s=deadline_s))
