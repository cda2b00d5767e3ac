"""Read whole tool calls: without ids, with repeated ids, or written as text."""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING, Final

from workers_ai._wire.json_parsing import (
    json_text,
    parse_answer,
    parse_json,
    replace_lone_surrogates,
)
from workers_ai._wire.json_types import JSON
from workers_ai._wire.json_writing import plain_json
from workers_ai.types import ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "NO_ARGUMENTS",
    "CallIds",
    "argument_error",
    "arguments_text",
    "call_entries",
    "decoded_twice",
    "name_and_arguments",
    "name_error",
    "original_id",
    "read_object",
    "read_tool_calls",
    "recover_leaked_calls",
]

_TURN_MARK: Final = "~turn"
NO_ARGUMENTS: Final = ("", "null")
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


def name_and_arguments(entry: Mapping[str, JSON]) -> tuple[str | None, JSON]:
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
    return "{}" if text in NO_ARGUMENTS else replace_lone_surrogates(text)


def argument_error(text: str, truncation: str) -> str:
    """Return why ``text`` is invalid as arguments of a call; "" if it is a JSON object.

    Args:
        text: The text.
        truncation: Finish reason of a truncated answer; "" for a complete one.
    """
    try:
        value = parse_json(text)
    except ValueError as exc:
        why = "the model wrote no arguments" if text.strip() in NO_ARGUMENTS else f"arguments are not valid JSON: {exc}"
    else:
        if isinstance(value, dict):
            return ""
        why = f"arguments are a JSON {type(value).__name__}, not an object"
    if not truncation:
        return why
    return f"{why} (the answer ended early: {_TRUNCATED_BY.get(truncation, f'finish reason {truncation!r}')})"


def call_entries(raw: JSON) -> list[dict[str, JSON]]:
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
    for entry in call_entries(raw):
        name, arguments = name_and_arguments(entry)
        text = decoded_twice(json_text(arguments))
        if not (name or text):
            continue
        if not truncation and text.strip() in NO_ARGUMENTS:
            text = "{}"
        error = argument_error(text, truncation) or name_error(name)
        calls.append(ToolCall(ids.assign(entry.get("id")), name or "", text, error))
    return tuple(calls)


def name_error(name: str | None) -> str:
    return "" if name else "the model wrote no tool name"


def decoded_twice(text: str) -> str:
    """Decode arguments that were encoded twice: an object in a JSON string. Return other text unchanged."""
    if not text.lstrip().startswith('"'):
        return text
    try:
        inner = parse_json(text)
    except ValueError:
        return text
    return inner if isinstance(inner, str) and read_object(inner) is not None else text


def read_object(text: str) -> dict[str, JSON] | None:
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def recover_leaked_calls(
    text: str, forced: Mapping[str, JSON], ids: CallIds, *, among_words: bool = False
) -> tuple[ToolCall, ...]:
    """Read a forced call that the model wrote as JSON text (gpt-oss: https://github.com/cloudflare/ai/issues/574).

    Recognizes only forced tools: by name, with arguments as ``arguments``, as ``parameters`` or beside the name; or,
    if a single tool was forced, by arguments that match its schema. Any other text returns no calls.

    Args:
        text: The answer.
        forced: Parameter schemas of the forced tools, by name.
        ids: Object that creates the ids.
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
