"""Types of the LangChain classes. mypy and pyright check this file; it never runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

import httpx
from langchain_core.decisions import ClassifierResponse, Noul
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import BaseModel

from langchain_workers_ai import (
    CapacityError,
    ChatWorkersAI,
    WorkersAIBatchIngestor,
    WorkersAIDecisions,
    WorkersAIEmbeddings,
    WorkersAIRerank,
    is_retryable,
)
from workers_ai import GatewayOptions, Limiter, RetryPolicy, errors
from workers_ai.ingest import IngestReport

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"


class Person(BaseModel):
    name: str


@tool
def clock(city: str) -> str:
    """Tell the time."""
    return city


def chat() -> None:
    model = ChatWorkersAI(model=MODEL, temperature=0, max_tokens=64, on_busy="raise", gateway=GatewayOptions(id="g"))
    as_base: BaseChatModel = model
    assert_type(as_base.invoke("hi"), AIMessage)
    assert_type(model.invoke([HumanMessage("hi")]), AIMessage)
    assert_type(model.batch(["a", "b"]), list[AIMessage])
    pieces: Iterator[AIMessageChunk] = model.stream("hi")
    assert_type(next(pieces), AIMessageChunk)
    assert_type(model.bind_tools([clock], tool_choice="any", strict=True), Runnable[LanguageModelInput, AIMessage])
    assert_type(
        model.with_structured_output(Person, method="json_schema", include_raw=True), Runnable[LanguageModelInput, Any]
    )
    assert_type(model.with_retry(stop_after_attempt=2), Runnable[LanguageModelInput, AIMessage])
    fallback: Runnable[LanguageModelInput, AIMessage] = model.with_fallbacks([ChatWorkersAI(model=MODEL)])
    assert_type(fallback.invoke("hi"), AIMessage)


def construct_with_documented_forms() -> None:
    ChatWorkersAI(MODEL)
    ChatWorkersAI(model_name=MODEL, api_key="t", account_id="a", request_timeout=30)
    ChatWorkersAI(model=MODEL, api_token="t", retry=RetryPolicy(max_retries=1), limiter=Limiter())
    ChatWorkersAI(model=MODEL, auth_token="t", api_base="https://api.cloudflare.com/client/v4", stop_sequences=["x"])
    WorkersAIEmbeddings(model_name="@cf/baai/bge-m3", api_key="t", account_id="a")
    WorkersAIRerank(top_n=3, api_key="t", account_id="a", gateway={"id": "gw"})
    WorkersAIDecisions(api_key="t", account_id="a")


def fields_have_their_types(model: ChatWorkersAI) -> None:
    assert_type(model.timeout, float | httpx.Timeout | None)
    assert_type(model.http_client, httpx.Client | None)
    assert_type(model.http_async_client, httpx.AsyncClient | None)
    assert_type(model.retry, RetryPolicy | None)
    assert_type(model.limiter, Limiter | None)
    model.on_retry = None


async def achat(model: ChatWorkersAI) -> None:
    assert_type(await model.ainvoke("hi"), AIMessage)
    assert_type(await model.abatch(["a"]), list[AIMessage])
    pieces: AsyncIterator[AIMessageChunk] = model.astream("hi")
    async for piece in pieces:
        assert_type(piece, AIMessageChunk)


def embed() -> None:
    embeddings = WorkersAIEmbeddings(model="@cf/baai/bge-m3", batch_size=50, queue="overflow")
    as_base: Embeddings = embeddings
    assert_type(as_base.embed_query("q"), list[float])
    assert_type(embeddings.embed_documents(["a"]), list[list[float]])


async def aembed(embeddings: WorkersAIEmbeddings) -> None:
    assert_type(await embeddings.aembed_documents(["a"]), list[list[float]])
    assert_type(await embeddings.aembed_query("q"), list[float])


def rerank(documents: list[Document]) -> None:
    reranker = WorkersAIRerank(top_n=3)
    as_base: BaseDocumentCompressor = reranker
    for document in as_base.compress_documents(documents, "q"):
        assert_type(document, Document)


def ingest(store: InMemoryVectorStore, documents: list[Document]) -> None:
    embeddings = WorkersAIEmbeddings(model="@cf/baai/bge-m3")
    ingestor = WorkersAIBatchIngestor(embeddings, store, ledger="ledger.sqlite3")
    report: IngestReport = ingestor.ingest(documents)
    assert_type(report.failed, int)


async def aingest(ingestor: WorkersAIBatchIngestor, documents: list[Document]) -> None:
    report: IngestReport = await ingestor.aingest(documents, cleanup="incremental")
    assert_type(report.embedded, int)


def decide() -> None:
    model = WorkersAIDecisions()
    question = Noul(type="noul", instructions="Is it urgent?")
    assert_type(model.invoke({"state": "Checkout fails.", "questions": {"urgent": question}}), ClassifierResponse)


def caught(exc: Exception) -> None:
    assert_type(is_retryable(exc), bool)
    if isinstance(exc, CapacityError):
        as_core: errors.CapacityError = exc
        assert_type(as_core.retry_after, float | None)
