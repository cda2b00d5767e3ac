"""Arrange turns in the order that the service accepts: results directly after their calls, images only in user turns.

- Each call has exactly one result. A late result moves up to its call; several results of one call are joined
  (https://github.com/assistant-ui/assistant-ui/issues/4766, https://github.com/pydantic/pydantic-ai/pull/3528).
- An image of a tool, system or assistant turn moves into a user turn after the results. The schemas of vision models
  accept only text in other roles (https://github.com/langchain-ai/langchain/issues/40435).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from workers_ai._wire.json_parsing import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workers_ai._wire.json_types import JSON

__all__ = ["arrange_turns", "bridge_tool_turns"]

_UNANSWERED: Final = "No result: this call was not answered."
_BRIDGE: Final = "I have the results of the tools."
_IMAGE_FOLLOWS: Final = "The result is the image in the next user message."


@dataclass(slots=True)
class _Call:
    """One tool call, and the positions of its results."""

    turn: int
    wire_id: JSON
    results: list[int] = field(default_factory=list)


def arrange_turns(messages: Sequence[Mapping[str, JSON]], prepared: list[dict[str, JSON]]) -> list[dict[str, JSON]]:
    """Return the prepared messages in an order that the service accepts.

    Args:
        messages: The caller's messages. Results are matched to calls by their ids. Unlike ids on the wire, they are
            unique.
        prepared: The same messages in the form of the service.
    """
    if all(map(_is_text_alone, prepared)):
        return prepared
    calls: defaultdict[int, list[_Call]] = defaultdict(list)
    for call in _match_results(messages, prepared):
        calls[call.turn].append(call)
    moved = {index for turn_calls in calls.values() for call in turn_calls for index in call.results}
    out: list[dict[str, JSON]] = []
    for index, message in enumerate(prepared):
        if index not in moved:
            results = _results_of(calls[index], prepared) if index in calls else ()
            out += _with_images_last([message, *results])
    return out


def _is_text_alone(message: Mapping[str, JSON]) -> bool:
    return isinstance(message["content"], str) and "tool_calls" not in message and message["role"] != "tool"


def bridge_tool_turns(messages: Sequence[dict[str, JSON]]) -> list[dict[str, JSON]]:
    """Return the messages with a short assistant message between a tool result and a user message.

    The templates of some models reject a user message straight after a tool message.
    """
    out: list[dict[str, JSON]] = []
    for message in messages:
        if out and message["role"] == "user" and out[-1]["role"] == "tool":
            out.append({"role": "assistant", "content": _BRIDGE})
        out.append(message)
    return out


def _match_results(messages: Sequence[Mapping[str, JSON]], prepared: Sequence[Mapping[str, JSON]]) -> list[_Call]:
    """Match each result to the latest call before it with the same id. A call without a result takes precedence.

    A result before its call is matched to the first later call without a result. A result that matches no call keeps
    its position.
    """
    calls: list[_Call] = []
    by_id: defaultdict[str, list[_Call]] = defaultdict(list)
    early: defaultdict[str, list[int]] = defaultdict(list)
    for index, message in enumerate(messages):
        if prepared[index]["role"] == "tool":
            call_id = json_text(message.get("tool_call_id"))
            known = by_id[call_id]
            candidates = [call for call in known if not call.results] or known[-1:]
            match = next((call for call in candidates if call.turn == candidates[-1].turn), None)
            (match.results if match else early[call_id]).append(index)
        if "tool_calls" not in prepared[index]:
            continue
        for given, sent in zip(_calls_of(message), _calls_of(prepared[index]), strict=False):
            calls.append(_Call(index, sent.get("id")))
            by_id[json_text(given.get("id"))].append(calls[-1])
    for call_id, indexes in early.items():
        if match := next((call for call in by_id[call_id] if not call.results), None):
            match.results += indexes
    return calls


def _calls_of(message: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, (list, tuple)) else []


def _results_of(calls: Sequence[_Call], prepared: Sequence[dict[str, JSON]]) -> Iterator[dict[str, JSON]]:
    """Yield one result for each call of a turn, in the order of the results. Calls without a result come last."""
    for call in sorted((call for call in calls if call.results), key=lambda call: call.results[0]):
        yield _join_results([prepared[index] for index in call.results])
    for call in calls:
        if not call.results:
            yield {"role": "tool", "content": _UNANSWERED, "tool_call_id": call.wire_id}


def _join_results(results: Sequence[dict[str, JSON]]) -> dict[str, JSON]:
    """Join the results of one call."""
    distinct = [result for index, result in enumerate(results) if result not in results[:index]]
    if len(distinct) == 1:
        return distinct[0]
    parts = [part for result in distinct for part in _parts_of(result)]
    if all(part.get("type") == "text" for part in parts):
        return {**distinct[0], "content": _joined_text(parts)}
    return {**distinct[0], "content": parts}


def _parts_of(message: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    content = message["content"]
    if isinstance(content, list):
        return [part for part in content if isinstance(part, dict)]
    return [{"type": "text", "text": content}]


def _joined_text(parts: Sequence[Mapping[str, JSON]]) -> str:
    return "\n".join(json_text(part["text"]) for part in parts if part.get("type") == "text")


def _with_images_last(turn: list[dict[str, JSON]]) -> list[dict[str, JSON]]:
    """Move images into a user message after the turn and its results. Images of a user turn stay where they are."""
    if all(message["role"] == "user" or isinstance(message["content"], str) for message in turn):
        return turn
    out: list[dict[str, JSON]] = []
    images: list[JSON] = []
    for message in turn:
        parts = [] if message["role"] == "user" else _parts_of(message)
        own = [part for part in parts if part.get("type") != "text"]
        if own:
            images += [{"type": "text", "text": _source_of(message)}, *own]
            message = {
                **message,
                "content": _joined_text(parts) or (_IMAGE_FOLLOWS if message["role"] == "tool" else ""),
            }
        out.append(message)
    return [*out, {"role": "user", "content": images}] if images else out


def _source_of(message: Mapping[str, JSON]) -> str:
    """Describe the origin of an image, for the model."""
    if message["role"] == "tool":
        return f"Image in the result of tool call {message['tool_call_id']}:"
    return f"Image of the {message['role']} message above:"
