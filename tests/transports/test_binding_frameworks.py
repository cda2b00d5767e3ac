"""LangChain and LlamaIndex inside a Python Worker: every class with a substitute for ``env.AI``."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.exceptions import ModelRateLimitError
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import Document as Node
from llama_index.core import VectorStoreIndex
from llama_index.core.llms import ChatMessage
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.workers_ai import WorkersAIEmbedding
from llama_index.llms.workers_ai import WorkersAI
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank as WorkersAINodeRerank
from pydantic import BaseModel

from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings, WorkersAIRerank
from workers_ai import errors
from workers_ai_emulator import Fault

LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
QWEN = "@cf/qwen/qwen3-30b-a3b-fp8"
BGE = "@cf/baai/bge-base-en-v1.5"
DOCS = ["A llama grazes.", "The orange cloud serves models.", "An emoji hugs."]


class City(BaseModel):
    """A city."""

    name: str
    inhabitants: int


@tool
def population(city: str) -> int:
    """Number of inhabitants of a city."""
    return 717_710 + len(city)


@pytest.mark.parametrize("model", [LLAMA, QWEN])
async def test_langchain_chat(env_ai: Any, model: str) -> None:
    chat = ChatWorkersAI(model=model, binding=env_ai, session_id="s", temperature=0.5)
    whole = await chat.ainvoke("Hello")
    pieces = [piece async for piece in chat.astream("Hello")]
    joined = pieces[0]
    for piece in pieces[1:]:
        joined += piece
    assert whole.content
    assert joined.content == whole.content
    assert len(pieces) > 2
    assert joined.usage_metadata == whole.usage_metadata
    messages = [{"role": "user", "content": "Hello"}]
    affinity = {"extraHeaders": {"x-session-affinity": "s"}}
    assert env_ai.calls == [
        (model, {"messages": messages, "temperature": 0.5}, affinity),
        (model, {"messages": messages, "temperature": 0.5, "stream": True}, affinity),
    ]


async def test_langchain_structured_output(env_ai: Any) -> None:
    chat = ChatWorkersAI(model=LLAMA, binding=env_ai)
    for method in ("function_calling", "json_schema"):
        city = await chat.with_structured_output(City, method=method).ainvoke("Oslo")
        assert isinstance(city, City)
    assert "tools" in env_ai.calls[0][1]
    assert "response_format" in env_ai.calls[1][1]


async def test_a_langchain_agent(env_ai: Any) -> None:
    agent = create_agent(ChatWorkersAI(model=LLAMA, binding=env_ai), tools=[population])
    state = await agent.ainvoke(
        {"messages": [("user", "Use the tool population: what is the population of the city Oslo?")]},
        {"configurable": {"thread_id": "t-1"}},
    )
    kinds = [message.type for message in state["messages"]]
    assert kinds == ["human", "ai", "tool", "ai"]
    assert state["messages"][2].name == "population"
    assert len(env_ai.calls) == 2
    assert [row["role"] for row in env_ai.calls[1][1]["messages"]] == ["user", "assistant", "tool"]


async def test_langchain_embeddings_and_reranking(env_ai: Any) -> None:
    embeddings = WorkersAIEmbeddings(model=BGE, binding=env_ai)
    store = InMemoryVectorStore(embeddings)
    await store.aadd_documents([Document(text) for text in DOCS])
    found = await store.asimilarity_search("orange cloud", k=2)
    assert found[0].page_content == DOCS[1]
    ranked = await WorkersAIRerank(binding=env_ai, top_n=1).acompress_documents(found, "orange cloud")
    assert [document.page_content for document in ranked] == [DOCS[1]]
    assert ranked[0].metadata["relevance_score"] > 0


async def test_langchain_documents_through_the_queue(env_ai: Any, emulator: Any) -> None:
    emulator.queue.settings.progress = "at_once"
    embeddings = WorkersAIEmbeddings(model=BGE, binding=env_ai, queue="always")
    vectors = await embeddings.aembed_documents(DOCS)
    assert env_ai.calls[0][2] == {"queueRequest": True}
    assert vectors[1] == await embeddings.aembed_query(DOCS[1])


async def test_llama_index_chat(env_ai: Any) -> None:
    llm = WorkersAI(model=LLAMA, binding=env_ai)
    messages = [ChatMessage("Hello")]
    whole = await llm.achat(messages)
    pieces = [piece async for piece in await llm.astream_chat(messages)]
    assert pieces[-1].message.content == whole.message.content
    assert len(pieces) > 2
    assert (await llm.acomplete("Hello")).text == whole.message.content
    assert env_ai.calls[1][1]["stream"] is True


async def test_llama_index_structured_output(env_ai: Any) -> None:
    llm = WorkersAI(model=LLAMA, binding=env_ai)
    reply = await llm.as_structured_llm(City).achat([ChatMessage("Oslo")])
    assert isinstance(reply.raw, City)


async def test_llama_index_embeddings_and_reranking(env_ai: Any) -> None:
    embedding = WorkersAIEmbedding(model=BGE, binding=env_ai)
    vectors = await embedding.aget_text_embedding_batch(DOCS)
    assert vectors[2] == await embedding.aget_text_embedding(DOCS[2])
    nodes = [NodeWithScore(node=TextNode(text=text)) for text in DOCS]
    ranked = await WorkersAINodeRerank(binding=env_ai, top_n=1).apostprocess_nodes(nodes, query_str="orange cloud")
    assert [node.text for node in ranked] == [DOCS[1]]


@pytest.mark.filterwarnings("ignore:.langchain-community. is being sunset:DeprecationWarning")
async def test_a_llama_index_query_engine(env_ai: Any) -> None:
    embedding = WorkersAIEmbedding(model=BGE, binding=env_ai)
    index = VectorStoreIndex([], embed_model=embedding, use_async=True)
    await index.ainsert_nodes([TextNode(text=text) for text in DOCS])
    engine = index.as_query_engine(llm=WorkersAI(model=LLAMA, binding=env_ai), similarity_top_k=1)
    answer = await engine.aquery("What does the orange cloud do?")
    assert [source.text for source in answer.source_nodes] == [DOCS[1]]
    assert str(answer)


MAKERS: dict[str, Callable[[Any], Any]] = {
    "ChatWorkersAI": lambda binding: ChatWorkersAI(model=LLAMA, binding=binding),
    "WorkersAIEmbeddings": lambda binding: WorkersAIEmbeddings(model=BGE, binding=binding),
    "WorkersAIRerank": lambda binding: WorkersAIRerank(binding=binding),
    "WorkersAI": lambda binding: WorkersAI(model=LLAMA, binding=binding),
    "WorkersAIEmbedding": lambda binding: WorkersAIEmbedding(model=BGE, binding=binding),
    "llama_index WorkersAIRerank": lambda binding: WorkersAINodeRerank(binding=binding),
}
BLOCKING: dict[str, Callable[[Any], Any]] = {
    "ChatWorkersAI": lambda it: it.invoke("Hello"),
    "WorkersAIEmbeddings": lambda it: it.embed_documents(["a"]),
    "WorkersAIRerank": lambda it: it.compress_documents([Document("a")], "b"),
    "WorkersAI": lambda it: it.complete("Hello"),
    "WorkersAIEmbedding": lambda it: it.get_text_embedding("a"),
    "llama_index WorkersAIRerank": lambda it: it.postprocess_nodes([NodeWithScore(node=Node(text="a"))], None, "b"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_error_of_a_blocking_call_suggests_the_async_form(env_ai: Any, name: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="no blocking calls"):
        BLOCKING[name](MAKERS[name](env_ai))
    assert env_ai.calls == []


@pytest.mark.parametrize("name", MAKERS)
def test_a_binding_is_in_no_repr_and_no_pickle(env_ai: Any, name: str) -> None:
    thing = MAKERS[name](env_ai)
    assert "FakeAI" not in repr(thing)
    restored = pickle.loads(pickle.dumps(thing))
    with pytest.raises(errors.ConfigurationError, match="set binding= again"):
        _ = restored.async_client
    restored.binding = env_ai
    assert restored.async_client.settings._through_binding


@pytest.mark.parametrize("name", ["ChatWorkersAI", "WorkersAI"])
async def test_errors_are_those_of_the_framework(env_ai: Any, emulator: Any, name: str) -> None:
    emulator.faults.add(Fault.busy(times=None))
    thing = MAKERS[name](env_ai).model_copy(update={"on_busy": "raise"})
    with pytest.raises(errors.CapacityError) as caught:
        await (thing.ainvoke("Hello") if name == "ChatWorkersAI" else thing.acomplete("Hello"))
    assert isinstance(caught.value, ModelRateLimitError) == (name == "ChatWorkersAI")
    assert env_ai.calls[0][2] == {"rejectIfBusy": True}
