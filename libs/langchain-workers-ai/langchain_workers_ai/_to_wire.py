"""From LangChain messages to the OpenAI-shaped dicts the core takes. Pure; the core makes them fit the service."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, ChatMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage

from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_core.messages import BaseMessage

__all__ = ["to_part", "to_wire"]

_THOUGHTS: Final = {"reasoning": "reasoning", "thinking": "thinking", "reasoning_content": "reasoning_content"}
_ANSWER: Final = frozenset({"text", "text-plain", "output_text", "image", "image_url"})
"""Blocks that are an assistant's answer. Others, such as what a provider's own tools left, are no words of its."""
_CALLS: Final = {"tool_use": "input", "tool_call": "args"}
"""Blocks that are calls, and where their arguments stand."""
_MEDIA: Final = frozenset({"image", "image_url", "input_audio", "audio", "video", "file", "media", "document"})
_CARRIERS: Final = frozenset(
    {"base64", "data", "url", "source", "image_url", "input_audio", "file", "file_id", "file_uri"}
)
"""What a block of such a type has its content in; without any, it is data that merely looks like a block."""


def to_wire(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Translate a conversation.

    Raises:
        BadRequestError: A message is of a kind that no model takes.
    """
    wire: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, HumanMessage):
            wire += _human(message)
        elif isinstance(message, AIMessage):
            wire.append(_assistant(message))
        elif isinstance(message, SystemMessage):
            role = message.additional_kwargs.get("__openai_role__", "system")
            wire.append(_named(role, message))
        elif isinstance(message, ToolMessage):
            wire.append(_tool(message))
        elif isinstance(message, FunctionMessage):
            wire.append({"role": "tool", "tool_call_id": message.name, "content": _content(message.content)})
        elif isinstance(message, ChatMessage):
            wire.append(_named(message.role, message))
        else:
            raise BadRequestError(f"a {type(message).__name__} cannot be sent to a model")
    return wire


def _named(role: str, message: BaseMessage) -> dict[str, Any]:
    out: dict[str, Any] = {"role": role, "content": _content(message.content)}
    if message.name:
        out["name"] = message.name
    return out


def _human(message: HumanMessage) -> list[dict[str, Any]]:
    """One user message; Anthropic-style tool results among its blocks become tool messages before it."""
    if isinstance(message.content, str):
        return [_named("user", message)]
    results = [block for block in message.content if isinstance(block, dict) and block.get("type") == "tool_result"]
    if not results:
        return [_named("user", message)]
    wire = [
        {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": _content(block.get("content") or "")}
        for block in results
    ]
    rest = [block for block in message.content if block not in results]
    return [*wire, {"role": "user", "content": _content(rest)}] if rest else wire


def _tool(message: ToolMessage) -> dict[str, Any]:
    content = message.content
    if isinstance(content, list):
        content = [_json_as_text(block) for block in content]
    wire = {"role": "tool", "tool_call_id": message.tool_call_id, "content": _content(content)}
    if message.status == "error" and not wire["content"]:
        wire["content"] = "The tool failed and said nothing."
    if message.name:
        wire["name"] = message.name
    return wire


def _json_as_text(block: Any) -> Any:
    """A tool's own data among content blocks, as text: a listing of files has types, too."""
    if not isinstance(block, dict):
        return block
    kind = block.get("type")
    if kind in ("text", "text-plain") or (kind in _MEDIA and not _CARRIERS.isdisjoint(block)):
        return block
    data = block.get("json", block) if kind == "json" else block
    return {"type": "text", "text": json.dumps(data, ensure_ascii=False, default=str)}


def _assistant(message: AIMessage) -> dict[str, Any]:
    content: Any = message.content
    reasoning = message.additional_kwargs.get("reasoning_content") or message.additional_kwargs.get("reasoning")
    if isinstance(content, list):
        content, thoughts = _answer_and_thoughts(content)
        reasoning = reasoning or thoughts
    out: dict[str, Any] = {"role": "assistant", "content": content}
    if message.name:
        out["name"] = message.name
    if isinstance(reasoning, str) and reasoning:
        out["reasoning"] = reasoning
    if calls := _calls(message):
        out["tool_calls"] = calls
    return out


def _answer_and_thoughts(blocks: Iterable[str | Mapping[str, Any]]) -> tuple[Any, str]:
    """Content to send back, and the reasoning that stood among it."""
    answer: list[Any] = []
    thoughts: list[str] = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(block, dict) and kind in _THOUGHTS:
            thoughts.append(str(block.get(_THOUGHTS[kind]) or ""))
        elif isinstance(block, dict) and kind == "refusal":
            answer.append({"type": "text", "text": str(block.get("refusal") or "")})
        elif kind in _ANSWER or isinstance(block, str) or (kind is None and "text" in block):
            answer.append(to_part(block))
    return answer or "", "".join(thoughts)


def _calls(message: AIMessage) -> list[dict[str, Any]]:
    calls = [_call(call.get("id"), call["name"], _as_json(call["args"])) for call in message.tool_calls]
    calls += [_call(call.get("id"), call.get("name"), call.get("args")) for call in message.invalid_tool_calls]
    if not calls and isinstance(legacy := message.additional_kwargs.get("function_call"), dict):
        calls.append(_call(legacy.get("name"), legacy.get("name"), legacy.get("arguments")))
    if not calls and isinstance(message.content, list):
        calls = [
            _call(block.get("id"), block.get("name"), _as_json(block.get(_CALLS[block["type"]])))
            for block in message.content
            if isinstance(block, dict) and block.get("type") in _CALLS
        ]
    return calls


def _as_json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)


def _call(call_id: str | None, name: str | None, arguments: str | None) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name or "", "arguments": arguments or ""}}


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [to_part(block) for block in content]


def to_part(block: str | Mapping[str, Any]) -> dict[str, Any]:
    """A content block as an OpenAI part. What the service does not take stays as it is; the core refuses it by name."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = block.get("type")
    media_type = str(block.get("mime_type")).lower()
    if kind == "image" or (kind in ("file", "media") and media_type.startswith("image/")):
        return _image(block)
    if kind == "text-plain" and not isinstance(block.get("text"), str):
        return _plain_text(block)
    if kind in ("text", "text-plain", "output_text") or (kind is None and "text" in block):
        return {"type": "text", "text": block.get("text")}
    return dict(block)


def _plain_text(block: Mapping[str, Any]) -> dict[str, Any]:
    """The text of a document that carries it as base64."""
    try:
        return {"type": "text", "text": base64.b64decode(block.get("base64") or block["data"], validate=True).decode()}
    except (KeyError, TypeError, ValueError):
        return dict(block)


def _image(block: Mapping[str, Any]) -> dict[str, Any]:
    """An image of any of LangChain's forms, or Anthropic's, as an ``image_url`` part."""
    source = block.get("source")
    if isinstance(source, dict):
        block = {"base64": source.get("data"), "mime_type": source.get("media_type"), "url": source.get("url")}
    data = block.get("base64") or block.get("data")
    if isinstance(data, bytes):
        data = (data if data.isascii() else base64.b64encode(data)).decode()  # base64 is ASCII, no image is
    if data:
        # No media type is guessed: the core refuses what is not marked as an image.
        return {"type": "image_url", "image_url": {"url": f"data:{block.get('mime_type') or ''};base64,{data}"}}
    if url := block.get("url"):
        return {"type": "image_url", "image_url": {"url": url}}
    return dict(block)
