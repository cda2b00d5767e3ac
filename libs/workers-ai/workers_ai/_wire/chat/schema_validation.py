"""Validate values against a JSON schema, as pydantic does against a class."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

from workers_ai._wire.json_types import JSON

__all__ = ["conform", "schema_fault"]

_MAX_DEPTH: Final = 100
_TYPES: Final[dict[str, Callable[[JSON], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (isinstance(value, int) and not isinstance(value, bool)) or _is_whole(value),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "null": lambda value: value is None,
}
_LIMITS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
    "pattern": lambda value, limit: re.search(limit, value) is not None,
}


def conform(value: JSON, schema: Mapping[str, JSON]) -> JSON:
    """Validate a value against a schema, and return it with the types of the schema.

    As in pydantic, a text is converted to the number or boolean that the schema requires, since models of the older
    family write such texts. Keywords of JSON Schema that this module does not check are ignored.

    Raises:
        ValueError: The value does not match the schema. The message includes the path and the reason.
    """
    return _Validator(schema).validate(value, schema, "", 0)


def schema_fault(schema: Mapping[str, JSON]) -> str | None:
    """Return the first fault of a JSON schema; None if it is valid.

    Faults are an unknown type, a part that is not a schema, and an unknown reference. Unknown keywords are not checked.
    """
    find = _Validator(schema)._target
    left: list[tuple[str, JSON]] = [("", schema)]
    while left:
        path, part = left.pop()
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            return f"{path} is {part!r:.60}, not a schema"
        kinds = part.get("type", [])
        if unknown := [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind not in tuple(_TYPES)]:
            return f"{path or 'it'} has the unknown type {unknown[0]!r:.60}; the types are {', '.join(_TYPES)}"
        ref = part.get("$ref")
        if ref is not None and not (isinstance(ref, str) and ref.startswith("#") and find(ref) is not None):
            return f"{path or 'it'} refers to {ref!r:.60}, which is not in the schema"
        left += [(f"{path}.{name}".lstrip("."), inner) for name, inner in _parts(part)]
    return None


def _parts(schema: Mapping[str, JSON]) -> Iterator[tuple[str, JSON]]:
    """Yield the schemas in a schema, each with its path."""
    for name in ("properties", "$defs", "definitions"):
        inner = schema.get(name, {})
        yield from (
            ((f"{name}.{key}", value) for key, value in inner.items()) if isinstance(inner, dict) else [(name, inner)]
        )
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield name, schema[name]
    for name in ("anyOf", "oneOf", "allOf"):
        yield from ((f"{name}[{index}]", value) for index, value in enumerate(_as_list(schema.get(name))))


class _Validator:
    """Validate values against one schema and its definitions."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._root = root

    def validate(self, value: JSON, schema: JSON, path: str, depth: int) -> JSON:
        if schema is False:
            raise _invalid(path, "is not allowed")
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return value
        if isinstance(ref := schema.get("$ref"), str):
            value = self.validate(value, self._target(ref), path, depth + 1)
        value = _of_type(value, schema.get("type"), path)
        _check_choice(value, schema, path)
        value = self._validate_alternatives(value, schema, path, depth)
        if isinstance(value, dict):
            return self._validate_object(value, schema, path, depth)
        if isinstance(value, list):
            items = schema.get("items")
            value = [self.validate(item, items, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        _check_limits(value, schema, path)
        return value

    def _validate_alternatives(self, value: JSON, schema: Mapping[str, JSON], path: str, depth: int) -> JSON:
        for part in _as_list(schema.get("allOf")):
            value = self.validate(value, part, path, depth + 1)
        alternatives = _as_list(schema.get("anyOf")) or _as_list(schema.get("oneOf"))
        reasons = []
        for alternative in alternatives:
            try:
                return self.validate(value, alternative, path, depth + 1)
            except ValueError as exc:
                reasons.append(str(exc))
        if reasons:
            raise ValueError(" or ".join(dict.fromkeys(reasons)))
        return value

    def _validate_object(self, value: dict[str, JSON], schema: Mapping[str, JSON], path: str, depth: int) -> JSON:
        if missing := [name for name in _as_list(schema.get("required")) if name not in value]:
            raise _invalid(path, f"lacks {', '.join(map(str, missing))}")
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        others = schema.get("additionalProperties")
        out = {}
        for name, item in value.items():
            part = known.get(name, others)
            out[name] = self.validate(item, part, f"{path}.{name}" if path else name, depth + 1)
        return out

    def _target(self, ref: str) -> JSON:
        target: JSON = self._root
        for step in unquote(ref.removeprefix("#").strip("/")).split("/"):
            if step:
                target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        return target


def _of_type(value: JSON, kinds: JSON, path: str) -> JSON:
    given = kinds if isinstance(kinds, list) else [kinds]
    known = [kind for kind in given if isinstance(kind, str) and kind in _TYPES]
    if not known:
        return value
    if any(_TYPES[kind](value) for kind in known):
        return int(value) if known == ["integer"] and isinstance(value, float) else value
    if isinstance(value, str):
        for kind in known:
            with suppress(ValueError):
                return _convert(value, kind)
    raise _invalid(path, f"is a JSON {_type_name(value)}, not {' or '.join(known)}")


def _convert(text: str, kind: str) -> JSON:
    """Convert a text to a number or a boolean.

    Raises:
        ValueError: The text has no value of this type.
    """
    if kind == "integer":
        return int(text)
    if kind == "number" and _is_finite(number := float(text)):
        return number
    if kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError(text)


def _is_finite(number: float) -> bool:
    return number - number == 0


def _is_whole(value: JSON) -> bool:
    return isinstance(value, float) and value.is_integer()


def _type_name(value: JSON) -> str:
    return next(name for name in ("null", "boolean", "integer", "number", "string", "array", "object")
                if _TYPES[name](value))  # fmt: skip


def _check_choice(value: JSON, schema: Mapping[str, JSON], path: str) -> None:
    choices = _as_list(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
    if choices and not any(value == choice and type(value) is type(choice) for choice in choices):
        raise _invalid(path, f"is {value!r:.100}, not one of {', '.join(map(repr, choices)):.200}")


def _check_limits(value: JSON, schema: Mapping[str, JSON], path: str) -> None:
    for name, is_within in _LIMITS.items():
        if (limit := schema.get(name)) is None:
            continue
        with suppress(TypeError, re.error):  # ignore a limit for another type of value
            if not is_within(value, limit):
                raise _invalid(path, f"is {value!r:.100}, but {name} is {limit}")


def _as_list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _invalid(path: str, what: str) -> ValueError:
    return ValueError(f"{path or 'the answer'} {what}")
