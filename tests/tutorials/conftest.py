"""One emulator for all examples, and the models for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from workers_ai_emulator import Clock, Emulator

if TYPE_CHECKING:
    from llama_index.embeddings.workers_ai import WorkersAIEmbedding
    from llama_index.llms.workers_ai import WorkersAI

    from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings, WorkersAIRerank

CHAT = "@cf/openai/gpt-oss-120b"
EMBED = "@cf/baai/bge-m3"

AGENTS_POST = """Task decomposition means that an agent breaks a large task into smaller and simpler steps.
Chain of thought is the standard method for task decomposition: the model is told to think step by step.
Tree of thoughts extends chain of thought: it explores several thoughts at each step.
Short-term memory is the text that fits into the context window of the model.
Long-term memory is kept in a vector store, from which the agent recalls what it needs.
Tools let an agent call a calculator, a search engine or code that its weights do not hold."""
ESSAY = """Before college the two things I worked on were writing and programming.
I wrote short stories, and they were awful: they had hardly any plot.
My first programs ran on an IBM 1401 in the basement of the school.
In college I planned to study philosophy, but I switched to artificial intelligence.
Years later I sold a company that built online stores and started to paint in New York."""


@pytest.fixture(scope="session")
def settings() -> dict[str, Any]:
    """Return settings for an emulator in this process."""
    transport = Emulator(clock=Clock("jump")).transport()
    return {
        "account_id": "0123456789abcdef0123456789abcdef",
        "api_token": "token-of-the-tests-0123456789",
        "http_client": httpx.Client(transport=transport),
        "http_async_client": httpx.AsyncClient(transport=transport),
    }


@pytest.fixture
def model(settings: dict[str, Any]) -> ChatWorkersAI:
    """Return the chat model of the LangChain and LangGraph examples."""
    from langchain_workers_ai import ChatWorkersAI

    return ChatWorkersAI(model=CHAT, **settings)


@pytest.fixture
def embeddings(settings: dict[str, Any]) -> WorkersAIEmbeddings:
    """Return the embeddings of the LangChain and LangGraph examples."""
    from langchain_workers_ai import WorkersAIEmbeddings

    return WorkersAIEmbeddings(model=EMBED, **settings)


@pytest.fixture
def compressor(settings: dict[str, Any]) -> WorkersAIRerank:
    """Return the reranker of the LangChain examples."""
    from langchain_workers_ai import WorkersAIRerank

    return WorkersAIRerank(top_n=2, **settings)


@pytest.fixture
def llm(settings: dict[str, Any]) -> WorkersAI:
    """Return the LLM of the LlamaIndex examples."""
    from llama_index.llms.workers_ai import WorkersAI

    return WorkersAI(model=CHAT, **settings)


@pytest.fixture
def embed_model(settings: dict[str, Any]) -> WorkersAIEmbedding:
    """Return the embedding model of the LlamaIndex examples."""
    from llama_index.embeddings.workers_ai import WorkersAIEmbedding

    return WorkersAIEmbedding(model=EMBED, **settings)
