"""JSON as models write it: strict or nearly so, bare, in a fence, among words, or after a thought."""

from __future__ import annotations

import json
import math
import string
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pydantic_core import from_json

if TYPE_CHECKING:
    from workers_ai.types import JSON

__all__ = [
    "HalfLetters",
    "is_json",
    "json_text",
    "mended",
    "parse_answer",
    "parse_body",
    "parse_growing",
    "parse_json",
    "whole_number",
    "written_json",
]

_FENCE: Final = "```"
_THOUGHT_ENDS: Final = ("</think>", "</thinking>", "[/THINK]")
_DIGITS: Final = 10
_MAX_DEPTH: Final = 200
"""Deepest nesting that is read; pydantic's parser has the same bound."""
_MAX_BROKEN: Final = 50
"""Broken values that are skipped among words: each costs a pass over the text."""


def json_text(value: JSON) -> str:
    """Return a string as it is, null as "", and any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def written_json(value: Any) -> str:
    """Return any Python value as strict JSON text.

    Dates, sets and objects are written as pydantic writes them, bytes as base64, NaN and infinity as text.

    Raises:
        ValueError: The value contains itself, or is nested too deep.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        from pydantic_core import to_jsonable_python

        plain = to_jsonable_python(value, fallback=str, bytes_mode="base64")
        return json.dumps(_finite(plain), ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise ValueError("the value is nested too deep") from None


def _finite(value: JSON) -> JSON:
    """Return the value with NaN and infinity as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _decoder(*, strict: bool) -> json.JSONDecoder:
    return json.JSONDecoder(strict=strict, parse_constant=_no_constant, parse_float=_finite_float)


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
        value = (_STRICT if strict else _LENIENT).decode(text)
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


def parse_body(data: bytes, *, halves: bool = False) -> JSON:
    """Parse the JSON of a response or event. Replace invalid bytes and lone surrogates.

    Args:
        data: The JSON, in UTF-8, UTF-16 or UTF-32.
        halves: Keep lone surrogates: the other half may come with the next event.

    Raises:
        ValueError: The data is not JSON, or is nested too deep.
    """
    try:
        return from_json(data)
    except ValueError:
        text = data.decode(json.detect_encoding(data), errors="replace")
    try:
        value = json.loads(text, strict=False)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    _check_depth(value)
    return value if halves else mended(value)


def mended(value: JSON) -> JSON:
    """Return the value with surrogate pairs in its texts joined, and lone surrogates replaced."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [mended(item) for item in value]
    if isinstance(value, dict):
        return {mended(key): mended(item) for key, item in value.items()}
    return value


class HalfLetters:
    """Joins surrogate pairs that are split between pieces of a text."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def join(self, text: str) -> str:
        """Return the next piece. A high surrogate at its end waits for the piece after it."""
        if not self._held and text.isascii():
            return text
        text = self._held + text
        self._held = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        whole: str = mended(text[: len(text) - len(self._held)])
        return whole

    def rest(self) -> str:
        """Return a replacement for a surrogate that is still waiting, else ""."""
        held, self._held = self._held, ""
        whole: str = mended(held)
        return whole


def whole_number(value: JSON) -> int | None:
    """Return an index or id from 0 up, sent as a number, a text or a float; None for anything else."""
    if isinstance(value, str) and len(value) < _DIGITS:
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
    """Parse the JSON value of an answer: the whole text, or one value in a fence, among words or after a thought.

    A truncated value is not repaired, and no part of it is returned.

    Args:
        text: The answer.
        among_words: Accept one value among words. Only objects and lists count there, and objects outrank lists.

    Raises:
        ValueError: There is no JSON value, more than one, or it is truncated.
    """
    bare = text.strip()
    try:
        return parse_json(bare)
    except ValueError as exc:
        failure = exc
    answer = _after_thoughts(bare)
    for candidate in (answer, *_fenced(answer, among_words=among_words)):
        try:
            return parse_json(candidate)
        except ValueError:
            continue
    found = _embedded(answer) if among_words else []
    if not found:
        raise failure
    if any(value != found[0] for value in found):
        raise ValueError(f"there are {len(found)} JSON values in the text")
    return found[0]


def _fenced(text: str, *, among_words: bool) -> list[str]:
    """Return the content of the only fence, without the name of its language."""
    parts = text.split(_FENCE)
    if len(parts) != 3 or (not among_words and (parts[0] or parts[2])):
        return []
    return [parts[1].lstrip(string.ascii_letters).strip()]


def _after_thoughts(text: str) -> str:
    """Return the text after the last mark that ends a thought; "" for a thought that does not end."""
    end, mark = max((text.rfind(mark), mark) for mark in _THOUGHT_ENDS)
    if end < 0:
        return "" if text.startswith(("<think>", "<thinking>", "[THINK]")) else text
    return text[end + len(mark) :].strip()


def _embedded(text: str) -> list[JSON]:
    """Return the objects among words, else the lists. Parse each character once, and nothing inside a broken value.

    Raises:
        ValueError: A value is truncated.
    """
    objects = _values(text, "{")
    return objects or _values(text, "[")


def _values(text: str, opening: str) -> list[JSON]:
    found: list[JSON] = []
    at = text.find(opening)
    broken = 0
    while at >= 0:
        try:
            value, end = _LENIENT.raw_decode(text, at)
            _check_depth(value)
            found.append(value)
        except json.JSONDecodeError as exc:
            broken += 1
            if exc.msg.startswith("Unterminated") or exc.pos >= len(text) or broken > _MAX_BROKEN:
                raise
            end = max(exc.pos, at + 1)
        except RecursionError:
            raise ValueError("the JSON is nested too deep") from None
        at = text.find(opening, end)
    return found


def parse_growing(text: str) -> JSON:
    """Return the part of a JSON answer that has arrived, its last text as far as it goes; None before it begins."""
    bare = _after_thoughts(text.strip())
    if not bare.startswith("["):
        bare = bare[bare.find("{") :] if "{" in bare else bare.removeprefix(_FENCE).lstrip(string.ascii_letters)
    if bare.endswith(_FENCE):
        bare = bare.removesuffix(_FENCE)
    try:
        return from_json(bare, allow_partial="trailing-strings", allow_inf_nan=False)
    except ValueError:
        return None
