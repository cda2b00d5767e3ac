"""The flows of the asynchronous queue: submit, poll, collect, run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from workers_ai._calls.polling import Pace, Watch, is_unknown, naming
from workers_ai._flow.steps import Sleep
from workers_ai._settings.settings import DEADLINE_S
from workers_ai._validation import check_model, require
from workers_ai._wire.batch import (
    UnclearReplyError,
    poll_request,
    read_poll,
    read_submission,
    split_requests,
    submit_request,
)
from workers_ai._wire.error_mapping import scrub_error
from workers_ai.catalogue import lookup
from workers_ai.errors import (
    APIConnectionError,
    APIStatusError,
    BadRequestError,
    BatchTimeoutError,
    ConfigurationError,
    RequestTimeoutError,
    RequestTooLargeError,
    WorkersAIError,
)
from workers_ai.types import BatchItem, BatchJob, BatchStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai._calls.requests import Calls, Reply
    from workers_ai._flow.steps import Flow
    from workers_ai.types import JSON

__all__ = ["BatchFlows", "ends", "require_queue", "surely_refused"]

_log = logging.getLogger("workers_ai")


_LISTS: Final = ("text", "documents", "queries", "contexts")
"""Inputs that are lists of texts."""


def surely_refused(error: WorkersAIError) -> bool:
    """Whether the service has certainly not taken the submission that failed like this, so that it may be sent again.

    A connection that was never made, a rate limit, and a refusal that names a code or a fault of the request. A reply
    that was lost, a timeout of the service and a 5xx page without a code leave it open.
    """
    if isinstance(error, APIConnectionError):
        return not error.delivered
    if not isinstance(error, APIStatusError) or isinstance(error, RequestTimeoutError):
        return False
    return error.code is not None or (error.status_code or 0) < 500


def require_queue(model: str) -> None:
    """Refuse a model that is known to have no queue; one that is not known may try.

    Raises:
        ConfigurationError: The catalogue says that the model has none.
    """
    if lookup(check_model(model)).batch is False:
        raise ConfigurationError(
            f"{model} has no asynchronous queue (https://developers.cloudflare.com/workers-ai/features/batch-api/): "
            "send direct requests (queue='never' or mode='direct'), or choose a model that has one"
        )


@dataclass
class BatchFlows:
    """The flows of the queue, over the calls of one client.

    Attributes:
        calls: Sends, and maps errors.
        pace: How often a job is polled.
        taken: Ids of what the queue has taken by :meth:`run_jobs`; shared by all flows of one call, so that the error
            that ends it names everything of which the caller has no result.
    """

    calls: Calls
    pace: Pace = field(default_factory=Pace)
    taken: list[str] = field(default_factory=list)

    def submit(self, model: str, requests: Sequence[Mapping[str, JSON]]) -> Flow[BatchJob]:
        """Submit requests that fit one submission."""
        require_queue(model)
        _check_requests(model, requests)
        if not requests:
            raise BadRequestError("a batch needs at least one request", model=model)
        if len(list(split_requests(requests, model=model))) > 1:
            raise RequestTooLargeError(
                "these requests exceed one submission (10 MB): use batch.run, which splits them", model=model
            )
        return (yield from self.send(model, requests))

    def send(self, model: str, requests: Sequence[Mapping[str, JSON]]) -> Flow[BatchJob]:
        """Submit requests that are known to fit. Repeated only where the service has certainly refused it."""
        request = submit_request(model, requests)
        reply = yield from self.calls.exchange(request, on_busy="wait", repeatable=surely_refused)
        job = self.calls.read(read_submission, reply.data, model, len(requests))
        if job.answer:
            self._scrubbed(job.answer)
        _log.info("the queue took %d requests for %s as %s", len(requests), model, job.request_id or "(answered)")
        return job

    def poll(self, job: BatchJob) -> Flow[BatchStatus]:
        """Ask once how far a job is, with the client's own retries."""
        _check_job(job)
        if job.answer:
            return job.answer
        try:
            reply = yield from self.calls.exchange(poll_request(job), on_busy="wait")
        except APIStatusError as exc:
            if is_unknown(exc):
                raise Watch(job, self.pace).lost(exc) from exc
            raise
        return self._read(reply, job)

    def _read(self, reply: Reply, job: BatchJob) -> BatchStatus:
        return self._scrubbed(self.calls.read(read_poll, reply.data, job, reply.headers.get("cf-ai-neurons")))

    def _scrubbed(self, status: BatchStatus) -> BatchStatus:
        for item in status.items:
            if item.error is not None:
                scrub_error(item.error, self.calls.settings.scrub)
        return status

    def ask(self, watch: Watch) -> Flow[BatchStatus | None]:
        """Poll once; None while there is no result yet, or where the poll failed and may be repeated."""
        job = watch.job
        if job.answer:
            return job.answer
        try:
            reply = yield from self.calls.exchange(poll_request(job), on_busy="wait", repeatable=lambda error: False)
        except WorkersAIError as exc:
            if exc.status_code == 202:  # still at work, and no more to say
                watch.answered()
            else:
                watch.failed(exc)
            return None
        try:
            status = self._read(reply, job)
        except UnclearReplyError as exc:
            watch.failed(exc)
            return None
        watch.answered()
        return status if status.state == "done" else None

    def collect(self, job: BatchJob, deadline_s: float | None = DEADLINE_S) -> Flow[list[BatchItem]]:
        """Wait for a job; its items in the order of the requests."""
        _check_job(job)
        with naming([job.request_id]):
            status = yield from self._wait(job, ends(self.calls.clock, deadline_s))
        return list(status.items)

    def _wait(self, job: BatchJob, end: float) -> Flow[BatchStatus]:
        watch = Watch(job, self.pace, self.calls.clock)
        while True:
            status = yield from self.ask(watch)
            if status is not None:
                return status
            left = end - self.calls.clock()
            if left <= 0:
                raise BatchTimeoutError(
                    "the deadline has passed while the queue is still working", model=job.model,
                    request_ids=[job.request_id],
                )  # fmt: skip
            yield Sleep(min(watch.wait_s(), left), "queue")

    def run(
        self, model: str, requests: Sequence[Mapping[str, JSON]], deadline_s: float | None = DEADLINE_S
    ) -> Flow[list[BatchItem]]:
        """Submit requests of any number and wait for them all."""
        own = replace(self, taken=[])
        with naming(own.taken):
            statuses = yield from own.run_jobs(model, requests, deadline_s)
        items = [item for status in statuses for item in status.items]
        return [_renumbered(item, index) for index, item in enumerate(items)]

    def run_jobs(
        self,
        model: str,
        requests: Sequence[Mapping[str, JSON]],
        deadline_s: float | None = DEADLINE_S,
        *,
        max_requests: int | None = None,
    ) -> Flow[list[BatchStatus]]:
        """The same, as one status for each submission of at most ``max_requests`` requests.

        What the queue has taken is noted in ``taken``; whoever hands the results on names it where that fails.
        """
        require_queue(model)
        _check_requests(model, requests)
        end = ends(self.calls.clock, deadline_s)
        jobs: list[BatchJob] = []
        done: list[BatchStatus] = []
        for part in list(split_requests(requests, model=model, max_requests=max_requests)):
            job = yield from self.send(model, part)
            self.taken.append(job.request_id)
            jobs.append(job)
        for job in jobs:
            status = yield from self._wait(job, end)
            done.append(status)
        return done


def ends(clock: Callable[[], float], deadline_s: float | None) -> float:
    """When a wait of at most ``deadline_s`` seconds is over; never for None.

    Raises:
        ConfigurationError: It is no number of seconds.
    """
    if deadline_s is None:
        return float("inf")
    fits = isinstance(deadline_s, (int, float)) and deadline_s >= 0
    require(fits, f"deadline_s must be seconds, or None for no end, not {deadline_s!r:.200}")
    return clock() + deadline_s


def _check_job(job: BatchJob) -> None:
    if not isinstance(job, BatchJob):
        what = type(job).__name__
        raise BadRequestError(f"a job is a BatchJob, not a {what}: BatchJob(request_id, model) makes one of an id")


def _check_requests(model: str, requests: Sequence[Mapping[str, JSON]]) -> None:
    """Refuse what is no list of inputs, and an embedding request with more texts than the model takes in one.

    Raises:
        BadRequestError: Names the request.
    """
    if isinstance(requests, (str, Mapping)) or not isinstance(requests, Sequence):
        what = type(requests).__name__
        raise BadRequestError(f"requests must be a list of inputs such as {{'text': [...]}}, not a {what}", model=model)
    cap = lookup(model).max_items
    for index, request in enumerate(requests):
        if not isinstance(request, Mapping):
            what = type(request).__name__
            raise BadRequestError(
                f"request {index} must be a dict such as {{'text': [...]}}, not a {what}", model=model
            )
        for key in _LISTS:
            if cap and isinstance(texts := request.get(key), (list, tuple)) and len(texts) > cap:
                raise BadRequestError(f"request {index} has {len(texts)} texts; {model} takes {cap}", model=model)


def _renumbered(item: BatchItem, index: int) -> BatchItem:
    if item.error is not None:
        item.error.index = index
    return replace(item, index=index)
