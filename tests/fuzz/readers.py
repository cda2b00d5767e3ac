"""Pass one reply to every reader: core, LangChain and LlamaIndex, whole and streamed, sync and async.

A reader returns an answer or raises a typed error, in bounded time. The turn that it read can be sent again as strict
JSON.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from functools import reduce
from operator import add
from typing import Any, Final

import httpx
from langchain_core.documents import Document
from langchain_core.exceptions import ModelRefusalError, OutputParserException
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.workers_ai import WorkersAIEmbedding
from llama_index.llms.workers_ai import WorkersAI
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank as LlamaRerank
from pydantic import BaseModel
from tests.fuzz.replies import MODELS, Reply
from tests.fuzz.strict_json import parse_strict

from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings, WorkersAIRerank
from workers_ai import AsyncClient, Client, RetryPolicy
from workers_ai.errors import WorkersAIError

__all__ = ["READERS", "Readers"]

ACCOUNT: Final = {"account_id": "a" * 32, "api_token": "token-of-the-tests"}
EMBEDDING: Final = "@cf/baai/bge-m3"
HI: Final = [{"role": "user", "content": "hi"}]
LONGEST_S: Final = 5.0


class City(BaseModel):
    """A city."""

    city: str = "nowhere"


@tool
def clock(city: str = "nowhere") -> str:
    """Tell the time in a city."""
    return city


class Readers:
    """All readers, on one transport that answers with :attr:`reply`."""

    def __init__(self) -> None:
        self.reply = Reply(200, {}, b"")
        self.plain = False
        transport = httpx.MockTransport(self._answer)
        sync, asynchronous = httpx.Client(transport=transport), httpx.AsyncClient(transport=transport)
        own: Any = {"http_client": sync, "http_async_client": asynchronous, "max_retries": 0, **ACCOUNT}
        retry = RetryPolicy(max_retries=0)
        self.client = Client(http_client=sync, retry=retry, **ACCOUNT)
        self.aclient = AsyncClient(http_async_client=asynchronous, retry=retry, **ACCOUNT)
        self.chat = [ChatWorkersAI(model=model, **own) for model in MODELS]
        self.llm = [WorkersAI(model=model, **own) for model in MODELS]
        self.tools = [FunctionTool.from_defaults(lambda city="nowhere": city, name="clock", description="Time.")]
        self.embeddings = [WorkersAIEmbeddings(model=EMBEDDING, normalize=normal, **own) for normal in (False, True)]
        self.embedding = WorkersAIEmbedding(model=EMBEDDING, **own)
        self.reranker = WorkersAIRerank(top_n=None, **own)
        self.postprocessor = LlamaRerank(top_n=None, **own)
        self.runner = asyncio.Runner()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        parse_strict(request.content)
        if self.plain:
            return httpx.Response(200, json={"response": "ok"})
        return httpx.Response(self.reply.status, headers=self.reply.headers, content=self.reply.body)

    def put(self, reply: Reply, number: int) -> None:
        """Pass a reply to the reader of this number; to all of them for a negative number.

        Raises:
            AssertionError: A reader raised an untyped exception, took too long, or raised an
                InternalServerError that is not retryable. The message names the reader.
        """
        self.reply = reply
        for name in READERS if number < 0 else [READERS[number % len(READERS)]]:
            self.plain = False
            began = time.process_time()
            try:
                getattr(self, name)(number)
            except (OutputParserException, ModelRefusalError):
                pass
            except WorkersAIError as exc:
                if type(exc).__name__ == "InternalServerError" and not exc.is_retryable:
                    raise AssertionError(f"{name} raised an InternalServerError that is not retryable") from exc
            except Exception as exc:
                raise AssertionError(f"{name} raised {type(exc).__name__}: {exc!s:.300}") from exc
            assert time.process_time() - began < LONGEST_S, f"{name} took too long"

    def core(self, number: int) -> None:
        for api in ("run", "chat_completions", "responses"):
            for call in (self.client.chat, lambda *args, **options: list(self.client.stream_chat(*args, **options))):
                try:
                    call(MODELS[number % 3], HI, api=api, max_tokens=13)
                except WorkersAIError:
                    continue

    def core_async(self, number: int) -> None:
        async def both() -> None:
            with suppress(WorkersAIError):
                await self.aclient.chat(MODELS[number % 3], HI)
            async for _ in self.aclient.stream_chat(MODELS[number % 3], HI):
                pass

        self.runner.run(both())

    def langchain_whole(self, number: int) -> None:
        self._again(self.chat[number % 3].bind_tools([clock]).invoke("hi"), number)

    def langchain_stream(self, number: int) -> None:
        self._again(reduce(add, self.chat[number % 3].bind_tools([clock]).stream("hi")), number)

    def langchain_async(self, number: int) -> None:
        async def stream() -> Any:
            return [chunk async for chunk in self.chat[number % 3].bind_tools([clock]).astream("hi")]

        self._again(reduce(add, self.runner.run(stream())), number)

    def _again(self, message: Any, number: int) -> None:
        """Send a turn again, with a result of each call."""
        assert isinstance(message, AIMessage)
        self.plain = True
        calls = [*message.tool_calls, *message.invalid_tool_calls]
        results = [ToolMessage("ok", tool_call_id=call["id"] or "") for call in calls]
        self.chat[number % 3].invoke([HumanMessage("hi"), message, *results])

    def langchain_structured(self, number: int) -> None:
        method: Any = ("function_calling", "json_mode", "json_schema")[number // len(READERS) % 3]
        for schema in (City, City.model_json_schema()):
            structured = self.chat[number % 3].with_structured_output(schema, method=method, include_raw=True)
            for result in (structured.invoke("hi"), reduce(add, structured.stream("hi"))):
                assert (result["parsed"] is None) == (result["parsing_error"] is not None)
            list(self.chat[number % 3].with_structured_output(schema, method=method).stream("hi"))

    def llama_index_whole(self, number: int) -> None:
        llm = self.llm[number % 3]
        response = llm.chat_with_tools(self.tools, "hi")
        self._again_llama(response.message, number)
        llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)

    def llama_index_stream(self, number: int) -> None:
        llm = self.llm[number % 3]
        responses = []
        for response in llm.stream_chat_with_tools(self.tools, "hi"):
            responses.append(response)
            llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
        self._again_llama(responses[-1].message, number)

    def llama_index_structured(self, number: int) -> None:
        llm = self.llm[number % 3]
        list(llm.stream_structured_predict(City, PromptTemplate("hi")))
        llm.structured_predict(City, PromptTemplate("hi"))

    def langchain_vectors(self, number: int) -> None:
        for embeddings in self.embeddings:
            _check_vectors(embeddings.embed_documents(["a", "b"]), 2)
            _check_vectors([embeddings.embed_query("a")], 1)

    def llama_index_vectors(self, number: int) -> None:
        _check_vectors(self.embedding.get_text_embedding_batch(["a", "b"]), 2)
        _check_vectors(self.runner.run(self.embedding.aget_text_embedding_batch(["a", "b"])), 2)

    def scores(self, number: int) -> None:
        best = self.reranker.compress_documents([Document("a"), Document("b")], "q")
        assert sorted(document.page_content for document in best) == ["a", "b"]
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in ("a", "b")]
        ranked = self.postprocessor.postprocess_nodes(nodes, query_str="q")
        assert sorted(node.node.get_content() for node in ranked) == ["a", "b"]
        scores = [document.metadata["relevance_score"] for document in best] + [node.score for node in ranked]
        assert all(type(score) is float and math.isfinite(score) for score in scores)

    def _again_llama(self, message: ChatMessage, number: int) -> None:
        self.plain = True
        self.llm[number % 3].chat([ChatMessage("hi"), message, ChatMessage("go on")])


def _check_vectors(vectors: list[list[float]], count: int) -> None:
    """Check that there is a usable vector for each text.

    A truth value among floats counts as a number: to find it would take 20 times as long as the other checks.
    """
    assert len(vectors) == count
    for vector in vectors:
        assert len(vector) == len(vectors[0]) > 0
        assert any(vector)
        assert all(isinstance(value, (int, float)) and math.isfinite(value) for value in vector)


READERS: Final[tuple[str, ...]] = (
    "core", "core_async", "langchain_whole", "langchain_stream", "langchain_async", "langchain_structured",
    "llama_index_whole", "llama_index_stream", "llama_index_structured", "langchain_vectors", "llama_index_vectors",
    "scores",
)  # fmt: skip
