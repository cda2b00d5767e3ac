"""One interface to sync and async generation, against a queue in this process, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.bulk_runs import VirtualTime, use_clock, virtual_time

from workers_ai import AsyncClient, Client
from workers_ai.generation import GenerateReport, agenerate, generate

KIMI = "@cf/moonshotai/kimi-k2.6"


@dataclass
class FakeJob:
    """One submission."""

    number: int
    requests: list[dict[str, Any]]
    polls: int = 0


def prompt_of(request: dict[str, Any]) -> str:
    """Return the last user text of a request of either form."""
    messages = request.get("messages") or request["input"]
    return str([message["content"] for message in messages if message["role"] == "user"][-1])


def first_prompt(request: dict[str, Any]) -> str:
    """Return the first user text of a request of either form."""
    messages = request.get("messages") or request["input"]
    return str(next(message["content"] for message in messages if message["role"] == "user"))


@dataclass
class FakeQueue:
    """A queue and a chat route that return ``answer(request)``.

    Attributes:
        answer: Returns the text of an answer, a whole result, or an error as a dict with ``error``.
        shape: ``"results"`` with ``index``, or ``"responses"`` with ``id``.
        reference: Whether items repeat their ``external_reference``.
        usage: Whether items report their usage.
        order: Changes the order of the items.
        poll: Returns the reply to a poll, or None for the queue's own reply.
        accept: Returns the reply to a submission, or None for the queue's own reply.
    """

    answer: Callable[[dict[str, Any]], Any] = lambda request: f"answer to {prompt_of(request)}"
    shape: str = "results"
    reference: bool = True
    usage: bool = True
    order: Callable[[list[Any]], list[Any]] = list
    poll: Callable[[FakeJob], Any] = lambda job: None
    accept: Callable[[FakeJob], Any] = lambda job: None
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    output_tokens: int = 0
    input_tokens: int = 0
    submissions: int = 0
    direct: int = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if "requests" in body:
            return self._submit(body)
        if "request_id" in body:
            return self._poll(body["request_id"])
        self.direct += 1
        self.take([body])
        result = self._item(0, body)
        if "error" in result:
            error = result["error"]
            return httpx.Response(400, json={"success": False, "errors": [error], "result": None})
        return httpx.Response(200, json=result["result"])

    def _submit(self, body: dict[str, Any]) -> httpx.Response:
        job = FakeJob(self.submissions, body["requests"])
        self.submissions += 1
        if (reply := self.accept(job)) is not None:
            assert isinstance(reply, httpx.Response)
            return reply
        self.take(job.requests)
        self.jobs[f"request-{job.number}"] = job
        return envelope({"status": "queued", "request_id": f"request-{job.number}", "model": "m"})

    def take(self, requests: list[dict[str, Any]]) -> None:
        self.bodies += requests
        self.sent += [first_prompt(request) for request in requests]

    def _poll(self, request_id: str) -> httpx.Response:
        job = self.jobs.get(request_id)
        if job is None:
            return refusal(404, 5504, "AiError: Request not found in queue")
        job.polls += 1
        if (reply := self.poll(job)) is not None:
            return reply if isinstance(reply, httpx.Response) else envelope(reply)
        return envelope(self.done(job))

    def done(self, job: FakeJob) -> dict[str, Any]:
        items = self.order([self._item(index, request) for index, request in enumerate(job.requests)])
        return {self.shape: items}

    def _item(self, index: int, request: dict[str, Any]) -> dict[str, Any]:
        item: dict[str, Any] = {"index" if self.shape == "results" else "id": index}
        if self.reference and "external_reference" in request:
            item["external_reference"] = request["external_reference"]
        found = self.answer(request)
        if isinstance(found, dict) and "error" in found:
            return {**item, "success": False, "error": found["error"]}
        return {**item, "success": True, "result": self._result(request, found)}

    def _result(self, request: dict[str, Any], found: Any) -> dict[str, Any]:
        result = {"response": found, "finish": None} if not isinstance(found, dict) else dict(found)
        finish = result.pop("finish", None)
        cap = request.get("max_tokens") or request.get("max_output_tokens") or 10**9
        made = min(cap, result.pop("tokens", 12))
        self.output_tokens += made
        read = len(json.dumps(request)) // 4
        self.input_tokens += read
        if self.shape == "results" or "requests" not in request:
            message = {"role": "assistant", "content": result["response"]}
            choice = {"message": message, "finish_reason": finish or "stop"}
            result = {"object": "chat.completion", "choices": [choice]}
        if self.usage:
            result["usage"] = {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}
        return result


def envelope(result: Any) -> httpx.Response:
    return httpx.Response(200, json={"success": True, "errors": [], "messages": [], "result": result})


def refusal(status: int, code: int, message: str) -> httpx.Response:
    error = {"code": code, "message": message}
    return httpx.Response(status, json={"success": False, "errors": [error], "messages": [], "result": None})


@dataclass
class Generator:
    """Run ``generate`` or ``agenerate`` on one ledger, against a queue."""

    face: str
    account: dict[str, Any]
    ledger: Path
    clock: Callable[[], float]

    def __call__(self, source: Iterable[Any], queue: Any, **options: Any) -> GenerateReport:
        transport = (
            httpx.MockTransport(queue) if callable(queue) and not isinstance(queue, httpx.BaseTransport) else queue
        )
        settings = {**self.account, "max_retries": 0, "max_concurrency": options.pop("max_concurrency", 4)}
        options = {"ledger": self.ledger, "model": KIMI, "max_tokens": 100, "progress": False, **options}
        if self.face == "sync":
            client = Client(http_client=httpx.Client(transport=transport), **settings)
            use_clock(client, self.clock)
            return generate(source, client=client, **options)
        aclient = AsyncClient(http_async_client=httpx.AsyncClient(transport=transport), **settings)
        use_clock(aclient, self.clock)
        return asyncio.run(agenerate(source, client=aclient, **options))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """Return virtual time."""
    return virtual_time(monkeypatch)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "answers.ledger"


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest, account: dict[str, Any], ledger: Path, clock: VirtualTime) -> Generator:
    """Return a function that generates. The test runs once sync and once async."""
    return Generator(request.param, account, ledger, clock)


@pytest.fixture
def sync(account: dict[str, Any], ledger: Path, clock: VirtualTime) -> Generator:
    """Return a function that generates synchronously."""
    return Generator("sync", account, ledger, clock)


def inputs(count: int, first: int = 0) -> list[tuple[str, str]]:
    """Return a number of different inputs."""
    return [(f"id-{number}", f"question number {number}") for number in range(first, first + count)]
