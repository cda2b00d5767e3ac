"""Embedding documents through the queue: all of them, or those that a busy service has rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from workers_ai._calls.polling import naming
from workers_ai._calls.queue import BatchFlows, ends
from workers_ai._settings.settings import DEADLINE_S
from workers_ai._wire.usage import add_usage
from workers_ai._wire.vectors import EmbedOptions, embed_inputs, read_vectors
from workers_ai.catalogue import TEXTS_PER_REQUEST, lookup
from workers_ai.errors import RateLimitError
from workers_ai.types import EmbedReply, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai._flow.steps import Flow

__all__ = ["TEXTS_PER_JOB", "QueueMode", "embed_queued", "embed_with_overflow"]

QueueMode: TypeAlias = Literal["never", "overflow", "always"]
"""When documents go through the queue: never, when a direct request was rejected, or always."""

TEXTS_PER_JOB = 1000
"""Texts of one submission. A result of 1,000 vectors has about 15 MB, which bounds the memory of collecting it."""


def embed_queued(
    batch: BatchFlows,
    model: str,
    texts: Sequence[str],
    options: EmbedOptions,
    *,
    first: int = 0,
    deadline_s: float | None = DEADLINE_S,
) -> Flow[EmbedReply]:
    """Embed documents through the queue; a request that fails is halved and tried again, down to one text.

    Args:
        batch: The queue.
        model: Model id.
        texts: Texts, none of them empty.
        options: What shapes the vectors.
        first: Index of the first text in the caller's list, for errors.
        deadline_s: Seconds to wait in all.

    Raises:
        BatchItemError: A text failed alone; ``index`` is its place in the caller's list.
        WorkersAIError: Whatever else ended the wait; ``request_ids`` name what is still with the queue.
    """
    size = lookup(model).max_items or TEXTS_PER_REQUEST
    waiting = [range(start, min(start + size, len(texts))) for start in range(0, len(texts), size)]
    vectors: dict[int, list[float]] = {}
    usage: Usage | None = None
    pooling: str | None = None
    together = max(1, TEXTS_PER_JOB // size)
    clock = batch.calls.clock
    end = ends(clock, deadline_s)
    with naming(batch.taken):
        while waiting:
            requests = [
                embed_inputs(model, texts[span.start : span.stop], options, kind="document") for span in waiting
            ]
            left = max(0.0, end - clock())
            statuses = yield from batch.run_jobs(model, requests, left, max_requests=together)
            failed: list[range] = []
            for span, item in zip(waiting, [item for status in statuses for item in status.items], strict=True):
                if item.error is None:
                    reply = batch.calls.read(read_vectors, item.result, model, len(span), normalize=options.normalize)
                    vectors.update(zip(span, reply.vectors, strict=True))
                    pooling = reply.pooling
                elif len(span) == 1:
                    item.error.index = first + span.start
                    raise item.error
                else:
                    middle = span.start + len(span) // 2
                    failed += [range(span.start, middle), range(middle, span.stop)]
            for status in statuses:
                usage = add_usage(usage, status.usage)
            waiting = failed
            together = 1  # what stands behind may make requests of its own out of a submission, as a batch Worker does
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
    """Embed one request's worth of documents directly, or through the queue where the service has no capacity."""
    try:
        return (yield from batch.calls.embed(model, texts, options, kind="document", first=first, on_busy="raise"))
    except RateLimitError as exc:
        if not exc.is_retryable:
            raise
    return (yield from embed_queued(batch, model, texts, options, first=first, deadline_s=deadline_s))
