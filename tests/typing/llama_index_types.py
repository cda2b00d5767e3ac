"""Types of the LlamaIndex classes. mypy and pyright check this file; it never runs.

The calls go through the base class where LlamaIndex's decorators hide the types of a subclass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from llama_index.core.base.embeddings.base import BaseEmbedding, Embedding
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    LLMMetadata,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, NodeWithScore, TransformComponent
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.workers_ai import WorkersAIBatchEmbedding, WorkersAIEmbedding
from llama_index.llms.workers_ai import WorkersAI, WorkersAIBatchExtractor
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank

from workers_ai import RetryPolicy

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
MESSAGES = [ChatMessage("hi")]


def chat(tool: FunctionTool) -> None:
    llm = WorkersAI(model=MODEL, temperature=0, max_tokens=64, on_busy="retry")
    as_base: FunctionCallingLLM = llm
    assert_type(as_base.chat(MESSAGES), ChatResponse)
    assert_type(llm.metadata, LLMMetadata)
    assert_type(as_base.complete("hi"), CompletionResponse)
    pieces: ChatResponseGen = as_base.stream_chat(MESSAGES)
    for piece in pieces:
        assert_type(piece.delta, str | None)
    response = llm.chat_with_tools([tool], user_msg="hi")
    assert_type(llm.get_tool_calls_from_response(response), list[ToolSelection])


def construct_with_documented_forms() -> None:
    WorkersAI(MODEL)
    WorkersAI(model_name=MODEL, api_key="t", account_id="a", reuse_client=False, async_http_client=None)
    WorkersAI(model=MODEL, api_token="t", api_base="https://api.cloudflare.com/client/v4", retry=RetryPolicy())
    WorkersAIEmbedding(model_name="@cf/baai/bge-m3", api_key="t", account_id="a", auth_token="t")
    WorkersAIRerank(top_n=3, api_key="t", account_id="a", request_timeout=5)


async def achat(llm: WorkersAI) -> None:
    as_base: FunctionCallingLLM = llm
    assert_type(await as_base.achat(MESSAGES), ChatResponse)
    pieces: ChatResponseAsyncGen = await as_base.astream_chat(MESSAGES)
    async for piece in pieces:
        assert_type(piece, ChatResponse)


def embed() -> None:
    embedding = WorkersAIEmbedding(model="@cf/baai/bge-m3", embed_batch_size=50, num_workers=4)
    as_base: BaseEmbedding = embedding
    assert_type(as_base.get_query_embedding("q"), Embedding)
    assert_type(embedding.get_text_embedding_batch(["a"]), list[Embedding])


async def aembed(embedding: WorkersAIEmbedding) -> None:
    assert_type(await embedding.aget_text_embedding_batch(["a"]), list[Embedding])


async def ingest(nodes: list[BaseNode]) -> None:
    embedding = WorkersAIBatchEmbedding(model="@cf/baai/bge-m3", ledger="ledger.sqlite3")
    as_base: BaseEmbedding = embedding
    as_step: TransformComponent = embedding
    assert_type(as_step(nodes), Sequence[BaseNode])
    assert_type(await as_base.aget_text_embedding_batch(["a"]), list[Embedding])


def extract(nodes: list[BaseNode]) -> None:
    extractor = WorkersAIBatchExtractor(
        llm=WorkersAI(max_tokens=200), ledger="ledger.sqlite3", prompt_template="{context_str}", labels=["a", "b"]
    )
    assert_type(extractor.labels, Sequence[str] | None)
    assert_type(extractor(nodes), list[BaseNode])


def rerank(nodes: list[NodeWithScore]) -> None:
    reranker = WorkersAIRerank(top_n=3)
    as_base: BaseNodePostprocessor = reranker
    assert_type(as_base.postprocess_nodes(nodes, query_str="q"), list[NodeWithScore])
