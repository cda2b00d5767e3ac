"""The batch embedding model in ingestion pipelines: only failed texts are sent again.

LlamaIndex's pipelines have these faults without a ledger: a failure in the last batch loses all others, a failed run
leaves documents marked as processed, and one new document embeds all documents again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core import Document
from llama_index.core.ingestion import DocstoreStrategy, IngestionCache, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.embeddings.workers_ai import WorkersAIBatchEmbedding, docstore_rollback
from tests.support import Caller, wired

from workers_ai.errors import QuotaExhaustedError
from workers_ai_emulator import Clock, Emulator, Fault
from workers_ai_emulator.state.queue import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bulk_runs import VirtualTime

    Make = Callable[..., IngestionPipeline]

pytestmark = pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning")

STRATEGIES = [DocstoreStrategy.UPSERTS, DocstoreStrategy.UPSERTS_AND_DELETE, DocstoreStrategy.DUPLICATES_ONLY]


@pytest.fixture
def emulator(clock: VirtualTime) -> Emulator:
    return Emulator(clock=Clock("jump"), queue=QueueSettings(progress="at_once"))


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    return Caller(request.param)


@pytest.fixture
def pipeline(emulator: Emulator, tmp_path: Path) -> Make:
    """Return a function that creates pipelines with one ledger. Submissions have one request of ten texts."""

    def make(**options: Any) -> IngestionPipeline:
        settings = {"model": "@cf/baai/bge-small-en-v1.5", "ledger": tmp_path / "ledger", "texts_per_job": 10}
        model = WorkersAIBatchEmbedding(**wired(emulator, max_concurrency=1, **settings))
        return IngestionPipeline(transformations=[model], **options)

    return make


def documents(count: int) -> list[Document]:
    return [Document(text=f"text number{number}", id_=f"d{number}") for number in range(count)]


def submitted(emulator: Emulator) -> list[list[str]]:
    """Return the texts of each submission."""
    return [
        [text for item in entry.json["requests"] for text in item["text"]]
        for entry in emulator.log.entries
        if entry.route == "submit"
    ]


def third_fails(emulator: Emulator) -> None:
    emulator.faults.add(Fault.error(429, 3036, "used up", route="submit", skip=2))


def test_rerun_after_failure_in_the_last_batch_sends_one_batch(
    pipeline: Make, emulator: Emulator, call: Caller
) -> None:
    third_fails(emulator)
    store = SimpleVectorStore()
    cached = pipeline(vector_store=store, cache=IngestionCache())
    with pytest.raises(QuotaExhaustedError):
        call(cached, "run", documents=documents(30))
    emulator.log.clear()

    call(cached, "run", documents=documents(30))

    assert submitted(emulator) == [[f"text number{number}" for number in range(20, 30)]]
    assert len(store.data.embedding_dict) == 30


def test_new_document_sends_one_batch(pipeline: Make, emulator: Emulator, call: Caller) -> None:
    cached = pipeline(cache=IngestionCache())
    call(cached, "run", documents=documents(30))
    emulator.log.clear()

    out = call(cached, "run", documents=documents(31))

    assert submitted(emulator) == [["text number30"]]
    assert all(node.embedding for node in out)
    assert len(out) == 31


def test_same_documents_send_nothing_without_the_cache(pipeline: Make, emulator: Emulator, call: Caller) -> None:
    call(pipeline(), "run", documents=documents(30))
    emulator.log.clear()

    out = call(pipeline(disable_cache=True), "run", documents=documents(30))

    assert emulator.log.requests == 0
    assert all(node.embedding for node in out)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_docstore_strategy_recovers(
    strategy: DocstoreStrategy, pipeline: Make, emulator: Emulator, call: Caller
) -> None:
    third_fails(emulator)
    store, docstore = SimpleVectorStore(), SimpleDocumentStore()
    stored = pipeline(vector_store=store, docstore=docstore, docstore_strategy=strategy)
    with pytest.raises(QuotaExhaustedError), docstore_rollback(docstore):
        call(stored, "run", documents=documents(30))
    emulator.log.clear()

    with docstore_rollback(docstore):
        out = call(stored, "run", documents=documents(30))

    assert [len(texts) for texts in submitted(emulator)] == [10]
    assert (len(out), len(store.data.embedding_dict)) == (30, 30)
    assert call(stored, "run", documents=documents(30)) == []


@pytest.mark.parametrize(
    ("strategy", "left"),
    [
        (DocstoreStrategy.UPSERTS, ["d0", "d1", "d2", "d3", "d4"]),
        (DocstoreStrategy.UPSERTS_AND_DELETE, ["d0", "d1", "d2", "d3"]),
        (DocstoreStrategy.DUPLICATES_ONLY, ["d0", "d1", "d2", "d3", "d3", "d4"]),
    ],
)
def test_changed_and_deleted_documents(
    strategy: DocstoreStrategy, left: list[str], pipeline: Make, emulator: Emulator, call: Caller
) -> None:
    store = SimpleVectorStore()
    stored = pipeline(vector_store=store, docstore=SimpleDocumentStore(), docstore_strategy=strategy)
    stored.transformations.insert(0, SentenceSplitter())
    call(stored, "run", documents=documents(5))
    emulator.log.clear()
    later = [*documents(3), Document(text="revised", id_="d3")]  # d3 changed, d4 was deleted

    (changed,) = call(stored, "run", documents=later)

    assert submitted(emulator) == [["revised"]]
    assert changed.embedding
    assert sorted(store.data.text_id_to_ref_doc_id.values()) == left


def test_embedding_first_keeps_old_vectors_until_new_ones_exist(
    pipeline: Make, emulator: Emulator, call: Caller
) -> None:
    store = SimpleVectorStore()
    stored = pipeline(vector_store=store, docstore=SimpleDocumentStore())
    stored.transformations.insert(0, SentenceSplitter())
    call(stored, "run", documents=documents(3))
    before = dict(store.data.embedding_dict)
    revised = [*documents(2), Document(text="revised", id_="d2")]
    embed_only = IngestionPipeline(transformations=stored.transformations)
    emulator.faults.add(Fault.error(429, 3036, "used up", route="submit"))

    # A pipeline with stores first deletes changed documents and then embeds them. Without stores, nothing is deleted.
    with pytest.raises(QuotaExhaustedError):
        call(embed_only, "run", documents=revised)
    assert store.data.embedding_dict == before
    call(embed_only, "run", documents=revised)
    emulator.log.clear()
    call(stored, "run", documents=revised)

    assert emulator.log.requests == 0
    assert sorted(store.data.text_id_to_ref_doc_id.values()) == ["d0", "d1", "d2"]
    assert len(store.data.embedding_dict.keys() & before.keys()) == 2


def test_docstore_without_vector_store(pipeline: Make, emulator: Emulator, call: Caller) -> None:
    third_fails(emulator)
    docstore = SimpleDocumentStore()
    stored = pipeline(docstore=docstore, docstore_strategy=DocstoreStrategy.DUPLICATES_ONLY)
    with pytest.raises(QuotaExhaustedError), docstore_rollback(docstore):
        call(stored, "run", documents=documents(30))

    out = call(stored, "run", documents=documents(30))

    assert len(out) == 30
    assert emulator.log.texts_repeated == 0


class TestRollback:
    def test_rollback_keeps_earlier_documents(self) -> None:
        docstore = SimpleDocumentStore()
        kept, changed = documents(2)
        docstore.add_documents([kept, changed])

        def interrupted() -> None:
            docstore.set_document_hash("d1", "hash of another text")
            docstore.add_documents([Document(text="new", id_="new")])
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), docstore_rollback(docstore):
            interrupted()

        assert docstore.get_all_document_hashes() == {kept.hash: "d0", changed.hash: "d1"}
        assert sorted(docstore.docs) == ["d0", "d1"]

    def test_successful_run_is_not_rolled_back(self) -> None:
        docstore = SimpleDocumentStore()
        with docstore_rollback(docstore):
            docstore.add_documents(documents(2))
        assert sorted(docstore.docs) == ["d0", "d1"]


README = Path(__file__).parents[2] / "libs" / "llama-index-embeddings-workers-ai" / "README.md"


@pytest.fixture(params=["build_index", "build_simple_index"])
def build(request: pytest.FixtureRequest, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a recipe of the README as a function of documents and folder."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL):
        if "def build_" in block:
            exec(block.partition("\n\n\ndocuments = ")[0].partition("\n\n\nbuild_")[0], names)

    def embedding(**options: Any) -> WorkersAIBatchEmbedding:
        return WorkersAIBatchEmbedding(**wired(emulator), **options)

    monkeypatch.setitem(names, "WorkersAIBatchEmbedding", embedding)
    return names[request.param]


def found(index: Any) -> list[str]:
    """Return the ids of all documents in an index, sorted by similarity to "revised words"."""
    return [node.node.ref_doc_id for node in index.as_retriever(similarity_top_k=50).retrieve("revised words")]


class TestRecipes:
    def test_index_survives_restarts(self, build: Any, emulator: Emulator, tmp_path: Path) -> None:
        assert sorted(found(build(documents(5), tmp_path))) == ["d0", "d1", "d2", "d3", "d4"]
        emulator.log.clear()
        assert sorted(found(build(documents(5), tmp_path))) == ["d0", "d1", "d2", "d3", "d4"]
        assert submitted(emulator) == []

        changed = [*documents(3)[:2], Document(text="revised words", id_="d2"), Document(text="new", id_="d5")]
        index = build(changed, tmp_path)
        assert found(index)[0] == "d2"
        assert sorted(found(index)) == ["d0", "d1", "d2", "d5"]
        assert submitted(emulator) == [["revised words", "new"]]
        assert sorted(found(build(changed, tmp_path))) == ["d0", "d1", "d2", "d5"]

    def test_failed_run_loses_nothing(
        self, build: Any, emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        build(documents(3), tmp_path)
        revised = [*documents(2), Document(text="revised words", id_="d2")]
        emulator.faults.add(Fault.error(429, 3036, "used up", route="submit"))
        with pytest.raises(QuotaExhaustedError):
            build(revised, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(SimpleDocumentStore, "persist", interrupt)
            with pytest.raises(KeyboardInterrupt):
                build(revised, tmp_path)
        index = build(revised, tmp_path)
        assert found(index)[0] == "d2"
        assert sorted(found(index)) == ["d0", "d1", "d2"]
        assert submitted(emulator)[1:] == [["revised words"]] * 2  # the first one was rejected


def interrupt(*args: Any, **options: Any) -> None:
    raise KeyboardInterrupt
