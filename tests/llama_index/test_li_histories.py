"""Histories of other integrations, and images and documents of unknown kind, as sent to the service."""

from __future__ import annotations

import base64
import datetime
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from llama_index.core.base.llms.types import (
    CacheControl,
    CachePoint,
    ChatMessage,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from pydantic import BaseModel
from tests.fuzz.llama_index_histories import PIXEL, check, histories_and_routes
from tests.support import every_row

from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.llms.workers_ai import WorkersAI
    from tests.support import Caller

    from workers_ai_emulator import Emulator

    Make = Callable[..., WorkersAI]

VISION = "@cf/google/gemma-4-26b-a4b-it"
URL = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
CACHE_POINT = CachePoint(cache_control=CacheControl(type="ephemeral"))


def user(content: Any = "hold on") -> ChatMessage:
    return ChatMessage(role="user", content=content)


def called(*ids: str, **arguments: Any) -> ChatMessage:
    blocks = [ToolCallBlock(tool_call_id=call_id, tool_name="f", tool_kwargs=arguments) for call_id in ids]
    return ChatMessage(role="assistant", blocks=blocks)


def result(call_id: str, content: Any = "real") -> ChatMessage:
    return ChatMessage(role="tool", content=content, additional_kwargs={"tool_call_id": call_id})


def sent(emulator: Emulator) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = emulator.log.last.json["messages"]
    return messages


@pytest.mark.parametrize("method", ["chat", "stream_chat"])
@pytest.mark.parametrize("api", ["chat_completions", "run"])
def test_late_results_and_images_of_results(llm: Make, emulator: Emulator, call: Caller, method: str, api: str) -> None:
    history = [user(), called("q", "r"), result("r", [TextBlock(text="see"), ImageBlock(image=PIXEL)]), user()]
    call(llm(model=VISION, api=api), method, [*history, result("q"), user([ImageBlock(image=PIXEL)])])
    turns = sent(emulator)
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "tool", "user", "user", "user"]
    assert [turn["content"] for turn in turns[2:4]] == ["see", "real"]
    for place in (4, 6):
        assert turns[place]["content"][-1] == {"type": "image_url", "image_url": {"url": URL}}


@pytest.mark.parametrize("role", ["system", "user", "tool", "assistant"])
def test_cache_points_are_dropped(llm: Make, emulator: Emulator, role: str) -> None:
    marked = ChatMessage(
        role=role, blocks=[TextBlock(text="text"), CACHE_POINT], additional_kwargs={"tool_call_id": "q"}
    )
    llm().chat([user(), called("q"), marked] if role == "tool" else [marked, user()])
    assert next(turn["content"] for turn in sent(emulator) if turn["role"] == role) == "text"


class SdkCall(BaseModel):
    """A call in the form of a provider's SDK."""

    id: str
    function: dict[str, Any]


class GeminiCall:
    def __init__(self) -> None:
        self.name, self.args, self.id = "f", {"x": 1}, None


@every_row(
    "kept",
    [
        {"id": "q", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
        SdkCall(id="q", function={"name": "f", "arguments": {"x": 1}}),
        {"type": "function_call", "id": "fc_1", "call_id": "q", "name": "f", "arguments": '{"x": 1}'},
        {"type": "tool_use", "id": "q", "name": "f", "input": {"x": 1}},
        {"toolUseId": "q", "name": "f", "input": {"x": 1}},
        {"toolUse": {"toolUseId": "q", "name": "f", "input": {"x": 1}}},
        GeminiCall(),
        {"function": {"name": "f", "arguments": {"x": 1}}},
    ],
)
def test_calls_of_other_integrations_are_sent(llm: Make, emulator: Emulator, kept: Any) -> None:
    turn = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [kept]})
    has_id = not isinstance(kept, GeminiCall) and "q" in str(kept)
    answer = result("q") if has_id else ChatMessage(role="tool", content="real")
    llm().chat([user(), turn, answer])
    (call,) = sent(emulator)[1]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("f", {"x": 1})
    assert sent(emulator)[2:] == [{"role": "tool", "content": "real", "tool_call_id": call["id"]}]
    assert call["id"] == "q" or not has_id


def test_a_legacy_function_call(llm: Make, emulator: Emulator) -> None:
    turn = ChatMessage(role="assistant", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}})
    llm().chat([user(), turn, ChatMessage(role="function", content="real", additional_kwargs={"name": "f"})])
    assert [turn.get("tool_call_id") for turn in sent(emulator)[2:]] == [sent(emulator)[1]["tool_calls"][0]["id"]]


@pytest.mark.parametrize("kept", ["text", {"citations": []}, 5])
def test_calls_of_unknown_form_are_rejected(llm: Make, emulator: Emulator, kept: Any) -> None:
    with pytest.raises(BadRequestError, match=r"message 1 has a tool call of unknown form .* pass a ToolCallBlock"):
        llm().chat([user(), ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [kept]})])
    assert emulator.log.requests == 0


def test_arguments_are_sent_as_json_and_empty_thinking_is_left_out(llm: Make, emulator: Emulator) -> None:
    turn = called("q", x=float("nan"), y=float("inf"), at=datetime.date(2026, 11, 30), of=b"abc")
    turn.blocks.append(ThinkingBlock(content=None, additional_information={"signature": "s"}))
    llm(model=VISION).chat([user(), turn, result("q")])
    text = sent(emulator)[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(text, parse_constant=pytest.fail) == {"x": None, "y": None, "at": "2026-11-30", "of": "abc"}
    assert "reasoning" not in sent(emulator)[1]


@every_row("form", ["bytes", "wrapped base64", "url-safe", "data URL", "file", "untyped URL", "stream"])
def test_image_type_is_detected_from_bytes(llm: Make, emulator: Emulator, tmp_path: Any, form: str) -> None:
    (tmp_path / "image").write_bytes(PIXEL)
    encoded = base64.b64encode(PIXEL)
    block = {
        "bytes": lambda: ImageBlock(image=PIXEL, image_mimetype="application/octet-stream"),
        "wrapped base64": lambda: ImageBlock(image=base64.encodebytes(PIXEL)),
        "url-safe": lambda: ImageBlock(image=base64.urlsafe_b64encode(PIXEL).rstrip(b"=")),
        "data URL": lambda: ImageBlock(image=URL.encode()),
        "file": lambda: ImageBlock(path=tmp_path / "image"),
        "untyped URL": lambda: ImageBlock(url=f"data:;base64,{encoded.decode()}"),
        "stream": lambda: ImageBlock(image=io.BytesIO(PIXEL)),
    }[form]()
    for _ in range(2):
        llm(model=VISION).chat([user([TextBlock(text="see"), block])])
        assert sent(emulator)[0]["content"][1] == {"type": "image_url", "image_url": {"url": URL}}


def test_missing_file_raises_bad_request_error(llm: Make, tmp_path: Any) -> None:
    (tmp_path / "image").write_bytes(PIXEL)
    block = ImageBlock(path=tmp_path / "image")
    (tmp_path / "image").unlink()
    with pytest.raises(BadRequestError, match="content of a ImageBlock cannot be read"):
        llm(model=VISION).chat([user([block])])


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ("# Ferries\n14:02 ø".encode(), {"type": "text", "text": "# Ferries\n14:02 ø"}),
        (PIXEL, {"type": "image_url", "image_url": {"url": URL}}),
    ],
)
def test_documents_of_text_and_images_are_sent(llm: Make, emulator: Emulator, data: bytes, part: Any) -> None:
    llm(model=VISION).chat([user([ImageBlock(image=PIXEL), DocumentBlock(data=data)])])
    assert sent(emulator)[0]["content"][1] == part


@settings(max_examples=60, deadline=None)
@histories_and_routes
def test_random_histories_are_sent_as_legal_json_or_rejected(history: Any, model: str, api: str) -> None:
    check(history, model, api)
