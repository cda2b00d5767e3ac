"""Tool calls as the service writes them: whole, in pieces, without ids, with repeated ids, or leaked as text."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from workers_ai.wire.jsontext import is_json, json_text, parse_answer, parse_json
from workers_ai.wire.types import JSON, ToolCall, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "CallIds",
    "ToolCallAssembler",
    "original_id",
    "read_tool_calls",
    "recover_leaked_calls",
]

_MARK: Final = "~turn"
_MARKED = re.compile(r"~turn\d+$")


class CallIds:
    """Hands out tool-call ids that are unique in the conversation.

    The model's own id stays as it is unless an earlier turn has used it (some models count from zero in every reply:
    https://github.com/cloudflare/ai/issues/526); then a mark is added, which :func:`original_id` removes on the way
    back. An id that repeats within one reply, or is missing, is replaced for good. New ids have nine letters or
    digits, the form that Mistral and Llama 4 demand.
    """

    __slots__ = ("_earlier", "_here")

    def __init__(self, earlier: Iterable[str] = ()) -> None:
        self._earlier = earlier if isinstance(earlier, frozenset) else frozenset(earlier)
        self._here: set[str] = set()

    def take(self, wire_id: JSON) -> str:
        """The id to hand out for a call that came with ``wire_id``."""
        own = wire_id if isinstance(wire_id, str) and wire_id else None
        if own is None or own in self._here:
            return self._new()
        self._here.add(own)
        if own not in self._earlier:
            return own
        turn = 2
        while f"{own}{_MARK}{turn}" in self._earlier:
            turn += 1
        return f"{own}{_MARK}{turn}"

    def _new(self) -> str:
        new = uuid.uuid4().hex[:9]
        self._here.add(new)
        return new


def original_id(call_id: str) -> str:
    """The model's own id behind one that :class:`CallIds` marked."""
    return _MARKED.sub("", call_id)


def _parts(entry: Mapping[str, JSON]) -> tuple[JSON, JSON]:
    """Name and arguments of a nested or flat entry."""
    function = entry.get("function")
    source = function if isinstance(function, dict) else entry
    return source.get("name"), source.get("arguments")


def arguments_text(arguments: JSON) -> str:
    """JSON text of arguments sent as text, as an object, as null or not at all."""
    text = json_text(arguments).strip()
    return "{}" if text in ("", "null") else text


def _entries(raw: JSON) -> list[dict[str, JSON]]:
    """The calls of a list, or the one call that stands in place of a list."""
    return [entry for entry in (raw if isinstance(raw, list) else [raw]) if isinstance(entry, dict)]


def read_tool_calls(raw: JSON, ids: CallIds) -> tuple[ToolCall, ...]:
    """Read a list of whole calls, flat or nested; entries that call nothing are left out."""
    calls = []
    for entry in _entries(raw):
        name, arguments = _parts(entry)
        if name or arguments:
            calls.append(ToolCall(ids.take(entry.get("id")), str(name or ""), arguments_text(arguments)))
    return tuple(calls)


class _Slot:
    __slots__ = ("held", "index", "named", "released", "started", "wire_id")

    def __init__(self, index: int) -> None:
        self.index = index
        self.wire_id: str | None = None
        self.named: str | None = None
        self.started = False
        self.released = ""
        self.held = ""


def _differ(a: JSON, b: str | None) -> bool:
    return bool(a and b) and a != b


class ToolCallAssembler:
    """Puts streamed calls in order: one index per call, name and id first and once, nothing lost.

    Tolerates a missing index, an index or id shared by several calls, arguments before the name, names repeated in
    every piece, whole calls in one piece, arguments as objects, and the closing piece full of nulls.
    """

    __slots__ = ("_by_wire", "_ids", "_last", "_slots")

    def __init__(self, ids: CallIds) -> None:
        self._ids = ids
        self._slots: list[_Slot] = []
        self._by_wire: dict[int, _Slot] = {}
        self._last: _Slot | None = None

    def __bool__(self) -> bool:
        return any(slot.started for slot in self._slots)

    def feed(self, entries: JSON) -> list[ToolCallDelta]:
        """Take the ``tool_calls`` of one event."""
        return [delta for entry in _entries(entries) if (delta := self._feed_one(entry))]

    def _feed_one(self, entry: Mapping[str, JSON]) -> ToolCallDelta | None:
        name, arguments = _parts(entry)
        wire_id = entry.get("id")
        text = json_text(arguments)
        if not (name or wire_id or text):
            return None
        slot = self._slot(entry.get("index"), wire_id, name)
        if wire_id and slot.wire_id is None:
            slot.wire_id = str(wire_id)
        if name and slot.named is None:
            slot.named = str(name)
        slot.held += text
        if slot.named is None or slot.held.strip() == "null":
            return None
        return self._release(slot)

    def _slot(self, index: JSON, wire_id: JSON, name: JSON) -> _Slot:
        if isinstance(index, int):
            slot = self._by_wire.get(index)
        else:
            slot = self._last
            if slot is not None and ((name and slot.named) or _differ(wire_id, slot.wire_id)):
                slot = None
        if slot is None or (name and (_differ(wire_id, slot.wire_id) or _differ(name, slot.named))):
            slot = _Slot(len(self._slots))
            self._slots.append(slot)
        if isinstance(index, int):
            self._by_wire[index] = slot
        self._last = slot
        return slot

    def _release(self, slot: _Slot) -> ToolCallDelta | None:
        text, slot.held = slot.held, ""
        slot.released += text
        if slot.started:
            return ToolCallDelta(slot.index, None, None, text) if text else None
        slot.started = True
        return ToolCallDelta(slot.index, self._ids.take(slot.wire_id), slot.named or "", text)

    def finish(self) -> list[ToolCallDelta]:
        """Release what is still held, ``{}`` for calls that never got arguments; and say whose are not JSON."""
        deltas = []
        for slot in self._slots:
            if not slot.released.strip() and slot.held.strip() in ("", "null"):
                slot.held = "{}" if slot.named else ""
            delta = self._release(slot) if slot.held else None
            if slot.started and not is_json(slot.released):
                delta = replace(delta or ToolCallDelta(slot.index, None, None, ""), broken=slot.released)
            if delta:
                deltas.append(delta)
        return deltas


def recover_leaked_calls(text: str, forced: Mapping[str, JSON], ids: CallIds) -> tuple[ToolCall, ...]:
    """Read a forced call that the model wrote as JSON text instead (gpt-oss: https://github.com/cloudflare/ai/issues/574).

    Only the tools that were forced are recognised, by name, with the arguments under ``arguments`` or ``parameters`` or
    beside the name; or, where one tool alone was forced, by arguments that fit its schema. Anything else is left alone.
    """
    try:
        value = parse_answer(text)
    except ValueError:
        return ()
    entries = value if isinstance(value, list) else [value]
    calls = []
    for entry in entries:
        found = _leaked(entry, forced)
        if found is None:
            return ()
        calls.append(ToolCall(ids.take(None), found[0], json.dumps(found[1], ensure_ascii=False)))
    return tuple(calls)


def _leaked(entry: JSON, forced: Mapping[str, JSON]) -> tuple[str, JSON] | None:
    if not isinstance(entry, dict):
        return None
    source = entry["function"] if isinstance(entry.get("function"), dict) else entry
    name = source.get("name")
    if isinstance(name, str) and name in forced:
        for key in ("arguments", "parameters"):
            arguments = source.get(key)
            if isinstance(arguments, str):
                try:
                    arguments = parse_json(arguments)
                except ValueError:
                    return None
            if isinstance(arguments, dict):
                return name, arguments
        rest = {key: value for key, value in source.items() if key not in ("name", "type", "id")}
        return name, source if _fits(source, forced[name]) and not _fits(rest, forced[name]) else rest
    if len(forced) == 1:
        (only, schema), *_ = forced.items()
        if _fits(entry, schema):
            return only, entry
    return None


def _fits(arguments: Mapping[str, JSON], schema: JSON) -> bool:
    """Whether ``arguments`` has every required property and none that the schema does not know."""
    if not isinstance(schema, dict) or not isinstance(properties := schema.get("properties"), dict) or not arguments:
        return False
    return set(schema.get("required") or ()) <= set(arguments) <= set(properties)
