"""LangChain messages on the wire: every role and form, on both routes, sync, async and streamed."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate

import langchain_workers_ai as ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.messages import BaseMessage

    from langchain_workers_ai import ChatWorkersAI
    from workers_ai_emulator import Emulator

THINKING = "@cf/zai-org/glm-5.2"
NATIVE = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
HI = HumanMessage("hi")
CALL = {"name": "clock", "args": {"city": "Oslo"}, "id": "call_1", "type": "tool_call"}
RESULT = ToolMessage("14:02", tool_call_id="call_1")
WIRE_CALL = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": '{"city": "Oslo"}'}}
WIRE_RESULT = {"role": "tool", "content": "14:02", "tool_call_id": "call_1"}
WIRE_HI = {"role": "user", "content": "hi"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def assistant(content: str = "", *calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more, **({"tool_calls": list(calls)} if calls else {})}


ROWS: dict[str, tuple[list[BaseMessage], list[dict[str, Any]]]] = {
    # --- roles ---
    "system": ([SystemMessage("Be brief."), HI], [{"role": "system", "content": "Be brief."}, WIRE_HI]),
    "a message with a name": ([HumanMessage("hi", name="ann")], [{**WIRE_HI, "name": "ann"}]),
    "an assistant with a name": (
        [HI, AIMessage("yes", name="helper"), HI],
        [WIRE_HI, {**assistant("yes"), "name": "helper"}, WIRE_HI],
    ),
    "a role of the caller's own": ([ChatMessage("hi", role="user")], [WIRE_HI]),
    "two turns of one role": ([HI, HI], [WIRE_HI, WIRE_HI]),
    # --- content is always a string (we-promise/sure#467, zeroclaw-labs/zeroclaw#9493) ---
    "a call without text": (
        [HI, AIMessage("", tool_calls=[CALL]), RESULT],
        [WIRE_HI, assistant("", WIRE_CALL), WIRE_RESULT],
    ),
    "a call with no parts": (
        [HI, AIMessage([], tool_calls=[CALL]), RESULT],
        [WIRE_HI, assistant("", WIRE_CALL), WIRE_RESULT],
    ),
    "a call beside text": (
        # The text is not changed: no JSON of the call is added to it.
        [HI, AIMessage("Let me see.", tool_calls=[CALL]), RESULT],
        [WIRE_HI, assistant("Let me see.", WIRE_CALL), WIRE_RESULT],
    ),
    "a result without text": (
        [HI, AIMessage("", tool_calls=[CALL]), ToolMessage("", tool_call_id="call_1")],
        [WIRE_HI, assistant("", WIRE_CALL), {**WIRE_RESULT, "content": ""}],
    ),
    "an empty assistant": ([HI, AIMessage(""), HI], [WIRE_HI, assistant(""), WIRE_HI]),
    # --- one shape per request (anomalyco/opencode#30381) ---
    "parts of text": (
        [SystemMessage([text("Be brief.")]), HumanMessage([text("a"), text("b")])],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a\nb"}],
    ),
    "plain texts as parts": ([HumanMessage(["a", "b"])], [{"role": "user", "content": "a\nb"}]),
    "a text document in base64": (
        [HumanMessage([{"type": "text-plain", "base64": "RmrDuHJkcy4=", "mime_type": "text/plain"}])],
        [{"role": "user", "content": "Fjørds."}],
    ),
    "a text document": (
        [HumanMessage([text("Sum up:"), {"type": "text-plain", "text": "Fjords.", "mime_type": "text/plain"}])],
        [{"role": "user", "content": "Sum up:\nFjords."}],
    ),
    "an assistant's parts are one text": (
        [HI, AIMessage([text("Hel"), text("lo")]), HI],
        [WIRE_HI, assistant("Hello"), WIRE_HI],
    ),
    # --- calls (cloudflare/ai#263, #384; we-promise/sure#467) ---
    "arguments are text, unescaped": (
        [HI, AIMessage("", tool_calls=[{**CALL, "args": {"city": "Tromsø 北京"}}]), RESULT],
        [
            WIRE_HI,
            assistant("", {**WIRE_CALL, "function": {"name": "clock", "arguments": '{"city": "Tromsø 北京"}'}}),
            WIRE_RESULT,
        ],
    ),
    "results in another order than their calls": (
        [HI, AIMessage("", tool_calls=[CALL, {**CALL, "id": "c-B"}]), ToolMessage("B", tool_call_id="c-B"), RESULT],
        [
            WIRE_HI,
            assistant("", WIRE_CALL, {**WIRE_CALL, "id": "c-B"}),
            {**WIRE_RESULT, "content": "B", "tool_call_id": "c-B"},
            WIRE_RESULT,
        ],
    ),
    "an invalid call goes back as JSON": (
        [
            HI,
            AIMessage("", invalid_tool_calls=[{"name": "clock", "args": '{"city": Os', "id": "call_1", "error": "x"}]),
            ToolMessage("not JSON", tool_call_id="call_1", status="error"),
        ],
        [
            WIRE_HI,
            assistant(
                "",
                {**WIRE_CALL, "function": {"name": "clock", "arguments": '{"invalid_arguments": "{\\"city\\": Os"}'}},
            ),
            {**WIRE_RESULT, "content": "not JSON"},
        ],
    ),
    "a call nobody answered gets a result": (
        [HI, AIMessage("", tool_calls=[CALL]), HI],
        [
            WIRE_HI,
            assistant("", WIRE_CALL),
            {**WIRE_RESULT, "content": "No result: this call was not answered."},
            WIRE_HI,
        ],
    ),
    "old function_call": (
        [
            HI,
            AIMessage("", additional_kwargs={"function_call": {"name": "clock", "arguments": '{"city": "Oslo"}'}}),
            FunctionMessage("14:02", name="clock"),
        ],
        [WIRE_HI, assistant("", {**WIRE_CALL, "id": "clock"}), {**WIRE_RESULT, "tool_call_id": "clock"}],
    ),
    "summed chunks": (
        [
            HI,
            AIMessageChunk(
                "",
                tool_call_chunks=[
                    {"name": "clock", "args": '{"city": "Oslo"}', "id": "call_1", "index": 0, "type": "tool_call_chunk"}
                ],
            ),
            RESULT,
        ],
        [WIRE_HI, assistant("", WIRE_CALL), WIRE_RESULT],
    ),
    # --- results ---
    "a result of parts": (
        [HI, AIMessage("", tool_calls=[CALL]), ToolMessage([text("14"), text("02")], tool_call_id="call_1")],
        [WIRE_HI, assistant("", WIRE_CALL), {**WIRE_RESULT, "content": "14\n02"}],
    ),
    "a result of data": (
        [
            HI,
            AIMessage("", tool_calls=[CALL]),
            ToolMessage([{"type": "json", "json": {"ø": 1}}], tool_call_id="call_1"),
        ],
        [WIRE_HI, assistant("", WIRE_CALL), {**WIRE_RESULT, "content": '{"ø": 1}'}],
    ),
    "a result of data that looks like a block": (
        [
            HI,
            AIMessage("", tool_calls=[CALL]),
            ToolMessage(
                [{"type": "file", "size": 3}, {"type": "image", "id": 7}, {"type": "cat"}], tool_call_id="call_1"
            ),
        ],
        [
            WIRE_HI,
            assistant("", WIRE_CALL),
            {**WIRE_RESULT, "content": '{"type": "file", "size": 3}\n{"type": "image", "id": 7}\n{"type": "cat"}'},
        ],
    ),
    "a result with a name, an artifact and a status": (
        [
            HI,
            AIMessage("", tool_calls=[CALL]),
            ToolMessage("14:02", tool_call_id="call_1", name="clock", artifact={"a": 1}, status="success"),
        ],
        [WIRE_HI, assistant("", WIRE_CALL), {**WIRE_RESULT, "name": "clock"}],
    ),
    "a failure without words": (
        [HI, AIMessage("", tool_calls=[CALL]), ToolMessage("", tool_call_id="call_1", status="error")],
        [WIRE_HI, assistant("", WIRE_CALL), {**WIRE_RESULT, "content": "The tool failed without a message."}],
    ),
    # --- turns of another provider's class ---
    "Anthropic's blocks": (
        [
            HI,
            AIMessage(
                [text("Let me see."), {"type": "tool_use", "id": "call_1", "name": "clock", "input": {"city": "Oslo"}}],
                tool_calls=[CALL],
            ),
            HumanMessage([{"type": "tool_result", "tool_use_id": "call_1", "content": "14:02"}, text("Thanks.")]),
        ],
        [WIRE_HI, assistant("Let me see.", WIRE_CALL), WIRE_RESULT, {"role": "user", "content": "Thanks."}],
    ),
    "Bedrock's result before the mark of a cache": (
        [
            HI,
            AIMessage("", tool_calls=[CALL]),
            HumanMessage(
                [
                    {"toolResult": {"toolUseId": "call_1", "content": [{"text": "14:02"}]}},
                    {"cachePoint": {"type": "default"}},
                ]
            ),
        ],
        [WIRE_HI, assistant("", WIRE_CALL), WIRE_RESULT],
    ),
    "Anthropic's calls among its blocks alone": (
        [
            HI,
            AIMessage([{"type": "tool_use", "id": "call_1", "name": "clock", "input": {"city": "Oslo"}}]),
            RESULT,
        ],
        [WIRE_HI, assistant("", WIRE_CALL), WIRE_RESULT],
    ),
    "standard calls among the blocks alone": (
        [HI, AIMessage([text("Let me see."), CALL]), RESULT],
        [WIRE_HI, assistant("Let me see.", WIRE_CALL), WIRE_RESULT],
    ),
    "what another provider's own tools left": (
        [
            HI,
            AIMessage(
                [
                    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "fjords"}},
                    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
                    {"executable_code": {"code": "1 + 1"}},
                    text("Let me "),
                    {"type": "output_text", "text": "see."},
                ]
            ),
            HI,
        ],
        [WIRE_HI, assistant("Let me see."), WIRE_HI],
    ),
    "standard blocks": (
        [
            HI,
            AIMessage(
                content_blocks=[
                    text("Let me see."),
                    {"type": "tool_call", "id": "call_1", "name": "clock", "args": {"city": "Oslo"}},
                ]
            ),
            RESULT,
        ],
        [WIRE_HI, assistant("Let me see.", WIRE_CALL), WIRE_RESULT],
    ),
    "OpenAI's blocks of the Responses API": (
        [
            HI,
            AIMessage(
                [
                    {"type": "reasoning", "id": "rs_1", "summary": []},
                    {"type": "text", "text": "Let me see.", "annotations": [], "id": "msg_1"},
                    {"type": "function_call", "call_id": "call_1", "name": "clock", "arguments": '{"city": "Oslo"}'},
                ],
                tool_calls=[CALL],
            ),
            RESULT,
        ],
        [WIRE_HI, assistant("Let me see.", WIRE_CALL), WIRE_RESULT],
    ),
    "a refusal": (
        [HI, AIMessage([{"type": "refusal", "refusal": "I cannot."}]), HI],
        [WIRE_HI, assistant("I cannot."), WIRE_HI],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_messages(
    name: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Callable[..., Any]
) -> None:
    messages, wire = ROWS[name]
    before = copy.deepcopy(messages)
    answer = ask(chat(model=NATIVE, api=route), messages)
    assert answer.response_metadata["finish_reason"] == "stop"  # the service rejects this history with 400
    assert emulator.log.last.json["messages"] == wire
    assert messages == before, "the caller's messages were changed"


THOUGHTS = {
    "beside the text": AIMessage("4", additional_kwargs={"reasoning_content": "2 + 2"}),
    "beside the text, by its other name": AIMessage("4", additional_kwargs={"reasoning": "2 + 2"}),
    "standard block": AIMessage([{"type": "reasoning", "reasoning": "2 + 2"}, text("4")]),
    "Anthropic's block": AIMessage([{"type": "thinking", "thinking": "2 + 2", "signature": "s"}, text("4")]),
    "Bedrock's block": AIMessage([{"type": "reasoning_content", "reasoning_content": "2 + 2"}, text("4")]),
}


@pytest.mark.parametrize("form", THOUGHTS)
@pytest.mark.parametrize(("name", "sent"), [(THINKING, "2 + 2"), (NATIVE, None)], ids=["thinks", "does not"])
def test_reasoning_stays_out_of_the_text(
    form: str, name: str, sent: str | None, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    """If reasoning were in the text, the next turn would treat it as an answer (https://github.com/cloudflare/ai/pull/451)."""
    call(chat(model=name), "invoke", [HI, THOUGHTS[form], HI])
    turn = emulator.log.last.json["messages"][1]
    assert (turn["content"], turn.get("reasoning")) == ("4", sent)


def test_a_developer_message_is_sent_to_models_that_support_the_role(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    message = SystemMessage("Be brief.", additional_kwargs={"__openai_role__": "developer"})
    for name, role in ((THINKING, "developer"), (NATIVE, "system")):
        call(chat(model=name), "invoke", [message, HI])
        assert emulator.log.last.json["messages"][0] == {"role": role, "content": "Be brief."}


@pytest.mark.parametrize(
    "prompt",
    [
        "hi",
        [("user", "hi")],
        [{"role": "user", "content": "hi"}],
        ChatPromptTemplate([("user", "{word}")]).invoke({"word": "hi"}),
    ],
    ids=["text", "pairs", "dicts", "prompt value"],
)
def test_every_form_of_a_prompt(
    prompt: Any, chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Callable[..., Any]
) -> None:
    ask(chat(), prompt)
    assert emulator.log.last.json["messages"] == [WIRE_HI]


def test_an_invalid_message_is_rejected_before_sending(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Callable[..., Any]
) -> None:
    with pytest.raises(ours.BadRequestError, match="message 1 is a RemoveMessage"):
        ask(chat(), [HI, RemoveMessage(id="1")])
    assert emulator.log.entries == []


def test_a_stream_sends_the_same_request_as_a_complete_answer(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, call: Any
) -> None:
    messages = [HI, AIMessage("", tool_calls=[CALL]), RESULT]
    one = chat(model=NATIVE, api=route, temperature=0.5, stop=["x"])
    call(one, "invoke", messages)
    call(one, "stream", messages)
    whole, streamed = (entry.json for entry in emulator.log.entries)
    assert streamed.pop("stream") is True
    streamed.pop("stream_options", None)
    assert streamed == whole


def test_only_set_parameters_are_sent(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, call: Any
) -> None:
    call(chat(model=NATIVE, api=route), "invoke", "hi")
    body = emulator.log.last.json
    assert body == {"messages": [WIRE_HI]} | ({"model": NATIVE} if route == "chat_completions" else {})
    assert "null" not in json.dumps(body)
