"""Images in every form of LangChain become one ``image_url`` part; unsupported media are rejected."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from tests.support import every_row

import langchain_workers_ai as ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workers_ai import ChatWorkersAI
    from workers_ai_emulator import Emulator

VISION = "@cf/meta/llama-4-scout-17b-16e-instruct"
BASE64 = "iVBORw0KGgo="
RAW = base64.b64decode(BASE64)
PDF = "data:application/pdf;base64,JVBERi0="
DATA = f"data:image/png;base64,{BASE64}"
ASKED = {"type": "text", "text": "What is this?"}
PART = {"type": "image_url", "image_url": {"url": DATA}}
CALL = {"name": "look", "args": {}, "id": "call_1", "type": "tool_call"}

IMAGES = {
    "standard block": {"type": "image", "base64": BASE64, "mime_type": "image/png"},
    "standard block, data URL": {"type": "image", "url": DATA},
    "raw bytes": {"type": "image", "base64": RAW, "mime_type": "image/png"},
    "base64 as bytes": {"type": "image", "base64": BASE64.encode(), "mime_type": "image/png"},
    "a file": {"type": "file", "base64": BASE64, "mime_type": "image/png"},
    "Google's media": {"type": "media", "data": RAW, "mime_type": "image/png"},
    "older block": {"type": "image", "source_type": "base64", "data": BASE64, "mime_type": "image/png"},
    "older block, data URL": {"type": "image", "source_type": "url", "url": DATA},
    "OpenAI": {"type": "image_url", "image_url": {"url": DATA}},
    "OpenAI, bare": {"type": "image_url", "image_url": DATA},
    "Anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
    "Anthropic, no media type": {"type": "image", "source": {"type": "base64", "data": BASE64}},
    "Bedrock": {"image": {"format": "png", "source": {"bytes": RAW}}, "cache_control": {"type": "ephemeral"}},
    "Gemini": {"inlineData": {"mimeType": "image/png", "data": BASE64}},
    "OpenAI's Responses": {"type": "input_image", "image_url": DATA},
    "bare base64": {"type": "image_url", "image_url": BASE64},
    "any bytes": {"type": "image", "base64": BASE64, "mime_type": "application/octet-stream"},
}


@pytest.mark.parametrize("form", IMAGES)
def test_every_form_arrives(
    form: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Callable[..., Any]
) -> None:
    """https://github.com/cloudflare/ai/pull/435, https://github.com/anomalyco/opencode/pull/36850"""
    answer = ask(chat(model=VISION, api=route), [SystemMessage([ASKED]), HumanMessage([ASKED, IMAGES[form]])])
    system, user = emulator.log.last.json["messages"]
    assert system["content"] == "What is this?"
    assert user["content"] == [ASKED, PART]
    assert "1 image" in answer.text  # the fake model reports the number of images


def test_several_images_and_texts_keep_their_order(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Callable[..., Any]
) -> None:
    ask(chat(model=VISION), [HumanMessage([IMAGES["OpenAI"], ASKED, IMAGES["standard block"], "and this?"])])
    (user,) = emulator.log.last.json["messages"]
    assert user["content"] == [PART, ASKED, PART, {"type": "text", "text": "and this?"}]


def test_detail_and_other_image_options_are_kept(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    image = {"type": "image_url", "image_url": {"url": DATA, "detail": "low"}}
    call(chat(model=VISION), "invoke", [HumanMessage([ASKED, image])])
    assert emulator.log.last.json["messages"][0]["content"][1] == image


@pytest.mark.parametrize("mime", ["image/jpeg", "IMAGE/PNG", "image/webp"])
def test_media_types_are_matched_without_regard_to_case(
    mime: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    call(chat(model=VISION), "invoke", [HumanMessage([{"type": "image", "base64": BASE64, "mime_type": mime}])])
    (part,) = emulator.log.last.json["messages"][0]["content"]
    assert part["image_url"]["url"] == f"data:{mime};base64,{BASE64}"


def test_an_image_that_a_tool_returns(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Callable[..., Any]
) -> None:
    result = ToolMessage([{"type": "text", "text": "the map"}, IMAGES["standard block"]], tool_call_id="call_1")
    history = [HumanMessage("Look."), AIMessage("", tool_calls=[CALL]), result]
    ask(chat(model="@cf/moonshotai/kimi-k2.6", api=route), history)
    result, shown = emulator.log.last.json["messages"][2:]
    assert result == {"role": "tool", "content": "the map", "tool_call_id": "call_1"}
    assert (shown["role"], shown["content"][-1]) == ("user", PART)


@pytest.mark.parametrize(
    ("kind", "data"), {"jpeg": b"\xff\xd8\xff\xe0", "gif": b"GIF89a", "webp": b"RIFF\x00\x00\x00\x00WEBPVP8 "}.items()
)
def test_an_image_type_is_detected_from_its_bytes(
    kind: str, data: bytes, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    call(
        chat(model=VISION),
        "invoke",
        [HumanMessage([{"type": "image_url", "image_url": base64.b64encode(data).decode()}])],
    )
    (part,) = emulator.log.last.json["messages"][0]["content"]
    assert part["image_url"]["url"] == f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def test_images_are_rejected_for_models_without_vision_and_sent_to_unknown_models(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    seen = [HumanMessage([ASKED, PART])]
    with pytest.raises(ours.BadRequestError, match="gpt-oss-120b accepts only text"):
        call(chat(model="@cf/openai/gpt-oss-120b"), "invoke", seen)
    assert emulator.log.entries == []
    call(chat(model="openai/gpt-9-vision"), "invoke", seen)
    assert emulator.log.last.json["messages"][0]["content"] == [ASKED, PART]


NO_LINKS = "does not fetch links"
REFUSED = {
    "link, standard": ({"type": "image", "url": "https://example.org/cat.jpg"}, NO_LINKS),
    "link, OpenAI": ({"type": "image_url", "image_url": {"url": "https://example.org/cat.jpg"}}, NO_LINKS),
    "link, Anthropic": ({"type": "image", "source": {"type": "url", "url": "http://e.org/c.jpg"}}, NO_LINKS),
    "link inside a text of data": ({"type": "image_url", "image_url": "ftp://e.org/data:image/png"}, NO_LINKS),
    "a PDF as an image": ({"type": "image", "base64": "JVBERi0=", "mime_type": "application/pdf"}, "media type"),
    "a PDF as an image, OpenAI": ({"type": "image_url", "image_url": PDF}, "media type"),
    "no media type, Anthropic": ({"type": "image", "source": {"type": "base64", "data": "AAAA"}}, "media type"),
    "a file id": ({"type": "image", "file_id": "file-1"}, "'image'"),
    "PDF": ({"type": "file", "base64": "JVBERi0=", "mime_type": "application/pdf"}, "'file'"),
    "PDF, link": ({"type": "file", "url": "https://example.org/a.pdf", "mime_type": "application/pdf"}, "'file'"),
    "PDF, OpenAI": ({"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}, "'file'"),
    "audio": ({"type": "audio", "base64": "UklGRg==", "mime_type": "audio/wav"}, "'audio'"),
    "audio, OpenAI": ({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}, "audio'"),
    "video": ({"type": "video", "base64": "AAAA", "mime_type": "video/mp4"}, "'video'"),
}  # fmt: skip


@pytest.mark.parametrize("form", REFUSED)
@every_row("place", ["user", "tool"])
def test_unsupported_media_are_rejected_with_a_remedy(
    form: str, place: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Callable[..., Any]
) -> None:
    """https://github.com/cloudflare/ai/pull/563, https://github.com/zaidmukaddam/scira/issues/248"""
    block, says = REFUSED[form]
    history = [HumanMessage([ASKED, block])]
    if place == "tool":
        history = [HumanMessage("x"), AIMessage("", tool_calls=[CALL]), ToolMessage([block], tool_call_id="call_1")]
    with pytest.raises(ours.BadRequestError, match=says) as caught:
        ask(chat(model=VISION, api=route), history)
    assert "data: URL" in str(caught.value)
    assert "BORw0" not in str(caught.value)
    assert f"message {len(history) - 1}" in str(caught.value)
    assert emulator.log.entries == []
