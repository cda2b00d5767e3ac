"""JSON as models write it: strict or nearly so, bare, in a fence, or after a thought."""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers_ai.wire.types import JSON

__all__ = ["is_json", "json_text", "parse_answer", "parse_json"]

_FENCE = "```"


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


def _unfenced(text: str) -> str:
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    return text[len(_FENCE) : -len(_FENCE)].lstrip(string.ascii_letters).strip()
