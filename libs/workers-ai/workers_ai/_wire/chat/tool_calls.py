"""Read tool calls: whole, in pieces, without ids, with repeated ids, or written as text."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from workers_ai._wire.json_parsing import (
    SurrogateJoiner,
    is_json,
    json_text,
    parse_answer,
    parse_json,
    replace_lone_surrogates,
    whole_number,
)
from workers_ai._wire.json_types import JSON
from workers_ai._wire.json_writing import plain_json
from workers_ai.types import ToolCall, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = [
    "CallIds",
    "ToolCallAssembler",
    "argument_error",
    "arguments_text",
    "original_id",
    "read_tool_calls",
    "recover_leaked_calls",
]

_TURN_MARK: Final = "~turn"
_EMPTY: Final = ("", "null")
_TRUNCATED_BY: Final = {
    "length": "it reached max_tokens; increase max_tokens",
    "content_filter": "a content filter stopped it",
    "error": "the service reported an error",
}
_TURN_MARK_PATTERN = re.compile(r"~turn\d+$")


class CallIds:
    """Create tool-call ids that are unique in the conversation.

    The model's id is kept unless an earlier turn has used it. (Some models count from zero in every reply:
    https://github.com/cloudflare/ai/issues/526.) Then a mark is appended, and :func:`original_id` removes it before the
    id is sent back. An id that is missing, or repeats within one reply, is replaced. New ids have nine letters or
    digits, as Mistral and Llama 4 require.
    """

    __slots__ = ("_earlier", "_here")

    def __init__(self, earlier: Iterable[str] = ()) -> None:
        self._earlier = earlier if isinstance(earlier, frozenset) else frozenset(earlier)
        self._here: set[str] = set()

    def assign(self, wire_id: JSON) -> str:
        """Return the id for a call whose id in the reply is ``wire_id``."""
        own = wire_id if isinstance(wire_id, str) and wire_id else None
        if own is None or own in self._here:
            return self._new()
        self._here.add(own)
        if own not in self._earlier:
            return own
        turn = 2
        while f"{own}{_TURN_MARK}{turn}" in self._earlier:
            turn += 1
        return f"{own}{_TURN_MARK}{turn}"

    def _new(self) -> str:
        new = uuid.uuid4().hex[:9]
        self._here.add(new)
        return new


def original_id(call_id: str) -> str:
    """Return the model's id for an id that :class:`CallIds` marked."""
    return _TURN_MARK_PATTERN.sub("", call_id)


def _parts(entry: Mapping[str, JSON]) -> tuple[str | None, JSON]:
    """Return name and arguments of a nested or flat call."""
    function = entry.get("function")
    source = function if isinstance(function, dict) else entry
    name = source.get("name")
    return name if isinstance(name, str) and name else None, source.get("arguments")


def arguments_text(arguments: JSON) -> str:
    """Return the JSON text of arguments, given as text, an object or None.

    Raises:
        BadRequestError: The arguments contain themselves, or are nested too deep.
    """
    text = (arguments if isinstance(arguments, str) else "" if arguments is None else plain_json(arguments)).strip()
    return "{}" if text in _EMPTY else replace_lone_surrogates(text)


def argument_error(text: str, truncation: str) -> str:
    """Return why ``text`` is invalid as arguments of a call; "" if it is a JSON object.

    Args:
        text: The text.
        truncation: Finish reason of a truncated answer; "" for a complete one.
    """
    try:
        value = parse_json(text)
    except ValueError as exc:
        why = "the model wrote no arguments" if text.strip() in _EMPTY else f"arguments are not valid JSON: {exc}"
    else:
        if isinstance(value, dict):
            return ""
        why = f"arguments are a JSON {type(value).__name__}, not an object"
    if not truncation:
        return why
    return f"{why} (the answer ended early: {_TRUNCATED_BY.get(truncation, f'finish reason {truncation!r}')})"


def _entries(raw: JSON) -> list[dict[str, JSON]]:
    """Return the calls of a list. A single call without a list is accepted."""
    return [entry for entry in (raw if isinstance(raw, list) else [raw]) if isinstance(entry, dict)]


def read_tool_calls(raw: JSON, ids: CallIds, truncation: str = "") -> tuple[ToolCall, ...]:
    """Read a list of whole calls, flat or nested. Ignore entries without name and arguments.

    ``truncation`` is the finish reason of a truncated answer; "" for a complete one. Only in a complete answer, missing
    arguments become ``{}``.
    """
    if raw is None:
        return ()
    calls = []
    for entry in _entries(raw):
        name, arguments = _parts(entry)
        text = _decoded_twice(json_text(arguments))
        if not (name or text):
            continue
        if not truncation and text.strip() in _EMPTY:
            text = "{}"
        error = argument_error(text, truncation) or _name_error(name)
        calls.append(ToolCall(ids.assign(entry.get("id")), name or "", text, error))
    return tuple(calls)


def _name_error(name: str | None) -> str:
    return "" if name else "the model wrote no tool name"


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
        return _object("".join(self._pieces))

    def _is_placeholder(self) -> bool:
        """Return whether only ``{}`` has arrived. Some services send it in place of missing arguments."""
        return len(self._pieces) == 1 and self._pieces[0].strip() == "{}"

    def _repeats(self, text: str) -> bool:
        if text.strip() == "{}":
            return self.complete() is not None
        return self._could_repeat(text) and (whole := self.complete()) is not None and _object(text) == whole

    def differs(self, text: str) -> bool:
        """Return whether ``text`` is an object that differs from the complete arguments of this call."""
        if not self._could_repeat(text) or (whole := self.complete()) is None:
            return False
        return _object(text) not in (None, whole)

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
        text = _decoded_twice(text + self._surrogates.flush())
        return text, text[self._released :]


def _decoded_twice(text: str) -> str:
    """Decode arguments that were encoded twice: an object in a JSON string. Return other text unchanged."""
    if not text.lstrip().startswith('"'):
        return text
    try:
        inner = parse_json(text)
    except ValueError:
        return text
    return inner if isinstance(inner, str) and _object(inner) is not None else text


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
    """Return an index as a number, or as a text if it is not a number; None if it is missing."""
    number = whole_number(index)
    return number if number is not None else json_text(index) or None


class ToolCallAssembler:
    """Assemble streamed calls. Each call gets one index, and its name and id once, in its first delta.

    Accepts an index of any JSON type, an id, or neither; an index or id shared by several calls; arguments before the
    name; names in fragments or repeated in every piece; whole calls in one piece; arguments as objects; repeated or
    cumulative arguments; and a closing piece full of nulls.

    Args:
        ids: Creates the ids.
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
        entries = _entries(raw)
        fed: list[_StreamedCall] = []
        if len(entries) == 1:
            return [delta] if (delta := self._feed_one(entries[0], None, fed)) else []
        return [delta for position, entry in enumerate(entries) if (delta := self._feed_one(entry, position, fed))]

    def _feed_one(
        self, entry: Mapping[str, JSON], position: int | None, fed: list[_StreamedCall]
    ) -> ToolCallDelta | None:
        """Read one piece. ``fed`` has the calls of the earlier pieces of the same event."""
        name, arguments = _parts(entry)
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
            if not truncation and text.strip() in _EMPTY:
                text = rest = "{}"
            error = argument_error(text, truncation) or _name_error(call.name)
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


def recover_leaked_calls(
    text: str, forced: Mapping[str, JSON], ids: CallIds, *, among_words: bool = False
) -> tuple[ToolCall, ...]:
    """Read a forced call that the model wrote as JSON text (gpt-oss: https://github.com/cloudflare/ai/issues/574).

    Recognizes only forced tools: by name, with arguments as ``arguments``, as ``parameters`` or beside the name; or,
    if a single tool was forced, by arguments that match its schema. Any other text returns no calls.

    Args:
        text: The answer.
        forced: Parameter schemas of the forced tools, by name.
        ids: Creates the ids.
        among_words: Accept a call among words. An agent must not execute an example in a sentence; a parser that
            expects only this call may accept it.
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
        calls.append(ToolCall(ids.assign(None), found[0], json.dumps(found[1], ensure_ascii=False)))
    return tuple(calls)


def _leaked(entry: JSON, forced: Mapping[str, JSON]) -> tuple[str, JSON] | None:
    if not isinstance(entry, dict):
        return None
    function = entry.get("function")
    source = function if isinstance(function, dict) else entry
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
    """Return whether ``arguments`` has every required property, and no unknown property."""
    if not isinstance(schema, dict) or not isinstance(properties := schema.get("properties"), dict) or not arguments:
        return False
    required = schema.get("required")
    return set(required if isinstance(required, list) else ()) <= set(arguments) <= set(properties)
