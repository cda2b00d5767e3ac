"""A deployed batch Worker as the queue: the Worker of the emulator, or a scripted one."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
from hypothesis import strategies as st
from langchain_core.load import dumps
from tests.support import every_row

from langchain_workers_ai import ChatWorkersAI
from workers_ai import AsyncClient, BatchWorker, Client, Settings, errors
from workers_ai._wire.batch_worker import group_responses
from workers_ai.batch import BatchJob
from workers_ai.ingest import aingest, ingest
from workers_ai.integration._pydantic_fields import ConnectionFields
from workers_ai_emulator import Clock, Emulator, Fault, ItemFailure, QueueSettings

URL = "https://batch.example.workers.dev"
SECRET = "Bearer secret-of-the-worker"
WORKER = BatchWorker(URL, headers={"Authorization": SECRET})
BGE = "@cf/baai/bge-base-en-v1.5"
JOB = "0b0b9a52-6d5b-4b0e-9f50-1f2f3f4f5f6f"


class Service:
    """The emulator, and all requests to it."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self.seen: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        return self.emulator.handle(request)

    def to_worker(self) -> list[httpx.Request]:
        return [request for request in self.seen if request.url.host == "batch.example.workers.dev"]


@pytest.fixture
def service() -> Service:
    return Service(Emulator(clock=Clock("jump"), queue=QueueSettings(progress="at_once")))


def batch(face: Any, method: str, *args: Any, **options: Any) -> Any:
    """Call a method of the client's queue."""
    if face.mode == "sync":
        return getattr(face.client.batch, method)(*args, **options)
    return asyncio.run(getattr(face.aclient.batch, method)(*args, **options))


def ingested(face: Any, texts: list[str], ledger: Path, **options: Any) -> Any:
    """Ingest documents with their indices as ids."""
    source = list(enumerate(texts))
    options = {"ledger": ledger, "model": BGE, "progress": False, **options}
    if face.mode == "sync":
        return ingest(source, client=face.client, **options)
    return asyncio.run(aingest(source, client=face.aclient, **options))


def test_documents_are_sent_to_the_worker_without_the_token(face: Callable[..., Any], service: Service) -> None:
    texts = [f"text number {number}" for number in range(230)]
    client = face(service, batch_worker=WORKER, session_id="s", gateway="my-gateway", default_headers={"X-Mine": "1"})
    vectors = client.embed(BGE, texts, queue="always").vectors
    submitted, polled = service.seen
    assert (submitted.method, str(submitted.url)) == ("POST", f"{URL}/batch")
    assert json.loads(submitted.content) == {"texts": texts, "model": BGE}
    assert polled.method == "GET"
    assert str(polled.url).startswith(f"{URL}/batch/")
    assert dict(polled.url.params) == {"model": BGE}
    for request in service.seen:
        assert request.headers["authorization"] == SECRET
        assert not {"x-mine", "x-session-affinity", "cf-aig-gateway-id"} & set(request.headers)
    assert vectors == client.embed(BGE, texts).vectors


def test_all_other_requests_are_sent_to_the_service_with_the_token(face: Callable[..., Any], service: Service) -> None:
    client = face(service, batch_worker=WORKER)
    client.embed(BGE, ["a"])
    client.rerank("@cf/baai/bge-reranker-base", "a", ["b"])
    client.chat("@cf/meta/llama-3.3-70b-instruct-fp8-fast", [{"role": "user", "content": "a"}])
    client.stream("@cf/meta/llama-3.3-70b-instruct-fp8-fast", [{"role": "user", "content": "a"}])
    client.embed(BGE, ["a"], kind="query", queue="always")
    assert service.to_worker() == []
    assert {request.headers["authorization"] for request in service.seen} == {"Bearer token-of-the-tests-0123456789"}


def test_texts_rejected_for_capacity_are_sent_to_the_worker(face: Callable[..., Any], service: Service) -> None:
    service.emulator.faults.add(Fault.busy(times=1, route="run"))
    client = face(service, batch_worker=WORKER, max_concurrency=1)
    texts = [f"text number {number}" for number in range(130)]
    vectors = client.embed(BGE, texts, queue="overflow").vectors
    assert [request.url.path.rpartition("/")[2] for request in service.seen[:2]] == ["bge-base-en-v1.5", "batch"]
    assert [len(json.loads(request.content)["texts"]) for request in service.to_worker()[:1]] == [100]
    assert vectors == client.embed(BGE, texts).vectors


def test_without_an_account_only_the_worker_can_be_used(face: Callable[..., Any], service: Service) -> None:
    client = face(service, account_id=None, api_token=None, batch_worker=WORKER)
    assert len(client.embed(BGE, ["a", "b"], queue="always").vectors) == 2
    thing = pickle.loads(pickle.dumps(_Thing(batch_worker=WORKER)))
    assert thing.client.settings.batch_worker == WORKER
    sent = len(service.seen)
    for call in (
        lambda: client.embed(BGE, ["a"]),
        lambda: client.embed(BGE, ["a"], queue="overflow"),
        lambda: client.chat("@cf/openai/gpt-oss-120b", [{"role": "user", "content": "a"}]),
    ):
        with pytest.raises(errors.ConfigurationError, match="serves only the queue: other calls require account_id"):
            call()
    assert len(service.seen) == sent


@pytest.mark.parametrize("half", [{"account_id": "a"}, {"api_token": "t"}])
def test_an_account_without_a_token_is_incomplete(half: dict[str, str]) -> None:
    with pytest.raises(errors.ConfigurationError, match="is missing"):
        Client(batch_worker=WORKER, **half)


class Scripted:
    """A Worker that puts ``step`` texts into each request of the queue. The vector of a text is the text itself.

    A request with a text that begins with ``!`` fails.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self.submissions: list[list[str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.submissions.append(json.loads(request.content)["texts"])
            return httpx.Response(202, json={"status": "queued", "request_id": JOB, "model": BGE})
        texts = self.submissions[-1]
        parts = [texts[first : first + self.step] for first in range(0, len(texts), self.step)]
        responses = [self.answer(index, part) for index, part in enumerate(parts)]
        return httpx.Response(200, json={"responses": responses[::-1], "usage": {"prompt_tokens": 5}})

    def answer(self, index: int, texts: list[str]) -> dict[str, Any]:
        if any(text.startswith("!") for text in texts):
            return {"id": index, "success": False, "error": {"code": 5001, "message": f"part {index} failed"}}
        rows = [[float(text)] for text in texts]
        return {"id": index, "success": True, "result": {"shape": [len(rows), 1], "data": rows, "pooling": "cls"}}


@pytest.mark.parametrize("step", [1, 2, 3, 4, 100])
def test_responses_are_grouped_by_request(face: Callable[..., Any], step: int) -> None:
    requests = [{"text": ["1", "2", "3"]}, {"text": "4"}, {"documents": ["5", "6"]}, {"text": ["7"]}]
    items = batch(face(Scripted(step), batch_worker=URL), "run", BGE, requests)
    assert [item.index for item in items] == [0, 1, 2, 3]
    assert [item.result["data"] for item in items] == [[[1.0], [2.0], [3.0]], [[4.0]], [[5.0], [6.0]], [[7.0]]]
    assert {item.result["pooling"] for item in items} == {"cls"}


@pytest.mark.parametrize(
    ("step", "requests", "failed"),
    [
        (1, ["1 2", "!3 4", "5"], {1: "part 2 failed"}),
        (2, ["1", "2 3", "!4 5", "6"], {1: "part 1 failed", 2: "part 1 failed"}),  # 3 and !4 are in one request
        (2, ["1 2 3", "!4"], {1: "part 1 failed", 0: "part 1 failed"}),  # only the last part failed
        (2, ["!1 2 3", "4"], {0: "part 0 failed"}),  # only the last part succeeded
        (3, ["!1", "2", "!3", "!4", "5"], {index: f"part {index // 3} failed" for index in range(5)}),
        (100, ["!1 2", "3"], {0: "part 0 failed", 1: "part 0 failed"}),
    ],
)
def test_a_failed_part_fails_the_requests_that_have_texts_in_it(
    face: Callable[..., Any], step: int, requests: list[str], failed: dict[int, str]
) -> None:
    items_sent = [{"text": texts.split()} for texts in requests]
    items = batch(face(Scripted(step), batch_worker=URL), "run", BGE, items_sent)
    assert {item.index: item.error.message for item in items if item.error} == failed
    assert all(item.error.code == 5001 for item in items if item.error)
    for item in items:
        if item.success:
            assert item.result["data"] == [[float(text)] for text in requests[item.index].split()]


@hypothesis.settings(deadline=None, max_examples=40)
@hypothesis.given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    step=st.integers(1, 15),
    bad=st.sets(st.integers(0, 95)),
)
def test_each_text_has_its_own_vector(sizes: list[int], step: int, bad: set[int]) -> None:
    total = sum(sizes)
    places = [list(range(first, min(first + step, total))) for first in range(0, total, step)]
    lost = {place for part in places if bad & set(part) for place in part}
    responses = [
        {"id": index, "success": False} if bad & set(part)
        else {"id": index, "success": True, "result": {"data": [[float(place)] for place in part]}}
        for index, part in enumerate(places)
    ]  # fmt: skip
    grouped = group_responses(responses, sizes, BGE) or responses
    assert [entry["id"] for entry in grouped] == list(range(len(sizes)))
    first = 0
    for entry, size in zip(grouped, sizes, strict=True):
        asked = list(range(first, first + size))
        first += size
        assert entry["success"] == (not lost & set(asked))
        if entry["success"]:
            assert entry["result"]["data"] == [[float(place)] for place in asked]


def test_a_result_that_does_not_match_the_texts_raises(face: Callable[..., Any]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, json={"status": "queued", "request_id": JOB})
        rows = {"data": [[1.0], [2.0]]}
        return httpx.Response(200, json={"responses": [{"id": 0, "success": True, "result": rows}]})

    with pytest.raises(errors.APIResponseValidationError, match="does not match the 3 texts") as caught:
        face(answer, batch_worker=URL).embed(BGE, ["a", "b", "c"], queue="always")
    assert caught.value.request_ids == (f"{JOB}.1x3",)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("odd", [10**400, 2_000_000_000, -1, True])
def test_an_invalid_id_of_a_worker_is_ignored(odd: Any) -> None:
    good = [{"id": index, "success": True, "result": {"data": [[index + 1.0]]}} for index in range(2)]
    grouped = group_responses([*good, {"id": odd, "success": True, "result": {"data": [[9.0]]}}], [2], BGE)
    assert grouped == [{"id": 0, "success": True, "result": {"data": [[1.0], [2.0]]}}]


def test_a_worker_may_answer_at_once_or_in_an_envelope(face: Callable[..., Any]) -> None:
    responses = [{"id": index, "success": True, "result": {"data": [[index + 1.0]]}} for index in range(3)]
    client = face(lambda _: httpx.Response(200, json={"result": {"responses": responses}}), batch_worker=URL)
    assert client.embed(BGE, ["a", "b", "c"], queue="always").vectors == [[1.0], [2.0], [3.0]]


def test_an_id_collects_a_job_in_another_process(face: Callable[..., Any], service: Service) -> None:
    client = face(service, batch_worker=WORKER)
    job = batch(client, "submit", BGE, [{"text": ["a", "b"]}, {"text": ["c"]}])
    worker_id, _, sizes = job.request_id.partition(".")
    assert sizes == "1x2-1x1"
    items = batch(face(service, batch_worker=WORKER), "collect", BatchJob(job.request_id, BGE))
    assert [len(item.result["data"]) for item in items] == [2, 1]
    as_the_worker_grouped = batch(client, "collect", BatchJob(worker_id, BGE))
    assert [len(item.result["data"]) for item in as_the_worker_grouped] == [3]


@every_row(("status", "body", "cls", "code", "tries", "text"), [
        (400, {"code": "INVALID_BODY", "message": "no texts"}, errors.BadRequestError, None, 1, "INVALID_BODY: no t"),
        (502, {"code": "BATCH_ERROR", "message": "3040: Capacity temporarily exceeded"}, errors.CapacityError, 3040, 3,
         "BATCH_ERROR: Capacity"),
        (502, {"code": "BATCH_ERROR", "message": "4006: you have used up your daily free allocation"},
         errors.QuotaExhaustedError, 4006, 1, "daily free allocation"),
        (502, {"code": "BATCH_ERROR", "message": "5007: No such model"}, errors.NotFoundError, 5007, 1, "No such"),
        (502, {"code": "BATCH_ERROR", "message": "fetch failed"}, errors.InternalServerError, None, 1, "fetch failed"),
        (401, "Unauthorized", errors.AuthenticationError, None, 1, "URL and headers of batch_worker="),
        (403, "no", errors.PermissionDeniedError, None, 1, "URL and headers of batch_worker="),
        (404, "", errors.NotFoundError, None, 1, "HTTP 404"),
        (429, "", errors.RateLimitError, None, 3, "HTTP 429"),
        (500, "<title>Worker threw exception</title>", errors.InternalServerError, None, 1, "HTTP 500"),
        (200, "<html>", errors.APIResponseValidationError, None, 1, URL),
        (200, {}, errors.BatchError, None, 1, "returned no request id"),
    ])  # fmt: skip
def test_rejections_of_a_submission(
    face: Callable[..., Any], status: int, body: Any, cls: type[Exception], code: Any, tries: int, text: str
) -> None:
    sent: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        if isinstance(body, str):
            return httpx.Response(status, text=body)
        return httpx.Response(status, json={"error": body} if body else {})

    with pytest.raises(errors.WorkersAIError, match=text) as caught:
        batch(face(refuse, batch_worker=WORKER), "submit", BGE, [{"text": ["a"]}])
    error = caught.value
    assert (type(error), error.code, error.attempts, len(sent)) == (cls, code, tries, tries)
    assert status < 300 or URL in str(error)
    assert "CLOUDFLARE_API_TOKEN" not in str(error)


@pytest.mark.parametrize(
    "refusal",
    [
        (400, {"code": "INVALID_REQUEST_ID", "message": "no uuid"}),
        (502, {"code": "BATCH_ERROR", "message": "5004: unknown request_id"}),
    ],
)
def test_an_unknown_id_of_a_worker_counts_as_lost(face: Callable[..., Any], refusal: tuple[int, Any]) -> None:
    status, body = refusal
    client = face(lambda _: httpx.Response(status, json={"error": body}), batch_worker=URL)
    with pytest.raises(errors.BatchError, match="is unknown to the asynchronous queue") as caught:
        batch(client, "poll", BatchJob(JOB, BGE))
    assert caught.value.request_ids == (JOB,)


def test_a_lost_connection_error_has_the_worker_and_repeats_no_submission(face: Callable[..., Any]) -> None:
    sent: list[httpx.Request] = []

    def drop(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        raise httpx.ReadError("gone", request=request)

    with pytest.raises(errors.APIConnectionError, match=r"batch\.example\.workers\.dev") as caught:
        batch(face(drop, batch_worker=URL), "submit", BGE, [{"text": ["a"]}])
    assert caught.value.delivered
    assert len(sent) == 1


def test_a_worker_with_another_model_is_rejected(face: Callable[..., Any]) -> None:
    answer = {"status": "queued", "request_id": JOB, "model": "@cf/baai/bge-m3"}
    client = face(lambda _: httpx.Response(200, json=answer), batch_worker=URL)
    with pytest.raises(errors.ConfigurationError, match="uses the model @cf/baai/bge-m3, not"):
        client.embed(BGE, ["a"], queue="always")


@pytest.mark.parametrize(
    ("model", "request_"),
    [
        (BGE, {"text": ["a"], "pooling": "cls"}),
        (BGE, {"text": ["a"], "external_reference": "mine"}),
        ("@cf/meta/llama-3.3-70b-instruct-fp8-fast", {"messages": [{"role": "user", "content": "a"}]}),
        ("@cf/baai/bge-m3", {"query": "a", "contexts": [{"text": "b"}]}),
    ],
)
def test_more_than_texts_is_rejected_before_sending(
    face: Callable[..., Any], service: Service, model: str, request_: dict[str, Any]
) -> None:
    with pytest.raises(errors.ConfigurationError, match="accepts only texts to embed"):
        batch(face(service, batch_worker=URL), "submit", model, [request_])
    assert service.seen == []


def test_a_corpus_is_embedded_by_the_worker_and_only_a_bad_text_fails(
    face: Callable[..., Any], service: Service, tmp_path: Path
) -> None:
    texts = [f"text number {number}" for number in range(250)]
    service.emulator.queue.settings.failures.append(ItemFailure(contains="number 77"))
    client = face(service, batch_worker=WORKER)
    report = ingested(client, texts, tmp_path / "ledger")
    assert (report.embedded, report.failed) == (249, 1)
    assert [failure.id for failure in report.failures] == [77]
    assert len(service.to_worker()) == len(service.seen)
    vectors = dict(report.vectors())
    for place in (0, 76, 78, 249):
        assert list(vectors[place]) == pytest.approx(client.embed(BGE, [texts[place]]).vectors[0], abs=1e-6)


def test_accepted_submissions_are_collected_by_the_next_run(
    face: Callable[..., Any], service: Service, tmp_path: Path
) -> None:
    texts = [f"text number {number}" for number in range(120)]

    def closed(request: httpx.Request) -> httpx.Response:
        return service(request) if request.method == "POST" else httpx.Response(401, text="Unauthorized")

    with pytest.raises(errors.AuthenticationError) as caught:
        ingested(face(closed, batch_worker=WORKER), texts, tmp_path / "ledger")
    assert [request_id.partition(".")[2] for request_id in caught.value.request_ids] == ["1x100-1x20"]
    report = ingested(face(service, batch_worker=WORKER), texts, tmp_path / "ledger")
    assert (report.embedded, report.failed) == (120, 0)
    assert [request.method for request in service.seen] == ["POST", "GET"]


@every_row(
    ("worker", "text"),
    [
        ("batch.example", "batch_worker is not an http"),
        ("http://batch.example", "batch_worker http://batch.example is not encrypted"),
        ("https://user:pw@batch.example", "must not have a user"),
        ("https://batch.example/?token=x", "must not have a user, query"),
        ("https://batch.example/../x", "must not contain '..'"),
        ({"url": URL, "token": "x"}, "must have the key url"),
        ({"url": URL, "headers": {"X-Key": "line\nbreak"}}, "value of header X-Key"),
    ],
)
def test_an_invalid_worker_is_rejected_by_the_constructor(account: dict[str, Any], worker: Any, text: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=text) as caught:
        Client(**account, batch_worker=worker)
    assert "pw" not in str(caught.value)


def test_a_worker_on_this_machine_or_below_a_path(account: dict[str, Any]) -> None:
    for url in ("http://127.0.0.1:8787", f"{URL}/queue"):
        settings = Settings.resolve(**account, batch_worker=f" {url}/ ")
        assert settings.batch_worker == BatchWorker(url)


def test_a_binding_has_its_own_queue(env_ai: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match="binding= or batch_worker="):
        Client(binding=env_ai, batch_worker=URL)


class _Thing(ConnectionFields):
    pass


def test_the_headers_of_the_worker_are_masked(account: dict[str, Any]) -> None:
    thing = _Thing(**account, batch_worker={"url": URL, "headers": {"Authorization": SECRET}})
    client = Client(**account, batch_worker=WORKER)
    for shown in (repr(WORKER), repr(thing), str(thing.model_dump()), thing.model_dump_json(), repr(client.settings)):
        assert "secret-of-the-worker" not in shown
        assert "workers.dev" in shown
    for copied in (pickle.loads(pickle.dumps(thing)), thing.model_copy(deep=True)):
        assert copied.batch_worker == WORKER
        assert copied.client.settings.batch_worker == WORKER


def test_a_secret_repeated_by_a_worker_is_masked(face: Callable[..., Any]) -> None:
    reply = httpx.Response(400, json={"error": {"code": "INVALID_BODY", "message": f"no {SECRET}"}})
    with pytest.raises(errors.BadRequestError) as caught:
        batch(face(lambda _: reply, batch_worker=WORKER), "submit", BGE, [{"text": ["a"]}])
    error = caught.value
    assert "secret-of-the-worker" not in f"{error!r} {error} {error.body} {error.response.text} {error.__dict__}"


def test_a_pickled_client_uses_the_worker(service: Service, account: dict[str, Any]) -> None:
    with service.emulator.serve() as url:
        worker = BatchWorker(url.removesuffix("/client/v4"), headers={"X-Key": "secret-of-the-worker"})
        client = Client(**account, base_url="http://127.0.0.1:9", batch_worker=worker)
        with pickle.loads(pickle.dumps(client)) as restored:
            (item,) = restored.batch.run(BGE, [{"text": ["a"]}])
    assert item.success
    submitted = service.emulator.log.entries[0]
    assert (submitted.route, submitted.headers["x-key"]) == ("batch_worker", "secret-of-the-worker")
    assert "authorization" not in submitted.headers


async def test_async_connections_to_the_worker_are_closed(service: Service, account: dict[str, Any]) -> None:
    with service.emulator.serve() as url:
        worker = url.removesuffix("/client/v4")
        async with AsyncClient(**account, base_url="http://127.0.0.1:9", batch_worker=worker) as client:
            (item,) = await client.batch.run(BGE, [{"text": ["a"]}])
    assert item.success


def test_a_langchain_dump_has_the_worker_without_its_headers(account: dict[str, Any]) -> None:
    chat = ChatWorkersAI(model="@cf/openai/gpt-oss-120b", **account, batch_worker=WORKER)
    dump = dumps(chat)
    assert "secret-of-the-worker" not in dump
    kwargs = json.loads(dump)["kwargs"]
    assert ChatWorkersAI(**{**kwargs, **account}).batch_worker == BatchWorker(URL)
