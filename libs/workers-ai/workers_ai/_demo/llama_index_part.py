"""The LlamaIndex part of ``workers-ai demo``. It requires the packages for LLM, embeddings and reranking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_index.core import VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import TextNode
from llama_index.embeddings.workers_ai import WorkersAIBatchEmbedding
from llama_index.llms.workers_ai import WorkersAI
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank

if TYPE_CHECKING:
    from workers_ai._demo import Stage

__all__ = ["show"]


def show(stage: Stage) -> None:
    """Answer questions with sources, using an ingestion pipeline, a vector index, a query engine and a reranker."""
    stage.title("LlamaIndex: the same questions, with a reranker")
    embedding = WorkersAIBatchEmbedding(model=stage.embed_model, ledger=stage.ledger, **stage.settings)
    nodes = IngestionPipeline(transformations=[embedding]).run(
        nodes=[
            TextNode(
                id_=doc.id,
                text=doc.text,
                metadata={"source": doc.source},
                excluded_embed_metadata_keys=["source"],
                excluded_llm_metadata_keys=["source"],
            )
            for doc in stage.corpus
        ]
    )
    index = VectorStoreIndex(list(nodes), embed_model=embedding)
    engine = index.as_query_engine(
        llm=WorkersAI(model=stage.chat_model, **stage.settings),
        similarity_top_k=10,
        node_postprocessors=[WorkersAIRerank(model=stage.rerank_model, top_n=3, **stage.settings)],
    )
    for question in stage.questions:
        answer = engine.query(question)
        stage.say(f"  Q: {question}\n  A: {answer}")
        for node in answer.source_nodes:
            stage.say(f"     source: {node.node_id} ({node.metadata['source']}), relevance {node.score:.2f}")
