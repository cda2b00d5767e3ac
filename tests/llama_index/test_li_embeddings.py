"""The embedding model: requests, their size and order, rejected texts, caches, pickles and pipelines."""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.embeddings import resolve_embed_model
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import MetadataMode, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.embeddings.workers_ai import GatewayOptions, WorkersAIBatchEmbedding, WorkersAIEmbedding
from tests.llama_index.standard import CountingLimiter
from tests.support import ACCOUNT, TOKEN, every_row, held, wired

from workers_ai.errors import (
    APIResponseValidationError,
    AuthenticationError,
    BadRequestError,
    CapacityError,
    ConfigurationError,
    ContextWindowExceededError,
    InternalServerError,
)
from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.llama_index.conftest import Script
    from tests.support import Caller

    Make = Callable[..., WorkersAIEmbedding]

# LlamaIndex imports LangChain if it is installed, which warns about a deprecated package.
pytestmark = pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning")

BASE = "@cf/baai/bge-base-en-v1.5"
QWEN = "@cf/qwen/qwen3-embedding-0.6b"
BATCH = "get_text_embedding_batch"


def texts(count: int) -> list[str]:
    return [f"text number {number}" for number in range(count)]


def sizes(emulator: Emulator) -> list[int]:
    """Return the number of texts in each request."""
    return sorted(len(entry.json["text"]) for entry in emulator.log.entries)


class TestRequests:
    def test_only_set_options_are_sent(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        call(embedding(), BATCH, ["a"])
        assert emulator.log.last.json == {"text": ["a"]}
        assert emulator.log.last.path.endswith(f"/accounts/{ACCOUNT}/ai/run/@cf/baai/bge-m3")

    def test_texts_are_sent_unchanged(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        given = ["def f():\n    return 1\n", "a\tb", "  padded  ", "Ünïcode 日本 🎉", " "]
        call(embedding(), BATCH, given)
        assert emulator.log.last.json["text"] == given

    @pytest.mark.parametrize(("model", "cap"), [(BASE, 100), (QWEN, 32)])
    def test_requests_respect_the_models_cap(
        self, embedding: Make, emulator: Emulator, call: Caller, model: str, cap: int
    ) -> None:
        vectors = call(embedding(model=model, embed_batch_size=500), BATCH, texts(2 * cap + 1))
        sent = sorted(len(next(iter(entry.json.values()))) for entry in emulator.log.entries)
        assert sent == [1, cap, cap]
        assert len(vectors) == 2 * cap + 1

    def test_default_batch_size_is_the_models_cap(self, embedding: Make) -> None:
        assert embedding().embed_batch_size == 100
        assert embedding(model=QWEN).embed_batch_size == 32
        assert embedding(embed_batch_size=7).embed_batch_size == embedding(batch_size=7).embed_batch_size == 7

    def test_repeated_texts_are_sent_once(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        vectors = call(embedding(batch_size=2), BATCH, ["a", "b", "a", "a", "c", "b"])
        assert sizes(emulator) == [1, 2]
        assert emulator.log.texts_repeated == 0
        assert vectors[0] == vectors[2] == vectors[3] != vectors[1] == vectors[5]

    @pytest.mark.parametrize(
        ("options", "query", "document"),
        [
            ({"model": BASE}, {"text": ["x"]}, {"text": ["x"]}),
            ({"model": BASE, "query_instruction": "Find: "}, {"text": ["Find: x"]}, {"text": ["x"]}),
            ({"model": QWEN}, {"queries": ["x"]}, {"documents": ["x"]}),
            (
                {"model": QWEN, "query_instruction": "Find"},
                {"queries": ["x"], "instruction": "Find"},
                {"documents": ["x"]},
            ),
            (
                {"model": BASE, "pooling": "cls"},
                {"text": ["x"], "pooling": "cls"},
                {"text": ["x"], "pooling": "cls"},
            ),
            (
                {"truncate_inputs": True},
                {"text": ["x"], "truncate_inputs": True},
                {"text": ["x"], "truncate_inputs": True},
            ),
        ],
    )
    def test_queries_and_documents_are_sent_as_such(
        self, embedding: Make, emulator: Emulator, call: Caller, options: Any, query: Any, document: Any
    ) -> None:
        model = embedding(**options)
        for method, given, expected in (
            ("get_query_embedding", "x", query),
            ("get_text_embedding", "x", document),
            (BATCH, ["x"], document),
        ):
            call(model, method, given)
            assert emulator.log.last.json == expected

    def test_aggregated_queries_have_the_instruction(self, embedding: Make, emulator: Emulator) -> None:
        model = embedding(model=BASE, query_instruction="Find: ")
        found = asyncio.run(model.aget_agg_embedding_from_queries(["a", "b"]))
        assert sorted(entry.json["text"] for entry in emulator.log.entries) == [["Find: a"], ["Find: b"]]
        one, two = (model.get_query_embedding(text) for text in "ab")
        assert found == pytest.approx([(left + right) / 2 for left, right in zip(one, two, strict=True)])

    def test_normalize(self, embedding: Make, script: Script, call: Caller) -> None:
        script.native({"data": [[3.0, 4.0]], "shape": [1, 2]})
        assert call(embedding(normalize=True), "get_text_embedding", "x") == [0.6, 0.8]

    def test_gateway_and_session_headers_are_sent(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        model = embedding(gateway=GatewayOptions("gw", skip_cache=True, request_timeout_ms=500), session_id="s")
        call(model, "get_query_embedding", "x")
        headers = emulator.log.last.headers
        expected = {
            "cf-aig-gateway-id": "gw",
            "cf-aig-skip-cache": "true",
            "cf-aig-request-timeout": "500",
            "x-session-affinity": "s",
        }
        assert headers.items() >= expected.items()

    def test_base64_vectors_are_decoded(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        call(embedding(), "get_query_embedding", "x")
        assert "gzip" in emulator.log.last.headers["accept-encoding"]

    @pytest.mark.parametrize(
        ("on_busy", "sent"), [("wait", None), ("retry", {"rejectIfBusy": True}), ("raise", {"rejectIfBusy": True})]
    )
    def test_service_at_capacity(
        self, embedding: Make, emulator: Emulator, call: Caller, on_busy: str, sent: Any
    ) -> None:
        call(embedding(on_busy=on_busy), "get_query_embedding", "x")
        assert emulator.log.last.json.get("options") == sent
        assert not emulator.log.last.query


def embedding_of(emulator: Emulator, **settings: Any) -> WorkersAIEmbedding:
    """Return an embedding model on another emulator than the fixture's."""
    return WorkersAIEmbedding(**wired(emulator, **settings))


class TestBounds:
    @pytest.mark.parametrize(
        ("options", "bound"), [({}, 8), ({"num_workers": 1}, 1), ({"num_workers": 3}, 3), ({"max_concurrency": 2}, 2)]
    )
    def test_requests_in_flight_are_bounded(self, call: Caller, options: dict[str, Any], bound: int) -> None:
        emulator = Emulator(clock=Clock("manual"), latency_s=1)
        model = embedding_of(emulator, embed_batch_size=1, **options)
        with held(emulator, bound):
            assert len(call(model, BATCH, texts(20))) == 20
        assert emulator.log.peak_concurrency == bound

    def test_bound_holds_for_concurrent_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()  # waits take real time
        emulator = Emulator(clock=Clock("manual"), latency_s=1)
        model = embedding_of(emulator, embed_batch_size=1, max_concurrency=3)

        async def both() -> None:
            await asyncio.gather(*(model.aget_text_embedding_batch([f"{n} {m}" for m in range(4)]) for n in range(3)))

        with held(emulator, 3):
            asyncio.run(both())
        assert emulator.log.peak_concurrency == 3

    def test_num_workers_equals_max_concurrency(self, embedding: Make) -> None:
        model = embedding(num_workers=4)
        assert (model.num_workers, model.max_concurrency) == (4, 4)
        model.max_concurrency = 2
        assert model.num_workers == 2
        with pytest.raises(ConfigurationError, match="twice"):
            embedding(num_workers=4, max_concurrency=5)

    @pytest.mark.parametrize("mode", ["sync", "async"])
    def test_connections_are_reused_over_batches_and_event_loops(self, mode: str) -> None:
        emulator = Emulator()
        connections: set[int] = set()
        serve = emulator.flow

        def watched(request: Any) -> Any:
            connections.add(threading.get_ident())  # the server has a thread for each connection
            return serve(request)

        emulator.flow = watched  # type: ignore[method-assign]
        with emulator.serve() as url:
            model = WorkersAIEmbedding(account_id=ACCOUNT, api_token=TOKEN, base_url=url, batch_size=1, num_workers=2)
            if mode == "sync":
                model.get_text_embedding_batch(texts(20))
                model.get_text_embedding_batch(texts(20))
                assert len(connections) <= 2
                model.client.close()
            else:
                for _ in range(2):
                    assert len(asyncio.run(model.aget_text_embedding_batch(texts(20)))) == 20
                assert len(connections) <= 4
            assert emulator.log.requests == 40
            assert set(emulator.log.statuses) == {200}

    def test_event_loop_is_not_blocked(self) -> None:
        emulator = Emulator(clock=Clock("real"), latency_s=0.05)
        model = embedding_of(emulator, batch_size=1)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        async def both() -> None:
            ticking = asyncio.ensure_future(tick())
            await model.aget_text_embedding_batch(texts(8))
            ticking.cancel()

        asyncio.run(both())
        assert ticks >= 3


class TestFailures:
    @pytest.mark.parametrize(
        ("status", "body", "error", "expected_text"),
        [
            (
                401,
                {"result": None, "success": False, "errors": [{"code": 10000, "message": "Authentication error"}]},
                AuthenticationError,
                "Authentication error.*HTTP 401.*code 10000",
            ),
            (
                400,
                {"result": {}, "success": False, "errors": [{"code": 5006, "message": "Bad input"}]},
                BadRequestError,
                "Bad input.*HTTP 400.*code 5006",
            ),
            (502, "<html>Bad gateway</html>", InternalServerError, "HTTP 502"),
            (200, {"success": True}, APIResponseValidationError, "has no vectors"),
            (200, {"result": {}, "success": True}, APIResponseValidationError, "has no vectors"),
            (200, "", APIResponseValidationError, "empty body"),
        ],
    )
    def test_error_responses_become_typed_errors(
        self,
        embedding: Make,
        emulator: Emulator,
        call: Caller,
        capsys: pytest.CaptureFixture[str],
        status: int,
        body: Any,
        error: type[Exception],
        expected_text: str,
    ) -> None:
        emulator.faults.add(Fault.reply(body, status=status, times=None))
        with pytest.raises(error, match=expected_text) as caught:
            call(embedding(), "get_text_embedding", "x")
        assert "@cf/baai/bge-m3" in str(caught.value)
        assert TOKEN not in str(caught.value)
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize(
        ("rows", "expected_text"),
        [
            ([[1.0, 2.0]], "1 vectors for 3 texts"),
            ([[1.0, 2.0]] * 4, "4 vectors for 3 texts"),
            ([[1.0, 2.0], [1.0], [1.0, 2.0]], "vector 1 is not a list of 2 numbers"),
            ([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0]], "vector 1 is all zeros"),
            ([[1.0, 2.0], [1.0, math.nan], [1.0, 2.0]], "vector 1 contains NaN"),
        ],
    )
    def test_invalid_vectors_raise(
        self, embedding: Make, script: Script, call: Caller, rows: Any, expected_text: str
    ) -> None:
        body = json.dumps({"result": {"data": rows}, "success": True})
        nodes = [TextNode(text=text) for text in texts(3)]
        model = embedding()
        script.body(body)
        with pytest.raises(APIResponseValidationError, match=expected_text):
            model(nodes)
        script.body(body)
        with pytest.raises(APIResponseValidationError, match=expected_text):
            asyncio.run(model.acall(nodes))
        assert [node.embedding for node in nodes] == [None] * 3

    def test_vectors_of_different_lengths_raise(self, embedding: Make, script: Script, call: Caller) -> None:
        for row in ([1.0, 2.0], [1.0, 2.0, 3.0]):
            script.native({"data": [row]})
        with pytest.raises(APIResponseValidationError, match=r"differ in length: \[2, 3\]"):
            call(embedding(batch_size=1, num_workers=1), BATCH, ["a", "b"])

    def test_vectors_are_read_from_both_places_in_any_order(
        self, embedding: Make, script: Script, call: Caller
    ) -> None:
        script.native({"response": [[1.0], [2.0]], "shape": [2, 1]})
        assert call(embedding(), BATCH, ["a", "b"]) == [[1.0], [2.0]]
        script.body({"data": [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]})
        assert call(embedding(), BATCH, ["a", "b"]) == [[1.0], [2.0]]

    @pytest.mark.parametrize(
        ("given", "expected_text"),
        [
            (["ok", ""], "text 1 is empty: drop it, or pass empty_text='space'"),
            (["ok", None], "text 1 is a NoneType"),
            ([[1, 2]], "text 0 is a list"),
        ],
    )
    def test_invalid_texts_raise_with_index_before_sending(
        self, embedding: Make, emulator: Emulator, call: Caller, given: Any, expected_text: str
    ) -> None:
        with pytest.raises(BadRequestError, match=expected_text):
            call(embedding(batch_size=1), BATCH, given)
        assert emulator.log.requests == 0

    def test_empty_text_can_be_sent_as_a_space(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        vectors = call(embedding(empty_text="space"), BATCH, ["", "ok", " "])
        assert emulator.log.last.json["text"] == [" ", "ok"]
        assert vectors[0] == vectors[2] != vectors[1]

    def test_empty_list_sends_nothing(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        assert call(embedding(), BATCH, []) == []
        assert emulator.log.requests == 0

    def test_too_long_text_is_reported_and_the_others_are_kept(
        self, embedding: Make, emulator: Emulator, call: Caller
    ) -> None:
        cache = SimpleKVStore()
        given = ["short", "short", "word " * 60_000, "other"]
        with pytest.raises(ContextWindowExceededError, match="text 2 is too long") as caught:
            call(embedding(embeddings_cache=cache), BATCH, given)
        assert caught.value.index == 2

    def test_too_large_request_is_halved(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        given = [f"{letter} " * 6_000 for letter in "abcdefgh"]
        vectors = call(embedding(), BATCH, given)
        assert sizes(emulator) == [4, 4, 8]
        assert vectors == [embedding().get_text_embedding(text) for text in given]

    def test_first_failure_stops_the_remaining_requests(self, call: Caller) -> None:
        emulator = Emulator(clock=Clock("real"), latency_s=0.02)
        emulator.faults.add(Fault.error(400, 5006, "Bad input"))
        model = embedding_of(emulator, batch_size=1, num_workers=2)
        with pytest.raises(BadRequestError):
            call(model, BATCH, texts(40))
        begun = emulator.log.requests
        assert begun <= 4
        threading.Event().wait(0.1)
        assert emulator.log.requests <= begun + 1


class TestConstruction:
    def test_model_and_model_name(self, embedding: Make) -> None:
        for options in ({"model": BASE}, {"model_name": BASE}):
            model = embedding(**options)
            assert (model.model, model.model_name, model.to_payload()["model_name"]) == (BASE, BASE, BASE)
        assert embedding().to_payload()["model_name"] == "@cf/baai/bge-m3"

    def test_any_model_is_accepted(self, embedding: Make, emulator: Emulator) -> None:
        assert embedding(model="acme/embedder-9").embed_batch_size == 100

    @every_row(
        ("options", "expected_text"),
        [
            ({"embed_batchsize": 5}, "embed_batchsize.*did you mean 'embed_batch_size'"),
            ({"account_id": "../../../evil"}, "account"),
            ({"account_id": "${CLOUDFLARE_ACCOUNT_ID}"}, "CLOUDFLARE_ACCOUNT_ID"),
            ({"account_id": ""}, "CLOUDFLARE_ACCOUNT_ID"),
            ({"api_token": ""}, "CLOUDFLARE_API_TOKEN"),
            ({"embed_batch_size": 0}, "embed_batch_size"),
            ({"pooling": "max"}, "pooling"),
            ({"model": QWEN, "queue": "always"}, "queue"),
            ({"base_url": "http://example.org/client/v4"}, "http"),
        ],
    )
    def test_invalid_options_raise_on_construction(self, embedding: Make, options: Any, expected_text: str) -> None:
        with pytest.raises(ConfigurationError, match=expected_text):
            embedding(**options)

    @pytest.mark.parametrize("model", ["@cf/baai/../../evil", "@cf/a?b", "@cf/a b"])
    def test_model_id_with_url_characters_is_rejected(self, embedding: Make, emulator: Emulator, model: str) -> None:
        with pytest.raises(ConfigurationError, match="model"):
            embedding(model=model).get_text_embedding("x")
        assert emulator.log.requests == 0

    @pytest.mark.parametrize(
        ("account", "token"),
        [("CLOUDFLARE_ACCOUNT_ID", "CLOUDFLARE_API_TOKEN"), ("CF_ACCOUNT_ID", "CLOUDFLARE_AUTH_TOKEN")],
    )
    def test_account_and_token_from_environment(
        self, monkeypatch: pytest.MonkeyPatch, account: str, token: str
    ) -> None:
        monkeypatch.setenv(account, f" {ACCOUNT}\n")
        monkeypatch.setenv(token, TOKEN)
        model = WorkersAIEmbedding()
        assert model.account_id == ACCOUNT
        assert model.api_token.get_secret_value() == TOKEN

    def test_llama_index_settings_can_be_set_later(self, embedding: Make) -> None:
        model = embedding()
        assert resolve_embed_model(model) is model
        model.embed_batch_size = 3
        model.rate_limiter = limiter = CountingLimiter()
        model.get_text_embedding_batch(texts(7))
        assert limiter.acquired == 3


class TestOpenAIRoute:
    @pytest.mark.parametrize("method", ["get_query_embedding", "get_text_embedding", BATCH])
    def test_dimensions_are_sent(self, embedding: Make, emulator: Emulator, call: Caller, method: str) -> None:
        model = embedding(model="openai/text-embedding-3-small", dimensions=256)
        emulator.faults.add(Fault.reply({"object": "list", "data": [{"index": 0, "embedding": [0.5] * 256}]}))
        found = call(model, method, ["hi"] if method == BATCH else "hi")
        assert found in ([0.5] * 256, [[0.5] * 256])
        sent = emulator.log.last
        assert (sent.path.endswith("/ai/v1/embeddings"), sent.json["dimensions"]) == (True, 256)

    def test_cache_key_includes_dimensions(self, embedding: Make) -> None:
        model = embedding(model="openai/text-embedding-3-small", dimensions=256)
        other = embedding(model="openai/text-embedding-3-small")
        assert model._texts_of_call(["hi"], "query").key("hi") != other._texts_of_call(["hi"], "query").key("hi")
        assert model.to_dict() != other.to_dict()

    @pytest.mark.parametrize(
        "options", [{"pooling": "cls"}, {"queue": "always"}, {"api": "run", "dimensions": 5}, {"api": "chat"}]
    )
    def test_options_of_the_other_route_raise(self, embedding: Make, options: Any) -> None:
        with pytest.raises(ConfigurationError, match="api"):
            embedding(**{"api": "embeddings", **options})

    def test_ledger_rejects_the_openai_route(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigurationError, match="api='embeddings', dimensions and extra_body do not work with a ledger"
        ):
            WorkersAIBatchEmbedding(ledger=tmp_path, queue="never", api="embeddings", account_id="a", api_token="t")


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.parametrize("options", [{}, {"num_workers": 3, "pooling": "cls"}])
def test_dump_restores_an_equal_model(embedding: Make, options: Any) -> None:
    model = embedding(**options)
    for twin in (WorkersAIEmbedding(**model.model_dump()), WorkersAIEmbedding.model_validate(model.model_dump())):
        assert twin.to_dict() == model.to_dict()
        assert (twin.num_workers, twin.embed_batch_size) == (model.num_workers, model.embed_batch_size)


class TestPerCall:
    def test_per_call_settings_and_pipeline_keywords(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        settings = {"extra_headers": {"x-trace": "t-1"}, "timeout": (5, 60), "gateway": "g"}
        call(embedding(), BATCH, ["a"], **settings, other_step="ignored")
        call(IngestionPipeline(transformations=[embedding()]), "run", nodes=[TextNode(text="b")], **settings)
        for entry in emulator.log.entries:
            assert (entry.headers["x-trace"], entry.headers["cf-aig-gateway-id"]) == ("t-1", "g")

    def test_reject_if_busy(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        emulator.faults.add(Fault.busy())
        with pytest.raises(CapacityError):
            call(embedding(), BATCH, ["a"], reject_if_busy=True)
        assert emulator.log.requests == 1


class TestLimiterAndCache:
    def test_limiter_is_acquired_once_per_request(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        emulator.faults.add(Fault.busy())
        limiter = CountingLimiter()
        call(embedding(batch_size=10, rate_limiter=limiter), BATCH, texts(25))
        assert limiter.acquired == emulator.log.requests == 4  # the rejected request was sent again

    def test_limiter_is_not_acquired_for_cached_texts(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        limiter = CountingLimiter()
        model = embedding(batch_size=1, rate_limiter=limiter, embeddings_cache=SimpleKVStore())
        first = call(model, BATCH, texts(3))
        assert limiter.acquired == 3
        assert call(model, BATCH, texts(3)) == first
        assert call(model, BATCH, texts(4))[:3] == first
        assert limiter.acquired == emulator.log.requests == 4

    def test_cache_key_includes_kind_model_and_options(self, embedding: Make, call: Caller) -> None:
        cache = SimpleKVStore()
        options = [
            {"model": QWEN, "query_instruction": "Find the passage"},
            {"model": BASE},
            {"model": BASE, "pooling": "cls"},
            {"model": BASE, "normalize": True},
        ]
        for given in options:
            for method in ("get_query_embedding", "get_text_embedding"):
                fresh = call(embedding(**given), method, "hi")
                assert call(embedding(**given, embeddings_cache=cache), method, "hi") == fresh
                assert call(embedding(**given, embeddings_cache=cache), method, "hi") == fresh
        assert len(cache.get_all(collection="embeddings")) == 8

    def test_lone_surrogate_with_a_cache(
        self, embedding: Make, emulator: Emulator, call: Caller, tmp_path: Path
    ) -> None:
        broken = ["a \ud83d b", "c"]
        plain = call(embedding(), BATCH, broken)
        cached = embedding(embeddings_cache=SimpleKVStore())
        ledger = WorkersAIBatchEmbedding(**wired(emulator), ledger=tmp_path / "ledger", queue="never")
        for model in (cached, cached, ledger):
            assert call(model, BATCH, broken) == [pytest.approx(vector, rel=1e-6, abs=1e-7) for vector in plain]
            assert call(model, "get_query_embedding", broken[0])
        assert emulator.log.entries[0].json["text"] == ["a \ufffd b", "c"]

    def test_rerun_after_failure_sends_only_missing_texts(
        self, embedding: Make, emulator: Emulator, call: Caller
    ) -> None:
        emulator.faults.add(Fault.error(400, 5006, "Bad input", skip=2))
        model = embedding(batch_size=10, num_workers=1, embeddings_cache=SimpleKVStore())
        with pytest.raises(BadRequestError):
            call(model, BATCH, texts(30))
        assert emulator.log.requests == 3
        assert len(call(model, BATCH, texts(30))) == 30
        assert emulator.log.requests == 4


class TestNodes:
    def test_node_with_a_vector_is_not_embedded(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        nodes = [TextNode(text="a", embedding=[1.0]), TextNode(text="b")]
        model = embedding()
        found = model(nodes) if call.mode == "sync" else asyncio.run(model.acall(nodes))
        assert found[0].embedding == [1.0]
        assert found[1].embedding == model.get_text_embedding("b")
        assert [entry.json["text"] for entry in emulator.log.entries] == [["b"], ["b"]]

    def test_metadata_mode_of_the_node_is_used(self, embedding: Make, emulator: Emulator) -> None:
        node = TextNode(text="b", metadata={"title": "T", "id": 7}, excluded_embed_metadata_keys=["id"])
        embedding()([node])
        assert emulator.log.last.json["text"] == [node.get_content(MetadataMode.EMBED)] == ["title: T\n\nb"]

    @pytest.mark.parametrize("use_async", [False, True])
    def test_index_of_many_nodes_respects_the_bound(self, use_async: bool) -> None:
        emulator = Emulator(clock=Clock("real"), latency_s=0.01)
        model = embedding_of(emulator, batch_size=5)
        nodes = [TextNode(text=text) for text in texts(100)]
        index = VectorStoreIndex(nodes, embed_model=model, use_async=use_async)
        assert len(index.vector_store.data.embedding_dict) == 100
        assert emulator.log.peak_concurrency <= 8
        assert emulator.log.requests == 20


class TestPipelines:
    def documents(self, count: int = 30) -> list[Document]:
        return [Document(text=text, id_=text) for text in texts(count)]

    def test_pipeline_cache_key_has_only_vector_options(self, embedding: Make) -> None:
        key = embedding().to_dict()
        same = [
            {"api_token": "another-token"},
            {"embed_batch_size": 3},
            {"num_workers": 2},
            {"timeout": 5},
            {"max_retries": 9},
            {"on_busy": "raise"},
            {"queue": "overflow"},
            {"deadline_s": 5},
            {"default_headers": {"x": "y"}},
            {"embeddings_cache": SimpleKVStore()},
        ]
        assert all(embedding(**options).to_dict() == key for options in same)
        other = [{"model": BASE}, {"pooling": "cls"}, {"query_instruction": "Find"}, {"normalize": True}]
        assert all(embedding(**options).to_dict() != key for options in other)

    def test_pipeline_cache_hit_after_token_change(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        pipeline = IngestionPipeline(transformations=[embedding()])
        first = call(pipeline, "run", documents=self.documents())
        pipeline.transformations = [embedding(api_token="another-token", embed_batch_size=7)]
        second = call(pipeline, "run", documents=self.documents())
        assert emulator.log.requests == 1
        assert [node.embedding for node in first] == [node.embedding for node in second]

    def test_pipeline_rerun_sends_only_missing_texts(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        emulator.faults.add(Fault.error(400, 5006, "Bad input", skip=2))
        store = SimpleVectorStore()
        pipeline = IngestionPipeline(
            transformations=[embedding(batch_size=10, num_workers=1, embeddings_cache=SimpleKVStore())],
            vector_store=store,
            docstore=SimpleDocumentStore(),
        )
        with pytest.raises(BadRequestError):
            call(pipeline, "run", documents=self.documents())
        call(pipeline, "run", documents=self.documents())
        assert len(store.data.embedding_dict) == 30
        assert emulator.log.requests == 4
        call(pipeline, "run", documents=self.documents(31))
        assert emulator.log.requests == 5
        assert emulator.log.last.json["text"] == ["text number 30"]

    def test_pickling_does_not_change_the_object(self, embedding: Make, emulator: Emulator) -> None:
        model = embedding(batch_size=5, pooling="cls")
        model.rate_limiter = limiter = CountingLimiter()
        twin = pickle.loads(pickle.dumps(model))
        model.get_text_embedding_batch(texts(6))
        assert limiter.acquired == emulator.log.requests == 2
        assert (twin.rate_limiter, twin.embed_batch_size, twin.pooling) == (None, 5, "cls")


class TestQueue:
    """Tests of the settings. The queue has its own tests."""

    def test_documents_use_the_queue_and_queries_do_not(
        self, embedding: Make, emulator: Emulator, call: Caller
    ) -> None:
        model = embedding(model=BASE, queue="always")
        plain = embedding(model=BASE)
        assert call(model, BATCH, texts(3)) == plain.get_text_embedding_batch(texts(3))
        assert call(model, "get_query_embedding", "x") == plain.get_query_embedding("x")
        assert [entry.route for entry in emulator.log.entries].count("submit") == 1

    def test_overflow_moves_documents_to_the_queue(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        emulator.faults.add(Fault.busy(route="run"))
        vectors = call(embedding(model=BASE, queue="overflow", batch_size=2, num_workers=1), BATCH, texts(4))
        assert emulator.log.routes["submit"] == 1
        assert vectors == [embedding(model=BASE).get_text_embedding(text) for text in texts(4)]
