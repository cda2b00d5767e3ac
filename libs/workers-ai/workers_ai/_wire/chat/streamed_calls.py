"""Assemble the tool calls of a stream from their pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from workers_ai._wire.chat.tool_calls import (
    NO_ARGUMENTS,
    CallIds,
    argument_error,
    call_entries,
    decoded_twice,
    name_and_arguments,
    name_error,
    read_object,
)
from workers_ai._wire.json_parsing import SurrogateJoiner, is_json, json_text, whole_number
from workers_ai._wire.json_types import JSON
from workers_ai.types import ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["ToolCallAssembler"]


class _StreamedCall:
    """One streamed call.

    Some services repeat all previous arguments in every piece. ``_cumulative`` is the text if this call does so; None
    once a piece shows that it does not. Until then, nothing is released. ``{}`` before or after other arguments is a
    placeholder.
    """

    __slots__ = (
        "_cumulative",
        "_next",
        "_pieces",
        "_released",
        "_surrogates",
        "index",
        "name",
        "size",
        "started",
        "wire_id",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.wire_id: str | None = None
        self.name: str | None = None
        self.started = False
        self._surrogates = SurrogateJoiner()
        self._pieces: list[str] = []
        self._next = 0
        self.size = 0
        self._released = 0
        self._cumulative: str | None = None

    def add(self, text: str) -> None:
        text = self._surrogates.join(text)
        if not text or self._repeats(text):
            return
        if self._is_placeholder() and text.lstrip().startswith("{"):
            self._pieces.clear()
            self.size = 0
        if not self._pieces or (self._cumulative is not None and text.startswith(self._cumulative)):
            self._cumulative = text
        else:
            self._cumulative = None
        self._pieces.append(text)
        self.size += len(text)

    def complete(self) -> dict[str, JSON] | None:
        """Return the arguments if they are a whole object; else None."""
        if not self._pieces or not self._pieces[-1].rstrip().endswith("}"):
            return None
        return read_object("".join(self._pieces))

    def _is_placeholder(self) -> bool:
        """Return whether only ``{}`` has arrived. Some services send it in place of missing arguments."""
        return len(self._pieces) == 1 and self._pieces[0].strip() == "{}"

    def _repeats(self, text: str) -> bool:
        if text.strip() == "{}":
            return self.complete() is not None
        return self._could_repeat(text) and (whole := self.complete()) is not None and read_object(text) == whole

    def differs(self, text: str) -> bool:
        """Return whether ``text`` is an object that differs from the complete arguments of this call."""
        if not self._could_repeat(text) or (whole := self.complete()) is None:
            return False
        return read_object(text) not in (None, whole)

    def _could_repeat(self, text: str) -> bool:
        return 2 * len(text) >= self.size > 0 and text.lstrip().startswith("{")

    def release(self) -> str:
        """Return the text that can be released now."""
        if len(self._pieces) > 1 and self._cumulative is not None:
            return ""
        text = "".join(self._pieces[self._next :])
        if not self._next and (text.lstrip().startswith('"') or text.strip() == "null" or self._is_placeholder()):
            return ""
        self._next = len(self._pieces)
        self._released += len(text)
        return text

    def close(self) -> tuple[str, str]:
        """Return all arguments, and the part that was not released."""
        text = "".join(self._pieces)
        if len(self._pieces) > 1 and self._cumulative is not None and not is_json(text):
            text = self._cumulative
        text = decoded_twice(text + self._surrogates.flush())
        return text, text[self._released :]


def _differ(a: str | None, b: str | None) -> bool:
    return bool(a and b) and a != b


def _wire_id(value: JSON) -> str | None:
    return (value or None) if isinstance(value, str) else str(value) if type(value) is int else None


def _key(index: JSON) -> int | str | None:
    """Return an index as a number, or as a text if it is not a number; None if it is missing."""
    number = whole_number(index)
    return number if number is not None else json_text(index) or None


class ToolCallAssembler:
    """Assemble streamed calls. Each call has one index. Its first delta has the name and the id, later deltas do not.

    Accepts an index of any JSON type, an id, or neither; an index or id shared by several calls; arguments before the
    name; names in fragments or repeated in every piece; whole calls in one piece; arguments as objects; repeated or
    cumulative arguments; and a closing piece full of nulls.

    Args:
        ids: Object that creates the ids.
        tools: Names of the tools of the request. They decide whether two names are two calls or fragments of one name.
    """

    __slots__ = ("_by_id", "_by_key", "_calls", "_ids", "_last", "_tools")

    def __init__(self, ids: CallIds, tools: Collection[str] = ()) -> None:
        self._ids = ids
        self._tools = tools
        self._calls: list[_StreamedCall] = []
        self._by_key: dict[int | str, _StreamedCall] = {}
        self._by_id: dict[str, _StreamedCall] = {}
        self._last: _StreamedCall | None = None

    def __bool__(self) -> bool:
        return any(call.name for call in self._calls)

    def feed(self, raw: JSON) -> list[ToolCallDelta]:
        """Read the ``tool_calls`` of one event. Return the deltas."""
        entries = call_entries(raw)
        fed: list[_StreamedCall] = []
        if len(entries) == 1:
            return [delta] if (delta := self._feed_one(entries[0], None, fed)) else []
        return [delta for position, entry in enumerate(entries) if (delta := self._feed_one(entry, position, fed))]

    def _feed_one(
        self, entry: Mapping[str, JSON], position: int | None, fed: list[_StreamedCall]
    ) -> ToolCallDelta | None:
        """Read one piece. ``fed`` has the calls of the earlier pieces of the same event."""
        name, arguments = name_and_arguments(entry)
        wire_id = _wire_id(entry.get("id"))
        text = json_text(arguments)
        if not (name or wire_id or text):
            return None
        key = _key(entry.get("index"))
        call = self._find(key, wire_id, name, position)
        is_alone = key is None and wire_id is None
        if call and name and call not in fed and (joined := self._joined_name(call, wire_id, name, is_alone=is_alone)):
            call.name = joined
        elif call is None or (name and _is_new_call(call, key, wire_id, name, text)):
            call = _StreamedCall(len(self._calls))
            self._calls.append(call)
        fed.append(call)
        self._last = call
        if key is not None:
            self._by_key[key] = call
        if wire_id and call.wire_id in (None, wire_id):
            self._by_id[wire_id] = call
            call.wire_id = wire_id
        call.name = call.name or name
        call.add(text)
        return self._release(call) if call.started or self._has_whole_name(call) else None

    def _joined_name(self, call: _StreamedCall, wire_id: str | None, name: str, *, is_alone: bool) -> str:
        """Join ``name`` to the name of a call that arrives in fragments; return "" if ``name`` is not a fragment.

        Args:
            call: The call that the piece may belong to.
            wire_id: The id of the piece.
            name: The name in the piece.
            is_alone: Whether the piece has neither index nor id. Then only the tools of the request decide.
        """
        begun = call.name
        if not begun or call.started or call.size or _differ(wire_id, call.wire_id):
            return ""
        if begun in self._tools and name in self._tools:
            return ""
        repeated = name if name.startswith(begun) else ""
        for joined in (begun + name, repeated):
            if joined and any(tool.startswith(joined) for tool in self._tools):
                return joined
        return "" if is_alone or begun in self._tools else repeated or begun + name

    def _has_whole_name(self, call: _StreamedCall) -> bool:
        """Return whether the name of a call is complete: arguments have begun, or no longer tool begins with it."""
        if not call.name or call.size:
            return bool(call.name)
        return call.name in self._tools and sum(tool.startswith(call.name) for tool in self._tools) == 1

    def _find(
        self, key: int | str | None, wire_id: str | None, name: str | None, position: int | None
    ) -> _StreamedCall | None:
        """Return the call of a piece: by index, by id, by its position among several, else the last call."""
        if key is not None:
            call = self._by_key.get(key)
            if call is not None and wire_id and _differ(wire_id, call.wire_id):
                return self._by_id.get(wire_id, call)
            return call
        if wire_id and (call := self._by_id.get(wire_id)):
            return call
        last = self._last
        if not (wire_id or name) and position is not None and position < len(self._calls):
            return self._calls[position]
        return None if last and wire_id and last.wire_id else last

    def _release(self, call: _StreamedCall) -> ToolCallDelta | None:
        text = call.release()
        if call.started:
            return ToolCallDelta(call.index, None, None, text) if text else None
        return self._start(call, text)

    def _start(self, call: _StreamedCall, text: str) -> ToolCallDelta:
        call.started = True
        return ToolCallDelta(call.index, self._ids.assign(call.wire_id), call.name or "", text)

    def finish(self, truncation: str = "") -> list[ToolCallDelta]:
        """Return the deltas at the end of the stream: pending text, and the error of each call that must not run.

        Args:
            truncation: Finish reason of a truncated answer; "" for a complete one. Only in a complete answer, missing
                arguments become ``{}``.
        """
        self._join_nameless_calls()
        deltas = []
        for call in self._calls:
            text, rest = call.close()
            if not (call.name or text):
                continue
            if not truncation and text.strip() in NO_ARGUMENTS:
                text = rest = "{}"
            error = argument_error(text, truncation) or name_error(call.name)
            if not (rest or error or not call.started):
                continue
            delta = ToolCallDelta(call.index, None, None, rest) if call.started else self._start(call, rest)
            deltas.append(replace(delta, broken=text, error=error) if error else delta)
        return deltas

    def _join_nameless_calls(self) -> None:
        """Add the arguments of a call without a name to the named call before it, if that call is incomplete.

        This joins the pieces of one call even if each piece has its own index or id.
        """
        owner: _StreamedCall | None = None
        for call in list(self._calls):
            if call.name:
                owner = call
            elif owner is not None and owner.complete() is None:
                owner.add(call.close()[0])
                self._calls.remove(call)


def _is_new_call(call: _StreamedCall, key: int | str | None, wire_id: str | None, name: str, text: str) -> bool:
    """Return whether a piece with a name begins a new call, although its index or id is that of ``call``."""
    if _differ(wire_id, call.wire_id) or _differ(name, call.name):
        return True
    if call.name is None:
        return False
    if key is None and wire_id is None:  # only the arguments distinguish a second call from a repeated name
        return not call.size or call.complete() is not None
    return call.differs(text)
