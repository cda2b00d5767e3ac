"""Recorded replies of the queue, over each transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import every_row

from workers_ai import AsyncClient, BatchWorker, Client, errors
from workers_ai._wire.batch import read_poll
from workers_ai._wire.chat.reply import read_chat
from workers_ai._wire.request import ReplyContext
from workers_ai.batch import BatchJob
from workers_ai.ingest import ingest
from workers_ai.types import BatchItem

KIMI = "@cf/moonshotai/kimi-k2.6"
BGE = "@cf/baai/bge-base-en-v1.5"
JOB = "0b0b9a52-6d5b-4b0e-9f50-1f2f3f4f5f6f"
Queue = Callable[..., Any]


SERVICE = ["rest-sync", "rest-async", "binding"]
WORKER = ["worker-sync", "worker-async"]


@pytest.fixture(params=[*SERVICE, *WORKER])
def queue(request: pytest.FixtureRequest, account: dict[str, Any], scripted: Any, thrown: Any) -> Queue:
    """Return a function that calls a method of a client's queue. ``reply`` is the reply to polls."""
    from tests.conftest import Face

    kind, _, mode = request.param.partition("-")

    def call(method: str, *args: Any, reply: Any, polls: list[Any] | None = None) -> Any:
        polls = [] if polls is None else polls

        def http(sent: httpx.Request) -> httpx.Response:
            body = {} if sent.method == "GET" else json.loads(sent.content)
            if "requests" in body or "texts" in body:
                taken = {"status": "queued", "request_id": JOB, "model": body.get("model", BGE)}
                return httpx.Response(200, json=taken if kind == "worker" else {"result": taken, "success": True})
            polls.append(body)
            return reply(kind)

        def binding(model: str, inputs: dict[str, Any], options: dict[str, Any]) -> Any:
            if "requests" in inputs:
                return {"status": "queued", "request_id": JOB, "model": model}
            polls.append(inputs)
            outcome = reply(kind)
            if isinstance(outcome, str):
                raise thrown(outcome)
            return outcome

        if kind == "binding":
            return asyncio.run(getattr(AsyncClient(binding=scripted(binding)).batch, method)(*args))
        face = Face(mode, http, {"batch_worker": BatchWorker("https://batch.example")} if kind == "worker" else {})
        if mode == "sync":
            return getattr(face.client.batch, method)(*args)
        return asyncio.run(getattr(face.aclient.batch, method)(*args))

    return call


def finished(result: Any) -> Callable[[str], Any]:
    """Return the reply of a finished job, in the form of each route."""

    def reply(kind: str) -> Any:
        if kind == "binding":
            return result
        whole = {"result": result, "success": True, "errors": [], "messages": []}
        return httpx.Response(200, json=result if kind == "worker" else whole)

    return reply


OLDER = {"responses": [{"id": 1, "result": {"data": [[2.0]]}, "success": True, "external_reference": None},
                       {"id": 0, "result": {"data": [[1.0]]}, "success": True, "external_reference": None}],
         "usage": {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2}}  # fmt: skip
NEWER = {"results": [{"index": 0, "result": {"data": [[1.0]]}, "success": True},
                     {"index": 1, "result": {"data": [[2.0]]}, "success": True}],
         "usage": {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2}}  # fmt: skip
MIXED = {"responses": [OLDER["responses"][0]], "results": [NEWER["results"][0]], "usage": OLDER["usage"]}
NULL_TWIN = {"responses": None, **NEWER}


@every_row("result", [OLDER, NEWER, MIXED, NULL_TWIN])
@pytest.mark.parametrize("method", ["poll", "collect", "run"])
def test_a_finished_batch_is_read_under_either_spelling(queue: Queue, method: str, result: Any) -> None:
    requests = [{"text": ["a"]}, {"text": ["b"]}]
    args = (BGE, requests) if method == "run" else (BatchJob(JOB, BGE, 2),)
    found = queue(method, *args, reply=finished(result))
    if method == "poll":
        assert (found.state, found.usage.total_tokens) == ("done", 2)
        found = found.items
    assert found == [BatchItem(i, None, True, {"data": [[i + 1.0]]}, None) for i in range(2)]


@pytest.mark.parametrize("queue", SERVICE, indirect=True)
def test_a_finished_chat_job_of_kimi_is_answers(queue: Queue) -> None:
    message = {"role": "assistant", "content": "alpha", "reasoning_content": "...", "tool_calls": None}
    answer = {"id": "0" * 32, "object": "chat.completion", "model": KIMI,
              "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "matched_stop": 1,
                           "message": message}],
              "usage": {"prompt_tokens": 9, "completion_tokens": 40, "total_tokens": 49, "prompt_tokens_details": None},
              "metadata": {"weight_version": "default"}}  # fmt: skip
    body = {"results": [{"index": 0, "result": answer, "success": True}]}
    (item,) = queue("run", KIMI, [{"messages": []}], reply=finished(body))
    reply = read_chat(item.result, ReplyContext(model=KIMI))
    assert (reply.text, reply.finish_reason, reply.usage.total_tokens) == ("alpha", "stop", 49)


@pytest.mark.parametrize("queue", WORKER, indirect=True)
def test_vectors_of_a_worker_that_groups_texts_are_read_under_either_spelling(queue: Queue) -> None:
    rows = [{"embedding": [2.0], "index": 1}, {"embedding": [1.0], "index": 0}]
    body = {"results": [{"index": 1, "success": False, "error": "broke"}, {"index": 0, "result": {"data": rows}}]}
    items = queue("run", BGE, [{"text": ["a"]}, {"text": ["b"]}, {"text": ["c"]}], reply=finished(body))
    assert [item.result and item.result["data"] for item in items] == [[[1.0]], [[2.0]], None]
    assert (items[2].index, items[2].error.message) == (2, "broke")


@settings(max_examples=40)
@given(st.data())
def test_items_of_both_spellings_are_in_the_order_of_the_requests(data: st.DataObject) -> None:
    size = data.draw(st.integers(min_value=1, max_value=6))
    spelled: dict[str, list[Any]] = {"responses": [], "results": []}
    for index in data.draw(st.permutations(range(size))):
        newer = data.draw(st.booleans())
        name = data.draw(st.sampled_from([index, str(index), float(index)]))
        reference = data.draw(st.sampled_from([{}, {"external_reference": None}]))
        entry = {"index" if newer else "id": name, "result": {"n": index, "usage": {"total_tokens": 1}}, **reference}
        spelled[data.draw(st.sampled_from(["responses", "results"]))].append(entry)
    status = read_poll({"result": spelled, "success": True}, BatchJob(JOB, KIMI, size))
    assert [(item.index, item.external_reference, item.result["n"]) for item in status.items] == [
        (index, None, index) for index in range(size)
    ]
    assert status.usage is not None  # the sum, because the batch has no usage record
    assert status.usage.total_tokens == size


@pytest.mark.parametrize("size", [2, None])
def test_a_running_job_with_some_of_its_results_is_not_done(size: int | None) -> None:
    for partial in ([], NEWER["results"][:1]):
        if partial and size is None:
            continue
        status = read_poll({"status": "running", "request_id": JOB, "results": partial}, BatchJob(JOB, BGE, size))
        assert status == ("running", (), None)


LOST = f"AiError: AiError: Request not found in queue ({JOB})"


def unknown_job(status: int, code: int | None) -> Callable[[str], Any]:
    """Return the error response to a poll for an unknown job, in the form of each route."""

    def reply(kind: str) -> Any:
        if kind == "binding":
            return f"{code}: {LOST}" if code else LOST
        if kind == "worker":
            error: Any = {"code": "BATCH_ERROR", "message": f"{code}: {LOST}" if code else LOST}
            return httpx.Response(502, json=[{"error": error}, error, {**error, "error": "BATCH_ERROR"}][status % 3])
        errors_ = [{"message": LOST, **({"code": code} if code else {})}]
        return httpx.Response(status, json={"errors": errors_, "success": False, "result": {}, "messages": []})

    return reply


@every_row("status", [200, 400, 404, 410, 422, 500])
@pytest.mark.parametrize("code", [5504, None])
@pytest.mark.parametrize("method", ["poll", "collect"])
def test_a_job_with_an_unknown_id_is_polled_once(queue: Queue, method: str, code: int | None, status: int) -> None:
    polls: list[Any] = []
    with pytest.raises(errors.BatchError, match=f"the request id {JOB} is unknown") as caught:
        queue(method, BatchJob(JOB, BGE, 1), reply=unknown_job(status, code), polls=polls)
    error = caught.value
    assert (error.code, error.request_ids, error.is_retryable, len(polls)) == (code, (JOB,), False, 1)
    assert error.status_code is not None
    assert "Request not found in queue" in str(error)
    assert "AiError" not in str(error)
    assert "Check the model id" not in str(error)


@pytest.mark.parametrize("queue", WORKER, indirect=True)
@pytest.mark.parametrize("method", ["poll", "collect", "run"])
def test_placeholders_of_a_worker_in_demo_mode_are_rejected(queue: Queue, method: str) -> None:
    args = (BGE, [{"text": ["a"]}, {"text": ["b"]}]) if method == "run" else (BatchJob(JOB, BGE, 2),)
    with pytest.raises(errors.ConfigurationError, match="demo mode"):
        queue(method, *args, reply=finished({**OLDER, "mode": "demo"}))
    assert queue(method, *args, reply=finished({**OLDER, "mode": "live"}))


@pytest.mark.parametrize(
    "refusal",
    [
        {"code": "INVALID_BODY", "message": "unknown field: model"},
        {"error": "INVALID_BODY", "message": "only texts is allowed"},
        {"error": {"code": "INVALID_BODY", "message": "Unrecognized key: 'model'"}},
    ],
)
def test_a_strict_worker_receives_only_texts_in_later_calls_too(refusal: Any, face: Any) -> None:
    sent: list[Any] = []

    def strict(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else dict(request.url.params)
        sent.append(body)
        if request.method == "GET":
            return httpx.Response(200, json=OLDER if not body else {"status": "failed"})
        taken = {"status": "queued", "request_id": JOB}
        return httpx.Response(400, json=refusal) if body.keys() != {"texts"} else httpx.Response(200, json=taken)

    one = face(strict, batch_worker="https://batch.example")
    for _ in range(2):
        assert one.embed(BGE, ["a", "b"], queue="always").vectors == [[1.0], [2.0]]
    assert sent == [{"texts": ["a", "b"], "model": BGE}, {"texts": ["a", "b"]}, {}, {"texts": ["a", "b"]}, {}]


def test_placeholders_of_a_worker_never_reach_a_ledger(account: dict[str, Any], tmp_path: Path) -> None:
    mode = "demo"

    def worker(request: httpx.Request) -> httpx.Response:
        taken = {"status": "queued", "request_id": JOB, "model": BGE}
        return httpx.Response(200, json={"mode": mode, **(taken if request.method == "POST" else OLDER)})

    client = Client(**account, batch_worker="https://batch.example", http_client=_answered_by(worker))
    options: dict[str, Any] = {"client": client, "model": BGE, "ledger": tmp_path / "ledger", "progress": False}
    with pytest.raises(errors.ConfigurationError, match="demo mode"):
        ingest([("a", "a"), ("b", "b")], texts_per_job=1, **options)
    mode = "live"
    report = ingest([("a", "a"), ("b", "b")], **options)
    assert (report.embedded, report.reused, dict(report.vectors())["b"][0]) == (2, 0, 2.0)


def _answered_by(handler: Callable[[httpx.Request], httpx.Response]) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(handler))
