"""An ingestion on a faulty queue: correct vectors or a typed error, and each text is paid for once."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from workers_ai.catalogue import ModelCard
from workers_ai.errors import (
    APIConnectionError,
    APIResponseValidationError,
    BatchError,
    BatchItemError,
    BatchTimeoutError,
    CapacityError,
    QuotaExhaustedError,
    WorkersAIError,
)
from workers_ai.ledger import _engine as engine

TEXTS = 500
PER_JOB = 50
PER_REQUEST = 25


def vector(text: str) -> list[float]:
    """Return a vector that depends on all of the text, so that the vector of another text is detected."""
    digest = hashlib.sha256(text.encode()).digest()
    return [1.0 + byte for byte in digest[:4]]


def envelope(result: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json={"result": result, "success": True, "errors": [], "messages": []})


def refusal(status: int, code: int, message: str = "AiError: no") -> httpx.Response:
    body = {"result": None, "success": False, "errors": [{"code": code, "message": message}], "messages": []}
    return httpx.Response(status, json=body)


@dataclass
class Job:
    """A submission in the queue."""

    number: int
    request_id: str
    requests: list[list[str]]
    polls: int = 0
    since: float = 0.0

    def item(self, index: int) -> dict[str, Any]:
        texts = self.requests[index]
        data = [vector(text) for text in texts]
        return {"id": index, "success": True, "result": {"shape": [len(data), 4], "data": data}}

    def done(self) -> dict[str, Any]:
        return {"responses": [self.item(index) for index in range(len(self.requests))]}

    def failed(self, code: int, *, which: Callable[[list[str]], bool] = lambda texts: True) -> dict[str, Any]:
        error = {"success": False, "error": {"code": code, "message": f"AiError: {code}"}}
        return {
            "responses": [
                {"id": index, **error} if which(texts) else self.item(index)
                for index, texts in enumerate(self.requests)
            ]
        }


@dataclass
class Queue:
    """A queue that finishes jobs after one poll, with the faults of ``behave``."""

    clock: Any
    behave: Callable[[Queue, Job], Any] = lambda queue, job: None
    accept: Callable[[Queue, Job], httpx.Response | None] = lambda queue, job: None
    jobs: dict[str, Job] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)
    numbers: Any = field(default_factory=itertools.count)
    down_until: float = 0.0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if "requests" not in body:
            return self._poll(body["request_id"])
        number = next(self.numbers)
        job = Job(number, f"request-{number}", [part["text"] for part in body["requests"]], since=self.clock())
        if (other := self.accept(self, job)) is not None:
            return other
        self.take(job)
        return envelope({"status": "queued", "request_id": job.request_id, "model": "m"})

    def take(self, job: Job) -> None:
        self.sent.update(text for texts in job.requests for text in texts)
        self.jobs[job.request_id] = job

    def _poll(self, request_id: str) -> httpx.Response:
        job = self.jobs.get(request_id)
        if job is None:
            return refusal(404, 5504, "AiError: AiError: Request not found in queue")
        job.polls += 1
        if job.polls == 1:
            return envelope({"status": "queued", "request_id": request_id, "model": "m"})
        answer = self.behave(self, job)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        return envelope(answer if answer is not None else job.done())


def early(reply: Callable[[Job], Any], until: int = 5) -> Callable[[Queue, Job], Any]:
    """Return this reply to polls of every job, up to poll number ``until``."""
    return lambda queue, job: reply(job) if job.polls < until else None


def once(reply: Callable[[Job], Any], number: int = 3) -> Callable[[Queue, Job], Any]:
    """Return this reply to all polls of one job."""
    return lambda queue, job: reply(job) if job.number == number else None


def first(reply: Callable[[Job], Any], jobs: int = 1) -> Callable[[Queue, Job], Any]:
    """Return this reply to all polls of the first jobs."""
    return lambda queue, job: reply(job) if job.number < jobs else None


def running(job: Job, **more: Any) -> dict[str, Any]:
    return {"status": "running", "request_id": job.request_id, "model": "m", **more}


def wrong_length(job: Job) -> dict[str, Any]:
    """Return vectors of five numbers, late, because the first result of a run sets the length."""
    if job.polls < 6:
        return running(job)
    result = job.done()
    for item in result["responses"]:
        item["result"]["data"] = [[*row, 1.0] for row in item["result"]["data"]]
    return result


def outage(queue: Queue, job: Job) -> Any:
    """Return 502 for ten minutes, from the first poll that would have returned a result."""
    queue.down_until = queue.down_until or queue.clock() + 600
    return httpx.Response(502, html="<html>bad gateway</html>") if queue.clock() < queue.down_until else None


def reordered(job: Job) -> dict[str, Any]:
    return {"responses": job.done()["responses"][::-1]}


def repeated(job: Job) -> dict[str, Any]:
    responses = job.done()["responses"]
    return {"responses": [*responses, {"id": 0, "success": False}, {"id": 99, "success": True, "result": {}}, None]}


def reuses(queue: Queue, job: Job) -> None:
    """Return the id of the third submission for the fourth one, too. Only the later one can be polled."""
    if job.number == 3:
        job.request_id = "request-2"


def forgets(queue: Queue, job: Job) -> Any:
    if job.number == 3:
        del queue.jobs[job.request_id]
        return refusal(404, 5504, "AiError: AiError: Request not found in queue")
    return None


def loses_reply(queue: Queue, job: Job) -> httpx.Response | None:
    if job.number == 3:
        queue.take(job)
        raise httpx.ReadError("connection reset")
    return None


def late(queue: Queue, job: Job) -> Any:
    """Accept an id only half a minute after it was returned."""
    known = queue.clock() - job.since > 30
    return None if known else refusal(404, 5504, "AiError: AiError: Request not found in queue")


def busy_submissions(queue: Queue, job: Job) -> httpx.Response | None:
    return refusal(429, 3040, "AiError: Capacity temporarily exceeded") if job.number % 3 else None


def quota(queue: Queue, job: Job) -> httpx.Response | None:
    return refusal(429, 4006, "you have used up your daily free allocation") if job.number >= 5 else None


BAD = "text number 77"


@dataclass
class Case:
    """One fault.

    Attributes:
        behave: Replies to polls.
        accept: Replies to submissions.
        ends: The error that ends the run, or None.
        failed: Documents that fail.
        factor: Texts that may be sent, as a multiple of the corpus.
    """

    behave: Callable[[Queue, Job], Any] = lambda queue, job: None
    accept: Callable[[Queue, Job], httpx.Response | None] = lambda queue, job: None
    ends: type[WorkersAIError] | None = None
    failed: int = 0
    factor: float = 1.0


CASES = {
    "behaves": Case(),
    "other order": Case(first(reordered, 99)),
    "results and index": Case(
        first(lambda job: {"results": [{"index": i["id"], "result": i["result"]} for i in job.done()["responses"]]}, 99)
    ),
    "entries repeated and foreign": Case(first(repeated, 99)),
    "queued beside partial responses": Case(early(lambda job: running(job, responses=job.done()["responses"][:1]))),
    "a state of its own": Case(early(lambda job: running(job, status="in_progress"))),
    "null": Case(early(lambda job: envelope(None))),
    "an empty object": Case(early(lambda job: {})),
    "an empty list": Case(early(lambda job: {"responses": []})),
    "an empty body": Case(early(lambda job: httpx.Response(200, content=b""))),
    "cut JSON": Case(early(lambda job: httpx.Response(200, content=json.dumps({"result": job.done()})[:-9].encode()))),
    "HTML with status 200": Case(early(lambda job: httpx.Response(200, html="<html>soon</html>"))),
    "5xx without end for ten minutes": Case(outage),
    "5xx with a code": Case(early(lambda job: refusal(500, 3043, "AiError: internal"), 8)),
    "connections that break": Case(early(lambda job: httpx.ReadError("reset"), 8)),
    "polls that are busy": Case(early(lambda job: refusal(429, 3040, "AiError: Capacity temporarily exceeded"))),
    "ids known half a minute later": Case(late),
    "a job that is forgotten": Case(forgets, factor=1.1),
    "a job that fails as a whole": Case(once(lambda job: {"status": "failed", "error": "worker died"}), factor=1.1),
    "a job that never ends": Case(once(running), failed=PER_JOB),
    "a job whose polls are empty for ever": Case(once(lambda job: envelope(None)), failed=PER_JOB),
    "jobs that all never end": Case(first(running, 99), ends=BatchTimeoutError),
    "vectors of another length": Case(once(wrong_length), factor=1.1),
    "a text that fails its request": Case(
        lambda queue, job: job.failed(5004, which=lambda texts: BAD in texts), failed=1, factor=1.15
    ),
    "every text fails": Case(lambda queue, job: job.failed(5004), ends=BatchItemError, factor=1.1),
    "items fail with capacity": Case(first(lambda job: job.failed(3040)), factor=1.1),
    "items fail with 5xx": Case(first(lambda job: job.failed(3050)), factor=1.1),
    "capacity without end": Case(lambda queue, job: job.failed(3040), ends=CapacityError, factor=9.0),
    "quota in an item": Case(
        lambda queue, job: job.failed(3036) if job.number == 3 else None, ends=QuotaExhaustedError
    ),
    "quota at a submission": Case(accept=quota, ends=QuotaExhaustedError),
    "submissions that are busy": Case(accept=busy_submissions),
    "a submission whose reply is lost": Case(accept=loses_reply, factor=1.1),
    "an id that is given twice": Case(accept=reuses, ends=BatchError),
    "a queue that is not there": Case(
        accept=lambda queue, job: (_ for _ in ()).throw(httpx.ConnectError("refused")), ends=APIConnectionError
    ),
    "no vectors at all": Case(
        lambda queue, job: {"responses": [{"id": n, "success": True, "result": {}} for n in range(len(job.requests))]},
        ends=BatchItemError,
        factor=1.1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_queue(run: Any, texts: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Texts are sent at most ``factor`` times: 1.1, or 1.15 if a text is found by halving (1.1 for a larger corpus)."""
    monkeypatch.setattr(
        ModelCard, "texts_per_request", PER_REQUEST
    )  # a smaller corpus with the same number of requests
    monkeypatch.setattr(engine, "JOB_DEADLINE_S", 3600.0)  # a shorter day
    monkeypatch.setattr(engine, "_POLL_SLEEP_S", 10.0)
    case = CASES[name]
    queue = Queue(clock, case.behave, case.accept)
    documents = texts(TEXTS)
    began, clock.step_s = clock.now, 10.0

    def embed() -> Any:
        return run(documents, transport=httpx.MockTransport(queue), texts_per_job=PER_JOB)

    if case.ends is not None:
        with pytest.raises(case.ends) as raised:
            embed()
        assert isinstance(raised.value, WorkersAIError)
    else:
        report = embed()
        assert (report.embedded, report.failed) == (TEXTS - case.failed, case.failed)
        assert all(code is None or message for _, code, message, _ in report.failures)
    assert sum(queue.sent.values()) <= case.factor * TEXTS
    assert clock.now - began < 2 * 3600
    queue.behave = queue.accept = lambda queue, job: None
    whole = embed()
    assert (whole.embedded + whole.reused, whole.failed) == (TEXTS, 0)
    assert {doc_id: list(found) for doc_id, found in whole.vectors()} == {
        doc_id: vector(text) for doc_id, text in documents
    }


def test_there_are_at_least_25_hostile_queues() -> None:
    assert len(CASES) >= 25
    assert not {APIResponseValidationError} & {case.ends for case in CASES.values()}, "no run ends without a reason"
