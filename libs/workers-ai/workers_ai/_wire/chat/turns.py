"""Order of turns: results stand directly behind their calls, and images stand in user turns alone.

- Each call has exactly one result. A late result moves up behind its call; several results of one call are joined
  (https://github.com/assistant-ui/assistant-ui/issues/4766, https://github.com/pydantic/pydantic-ai/pull/3528).
- An image of a tool, system or assistant turn moves into a user turn behind the results: the schemas of vision models
  accept text alone in other roles (https://github.com/langchain-ai/langchain/issues/40435).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from workers_ai._wire.json_parsing import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from workers_ai.types import JSON

__all__ = ["arrange_turns", "bridge_tool_turns"]

_UNANSWERED: Final = "No result: this call was not answered."
_BRIDGE: Final = "I have the results of the tools."
_IMAGE_FOLLOWS: Final = "The result is the image in the next user message."


@dataclass(slots=True)
class _Slot:
    """One tool call, and the places of its results."""

    turn: int
    wire_id: JSON
    results: list[int] = field(default_factory=list)


def arrange_turns(messages: Sequence[Mapping[str, JSON]], prepared: list[dict[str, JSON]]) -> list[dict[str, JSON]]:
    """Return the prepared messages in an order that the service accepts.

    Args:
        messages: The caller's messages. Their ids match results to calls: unlike ids on the wire, they are unique.
        prepared: The same messages as they are sent.
    """
    slots: defaultdict[int, list[_Slot]] = defaultdict(list)
    for slot in _match_results(messages, prepared):
        slots[slot.turn].append(slot)
    moved = {place for of_turn in slots.values() for slot in of_turn for place in slot.results}
    out: list[dict[str, JSON]] = []
    for place, message in enumerate(prepared):
        if place not in moved:
            out += _with_images_last([message, *_results_of(slots.get(place, []), prepared)])
    return out


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


def _match_results(messages: Sequence[Mapping[str, JSON]], prepared: Sequence[Mapping[str, Any]]) -> list[_Slot]:
    """Match each result to the latest call before it that has its id, one without a result first.

    A result without a call before it belongs to the first later call that has no other; else it stays in its place.
    """
    slots: list[_Slot] = []
    by_id: defaultdict[str, list[_Slot]] = defaultdict(list)
    early: defaultdict[str, list[int]] = defaultdict(list)
    for place, message in enumerate(messages):
        if prepared[place]["role"] == "tool":
            call_id = json_text(message.get("tool_call_id"))
            known = by_id[call_id]
            open_slots = [slot for slot in known if not slot.results] or known[-1:]
            slot = next((slot for slot in open_slots if slot.turn == open_slots[-1].turn), None)
            (slot.results if slot else early[call_id]).append(place)
        for call, sent in zip(message.get("tool_calls") or (), prepared[place].get("tool_calls", ()), strict=False):
            slots.append(_Slot(place, sent["id"]))
            by_id[json_text(call.get("id"))].append(slots[-1])
    for call_id, places in early.items():
        if slot := next((slot for slot in by_id[call_id] if not slot.results), None):
            slot.results += places
    return slots


def _results_of(slots: Sequence[_Slot], prepared: Sequence[dict[str, JSON]]) -> Iterator[dict[str, JSON]]:
    """Yield one result for each call of a turn: in their order of appearance, then those of calls without one."""
    for slot in sorted((slot for slot in slots if slot.results), key=lambda slot: slot.results[0]):
        yield _joined([prepared[place] for place in slot.results])
    for slot in slots:
        if not slot.results:
            yield {"role": "tool", "content": _UNANSWERED, "tool_call_id": slot.wire_id}


def _joined(results: Sequence[dict[str, JSON]]) -> dict[str, JSON]:
    """Return one result for the several results of one call."""
    distinct = [result for place, result in enumerate(results) if result not in results[:place]]
    if len(distinct) == 1:
        return distinct[0]
    parts = [part for result in distinct for part in _parts_of(result)]
    if all(part.get("type") == "text" for part in parts):
        return {**distinct[0], "content": "\n".join(part["text"] for part in parts)}
    return {**distinct[0], "content": parts}


def _parts_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _with_images_last(turn: list[dict[str, JSON]]) -> list[dict[str, JSON]]:
    """Return a turn with its results, and the images of all but a user's turn in a user message behind them."""
    if all(message["role"] == "user" or isinstance(message["content"], str) for message in turn):
        return turn
    out: list[dict[str, JSON]] = []
    images: list[dict[str, JSON]] = []
    for message in turn:
        parts = [] if message["role"] == "user" else _parts_of(message)
        own = [part for part in parts if part.get("type") != "text"]
        if own:
            images += [{"type": "text", "text": _source_of(message)}, *own]
            text = "\n".join(part["text"] for part in parts if part.get("type") == "text")
            message = {**message, "content": text or (_IMAGE_FOLLOWS if message["role"] == "tool" else "")}
        out.append(message)
    return [*out, {"role": "user", "content": images}] if images else out


def _source_of(message: Mapping[str, Any]) -> str:
    """Describe where an image comes from."""
    if message["role"] == "tool":
        return f"Image in the result of tool call {message['tool_call_id']}:"
    return f"Image of the {message['role']} message above:"
