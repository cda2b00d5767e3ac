"""The asynchronous queue: submitted batches, their progress and results.

Documented: https://developers.cloudflare.com/workers-ai/features/batch-api/rest-api/. Each open question of that page
is a field of :class:`QueueSettings`.
"""

from __future__ import annotations

import json
import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from workers_ai_emulator.settings import check_choices

if TYPE_CHECKING:
    from workers_ai_emulator.clock import Clock
    from workers_ai_emulator.wire import Json

Progress = Literal["at_once", "polls", "seconds", "never"]


@dataclass
class ItemFailure:
    """A failure of items of a batch.

    Attributes:
        index: Index of the item in its batch; None for any index.
        contains: Text in the item's inputs; None for any inputs.
        code: Code of the failure.
        message: Text of the failure.
        times: Number of items that fail; None for all matching items.
    """

    index: int | None = None
    contains: str | None = None
    code: int = 5001
    message: str = "AiError: Model execution failed"
    times: int | None = None


@dataclass
class QueueSettings:
    """Settings of the asynchronous queue.

    Attributes:
        progress: When a batch is done: ``at_once``, after ``polls``, after ``seconds``, or ``never``.
        polls: Pending polls before the result, for ``progress="polls"``.
        seconds: Seconds of clock time before the result, for ``progress="seconds"``.
        submit_status: HTTP status of an accepted submission.
        pending_status: HTTP status of a poll before the batch is finished.
        status_when_done: Value of the ``status`` key of a finished batch; None to omit the key, as documented.
        results_for: Models that return a finished batch under ``results`` with ``index``: the ``openai`` family, or
            only ``kimi``, as recorded. All others return it under ``responses`` with ``id``.
        results_models: Exceptions by model id: True for ``results``, False for ``responses``.
        results_reference: Whether items of ``results`` include their ``external_reference``.
        unsupported_code: Code of the error for a model without the queue: 8007 (recorded), 5006 or 10063.
        hybrid_items: Form of llama-3.3-70b's items: ``hybrid`` as in direct replies, or ``native``, which has no
            ``choices``, no finish reason and no usage.
        hybrid_messages: Whether llama-3.3-70b accepts items with ``messages``. Its schema documents only ``prompt``.
        item_formats: Whether the ``response_format`` of an item is honoured.
        bad_item: Whether an invalid item fails alone (``item``) or fails its ``submission`` with 5006.
        error_key: Key of the error in a failed item: ``error``, ``errors`` (a list) or empty for no key.
        answers_at_once: Whether a submission returns its responses at once.
        poll_needs_flag: Whether a poll without ``?queueRequest=true`` is rejected. The binding polls without it.
        shuffle: Whether items are in random order, as recorded.
        unknown_status: HTTP status for an unknown, lost or expired id.
        unknown_code: Error code for such an id.
        unknown_message: Error text for such an id.
        retention_s: Seconds from submission until a batch expires.
        lose: Number of further submissions that are accepted and then lost.
        slow: Number of further submissions that are not finished for ``slow_seconds`` of clock time.
        slow_seconds: Seconds before a slow batch may finish.
        fail_batches: Number of further batches that fail completely: 500, code 5001, at the poll.
        failures: Items that fail.
        max_bytes: Maximum size of a submission in bytes. Larger submissions return 413, code 3006.
    """

    progress: Progress = "polls"
    polls: int = 1
    seconds: float = 60.0
    submit_status: int = 200
    pending_status: int = 200
    status_when_done: str | None = None
    results_for: Literal["openai", "kimi"] = "openai"
    results_models: dict[str, bool] = field(default_factory=dict)
    results_reference: bool = False
    unsupported_code: Literal[8007, 5006, 10063] = 8007
    hybrid_items: Literal["hybrid", "native"] = "hybrid"
    hybrid_messages: Literal["accept", "reject"] = "accept"
    item_formats: Literal["fill", "ignore"] = "fill"
    bad_item: Literal["item", "submission"] = "item"
    error_key: Literal["error", "errors", ""] = "error"
    answers_at_once: bool = False
    poll_needs_flag: bool = False
    shuffle: bool = True
    unknown_status: int = 404
    unknown_code: int = 5504
    unknown_message: str = "Request not found in queue"
    retention_s: float = 86_400.0
    lose: int = 0
    slow: int = 0
    slow_seconds: float = 3_600.0
    fail_batches: int = 0
    failures: list[ItemFailure] = field(default_factory=list)
    max_bytes: int = 10 * 10**6

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(slots=True)
class Job:
    """One submitted batch. Its body is parsed again when the results are collected."""

    request_id: str
    model: str
    body: bytes = field(repr=False)
    submitted_at: float
    polls: int = 0
    fails: bool = False
    not_before: float = 0.0
    charged: bool = False
    failed_items: dict[int, ItemFailure] | None = None

    @property
    def requests(self) -> list[Json]:
        """Return the items of the batch."""
        return list(json.loads(self.body)["requests"])


class Queue:
    """The batches of one service.

    Args:
        clock: The emulator's clock.
        settings: Settings of the queue. They can be changed at any time.
        seed: Seed of ``shuffle``.
    """

    def __init__(self, clock: Clock, settings: QueueSettings, seed: int) -> None:
        self._clock = clock
        self._seed = seed
        self._lock = threading.Lock()
        self.settings = settings
        self._jobs: dict[str, Job] = {}
        self.submitted = 0
        self.collected = 0

    @property
    def jobs(self) -> list[Job]:
        """Return the stored batches, oldest first."""
        with self._lock:
            return list(self._jobs.values())

    def submit(self, request_id: str, model: str, body: bytes) -> Job:
        """Store a batch."""
        with self._lock:
            job = Job(request_id, model, body, self._clock.now())
            self.submitted += 1
            if self.settings.fail_batches > 0:
                self.settings.fail_batches -= 1
                job.fails = True
            if self.settings.slow > 0:
                self.settings.slow -= 1
                job.not_before = self._clock.now() + self.settings.slow_seconds
            if self.settings.lose > 0:
                self.settings.lose -= 1
            else:
                self._jobs[request_id] = job
            return job

    def find(self, request_id: str) -> Job | None:
        """Return a batch by id; None if it is unknown, lost or expired."""
        with self._lock:
            self._expire()
            return self._jobs.get(request_id)

    def expire(self, request_id: str) -> None:
        """Expire a batch now."""
        with self._lock:
            self._jobs.pop(request_id, None)

    def progress_of(self, job: Job) -> Literal["queued", "running", "done"]:
        """Return the state of a batch. Each call counts as one poll."""
        settings = self.settings
        with self._lock:
            job.polls += 1
            if self._clock.now() < job.not_before:
                return "queued" if job.polls == 1 else "running"
            if settings.progress == "at_once":
                return "done"
            if settings.progress == "never":
                return "queued" if job.polls == 1 else "running"
            if settings.progress == "polls":
                left: float = settings.polls + 1 - job.polls
                return "done" if left <= 0 else "running" if left <= 1 else "queued"
            age = self._clock.now() - job.submitted_at
            return "done" if age >= settings.seconds else "running" if age >= settings.seconds / 2 else "queued"

    def failure_of(self, job: Job) -> dict[int, ItemFailure]:
        """Return the failing items of a finished batch by index. They are selected once per batch."""
        with self._lock:
            if job.failed_items is None:
                self.collected += 1
                job.failed_items = self._choose_failures(job) if self.settings.failures else {}
            return job.failed_items

    def uses_results(self, model_id: str, family: str) -> bool:
        """Return whether finished batches of a model use the key ``results``."""
        by_family = family == "openai" and (self.settings.results_for == "openai" or "kimi" in model_id)
        return self.settings.results_models.get(model_id, by_family)

    def arrange(self, job: Job, items: list[Any]) -> list[Any]:
        """Return the items in the order of the reply. The order is the same at every poll."""
        if self.settings.shuffle:
            random.Random(f"{self._seed}/{job.request_id}").shuffle(items)
        return items

    def _choose_failures(self, job: Job) -> dict[int, ItemFailure]:
        chosen: dict[int, ItemFailure] = {}
        for index, request in enumerate(job.requests):
            for failure in self.settings.failures:
                fits = failure.index in {None, index} and failure.times != 0
                if fits and (failure.contains is None or failure.contains in json.dumps(request, ensure_ascii=False)):
                    failure.times = None if failure.times is None else failure.times - 1
                    chosen[index] = failure
                    break
        return chosen

    def _expire(self) -> None:
        limit = self._clock.now() - self.settings.retention_s
        for request_id, job in list(self._jobs.items()):
            if job.submitted_at > limit:
                return
            del self._jobs[request_id]
