"""Message chunks that keep broken arguments of a call unchanged.

LangChain repairs the arguments of streamed calls, so that an agent would run a tool with half of what the model wrote,
and has no place for the reason. A chunk of this module carries the broken calls beside the others; added to the chunks
before it, it puts them into ``invalid_tool_calls``, as they stand there in a whole answer.
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
    """Makes an ``AIMessage``: ``message_chunk_to_message`` of LangChain calls the first parent of a chunk's class."""

    def __new__(cls, **fields: Any) -> Any:
        return AIMessage(**fields) if cls is _ToMessage else super().__new__(cls)


class AIMessageChunk(_ToMessage, messages.AIMessageChunk):
    """LangChain's chunk, with the calls that must not run by index. Dumps as LangChain's own."""

    _broken: dict[int, InvalidToolCall] = PrivateAttr(default_factory=dict)

    def mark_broken(self, broken: Mapping[int, InvalidToolCall]) -> None:
        """Set the calls that must not run: raw arguments and error, by index."""
        self._broken = {**self._broken, **broken}
        if self._broken:
            self.invalid_tool_calls = [
                {**self._broken[chunk["index"]], "id": chunk["id"], "name": chunk["name"]}
                for chunk in self.tool_call_chunks
                if chunk["index"] in self._broken
            ]

    def __add__(self, other: Any) -> BaseMessageChunk:  # type: ignore[override]
        """Add chunks as LangChain does, and say which calls must not run."""
        added: BaseMessageChunk = super().__add__(other)
        if isinstance(added, AIMessageChunk):
            for chunk in (self, *(other if isinstance(other, (list, tuple)) else (other,))):
                if isinstance(chunk, AIMessageChunk) and chunk._broken:
                    added.mark_broken(chunk._broken)
        return added
