"""Standard tests of LlamaIndex models, similar to ``langchain-tests``: an LLM, an embedding model, a reranker.

They check what LlamaIndex's code expects of an integration, documented or not. For your own
package, put this file beside your tests, subclass a class, define the fixture ``model``, and describe the model
with the class attributes::

    from standard import LLMStandardTests


    class TestMine(LLMStandardTests):
        secret = "key-of-the-tests"
        reports_usage = False

        @pytest.fixture
        def model(self):
            return MyLLM(api_key=self.secret)

A test with an async form runs twice. The tests need only ``llama-index-core`` and ``pytest``, and no network if the
model needs none, for example with a local server or a recording. ``model`` is created for every test. A
skipped test reports the attribute that disabled it.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from typing import Any, ClassVar

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, ToolCallBlock
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.rate_limiter import BaseRateLimiter
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel

__all__ = ["CountingLimiter", "EmbeddingStandardTests", "LLMStandardTests", "RerankerStandardTests"]

USER = [ChatMessage(role="user", content="Hello")]


class CountingLimiter(BaseRateLimiter):
    """A rate limiter that permits and counts all requests."""

    def __init__(self) -> None:
        self.acquired = 0

    def acquire(self, num_tokens: int = 0) -> None:
        """Count one request."""
        self.acquired += 1

    async def async_acquire(self, num_tokens: int = 0) -> None:
        """Count one request."""
        self.acquired += 1


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def _run(model: Any, method: str, mode: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method, or its async form in a new event loop. Return streams as lists."""
    if mode == "sync":
        result = getattr(model, method)(*args, **kwargs)
        return list(result) if inspect.isgenerator(result) else result

    async def run() -> Any:
        result = await getattr(model, f"a{method}")(*args, **kwargs)
        return [item async for item in result] if inspect.isasyncgen(result) else result

    return asyncio.run(run())


class _StandardTests:
    """Tests for every component.

    Attributes:
        secret: The key of the model, which must be visible nowhere.
        pickles: Whether the model can be pickled, as ``IngestionPipeline.run(num_workers=2)`` requires.
    """

    secret: ClassVar[str]
    pickles: ClassVar[bool] = True

    @pytest.fixture
    def model(self) -> Any:
        """Return the model under test. Override this fixture."""
        raise NotImplementedError

    @pytest.fixture(params=["sync", "async"])
    def mode(self, request: pytest.FixtureRequest) -> str:
        """Run a test for the sync and the async form of a method."""
        return request.param

    def test_secret_is_nowhere(self, model: Any) -> None:
        shown = [repr(model), str(model), str(model.to_dict()), model.to_json(), str(model.model_dump())]
        if hasattr(model, "to_payload"):
            shown.append(str(model.to_payload()))
        assert not [text for text in shown if self.secret in text]

    def test_copies_are_equal_and_do_not_change_the_model(self, model: Any) -> None:
        model.callback_manager = manager = CallbackManager([])
        before = set(model.__dict__)
        twins = [copy.deepcopy(model), model.model_copy()]
        if self.pickles:
            twins.append(pickle.loads(pickle.dumps(model)))
        assert model.callback_manager is manager
        assert set(model.__dict__) >= before
        assert all(twin.to_dict() == model.to_dict() for twin in twins)

    def test_class_name_is_its_own(self, model: Any) -> None:
        assert model.to_dict()["class_name"] == type(model).class_name() == type(model).__name__


class LLMStandardTests(_StandardTests):
    """Standard tests of an LLM.

    Attributes:
        calls_tools: Whether the model calls tools. If not, the tests of tools are skipped.
        reports_usage: Whether replies report their number of tokens.
        tool_prompt: Prompt for which the model calls ``weather`` for Paris if it must call a tool.
        person_prompt: Prompt for which the object is ``Person(name="Ann", age=41)``.
    """

    calls_tools: ClassVar[bool] = True
    reports_usage: ClassVar[bool] = True
    tool_prompt: ClassVar[str] = "What is the weather in Paris?"
    person_prompt: ClassVar[str] = "Ann is 41 years old."

    @pytest.fixture
    def tool(self) -> FunctionTool:
        """Return a tool, for models that call tools."""
        if not self.calls_tools:
            pytest.skip("calls_tools is False")

        def weather(city: str) -> str:
            """Weather of a city."""
            return f"sunny in {city}"

        return FunctionTool.from_defaults(weather)

    def test_is_an_llm(self, model: Any) -> None:
        assert isinstance(model, FunctionCallingLLM) or not self.calls_tools
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
        # LlamaIndex's decorators check the type. For other iterators they report the end at once.
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
        def estimate(text: str) -> list[str]:
            assert not self.reports_usage, "LlamaIndex has to estimate what the service has told"
            return text.split()

        counter = TokenCountingHandler(tokenizer=estimate)
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
        history = list(USER)
        _run(model, "chat_with_tools", mode, [tool], user_msg=self.tool_prompt, chat_history=history)
        assert history == USER

    def test_required_tool_is_called(self, model: Any, mode: str, tool: FunctionTool) -> None:
        response = _run(model, "chat_with_tools", mode, [tool], user_msg=self.tool_prompt, tool_required=True)
        (selection,) = model.get_tool_calls_from_response(response)
        assert (selection.tool_name, selection.tool_kwargs) == ("weather", {"city": "Paris"})
        assert selection.tool_id

    def test_the_turn_after_a_tool_call(self, model: Any, mode: str, tool: FunctionTool) -> None:
        history = [ChatMessage(role="user", content=self.tool_prompt)]
        asked = _run(model, "chat_with_tools", mode, [tool], chat_history=history, tool_required=True)
        (selection,) = model.get_tool_calls_from_response(asked)
        told = ChatMessage(role="tool", content="sunny in Paris", additional_kwargs={"tool_call_id": selection.tool_id})
        answer = _run(model, "chat_with_tools", mode, [tool], chat_history=[*history, asked.message, told])
        assert answer.message.content
        assert model.get_tool_calls_from_response(answer, error_on_no_tool_call=False) == []

    def test_streamed_calls_are_in_blocks_and_kwargs(self, model: Any, mode: str, tool: FunctionTool) -> None:
        # Structured streams check the key in additional_kwargs before they read the calls.
        responses = _run(model, "stream_chat_with_tools", mode, [tool], user_msg=self.tool_prompt, tool_required=True)
        for response in responses:
            blocks = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
            assert len(response.message.additional_kwargs.get("tool_calls", [])) == len(blocks)
            assert len(model.get_tool_calls_from_response(response, error_on_no_tool_call=False)) == len(blocks)
        (selection,) = model.get_tool_calls_from_response(responses[-1])
        assert selection.tool_kwargs == {"city": "Paris"}

    def test_a_missing_call_is_an_error_only_if_required(self, model: Any, tool: FunctionTool) -> None:
        response = model.chat(USER)
        assert model.get_tool_calls_from_response(response, error_on_no_tool_call=False) == []
        with pytest.raises(ValueError, match="tool call"):
            model.get_tool_calls_from_response(response)

    def test_predict_and_call(self, model: Any, mode: str, tool: FunctionTool) -> None:
        answer = _run(model, "predict_and_call", mode, [tool], user_msg=self.tool_prompt, tool_required=True)
        assert answer.response == "sunny in Paris"

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # LlamaIndex's agents use deprecated methods
    @pytest.mark.parametrize("streaming", [True, False])
    def test_agent_runs_to_the_end(self, model: Any, tool: FunctionTool, streaming: bool) -> None:
        agent = FunctionAgent(llm=model, tools=[tool], streaming=streaming, initial_tool_choice="weather")

        async def ask() -> Any:
            return await agent.run(self.tool_prompt)

        output = asyncio.run(ask())
        assert [str(result.tool_output) for result in output.tool_calls] == ["sunny in Paris"]
        assert str(output)

    def test_structured_predict(self, model: Any, mode: str) -> None:
        person = _run(model, "structured_predict", mode, Person, PromptTemplate("{text}"), text=self.person_prompt)
        assert person == Person(name="Ann", age=41)

    def test_stream_structured_predict_ends_complete(self, model: Any, mode: str) -> None:
        people = _run(
            model, "stream_structured_predict", mode, Person, PromptTemplate("{text}"), text=self.person_prompt
        )
        assert people[-1] == Person(name="Ann", age=41)


class EmbeddingStandardTests(_StandardTests):
    """Standard tests of an embedding model.

    Attributes:
        dimensions: Length of a vector.
    """

    dimensions: ClassVar[int]

    def test_is_an_embedding_model(self, model: Any) -> None:
        assert isinstance(model, BaseEmbedding)
        assert model.model_name != "unknown"

    @pytest.mark.parametrize("method", ["get_query_embedding", "get_text_embedding"])
    def test_one_text(self, model: Any, mode: str, method: str) -> None:
        vector = _run(model, method, mode, "a text")
        assert len(vector) == self.dimensions
        assert all(isinstance(value, float) for value in vector)

    def test_batch_keeps_order_and_count(self, model: Any, mode: str) -> None:
        texts = [f"text number {index}" for index in range(7)]
        vectors = _run(model, "get_text_embedding_batch", mode, texts)
        assert vectors == [model.get_text_embedding(text) for text in texts]

    def test_repeated_texts_do_not_share_a_list(self, model: Any, mode: str) -> None:
        first, second = _run(model, "get_text_embedding_batch", mode, ["same", "same"])
        assert first == second
        assert first is not second

    def test_empty_input_returns_empty_output(self, model: Any, mode: str) -> None:
        assert _run(model, "get_text_embedding_batch", mode, []) == []

    def test_each_node_has_its_vector(self, model: Any, mode: str) -> None:
        nodes = [TextNode(text=f"node {index}") for index in range(3)]
        found = model(nodes) if mode == "sync" else asyncio.run(model.acall(nodes))
        assert [node.embedding for node in found] == [model.get_text_embedding(node.text) for node in nodes]

    def test_the_rate_limiter_is_used_and_kept_in_copies(self, model: Any, mode: str) -> None:
        model.rate_limiter = limiter = CountingLimiter()
        if self.pickles:
            pickle.dumps(model)
        _run(model, "get_text_embedding_batch", mode, ["one", "two"])
        _run(model, "get_query_embedding", mode, "three")
        assert limiter.acquired >= 2

    def test_second_event_loop(self, model: Any) -> None:
        once = _run(model, "get_text_embedding", "async", "a text")
        assert once == _run(model, "get_text_embedding", "async", "a text")


class RerankerStandardTests(_StandardTests):
    """Standard tests of a reranker that returns at least two nodes.

    Attributes:
        query: A query.
        best: The text that answers it.
        others: Texts that do not answer it.
    """

    query: ClassVar[str] = "When does the ferry to Moss leave?"
    best: ClassVar[str] = "The ferry to Moss leaves at 14:02."
    others: ClassVar[tuple[str, ...]] = ("The museum is closed on Mondays.", "A cafe serves cakes.")

    @pytest.fixture
    def nodes(self) -> list[NodeWithScore]:
        """Return nodes as a retriever returns them, the best one last."""
        return [NodeWithScore(node=TextNode(text=text), score=0.5) for text in (*self.others, self.best)]

    def test_is_a_node_postprocessor(self, model: Any) -> None:
        assert isinstance(model, BaseNodePostprocessor)

    def test_the_best_is_first(self, model: Any, mode: str, nodes: list[NodeWithScore]) -> None:
        found = _run(model, "postprocess_nodes", mode, nodes, query_str=self.query)
        assert found[0].node.get_content() == self.best
        assert found[0].score > found[1].score

    def test_input_nodes_are_not_changed(self, model: Any, mode: str, nodes: list[NodeWithScore]) -> None:
        _run(model, "postprocess_nodes", mode, nodes, query_str=self.query)
        assert [(node.node.get_content(), node.score) for node in nodes] == [
            (text, 0.5) for text in (*self.others, self.best)
        ]

    def test_empty_input_returns_empty_output(self, model: Any, mode: str) -> None:
        assert _run(model, "postprocess_nodes", mode, [], query_str=self.query) == []

    def test_a_missing_query_is_an_error(self, model: Any, mode: str, nodes: list[NodeWithScore]) -> None:
        with pytest.raises(ValueError, match="query"):
            _run(model, "postprocess_nodes", mode, nodes)

    def test_second_event_loop(self, model: Any, nodes: list[NodeWithScore]) -> None:
        for _ in range(2):
            found = _run(model, "postprocess_nodes", "async", nodes, query_str=self.query)
            assert found[0].node.get_content() == self.best
