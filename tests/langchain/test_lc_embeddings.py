"""Embeddings: requests and their number, order of the vectors, rejected texts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_classic.embeddings.cache import CacheBackedEmbeddings
from langchain_core.documents import Document
from langchain_core.exceptions import ModelError
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.stores import InMemoryByteStore
from langchain_core.vectorstores import InMemoryVectorStore
from tests.support import held

import langchain_workers_ai as ours
from langchain_workers_ai import WorkersAIEmbeddings
from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., WorkersAIEmbeddings]

BASE = "@cf/baai/bge-base-en-v1.5"
M3 = "@cf/baai/bge-m3"
QWEN = "@cf/qwen/qwen3-embedding-0.6b"


def texts(count: int) -> list[str]:
    return [f"text number {number}" for number in range(count)]


def sent(emulator: Emulator) -> list[Any]:
    return [entry.json for entry in emulator.log.entries]


# --- requests ---


def test_only_set_fields_are_sent(embeddings: Make, emulator: Emulator, call: Any) -> None:
    """No dimensions, no encoding, no token ids (https://github.com/CherryHQ/cherry-studio/issues/20730)."""
    call(embeddings(), "embed_documents", ["a", "b"])
    call(embeddings(), "embed_query", "a")
    assert sent(emulator) == [{"text": ["a", "b"]}, {"text": ["a"]}]


def test_the_openai_route_is_an_option(embeddings: Make, emulator: Emulator, call: Any) -> None:
    model = embeddings(api="embeddings", model=BASE, query_instruction="q: ")
    vectors = call(model, "embed_documents", ["a", "b"])
    assert call(model, "embed_query", "a") != vectors[0]
    assert call(embeddings(model=BASE), "embed_documents", ["a", "b"]) == vectors
    assert sent(emulator)[:2] == [{"model": BASE, "input": ["a", "b"]}, {"model": BASE, "input": ["q: a"]}]
    with pytest.raises(ours.ConfigurationError, match="only on api='embeddings'"):
        embeddings(dimensions=256)


@pytest.mark.parametrize("text", ["a\nb", "  a  ", "Tromsø 北京 🌍", "<|x|>", "a" * 5000, "\\n"])
def test_texts_are_sent_unchanged(text: str, embeddings: Make, emulator: Emulator, call: Any) -> None:
    """https://github.com/run-llama/llama_index/issues/6436"""
    call(embeddings(), "embed_documents", [text])
    assert sent(emulator) == [{"text": [text]}]


OPTIONS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    # model, settings, fields of a document, fields of a query
    (BASE, {"pooling": "cls"}, {"pooling": "cls"}, {"pooling": "cls"}),
    (BASE, {"pooling": "mean"}, {"pooling": "mean"}, {"pooling": "mean"}),
    (M3, {"truncate_inputs": True}, {"truncate_inputs": True}, {"truncate_inputs": True}),
    (M3, {"truncate_inputs": False}, {"truncate_inputs": False}, {"truncate_inputs": False}),
    (BASE, {"query_instruction": "Find: "}, {}, {"text": ["Find: a"]}),
    (M3, {"on_busy": "wait"}, {}, {}),
    (M3, {"on_busy": "retry"}, {"options": {"rejectIfBusy": True}}, {"options": {"rejectIfBusy": True}}),
    (M3, {"on_busy": "raise"}, {"options": {"rejectIfBusy": True}}, {"options": {"rejectIfBusy": True}}),
    (M3, {"reject_if_busy": True}, {"options": {"rejectIfBusy": True}}, {"options": {"rejectIfBusy": True}}),
]


@pytest.mark.parametrize(("model", "settings", "document", "query"), OPTIONS)
def test_options(
    model: str,
    settings: dict[str, Any],
    document: dict[str, Any],
    query: dict[str, Any],
    embeddings: Make,
    emulator: Emulator,
    call: Any,
) -> None:
    one = embeddings(model=model, **settings)
    call(one, "embed_documents", ["a"])
    call(one, "embed_query", "a")
    assert sent(emulator) == [{"text": ["a"], **document}, {"text": ["a"], **query}]
    assert emulator.log.last.query == {}


def test_a_model_with_separate_query_and_document_fields(embeddings: Make, emulator: Emulator, call: Any) -> None:
    one = embeddings(model=QWEN, query_instruction="Find an answer")
    call(one, "embed_documents", ["a"])
    call(one, "embed_query", "a")
    assert sent(emulator) == [{"documents": ["a"]}, {"queries": ["a"], "instruction": "Find an answer"}]


@pytest.mark.parametrize("name", ["model", "model_name"])
@pytest.mark.parametrize("model", [M3, "@cf/google/embeddinggemma-300m", "@cf/new/embedder"])
def test_any_model_under_either_name(name: str, model: str, emulator: Emulator) -> None:
    """https://github.com/run-llama/llama_index/issues/15021"""
    one = WorkersAIEmbeddings(account_id="a" * 32, api_token="token", **{name: model})
    assert (one.model, one.model_name) == (model, model)


# --- requests ---


@pytest.mark.parametrize(
    ("model", "batch_size", "sizes"),
    [
        (BASE, None, [100, 100, 5]),
        (QWEN, None, [32] * 6 + [13]),
        (BASE, 80, [80, 80, 45]),
        (BASE, 500, [100, 100, 5]),
        ("@cf/new/embedder", None, [100, 100, 5]),
    ],
)
def test_requests_hold_the_models_own_cap(
    model: str, batch_size: int | None, sizes: list[int], embeddings: Make, emulator: Emulator, call: Any
) -> None:
    """https://github.com/cloudflare/cloudflare-docs/issues/11316"""
    if model == "@cf/new/embedder":
        emulator.faults.add(Fault.reply({"data": [[0.5]] * 100}, times=2), Fault.reply({"data": [[0.5]] * 5}))
    one = embeddings(model=model, batch_size=batch_size, max_concurrency=1)
    vectors = call(one, "embed_documents", texts(205))
    assert [len(body.get("text") or body.get("documents")) for body in sent(emulator)] == sizes
    assert len(vectors) == 205


def test_vectors_are_in_the_order_of_their_texts(embeddings: Make, emulator: Emulator, call: Any) -> None:
    one = embeddings(batch_size=3)
    many = call(one, "embed_documents", texts(20))
    singles = [call(one, "embed_query", text) for text in texts(20)]
    assert [pytest.approx(vector) for vector in singles] == many
    assert all(type(vector) is list for vector in many)
    assert all(type(value) is float for value in many[0])


def test_an_empty_list_of_texts_sends_nothing(embeddings: Make, emulator: Emulator, call: Any) -> None:
    """https://github.com/cloudflare/workerd/issues/5261"""
    assert call(embeddings(), "embed_documents", []) == []
    assert emulator.log.entries == []


@pytest.mark.parametrize("bound", [1, 3, 8])
def test_requests_in_flight_are_bounded(bound: int, call: Any) -> None:
    emulator = Emulator(clock=Clock("manual"), latency_s=1)
    transport = emulator.transport()
    one = WorkersAIEmbeddings(
        model=M3,
        account_id="a" * 32,
        api_token="token",
        batch_size=1,
        max_concurrency=bound,
        http_client=httpx.Client(transport=transport),
        http_async_client=httpx.AsyncClient(transport=transport),
    )
    with held(emulator, bound):
        call(one, "embed_documents", texts(16))
    assert emulator.log.peak_concurrency == bound


def test_each_request_acquires_the_rate_limiter(embeddings: Make, emulator: Emulator, call: Any) -> None:
    taken: list[str] = []

    class Counting(BaseRateLimiter):
        def acquire(self, *, blocking: bool = True) -> bool:
            taken.append("sync")
            return True

        async def aacquire(self, *, blocking: bool = True) -> bool:
            taken.append("async")
            return True

    emulator.faults.add(Fault.busy())
    one = embeddings(batch_size=10, rate_limiter=Counting())
    call(one, "embed_documents", texts(30))
    assert taken == [call.mode] * 4  # one of the three requests was sent again
    assert len(emulator.log.entries) == 4


def test_only_failed_requests_are_sent_again(embeddings: Make, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.error(500, 3043, "oops"), Fault.drop())
    vectors = call(embeddings(batch_size=10, max_concurrency=1), "embed_documents", texts(50))
    assert len(vectors) == 50
    assert len(emulator.log.entries) == 7
    assert emulator.log.texts_embedded == 50


def test_a_request_that_is_too_large_is_halved(embeddings: Make, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.error(413, 3006, "Request is too large"))
    vectors = call(embeddings(), "embed_documents", texts(10))
    assert [len(body["text"]) for body in sent(emulator)] == [10, 5, 5]
    assert len(vectors) == 10


def test_vectors_of_length_one(embeddings: Make, call: Any) -> None:
    plain, unit = (call(embeddings(normalize=flag), "embed_query", "a fjord") for flag in (False, True))
    assert math.hypot(*unit) == pytest.approx(1)
    length = math.hypot(*plain)
    assert unit == pytest.approx([value / length for value in plain])


def test_the_cache_of_langchain(embeddings: Make, emulator: Emulator, call: Any) -> None:
    cached = CacheBackedEmbeddings.from_bytes_store(
        embeddings(), InMemoryByteStore(), namespace=M3, key_encoder="sha256", query_embedding_cache=True
    )
    first = call(cached, "embed_documents", texts(5))
    assert call(cached, "embed_documents", texts(5)) == first
    assert len(emulator.log.entries) == 1


def test_a_vector_store_finds_the_right_document(embeddings: Make, call: Any) -> None:
    store = InMemoryVectorStore(embeddings())
    facts = ["The ferry to Moss leaves at 14:02.", "The museum is closed on Mondays.", "A cafe serves cakes."]
    call(store, "add_documents", [Document(fact) for fact in facts])
    found = call(store, "similarity_search", "When does the ferry leave?", k=1)
    assert [document.page_content for document in found] == [facts[0]]


# --- rejected arguments ---


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["ok", ""], "text 1 is empty"),
        (["ok", "ok", None], "text 2"),
        ([b"bytes"], "text 0"),
        ([[15339, 1917]], "text 0"),
        ([7], "text 0"),
    ],
)
def test_an_invalid_text_is_rejected_before_sending(
    given: list[Any], says: str, embeddings: Make, emulator: Emulator, call: Any
) -> None:
    with pytest.raises(ours.BadRequestError, match=says):
        call(embeddings(), "embed_documents", given)
    assert emulator.log.entries == []


def test_an_empty_text_can_keep_its_index(embeddings: Make, emulator: Emulator, call: Any) -> None:
    """https://github.com/run-llama/llama_index/issues/9180"""
    vectors = call(embeddings(empty_text="space"), "embed_documents", ["a", "", "b"])
    assert sent(emulator) == [{"text": ["a", " ", "b"]}]
    assert len(vectors) == 3


@pytest.mark.parametrize("query", [True, False])
def test_the_index_of_a_too_long_text_is_reported(query: bool, embeddings: Make, emulator: Emulator, call: Any) -> None:
    """The client truncates no text (https://github.com/cloudflare/cloudflare-docs/issues/11316)."""
    emulator.faults.add(Fault.error(413, 3006, "too large", times=None))
    long = "word " * 3000
    method, given = ("embed_query", long) if query else ("embed_documents", [long] * 3)
    with pytest.raises(ours.RequestTooLargeError, match="text 0") as caught:
        call(embeddings(max_concurrency=1), method, given)
    assert caught.value.index == 0


BAD_REPLIES: dict[str, Any] = {
    "one vector too few": {"data": [[0.1]]},
    "one too many": {"data": [[0.1]] * 3},
    "all zeros": {"data": [[0.0, 0.0], [0.1, 0.2]]},
    "of two lengths": {"data": [[0.1], [0.1, 0.2]]},
    "null": {"data": [None, [0.1]]},
    "a word": {"data": [["a"], [0.1]]},
    "no data": {"data": None},
    "queued": {"request_id": "r-1", "status": "queued"},
    "an answer of chat": {"response": "Hello"},
    "result null": {"result": None, "success": True},
}


@pytest.mark.parametrize("shape", BAD_REPLIES)
def test_vectors_that_do_not_fit_are_an_error(shape: str, embeddings: Make, emulator: Emulator, call: Any) -> None:
    """https://github.com/karakeep-app/karakeep/issues/2698"""
    emulator.faults.add(Fault.reply(BAD_REPLIES[shape], times=None))
    with pytest.raises(ours.APIResponseValidationError):
        call(embeddings(), "embed_documents", ["a", "b"])


GOOD_REPLIES: dict[str, Any] = {
    "native": {"shape": [2, 2], "data": [[0.25, 0.5], [1.0, 2.0]], "pooling": "mean"},
    "under response": {"response": [[0.25, 0.5], [1.0, 2.0]]},
    "OpenAI": {"data": [{"index": 1, "embedding": [1.0, 2.0]}, {"index": 0, "embedding": [0.25, 0.5]}]},
    "base64": {"data": [{"index": 0, "embedding": "AACAPgAAAD8="}, {"index": 1, "embedding": "AACAPwAAAEA="}]},
}


@pytest.mark.parametrize("shape", GOOD_REPLIES)
def test_vectors_of_every_shape(shape: str, embeddings: Make, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.reply({"result": GOOD_REPLIES[shape], "success": True}))
    assert call(embeddings(), "embed_documents", ["a", "b"]) == [[0.25, 0.5], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("status", "code", "cls"),
    [
        (429, 4006, ours.QuotaExhaustedError),
        (401, 10000, ours.AuthenticationError),
        (410, 5028, ours.ModelRetiredError),
        (200, 3043, ours.InternalServerError),
    ],
)
def test_errors_are_subclasses_of_both_trees(
    status: int, code: int, cls: type[Any], embeddings: Make, emulator: Emulator, call: Any
) -> None:
    body = {"success": False, "result": None, "errors": [{"code": code, "message": "no"}]}
    emulator.faults.add(Fault.reply(body, status))
    with pytest.raises(cls) as caught:
        call(embeddings(max_retries=0, batch_size=5), "embed_documents", texts(20))
    assert isinstance(caught.value, ModelError)
    assert type(caught.value) is cls


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"pooling": "max"}, "pooling"),
        ({"queue": "sometimes"}, "queue"),
        ({"empty_text": "drop"}, "empty_text"),
        ({"model": QWEN, "queue": "always"}, "queue"),
        ({"dimensions": 3}, "no call of this kind|dimensions"),
        ({"max_concurrency": 0}, "max_concurrency"),
    ],
)
def test_bad_settings(settings: dict[str, Any], says: str, embeddings: Make) -> None:
    with pytest.raises(ours.ConfigurationError, match=says):
        embeddings(**settings)
