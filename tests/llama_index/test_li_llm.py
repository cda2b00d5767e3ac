"""The LLM: requests, responses and metadata."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from llama_index.core.base.llms.types import (
    AudioBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms.utils import resolve_llm
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.workers_ai import GatewayOptions, WorkersAI
from tests.llama_index.conftest import tool_call
from tests.support import ACCOUNT, TOKEN, every_row, held, wired

from workers_ai.errors import BadRequestError, ConfigurationError, StructuredOutputError
from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.llama_index.conftest import Script
    from tests.support import Caller

    Make = Callable[..., WorkersAI]

USER = [ChatMessage(role="user", content="Hello")]
KIMI = "@cf/moonshotai/kimi-k2.6"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def sent(emulator: Emulator) -> dict[str, Any]:
    """Return the body of the last request."""
    return emulator.log.last.json


class TestOptions:
    def test_only_set_options_are_sent(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        call(llm(), "chat", USER)
        assert set(sent(emulator)) == {"model", "messages"}

    def test_every_option_is_sent(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        options = {
            "temperature": 0.1,
            "top_p": 0.9,
            "max_tokens": 900,
            "stop": ["END"],
            "seed": 7,
            "frequency_penalty": 0.2,
            "presence_penalty": 0.3,
            "logprobs": True,
            "top_logprobs": 2,
            "reasoning_effort": "low",
            "chat_template_kwargs": {"enable_thinking": False},
        }
        call(llm(model=KIMI, **options), "chat", USER)
        assert {name: sent(emulator)[name] for name in options} == options

    def test_call_option_overrides_the_field(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        call(llm(temperature=0.1, seed=7), "chat", USER, temperature=0.5, seed=None)
        assert sent(emulator)["temperature"] == 0.5
        assert "seed" not in sent(emulator)

    @pytest.mark.parametrize("option", [{"top_k": 5}, {"lora": "mine"}, {"repetition_penalty": 1.1}])
    def test_native_options_select_the_native_route(
        self, llm: Make, emulator: Emulator, option: dict[str, Any]
    ) -> None:
        llm(**option).chat(USER)
        assert emulator.log.last.route == "run"
        assert sent(emulator).items() >= option.items()

    def test_explicit_null_effort_is_sent(self, llm: Make, emulator: Emulator) -> None:
        llm(model=KIMI, reasoning_effort=None).chat(USER)
        assert sent(emulator)["reasoning_effort"] is None
        pickle.loads(pickle.dumps(llm(model=KIMI)))
        llm(model=KIMI).chat(USER)
        assert "reasoning_effort" not in sent(emulator)

    def test_additional_kwargs_are_sent_unchanged(self, llm: Make, emulator: Emulator) -> None:
        llm(additional_kwargs={"metadata": {"a": 1}}).chat(USER, additional_kwargs={"user": "me"})
        assert sent(emulator)["metadata"] == {"a": 1}
        assert sent(emulator)["user"] == "me"

    def test_model_name_and_other_aliases(self, llm: Make, emulator: Emulator) -> None:
        model = llm(model_name=KIMI, stop_sequences="END", request_timeout=30)
        assert (model.model, model.metadata.model_name, model.timeout) == (KIMI, KIMI, 30)
        model.chat(USER, stop_sequences=["NOW"])
        assert sent(emulator)["stop"] == ["NOW"]

    def test_unknown_keyword_raises_with_suggestion(self, llm: Make) -> None:
        with pytest.raises(ConfigurationError, match=r"temprature.*did you mean 'temperature'"):
            llm(temprature=0.1)
        with pytest.raises(ConfigurationError, match=r"max_token.*did you mean 'max_tokens'"):
            llm().chat(USER, max_token=1)

    def test_raw_prompt_is_sent_without_template(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        call(llm(raw=True), "complete", "<s>[INST] Hi [/INST]")
        assert sent(emulator)["prompt"] == "<s>[INST] Hi [/INST]"
        assert "messages" not in sent(emulator)

    def test_gateway_is_used(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        call(llm(gateway=GatewayOptions("gw", cache_ttl_s=60, metadata={"team": "a"})), "chat", USER)
        headers = emulator.log.last.headers
        assert headers["cf-aig-gateway-id"] == "gw"
        assert headers["cf-aig-cache-ttl"] == "60"
        assert headers["cf-aig-metadata"] == '{"team": "a"}'

    def test_session_affinity_header_is_sent(self, llm: Make, emulator: Emulator) -> None:
        llm(session_id="s-1").chat(USER)
        assert emulator.log.last.headers["x-session-affinity"] == "s-1"
        llm().chat(USER, session_id="s-2")
        assert emulator.log.last.headers["x-session-affinity"] == "s-2"

    def test_own_clients_are_used_and_not_closed(self, emulator: Emulator) -> None:
        mine = httpx.Client(transport=emulator.transport())
        model = WorkersAI(account_id=ACCOUNT, api_token=TOKEN, http_client=mine)
        model.chat(USER)
        model.client.close()
        assert not mine.is_closed

    @pytest.mark.parametrize(
        "model", ["deepseek/deepseek-v4-pro", "dynamic/my-route", "@cf/acme/model-9", "@hf/acme/model-9"]
    )
    def test_any_model_id_is_sent_unchanged(self, llm: Make, emulator: Emulator, model: str) -> None:
        emulator.faults.add(Fault.reply({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}))
        made = llm(model=model)
        assert emulator.log.requests == 0  # creating an object sends nothing
        assert made.chat(USER).raw["model"] == model
        assert sent(emulator)["model"] == model
        assert emulator.log.last.path == f"/client/v4/accounts/{ACCOUNT}/ai/v1/chat/completions"

    def test_stream_requests_usage_and_uses_the_gateway(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        call(llm(gateway="gw"), "stream_chat", USER)
        assert sent(emulator)["stream"] is True
        assert sent(emulator)["stream_options"] == {"include_usage": True}
        assert emulator.log.last.headers["cf-aig-gateway-id"] == "gw"

    def test_own_sync_and_async_clients_are_separate(self, llm: Make, emulator: Emulator) -> None:
        mine = Emulator()
        with emulator.serve() as url:
            half = {"base_url": url, "http_client": None, "http_async_client": None}
            sync = llm(**{**half, "http_client": httpx.Client(transport=mine.transport())})
            sync.chat(USER)
            asyncio.run(sync.achat(USER))
            assert (mine.log.requests, emulator.log.requests) == (1, 1)
            other = llm(**{**half, "http_async_client": httpx.AsyncClient(transport=mine.transport())})
            asyncio.run(other.achat(USER))
            other.chat(USER)
            assert (mine.log.requests, emulator.log.requests) == (2, 2)
            other.client.close()

    def test_consecutive_and_concurrent_event_loops(self, llm: Make, emulator: Emulator) -> None:
        with emulator.serve() as url:
            model = llm(base_url=url, http_client=None, http_async_client=None, max_retries=0)
            for _ in range(2):
                asyncio.run(model.achat(USER))
            with ThreadPoolExecutor(4) as threads:
                assert len(list(threads.map(lambda _: asyncio.run(model.achat(USER)), range(8)))) == 8
        assert emulator.log.statuses == {200: 10}

    def test_concurrent_calls_do_not_block_each_other(self) -> None:
        emulator = Emulator(clock=Clock("manual"), latency_s=1)
        model = WorkersAI(**wired(emulator))

        async def many() -> None:
            await asyncio.gather(*(model.achat(USER) for _ in range(50)))

        with held(emulator, 50):
            asyncio.run(many())
        assert emulator.log.peak_concurrency == 50


class TestMessages:
    def test_roles(self, llm: Make, emulator: Emulator) -> None:
        roles = [
            (MessageRole.SYSTEM, "system"),
            (MessageRole.USER, "user"),
            (MessageRole.CHATBOT, "assistant"),
            (MessageRole.MODEL, "assistant"),
            (MessageRole.ASSISTANT, "assistant"),
        ]
        llm().chat([ChatMessage(role=role, content="x") for role, _ in roles] + USER)
        assert [message["role"] for message in sent(emulator)["messages"][:-1]] == [wire for _, wire in roles]

    def test_content_is_always_text(self, llm: Make, emulator: Emulator) -> None:
        history = [
            ChatMessage(role="user", blocks=[TextBlock(text="a"), CachePoint(cache_control=CacheControl(type="x"))]),
            ChatMessage(role="assistant", blocks=[ToolCallBlock(tool_call_id="c", tool_name="t", tool_kwargs={})]),
            ChatMessage(role="tool", content="out", additional_kwargs={"tool_call_id": "c"}),
            ChatMessage(role="assistant", blocks=[]),
            ChatMessage(role="user", blocks=[TextBlock(text="one"), TextBlock(text="two")]),
        ]
        llm().chat(history)
        assert [message["content"] for message in sent(emulator)["messages"]] == ["a", "", "out", "", "one\ntwo"]

    def test_calls_are_sent_with_ids_and_json_arguments(self, llm: Make, emulator: Emulator) -> None:
        calls = [
            ToolCallBlock(tool_call_id="c-A", tool_name="clock", tool_kwargs={"city": "Oslo"}),
            ToolCallBlock(tool_call_id="c-B", tool_name="my tool", tool_kwargs='{"n": 1}'),
        ]
        results = [
            ChatMessage(role="tool", content=text, additional_kwargs={"tool_call_id": call_id})
            for text, call_id in (("2", "c-B"), ("1", "c-A"))
        ]
        llm().chat([*USER, ChatMessage(role="assistant", blocks=calls), *results])
        _, assistant, second, first = sent(emulator)["messages"]
        assert assistant["tool_calls"] == [
            tool_call("clock", '{"city": "Oslo"}', "c-A"),
            tool_call("my_tool", '{"n": 1}', "c-B"),
        ]
        assert (second["tool_call_id"], first["tool_call_id"]) == ("c-B", "c-A")

    def test_calls_in_additional_kwargs_are_sent(self, llm: Make, emulator: Emulator) -> None:
        kept = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [tool_call("clock", "{}")]})
        result = ChatMessage(role="tool", content="1", additional_kwargs={"tool_call_id": "call-1"})
        llm().chat([*USER, kept, result])
        assert sent(emulator)["messages"][1]["tool_calls"] == [tool_call("clock", "{}")]

    def test_tool_call_id_of_an_assistant_is_not_sent(self, llm: Make, emulator: Emulator) -> None:
        direct = ChatMessage(role="assistant", content="done", additional_kwargs={"tool_call_id": "c"})
        llm().chat([*USER, direct, *USER])
        assert sent(emulator)["messages"][1] == {"role": "assistant", "content": "done"}

    def test_thinking_is_sent_as_reasoning(self, llm: Make, emulator: Emulator) -> None:
        past = ChatMessage(role="assistant", blocks=[ThinkingBlock(content="user wants 4"), TextBlock(text="4")])
        llm(model=KIMI).chat([*USER, past, *USER])
        assert sent(emulator)["messages"][1] == {"role": "assistant", "content": "4", "reasoning": "user wants 4"}

    def test_citable_and_cited_content_is_sent_as_its_text(self, llm: Make, emulator: Emulator) -> None:
        citable = CitableBlock(title="t", source="s", content="cite me")
        cited = CitationBlock(cited_content="cited", source="s", title="t", additional_location_info={})
        llm().chat([ChatMessage(role="user", blocks=[citable, cited])])
        assert sent(emulator)["messages"][0]["content"] == "cite me\ncited"

    @pytest.mark.parametrize("form", ["bytes", "base64", "path", "data_url", "stream"])
    def test_every_form_of_an_image_is_sent(self, llm: Make, emulator: Emulator, tmp_path: Any, form: str) -> None:
        encoded = base64.b64encode(PIXEL)
        (tmp_path / "pixel.png").write_bytes(PIXEL)
        block = {
            "bytes": lambda: ImageBlock(image=PIXEL, detail="low"),
            "base64": lambda: ImageBlock(image=encoded, detail="low"),
            "path": lambda: ImageBlock(path=tmp_path / "pixel.png", detail="low"),
            "data_url": lambda: ImageBlock(url=f"data:image/png;base64,{encoded.decode()}", detail="low"),
            "stream": lambda: ImageBlock(
                image=(tmp_path / "pixel.png").open("rb"), image_mimetype="image/png", detail="low"
            ),
        }[form]()
        llm(model=KIMI).chat([ChatMessage(role="user", blocks=[TextBlock(text="What is this?"), block])])
        if form == "stream":
            block.image.close()
        url = f"data:image/png;base64,{encoded.decode()}"
        assert sent(emulator)["messages"][0]["content"] == [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        ]

    @pytest.mark.parametrize(
        ("block", "cure"),
        [
            (ImageBlock(url="https://example.org/cat.jpg"), "Pass the bytes as base64"),
            (ImageBlock(image=b"not a picture"), "image_mimetype"),
            (DocumentBlock(data=b"%PDF-1.4", title="t", document_mimetype="application/pdf"), "pass its text"),
            (AudioBlock(audio=b"RIFF", format="wav"), "pass its text"),
        ],
    )
    def test_unsupported_blocks_raise_with_a_remedy(
        self, llm: Make, emulator: Emulator, call: Caller, block: Any, cure: str
    ) -> None:
        with pytest.raises(BadRequestError, match=cure):
            call(llm(model=KIMI), "chat", [ChatMessage(role="user", blocks=[block])])
        assert emulator.log.requests == 0

    @pytest.mark.parametrize(
        ("given", "expected_text"),
        [([], "messages is empty"), ([{"role": "user", "content": "hi"}], "message 0 is a dict")],
    )
    def test_non_message_is_rejected(
        self, llm: Make, emulator: Emulator, call: Caller, given: Any, expected_text: str
    ) -> None:
        for method in ("chat", "stream_chat"):
            with pytest.raises(BadRequestError, match=expected_text):
                call(llm(), method, given)
        assert emulator.log.requests == 0


class TestReplies:
    def test_usage_and_finish_reason(self, llm: Make, script: Script, call: Caller) -> None:
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "neurons": 0.5}
        script.completion({"content": "Half"}, finish="length", usage=usage)
        response = call(llm(), "chat", USER)
        assert response.raw["usage"] == usage
        assert response.additional_kwargs == {
            "finish_reason": "length",
            "prompt_tokens": 7,
            "completion_tokens": 3,
            "total_tokens": 10,
        }
        assert response.delta == ""

    def test_reasoning_and_calls_are_both_returned(self, llm: Make, script: Script, call: Caller) -> None:
        script.completion(
            {"content": None, "reasoning_content": "need the clock", "tool_calls": [tool_call("clock", "{}")]},
            finish="tool_calls",
        )
        message = call(llm(), "chat", USER).message
        assert [block.block_type for block in message.blocks] == ["text", "thinking", "tool_call"]
        assert message.blocks[1].content == "need the clock"
        assert message.content == ""

    @pytest.mark.parametrize("content", [None, ""])
    def test_reasoning_up_to_max_tokens_returns_empty_text(
        self, llm: Make, script: Script, call: Caller, content: Any
    ) -> None:
        script.completion({"content": content, "reasoning_content": "First I"}, finish="length")
        response = call(llm(model=KIMI), "chat", USER)
        assert response.message.content == ""
        assert response.additional_kwargs["finish_reason"] == "length"
        assert response.message.blocks[1].content == "First I"

    @pytest.mark.parametrize(
        ("content", "text"), [(None, ""), (5, "5"), ({"name": "Ann"}, '{"name": "Ann"}'), ([1, 2], "[1, 2]")]
    )
    def test_content_that_is_not_a_string(
        self, llm: Make, script: Script, call: Caller, content: Any, text: str
    ) -> None:
        script.completion({"content": content})
        assert call(llm(), "chat", USER).message.content == text

    def test_a_native_reply_on_the_other_route(self, llm: Make, script: Script, call: Caller) -> None:
        script.native({"response": "hi", "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
        response = call(llm(), "chat", USER)
        assert (response.message.content, response.raw["usage"]["prompt_tokens"]) == ("hi", 7)

    def test_raw_reply_has_the_answering_model(self, llm: Make, script: Script) -> None:
        script.completion({"content": "hi"}, model="@cf/acme/successor")
        assert llm().chat(USER).raw["model"] == "@cf/acme/successor"

    def test_think_tags_stay_in_the_text(self, llm: Make, script: Script) -> None:
        script.native({"response": "count legs\n</think>\n\nFour."})
        assert llm(api="run").chat(USER).message.content == "count legs\n</think>\n\nFour."

    def test_truncated_forced_call_suggests_max_tokens(self, llm: Make, emulator: Emulator) -> None:
        emulator.faults.add(Fault.error(400, 8006, "not enough tokens"))
        with pytest.raises(StructuredOutputError, match="max_tokens"):
            llm().chat(USER)

    def test_native_object_becomes_json_text(self, llm: Make, script: Script, call: Caller) -> None:
        script.native({"response": {"name": "Ann", "age": 41}, "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
        response = call(llm(api="run"), "chat", USER)
        assert response.message.content == '{"name": "Ann", "age": 41}'
        assert response.raw["usage"]["completion_tokens"] == 2

    def test_refusal_and_logprobs(self, llm: Make, script: Script) -> None:
        place = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -2.0}]}
        choice = {"index": 0, "message": {"content": None, "refusal": "no"}, "finish_reason": "stop"}
        script.body({"choices": [{**choice, "logprobs": {"content": [place]}}]})
        response = llm().chat(USER)
        assert response.message.additional_kwargs["refusal"] == "no"
        assert [[(one.token, one.logprob) for one in row] for row in response.logprobs] == [[("a", -0.1), ("b", -2.0)]]

    def test_reply_without_usage_reports_none(self, llm: Make, script: Script) -> None:
        script.completion({"content": "hi"})
        response = llm().chat(USER)
        assert "usage" not in response.raw
        assert response.additional_kwargs == {"finish_reason": "stop"}

    def test_message_round_trip(self, llm: Make, script: Script, emulator: Emulator) -> None:
        script.completion({"content": "4", "reasoning_content": "2+2", "tool_calls": [tool_call("add", '{"a":2}')]})
        message = llm(model=KIMI).chat(USER).message
        again = ChatMessage.model_validate_json(message.model_dump_json())
        llm(model=KIMI).chat([*USER, again, *USER])
        assert sent(emulator)["messages"][1] == {
            "role": "assistant",
            "content": "4",
            "reasoning": "2+2",
            "tool_calls": [tool_call("add", '{"a": 2}')],
        }


class TestStreams:
    def test_thinking_delta(self, llm: Make, script: Script, call: Caller) -> None:
        script.deltas({"reasoning_content": "hm"}, {"content": "4"}, usage={"prompt_tokens": 1, "completion_tokens": 2})
        first, second, last = call(llm(), "stream_chat", USER)
        assert first.additional_kwargs == {"thinking_delta": "hm"}
        assert (first.delta, second.delta, last.delta) == ("", "4", "")
        assert [block.block_type for block in last.message.blocks] == ["text", "thinking"]
        assert last.message.content == "4"
        assert last.raw["usage"]["completion_tokens"] == 2

    def test_usage_is_in_the_last_item_only(self, llm: Make, script: Script, call: Caller) -> None:
        script.deltas({"content": "a"}, {"content": "b"}, usage={"prompt_tokens": 10, "completion_tokens": 2})
        *others, last = call(llm(), "stream_chat", USER)
        assert all(response.raw is None for response in others)
        assert last.additional_kwargs["prompt_tokens"] == 10

    def test_empty_stream_yields_one_item(self, llm: Make, script: Script, call: Caller) -> None:
        script.deltas(finish=None)
        (only,) = call(llm(), "stream_complete", "Hello")
        assert (only.text, only.delta) == ("", "")

    def test_complete_answer_to_a_streaming_request(self, llm: Make, script: Script, call: Caller) -> None:
        script.native({"response": "full answer"})
        responses = call(llm(api="run"), "stream_chat", USER)
        assert responses[-1].message.content == "full answer"

    def test_earlier_items_are_not_changed_by_later_ones(self, llm: Make, script: Script) -> None:
        script.deltas(
            {"tool_calls": [tool_call("t", '{"a"', index=0)]}, {"tool_calls": [tool_call("", ": 1}", index=0)]}
        )
        responses = list(llm().stream_chat(USER))
        assert [response.message.blocks[-1].tool_kwargs for response in responses] == ['{"a"', '{"a": 1}', {"a": 1}]
        kept = [response.message.additional_kwargs["tool_calls"][0]["function"]["arguments"] for response in responses]
        assert kept == ['{"a"', '{"a": 1}', '{"a": 1}']

    @pytest.mark.parametrize("api", [None, "run"])
    def test_native_events_with_numbers_and_nulls(
        self, llm: Make, emulator: Emulator, call: Caller, api: str | None
    ) -> None:
        pieces = [
            {"response": "Year "},
            {"response": 2026},
            {"tool_calls": []},
            {"response": None, "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}},
        ]
        events = [f"data: {json.dumps(piece)}\n\n".encode() for piece in pieces]
        emulator.faults.add(Fault.sse([*events, b"data: [DONE]\n\n"]))
        responses = call(llm(api=api), "stream_chat", USER)
        assert "".join(response.delta for response in responses) == "Year 2026"
        assert responses[-1].raw["usage"]["prompt_tokens"] == 3

    def test_deltas_with_numbers_and_nulls(self, llm: Make, script: Script, call: Caller) -> None:
        script.deltas({"content": "Year "}, {"content": 2026}, {"content": None})
        responses = call(llm(), "stream_chat", USER)
        assert [response.delta for response in responses if response.delta] == ["Year ", "2026"]
        assert responses[-1].message.content == "Year 2026"

    def test_first_delta_of_a_reasoning_model_is_kept(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        emulator.faults.add(Fault.named_shape("both_reasoning"))
        responses = call(llm(model="@cf/openai/gpt-oss-120b"), "stream_chat", USER)
        thought = "".join(response.additional_kwargs.get("thinking_delta", "") for response in responses)
        assert thought.startswith("The user asks: Hello")
        assert responses[-1].message.blocks[1].content == thought

    @pytest.mark.parametrize("shape", ["crlf", "no_space", "comments", "two_data_lines", "no_done", "double_done"])
    def test_spellings_of_a_stream(self, llm: Make, emulator: Emulator, call: Caller, shape: str) -> None:
        plain = call(llm(), "stream_chat", USER)[-1].message.content
        emulator.faults.add(Fault.named_shape(shape), Fault("one_byte_chunks"))
        assert call(llm(), "stream_chat", USER)[-1].message.content == plain

    def test_early_exit_closes_the_response(self, llm: Make, emulator: Emulator) -> None:
        model = llm(max_concurrency=1)
        stream = model.stream_chat(USER)
        next(stream)
        stream.close()
        assert model.chat(USER).message.content  # the slot is free again
        assert emulator.log.running == 0


class TestMetadata:
    def test_metadata_from_the_catalogue(self, llm: Make) -> None:
        metadata = llm(model=KIMI).metadata
        assert (metadata.context_window, metadata.is_chat_model, metadata.is_function_calling_model) == (
            262_144,
            True,
            True,
        )
        assert llm(model="@cf/meta/llama-3.2-1b-instruct").metadata.is_function_calling_model is False

    def test_metadata_of_an_unknown_model(self, llm: Make, emulator: Emulator) -> None:
        model = llm(model="deepseek/deepseek-v9")
        assert (model.metadata.context_window, model.metadata.num_output) == (8_192, 256)
        assert model.metadata.is_function_calling_model

    def test_fields_override_the_catalogue(self, llm: Make) -> None:
        metadata = llm(model=KIMI, context_window=1000, num_output=50, is_function_calling_model=False).metadata
        assert (metadata.context_window, metadata.num_output, metadata.is_function_calling_model) == (1000, 50, False)
        assert llm(max_tokens=900).metadata.num_output == 900
        with pytest.raises(ConfigurationError, match="context_window"):
            llm(context_window=0)


class TestState:
    def test_dump_round_trip_reads_the_token_again(self, llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        model = llm(model=KIMI, temperature=0.2, max_retries=5)
        monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "another-token")
        twin = WorkersAI.from_dict(model.to_dict())
        assert (twin.model, twin.temperature, twin.account_id) == (KIMI, 0.2, ACCOUNT)
        assert twin.api_token.get_secret_value() == "another-token"
        assert WorkersAI.from_json(model.to_json(), api_token="given").temperature == 0.2

    @pytest.mark.parametrize("given", [{}, {"reasoning_effort": None}, {"temperature": 0.5, "stop": ["x"]}])
    @every_row(
        "copied",
        [
            lambda model, handles: WorkersAI(**model.model_dump(), **handles),
            lambda model, handles: WorkersAI.model_validate({**model.model_dump(), **handles}),
            lambda model, handles: WorkersAI(**{**model.dict(), **handles}),
            lambda model, handles: WorkersAI(**{name: vars(model)[name] for name in WorkersAI.model_fields}),
            lambda model, handles: WorkersAI.from_dict(model.to_dict(), api_token=TOKEN, **handles),
            lambda model, handles: WorkersAI.from_json(model.to_json(), api_token=TOKEN, **handles),
            lambda model, handles: model.model_copy(),
            lambda model, handles: model.model_copy(deep=True),
            lambda model, handles: copy.copy(model),
            lambda model, handles: copy.deepcopy(model),
            lambda model, handles: pickle.loads(pickle.dumps(model)),
        ],
    )
    def test_copies_send_only_set_options(
        self, llm: Make, emulator: Emulator, given: dict[str, Any], copied: Callable[..., WorkersAI]
    ) -> None:
        model = llm(model=KIMI, **given)
        handles = {"http_client": model.http_client}
        twin = copied(model, handles)
        twin.http_client = model.http_client
        twin.chat(USER)
        assert sent(emulator) == {"model": model.model, "messages": [{"role": "user", "content": "Hello"}], **given}

    def test_metadata_follows_a_changed_model(self, llm: Make) -> None:
        model = llm()
        twin = model.model_copy(update={"model": "@cf/meta/llama-3.2-1b-instruct"})
        model.model = "@cf/openai/gpt-oss-120b"
        assert (model.metadata.context_window, model.metadata.is_function_calling_model) == (128_000, True)
        assert (twin.metadata.model_name, twin.metadata.is_function_calling_model) == (twin.model, False)

    def test_missing_token_raises_on_construction(self) -> None:
        with pytest.raises(ConfigurationError, match="CLOUDFLARE_API_TOKEN"):
            WorkersAI(account_id=ACCOUNT)

    def test_predict_adds_the_system_prompt(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        call(llm(system_prompt="Be brief."), "predict", PromptTemplate("{text}"), text="Hello")
        assert sent(emulator)["messages"][0] == {"role": "system", "content": "Be brief."}

    def test_predict_and_stream_return_the_same_text(self, llm: Make, call: Caller) -> None:
        ask, model = PromptTemplate("{text}"), llm()
        assert "".join(call(model, "stream", ask, text="Hello")) == call(model, "predict", ask, text="Hello")

    def test_llama_index_settings_accept_it(self, llm: Make) -> None:
        model = llm()
        assert resolve_llm(model) is model
        manager = CallbackManager([])
        assert resolve_llm(model, callback_manager=manager).callback_manager is manager

    def test_memory_counts_tokens_without_download(self, llm: Make) -> None:
        memory = ChatMemoryBuffer.from_defaults(llm=llm(), tokenizer_fn=str.split)
        assert memory.token_limit == 24_000 * 3 // 4
