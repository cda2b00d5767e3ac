"""Answers in the form that the keywords of a call ask for.

Components of OpenAI's older API pass ``functions`` and read ``function_call``, and nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, AIMessageChunk

from langchain_workers_ai._from_wire import AFTER_BLOCKS, to_chunk
from workers_ai.integration import plain_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_core.outputs import ChatGenerationChunk, ChatResult

    from workers_ai.types import ChatDelta

__all__ = ["finished", "piece_translator"]


def finished(result: ChatResult, given: Mapping[str, Any]) -> ChatResult:
    """Return a whole answer in the form that the keywords of its call ask for."""
    message = result.generations[0].message
    if given.get("functions") and isinstance(message, AIMessage):
        for call in [*message.tool_calls, *message.invalid_tool_calls][:1]:
            arguments = call["args"] if isinstance(call["args"], str) else plain_json(call["args"] or {})
            message.additional_kwargs["function_call"] = {"name": call["name"], "arguments": arguments}
        message.tool_calls, message.invalid_tool_calls = [], []
    return result


def piece_translator(
    model: str, options: Mapping[str, Any], given: Mapping[str, Any], *, blocks: bool
) -> Callable[[ChatDelta], ChatGenerationChunk]:
    """Return the function that translates the pieces of one streamed answer.

    Args:
        model: The model asked for.
        options: Options of the core's call.
        given: Keywords of the call.
        blocks: Whether LangChain numbers text and reasoning as content blocks.
    """
    first_call = AFTER_BLOCKS if blocks else 0
    tools = bool(options.get("tools") or options["extra_body"].get("tools"))
    translate: Callable[[ChatDelta], ChatGenerationChunk]
    translate = partial(to_chunk, model=model, first_call=first_call, tools=tools)
    if (options.get("stream_options") or {}).get("include_usage") is False:
        translate = _without_usage(translate)
    if not given.get("functions"):
        return translate
    return lambda delta: _with_function_call(translate(delta), first_call)


def _without_usage(translate: Callable[[ChatDelta], ChatGenerationChunk]) -> Callable[[ChatDelta], ChatGenerationChunk]:
    return lambda delta: translate(delta._replace(usage=None) if delta.usage else delta)


def _with_function_call(chunk: ChatGenerationChunk, first_call: int) -> ChatGenerationChunk:
    """Move pieces of the first call into ``additional_kwargs["function_call"]``, their place in OpenAI's older API."""
    message = chunk.message
    if not (isinstance(message, AIMessageChunk) and message.tool_call_chunks):
        return chunk
    pieces: list[dict[str, Any]] = [
        {"name": piece["name"] or "", "arguments": piece["args"] or ""}
        for piece in message.tool_call_chunks
        if piece["index"] == first_call
    ]
    if pieces:
        message.additional_kwargs["function_call"] = {
            key: "".join(piece[key] for piece in pieces) for key in ("name", "arguments")
        }
    message.tool_call_chunks, message.tool_calls, message.invalid_tool_calls = [], [], []
    return chunk
