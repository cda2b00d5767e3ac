"""Translate LlamaIndex messages and tools to the OpenAI-shaped dicts that the core accepts. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from llama_index.core.base.llms.types import (
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
from llama_index.core.tools.types import BaseTool
from llama_index.llms.workers_ai._media import document_part, image_part
from pydantic import BaseModel

from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai.types import JSON

__all__ = ["named_tool", "sendable", "to_wire_messages", "to_wire_tool_choice", "to_wire_tools"]

_ROLES: Final = {
    MessageRole.FUNCTION: "tool",
    MessageRole.CHATBOT: "assistant",
    MessageRole.MODEL: "assistant",
}
"""Roles that have another name on the wire."""

_MODES: Final = frozenset({"auto", "none", "any", "required"})
_RESULT_IDS: Final = ("tool_call_id", "call_id", "toolUseId", "tool_use_id", "tool_id", "name")
"""Keys under which integrations store the id of the call that a result answers."""
_CALL_IDS: Final = ("call_id", "toolUseId", "tool_call_id", "tool_id", "id")
_ARGUMENTS: Final = ("arguments", "input", "args", "tool_kwargs", "parameters")
_NESTED: Final = ("function", "toolUse", "functionCall", "function_call")
_UNSENDABLE = re.compile(r"[^A-Za-z0-9_-]")


def to_wire_messages(messages: Sequence[ChatMessage]) -> list[dict[str, JSON]]:
    """Return messages for the core. The given messages are not changed.

    Raises:
        BadRequestError: A message is not a ChatMessage, or it contains a block that cannot be sent.
    """
    wire = [_message(message, index) for index, message in enumerate(messages)]
    _fill_in_ids(wire)
    return wire


def _message(message: ChatMessage, index: int) -> dict[str, JSON]:
    if not isinstance(message, ChatMessage):
        raise BadRequestError(f"message {index} is a {type(message).__name__}: pass ChatMessage(role=..., content=...)")
    role = _ROLES.get(message.role, getattr(message.role, "value", message.role))
    parts: list[dict[str, JSON]] = []
    calls: list[JSON] = []
    thoughts: list[str] = []
    for block in message.blocks:
        if isinstance(block, ToolCallBlock):
            calls.append(_call(block.tool_call_id, block.tool_name, block.tool_kwargs))
        elif isinstance(block, ThinkingBlock):
            thoughts.append(block.content or "")
        else:
            parts += _parts(block)
    out: dict[str, JSON] = {"role": role, "content": _content(parts)}
    if role == "assistant":
        if calls := calls or _kept_calls(message.additional_kwargs, index):
            out["tool_calls"] = calls
        if reasoning := "".join(thoughts):
            out["reasoning"] = reasoning
    elif role == "tool":
        out["tool_call_id"] = _first(message.additional_kwargs, _RESULT_IDS)
    return out


def _content(parts: list[dict[str, JSON]]) -> JSON:
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts or ""


def _parts(block: object) -> list[dict[str, JSON]]:
    """Return the content parts of a block. The core rejects the types that cannot be sent."""
    if isinstance(block, TextBlock):
        return [{"type": "text", "text": block.text}]
    if isinstance(block, CachePoint):
        return []  # the service has no cache points; set session_id to use its prefix cache
    if isinstance(block, CitableBlock):
        return [part for inner in block.content for part in _parts(inner)]
    if isinstance(block, CitationBlock):
        return _parts(block.cited_content)
    if isinstance(block, ImageBlock):
        return [image_part(block)]
    if isinstance(block, DocumentBlock):
        return [document_part(block)]
    return [{"type": getattr(block, "block_type", type(block).__name__)}]


def _call(call_id: JSON, name: str, arguments: JSON) -> dict[str, JSON]:
    return {"id": call_id, "type": "function", "function": {"name": sendable(name), "arguments": arguments}}


def _kept_calls(kept: Mapping[str, object], index: int) -> list[JSON]:
    """Return the calls in ``additional_kwargs``. Integrations that do not use ToolCallBlock store calls there.

    OpenAI, Mistral and Ollama use ``function``, Anthropic ``input``, Bedrock ``toolUseId``, Gemini ``args``. Each entry
    is a dict or an object of the SDK.
    """
    entries = kept.get("tool_calls") or [kept[name] for name in ("function_call",) if kept.get(name)]
    if not isinstance(entries, (list, tuple)):
        entries = [entries]
    return [_kept_call(entry, index) for entry in entries]


def _kept_call(entry: object, index: int) -> dict[str, JSON]:
    fields = _as_mapping(entry)
    inner = next((found for name in _NESTED if (found := _as_mapping(fields.get(name)))), fields)
    name = _first(inner, ("name", "tool_name"))
    if not isinstance(name, str):
        raise BadRequestError(
            f"message {index} has a tool call of unknown form ({type(entry).__name__}) in additional_kwargs: "
            "pass a ToolCallBlock"
        )
    call_id = _first(fields, _CALL_IDS)
    return _call(_first(inner, _CALL_IDS) if call_id is None else call_id, name, _first(inner, _ARGUMENTS))


def _as_mapping(entry: object) -> Mapping[str, JSON]:
    if isinstance(entry, Mapping):
        return entry
    if isinstance(entry, BaseModel):
        return entry.model_dump()
    return getattr(entry, "__dict__", {})


def _first(fields: Mapping[str, JSON], names: Iterable[str]) -> JSON:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _fill_in_ids(wire: Sequence[dict[str, JSON]]) -> None:
    """Set missing ids of calls. Match results by id, else by the name of the tool, else by the order of the calls."""
    waiting: list[dict[str, JSON]] = []
    for index, message in enumerate(wire):
        for number, call in enumerate(message.get("tool_calls", ())):
            call["id"] = call["id"] or f"call_{index}_{number}"
            waiting.append(call)
        if message["role"] == "tool":
            given = message["tool_call_id"]
            found = next((call for call in waiting if call["id"] == given), None)
            if not found:
                found = next((call for call in waiting if not given or call["function"]["name"] == given), None)
            if found:
                message["tool_call_id"] = found["id"]
                waiting.remove(found)


def sendable(name: str) -> str:
    """Return ``name`` with each character that is not allowed in a function name replaced by ``_``."""
    return _UNSENDABLE.sub("_", name)


def to_wire_tools(tools: Iterable[BaseTool]) -> tuple[list[dict[str, JSON]], dict[str, str]]:
    """Return tools for the core, and the original names by the names that were changed.

    Raises:
        BadRequestError: An entry is not a LlamaIndex tool.
        ValueError: A tool has no name, or two tools have the same name on the wire.
    """
    specs: dict[str, dict[str, JSON]] = {}
    renamed: dict[str, str] = {}
    for index, tool in enumerate(tools):
        if not isinstance(tool, BaseTool):
            raise BadRequestError(f"tool {index} is a {type(tool).__name__}: use FunctionTool.from_defaults(...)")
        own = tool.metadata.get_name()
        sent = sendable(own)
        if sent in specs:
            raise ValueError(f"two tools have the name {sent!r} on the wire: rename {own!r}")
        specs[sent] = tool.metadata.to_openai_tool(skip_length_check=True)
        if sent != own:
            renamed[sent] = own
    return list(specs.values()), renamed


def named_tool(choice: JSON) -> str | None:
    """Return the name on the wire of the tool that ``choice`` selects; None if it selects no single tool."""
    if isinstance(choice, dict):
        function = choice.get("function")
        choice = function.get("name") if isinstance(function, dict) else None
    return sendable(choice) if isinstance(choice, str) and choice not in _MODES else None


def to_wire_tool_choice(choice: JSON, *, required: bool) -> JSON:
    """Return ``tool_choice`` for the wire. LlamaIndex passes None, a mode, the name of a tool, or a dict."""
    if choice is None or (required and choice in ("auto", "none")):
        return "required" if required else None
    return named_tool(choice) or choice
