"""The LlamaIndex embedding model for whole corpora: nodes, queries, failures, processes."""

from __future__ import annotations

import asyncio
import copy
import math
import pickle
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import MetadataMode, TextNode
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.embeddings.workers_ai import WorkersAIBatchEmbedding, WorkersAIEmbedding
from tests.llama_index.standard import CountingLimiter
from tests.support import ACCOUNT, TOKEN, Caller, wired

from workers_ai.errors import (
    AuthenticationError,
    BadRequestError,
    BatchError,
    BatchItemError,
    BatchTimeoutError,
    ConfigurationError,
    QuotaExhaustedError,
)
from workers_ai_emulator import Clock, Emulator, Fault
from workers_ai_emulator.state.queue import ItemFailure, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.bulk_runs import VirtualTime

    Make = Callable[..., WorkersAIBatchEmbedding]

# LlamaIndex imports LangChain if it is installed, which warns about a deprecated package.
pytestmark = pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning")

MODEL = "@cf/baai/bge-small-en-v1.5"
BATCH = "get_text_embedding_batch"


@pytest.fixture
def emulator(clock: VirtualTime) -> Emulator:
    """Return a service whose batches are done at the first poll. Neither it nor its clients sleep."""
    return Emulator(clock=Clock("jump"), queue=QueueSettings(progress="at_once"))


@pytest.fixture
def embedding(emulator: Emulator, tmp_path: Path) -> Make:
    """Return a function that creates embedding models with one ledger."""
    return lambda **options: WorkersAIBatchEmbedding(
        **wired(emulator, **{"model": MODEL, "ledger": tmp_path / "ledger", **options})
    )


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    return Caller(request.param)


def transform(mode: str, model: WorkersAIBatchEmbedding, nodes: list[TextNode]) -> list[Any]:
    """Return the model as a transformation."""
    return list(model(nodes) if mode == "sync" else asyncio.run(model.acall(nodes)))


def nodes(count: int) -> list[TextNode]:
    return [TextNode(text=f"text number{number}", id_=f"n{number}") for number in range(count)]


def texts(count: int) -> list[str]:
    return [f"text number{number}" for number in range(count)]


def submitted(emulator: Emulator) -> list[list[list[str]]]:
    """Return the texts of each item of each submission."""
    return [
        [item["text"] for item in entry.json["requests"]] for entry in emulator.log.entries if entry.route == "submit"
    ]


def sent_directly(emulator: Emulator) -> list[Any]:
    return [entry.json["text"] for entry in emulator.log.entries if entry.route not in ("submit", "poll")]


class TestNodes:
    def test_every_node_is_embedded_through_the_queue(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        given = nodes(1150)

        out = transform(call.mode, embedding(max_concurrency=1), given)

        assert [[len(item) for item in job] for job in submitted(emulator)] == [[100] * 10, [100, 50]]
        assert sent_directly(emulator) == []
        assert out == given
        plain = WorkersAIEmbedding(**wired(emulator, model=MODEL))
        assert out[1077].embedding == pytest.approx(plain.get_text_embedding("text number1077"), rel=1e-6, abs=1e-7)

    def test_text_is_embedded_with_metadata(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        node = TextNode(text="body", metadata={"title": "T", "key": "K"}, excluded_embed_metadata_keys=["key"])

        transform(call.mode, embedding(), [node])

        assert submitted(emulator) == [[[node.get_content(MetadataMode.EMBED)]]]
        assert "title: T" in submitted(emulator)[0][0][0]
        assert "key" not in submitted(emulator)[0][0][0]

    def test_nodes_with_a_vector_are_not_embedded(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        given = nodes(3)
        given[1].embedding = [0.5]

        out = transform(call.mode, embedding(), given)

        assert out[1].embedding == [0.5]
        assert submitted(emulator) == [[["text number0", "text number2"]]]

    def test_identical_texts_are_sent_once_and_have_separate_lists(
        self, embedding: Make, emulator: Emulator, call: Caller
    ) -> None:
        first, second = transform(call.mode, embedding(), [TextNode(text="twin"), TextNode(text="twin")])

        assert submitted(emulator) == [[["twin"]]]
        assert first.embedding == second.embedding
        assert first.embedding is not second.embedding

    def test_empty_list_of_nodes(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        assert transform(call.mode, embedding(), []) == []
        assert emulator.log.requests == 0

    def test_event_loop_is_not_blocked_by_polling(self, tmp_path: Path) -> None:
        emulator = Emulator(queue=QueueSettings(polls=3))
        model = WorkersAIBatchEmbedding(**wired(emulator, model=MODEL, ledger=tmp_path / "ledger"))

        async def meanwhile() -> int:
            work = asyncio.ensure_future(model.acall(nodes(2)))
            beats = 0
            while not work.done():
                await asyncio.sleep(0.01)
                beats += 1
            assert all(node.embedding for node in work.result())
            return beats

        assert asyncio.run(meanwhile()) > 10  # three waits, in total more than half a second


class TestQueries:
    def test_queries_are_sent_directly(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        model = embedding(query_instruction="Represent this: ")
        document = call(model, "get_text_embedding", "river")

        query = call(model, "get_query_embedding", "river")

        assert submitted(emulator) == [[["river"]]]
        assert sent_directly(emulator) == [["Represent this: river"]]
        assert query != document

    def test_ledger_of_another_model_is_rejected(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        call(embedding(), BATCH, texts(2))
        emulator.log.clear()

        with pytest.raises(ConfigurationError, match="was created with model"):
            call(embedding(model="@cf/baai/bge-m3"), BATCH, texts(2))

        assert emulator.log.requests == 0


class TestIndex:
    @pytest.mark.parametrize("use_async", [False, True])
    def test_embed_model_of_an_index(self, use_async: bool, embedding: Make, emulator: Emulator) -> None:
        model = embedding()

        index = VectorStoreIndex(nodes(150), embed_model=model, use_async=use_async)
        (found,) = index.as_retriever(similarity_top_k=1).retrieve("text number77")

        assert found.node_id == "n77"
        assert sum(len(item) for job in submitted(emulator) for item in job) == 150
        assert sent_directly(emulator) == [["text number77"]]

    def test_nodes_of_a_pipeline_are_not_embedded_again(self, embedding: Make, emulator: Emulator) -> None:
        model = embedding()
        out = IngestionPipeline(transformations=[model]).run(nodes=nodes(20))
        emulator.log.clear()

        VectorStoreIndex(list(out), embed_model=model)

        assert emulator.log.requests == 0


class TestFailures:
    def test_failed_text_is_reported_and_the_others_are_kept(
        self, embedding: Make, emulator: Emulator, call: Caller
    ) -> None:
        emulator.queue.settings.failures = [ItemFailure(contains="number17", code=3030, message="too many tokens")]
        given = nodes(40)

        with pytest.raises(BatchItemError, match="1 of 40 texts failed, the first is text 17") as raised:
            transform(call.mode, embedding(), given)
        assert (raised.value.index, raised.value.code) == (17, 3030)
        assert [node.embedding for node in given] == [None] * 40

        emulator.queue.settings.failures = []
        emulator.log.clear()
        out = transform(call.mode, embedding(), given)
        assert submitted(emulator) == [[["text number17"]]]
        assert all(node.embedding for node in out)

    def test_too_few_vectors_raise(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        empty = {"responses": [{"id": 0, "success": True, "result": {"data": [], "shape": [0, 384]}}]}
        emulator.faults.add(Fault.reply({"result": empty, "success": True}, route="poll", times=None))

        with pytest.raises(BatchItemError, match="2 of 2 texts failed"):
            transform(call.mode, embedding(), nodes(2))

    def test_empty_text_raises_before_sending(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        given = [TextNode(text="full"), TextNode(text="")]

        with pytest.raises(BadRequestError, match="text 1 is empty"):
            transform(call.mode, embedding(), given)
        assert emulator.log.requests == 0

        out = transform(call.mode, embedding(empty_text="space"), given)
        assert submitted(emulator) == [[["full", " "]]]
        assert all(node.embedding for node in out)

    def test_first_failure_stops_and_received_vectors_are_kept(
        self, embedding: Make, emulator: Emulator, call: Caller
    ) -> None:
        emulator.faults.add(Fault.error(429, 3036, "used up", route="submit", skip=2, times=None))
        model = embedding(texts_per_job=10, max_concurrency=1)

        with pytest.raises(QuotaExhaustedError):
            call(model, BATCH, texts(200))
        assert emulator.log.routes["submit"] == 3

        emulator.faults.clear()
        emulator.log.clear()
        assert len(call(model, BATCH, texts(200))) == 200
        assert sum(len(item) for job in submitted(emulator) for item in job) == 180

    def test_rejected_token(self, embedding: Make, call: Caller) -> None:
        with pytest.raises(AuthenticationError) as raised:
            call(embedding(api_token="bad-token"), BATCH, texts(1))
        assert "bad-token" not in f"{raised.value} {raised.value!r}"


class TestBounds:
    def test_requests_in_flight(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        emulator.settings.latency_s = 0.001
        model = embedding(texts_per_job=10, max_concurrency=2)

        assert len(call(model, BATCH, texts(200))) == 200

        assert emulator.log.routes["submit"] == 20
        assert emulator.log.peak_concurrency <= 2

    def test_rate_limiter_is_acquired_for_each_request(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        limiter = CountingLimiter()

        call(embedding(rate_limiter=limiter, texts_per_job=10, max_concurrency=1), BATCH, texts(30))

        assert emulator.log.requests == 6
        assert limiter.acquired == 6

    def test_deadline(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        emulator.queue.settings.progress = "never"
        with pytest.raises(BatchTimeoutError) as raised:
            call(embedding(deadline_s=1.5), BATCH, texts(3))
        assert raised.value.request_ids == tuple(job.request_id for job in emulator.queue.jobs)

    @pytest.mark.parametrize(
        ("model", "options"), [(MODEL, {"pooling": "cls"}), ("@cf/baai/bge-m3", {"truncate_inputs": True})]
    )
    def test_vector_options_are_sent(
        self, model: str, options: dict[str, Any], embedding: Make, emulator: Emulator, call: Caller
    ) -> None:
        call(embedding(model=model, query_instruction="Find: ", **options), BATCH, texts(1))
        (item,) = emulator.log.entries[-2].json["requests"]
        assert item == {"text": ["text number0"], **options}

    def test_normalize_option(self, embedding: Make, call: Caller) -> None:
        (vector,) = call(embedding(normalize=True), BATCH, texts(1))
        assert math.hypot(*vector) == pytest.approx(1)

    def test_cost_limit(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        with pytest.raises(BatchError, match="cost limit of"):
            call(embedding(limit_cost_usd=1e-12), BATCH, texts(30))
        assert submitted(emulator) == []


class TestConstruction:
    def test_direct_requests_with_the_same_ledger(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        call(embedding(), BATCH, texts(100))

        vectors = call(embedding(queue="never"), BATCH, texts(150))

        assert len(vectors) == 150
        assert sorted(text for body in sent_directly(emulator) for text in body) == sorted(texts(150)[100:])

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"queue": "overflow"}, "overflow"),
            ({"model": "@cf/google/embeddinggemma-300m"}, "has no asynchronous queue"),
            ({"texts_per_job": 0}, "texts_per_job"),
            ({"deadline": 5}, "deadline_s"),
        ],
    )
    def test_invalid_options(self, options: dict[str, Any], words: str, embedding: Make) -> None:
        with pytest.raises(ConfigurationError, match=words):
            embedding(**options)

    def test_ledger_is_required(self) -> None:
        with pytest.raises(ConfigurationError, match="ledger: Field required"):
            WorkersAIBatchEmbedding(model=MODEL, account_id=ACCOUNT, api_token=TOKEN)  # type: ignore[call-arg]

    def test_cache_key_has_only_vector_options(self, embedding: Make, tmp_path: Path) -> None:
        key = embedding().to_dict()
        same = [
            {"ledger": tmp_path / "other"},
            {"texts_per_job": 7},
            {"limit_cost_usd": 1.0},
            {"show_progress": True},
            {"queue": "never"},
            {"deadline_s": 5},
            {"api_token": "another-token"},
            {"max_concurrency": 2},
            {"embeddings_cache": SimpleKVStore()},
        ]
        assert all(embedding(**options).to_dict() == key for options in same)
        assert all(embedding(**options).to_dict() != key for options in ({"pooling": "cls"}, {"normalize": True}))
        assert key["class_name"] == "WorkersAIBatchEmbedding"
        assert TOKEN not in f"{key} {embedding()!r}"

    def test_pickles_and_copies_use_the_same_ledger(self, embedding: Make, emulator: Emulator, call: Caller) -> None:
        model = embedding(texts_per_job=7, pooling="cls")
        call(model, BATCH, texts(3))
        emulator.log.clear()

        twin = pickle.loads(pickle.dumps(model))
        assert (twin.ledger, twin.texts_per_job, twin.pooling, twin.queue) == (model.ledger, 7, "cls", "always")
        for other in (twin, copy.deepcopy(model), model.model_copy()):
            assert len(call(other, BATCH, texts(3))) == 3
        assert emulator.log.requests == 0

    def test_show_progress_in_a_pipeline(
        self, embedding: Make, call: Caller, capsys: pytest.CaptureFixture[str]
    ) -> None:
        call(embedding(), BATCH, texts(3))
        assert capsys.readouterr().err == ""
        call(embedding(), BATCH, texts(3), show_progress=True)
        assert "3/3" in capsys.readouterr().err
        transform(call.mode, embedding(show_progress=True), nodes(3))
        assert "3/3" in capsys.readouterr().err


class PickledArguments(ThreadPool):
    """Threads that replace the worker processes of a pipeline. Their arguments are also pickled."""

    def starmap(self, func: Any, iterable: Any, chunksize: int | None = None) -> list[Any]:
        return self.map(lambda data: func(*pickle.loads(data)), [pickle.dumps(arguments) for arguments in iterable])


def test_workers_of_a_pipeline_share_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.get_context", lambda method: SimpleNamespace(Pool=PickledArguments))
    emulator = Emulator(queue=QueueSettings(progress="at_once"))
    given = [TextNode(text=f"text number{number % 150}", id_=f"n{number}") for number in range(300)]
    with emulator.serve() as url:
        model = WorkersAIBatchEmbedding(
            model=MODEL, ledger=tmp_path / "ledger", account_id=ACCOUNT, api_token=TOKEN, base_url=url
        )
        out = IngestionPipeline(transformations=[model], disable_cache=True).run(nodes=given, num_workers=2)
    assert [node.node_id for node in out] == [node.node_id for node in given]
    assert all(node.embedding for node in out)
    assert out[7].embedding == out[157].embedding
    assert (emulator.log.texts_embedded, emulator.log.texts_repeated) == (150, 0)
