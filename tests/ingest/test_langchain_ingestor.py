"""Fill LangChain's vector stores through the queue: real stores, sync and async with one body."""

from __future__ import annotations

import contextlib
import io
import math
import os
import sqlite3
import subprocess
import sys
import threading
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_classic.embeddings import CacheBackedEmbeddings
from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.exceptions import ModelAuthenticationError, ModelRateLimitError
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.stores import InMemoryStore
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from tests.support import TOKEN, Caller, wired

from langchain_workers_ai import (
    BadRequestError,
    BatchError,
    BatchItemError,
    BatchTimeoutError,
    ConfigurationError,
    QuotaExhaustedError,
    WorkersAIBatchIngestor,
    WorkersAIEmbeddings,
)
from workers_ai_emulator import Clock, Emulator, Fault
from workers_ai_emulator.state.queue import ItemFailure, QueueSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.bulk_runs import VirtualTime

MODEL = "@cf/baai/bge-small-en-v1.5"
DIMENSIONS = 384


@pytest.fixture
def emulator(clock: VirtualTime) -> Emulator:
    """Return a service whose batches are done at the first poll. Neither it nor its clients sleep."""
    return Emulator(clock=Clock("jump"), queue=QueueSettings(progress="at_once"))


@pytest.fixture
def embeddings(emulator: Emulator) -> WorkersAIEmbeddings:
    return WorkersAIEmbeddings(**wired(emulator, model=MODEL))


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    return Caller(request.param)


def in_memory(embeddings: Embeddings) -> VectorStore:
    return InMemoryVectorStore(embeddings)


def chroma(embeddings: Embeddings) -> VectorStore:
    from langchain_chroma import Chroma

    return Chroma(f"c-{uuid.uuid4().hex}", embedding_function=embeddings)


def faiss(embeddings: Embeddings) -> VectorStore:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a warning of langchain-community
        from faiss import IndexFlatL2
        from langchain_community.docstore.in_memory import InMemoryDocstore
        from langchain_community.vectorstores import FAISS

    return FAISS(embeddings, IndexFlatL2(DIMENSIONS), InMemoryDocstore(), {})


def qdrant(embeddings: Embeddings) -> VectorStore:
    from langchain_qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient
    from qdrant_client.models import Distance, VectorParams

    client = QdrantClient(":memory:")
    client.create_collection("c", vectors_config=VectorParams(size=DIMENSIONS, distance=Distance.COSINE))
    return QdrantVectorStore(client, "c", embedding=embeddings, validate_collection_config=False)


@pytest.fixture(params=[in_memory, chroma, faiss, qdrant], ids=lambda make: make.__name__)
def store(request: pytest.FixtureRequest, embeddings: WorkersAIEmbeddings) -> VectorStore:
    made: VectorStore = request.param(embeddings)
    return made


@pytest.fixture
def ingestor(embeddings: WorkersAIEmbeddings, tmp_path: Path) -> Callable[..., WorkersAIBatchIngestor]:
    """Return a function that creates ingestors with one ledger."""

    def make(store: VectorStore, **options: Any) -> WorkersAIBatchIngestor:
        options = {"ledger": tmp_path / "ledger", "progress": False, **options}
        return WorkersAIBatchIngestor(options.pop("embeddings", embeddings), store, **options)

    return make


def corpus(count: int, **metadata: Any) -> list[Document]:
    """Return documents about one number each, with ids that every store accepts."""
    return [
        Document(id=str(uuid.UUID(int=number + 1)), page_content=f"all about number{number}", metadata=metadata)
        for number in range(count)
    ]


def submitted(emulator: Emulator) -> list[list[str]]:
    """Return the texts of each item that was sent to the queue."""
    return [
        item["text"] for entry in emulator.log.entries if entry.route == "submit" for item in entry.json["requests"]
    ]


def sent_directly(emulator: Emulator) -> list[Any]:
    """Return the bodies of synchronous requests."""
    return [entry.json for entry in emulator.log.entries if entry.route not in ("submit", "poll")]


def everything(store: VectorStore) -> list[str]:
    """Return all texts of a store, sorted. Chroma's search is approximate, so its texts are listed."""
    if hasattr(store, "get"):
        return sorted(store.get()["documents"])
    return sorted(document.page_content for document in store.similarity_search("anything", k=1000))


def test_a_store_is_filled_only_through_the_queue(
    store: VectorStore, ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    documents = corpus(250)

    report = call(ingestor(store, batch_size=100), "ingest", documents)

    assert (report.embedded, report.reused, report.failed) == (250, 0, 0)
    items = submitted(emulator)
    assert sorted(text for item in items for text in item) == sorted(d.page_content for d in documents)
    assert max(map(len, items)) <= 100
    assert sent_directly(emulator) == []
    assert everything(store) == sorted(d.page_content for d in documents)


def test_the_store_finds_the_document(
    store: VectorStore, ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    call(ingestor(store), "ingest", corpus(12, source="numbers"))

    (found,) = call(store, "similarity_search", "number7", k=1)

    assert found.page_content == "all about number7"
    assert found.metadata["source"] == "numbers"
    assert [body["text"] for body in sent_directly(emulator)] == [["number7"]]  # queries are sent directly


def test_the_vectors_of_the_store_are_those_of_the_service(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, call: Caller
) -> None:
    store = InMemoryVectorStore(embeddings)
    (document,) = corpus(1)

    call(ingestor(store), "ingest", [document])

    direct = embeddings.embed_query(document.page_content)
    assert store.store[str(document.id)]["vector"] == pytest.approx(direct, rel=1e-6, abs=1e-7)


def test_the_same_documents_again_change_nothing_and_cost_nothing(
    store: VectorStore, ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    documents = corpus(30)
    call(ingestor(store), "ingest", documents)
    emulator.log.clear()

    report = call(ingestor(store), "ingest", documents)

    assert (report.embedded, report.reused) == (0, 30)
    assert emulator.log.requests == 0
    assert everything(store) == sorted(d.page_content for d in documents)


def test_a_document_replaces_the_document_with_its_id(
    store: VectorStore, ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    documents = corpus(12)
    call(ingestor(store, batch_size=5), "ingest", documents)
    emulator.log.clear()
    changed = Document(id=documents[7].id, page_content="quite another thing")

    call(ingestor(store, batch_size=5), "ingest", [*documents[:7], changed, *documents[8:]])

    assert submitted(emulator) == [["quite another thing"]]
    assert everything(store) == sorted(
        [*(d.page_content for d in documents if d.id != changed.id), "quite another thing"]
    )
    (found,) = store.similarity_search("another thing", k=1)
    assert found.page_content == "quite another thing"


def test_documents_without_ids_are_identified_by_text_and_metadata(
    store: VectorStore, ingestor: Callable[..., WorkersAIBatchIngestor], call: Caller
) -> None:
    documents = [Document("same", metadata={"page": page, "book": "b"}) for page in (1, 2, 2)]
    reordered = [Document("same", metadata={"book": "b", "page": page}) for page in (2, 1)]
    assert all(document.id is None for document in documents)

    call(ingestor(store), "ingest", documents)
    call(ingestor(store), "ingest", reordered)

    found = store.similarity_search("same", k=10)
    assert sorted(document.metadata["page"] for document in found) == [1, 2]


def test_identical_texts_are_sent_once(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    store = InMemoryVectorStore(embeddings)

    report = call(ingestor(store), "ingest", [Document("twin", id=f"d{number}") for number in range(50)])

    assert submitted(emulator) == [["twin"]]
    assert (report.embedded, report.reused) == (1, 49)
    assert len(store.store) == 50


class Loader(BaseLoader):
    """Yield documents one by one, and count the iterations."""

    iterations = 0

    def lazy_load(self) -> Iterator[Document]:
        self.iterations += 1
        yield from corpus(30)


async def arriving() -> AsyncIterator[Document]:
    for document in corpus(30):
        yield document


@pytest.mark.parametrize("source", [lambda: iter(corpus(30)), Loader, lambda: tuple(corpus(30))])
def test_documents_can_come_from_any_source(
    source: Callable[[], Any],
    ingestor: Callable[..., WorkersAIBatchIngestor],
    embeddings: WorkersAIEmbeddings,
    call: Caller,
) -> None:
    store = InMemoryVectorStore(embeddings)
    documents = source()

    report = call(ingestor(store, batch_size=7), "ingest", documents)

    assert report.embedded == 30
    assert sorted(store.store) == sorted(str(document.id) for document in corpus(30))
    assert getattr(documents, "iterations", 1) == 1


def test_asynchronous_iterators_are_for_aingest(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings
) -> None:
    store = InMemoryVectorStore(embeddings)

    report = Caller("async")(ingestor(store), "ingest", arriving())

    assert (report.embedded, len(store.store)) == (30, 30)
    with pytest.raises(TypeError, match="use aingest"):
        ingestor(store).ingest(arriving())


def test_a_failing_source_leaves_no_files(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    def broken() -> Iterator[Document]:
        yield from corpus(3)
        raise OSError("the disk of the loader is gone")

    with pytest.raises(OSError, match="disk of the loader"):
        call(ingestor(InMemoryVectorStore(embeddings)), "ingest", broken())

    assert emulator.log.requests == 0


def test_only_ingest_reads_a_database_of_this_thread(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings
) -> None:
    def rows() -> Iterator[Document]:
        yield from (Document(text) for (text,) in database.execute("SELECT 'a text'"))

    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        assert ingestor(InMemoryVectorStore(embeddings)).ingest(rows()).embedded == 1
        with pytest.raises(BadRequestError, match="check_same_thread=False"):
            Caller("async")(ingestor(InMemoryVectorStore(embeddings)), "ingest", rows())


@pytest.mark.parametrize("source", [list, iter])
@pytest.mark.parametrize("odd", ["a text", None, {"page_content": "a text"}])
def test_an_item_that_is_not_a_document_is_reported(
    ingestor: Callable[..., WorkersAIBatchIngestor],
    embeddings: WorkersAIEmbeddings,
    emulator: Emulator,
    call: Caller,
    source: Callable[[Any], Any],
    odd: Any,
) -> None:
    with pytest.raises(BadRequestError, match="a document must be a langchain_core Document, not"):
        call(ingestor(InMemoryVectorStore(embeddings)), "ingest", source([*corpus(3), odd]))

    assert emulator.log.requests == 0


@pytest.mark.parametrize("metadata", [{"lock": threading.Lock()}, {"rule": lambda: None}])
def test_metadata_that_cannot_be_pickled_requires_a_list(
    ingestor: Callable[..., WorkersAIBatchIngestor],
    embeddings: WorkersAIEmbeddings,
    call: Caller,
    metadata: dict[str, Any],
) -> None:
    documents = [*corpus(3), Document("text", id="odd", metadata=metadata)]
    store = InMemoryVectorStore(embeddings)

    with pytest.raises(BadRequestError, match=r"document 3 of an iterator cannot be pickled .*: pass a list"):
        call(ingestor(store), "ingest", iter(documents))

    assert call(ingestor(store), "ingest", documents).embedded == 4


def test_keys_of_metadata_may_be_of_several_types(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, call: Caller
) -> None:
    store = InMemoryVectorStore(embeddings)
    documents = [Document("same", metadata=metadata) for metadata in ({1: "a", "b": 2}, {"b": 2, 1: "a"}, {1: "c"})]

    call(ingestor(store), "ingest", documents)

    assert len(store.store) == 2


# Failures


class Breaking(InMemoryVectorStore):
    """A store that rejects one call of ``add_documents``."""

    refuse = 2

    def _count(self) -> None:
        self.refuse -= 1
        if self.refuse == 0:
            raise ConnectionError("the store is away")

    def add_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        self._count()
        return super().add_documents(documents, ids, **kwargs)

    async def aadd_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        self._count()
        return await super().aadd_documents(documents, ids, **kwargs)


def test_a_store_that_breaks_costs_no_second_embedding(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    store = Breaking(embeddings)
    with pytest.raises(ConnectionError, match="the store is away"):
        call(ingestor(store, batch_size=10), "ingest", corpus(30))
    assert len(store.store) == 10

    report = call(ingestor(store, batch_size=10), "ingest", corpus(30))

    assert (report.embedded, report.reused, len(store.store)) == (0, 30, 30)
    assert emulator.log.texts_embedded == 30


def test_a_document_that_fails_is_reported_and_left_out(
    store: VectorStore, ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains="number17", code=3030, message="too many tokens")]
    documents = corpus(40)

    report = call(ingestor(store), "ingest", documents)

    assert (report.embedded, report.failed) == (39, 1)
    (failure,) = report.failures
    assert (failure.id, failure.code) == (documents[17].id, 3030)
    assert "too many tokens" in failure.message
    assert everything(store) == sorted(d.page_content for d in documents if d is not documents[17])
    assert [body["text"] for body in sent_directly(emulator)] in ([], [["anything"]])  # the query of everything()


def test_raise_on_failure_raises_before_the_store_changes(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains="number3", code=3030)]
    store = InMemoryVectorStore(embeddings)
    documents = corpus(8)

    with pytest.raises(BatchItemError) as raised:
        call(ingestor(store, raise_on_failure=True), "ingest", documents)

    assert (raised.value.external_reference, raised.value.code) == (documents[3].id, 3030)
    assert store.store == {}


def test_empty_documents(
    ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller, tmp_path: Path
) -> None:
    documents = [Document("", id="empty"), Document("full", id="full")]
    strict = WorkersAIEmbeddings(**wired(emulator, model=MODEL))
    lenient = WorkersAIEmbeddings(**wired(emulator, model=MODEL, empty_text="space"))

    store = InMemoryVectorStore(strict)
    report = call(ingestor(store, embeddings=strict), "ingest", documents)
    assert ([failure.id for failure in report.failures], list(store.store)) == (["empty"], ["full"])

    store = InMemoryVectorStore(lenient)
    report = call(ingestor(store, embeddings=lenient, ledger=tmp_path / "other"), "ingest", documents)
    assert (report.failed, list(store.store)) == (0, ["empty", "full"])
    assert sent_directly(emulator) == []


def test_an_error_that_stops_the_run_is_langchains_and_the_run_can_continue(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    embeddings.max_concurrency = 1
    store = InMemoryVectorStore(embeddings)
    emulator.faults.add(Fault.error(429, 3036, "daily free allocation used up", route="submit", skip=1))

    with pytest.raises(QuotaExhaustedError) as raised:
        call(ingestor(store, texts_per_job=100), "ingest", corpus(300))
    assert isinstance(raised.value, ModelRateLimitError)
    assert not raised.value.is_retryable
    assert TOKEN not in f"{raised.value!r} {raised.value}"
    assert store.store == {}

    report = call(ingestor(store, texts_per_job=100), "ingest", corpus(300))
    assert (report.embedded, report.reused, len(store.store)) == (200, 100, 300)
    assert emulator.log.texts_repeated == 0


def test_a_rejected_token_is_langchains_error(
    ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    embeddings = WorkersAIEmbeddings(**wired(emulator, model=MODEL, api_token="bad-token"))

    with pytest.raises(ModelAuthenticationError):
        call(ingestor(InMemoryVectorStore(embeddings), embeddings=embeddings), "ingest", corpus(1))


# Stores that use the vectors of the ledger


def test_a_store_with_an_equal_object_works(
    ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    store = InMemoryVectorStore(WorkersAIEmbeddings(**wired(emulator, model=MODEL)))

    call(ingestor(store), "ingest", corpus(20))

    assert (len(store.store), sent_directly(emulator)) == (20, [])


def test_a_store_with_cached_embeddings_works(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    kept = InMemoryStore()
    cached = CacheBackedEmbeddings(embeddings, kept)
    for _ in range(2):
        store = InMemoryVectorStore(cached)
        call(ingestor(store), "ingest", corpus(20))
        assert (len(store.store), sent_directly(emulator)) == (20, [])
    assert len(list(kept.yield_keys())) == 20


class Threaded(InMemoryVectorStore):
    """A store that embeds on its own threads, as some stores do."""

    def add_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        with ThreadPoolExecutor(2) as pool:
            parts = [documents[:5], documents[5:]]
            vectors = pool.map(lambda part: self.embedding.embed_documents([d.page_content for d in part]), parts)
            self.seen = [vector for part in vectors for vector in part]
        return [str(document.id) for document in documents]

    async def aadd_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        return self.add_documents(documents, ids, **kwargs)


def test_a_store_that_embeds_in_its_own_threads_works(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    store = Threaded(embeddings)

    call(ingestor(store), "ingest", corpus(10))

    assert (len(store.seen), sent_directly(emulator)) == (10, [])


class Bare(InMemoryVectorStore):
    """A store without lookup by id."""

    def get_by_ids(self, ids: Any, /) -> list[Document]:
        raise NotImplementedError

    async def aget_by_ids(self, ids: Any, /) -> list[Document]:
        raise NotImplementedError


def test_a_store_without_id_lookup_works(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, call: Caller
) -> None:
    store = Bare(embeddings)

    call(ingestor(store, batch_size=4), "ingest", corpus(10))

    assert len(store.store) == 10


@pytest.mark.parametrize("other", [{"model": "@cf/baai/bge-m3"}, {"pooling": "cls"}, {"normalize": True}])
def test_a_store_with_other_embedding_options_is_rejected(
    other: dict[str, Any], ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator
) -> None:
    store = InMemoryVectorStore(WorkersAIEmbeddings(**wired(emulator, **{"model": MODEL, **other})))

    for embeds in (store.embedding, CacheBackedEmbeddings(store.embedding, InMemoryStore())):
        with pytest.raises(ConfigurationError, match="the vector store embeds with"):
            ingestor(InMemoryVectorStore(embeds))


def test_a_store_with_another_embedding_model_is_rejected_before_sending(
    ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator
) -> None:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=DIMENSIONS))

    with pytest.raises(ConfigurationError, match="embeds with its own DeterministicFakeEmbedding"):
        ingestor(store)

    assert emulator.log.requests == 0


class Meanwhile(InMemoryVectorStore):
    """A store during whose filling another thread uses the same embeddings."""

    def add_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        texts = [documents[0].page_content, "a stranger", documents[1].page_content]
        thread = threading.Thread(target=self._ask, args=(texts,))
        thread.start()
        thread.join()
        return super().add_documents(documents, ids, **kwargs)

    async def aadd_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        return self.add_documents(documents, ids, **kwargs)

    def _ask(self, texts: list[str]) -> None:
        self.theirs = self.embedding.embed_documents(texts)
        try:
            self.embedding.embed_documents([texts[0], ""])
        except BadRequestError as exc:
            self.error = exc


def test_other_calls_are_unaffected_by_an_ingestion(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    store = Meanwhile(embeddings)

    call(ingestor(store), "ingest", corpus(2))

    assert [body["text"] for body in sent_directly(emulator)] == [["a stranger"]]
    expected = embeddings.embed_documents(["all about number0", "a stranger", "all about number1"])
    for vector, right in zip(store.theirs, expected, strict=True):
        assert vector == pytest.approx(right, rel=1e-6, abs=1e-7)
    assert (store.error.index, "text 1 is empty" in str(store.error)) == (1, True)


class Together(InMemoryVectorStore):
    """A store that waits until another store is being filled, too."""

    gate: threading.Barrier

    def add_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        self.gate.wait(timeout=100)
        return super().add_documents(documents, ids, **kwargs)


def test_two_ingestors_at_once_do_not_disturb_each_other(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, tmp_path: Path
) -> None:
    stores = [Together(embeddings), Together(embeddings)]
    Together.gate = threading.Barrier(2)
    halves = [corpus(40)[:20], corpus(40)[20:]]

    with ThreadPoolExecutor(2) as pool:
        makers = [ingestor(store, ledger=tmp_path / f"l{n}", batch_size=5) for n, store in enumerate(stores)]
        reports = list(pool.map(lambda maker, half: maker.ingest(half), makers, halves))

    assert [report.embedded for report in reports] == [20, 20]
    assert [len(store.store) for store in stores] == [20, 20]
    assert sent_directly(emulator) == []


def test_afterwards_the_embeddings_do_not_use_the_ledger(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    call(ingestor(InMemoryVectorStore(embeddings)), "ingest", corpus(2))

    call(embeddings, "embed_documents", ["all about number0"])

    assert [body["text"] for body in sent_directly(emulator)] == [["all about number0"]]


# Settings


def test_direct_mode_needs_no_queue(
    ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    embeddings = WorkersAIEmbeddings(**wired(emulator, model="@cf/google/embeddinggemma-300m"))
    store = InMemoryVectorStore(embeddings)
    with pytest.raises(ConfigurationError, match="has no asynchronous queue"):
        ingestor(store, embeddings=embeddings)

    report = call(ingestor(store, embeddings=embeddings, mode="direct"), "ingest", corpus(40))

    assert (report.embedded, len(store.store), submitted(emulator)) == (40, 40, [])
    assert emulator.log.texts_embedded == 40


def test_options_that_shape_vectors_are_sent(
    ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller, tmp_path: Path
) -> None:
    for model, options in [(MODEL, {"pooling": "cls"}), ("@cf/baai/bge-m3", {"truncate_inputs": True})]:
        embeddings = WorkersAIEmbeddings(**wired(emulator, model=model, query_instruction="Find: ", **options))
        store = InMemoryVectorStore(embeddings)

        call(ingestor(store, embeddings=embeddings, ledger=tmp_path / model[-6:]), "ingest", corpus(1))

        (item,) = emulator.log.entries[-2].json["requests"]
        assert item == {"text": ["all about number0"], **options}


def test_normalize_scales_vectors(
    ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    embeddings = WorkersAIEmbeddings(**wired(emulator, model=MODEL, normalize=True))
    store = InMemoryVectorStore(embeddings)

    call(ingestor(store, embeddings=embeddings), "ingest", corpus(1))

    (entry,) = store.store.values()
    assert math.hypot(*entry["vector"]) == pytest.approx(1)


def test_deadline_and_cost_limit(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    store = InMemoryVectorStore(embeddings)
    with pytest.raises(BatchError, match="cost limit of"):
        call(ingestor(store, limit_cost_usd=1e-12), "ingest", corpus(3))
    assert emulator.log.requests == 0

    emulator.queue.settings.progress = "never"
    with pytest.raises(BatchTimeoutError) as raised:
        call(ingestor(store, deadline_s=1.5), "ingest", corpus(3))
    assert raised.value.request_ids == tuple(job.request_id for job in emulator.queue.jobs)
    assert (len(raised.value.request_ids), store.store) == (1, {})


def test_a_progress_bar_is_shown_unless_disabled(
    ingestor: Callable[..., WorkersAIBatchIngestor],
    embeddings: WorkersAIEmbeddings,
    call: Caller,
    capsys: pytest.CaptureFixture[str],
) -> None:
    call(ingestor(InMemoryVectorStore(embeddings), progress=True), "ingest", corpus(3))
    assert "3/3" in capsys.readouterr().err
    call(ingestor(InMemoryVectorStore(embeddings)), "ingest", corpus(3))
    assert capsys.readouterr().err == ""


class Counting(BaseRateLimiter):
    taken = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        self.taken += 1
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        self.taken += 1
        return True


def test_langchains_rate_limiter_bounds_each_request(
    ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    limiter = Counting()
    embeddings = WorkersAIEmbeddings(**wired(emulator, model=MODEL, rate_limiter=limiter))

    call(ingestor(InMemoryVectorStore(embeddings), embeddings=embeddings, mode="direct"), "ingest", corpus(250))

    assert limiter.taken == emulator.log.requests == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, not 0"),
        ({"batch_size": "5"}, "batch_size must be an integer of at least 1, not '5'"),
        ({"batch_size": None}, "batch_size must be an integer of at least 1, not None"),
        ({"embeddings": DeterministicFakeEmbedding(size=8)}, "must be a WorkersAIEmbeddings"),
    ],
)
def test_options_that_do_not_fit(
    options: dict[str, Any],
    words: str,
    ingestor: Callable[..., WorkersAIBatchIngestor],
    embeddings: WorkersAIEmbeddings,
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        ingestor(InMemoryVectorStore(embeddings), **options)


def test_the_repr_has_no_token(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings
) -> None:
    assert TOKEN not in repr(ingestor(InMemoryVectorStore(embeddings)))


# The embeddings themselves, through the queue


def test_embeddings_with_queue_always_send_documents_through_the_queue_and_queries_directly(
    emulator: Emulator, call: Caller
) -> None:
    embeddings = WorkersAIEmbeddings(**wired(emulator, model=MODEL, queue="always"))
    texts = [f"all about number{number}" for number in range(230)]

    vectors = call(embeddings, "embed_documents", texts)
    query = call(embeddings, "embed_query", "all about number7")

    assert [len(item) for item in submitted(emulator)] == [100, 100, 30]
    assert [body["text"] for body in sent_directly(emulator)] == [["all about number7"]]
    assert len(vectors) == 230
    assert vectors[7] == pytest.approx(query, rel=1e-6)


def test_httpx_clients_of_the_user_stay_open(emulator: Emulator, ingestor: Any, call: Caller) -> None:
    settings = wired(emulator, model=MODEL)
    embeddings = WorkersAIEmbeddings(**settings)

    call(ingestor(InMemoryVectorStore(embeddings), embeddings=embeddings), "ingest", corpus(1))

    clients: list[httpx.Client | httpx.AsyncClient] = [settings["http_client"], settings["http_async_client"]]
    assert [client.is_closed for client in clients] == [False, False]


# No document of a store is lost


class Rejecting(InMemoryVectorStore):
    """A store that rejects existing ids, as FAISS does, and everything while it is ``down``. Records its calls."""

    def __init__(self, embedding: Any) -> None:
        super().__init__(embedding)
        self.calls: list[tuple[str, int]] = []
        self.down = False
        self.end: int | None = None

    def _count(self, name: str, count: int) -> None:
        if len(self.calls) == self.end:
            raise InterruptedError
        self.calls.append((name, count))

    def add_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        self._count("add", len(documents))
        if self.down or any(key in self.store for key in ids or ()):
            raise ValueError("Tried to add ids that already exist")
        return super().add_documents(documents, ids, **kwargs)

    async def aadd_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        return self.add_documents(documents, ids, **kwargs)

    def delete(self, ids: Any = None, **kwargs: Any) -> None:
        self._count("delete", len(ids))
        super().delete(ids, **kwargs)

    async def adelete(self, ids: Any = None, **kwargs: Any) -> None:
        self.delete(ids, **kwargs)


def test_an_upsert_deletes_only_after_it_has_added(
    ingestor: Callable[..., WorkersAIBatchIngestor], embeddings: WorkersAIEmbeddings, emulator: Emulator, call: Caller
) -> None:
    store = Rejecting(embeddings)
    call(ingestor(store), "ingest", corpus(5))
    call(ingestor(store), "ingest", corpus(5))
    assert store.calls == [("add", 5)], "unchanged documents are left alone"

    documents = corpus(6)
    documents[2].page_content = "changed"
    before = dict(store.store)
    store.down = True
    with pytest.raises(ValueError, match="already exist"):
        call(ingestor(store), "ingest", documents)
    assert store.store == before

    store.down, store.calls = False, []
    call(ingestor(store), "ingest", documents)
    assert store.calls == [("add", 1), ("add", 1), ("delete", 1), ("add", 1), ("delete", 1)]
    assert {key: entry["text"] for key, entry in store.store.items()} == {d.id: d.page_content for d in documents}

    for end in range(4):  # interrupt the call after each of these steps, then repeat it
        documents[3].page_content = f"changed again {end}"
        store.calls, store.end = [], end
        with pytest.raises(InterruptedError):
            call(ingestor(store), "ingest", documents)
        assert documents[3].id in store.store or any("again" in entry["text"] for entry in store.store.values())
        store.end = None
        call(ingestor(store), "ingest", documents)
        assert {key: entry["text"] for key, entry in store.store.items()} == {d.id: d.page_content for d in documents}
    assert sent_directly(emulator) == []


def test_ids_of_documents_do_not_depend_on_the_process() -> None:
    script = """
from langchain_core.documents import Document
from langchain_workers_ai._ingestion.documents import document_key
class Thing:
    def __init__(self): self.tags = {"x", "y", "z"}
circle = {"tags": {"a", "b", "c"}, 1: frozenset("pqr"), "thing": Thing()}
circle["self"] = circle
for metadata in ({"tags": {"a", "b", "c"}}, {"deep": [{"s": {("u", 1), ("v", 2)}}], "t": Thing()}, circle):
    print(document_key(Document("text", metadata=metadata)))
"""
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    other = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True).stdout
    with contextlib.redirect_stdout(io.StringIO()) as own:
        exec(script, {"__name__": "__main__"})
    assert own.getvalue() == other.decode()
    assert len(set(other.split())) == 3


def test_the_constructor_sends_nothing(ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator) -> None:
    """The constructor does not call the embedding model of another provider either."""

    class Paid(DeterministicFakeEmbedding):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise AssertionError("a paid call")

    with pytest.raises(ConfigurationError, match="embeds with its own Paid"):
        ingestor(InMemoryVectorStore(Paid(size=DIMENSIONS)))
    assert emulator.log.requests == 0
