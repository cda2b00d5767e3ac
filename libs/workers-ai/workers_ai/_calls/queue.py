"""The flows of the asynchronous queue: submit, poll, collect, run."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from workers_ai._calls.polling import PolledJob, PollingPace, is_unknown, with_request_ids
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
    from workers_ai._wire.json_types import JSON

__all__ = ["BatchFlows", "end_time", "require_queue", "was_surely_rejected"]

_log = logging.getLogger("workers_ai")


_LISTS: Final = ("text", "documents", "queries", "contexts")
"""Inputs whose value is a list of texts."""

_NO_QUEUE: Final = re.compile("support request queuing|batch queueing not available|property '/requests'")
"""Error texts of a model without a queue (10063, and 8007 and 5006, which have other meanings, too)."""


def was_surely_rejected(error: WorkersAIError) -> bool:
    """Return whether the queue has certainly not accepted a submission that failed with ``error``.

    True if no connection was made, for a rate limit, and for an error response with a code or a 4xx status. After a
    lost response, a timeout of the service or a 5xx page without a code, the queue may have accepted it.
    """
    if isinstance(error, APIConnectionError):
        return not error.delivered
    if not isinstance(error, APIStatusError) or isinstance(error, RequestTimeoutError):
        return False
    return error.code is not None or (error.status_code or 0) < 500


def require_queue(model: str) -> None:
    """Check that the catalogue does not exclude the model from the asynchronous queue. Unknown models pass.

    Raises:
        ConfigurationError: The model has no queue, or its id is malformed.
    """
    if lookup(check_model(model)).batch is False:
        raise _no_queue(model)


def _no_queue(model: str) -> ConfigurationError:
    return ConfigurationError(
        f"{model} has no asynchronous queue (https://developers.cloudflare.com/workers-ai/features/batch-api/): "
        "send direct requests (queue='never' or mode='direct'), or choose a model with a queue",
        arguments=("mode", "queue", "model"),
    )


@dataclass
class BatchFlows:
    """The flows of the asynchronous queue, for one client.

    Attributes:
        calls: The flows of the client.
        pace: Delays between polls.
        submitted: Request ids of the submissions of :meth:`run_jobs`, shared by all flows of one call: the error that
            ends the call lists them all.
    """

    calls: Calls
    pace: PollingPace = field(default_factory=PollingPace)
    submitted: list[str] = field(default_factory=list)

    def submit(self, model: str, requests: Sequence[Mapping[str, JSON]]) -> Flow[BatchJob]:
        """Submit requests that fit one submission.

        Raises:
            BadRequestError: There are no requests, or one is malformed.
            RequestTooLargeError: The requests exceed one submission.
        """
        require_queue(model)
        _check_requests(model, requests)
        if not requests:
            raise BadRequestError("requests is empty: pass at least one request", model=model)
        if len(list(split_requests(requests, model=model))) > 1:
            raise RequestTooLargeError(
                "these requests exceed one submission (10 MB): use batch.run, which splits them", model=model
            )
        return (yield from self.send(model, requests))

    def send(self, model: str, requests: Sequence[Mapping[str, JSON]]) -> Flow[BatchJob]:
        """Submit requests that fit one submission. Retry only if the queue has certainly rejected the submission.

        Raises:
            ConfigurationError: The service reports that the model has no queue.
        """
        request = submit_request(model, requests)
        try:
            reply = yield from self.calls.exchange(request, on_busy="wait", is_repeatable=was_surely_rejected)
        except APIStatusError as exc:
            if _NO_QUEUE.search(exc.message):
                raise _no_queue(model) from exc
            raise
        job = self.calls.read(read_submission, reply.data, model, len(requests))
        if job.answer:
            self._scrubbed(job.answer)
        _log.info(
            "the asynchronous queue accepted %d requests for %s as %s",
            len(requests),
            model,
            job.request_id or "(answered)",
        )
        return job

    def poll(self, job: BatchJob) -> Flow[BatchStatus]:
        """Poll a job once, with the retries of the client.

        Raises:
            BatchError: The request id is unknown, or the job failed as a whole.
        """
        _check_job(job)
        if job.answer:
            return job.answer
        try:
            reply = yield from self.calls.exchange(poll_request(job), on_busy="wait")
        except APIStatusError as exc:
            if is_unknown(exc):
                raise PolledJob(job, self.pace).lost(exc) from exc
            raise
        return self._read(reply, job)

    def _read(self, reply: Reply, job: BatchJob) -> BatchStatus:
        return self._scrubbed(self.calls.read(read_poll, reply.data, job, reply.headers.get("cf-ai-neurons")))

    def _scrubbed(self, status: BatchStatus) -> BatchStatus:
        for item in status.items:
            if item.error is not None:
                scrub_error(item.error, self.calls.settings._scrub)
        return status

    def poll_once(self, polled: PolledJob) -> Flow[BatchStatus | None]:
        """Poll a job once without retries. Return None while the job runs, or if the poll failed and may be repeated.

        Raises:
            WorkersAIError: The job is lost, or polls have failed for too long.
        """
        job = polled.job
        if job.answer:
            return job.answer
        try:
            reply = yield from self.calls.exchange(poll_request(job), on_busy="wait", is_repeatable=lambda error: False)
        except WorkersAIError as exc:
            if exc.status_code == 202:  # the job runs
                polled.answered()
            else:
                polled.failed(exc)
            return None
        try:
            status = self._read(reply, job)
        except UnclearReplyError as exc:
            polled.failed(exc)
            return None
        polled.answered()
        return status if status.state == "done" else None

    def collect(self, job: BatchJob, deadline_s: float | None = DEADLINE_S) -> Flow[list[BatchItem]]:
        """Wait for a job and return its items in the order of the requests.

        Raises:
            BatchTimeoutError: The deadline has passed.
        """
        _check_job(job)
        with with_request_ids([job.request_id]):
            status = yield from self._wait(job, end_time(self.calls.clock, deadline_s))
        return list(status.items)

    def _wait(self, job: BatchJob, end: float) -> Flow[BatchStatus]:
        polled = PolledJob(job, self.pace, self.calls.clock)
        while True:
            status = yield from self.poll_once(polled)
            if status is not None:
                return status
            left = end - self.calls.clock()
            if left <= 0:
                raise BatchTimeoutError(
                    f"the deadline has passed, and the job is not finished: collect {job.request_id} later",
                    model=job.model, request_ids=[job.request_id],
                )  # fmt: skip
            yield Sleep(min(polled.wait_s(), left), "queue")

    def run(
        self, model: str, requests: Sequence[Mapping[str, JSON]], deadline_s: float | None = DEADLINE_S
    ) -> Flow[list[BatchItem]]:
        """Submit any number of requests and return all items, in the order of the requests."""
        own = replace(self, submitted=[])
        with with_request_ids(own.submitted):
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
        """Submit any number of requests and return one status for each submission of at most ``max_requests``.

        Adds the request ids to ``submitted``. The caller reports them if reading the results fails.
        """
        require_queue(model)
        _check_requests(model, requests)
        end = end_time(self.calls.clock, deadline_s)
        jobs: list[BatchJob] = []
        done: list[BatchStatus] = []
        for part in list(split_requests(requests, model=model, max_requests=max_requests)):
            job = yield from self.send(model, part)
            self.submitted.append(job.request_id)
            jobs.append(job)
        for job in jobs:
            status = yield from self._wait(job, end)
            done.append(status)
        return done


def end_time(clock: Callable[[], float], deadline_s: float | None) -> float:
    """Return when a wait of at most ``deadline_s`` seconds ends; infinity for None.

    Raises:
        ConfigurationError: ``deadline_s`` is not a number of seconds.
    """
    if deadline_s is None:
        return float("inf")
    fits = isinstance(deadline_s, (int, float)) and deadline_s >= 0
    require(fits, f"deadline_s must be a number of seconds, or None for no bound, not {deadline_s!r:.200}")
    return clock() + deadline_s


def _check_job(job: BatchJob) -> None:
    if not isinstance(job, BatchJob):
        what = type(job).__name__
        raise BadRequestError(f"job must be a BatchJob, not a {what}: create one with BatchJob(request_id, model)")


def _check_requests(model: str, requests: Sequence[Mapping[str, JSON]]) -> None:
    """Check that ``requests`` is a list of inputs, each with at most as many texts as the model accepts.

    Raises:
        BadRequestError: A request is invalid; the message has its index.
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
                raise BadRequestError(
                    f"request {index} has {len(texts)} texts; {model} accepts {cap}: split it", model=model
                )


def _renumbered(item: BatchItem, index: int) -> BatchItem:
    if item.error is not None:
        item.error.index = index
    return replace(item, index=index)
