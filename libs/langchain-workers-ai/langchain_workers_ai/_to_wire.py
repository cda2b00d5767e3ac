"""From LangChain messages to the OpenAI-shaped dicts the core takes. Pure; the core makes them fit the service.

Blocks of other providers are read here where their form is common, else by LangChain's own translators. A block that
neither knows stays as it is, and the core rejects it by name: it is never sent as JSON or as Python text.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, ChatMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage

from workers_ai.errors import BadRequestError
from workers_ai.integration import is_cache_mark, plain_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.messages import BaseMessage

__all__ = ["to_part", "to_wire"]

_THOUGHTS: Final = frozenset(
    {"reasoning", "thinking", "reasoning_content", "reasoningContent", "redacted_thinking", "thought"}
)
_WORDS: Final = (
    "text", "thinking", "reasoning", "reasoning_content", "reasoningContent", "reasoningText", "summary", "content",
)  # fmt: skip
"""Where the words of a thought stand, whichever provider wrote it."""
_TEXTS: Final = frozenset({"text", "text-plain", "output_text", "input_text"})
_IMAGES: Final = frozenset({"image", "image_url", "input_image", "image_generation_call"})
_ANSWER: Final = _TEXTS | _IMAGES
"""Blocks that are an assistant's answer. Others, such as traces of a provider's own tools, are left out."""
_CALLS: Final = {
    "tool_use": ("id", "input"),
    "tool_call": ("id", "args"),
    "function_call": ("call_id", "arguments"),
    "toolUse": ("toolUseId", "input"),
    "functionCall": ("id", "args"),
    "invalid_tool_call": ("id", "args"),
}
"""Blocks that are calls, and where their id and their arguments stand."""
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
            wire.append({"role": "tool", "tool_call_id": message.name, "content": _result(message.content)})
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


# --- user and tool turns ---


def _human(message: HumanMessage) -> list[dict[str, Any]]:
    """One user message; another provider's tool results among its blocks become tool messages before it."""
    if isinstance(message.content, str):
        return [_named("user", message)]
    results = [wire for block in message.content if (wire := _result_block(block))]
    if not results:
        return [_named("user", message)]
    rest = [block for block in message.content if not _result_block(block)]
    return [*results, {"role": "user", "content": _content(rest)}] if rest else results


def _result_block(block: Any) -> dict[str, Any] | None:
    """The tool message of a result that stands in a user's turn, as Anthropic and Bedrock have it; None for another."""
    if not isinstance(block, Mapping):
        return None
    if block.get("type") == "tool_result":
        return _tool_result(block.get("tool_use_id"), block.get("content"), failed=bool(block.get("is_error")))
    result = block.get("toolResult")
    if isinstance(result, Mapping):
        return _tool_result(result.get("toolUseId"), result.get("content"), failed=result.get("status") == "error")
    return None


def _tool(message: ToolMessage) -> dict[str, Any]:
    wire = _tool_result(message.tool_call_id, message.content, failed=message.status == "error")
    if message.name:
        wire["name"] = message.name
    return wire


def _tool_result(call_id: Any, content: Any, *, failed: bool) -> dict[str, Any]:
    wire = {"role": "tool", "tool_call_id": call_id, "content": _result(content)}
    if failed and not wire["content"]:
        wire["content"] = "The tool failed and said nothing."
    return wire


def _result(content: Any) -> Any:
    """The content of a tool's result; a tool's own data among its blocks becomes text, since it may have types, too."""
    if not isinstance(content, list):
        return content or ""
    return [_result_part(block) for block in content if not is_cache_mark(block)]


def _result_part(block: Any) -> Any:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, Mapping):
        data = block.get("json", block) if block.get("type") in ("json", None) else block
        kind = _kind(block)
        body = block.get(kind) if block.get("type") is None else block
        carried = isinstance(body, Mapping) and not _CARRIERS.isdisjoint(body)
        if data is block and (kind in _TEXTS or (kind in _MEDIA and carried)):
            return to_part(block)
        return {"type": "text", "text": plain_json(data)}
    return {"type": "text", "text": plain_json(block)}


# --- assistant turns ---


def _assistant(message: AIMessage) -> dict[str, Any]:
    content: Any = message.content
    reasoning = _words(message.additional_kwargs.get("reasoning_content") or message.additional_kwargs.get("reasoning"))
    if isinstance(content, list):
        content, thoughts = _answer_and_thoughts(content, message.response_metadata.get("model_provider"))
        reasoning = reasoning or thoughts
    out: dict[str, Any] = {"role": "assistant", "content": content}
    if message.name:
        out["name"] = message.name
    if reasoning:
        out["reasoning"] = reasoning
    if calls := _calls(message):
        out["tool_calls"] = calls
    return out


def _answer_and_thoughts(blocks: Iterable[Any], provider: Any) -> tuple[Any, str]:
    """Content to send back, and the reasoning that stood among it."""
    answer: list[Any] = []
    thoughts: list[str] = []
    for block in blocks:
        given = block["value"] if _kind(block) == "non_standard" and "value" in block else block
        known = isinstance(given, str) or _kind(given) in _ANSWER | _THOUGHTS
        for block in [given] if known else _translated(given, provider):
            kind = "text" if isinstance(block, str) else _kind(block)
            if kind in _THOUGHTS:
                thoughts.append(_words(block))
            elif kind == "refusal":
                answer.append({"type": "text", "text": str(block.get("refusal") or "")})
            elif kind in _ANSWER or kind in _MEDIA:
                answer.append(to_part(block))
    return answer or "", "".join(thoughts)


def _words(thought: Any) -> str:
    """The text of a thought in any provider's form; "" where it is encrypted or empty."""
    if isinstance(thought, str):
        return thought
    if isinstance(thought, list):
        return "".join(map(_words, thought))
    if isinstance(thought, Mapping):
        return next((words for key in _WORDS if (words := _words(thought.get(key)))), "")
    return ""


def _calls(message: AIMessage) -> list[dict[str, Any]]:
    calls = [_call(call.get("id"), call["name"], call["args"]) for call in message.tool_calls]
    calls += [_call(call.get("id"), call.get("name"), call.get("args")) for call in message.invalid_tool_calls]
    if not calls and isinstance(legacy := message.additional_kwargs.get("function_call"), dict):
        calls.append(_call(legacy.get("name"), legacy.get("name"), legacy.get("arguments")))
    if not calls and isinstance(message.content, list):
        calls = [call for block in message.content if (call := _call_block(block))]
    return calls


def _call_block(block: Any) -> dict[str, Any] | None:
    kind = _kind(block)
    if kind not in _CALLS:
        return None
    body = block if block.get("type") is not None else block[kind]
    call_id, arguments = _CALLS[kind]
    if not isinstance(body, Mapping):
        return None
    return _call(
        body.get(call_id) or body.get("id"), body.get("name"), body.get(arguments, body.get("args", body.get("input")))
    )


def _call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else plain_json({} if arguments is None else arguments)
    return {"id": call_id, "type": "function", "function": {"name": name or "", "arguments": text}}


# --- blocks ---


def _kind(block: Any) -> Any:
    """The type of a block, or what its one telling key says where it has no type, as in Bedrock's and Gemini's form."""
    if not isinstance(block, Mapping):
        return None
    kind = block.get("type")
    if kind is not None:
        return kind if isinstance(kind, str) else None
    if block.get("thought") is True:
        return "thought"
    return next((key for key in ("text", *_THOUGHTS, *_CALLS, *_MEDIA) if key in block), None)


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    # A thought in a turn that is not the model's own has no place on the wire.
    return [to_part(block) for block in content if not is_cache_mark(block) and _kind(block) not in _THOUGHTS]


def to_part(block: Any) -> Any:
    """A content block as an OpenAI part. What the service does not take stays as it is; the core rejects it by name."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = _kind(block)
    if kind in _IMAGES or (kind in _MEDIA and _is_image(block)):
        return _image(block)
    if kind == "text-plain" and not isinstance(block.get("text"), str):
        return _plain_text(block)
    if kind in _TEXTS:
        return {"type": "text", "text": block.get("text")}
    if not isinstance(block, Mapping):
        return block
    for standard in _translated(block):
        if standard.get("type") in ("text", "text-plain", "image") and standard is not block:
            return to_part(standard)
    return {**block, "type": kind} if kind is not None else dict(block)


def _translated(block: Any, provider: Any = None) -> list[Any]:
    """The standard blocks that LangChain's translators make of a provider's block; the block itself where none can."""
    if not isinstance(block, Mapping) or _kind(block) in _CALLS:
        return []
    bare = {key: value for key, value in block.items() if key not in ("cache_control", "cachePoint")}
    try:
        if provider:
            metadata = {"model_provider": provider}
            blocks: list[Any] = AIMessage(content=[bare], response_metadata=metadata).content_blocks
        else:
            blocks = HumanMessage(content=[bare]).content_blocks
    except (TypeError, ValueError, LookupError, AttributeError):  # what the translator of a provider did not expect
        return [block]
    return [found.get("value", block) if found.get("type") == "non_standard" else found for found in blocks] or [block]


def _plain_text(block: Mapping[str, Any]) -> dict[str, Any]:
    """The text of a document that carries it as base64."""
    try:
        return {"type": "text", "text": base64.b64decode(block.get("base64") or block["data"], validate=True).decode()}
    except (KeyError, TypeError, ValueError):
        return dict(block)


def _is_image(block: Mapping[str, Any]) -> bool:
    """Whether a file of any kind is an image, by the media type it says it has."""
    body: Any = block
    for key in ("inlineData", "inline_data"):
        body = block.get(key, body)
    if not isinstance(body, Mapping):
        return False
    kind = body.get("mime_type") or body.get("mimeType") or body.get("media_type")
    return isinstance(kind, str) and kind.lower().startswith("image/")


def _image(block: Mapping[str, Any]) -> Any:
    """An image of any of LangChain's or another provider's forms, as an ``image_url`` part."""
    given = block.get("image_url")
    if given is not None:
        detail = {"detail": block["detail"]} if "detail" in block else {}
        return {"type": "image_url", "image_url": {**given, **detail} if isinstance(given, Mapping) else given}
    data, kind, url = _carried(block)
    if isinstance(data, (bytes, bytearray)):
        data = (data if data.isascii() else base64.b64encode(data)).decode()  # base64 is ASCII, no image is
    if data:
        # A media type that is missing is left out: the core knows an image by its bytes.
        marked = data if data[:5].lower() == "data:" else f"data:{kind or ''};base64,{data}"
        return {"type": "image_url", "image_url": {"url": marked}}
    if url:
        return {"type": "image_url", "image_url": {"url": url}}
    return {**block, "type": _kind(block)}


def _carried(block: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Data, media type and URL of an image, wherever they stand."""
    body = dict(block)
    for key in ("image", "inlineData", "inline_data", "source"):
        if isinstance(inner := body.get(key), Mapping):
            body.update(inner)
    kind = body.get("mime_type") or body.get("mimeType") or body.get("media_type")
    if kind is None and isinstance(body.get("format"), str):
        kind = f"image/{body['format']}"
    data = next((body[key] for key in ("base64", "data", "bytes", "image", "result") if _is_data(body.get(key))), None)
    return data, kind, body.get("url")


def _is_data(value: Any) -> bool:
    return bool(value) and isinstance(value, (str, bytes, bytearray))
