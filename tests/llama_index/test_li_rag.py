"""Retrieval over real documents, from the files to an answer with its sources."""

from __future__ import annotations

import asyncio
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core import SimpleDirectoryReader, StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import TokenTextSplitter
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.tools import QueryEngineTool
from llama_index.embeddings.workers_ai import WorkersAIEmbedding
from pydantic import BaseModel
from tests.support import wired

from workers_ai_emulator import Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from llama_index.core.schema import BaseNode
    from tests.llama_index.conftest import Script
    from tests.support import Caller

    Make = Callable[..., Any]

pytestmark = [
    # LlamaIndex imports LangChain if it is installed, which warns about a deprecated package.
    pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning"),
    # LlamaIndex reads every attribute of an agent, including those that pydantic deprecates.
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
]

FILES = ["bisect.py", "colorsys.py", "heapq.py", "shlex.py", "textwrap.py"]
"""Modules of the standard library, which every machine has."""
DEDENT = "Which function removes common leading whitespace from every line in text?"


@pytest.fixture(autouse=True)
def _loop() -> Iterator[None]:
    """Provide an event loop and close it: LlamaIndex would create one for estimating tokens and never close it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture(scope="module")
def nodes() -> Sequence[BaseNode]:
    """Return the embedded chunks of the files."""
    home = Path(sysconfig.get_path("stdlib"))
    documents = SimpleDirectoryReader(input_files=[home / name for name in FILES]).load_data()
    model = WorkersAIEmbedding(**wired(Emulator()))
    return IngestionPipeline(transformations=[TokenTextSplitter(chunk_size=256, chunk_overlap=32), model]).run(
        documents=documents
    )


@pytest.fixture
def index(nodes: Sequence[BaseNode], embedding: Make, emulator: Emulator) -> VectorStoreIndex:
    """Return an index of the chunks."""
    index = VectorStoreIndex(list(nodes), embed_model=embedding())
    assert emulator.log.requests == 0  # the chunks had vectors already
    return index


def sources(answer: Any) -> list[str]:
    return [node.metadata["file_name"] for node in answer.source_nodes]


class TestQueryEngine:
    def test_answer_with_sources(
        self, index: VectorStoreIndex, llm: Make, reranker: Make, emulator: Emulator, call: Caller
    ) -> None:
        engine = index.as_query_engine(llm=llm(), similarity_top_k=8, node_postprocessors=[reranker(top_n=2)])
        answer = call(engine, "query", DEDENT)
        assert "Remove any common leading whitespace" in str(answer)
        assert sources(answer) == ["textwrap.py"] * 2
        assert answer.source_nodes[0].score > answer.source_nodes[1].score
        assert [entry.model for entry in emulator.log.entries] == [
            "@cf/baai/bge-m3",
            "@cf/baai/bge-reranker-base",
            "@cf/meta/llama-3.3-70b-instruct-fp8-fast",
        ]
        assert len(emulator.log.entries[1].json["contexts"]) == 8

    def test_only_the_query_has_the_instruction(self, nodes: Any, embedding: Make, emulator: Emulator) -> None:
        model = embedding(query_instruction="Find: ")
        VectorStoreIndex(list(nodes), embed_model=model).as_retriever().retrieve("heaps")
        assert emulator.log.last.json == {"text": ["Find: heaps"]}

    def test_streamed_answer(self, index: VectorStoreIndex, llm: Make, call: Caller) -> None:
        engine = index.as_query_engine(llm=llm(), streaming=True)
        if call.mode == "sync":
            answer = engine.query(DEDENT)
            text = "".join(answer.response_gen)
        else:

            async def ask() -> tuple[Any, str]:
                answer = await engine.aquery(DEDENT)
                return answer, "".join([piece async for piece in answer.async_response_gen()])

            answer, text = asyncio.run(ask())
        assert "leading whitespace" in text
        assert "textwrap.py" in sources(answer)

    def test_null_at_the_end_of_a_streamed_answer(self, index: VectorStoreIndex, llm: Make, script: Script) -> None:
        script.deltas({"content": "dedent"}, {"content": None}, route="chat_completions")
        engine = index.as_query_engine(llm=llm(), streaming=True)
        assert "".join(engine.query(DEDENT).response_gen) == "dedent"

    @pytest.mark.parametrize("mode", [ResponseMode.REFINE, ResponseMode.TREE_SUMMARIZE, ResponseMode.COMPACT])
    def test_response_modes(self, index: VectorStoreIndex, llm: Make, call: Caller, mode: Any) -> None:
        engine = index.as_query_engine(llm=llm(), response_mode=mode, similarity_top_k=3)
        assert "whitespace" in str(call(engine, "query", DEDENT))

    def test_large_context_window_sends_one_request(
        self, index: VectorStoreIndex, llm: Make, emulator: Emulator
    ) -> None:
        requests = []
        for settings in ({}, {"context_window": 1500, "num_output": 256}):
            model = llm(**settings)
            helper = PromptHelper.from_llm_metadata(model.metadata)
            writer = get_response_synthesizer(llm=model, prompt_helper=helper)
            index.as_query_engine(llm=model, similarity_top_k=12, response_synthesizer=writer).query(DEDENT)
            requests.append(emulator.log.routes["chat_completions"])
        assert requests[0] == 1
        assert requests[1] > 3

    def test_structured_answer(self, index: VectorStoreIndex, llm: Make, call: Caller) -> None:
        class Found(BaseModel):
            """A search result."""

            module: str
            summary: str

        engine = index.as_query_engine(llm=llm(), output_cls=Found)
        assert isinstance(call(engine, "query", DEDENT).response, Found)

    def test_stored_index_can_be_loaded(
        self, nodes: Sequence[BaseNode], llm: Make, embedding: Make, tmp_path: Path
    ) -> None:
        VectorStoreIndex(list(nodes[-20:]), embed_model=embedding()).storage_context.persist(tmp_path)
        again = load_index_from_storage(
            StorageContext.from_defaults(persist_dir=str(tmp_path)), embed_model=embedding()
        )
        assert "textwrap.py" in sources(again.as_query_engine(llm=llm()).query(DEDENT))


class TestChatEngine:
    @pytest.mark.parametrize("mode", ["condense_plus_context", "context"])
    def test_history_is_sent(
        self, index: VectorStoreIndex, llm: Make, reranker: Make, emulator: Emulator, call: Caller, mode: str
    ) -> None:
        model = llm()
        engine = index.as_chat_engine(
            chat_mode=mode,
            llm=model,
            memory=ChatMemoryBuffer.from_defaults(llm=model),
            node_postprocessors=[reranker(top_n=2)],
        )
        first = call(engine, "chat", DEDENT)
        assert "leading whitespace" in str(first)
        assert sources(first) == ["textwrap.py"] * 2
        call(engine, "chat", "And which one wraps a paragraph?")
        said = [message["content"] for message in emulator.log.last.json["messages"]]
        assert DEDENT in said
        assert str(first) in said

    def test_streamed_chat(self, index: VectorStoreIndex, llm: Make, call: Caller) -> None:
        model = llm()
        memory = ChatMemoryBuffer.from_defaults(llm=model)
        engine = index.as_chat_engine(chat_mode="context", llm=model, memory=memory)
        if call.mode == "sync":
            text = "".join(engine.stream_chat(DEDENT).response_gen)
        else:

            async def talk() -> str:
                answer = await engine.astream_chat(DEDENT)
                return "".join([piece async for piece in answer.async_response_gen()])

            text = asyncio.run(talk())
        assert "leading whitespace" in text
        assert [message.content for message in engine.chat_history] == [DEDENT, text]


class TestAgent:
    def test_query_engine_tool(self, index: VectorStoreIndex, llm: Make, reranker: Make) -> None:
        model = llm()
        engine = index.as_query_engine(llm=model, similarity_top_k=8, node_postprocessors=[reranker(top_n=2)])
        tool = QueryEngineTool.from_defaults(engine, name="library", description="The functions of Python's library")
        agent = FunctionAgent(llm=model, tools=[tool], initial_tool_choice="library")

        async def ask() -> Any:
            return await agent.run(DEDENT)

        output = asyncio.run(ask())
        (result,) = output.tool_calls
        assert result.tool_name == "library"
        assert sources(result.tool_output.raw_output) == ["textwrap.py"] * 2
        assert "leading whitespace" in str(output)

    def test_reranker_at_capacity_is_retried(
        self, index: VectorStoreIndex, llm: Make, reranker: Make, emulator: Emulator, call: Caller
    ) -> None:
        emulator.faults.add(Fault.busy(model="@cf/baai/bge-reranker-base", times=2))
        engine = index.as_query_engine(llm=llm(), node_postprocessors=[reranker(top_n=1)])
        assert "leading whitespace" in str(call(engine, "query", DEDENT))
        assert emulator.log.rejected == 2
