"""Translate LangChain messages to OpenAI-shaped messages. Pure; the core adapts these to the service.

This module translates the common blocks of other providers. LangChain's own translators handle the rest. An unknown
block is passed on unchanged, and the core rejects it by its type. It is never sent as JSON or as Python text.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from langchain_core.messages import AIMessage, ChatMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage

from workers_ai.errors import BadRequestError
from workers_ai.integration import is_cache_mark, plain_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workers_ai._types import Data, Fields


__all__ = ["to_part", "to_wire"]

_REASONING: Final = frozenset(
    {"reasoning", "thinking", "reasoning_content", "reasoningContent", "redacted_thinking", "thought"}
)
_REASONING_KEYS: Final = (
    "text", "thinking", "reasoning", "reasoning_content", "reasoningContent", "reasoningText", "summary", "content",
)  # fmt: skip
"""Keys that hold the text of a reasoning block, in the forms of all providers."""
_TEXTS: Final = frozenset({"text", "text-plain", "output_text", "input_text"})
_IMAGES: Final = frozenset({"image", "image_url", "input_image", "image_generation_call"})
_ANSWER: Final = _TEXTS | _IMAGES
"""Blocks of an assistant's answer. Others, such as traces of a provider's own tools, are dropped."""
_CALLS: Final = {
    "tool_use": ("id", "input"),
    "tool_call": ("id", "args"),
    "function_call": ("call_id", "arguments"),
    "toolUse": ("toolUseId", "input"),
    "functionCall": ("id", "args"),
    "invalid_tool_call": ("id", "args"),
}
"""Types of tool call blocks, with the keys of id and arguments."""
_MEDIA: Final = _IMAGES | {"input_audio", "audio", "video", "file", "media", "document", "inlineData", "inline_data"}
_CARRIERS: Final = frozenset(
    {
        "base64",
        "data",
        "url",
        "source",
        "image_url",
        "input_audio",
        "file",
        "file_id",
        "file_uri",
        "bytes",
        "image",
        "result",
    }
)
"""Keys that hold the content of a media block. A mapping without these keys is data that only resembles a block."""


def to_wire(messages: Sequence[BaseMessage]) -> list[Fields]:
    """Return a conversation as OpenAI-shaped messages.

    Raises:
        BadRequestError: A message has an unsupported class.
    """
    wire: list[Fields] = []
    for index, message in enumerate(messages):
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
            wire.append({"role": "tool", "tool_call_id": message.name, "content": _result(message.content)})
        elif isinstance(message, ChatMessage):
            wire.append(_named(message.role, message))
        else:
            raise BadRequestError(
                f"message {index} is a {type(message).__name__}: use human, AI, system and tool messages"
            )
    return wire


def _named(role: str, message: BaseMessage) -> Fields:
    out: Fields = {"role": role, "content": _content(message.content)}
    if message.name:
        out["name"] = message.name
    return out


def _human(message: HumanMessage) -> list[Fields]:
    """Return the user message. Tool results among its blocks become tool messages before it."""
    if isinstance(message.content, str):
        return [_named("user", message)]
    results = [wire for block in message.content if (wire := _result_block(block))]
    if not results:
        return [_named("user", message)]
    rest = [block for block in message.content if not (_result_block(block) or is_cache_mark(block))]
    return [*results, {"role": "user", "content": _content(rest)}] if rest else results


def _result_block(block: Data) -> Fields | None:
    """Return the tool message of a result block of Anthropic or Bedrock; None for other blocks."""
    if not isinstance(block, Mapping):
        return None
    if block.get("type") == "tool_result":
        return _tool_result(block.get("tool_use_id"), block.get("content"), failed=bool(block.get("is_error")))
    result = block.get("toolResult")
    if isinstance(result, Mapping):
        return _tool_result(result.get("toolUseId"), result.get("content"), failed=result.get("status") == "error")
    return None


def _tool(message: ToolMessage) -> Fields:
    wire = _tool_result(message.tool_call_id, message.content, failed=message.status == "error")
    if message.name:
        wire["name"] = message.name
    return wire


def _tool_result(call_id: Data, content: Data, *, failed: bool) -> Fields:
    wire = {"role": "tool", "tool_call_id": call_id, "content": _result(content)}
    if failed and not wire["content"]:
        wire["content"] = "The tool failed without a message."
    return wire


def _result(content: Data) -> Data:
    """Return the content of a tool result. A dict that is not a content block is sent as JSON text."""
    if not isinstance(content, list):
        return content or ""
    return [_result_part(block) for block in content if not is_cache_mark(block)]


def _result_part(block: Data) -> Data:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, Mapping):
        data = block.get("json", block) if block.get("type") in ("json", None) else block
        kind = _kind(block)
        body = block.get(kind) if block.get("type") is None else block
        has_content = isinstance(body, Mapping) and not _CARRIERS.isdisjoint(body)
        if data is block and (kind in _TEXTS or (kind in _MEDIA and has_content)):
            return to_part(block)
        return {"type": "text", "text": plain_json(data)}
    return {"type": "text", "text": plain_json(block)}


def _assistant(message: AIMessage) -> Fields:
    content: Data = message.content
    reasoning = _reasoning_text(
        message.additional_kwargs.get("reasoning_content") or message.additional_kwargs.get("reasoning")
    )
    if isinstance(content, list):
        content, in_blocks = _answer_and_reasoning(content, message.response_metadata.get("model_provider"))
        reasoning = reasoning or in_blocks
    out: Fields = {"role": "assistant", "content": content}
    if message.name:
        out["name"] = message.name
    if reasoning:
        out["reasoning"] = reasoning
    if calls := _calls(message):
        out["tool_calls"] = calls
    return out


def _answer_and_reasoning(blocks: Iterable[Data], provider: str | None) -> tuple[Data, str]:
    """Return the content to send back, and the reasoning among the blocks."""
    answer: list[Data] = []
    reasoning: list[str] = []
    for block in blocks:
        given = _mapping(block).get("value", block) if _kind(block) == "non_standard" else block
        known = isinstance(given, str) or _kind(given) in _ANSWER | _REASONING
        translated: list[Data] = [given] if known else _translated(given, provider)
        for block in translated:
            kind = "text" if isinstance(block, str) else _kind(block)
            if kind in _REASONING:
                reasoning.append(_reasoning_text(block))
            elif kind == "refusal" and not isinstance(block, str):
                answer.append({"type": "text", "text": str(_mapping(block).get("refusal") or "")})
            elif kind in _ANSWER or kind in _MEDIA:
                answer.append(to_part(block))
    return answer or "", "".join(reasoning)


def _reasoning_text(block: Data) -> str:
    """Return the text of a reasoning block of any provider; "" if it is encrypted or empty."""
    if isinstance(block, str):
        return block
    if isinstance(block, list):
        return "".join(map(_reasoning_text, block))
    if isinstance(block, Mapping):
        return next((text for key in _REASONING_KEYS if (text := _reasoning_text(block.get(key)))), "")
    return ""


def _calls(message: AIMessage) -> list[Fields]:
    calls = [_call(call.get("id"), call["name"], call["args"]) for call in message.tool_calls]
    calls += [_call(call.get("id"), call.get("name"), call.get("args")) for call in message.invalid_tool_calls]
    if not calls and isinstance(legacy := message.additional_kwargs.get("function_call"), dict):
        calls.append(_call(legacy.get("name"), legacy.get("name"), legacy.get("arguments")))
    if not calls and isinstance(message.content, list):
        calls = [call for block in message.content if (call := _call_block(block))]
    return calls


def _call_block(block: Data) -> Fields | None:
    fields, kind = _mapping(block), _kind(block)
    if kind is None or kind not in _CALLS:
        return None
    body = fields if fields.get("type") is not None else fields[kind]
    call_id, arguments = _CALLS[kind]
    if not isinstance(body, Mapping):
        return None
    return _call(
        body.get(call_id) or body.get("id"), body.get("name"), body.get(arguments, body.get("args", body.get("input")))
    )


def _call(call_id: Data, name: Data, arguments: Data) -> Fields:
    text = arguments if isinstance(arguments, str) else plain_json({} if arguments is None else arguments)
    return {"id": call_id, "type": "function", "function": {"name": name or "", "arguments": text}}


def _mapping(block: Data) -> Mapping[str, Data]:
    """Return the fields of a block; an empty mapping for other values."""
    return block if isinstance(block, Mapping) else {}


def _kind(block: Data) -> str | None:
    """Return the type of a block. Blocks of Bedrock and Gemini use a key, such as ``image``, in place of a type."""
    if not isinstance(block, Mapping):
        return None
    kind = block.get("type")
    if kind is not None:
        return kind if isinstance(kind, str) else None
    if block.get("thought") is True:
        return "thought"
    return next((key for key in ("text", *_REASONING, *_CALLS, *_MEDIA) if key in block), None)


def _content(content: str | Iterable[Data]) -> Data:
    if isinstance(content, str):
        return content
    # The service accepts reasoning in assistant messages only.
    return [to_part(block) for block in content if not is_cache_mark(block) and _kind(block) not in _REASONING]


def to_part(block: Data) -> Data:
    """Return a content block as an OpenAI part. An unsupported block is returned unchanged; the core rejects it."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if not isinstance(block, Mapping):
        return block
    kind = _kind(block)
    if kind in _IMAGES or (kind in _MEDIA and _is_image(block)):
        return _image(block)
    if kind == "text-plain" and not isinstance(block.get("text"), str):
        return _plain_text(block)
    if kind in _TEXTS:
        return {"type": "text", "text": block.get("text")}
    for standard in _translated(block):
        if _mapping(standard).get("type") in ("text", "text-plain", "image") and standard is not block:
            return to_part(standard)
    return {**block, "type": kind} if kind is not None else dict(block)


def _translated(block: Data, provider: str | None = None) -> list[Data]:
    """Return LangChain's standard blocks for a block of a provider; the block itself if no translator supports it."""
    if not isinstance(block, Mapping) or _kind(block) in _CALLS:
        return []
    bare = {key: value for key, value in block.items() if key not in ("cache_control", "cachePoint")}
    try:
        if provider:
            metadata = {"model_provider": provider}
            blocks: Sequence[Mapping[str, Data]] = AIMessage(content=[bare], response_metadata=metadata).content_blocks
        else:
            blocks = HumanMessage(content=[bare]).content_blocks
    except (TypeError, ValueError, LookupError, AttributeError):  # raised by translators for unexpected blocks
        return [block]
    return [found.get("value", block) if found.get("type") == "non_standard" else found for found in blocks] or [block]


def _plain_text(block: Mapping[str, Data]) -> Fields:
    """Return a document with base64 text as a text part."""
    data = block.get("base64") or block.get("data")
    if not isinstance(data, (str, bytes)):
        return dict(block)
    try:
        return {"type": "text", "text": base64.b64decode(data, validate=True).decode()}
    except ValueError:
        return dict(block)


def _is_image(block: Mapping[str, Data]) -> bool:
    """Return whether the media type of a file block is that of an image."""
    body: Data = block
    for key in ("inlineData", "inline_data"):
        body = block.get(key, body)
    if not isinstance(body, Mapping):
        return False
    kind = body.get("mime_type") or body.get("mimeType") or body.get("media_type")
    return isinstance(kind, str) and kind.lower().startswith("image/")


def _image(block: Mapping[str, Data]) -> Data:
    """Return an image block of LangChain or of another provider as an ``image_url`` part."""
    given = block.get("image_url")
    if given is not None:
        detail = {"detail": block["detail"]} if "detail" in block else {}
        return {"type": "image_url", "image_url": {**given, **detail} if isinstance(given, Mapping) else given}
    data, kind, url = _image_source(block)
    if isinstance(data, (bytes, bytearray)):
        data = (data if data.isascii() else base64.b64encode(data)).decode()  # base64 is ASCII; image files are not
    if data:
        # Without a media type, the core detects it from the first bytes.
        marked = data if data[:5].lower() == "data:" else f"data:{kind or ''};base64,{data}"
        return {"type": "image_url", "image_url": {"url": marked}}
    if url:
        return {"type": "image_url", "image_url": {"url": url}}
    return {**block, "type": _kind(block)}


def _image_source(block: Mapping[str, Data]) -> tuple[str | bytes | bytearray | None, Data, Data]:
    """Return data, media type and URL of an image block of any form."""
    body = dict(block)
    for key in ("image", "inlineData", "inline_data", "source"):
        if isinstance(inner := body.get(key), Mapping):
            body.update(inner)
    kind = body.get("mime_type") or body.get("mimeType") or body.get("media_type")
    if kind is None and isinstance(body.get("format"), str):
        kind = f"image/{body['format']}"
    values = (body.get(key) for key in ("base64", "data", "bytes", "image", "result"))
    data = next((value for value in values if value and isinstance(value, (str, bytes, bytearray))), None)
    return data, kind, body.get("url")
