"""Write Python values as strict JSON, and recognize cache marks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Literal

from pydantic_core import from_json, to_json

from workers_ai._wire.json_parsing import replace_lone_surrogates
from workers_ai._wire.json_types import JSON
from workers_ai.errors import BadRequestError

__all__ = ["compact_json", "is_cache_mark", "plain_json"]

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_STRICT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_CACHE_MARKS: Final = frozenset({"cachePoint", "cache_point", "cache_control"})
_MARK_FIELDS: Final = _CACHE_MARKS | {"type", "ttl", "index"}


def is_cache_mark(part: object) -> bool:
    """Return whether a content block only marks the end of a cached prefix, as those of Bedrock and Anthropic do."""
    if not isinstance(part, Mapping) or part.keys() - _MARK_FIELDS:
        return False
    return bool(_CACHE_MARKS & {str(part.get("type")), *part})


def compact_json(value: JSON) -> bytes:
    """Return JSON in UTF-8, without spaces. Values that are not JSON are written as pydantic writes them.

    Raises:
        TypeError: A value cannot be written as JSON.
        ValueError: The value contains itself.
        RecursionError: The value is nested too deep.
    """
    try:
        return to_json(value)  # several times faster than the standard library
    except ValueError:  # a lone surrogate, an unknown type, or nested deeper than pydantic writes
        return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def plain_json(value: object) -> str:
    """Return a Python value as strict JSON.

    Dates are written in ISO 8601, bytes as text or base64, NaN and infinity as null, lone surrogates as U+FFFD, arrays
    as lists, and other objects as pydantic writes them, else as their ``str``.

    Raises:
        BadRequestError: The value contains itself, or is nested too deep.
    """
    with suppress(TypeError, ValueError, RecursionError):
        return replace_lone_surrogates(_STRICT.encode(value))
    try:
        with suppress(ValueError):  # bytes that are not UTF-8
            return _to_json(value, "utf8")
        return _to_json(value, "base64")
    except RecursionError:
        raise BadRequestError("a value cannot be written as JSON: it contains itself, or is nested too deep") from None
    except ValueError as exc:
        raise BadRequestError(f"a value cannot be written as JSON: {exc}") from None


def _to_json(value: object, bytes_mode: Literal["utf8", "base64"]) -> str:
    written = to_json(replace_lone_surrogates(value), inf_nan_mode="null", bytes_mode=bytes_mode, fallback=_fallback)
    return json.dumps(from_json(written), ensure_ascii=False)


def _fallback(value: object) -> object:
    """Convert a value that pydantic cannot write: an array to a list, any other value to a text."""
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else str(value)
