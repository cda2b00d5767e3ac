"""JSON as models write it: strict or nearly so, bare, in a fence, or after a thought."""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING, Final

from pydantic_core import from_json

if TYPE_CHECKING:
    from workers_ai.wire.types import JSON

__all__ = [
    "is_json",
    "json_text",
    "mended",
    "parse_answer",
    "parse_body",
    "parse_growing",
    "parse_json",
    "whole_number",
]

_FENCE: Final = "```"
_DIGITS: Final = 10


def json_text(value: JSON) -> str:
    """Text of a value of the wire: a string as it is, null as "", anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def parse_json(text: str, *, strict: bool = False) -> JSON:
    """Parse JSON text. Control characters inside its strings do no harm, unless it is to be ``strict``.

    Raises:
        ValueError: The text is not JSON, or nested deeper than Python reads.
    """
    try:
        return json.loads(text, strict=strict)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def parse_body(data: bytes, *, halves: bool = False) -> JSON:
    """Parse the JSON of a reply or event; a byte that is no UTF-8, or half a letter, costs no more than itself.

    Args:
        data: The JSON.
        halves: Whether halves of letters are left alone: the other one may come with the next event.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return from_json(data)
    except ValueError:
        value = parse_json(data.decode("utf-8-sig", errors="replace"))
        try:
            return value if halves else mended(value)
        except RecursionError:
            raise ValueError("the JSON is nested too deep") from None


def mended(value: JSON) -> JSON:
    """The value with halves of letters (lone surrogates) in its texts joined, or replaced where one is missing."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [mended(item) for item in value]
    if isinstance(value, dict):
        return {mended(key): mended(item) for key, item in value.items()}
    return value


def whole_number(value: JSON) -> int | None:
    """An index or id that is a number from 0 up, written as such, as a text or as a float; None for anything else."""
    if isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def is_json(text: str) -> bool:
    """Whether :func:`parse_json` reads the text."""
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def parse_answer(text: str) -> JSON:
    """Parse an answer that was to be JSON, and may stand in a fence or after a thought. What was cut off is not mended.

    Raises:
        ValueError: There is no JSON.
    """
    bare = text.strip()
    after = bare.partition("</think>")[2].strip()
    for candidate in (_unfenced(bare), _unfenced(after)):
        try:
            return parse_json(candidate)
        except ValueError:
            continue
    return parse_json(bare)


def parse_growing(text: str) -> JSON:
    """What has arrived of an answer that is to be JSON, its last text as far as it goes; None where nothing has."""
    bare = (text.partition("</think>")[2] or text).strip()
    if bare.startswith(_FENCE):
        bare = bare[len(_FENCE) :].removesuffix(_FENCE).lstrip(string.ascii_letters)
    try:
        return from_json(bare, allow_partial="trailing-strings")
    except ValueError:
        return None


def _unfenced(text: str) -> str:
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    return text[len(_FENCE) : -len(_FENCE)].lstrip(string.ascii_letters).strip()
