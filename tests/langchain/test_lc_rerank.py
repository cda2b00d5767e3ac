"""The reranker: order, scores, requests and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.exceptions import ModelError
from langchain_core.vectorstores import InMemoryVectorStore
from tests.support import ACCOUNT, TOKEN, held, wired

import langchain_workers_ai as ours
from langchain_workers_ai import WorkersAIEmbeddings, WorkersAIRerank
from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., WorkersAIRerank]

QUERY = "When does the ferry to Moss leave?"
TEXTS = [
    "The museum is closed on Mondays.",
    "The ferry to Moss leaves at 14:02.",
    "Moss is a town in Norway.",
    "A cafe serves cakes.",
]
BEST = TEXTS[1]


@pytest.fixture
def reranker(emulator: Emulator) -> Make:
    """Return a function that creates rerankers. Keywords are settings."""
    return lambda **settings: WorkersAIRerank(**wired(emulator, **settings))


def documents() -> list[Document]:
    return [Document(text, id=str(place), metadata={"place": place}) for place, text in enumerate(TEXTS)]


def scored(emulator: Emulator, *rows: Any) -> None:
    """Script the rows of the next reply."""
    emulator.faults.add(Fault.reply({"result": {"response": list(rows)}, "success": True}))


def row(place: Any, score: Any) -> dict[str, Any]:
    return {"id": place, "score": score}


@pytest.mark.parametrize("pipeline", [False, True])
def test_in_a_contextual_compression_retriever(pipeline: bool, emulator: Emulator, reranker: Make, call: Any) -> None:
    store = InMemoryVectorStore(WorkersAIEmbeddings(**wired(emulator, model="@cf/baai/bge-m3")))
    store.add_documents(documents())
    compressor: BaseDocumentCompressor = reranker(top_n=2)
    if pipeline:
        compressor = DocumentCompressorPipeline(transformers=[reranker(top_n=3), compressor])
    retriever = ContextualCompressionRetriever(
        base_compressor=compressor, base_retriever=store.as_retriever(search_kwargs={"k": 4})
    )
    found = call(retriever, "invoke", QUERY)
    assert [one.page_content for one in found] == [BEST, TEXTS[2]]
    assert [set(one.metadata) for one in found] == [{"place", "relevance_score"}] * 2
    assert emulator.log.last.json["top_k"] == 2


def test_the_request_body(emulator: Emulator, reranker: Make, call: Any) -> None:
    call(reranker(top_n=2), "compress_documents", documents(), QUERY)
    contexts = [{"text": text} for text in TEXTS]
    assert emulator.log.last.json == {"query": QUERY, "contexts": contexts, "top_k": 2}
    assert emulator.log.last.path.endswith(f"/accounts/{ACCOUNT}/ai/run/@cf/baai/bge-reranker-base")


def test_scores_are_matched_by_id_and_documents_copied(emulator: Emulator, reranker: Make, call: Any) -> None:
    given = documents()
    scored(emulator, row(2, 0.9), row(0, 0.1), row(3, 0.5), row(1, 0.3))
    found = call(reranker(top_n=None), "compress_documents", given, QUERY)
    assert [one.metadata for one in found] == [
        {"place": 2, "relevance_score": 0.9},
        {"place": 3, "relevance_score": 0.5},
        {"place": 1, "relevance_score": 0.3},
        {"place": 0, "relevance_score": 0.1},
    ]
    assert [one.id for one in found] == ["2", "3", "1", "0"]
    assert given == documents()


def test_documents_may_be_an_iterator_and_other_values_are_not_sent(
    emulator: Emulator, reranker: Make, call: Any
) -> None:
    assert len(call(reranker(top_n=2), "compress_documents", iter(documents()), QUERY)) == 2
    with pytest.raises(ours.BadRequestError, match=r"document 1 is a str: pass a Document, or use rerank\(\)"):
        call(reranker(), "compress_documents", [*documents()[:1], "text"], QUERY)
    assert emulator.log.requests == 1


def test_metadata_of_a_result_is_a_copy_at_every_depth(reranker: Make) -> None:
    given = [Document("a", metadata={"tags": ["x"]})]
    reranker().compress_documents(given, QUERY)[0].metadata["tags"].append("y")
    assert given[0].metadata == {"tags": ["x"]}


def test_texts_and_documents(emulator: Emulator, reranker: Make, call: Any) -> None:
    best = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]
    scored(emulator, row(1, 0.9), row(0, 0.1))
    assert call(reranker(), "rerank", ["a", Document("b")], "q") == best
    scored(emulator, row(1, 0.9), row(0, 0.1))
    assert call(reranker(), "rerank", ["a", "b"], "q", top_n=1) == best[:1]


@pytest.mark.parametrize(("top_n", "kept"), [(0, 0), (1, 1), (9, 4), (None, 4)])
def test_top_n(top_n: int | None, kept: int, reranker: Make, call: Any) -> None:
    assert len(call(reranker(top_n=top_n), "compress_documents", documents(), QUERY)) == kept


def test_no_documents_send_nothing(emulator: Emulator, reranker: Make, call: Any) -> None:
    assert call(reranker(), "compress_documents", [], QUERY) == []
    assert call(reranker(), "rerank", [], QUERY) == []
    assert emulator.log.entries == []


def test_an_empty_document_keeps_its_index(reranker: Make, call: Any) -> None:
    found = call(reranker(), "compress_documents", [Document(""), Document(BEST)], QUERY)
    assert [one.page_content for one in found] == [BEST, ""]


def test_a_long_list_is_split_and_merged(emulator: Emulator, reranker: Make, call: Any) -> None:
    texts = [f"filler {place}" for place in range(150)]
    texts[120] = BEST
    assert call(reranker(), "rerank", texts, QUERY)[0]["index"] == 120
    assert sorted(len(entry.json["contexts"]) for entry in emulator.log.entries) == [50, 100]


def test_requests_of_a_long_list_run_side_by_side(call: Any) -> None:
    emulator = Emulator(clock=Clock("manual"), latency_s=1)
    transport = emulator.transport()
    clients: dict[str, Any] = {"http_client": httpx.Client(transport=transport)}
    clients["http_async_client"] = httpx.AsyncClient(transport=transport)
    one = WorkersAIRerank(account_id=ACCOUNT, api_token=TOKEN, max_concurrency=3, **clients)
    with held(emulator, 3):
        call(one, "rerank", ["a text"] * 500, "q")
    assert emulator.log.peak_concurrency == 3


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row(0, 0.5)],
        [row(0, 0.5), row(0, 0.4)],
        [row(0, 0.5), row(7, 0.4)],
        [row(0, 0.5), row(1, None)],
        [row(0, 0.5), row(1, "high")],
        [row(0, 0.5), None],
    ],
)
def test_mismatched_scores_are_an_error(rows: list[Any], emulator: Emulator, reranker: Make, call: Any) -> None:
    scored(emulator, *rows)
    with pytest.raises(ours.APIResponseValidationError, match="but 2 were requested") as caught:
        call(reranker(), "rerank", ["a", "b"], "q")
    assert isinstance(caught.value, ModelError)


@pytest.mark.parametrize("method", ["compress_documents", "rerank"])
def test_errors_are_subclasses_of_both_trees(method: str, emulator: Emulator, reranker: Make, call: Any) -> None:
    emulator.faults.add(Fault.busy())
    with pytest.raises(ours.CapacityError) as caught:
        call(reranker(on_busy="raise"), method, documents(), QUERY)
    assert isinstance(caught.value, ModelError)
    assert caught.value.is_retryable


@pytest.mark.parametrize(
    ("given", "query", "says"),
    [
        (TEXTS, "", "the query must be a non-empty string"),
        ([None], "q", "a NoneType, not a string"),
        (["a", 7], "q", "a int, not a string"),
        ("abc", "q", "texts must be a list of strings, not one string"),
        (None, "q", "texts must be a list of strings, not a NoneType"),
    ],
)
def test_arguments_that_cannot_be_scored_are_rejected(
    given: Any, query: str, says: str, emulator: Emulator, reranker: Make, call: Any
) -> None:
    with pytest.raises(ours.BadRequestError, match=says):
        call(reranker(), "rerank", given, query)
    assert emulator.log.entries == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"top_n": -1}, "top_n"), ({"top_k": 3}, "top_n"), ({"max_concurrency": 0}, "max_concurrency")],
)
def test_bad_settings(settings: dict[str, Any], says: str, reranker: Make) -> None:
    with pytest.raises(ours.ConfigurationError, match=says):
        reranker(**settings)
