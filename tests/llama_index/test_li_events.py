"""LlamaIndex's instrumentation: events, spans, callbacks and token counts, each once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler, TokenCountingHandler
from llama_index.core.callbacks.schema import EventPayload
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.events.embedding import EmbeddingEndEvent, EmbeddingStartEvent
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatInProgressEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionInProgressEvent,
    LLMCompletionStartEvent,
)
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeWithScore, TextNode
from pydantic import BaseModel
from tests.support import TOKEN

from workers_ai.errors import BadRequestError, StreamInterruptedError
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.llama_index.conftest import Script
    from tests.support import Caller

    from workers_ai_emulator import Emulator

    Make = Callable[..., Any]

USER = [ChatMessage(role="user", content="Hello")]
USAGE = {"prompt_tokens": 70, "completion_tokens": 30, "total_tokens": 100, "neurons": 0.5}


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@pytest.fixture
def spans() -> Iterator[Callable[[], Counter[str]]]:
    """Count the finished spans by name."""
    handler, root = SimpleSpanHandler(), get_dispatcher()
    root.add_span_handler(handler)
    yield lambda: Counter(span.id_.rsplit("-", 5)[0] for span in handler.completed_spans)
    root.span_handlers.remove(handler)


def kinds(events: list[Any]) -> Counter[type]:
    return Counter(type(event) for event in events)


class TestLLM:
    def test_events_of_a_chat(self, llm: Make, events: list[Any], call: Caller) -> None:
        call(llm(), "chat", USER, temperature=0.5)
        (start,) = [event for event in events if isinstance(event, LLMChatStartEvent)]
        (end,) = [event for event in events if isinstance(event, LLMChatEndEvent)]
        assert start.model_dict["class_name"] == "WorkersAI"
        assert start.model_dict["model_name"] == "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
        assert start.additional_kwargs == {"temperature": 0.5}
        assert start.messages == USER
        assert end.response.message.content
        assert start.span_id == end.span_id is not None

    def test_events_of_a_stream(self, llm: Make, events: list[Any], call: Caller) -> None:
        responses = call(llm(), "stream_chat", USER)
        seen = kinds(events)
        assert seen[LLMChatStartEvent] == seen[LLMChatEndEvent] == 1
        assert seen[LLMChatInProgressEvent] == len(responses)

    @pytest.mark.parametrize("method", ["complete", "stream_complete"])
    def test_completion_sends_completion_events_only(
        self, llm: Make, events: list[Any], call: Caller, method: str
    ) -> None:
        responses = call(llm(), method, "Hello")
        seen = kinds(events)
        assert seen[LLMCompletionStartEvent] == seen[LLMCompletionEndEvent] == 1
        assert seen[LLMCompletionInProgressEvent] == (len(responses) if method == "stream_complete" else 0)
        assert seen[LLMChatStartEvent] == 0

    def test_events_do_not_contain_the_token(self, llm: Make, events: list[Any], call: Caller) -> None:
        model = llm(default_headers={"x-secret": "hidden"})
        call(model, "chat", USER)
        call(model, "structured_predict", Person, PromptTemplate("{text}"), text="Ann is 41 years old.")
        assert events
        assert all(TOKEN not in shown and "hidden" not in shown for shown in map(repr, events))

    def test_failed_stream_sends_an_exception_event(
        self, llm: Make, emulator: Emulator, events: list[Any], call: Caller
    ) -> None:
        emulator.faults.add(Fault.cut(after_events=2))
        with pytest.raises(StreamInterruptedError) as caught:
            call(llm(), "stream_chat", USER)
        (event,) = [event for event in events if isinstance(event, ExceptionEvent)]
        assert event.exception is caught.value
        assert kinds(events)[LLMChatEndEvent] == 0

    def test_early_exit_of_a_stream_closes_the_connection(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        model = llm(max_concurrency=1)
        if call.mode == "sync":
            pieces = model.stream_chat(USER)
            next(pieces)
            pieces.close()
            assert emulator.log.running == 0
            return

        async def leave() -> None:
            async for _ in await model.astream_chat(USER):
                break
            assert (await model.achat(USER)).message.content  # the slot is free again

        asyncio.run(leave())
        assert emulator.log.running == 0

    def test_cancelled_task_closes_the_connection(self, llm: Make, emulator: Emulator) -> None:
        model = llm()

        async def cancelled() -> None:
            begun = asyncio.Event()

            async def read() -> None:
                async for _ in await model.astream_chat(USER):
                    begun.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(read())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        assert emulator.log.running == 0

    @pytest.mark.parametrize("method", ["chat", "stream_chat", "complete", "stream_complete"])
    def test_spans(self, llm: Make, spans: Any, call: Caller, method: str) -> None:
        call(llm(), method, USER if "chat" in method else "Hello")
        name = method if call.mode == "sync" else f"a{method}"
        assert spans()[f"WorkersAI.{name}"] == 1

    @pytest.mark.parametrize("method", ["structured_predict", "stream_structured_predict"])
    def test_spans_of_structured_prediction(self, llm: Make, spans: Any, call: Caller, method: str) -> None:
        call(llm(), method, Person, PromptTemplate("{text}"), text="Ann is 41 years old.")
        name = method if call.mode == "sync" else f"a{method}"
        assert spans()[f"WorkersAI.{name}"] == 1
        chat = "stream_chat" if "stream" in method else "chat"
        assert spans()[f"WorkersAI.{chat if call.mode == 'sync' else f'a{chat}'}"] == 1

    def test_callbacks(self, llm: Make, call: Caller) -> None:
        handler = LlamaDebugHandler(print_trace_on_end=False)
        call(llm(callback_manager=CallbackManager([handler])), "chat", USER)
        ((begun, ended),) = handler.get_llm_inputs_outputs()
        assert begun.payload[EventPayload.MESSAGES] == USER
        assert ended.payload[EventPayload.RESPONSE].message.content
        assert TOKEN not in str(begun.payload)

    def test_callbacks_of_a_failed_call(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        emulator.faults.add(Fault.error(400, 5006, "bad"))
        handler = LlamaDebugHandler(print_trace_on_end=False)
        with pytest.raises(BadRequestError) as caught:
            call(llm(callback_manager=CallbackManager([handler])), "chat", USER)
        ((_, ended),) = handler.get_event_pairs(CBEventType.LLM)
        assert ended.payload[EventPayload.EXCEPTION] is caught.value


class TestTokens:
    """``TokenCountingHandler`` receives the reported usage and estimates nothing."""

    @pytest.fixture
    def counter(self) -> TokenCountingHandler:
        return TokenCountingHandler(tokenizer=lambda text: pytest.fail("an estimate where the service has told"))

    @pytest.mark.parametrize("method", ["chat", "complete"])
    def test_usage_of_complete_replies(
        self, llm: Make, script: Script, call: Caller, counter: TokenCountingHandler, method: str
    ) -> None:
        script.completion({"content": "hi"}, usage=USAGE)
        call(llm(callback_manager=CallbackManager([counter])), method, USER if method == "chat" else "Hello")
        assert (counter.prompt_llm_token_count, counter.completion_llm_token_count) == (70, 30)
        assert counter.total_llm_token_count == 100

    @pytest.mark.parametrize("method", ["stream_chat", "stream_complete"])
    def test_usage_of_streams(
        self, llm: Make, script: Script, call: Caller, counter: TokenCountingHandler, method: str
    ) -> None:
        script.deltas({"content": "hi"}, {"content": "!"}, usage=USAGE)
        call(llm(callback_manager=CallbackManager([counter])), method, USER if "chat" in method else "Hello")
        assert (counter.prompt_llm_token_count, counter.completion_llm_token_count) == (70, 30)

    def test_cumulative_usage_is_not_summed(
        self, llm: Make, emulator: Emulator, call: Caller, counter: TokenCountingHandler
    ) -> None:
        plain = call(llm(), "stream_chat", USER)[-1].raw["usage"]
        emulator.faults.add(Fault.named_shape("cumulative_usage"))
        call(llm(callback_manager=CallbackManager([counter])), "stream_chat", USER)
        assert counter.prompt_llm_token_count == plain["prompt_tokens"]
        assert counter.completion_llm_token_count == plain["completion_tokens"]

    def test_usage_of_the_native_route(
        self, llm: Make, script: Script, call: Caller, counter: TokenCountingHandler
    ) -> None:
        script.native({"response": "hi", "usage": USAGE})
        call(llm(api="run", callback_manager=CallbackManager([counter])), "chat", USER)
        assert (counter.prompt_llm_token_count, counter.completion_llm_token_count) == (70, 30)

    def test_usage_of_a_structured_answer(self, llm: Make, call: Caller, counter: TokenCountingHandler) -> None:
        model = llm(callback_manager=CallbackManager([counter]))
        call(model, "structured_predict", Person, PromptTemplate("{text}"), text="Ann is 41 years old.")
        assert len(counter.llm_token_counts) == 1
        assert counter.total_llm_token_count > 0

    def test_cached_and_reasoning_tokens_stay_in_the_raw_reply(self, llm: Make, script: Script, call: Caller) -> None:
        usage = {
            **USAGE,
            "prompt_tokens_details": {"cached_tokens": 64},
            "completion_tokens_details": {"reasoning_tokens": 20},
        }
        script.completion({"content": "4", "reasoning_content": "2+2"}, usage=usage)
        response = call(llm(), "chat", USER)
        assert response.raw["usage"] == usage
        assert response.message.blocks[1].num_tokens == 20


class TestEmbedding:
    @pytest.mark.parametrize(
        ("method", "given", "chunks"),
        [
            ("get_query_embedding", "a", ["a"]),
            ("get_text_embedding", "a", ["a"]),
            ("get_text_embedding_batch", ["a", "b", "a"], ["a", "b", "a"]),
        ],
    )
    def test_events_spans_and_callbacks_are_sent_once(
        self,
        embedding: Make,
        events: list[Any],
        spans: Any,
        call: Caller,
        method: str,
        given: Any,
        chunks: list[str],
    ) -> None:
        handler = LlamaDebugHandler(print_trace_on_end=False)
        model = embedding(batch_size=1, callback_manager=CallbackManager([handler]))
        found = call(model, method, given)
        (start,) = [event for event in events if isinstance(event, EmbeddingStartEvent)]
        (end,) = [event for event in events if isinstance(event, EmbeddingEndEvent)]
        assert start.model_dict["model_name"] == "@cf/baai/bge-m3"
        assert TOKEN not in str(start.model_dict)
        assert end.chunks == chunks
        assert end.embeddings == (found if method.endswith("batch") else [found])
        ((_, ended),) = handler.get_event_pairs(CBEventType.EMBEDDING)
        assert ended.payload[EventPayload.CHUNKS] == chunks
        name = method if call.mode == "sync" else f"a{method}"
        assert spans()[f"WorkersAIEmbedding.{name}"] == 1

    def test_embedding_tokens_are_estimated_by_llama_index(self, embedding: Make, call: Caller) -> None:
        counter = TokenCountingHandler(tokenizer=str.split)
        call(embedding(callback_manager=CallbackManager([counter])), "get_text_embedding_batch", ["a b", "c"])
        assert counter.total_embedding_token_count == 3

    def test_show_progress(self, embedding: Make, call: Caller, capsys: pytest.CaptureFixture[str]) -> None:
        model = embedding(batch_size=2)
        call(model, "get_text_embedding_batch", ["a", "b", "c"])
        assert capsys.readouterr().err == ""
        call(model, "get_text_embedding_batch", ["a", "b", "c"], show_progress=True)
        assert "Generating embeddings: 100%" in capsys.readouterr().err


def test_spans_of_reranking(reranker: Make, spans: Any, call: Caller) -> None:
    call(reranker(), "postprocess_nodes", [NodeWithScore(node=TextNode(text="a"))], query_str="q")
    name = "_postprocess_nodes" if call.mode == "sync" else "_apostprocess_nodes"
    assert spans()[f"WorkersAIRerank.{name}"] == 1
