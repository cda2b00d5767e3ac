"""Message chunks that do not change the invalid arguments of a tool call.

LangChain repairs the arguments of streamed tool calls. An agent would then run a tool with truncated arguments.
LangChain's chunks also have no field for the error. Chunks of this module store the invalid calls. The sum of chunks
lists these calls in ``invalid_tool_calls``, as a complete answer does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core import messages
from langchain_core.messages import AIMessage
from pydantic import PrivateAttr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.messages import BaseMessageChunk, InvalidToolCall

__all__ = ["AIMessageChunk"]


class _ToMessage:
    """Create an ``AIMessage``. LangChain's ``message_chunk_to_message`` calls the first base class of a chunk."""

    def __new__(cls, **fields: Any) -> Any:
        return AIMessage(**fields) if cls is _ToMessage else super().__new__(cls)


class AIMessageChunk(_ToMessage, messages.AIMessageChunk):
    """LangChain's chunk with invalid calls by index. Its dump equals that of LangChain's class."""

    _broken: dict[int, InvalidToolCall] = PrivateAttr(default_factory=dict)

    def mark_broken(self, broken: Mapping[int, InvalidToolCall]) -> None:
        """Record invalid calls by index, with their raw arguments and error."""
        self._broken = {**self._broken, **broken}
        if self._broken:
            self.invalid_tool_calls = [
                {**self._broken[chunk["index"]], "id": chunk["id"], "name": chunk["name"]}
                for chunk in self.tool_call_chunks
                if chunk["index"] in self._broken
            ]

    def __add__(self, other: Any) -> BaseMessageChunk:  # type: ignore[override]
        """Return the sum of chunks, with their invalid calls."""
        added: BaseMessageChunk = super().__add__(other)
        if isinstance(added, AIMessageChunk):
            for chunk in (self, *(other if isinstance(other, (list, tuple)) else (other,))):
                if isinstance(chunk, AIMessageChunk) and chunk._broken:
                    added.mark_broken(chunk._broken)
        return added
