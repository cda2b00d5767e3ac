"""The asynchronous queue: submit, poll, collect, run.

The queue accepts work at any load, and answers within minutes
(https://developers.cloudflare.com/workers-ai/features/batch-api/). Two rules avoid paying twice. A submission is
retried only if it was certainly rejected. If an error ends a call, its ``request_ids`` are the pending
submissions; pass them to ``collect`` later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workers_ai._calls.queue import BatchFlows
from workers_ai._flow.drivers import adrive, drive
from workers_ai._settings.settings import DEADLINE_S
from workers_ai._wire.batch import chat_inputs, rerank_inputs
from workers_ai.types import BatchItem, BatchJob, BatchStatus

if TYPE_CHECKING:
    from workers_ai._flow.drivers import AsyncSender, Sender
    from workers_ai.types import JSON

__all__ = ["AsyncBatch", "Batch", "BatchItem", "BatchJob", "BatchStatus", "chat_inputs", "rerank_inputs"]


class Batch:
    """The asynchronous queue of a :class:`~workers_ai.Client`: its attribute ``batch``.

    ::

        job = client.batch.submit(model, [{"text": ["a", "b"]}, {"text": ["c"]}])
        items = client.batch.collect(job, deadline_s=600)

    A request contains the inputs of one call: ``{"text": [...]}`` for embeddings. :func:`chat_inputs` and
    :func:`rerank_inputs` create those of other calls. The key ``external_reference`` is returned with the item.
    """

    def __init__(self, flows: BatchFlows, sender: Sender) -> None:
        self._flows = flows
        self._sender = sender

    def submit(self, model: str, requests: Sequence[Mapping[str, JSON]]) -> BatchJob:
        """Submit requests as one submission.

        A submission is retried only if the queue has certainly rejected it. After a timeout, or an
        :class:`~workers_ai.errors.APIConnectionError` with ``delivered``, the queue may have accepted it.

        Raises:
            ConfigurationError: The model is known to have no queue.
            RequestTooLargeError: The requests exceed one submission; nothing was sent.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        return drive(self._flows.submit(model, requests), self._sender)

    def poll(self, job: BatchJob) -> BatchStatus:
        """Poll a job once.

        Raises:
            BatchError: The request id is unknown, or the job failed as a whole.
        """
        return drive(self._flows.poll(job), self._sender)

    def collect(self, job: BatchJob, deadline_s: float | None = DEADLINE_S) -> list[BatchItem]:
        """Wait for a job. Return one item per request, in their order; a failed item has its ``error``.

        Args:
            job: The result of :meth:`submit`, or ``BatchJob(request_id, model)``.
            deadline_s: Seconds to wait (default 3600); None for no bound.

        Raises:
            BatchTimeoutError: The deadline has passed; ``request_ids`` can be collected later.
            BatchError: The request id is unknown, or the job failed as a whole.
        """
        return drive(self._flows.collect(job, deadline_s), self._sender)

    def run(
        self, model: str, requests: Sequence[Mapping[str, JSON]], deadline_s: float | None = DEADLINE_S
    ) -> list[BatchItem]:
        """Submit any number of requests, in as many submissions as needed, and wait for all of them.

        Raises:
            WorkersAIError: Any failure; ``request_ids`` are the pending submissions.
        """
        return drive(self._flows.run(model, requests, deadline_s), self._sender)


class AsyncBatch:
    """The queue of an :class:`~workers_ai.AsyncClient`: the methods of :class:`Batch`, to be awaited."""

    def __init__(self, flows: BatchFlows, sender: AsyncSender) -> None:
        self._flows = flows
        self._sender = sender

    async def submit(self, model: str, requests: Sequence[Mapping[str, JSON]]) -> BatchJob:
        """See :meth:`Batch.submit`."""
        return await adrive(self._flows.submit(model, requests), self._sender)

    async def poll(self, job: BatchJob) -> BatchStatus:
        """See :meth:`Batch.poll`."""
        return await adrive(self._flows.poll(job), self._sender)

    async def collect(self, job: BatchJob, deadline_s: float | None = DEADLINE_S) -> list[BatchItem]:
        """See :meth:`Batch.collect`."""
        return await adrive(self._flows.collect(job, deadline_s), self._sender)

    async def run(
        self, model: str, requests: Sequence[Mapping[str, JSON]], deadline_s: float | None = DEADLINE_S
    ) -> list[BatchItem]:
        """See :meth:`Batch.run`."""
        return await adrive(self._flows.run(model, requests, deadline_s), self._sender)
