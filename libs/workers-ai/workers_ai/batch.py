"""The asynchronous queue: submit, poll, collect, run. Written once as flows, with a sync and an async face.

The queue takes work whatever the capacity of the moment is, and answers within minutes
(https://developers.cloudflare.com/workers-ai/features/batch-api/). Two rules keep it from costing twice: a submission
is sent again only where it was certainly refused, and whatever ends a call that has work in the queue carries the
``request_ids`` with which that work can be collected later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workers_ai._calls.queue import BatchFlows
from workers_ai._flow.drivers import adrive, drive
from workers_ai._settings.settings import DEADLINE_S
from workers_ai.types import BatchItem, BatchJob, BatchStatus

if TYPE_CHECKING:
    from workers_ai._flow.drivers import AsyncSender, Sender
    from workers_ai.types import JSON

__all__ = ["AsyncBatch", "Batch", "BatchItem", "BatchJob", "BatchStatus"]


class Batch:
    """The queue of a :class:`~workers_ai.Client`, as its attribute ``batch``.

    ::

        job = client.batch.submit(model, [{"text": ["a", "b"]}, {"text": ["c"]}])
        items = client.batch.collect(job, deadline_s=600)

    A request is the inputs of one call; :func:`~workers_ai._wire.vectors.embed_inputs`,
    :func:`~workers_ai._wire.batch.chat_inputs` and :func:`~workers_ai._wire.batch.rerank_inputs` make them. An
    ``external_reference`` beside the inputs comes back with the item.
    """

    def __init__(self, flows: BatchFlows, sender: Sender) -> None:
        self._flows = flows
        self._sender = sender

    def submit(self, model: str, requests: Sequence[Mapping[str, JSON]]) -> BatchJob:
        """Hand requests to the queue, in one submission.

        It is sent again only where the service has certainly refused it. An :class:`APIConnectionError` whose
        ``delivered`` is True, or a timeout, means that the queue may have taken it.

        Raises:
            ConfigurationError: The model is known to have no queue.
            RequestTooLargeError: The requests exceed one submission; nothing was sent.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        return drive(self._flows.submit(model, requests), self._sender)

    def poll(self, job: BatchJob) -> BatchStatus:
        """Ask once how far a job is.

        Raises:
            BatchError: The queue does not know the job, or it has failed as a whole.
        """
        return drive(self._flows.poll(job), self._sender)

    def collect(self, job: BatchJob, deadline_s: float | None = DEADLINE_S) -> list[BatchItem]:
        """Wait for a job: one item per request, in the order of the requests; a failed one has its ``error``.

        Args:
            job: From :meth:`submit`, or made from a request id and a model.
            deadline_s: Seconds to wait; None for no bound.

        Raises:
            BatchTimeoutError: The deadline has passed; ``request_ids`` can be collected later.
            BatchError: The queue does not know the job, or it has failed as a whole.
        """
        return drive(self._flows.collect(job, deadline_s), self._sender)

    def run(
        self, model: str, requests: Sequence[Mapping[str, JSON]], deadline_s: float | None = DEADLINE_S
    ) -> list[BatchItem]:
        """Submit any number of requests, in as many submissions as they need, and wait for all of them.

        Raises:
            WorkersAIError: Whatever ended the wait; its ``request_ids`` name what is still with the queue.
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
