"""Adapt answers to the keywords of their call.

Components of OpenAI's older API pass ``functions`` and read ``function_call``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, AIMessageChunk

from langchain_workers_ai._translation.from_wire import AFTER_BLOCKS, delta_translator
from workers_ai.integration import plain_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_core.outputs import ChatGenerationChunk, ChatResult

    from workers_ai import ChatKeywords
    from workers_ai.types import ChatDelta

__all__ = ["chunk_translator", "finish_result"]


def finish_result(result: ChatResult, given: Mapping[str, object]) -> ChatResult:
    """Return a complete answer. If the call passed ``functions``, ``function_call`` replaces the tool calls."""
    message = result.generations[0].message
    if given.get("functions") and isinstance(message, AIMessage):
        for call in [*message.tool_calls, *message.invalid_tool_calls][:1]:
            arguments = call["args"] if isinstance(call["args"], str) else plain_json(call["args"] or {})
            message.additional_kwargs["function_call"] = {"name": call["name"], "arguments": arguments}
        message.tool_calls, message.invalid_tool_calls = [], []
    return result


def chunk_translator(
    model: str, options: ChatKeywords, given: Mapping[str, object], *, blocks: bool
) -> Callable[[ChatDelta], ChatGenerationChunk]:
    """Return the function that translates the deltas of one streamed answer.

    Args:
        model: The model of the call.
        options: Options of the core's call.
        given: Keywords of the call.
        blocks: Whether LangChain numbers text and reasoning as content blocks.
    """
    first_call = AFTER_BLOCKS if blocks else 0
    tools = bool(options.get("tools") or (options.get("extra_body") or {}).get("tools"))
    translate = delta_translator(model, first_call, tools=tools)
    if (options.get("stream_options") or {}).get("include_usage") is False:
        translate = _without_usage(translate)
    if not given.get("functions"):
        return translate
    return lambda delta: _with_function_call(translate(delta), first_call)


def _without_usage(translate: Callable[[ChatDelta], ChatGenerationChunk]) -> Callable[[ChatDelta], ChatGenerationChunk]:
    return lambda delta: translate(delta._replace(usage=None) if delta.usage else delta)


def _with_function_call(chunk: ChatGenerationChunk, first_call: int) -> ChatGenerationChunk:
    """Move the chunks of the first tool call to ``additional_kwargs["function_call"]``, as in OpenAI's older API."""
    message = chunk.message
    if not (isinstance(message, AIMessageChunk) and message.tool_call_chunks):
        return chunk
    parts = [
        {"name": part["name"] or "", "arguments": part["args"] or ""}
        for part in message.tool_call_chunks
        if part["index"] == first_call
    ]
    if parts:
        message.additional_kwargs["function_call"] = {
            key: "".join(part[key] for part in parts) for key in ("name", "arguments")
        }
    message.tool_call_chunks, message.tool_calls, message.invalid_tool_calls = [], [], []
    return chunk
