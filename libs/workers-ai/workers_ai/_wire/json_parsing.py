"""Parse JSON as models write it: strict or nearly so, bare, in a fence, among words, or after reasoning."""

from __future__ import annotations

import json
import math
import string
from typing import TYPE_CHECKING, Any, Final, NoReturn, overload

from pydantic_core import from_json

if TYPE_CHECKING:
    from workers_ai._wire.json_types import JSON

__all__ = [
    "SurrogateJoiner",
    "is_json",
    "json_text",
    "parse_answer",
    "parse_body",
    "parse_growing",
    "parse_json",
    "read_json",
    "replace_lone_surrogates",
    "whole_number",
]

_FENCE: Final = "```"
_REASONING_STARTS: Final = ("<think>", "<thinking>", "[THINK]")
_REASONING_ENDS: Final = ("</think>", "</thinking>", "[/THINK]")
_LITERALS: Final = ("null", "true", "false", "-")
_MAX_DIGITS: Final = 10
_MAX_DEPTH: Final = 200
"""Maximum nesting; pydantic's parser has the same limit."""
_MAX_INVALID: Final = 50
"""Maximum number of invalid values to skip among words. Each costs a pass over the text."""


def json_text(value: JSON) -> str:
    """Return a string as it is, null as "", and any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _decoder(*, strict: bool) -> json.JSONDecoder:
    return json.JSONDecoder(strict=strict, parse_constant=_reject_constant, parse_float=_finite_float)


_STRICT: Final = _decoder(strict=True)
_LENIENT: Final = _decoder(strict=False)


def parse_json(text: str, *, strict: bool = False) -> JSON:
    """Parse JSON text. NaN, infinity and numbers too large for a float are rejected.

    Args:
        text: The text.
        strict: Reject control characters inside strings.

    Raises:
        ValueError: The text is not JSON, or is nested too deep.
    """
    try:
        value: JSON = (_STRICT if strict else _LENIENT).decode(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if text.count("[") + text.count("{") > _MAX_DEPTH:
        _check_depth(value)
    return value


def _check_depth(value: JSON) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        level = [item for node in level for item in _children(node)]
        if not level:
            return
    raise ValueError("the JSON is nested too deep")


def _children(node: JSON) -> list[JSON]:
    items = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [item for item in items if isinstance(item, (dict, list))]


def read_json(text: str) -> Any:
    """Parse JSON that this library wrote."""
    try:
        return from_json(text)
    except ValueError:  # nested too deep for pydantic
        return json.loads(text)


def parse_body(data: bytes, *, keep_lone_surrogates: bool = False) -> JSON:
    """Parse the JSON of a response or event. Replace invalid bytes and lone surrogates.

    Args:
        data: The JSON, in UTF-8, UTF-16 or UTF-32.
        keep_lone_surrogates: Keep lone surrogates. In a stream, the low surrogate may come with the next event.

    Raises:
        ValueError: The data is not JSON, or is nested too deep.
    """
    try:
        parsed: JSON = from_json(data)
    except ValueError:
        text = data.decode(json.detect_encoding(data), errors="replace")
    else:
        return parsed
    try:
        value: JSON = json.loads(text, strict=False)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    _check_depth(value)
    return value if keep_lone_surrogates else replace_lone_surrogates(value)


@overload
def replace_lone_surrogates(value: str) -> str: ...
@overload
def replace_lone_surrogates(value: JSON) -> JSON: ...
@overload
def replace_lone_surrogates(value: object) -> object: ...
def replace_lone_surrogates(value: object) -> object:
    """Return the value with surrogate pairs in its texts joined, and lone surrogates replaced by U+FFFD."""
    if isinstance(value, str):
        return value if _is_utf8(value) else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [replace_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {replace_lone_surrogates(key): replace_lone_surrogates(item) for key, item in value.items()}
    return value


def _is_utf8(text: str) -> bool:
    """Return whether a text can be encoded. Surrogates cannot."""
    if text.isascii():  # a flag of the string: no pass over it
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class SurrogateJoiner:
    """Join surrogate pairs that are split between the pieces of a stream."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = ""

    def join(self, text: str) -> str:
        """Return the next piece. Keep a high surrogate at its end until the next call."""
        if not self._pending and text.isascii():
            return text
        text = self._pending + text
        self._pending = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return replace_lone_surrogates(text[: len(text) - len(self._pending)])

    def flush(self) -> str:
        """Return a replacement for a pending surrogate; "" if none is pending."""
        pending, self._pending = self._pending, ""
        return replace_lone_surrogates(pending)


def whole_number(value: JSON) -> int | None:
    """Return an index or id of at least 0, written as a number, text or float; None for any other value."""
    if isinstance(value, str) and len(value) < _MAX_DIGITS:
        whole, _, fraction = value.partition(".")
        if whole.isascii() and whole.isdecimal() and not fraction.strip("0"):
            return int(whole)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def is_json(text: str) -> bool:
    """Return whether :func:`parse_json` accepts the text."""
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def parse_answer(text: str, *, among_words: bool = True) -> JSON:
    """Parse the JSON value of an answer: the whole text, or one value in a fence, among words or after reasoning.

    A truncated value is neither repaired nor returned in part.

    Args:
        text: The answer.
        among_words: Accept one value among words. Only objects and lists count there; objects take precedence.

    Raises:
        ValueError: There is no JSON value, more than one, or it is truncated.
    """
    bare = text.strip()
    try:
        return parse_json(bare)
    except ValueError as exc:
        error = exc
    answer = after_reasoning(bare)
    for candidate in (answer, *_fenced(answer, among_words=among_words)):
        try:
            return parse_json(candidate)
        except ValueError:
            continue
    found = _embedded(answer) if among_words else []
    if not found:
        raise error
    if any(value != found[0] for value in found):
        raise ValueError(f"the text has {len(found)} JSON values instead of one")
    return found[0]


def _fenced(text: str, *, among_words: bool) -> list[str]:
    """Return the content of the only fence, without the name of its language."""
    parts = text.split(_FENCE)
    if len(parts) != 3 or (not among_words and (parts[0] or parts[2])):
        return []
    return [parts[1].lstrip(string.ascii_letters).strip()]


def after_reasoning(text: str) -> str:
    """Return the text after the last end tag of reasoning; "" if the reasoning has no end tag."""
    end, mark = max((text.rfind(mark), mark) for mark in _REASONING_ENDS)
    if end < 0:
        return "" if text.startswith(_REASONING_STARTS) else text
    return text[end + len(mark) :].strip()


def _embedded(text: str) -> list[JSON]:
    """Return the objects among words, else the lists. Skip invalid values and everything inside them.

    Raises:
        ValueError: A value is truncated.
    """
    objects = _find_values(text, "{")
    return objects or _find_values(text, "[")


def _find_values(text: str, opening: str) -> list[JSON]:
    found: list[JSON] = []
    start = text.find(opening)
    invalid = 0
    while start >= 0:
        try:
            value, end = _LENIENT.raw_decode(text, start)
            _check_depth(value)
            found.append(value)
        except json.JSONDecodeError as exc:
            invalid += 1
            if _is_truncated(text, exc) or invalid > _MAX_INVALID:
                raise
            end = max(exc.pos, start + 1)
        except RecursionError:
            raise ValueError("the JSON is nested too deep") from None
        start = text.find(opening, end)
    return found


def _is_truncated(text: str, error: json.JSONDecodeError) -> bool:
    """Return whether the text ends inside the invalid value."""
    rest = text[error.pos : error.pos + 6]
    return (
        error.msg.startswith("Unterminated")
        or any(literal.startswith(rest) for literal in _LITERALS)
        or (error.msg.startswith("Invalid \\uXXXX") and len(rest) < 6)
    )


def parse_growing(text: str) -> JSON:
    """Parse an unfinished JSON answer, including the received part of its last string; None before the first value."""
    bare = after_reasoning(text.strip())
    if not bare.startswith("["):
        bare = bare[bare.find("{") :] if "{" in bare else bare.removeprefix(_FENCE).lstrip(string.ascii_letters)
    if bare.endswith(_FENCE):
        bare = bare.removesuffix(_FENCE)
    try:
        value: JSON = from_json(bare, allow_partial="trailing-strings", allow_inf_nan=False)
    except ValueError:
        return None
    return value
