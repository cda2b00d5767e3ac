"""From LlamaIndex messages and tools to the OpenAI-shaped dicts that the core takes. Pure functions."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.tools.types import BaseTool

from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from workers_ai.wire.types import JSON

__all__ = ["named_tool", "to_wire_messages", "to_wire_tool_choice", "to_wire_tools"]

_ROLES: Final = {
    MessageRole.FUNCTION: "tool",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
}
"""Roles of LlamaIndex that the service knows under another name."""

_MODES: Final = frozenset({"auto", "none", "any", "required"})
_UNSENDABLE = re.compile(r"[^A-Za-z0-9_-]")


def to_wire_messages(messages: Sequence[ChatMessage]) -> list[dict[str, JSON]]:
    """Messages as the core takes them; the caller's own stay as they are.

    Raises:
        BadRequestError: A message is no ChatMessage, or an image has no known type.
    """
    return [_message(message, index) for index, message in enumerate(messages)]


def _message(message: ChatMessage, index: int) -> dict[str, JSON]:
    if not isinstance(message, ChatMessage):
        raise BadRequestError(f"message {index} is a {type(message).__name__}: pass ChatMessage(role=..., content=...)")
    role = _ROLES.get(message.role, message.role.value)
    parts: list[dict[str, JSON]] = []
    calls: list[JSON] = []
    thoughts: list[str] = []
    for block in message.blocks:
        if isinstance(block, TextBlock):
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, ToolCallBlock):
            calls.append(_call(block))
        elif isinstance(block, ThinkingBlock):
            thoughts.append(block.content or "")
        else:
            parts += _parts(block)
    out: dict[str, JSON] = {"role": role, "content": _content(parts)}
    if role == "assistant":
        if calls := calls or _kept_calls(message.additional_kwargs.get("tool_calls")):
            out["tool_calls"] = calls
        if reasoning := "".join(thoughts):
            out["reasoning"] = reasoning
    elif role == "tool":
        out["tool_call_id"] = message.additional_kwargs.get("tool_call_id")
    return out


def _content(parts: list[dict[str, JSON]]) -> JSON:
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts or ""


def _parts(block: Any) -> list[dict[str, JSON]]:
    """Content parts of what is neither text, call nor thought. What cannot be sent goes on for the core to refuse."""
    if isinstance(block, CachePoint):
        return []  # the prefix cache needs no marks: session_id keeps it warm
    if isinstance(block, CitableBlock):
        return [part for inner in block.content for part in _parts(inner)]
    if isinstance(block, CitationBlock):
        return _parts(block.cited_content)
    if isinstance(block, TextBlock):
        return [{"type": "text", "text": block.text}]
    if isinstance(block, ImageBlock):
        image = {"url": _image_url(block)}
        if block.detail:
            image["detail"] = block.detail
        return [{"type": "image_url", "image_url": image}]
    return [{"type": block.block_type}]


def _image_url(block: ImageBlock) -> str:
    """A data URL of the image; a link stays a link, which the core refuses and says why."""
    if block.url is not None and not block.image:
        return str(block.url)
    mimetype = block.image_mimetype or ""
    if not mimetype.lower().startswith("image/"):
        raise BadRequestError(
            f"an ImageBlock holds {mimetype or 'data of a kind that could not be guessed'}: "
            "pass a picture, or say what it is with image_mimetype='image/...'"
        )
    return f"data:{mimetype};base64,{base64.b64encode(block.resolve_image().read()).decode()}"


def _call(block: ToolCallBlock) -> dict[str, JSON]:
    return {
        "id": block.tool_call_id,
        "type": "function",
        "function": {"name": sendable(block.tool_name), "arguments": block.tool_kwargs},
    }


def _kept_calls(calls: JSON) -> list[JSON]:
    """Calls of a message that was kept by an integration which knows no ToolCallBlock."""
    return [
        call if isinstance(call, dict) else call.model_dump() for call in (calls if isinstance(calls, list) else ())
    ]


def sendable(name: str) -> str:
    """``name`` in the letters that a function name may have on the wire, as LlamaIndex itself writes it."""
    return _UNSENDABLE.sub("_", name)


def to_wire_tools(tools: Iterable[BaseTool]) -> tuple[list[dict[str, JSON]], dict[str, str]]:
    """Tools as the core takes them, and the tool's own name behind each name that had to be changed.

    Raises:
        BadRequestError: What is given is no tool.
        ValueError: A tool has no name, or two have the same one on the wire.
    """
    specs: dict[str, dict[str, JSON]] = {}
    renamed: dict[str, str] = {}
    for index, tool in enumerate(tools):
        if not isinstance(tool, BaseTool):
            raise BadRequestError(f"tool {index} is a {type(tool).__name__}: wrap it, FunctionTool.from_defaults(...)")
        own = tool.metadata.get_name()
        sent = sendable(own)
        if sent in specs:
            raise ValueError(f"two tools are called {sent!r} on the wire: rename {own!r}")
        specs[sent] = tool.metadata.to_openai_tool(skip_length_check=True)
        if sent != own:
            renamed[sent] = own
    return list(specs.values()), renamed


def named_tool(choice: JSON) -> str | None:
    """The tool that a choice names, as it is called on the wire; None where it names none."""
    if isinstance(choice, dict):
        function = choice.get("function")
        choice = function.get("name") if isinstance(function, dict) else None
    return sendable(choice) if isinstance(choice, str) and choice not in _MODES else None


def to_wire_tool_choice(choice: JSON, *, required: bool) -> JSON:
    """``tool_choice`` out of what LlamaIndex passes: None, a mode, a tool's name or a dict; None where none is set."""
    if choice is None or (required and choice in ("auto", "none")):
        return "required" if required else None
    return named_tool(choice) or choice
