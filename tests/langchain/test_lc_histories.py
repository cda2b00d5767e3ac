"""Histories from other providers and earlier versions: each block in each role (B131, B133, B134, B137)."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel
from tests.support import every_row

import langchain_workers_ai as ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workers_ai import ChatWorkersAI
    from workers_ai_emulator import Emulator

VISION = "@cf/moonshotai/kimi-k2.6"
PNG = b"\x89PNG\r\n\x1a\n"
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
HI = HumanMessage("hi")
PART = {"type": "image_url", "image_url": {"url": URL}}
IMAGE = {"type": "image", "base64": base64.b64encode(PNG).decode(), "mime_type": "image/png"}


def called(*ids: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "look", "args": args, "id": call_id} for call_id in ids])


def result(content: Any, call_id: str = "q") -> ToolMessage:
    return ToolMessage(content, tool_call_id=call_id)


def brief(turns: list[dict[str, Any]]) -> list[str]:
    """Return the role and the call or text of each turn."""
    return [
        f"{turn['role']} {turn.get('tool_call_id', '')}:{turn['content'] if isinstance(turn['content'], str) else '+'}"
        for turn in turns
    ]


WAITED = "No result: this call was not answered."
ORDERS = {
    "a result after the user's word": (
        [HI, called("q"), HumanMessage("hold on"), result("real"), HI],
        ["user :hi", "assistant :", "tool q:real", "user :hold on", "user :hi"],
    ),
    "a result after another turn": (
        [HI, called("q", "r"), result("R", "r"), AIMessage("thinking"), result("Q")],
        ["user :hi", "assistant :", "tool r:R", "tool q:Q", "assistant :thinking"],
    ),
    "two results for one call": (
        [HI, called("q"), result("wait"), HI, result("real"), result("real")],
        ["user :hi", "assistant :", "tool q:wait\nreal", "user :hi"],
    ),
    "an id that two turns use": (
        [HI, called("q"), called("q"), result("second"), HI],
        ["user :hi", "assistant :", f"tool q:{WAITED}", "assistant :", "tool q:second", "user :hi"],
    ),
    "images behind all results of the turn": (
        [HI, called("q", "r"), result([{"type": "text", "text": "see"}, IMAGE]), HI, result("R", "r")],
        ["user :hi", "assistant :", "tool q:see", "tool r:R", "user :+", "user :hi"],
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_results_follow_their_calls(
    name: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Callable[..., Any]
) -> None:
    history, turns = ORDERS[name]
    ask(chat(model=VISION, api=route), history)
    assert brief(emulator.log.last.json["messages"]) == turns


NOTHING: dict[str, Any] = {"content": ""}
THOUGHT = {"content": "", "reasoning": "hm"}
FOREIGN: dict[str, tuple[dict[Any, Any], Any, Any, Any]] = {
    # a block, then its form in a user, an assistant and a tool turn; a str is the name in the error
    "Bedrock's cache mark": ({"cachePoint": {"type": "default"}}, "", NOTHING, ""),
    "a typed cache mark": ({"type": "cache_point"}, "", NOTHING, ""),
    "Anthropic's cache mark": ({"cache_control": {"type": "ephemeral"}}, "", NOTHING, ""),
    "a marked text": ({"text": "a", "cache_control": {"type": "ephemeral"}}, "a", {"content": "a"}, "a"),
    "Bedrock's text document": (
        {"document": {"format": "txt", "name": "n", "source": {"text": "a"}}}, "a", {"content": "a"}, "a"
    ),
    "Anthropic's text document": (
        {"type": "document", "source": {"type": "text", "data": "a"}}, "a", {"content": "a"}, "a"
    ),
    "Bedrock's PDF": (
        {"document": {"format": "pdf", "source": {"bytes": b"%PDF"}}}, ["document"], ["file"], ["document"]
    ),
    "Bedrock's guarded text": ({"guardContent": {"text": {"text": "a"}}}, ["guardContent"], NOTHING, None),
    "Bedrock's thought": ({"reasoningContent": {"reasoningText": {"text": "hm"}}}, "", THOUGHT, None),
    "LangChain's of Bedrock": (
        {"type": "reasoning_content", "reasoning_content": {"text": "hm", "signature": "s"}}, "", THOUGHT, None
    ),
    "Mistral's thought": ({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, "", THOUGHT, None),
    "Mistral's reference": ({"type": "reference", "reference_ids": [1]}, ["reference"], NOTHING, None),
    "OpenAI's thought": ({"type": "reasoning", "summary": [{"text": "hm"}]}, "", THOUGHT, None),
    "a hidden thought": ({"type": "redacted_thinking", "data": "x"}, "", NOTHING, None),
    "Gemini's thought": ({"text": "hm", "thought": True}, "", THOUGHT, None),
    "Gemini's PDF": (
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
        ["inlineData"], ["inlineData"], ["inlineData"],
    ),
    "OpenAI's file": ({"type": "input_file", "file_id": "f"}, ["input_file"], NOTHING, None),
    "an unknown block": ({"type": "weather", "sun": 1}, ["weather"], NOTHING, '{"type": "weather", "sun": 1}'),
    "a block without type": ({"sun": float("nan")}, ["sun"], NOTHING, '{"sun": null}'),
}  # fmt: skip


@every_row("name", FOREIGN)
@every_row("role", ["user", "system", "assistant", "tool"])
def test_a_block_of_another_provider(
    name: str, role: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator
) -> None:
    block, user, assistant, tool = FOREIGN[name]
    wanted = {"assistant": assistant, "tool": tool}.get(role, user)
    message: Any = {
        "user": HumanMessage([block]), "system": SystemMessage([block]), "assistant": AIMessage([block]),
        "tool": result([block]),
    }[role]  # fmt: skip
    history = [HI, called("q"), message] if role == "tool" else [message, HI]
    if isinstance(wanted, list):
        before = emulator.log.requests
        with pytest.raises(ours.BadRequestError, match=wanted[0]):
            chat(model=VISION).invoke(history)
        assert emulator.log.requests == before
        return
    chat(model=VISION).invoke(history)
    sent = emulator.log.last.json["messages"][history.index(message)]
    if wanted is not None:
        content = wanted if isinstance(wanted, dict) else {"content": wanted}
        assert sent == {"role": role, **content, **({"tool_call_id": "q"} if role == "tool" else {})}


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_an_image_outside_a_user_turn_moves_to_a_user_turn(
    role: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    made = SystemMessage(["Look.", IMAGE]) if role == "system" else AIMessage(["Look.", IMAGE])
    call(chat(model=VISION), "invoke", [made, HI])
    first, shown, hi = emulator.log.last.json["messages"]
    assert (first, hi["content"]) == ({"role": role, "content": "Look."}, "hi")
    assert (shown["role"], shown["content"][-1]) == ("user", PART)


class Place(BaseModel):
    x: float = float("inf")


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (float("nan"), None),
        (float("-inf"), None),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (b"ab", "ab"),
        (b"\xff", "_w=="),
        (Decimal("1.5"), "1.5"),
        ({1}, [1]),
        (Place(), {"x": None}),
        ({datetime.date(2026, 1, 2): (1,)}, {"2026-01-02": [1]}),
    ],
    ids=str,
)
def test_replayed_arguments_are_json(value: Any, sent: Any, chat: Callable[..., ChatWorkersAI], emulator: Any) -> None:
    made = called("q")
    made.tool_calls[0]["args"] = {"a": value, "ø": 1}
    chat(model=VISION).invoke([HI, made, result("x")])
    text = emulator.log.last.json["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(text, parse_constant=pytest.fail) == {"a": sent, "ø": 1}


@pytest.mark.parametrize("text", ['{"x": NaN}', '{"x": Infinity}'])
def test_replayed_text_that_is_not_json_is_wrapped(
    text: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator
) -> None:
    made = AIMessage("", invalid_tool_calls=[{"name": "look", "args": text, "id": "q", "error": "x"}])
    chat(model=VISION).invoke([HI, made, result("x")])
    sent = emulator.log.last.json["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"invalid_arguments": text}
