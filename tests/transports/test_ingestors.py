"""The ingestors of both frameworks through the other transports: a binding, and a deployed batch Worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import Document as Node
from llama_index.core.ingestion import IngestionPipeline
from llama_index.embeddings.workers_ai import WorkersAIBatchEmbedding

from langchain_workers_ai import WorkersAIBatchIngestor, WorkersAIEmbeddings
from workers_ai import BatchWorker

BGE = "@cf/baai/bge-base-en-v1.5"
TEXTS = [f"text number {number}" for number in range(130)]
WORKER = BatchWorker("https://batch.example.workers.dev", headers={"X-Key": "secret-of-the-worker"})


@pytest.fixture(params=["binding", "batch_worker"])
def transport_settings(
    request: pytest.FixtureRequest, env_ai: Any, emulator: Any, account: dict[str, Any]
) -> dict[str, Any]:
    """Return the settings for one of the transports."""
    emulator.queue.settings.progress = "at_once"
    if request.param == "binding":
        return {"binding": env_ai}
    transport = emulator.transport()
    return {
        **account,
        "http_client": httpx.Client(transport=transport),
        "http_async_client": httpx.AsyncClient(transport=transport),
        "batch_worker": WORKER,
    }


@pytest.fixture
def submitted(transport_settings: dict[str, Any], env_ai: Any, emulator: Any) -> Callable[[], list[int]]:
    """Return the texts of each submission that the transport received."""

    def count() -> list[int]:
        if "binding" in transport_settings:
            return [
                sum(len(request["text"]) for request in inputs["requests"])
                for _, inputs, options in env_ai.calls
                if options.get("queueRequest")
            ]
        posts = [entry for entry in emulator.log.entries if (entry.method, entry.route) == ("POST", "batch_worker")]
        return [len(entry.json["texts"]) for entry in posts]

    return count


async def test_langchain_fills_a_store(transport_settings: dict[str, Any], submitted: Any, tmp_path: Path) -> None:
    embeddings = WorkersAIEmbeddings(model=BGE, **transport_settings)
    store = InMemoryVectorStore(embeddings)
    ingestor = WorkersAIBatchIngestor(embeddings, store, ledger=tmp_path / "ledger", progress=False)
    report = await ingestor.aingest([Document(text, id=text) for text in TEXTS])
    assert (report.embedded, report.failed, submitted()) == (130, 0, [130])
    (found,) = await store.asimilarity_search(TEXTS[77], k=1)
    assert found.page_content == TEXTS[77]
    again = await ingestor.aingest([Document(text, id=text) for text in TEXTS])
    assert (again.embedded, submitted()) == (0, [130])


async def test_llama_index_fills_a_pipeline(transport_settings: dict[str, Any], submitted: Any, tmp_path: Path) -> None:
    embedding = WorkersAIBatchEmbedding(model=BGE, ledger=str(tmp_path / "ledger"), **transport_settings)
    nodes = await IngestionPipeline(transformations=[embedding]).arun(documents=[Node(text=text) for text in TEXTS])
    assert submitted() == [130]
    assert [node.text for node in nodes] == TEXTS
    assert {len(node.embedding) for node in nodes} == {768}
    assert nodes[77].embedding == pytest.approx(await embedding.aget_query_embedding(TEXTS[77]), abs=1e-6)
