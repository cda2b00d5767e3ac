"""Tool calls as the service writes them: whole, in pieces, without ids, with repeated ids, or leaked as text."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from workers_ai._wire.json_parsing import (
    HalfLetters,
    is_json,
    json_text,
    parse_answer,
    parse_json,
    whole_number,
    written_json,
)
from workers_ai.types import JSON, ToolCall, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "CallIds",
    "ToolCallAssembler",
    "argument_error",
    "arguments_text",
    "original_id",
    "read_tool_calls",
    "recover_leaked_calls",
]

_MARK: Final = "~turn"
_NONE: Final = ("", "null")
_CUT: Final = {
    "length": "it reached max_tokens; raise max_tokens",
    "content_filter": "a content filter stopped it",
    "error": "the service reported an error",
}
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


def _parts(entry: Mapping[str, JSON]) -> tuple[str | None, JSON]:
    """Return name and arguments of a nested or flat entry."""
    function = entry.get("function")
    source = function if isinstance(function, dict) else entry
    name = source.get("name")
    return name if isinstance(name, str) and name else None, source.get("arguments")


def arguments_text(arguments: Any) -> str:
    """Return the JSON text of arguments: text, an object or None.

    Raises:
        ValueError: The arguments contain themselves, or are nested too deep.
    """
    text = (arguments if isinstance(arguments, str) else "" if arguments is None else written_json(arguments)).strip()
    return "{}" if text in _NONE else text


def argument_error(text: str, cut: str) -> str:
    """Return why ``text`` cannot be the arguments of a call; "" for a JSON object.

    Args:
        text: The text.
        cut: Finish reason of an answer that is not complete, else "".
    """
    try:
        value = parse_json(text)
    except ValueError as exc:
        why = "the model wrote no arguments" if text.strip() in _NONE else f"arguments are not valid JSON: {exc}"
    else:
        if isinstance(value, dict):
            return ""
        why = f"arguments are a JSON {type(value).__name__}, not an object"
    if not cut:
        return why
    return f"{why} (the answer ended early: {_CUT.get(cut, f'finish reason {cut!r}')})"


def _entries(raw: JSON) -> list[dict[str, JSON]]:
    """Return the calls of a list, or the one call that stands in place of a list."""
    return [entry for entry in (raw if isinstance(raw, list) else [raw]) if isinstance(entry, dict)]


def read_tool_calls(raw: JSON, ids: CallIds, cut: str = "") -> tuple[ToolCall, ...]:
    """Read a list of whole calls, flat or nested. Leave out entries without name and arguments.

    ``cut`` is the finish reason of an answer that is not complete, else "". Only in a complete one, a call without
    arguments gets ``{}``.
    """
    calls = []
    for entry in _entries(raw):
        name, arguments = _parts(entry)
        text = json_text(arguments)
        if not (name or text):
            continue
        if not cut and text.strip() in _NONE:
            text = "{}"
        calls.append(ToolCall(ids.take(entry.get("id")), name or "", text, argument_error(text, cut)))
    return tuple(calls)


class _Slot:
    """One streamed call.

    Some services repeat all arguments so far in every piece. ``_whole`` is the text under that reading, until a piece
    does not continue it; while both readings are open, nothing is released.
    """

    __slots__ = ("_halves", "_next", "_pieces", "_released", "_whole", "index", "named", "size", "started", "wire_id")

    def __init__(self, index: int) -> None:
        self.index = index
        self.wire_id: str | None = None
        self.named: str | None = None
        self.started = False
        self._halves = HalfLetters()
        self._pieces: list[str] = []
        self._next = 0
        self.size = 0
        self._released = 0
        self._whole: str | None = None

    def add(self, text: str) -> None:
        text = self._halves.join(text)
        if not text or self._repeats(text):
            return
        if not self._pieces or (self._whole is not None and text.startswith(self._whole)):
            self._whole = text
        else:
            self._whole = None
        self._pieces.append(text)
        self.size += len(text)

    def complete(self) -> dict[str, JSON] | None:
        """Return the arguments if they are a whole object by now."""
        if not self._pieces or not self._pieces[-1].rstrip().endswith("}"):
            return None
        return _object("".join(self._pieces))

    def _repeats(self, text: str) -> bool:
        return self._could_repeat(text) and (whole := self.complete()) is not None and _object(text) == whole

    def differs(self, text: str) -> bool:
        """Return whether ``text`` holds other arguments than the whole ones that have arrived."""
        if not self._could_repeat(text) or (whole := self.complete()) is None:
            return False
        return _object(text) not in (None, whole)

    def _could_repeat(self, text: str) -> bool:
        return 2 * len(text) >= self.size > 0 and text.lstrip().startswith("{")

    def take(self) -> str:
        """Return what can be released now."""
        if len(self._pieces) > 1 and self._whole is not None:
            return ""
        text = "".join(self._pieces[self._next :])
        if not self._next and text.strip() == "null":
            return ""
        self._next = len(self._pieces)
        self._released += len(text)
        return text

    def close(self) -> tuple[str, str]:
        """Return all arguments, and the part of them that was not released."""
        text = "".join(self._pieces)
        if len(self._pieces) > 1 and self._whole is not None and not is_json(text):
            text = self._whole
        text += self._halves.rest()
        return text, text[self._released :]


def _object(text: str) -> dict[str, JSON] | None:
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _differ(a: str | None, b: str | None) -> bool:
    return bool(a and b) and a != b


def _wire_id(value: JSON) -> str | None:
    return (value or None) if isinstance(value, str) else str(value) if type(value) is int else None


def _key(index: JSON) -> int | str | None:
    """Return what an index says: a number in any spelling, or another text."""
    number = whole_number(index)
    return number if number is not None else index if isinstance(index, str) and index else None


class ToolCallAssembler:
    """Assembles streamed calls: one index per call, name and id first and once, nothing lost or doubled.

    Accepts an index as number or text, an id or neither; an index or id shared by several calls, arguments before the
    name, names repeated in every piece, whole calls in one piece, arguments as objects, repeated or cumulative
    arguments, and a closing piece full of nulls.
    """

    __slots__ = ("_by_id", "_by_key", "_ids", "_last", "_slots")

    def __init__(self, ids: CallIds) -> None:
        self._ids = ids
        self._slots: list[_Slot] = []
        self._by_key: dict[int | str, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}
        self._last: _Slot | None = None

    def __bool__(self) -> bool:
        return any(slot.started for slot in self._slots)

    def feed(self, raw: JSON) -> list[ToolCallDelta]:
        """Take the ``tool_calls`` of one event."""
        entries = _entries(raw)
        if len(entries) == 1:
            return [delta] if (delta := self._feed_one(entries[0], None)) else []
        return [delta for place, entry in enumerate(entries) if (delta := self._feed_one(entry, place))]

    def _feed_one(self, entry: Mapping[str, JSON], place: int | None) -> ToolCallDelta | None:
        name, arguments = _parts(entry)
        wire_id = _wire_id(entry.get("id"))
        text = json_text(arguments)
        if not (name or wire_id or text):
            return None
        key = _key(entry.get("index"))
        slot = self._find(key, wire_id, name, place)
        if slot is None or (name and _begins_anew(slot, key, wire_id, name, text)):
            slot = _Slot(len(self._slots))
            self._slots.append(slot)
        self._last = slot
        if key is not None:
            self._by_key[key] = slot
        if wire_id and slot.wire_id in (None, wire_id):
            self._by_id[wire_id] = slot
            slot.wire_id = wire_id
        slot.named = slot.named or name
        slot.add(text)
        return self._release(slot) if slot.named else None

    def _find(self, key: int | str | None, wire_id: str | None, name: str | None, place: int | None) -> _Slot | None:
        """Return the call that a piece belongs to, by index, id, its place among several, or the last one."""
        if key is not None:
            slot = self._by_key.get(key)
            if slot is not None and wire_id and _differ(wire_id, slot.wire_id):
                return self._by_id.get(wire_id, slot)
            return slot
        if wire_id and (slot := self._by_id.get(wire_id)):
            return slot
        last = self._last
        if not (wire_id or name) and place is not None and place < len(self._slots):
            return self._slots[place]
        return None if last and wire_id and last.wire_id else last

    def _release(self, slot: _Slot) -> ToolCallDelta | None:
        text = slot.take()
        if slot.started:
            return ToolCallDelta(slot.index, None, None, text) if text else None
        return self._start(slot, text)

    def _start(self, slot: _Slot, text: str) -> ToolCallDelta:
        slot.started = True
        return ToolCallDelta(slot.index, self._ids.take(slot.wire_id), slot.named or "", text)

    def finish(self, cut: str = "") -> list[ToolCallDelta]:
        """Release what is still held, and name the calls that must not run.

        Args:
            cut: Finish reason of an answer that is not complete, else "". In a complete one, a call without arguments
                gets ``{}``.
        """
        deltas = []
        for slot in self._slots:
            text, rest = slot.close()
            if not (slot.named or text):
                continue
            if not cut and text.strip() in _NONE:
                text = rest = "{}"
            error = argument_error(text, cut)
            if not (rest or error or not slot.started):
                continue
            delta = ToolCallDelta(slot.index, None, None, rest) if slot.started else self._start(slot, rest)
            deltas.append(replace(delta, broken=text, error=error) if error else delta)
        return deltas


def _begins_anew(slot: _Slot, key: int | str | None, wire_id: str | None, name: str, text: str) -> bool:
    """Return whether a piece with a name begins another call than the one that its index or id points to."""
    if _differ(wire_id, slot.wire_id) or _differ(name, slot.named):
        return True
    if slot.named is None:
        return False
    if key is None and wire_id is None:  # only the arguments tell a second call from a repeated name
        return not slot.size or slot.complete() is not None
    return slot.differs(text)


def recover_leaked_calls(
    text: str, forced: Mapping[str, JSON], ids: CallIds, *, among_words: bool = False
) -> tuple[ToolCall, ...]:
    """Read a forced call that the model wrote as JSON text instead (gpt-oss: https://github.com/cloudflare/ai/issues/574).

    Only the tools that were forced are recognised, by name, with the arguments under ``arguments`` or ``parameters`` or
    beside the name; or, where one tool alone was forced, by arguments that fit its schema. Anything else is left alone.

    Args:
        text: The answer.
        forced: Parameter schemas of the forced tools, by name.
        ids: Chooses the ids.
        among_words: Accept a call among words, too. An agent must not act on an example in a sentence; a parser that
            expects nothing but the one call may.
    """
    try:
        value = parse_answer(text, among_words=among_words)
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
