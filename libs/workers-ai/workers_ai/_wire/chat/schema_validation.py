"""Whether a value has the form that a JSON schema asks for: what pydantic does for a class, for a schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

from workers_ai.types import JSON

__all__ = ["conform"]

_DEEPEST: Final = 100
_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (isinstance(value, int) and not isinstance(value, bool)) or _is_whole(value),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "null": lambda value: value is None,
}
_BOUNDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "minLength": lambda value, bound: len(value) >= bound,
    "maxLength": lambda value, bound: len(value) <= bound,
    "minItems": lambda value, bound: len(value) >= bound,
    "maxItems": lambda value, bound: len(value) <= bound,
    "pattern": lambda value, bound: re.search(bound, value) is not None,
}


def conform(value: JSON, schema: Mapping[str, JSON]) -> JSON:
    """Return the value in the form of the schema.

    As pydantic does, a text that holds a number or a boolean is read as one where the schema asks for it: models of the
    older family write them so. Keywords of JSON Schema that are not known here are not checked.

    Raises:
        ValueError: The value does not fit; says where and why.
    """
    return _Check(schema).of(value, schema, "", 0)


class _Check:
    """Checks values against one schema and its definitions."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._root = root

    def of(self, value: JSON, schema: JSON, path: str, depth: int) -> JSON:
        if schema is False:
            raise _misfit(path, "is not allowed")
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return value
        if isinstance(ref := schema.get("$ref"), str):
            value = self.of(value, self._target(ref), path, depth + 1)
        value = _of_type(value, schema.get("type"), path)
        _check_choice(value, schema, path)
        value = self._of_alternatives(value, schema, path, depth)
        if isinstance(value, dict):
            return self._object(value, schema, path, depth)
        if isinstance(value, list):
            items = schema.get("items")
            value = [self.of(item, items, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        _check_bounds(value, schema, path)
        return value

    def _of_alternatives(self, value: JSON, schema: Mapping[str, JSON], path: str, depth: int) -> JSON:
        for part in _listed(schema.get("allOf")):
            value = self.of(value, part, path, depth + 1)
        alternatives = _listed(schema.get("anyOf")) or _listed(schema.get("oneOf"))
        reasons = []
        for alternative in alternatives:
            try:
                return self.of(value, alternative, path, depth + 1)
            except ValueError as exc:
                reasons.append(str(exc))
        if reasons:
            raise ValueError(" or ".join(dict.fromkeys(reasons)))
        return value

    def _object(self, value: dict[str, JSON], schema: Mapping[str, JSON], path: str, depth: int) -> JSON:
        if missing := [name for name in _listed(schema.get("required")) if name not in value]:
            raise _misfit(path, f"lacks {', '.join(map(str, missing))}")
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        others = schema.get("additionalProperties")
        out = {}
        for name, item in value.items():
            part = known.get(name, others)
            out[name] = self.of(item, part, f"{path}.{name}" if path else name, depth + 1)
        return out

    def _target(self, ref: str) -> JSON:
        target: JSON = self._root
        for step in unquote(ref.removeprefix("#").strip("/")).split("/"):
            if step:
                target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        return target


def _of_type(value: JSON, kinds: JSON, path: str) -> JSON:
    known = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind in _TYPES]
    if not known:
        return value
    if any(_TYPES[kind](value) for kind in known):
        return int(value) if known == ["integer"] and isinstance(value, float) else value
    if isinstance(value, str):
        for kind in known:
            with suppress(ValueError):
                return _read(value, kind)
    raise _misfit(path, f"is a JSON {_name_of(value)}, not {' or '.join(known)}")


def _read(text: str, kind: str) -> JSON:
    """Read a number or a boolean out of a text.

    Raises:
        ValueError: The text does not hold a value of this kind.
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


def _name_of(value: JSON) -> str:
    return next(name for name in ("null", "boolean", "integer", "number", "string", "array", "object")
                if _TYPES[name](value))  # fmt: skip


def _check_choice(value: JSON, schema: Mapping[str, JSON], path: str) -> None:
    choices = _listed(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
    if choices and not any(value == choice and type(value) is type(choice) for choice in choices):
        raise _misfit(path, f"is {value!r:.100}, not one of {', '.join(map(repr, choices)):.200}")


def _check_bounds(value: JSON, schema: Mapping[str, JSON], path: str) -> None:
    for name, fits in _BOUNDS.items():
        if (bound := schema.get(name)) is None:
            continue
        with suppress(TypeError, re.error):  # a bound of another kind says nothing about this value
            if not fits(value, bound):
                raise _misfit(path, f"is {value!r:.100}, against {name} {bound}")


def _listed(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _misfit(path: str, what: str) -> ValueError:
    return ValueError(f"{path or 'the answer'} {what}")
