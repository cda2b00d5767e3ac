"""The older form of a tool call, ``function_call``, for components that pass ``functions`` and read nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, AIMessageChunk

from workers_ai.wire.messages import plain_json

if TYPE_CHECKING:
    from langchain_core.outputs import ChatGenerationChunk, ChatResult

__all__ = ["chunk_with_function_call", "result_with_function_call"]


def result_with_function_call(result: ChatResult) -> ChatResult:
    """Move the first call of an answer into ``additional_kwargs["function_call"]``, its place in OpenAI's older API."""
    message = result.generations[0].message
    if isinstance(message, AIMessage):
        for call in [*message.tool_calls, *message.invalid_tool_calls][:1]:
            arguments = call["args"] if isinstance(call["args"], str) else plain_json(call["args"] or {})
            message.additional_kwargs["function_call"] = {"name": call["name"], "arguments": arguments}
        message.tool_calls, message.invalid_tool_calls = [], []
    return result


def chunk_with_function_call(chunk: ChatGenerationChunk, first_call: int) -> ChatGenerationChunk:
    """Do the same with one piece of a streamed answer.

    Args:
        chunk: The piece.
        first_call: Index of the first call.
    """
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
