"""Standard tests of a LlamaIndex LLM and of a LlamaIndex embedding model, in the manner of ``langchain-tests``.

Subclass, give the fixture, and say with the flags what the model can do::

    class TestMine(LLMStandardTests):
        @pytest.fixture
        def model(self):
            return MyLLM(api_key=self.secret)

They need llama-index-core and pytest alone, and no network if the model needs none.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from typing import Any, ClassVar

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, ToolCallBlock
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.rate_limiter import BaseRateLimiter
from llama_index.core.schema import TextNode
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel

USER = [ChatMessage(role="user", content="Hello")]


class CountingLimiter(BaseRateLimiter):
    """A rate limiter that lets everything through and counts."""

    def __init__(self) -> None:
        self.acquired = 0

    def acquire(self, num_tokens: int = 0) -> None:
        self.acquired += 1

    async def async_acquire(self, num_tokens: int = 0) -> None:
        self.acquired += 1


def _run(model: Any, method: str, mode: str, *args: Any, **kwargs: Any) -> Any:
    """A method or its async twin; streams as lists."""
    if mode == "sync":
        result = getattr(model, method)(*args, **kwargs)
        return list(result) if inspect.isgenerator(result) else result

    async def run() -> Any:
        result = await getattr(model, f"a{method}")(*args, **kwargs)
        return [item async for item in result] if inspect.isasyncgen(result) else result

    return asyncio.run(run())


class _StandardTests:
    secret: ClassVar[str]
    """What may never be seen: the key the model was made with."""

    @pytest.fixture
    def model(self) -> Any:
        """The model under test."""
        raise NotImplementedError

    @pytest.fixture(params=["sync", "async"])
    def mode(self, request: pytest.FixtureRequest) -> str:
        return request.param

    def test_secret_is_nowhere(self, model: Any) -> None:
        for shown in (repr(model), str(model), str(model.to_dict()), model.to_json(), str(model.to_payload())):
            assert self.secret not in shown

    def test_copies_and_pickles_leave_the_model_whole(self, model: Any) -> None:
        model.rate_limiter = limiter = CountingLimiter()
        before = set(model.__dict__)
        twins = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model), model.model_copy()]
        assert model.rate_limiter is limiter
        assert set(model.__dict__) >= before
        assert all(twin.to_dict() == model.to_dict() for twin in twins)

    def test_class_name_is_its_own(self, model: Any) -> None:
        assert model.to_dict()["class_name"] == type(model).class_name() == type(model).__name__


class LLMStandardTests(_StandardTests):
    """Standard tests of an LLM."""

    calls_tools: ClassVar[bool] = True
    tool_prompt: ClassVar[str] = "What is the weather in Paris?"
    """A prompt that makes the model call ``weather`` where it must."""
    person_prompt: ClassVar[str] = "Ann is 41 years old."

    @pytest.fixture
    def tool(self) -> FunctionTool:
        def weather(city: str) -> str:
            """Weather of a city."""
            return f"sunny in {city}"

        return FunctionTool.from_defaults(weather)

    def test_is_an_llm(self, model: Any) -> None:
        assert isinstance(model, FunctionCallingLLM) == self.calls_tools
        assert model.metadata.is_function_calling_model == self.calls_tools
        assert model.metadata.context_window > model.metadata.num_output > 0
        assert model.metadata.model_name != "unknown"

    def test_chat(self, model: Any, mode: str) -> None:
        response = _run(model, "chat", mode, USER)
        assert isinstance(response, ChatResponse)
        assert response.message.role == "assistant"
        assert response.message.content

    def test_complete(self, model: Any, mode: str) -> None:
        response = _run(model, "complete", mode, "Hello")
        assert isinstance(response, CompletionResponse)
        assert response.text

    def test_streams_are_generators(self, model: Any) -> None:
        assert inspect.isgenerator(model.stream_chat(USER))
        assert inspect.isgenerator(model.stream_complete("Hello"))

    def test_stream_chat_accumulates(self, model: Any, mode: str) -> None:
        responses = _run(model, "stream_chat", mode, USER)
        assert len(responses) > 1
        text = ""
        for response in responses:
            assert isinstance(response.delta, str)
            text += response.delta
            assert (response.message.content or "") == text
        assert text

    def test_stream_complete_accumulates(self, model: Any, mode: str) -> None:
        responses = _run(model, "stream_complete", mode, "Hello")
        text = ""
        for response in responses:
            assert isinstance(response.delta, str)
            text += response.delta
            assert response.text == text
        assert text

    @pytest.mark.parametrize(
        ("method", "given"),
        [("chat", USER), ("stream_chat", USER), ("complete", "Hello"), ("stream_complete", "Hello")],
    )
    def test_one_call_is_counted_once(self, model: Any, mode: str, method: str, given: Any) -> None:
        counter = TokenCountingHandler(tokenizer=lambda text: pytest.fail("an estimate where the service has told"))
        model.callback_manager = CallbackManager([counter])
        model.rate_limiter = CountingLimiter()
        _run(model, method, mode, given)
        assert model.rate_limiter.acquired == 1
        (event,) = counter.llm_token_counts
        assert event.prompt_token_count > 0
        assert event.completion_token_count > 0

    def test_second_event_loop(self, model: Any) -> None:
        assert _run(model, "chat", "async", USER).message.content == _run(model, "chat", "async", USER).message.content

    def test_history_is_not_changed(self, model: Any, mode: str, tool: FunctionTool) -> None:
        if not self.calls_tools:
            pytest.skip("calls no tools")
        history = list(USER)
        _run(model, "chat_with_tools", mode, [tool], user_msg=self.tool_prompt, chat_history=history)
        assert history == USER

    def test_required_tool_is_called(self, model: Any, mode: str, tool: FunctionTool) -> None:
        if not self.calls_tools:
            pytest.skip("calls no tools")
        response = _run(model, "chat_with_tools", mode, [tool], user_msg=self.tool_prompt, tool_required=True)
        (selection,) = model.get_tool_calls_from_response(response)
        assert (selection.tool_name, selection.tool_kwargs) == ("weather", {"city": "Paris"})
        assert selection.tool_id

    def test_streamed_calls_are_in_blocks_and_kwargs(self, model: Any, mode: str, tool: FunctionTool) -> None:
        if not self.calls_tools:
            pytest.skip("calls no tools")
        responses = _run(model, "stream_chat_with_tools", mode, [tool], user_msg=self.tool_prompt, tool_required=True)
        for response in responses:
            blocks = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
            assert len(response.message.additional_kwargs.get("tool_calls", [])) == len(blocks)
            assert len(model.get_tool_calls_from_response(response, error_on_no_tool_call=False)) == len(blocks)
        (selection,) = model.get_tool_calls_from_response(responses[-1])
        assert selection.tool_kwargs == {"city": "Paris"}

    def test_no_call_is_an_error_only_where_asked(self, model: Any) -> None:
        if not self.calls_tools:
            pytest.skip("calls no tools")
        response = model.chat(USER)
        assert model.get_tool_calls_from_response(response, error_on_no_tool_call=False) == []
        with pytest.raises(ValueError, match="tool call"):
            model.get_tool_calls_from_response(response)

    def test_predict_and_call(self, model: Any, mode: str, tool: FunctionTool) -> None:
        if not self.calls_tools:
            pytest.skip("calls no tools")
        answer = _run(model, "predict_and_call", mode, [tool], user_msg=self.tool_prompt, tool_required=True)
        assert answer.response == "sunny in Paris"

    def test_structured_predict(self, model: Any, mode: str) -> None:
        person = _run(model, "structured_predict", mode, Person, PromptTemplate("{text}"), text=self.person_prompt)
        assert person == Person(name="Ann", age=41)

    def test_stream_structured_predict_ends_complete(self, model: Any, mode: str) -> None:
        people = _run(
            model, "stream_structured_predict", mode, Person, PromptTemplate("{text}"), text=self.person_prompt
        )
        assert people[-1] == Person(name="Ann", age=41)


class Person(BaseModel):
    """A person."""

    name: str
    age: int


class EmbeddingStandardTests(_StandardTests):
    """Standard tests of an embedding model."""

    dimensions: ClassVar[int]

    def test_is_an_embedding_model(self, model: Any) -> None:
        assert isinstance(model, BaseEmbedding)
        assert model.model_name != "unknown"

    @pytest.mark.parametrize("method", ["get_query_embedding", "get_text_embedding"])
    def test_one(self, model: Any, mode: str, method: str) -> None:
        vector = _embed(model, method, mode, "a text")
        assert len(vector) == self.dimensions
        assert all(isinstance(value, float) for value in vector)

    def test_batch_keeps_order_and_count(self, model: Any, mode: str) -> None:
        texts = [f"text number {index}" for index in range(7)]
        vectors = _embed(model, "get_text_embedding_batch", mode, texts)
        assert vectors == [model.get_text_embedding(text) for text in texts]

    def test_repeated_texts_do_not_share_a_list(self, model: Any, mode: str) -> None:
        first, second = _embed(model, "get_text_embedding_batch", mode, ["same", "same"])
        assert first == second
        assert first is not second

    def test_nothing_gives_nothing(self, model: Any, mode: str) -> None:
        assert _embed(model, "get_text_embedding_batch", mode, []) == []

    def test_nodes_get_their_vectors(self, model: Any, mode: str) -> None:
        nodes = [TextNode(text=f"node {index}") for index in range(3)]
        if mode == "sync":
            model(nodes)
        else:
            asyncio.run(model.acall(nodes))
        assert [node.embedding for node in nodes] == [model.get_text_embedding(node.text) for node in nodes]

    def test_second_event_loop(self, model: Any) -> None:
        once = _embed(model, "get_text_embedding", "async", "a text")
        assert once == _embed(model, "get_text_embedding", "async", "a text")


def _embed(model: Any, method: str, mode: str, *args: Any) -> Any:
    return _run(model, method, mode, *args) if mode == "sync" else asyncio.run(getattr(model, f"a{method}")(*args))
