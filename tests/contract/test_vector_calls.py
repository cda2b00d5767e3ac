"""Embedding and rerank calls: division into requests, and arguments rejected before sending (group 9)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from workers_ai import errors as e
from workers_ai_emulator import Emulator, Fault

BGE = "@cf/baai/bge-small-en-v1.5"
BGE_M3 = "@cf/baai/bge-m3"
QWEN = "@cf/qwen/qwen3-embedding-0.6b"
RERANKER = "@cf/baai/bge-reranker-base"


class Counting:
    """Answer each text with a vector that identifies it, and record the requests.

    Args:
        limit: Maximum total characters of one request. A larger request is rejected with ``refusal``.
    """

    def __init__(self, limit: int | None = None, refusal: httpx.Response | None = None) -> None:
        self.limit, self.refusal = limit, refusal
        self.bodies: list[Any] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        texts = body.get("text") or body.get("documents") or body.get("queries")
        if self.limit is not None and sum(map(len, texts)) > self.limit:
            assert self.refusal is not None
            return httpx.Response(self.refusal.status_code, content=self.refusal.content)
        self.bodies.append(texts)
        result = {"data": [[float(len(text)), float(ord(text[-1]))] for text in texts], "pooling": "mean"}
        result["usage"] = {"prompt_tokens": len(texts), "total_tokens": len(texts), "neurons": 0.5 * len(texts)}
        return httpx.Response(200, json={"result": result, "success": True, "errors": [], "messages": []})


def vector(text: str) -> list[float]:
    return [float(len(text)), float(ord(text[-1]))]


def refused(status: int, code: int, text: str) -> httpx.Response:
    entry = {"message": f"AiError: {text}", "code": code}
    return httpx.Response(status, json={"errors": [entry], "success": False, "result": {}, "messages": []})


@pytest.mark.parametrize(
    ("model", "options", "sizes"),
    [
        (BGE, {}, [100, 100, 50]),
        (QWEN, {}, [32] * 7 + [26]),
        ("@cf/somebody/unknown-embedding", {}, [100, 100, 50]),
        (BGE, {"batch_size": 40}, [40] * 6 + [10]),
        (BGE, {"batch_size": 1000}, [100, 100, 50]),  # a request that is certain to be rejected is never sent
    ],
)
def test_texts_are_divided_into_requests_and_vectors_keep_their_order(
    model: str, options: Any, sizes: list[int], face: Any
) -> None:
    texts = ["x" * number + chr(65 + number % 26) for number in range(250)]
    service = Counting()
    reply = face(service).embed(model, texts, **options)
    assert reply.vectors == [vector(text) for text in texts]
    assert sorted(map(len, service.bodies), reverse=True) == sizes
    assert (reply.usage.input_tokens, reply.usage.neurons) == (250, 125.0)


@pytest.mark.parametrize(
    ("model", "api"), [(BGE, "embeddings"), ("dynamic/embed", None), ("openai/text-embedding-3-small", None)]
)
def test_the_openai_route_of_embeddings(model: str, api: Any, face: Any) -> None:
    sent = []

    def serve(request: httpx.Request) -> httpx.Response:
        sent.append((request.url.path.partition("/ai/")[2], json.loads(request.content)))
        rows = [{"object": "embedding", "index": index, "embedding": [1.0, index]} for index in (1, 0)]
        return httpx.Response(200, json={"object": "list", "data": rows, "model": model, "usage": {"prompt_tokens": 3}})

    reply = face(serve).embed(
        model, ["a", "b"], api=api, kind="query", query_instruction="q: ", dimensions=2, on_busy="raise"
    )
    assert (reply.vectors, reply.usage.input_tokens) == ([[1.0, 0], [1.0, 1]], 3)
    body = {"model": model, "input": ["q: a", "q: b"], "dimensions": 2, "options": {"rejectIfBusy": True}}
    assert sent == [("v1/embeddings", body)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dimensions": 256}, "only on api='embeddings'"),
        ({"api": "embeddings", "pooling": "cls"}, "pooling exists only on api='run'"),
        ({"api": "embeddings", "truncate_inputs": True}, "truncate_inputs exists only on api='run'"),
        ({"api": "embeddings", "queue": "always"}, "queue='never'"),
        ({"api": "chat"}, "api 'chat' is not one of"),
        ({"api": "embeddings", "dimensions": 0}, "dimensions must be"),
    ],
)
def test_an_option_of_the_other_route_is_reported(options: Any, says: str, face: Any) -> None:
    with pytest.raises(e.ConfigurationError, match=says):
        face(Counting()).embed(BGE, ["a"], **options)


def test_an_empty_list_of_texts_sends_no_request(face: Any) -> None:
    """An empty list matches another schema, and the error of the service is misleading (workerd#5261)."""
    service = Counting()
    assert face(service).embed(BGE_M3, []).vectors == []
    assert service.bodies == []


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["ok", None], "text 1 is a NoneType"),
        ([1], "text 0 is a int"),
        ([[15339, 1917]], "text 0 is a list"),  # danny-avila/rag_api#115: token ids
        (["a", b"b"], "text 1 is a bytes"),
        ("one string", "one string"),
        (["ok", ""], "text 1 is empty"),  # run-llama/llama_index#9180
        (["ok"] * 150 + [""], "text 150 is empty"),
    ],
)
def test_an_invalid_text_is_rejected_before_sending(texts: Any, says: str, face: Any) -> None:
    service = Counting()
    with pytest.raises(e.BadRequestError, match=says):
        face(service).embed(BGE, texts)
    assert service.bodies == []


def test_an_empty_text_may_be_sent_as_a_space(face: Any) -> None:
    service = Counting()
    reply = face(service).embed(BGE, ["", "ok", "   "], empty_text="space")
    assert service.bodies == [[" ", "ok", "   "]]
    assert reply.vectors == [vector(" "), vector("ok"), vector("   ")]


TOO_LARGE = {
    "context of all texts (3030)": refused(400, 3030, "Max context reached 82800 tokens but model supports only 60000"),
    "context window (5021)": refused(413, 5021, "exceeded this model context window limit (60000)"),
    "request too large": refused(413, 3006, "Request is too large"),
}


@pytest.mark.parametrize("refusal", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_request_that_is_too_large_is_halved_until_it_fits(refusal: httpx.Response, face: Any) -> None:
    texts = ["aa", "bb", "cc", "dd", "ee"]
    service = Counting(5, refusal)
    reply = face(service).embed(BGE_M3, texts)
    assert reply.vectors == [vector(text) for text in texts]
    assert service.bodies == [["aa", "bb"], ["cc"], ["dd", "ee"]]
    assert reply.usage.input_tokens == 5


@pytest.mark.parametrize("refusal", TOO_LARGE.values(), ids=TOO_LARGE)
def test_the_error_of_a_too_long_text_has_its_index(refusal: httpx.Response, face: Any) -> None:
    texts = ["a"] * 120 + ["b" * 50] + ["c"] * 3  # cloudflare/cloudflare-docs#11316
    with pytest.raises((e.ContextWindowExceededError, e.RequestTooLargeError), match="text 120 is too long") as caught:
        face(Counting(40, refusal)).embed(BGE_M3, texts)
    assert (caught.value.index, caught.value.is_retryable) == (120, False)


def test_one_failing_request_of_several_fails_the_call(face: Any) -> None:
    emulator = Emulator()
    emulator.faults.add(Fault.error(400, 5006, "Bad input", skip=1))
    with pytest.raises(e.BadRequestError, match="Bad input"):
        face(emulator.transport(), max_concurrency=1).embed(BGE, ["a"] * 250)
    assert len(emulator.log.entries) == 2


@pytest.mark.parametrize("halved", [False, True], ids=["two requests", "a request that was halved"])
def test_vectors_of_several_replies_have_one_length(halved: bool, face: Any) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["text"]
        if len(texts) > 1:
            return httpx.Response(413, json={"errors": [{"code": 3006, "message": "too large"}], "success": False})
        return httpx.Response(200, json={"result": {"data": [[0.5] * (2 if texts == ["a"] else 3)]}, "success": True})

    with pytest.raises(e.APIResponseValidationError, match=r"differ in length: \[2, 3\]"):
        face(answer).embed(BGE, ["a", "b"], batch_size=2 if halved else 1)


def test_many_texts_are_scored_in_parts_and_ranked_as_one_list(face: Any) -> None:
    """A request has at most a hundred contexts. An index refers to the caller's list."""
    sizes: list[int] = []

    def score(request: httpx.Request) -> httpx.Response:
        contexts = json.loads(request.content)["contexts"]
        sizes.append(len(contexts))
        scores = [{"id": index, "score": int(one["text"]) / 1000} for index, one in enumerate(contexts)]
        return httpx.Response(200, json={"result": {"response": scores}, "success": True})

    numbers = [(7 * number) % 250 for number in range(250)]
    scores = face(score).rerank(RERANKER, "q", [str(number) for number in numbers], top_n=3)
    assert [one.score for one in scores] == [0.249, 0.248, 0.247]
    assert [numbers[one.index] for one in scores] == [249, 248, 247]
    assert sorted(sizes, reverse=True) == [100, 100, 50]


def test_the_models_of_all_pages(face: Any) -> None:
    """The reported total counts all models of the platform, so pages are requested until a short page."""
    pages: list[str] = []

    def page(request: httpx.Request) -> httpx.Response:
        pages.append(request.url.params["page"])
        assert request.url.params["task"] == "Text Generation"
        rows = [{"name": f"@cf/{len(pages)}/{number}"} for number in range(100 if len(pages) < 3 else 7)]
        return httpx.Response(200, json={"result": rows, "success": True, "result_info": {"total_count": 900}})

    names = [model["name"] for model in face(page).models(task="Text Generation")]
    assert pages == ["1", "2", "3"]
    assert (len(names), names[0], names[-1]) == (207, "@cf/1/0", "@cf/3/6")
