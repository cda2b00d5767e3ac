"""Valid instances of a JSON schema, with values taken from a text where the types allow it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from workers_ai_emulator.player.source import Source, split_name
from workers_ai_emulator.wire import ServiceError

if TYPE_CHECKING:
    from workers_ai_emulator.wire import Json

_DEPTH = 8
_WHOLE_TEXT = {
    "query",
    "question",
    "q",
    "search",
    "text",
    "input",
    "prompt",
    "message",
    "request",
    "task",
    "topic",
}
_PLACES = {"location", "city", "place", "country", "town", "region", "destination", "origin"}
_CANNED = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00",
    "email": "someone@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "duration": "PT1H",
}
_TRIES = [
    "a",
    "A",
    "abc",
    "ABC",
    "a1",
    "A1",
    "0",
    "1",
    "12",
    "123",
    "1234",
    "12345",
    "A-1",
    "2026-01-01",
    "AB",
    "AB12",
]


class Instance:
    """Builds one instance.

    Args:
        root: The whole schema, in which ``$ref`` is looked up.
        source: Where values come from.
        sparse: Whether optional properties are left out unless the text speaks of them, as in a tool call.
    """

    def __init__(self, root: Json, source: Source, *, sparse: bool) -> None:
        self._root = root
        self._source = source
        self._sparse = sparse
        source.exclude(root.get("properties") or {})

    def build(self) -> Any:
        """The instance.

        Raises:
            ServiceError: With the documented text, if the schema cannot be met.
        """
        return self._value(self._root, "", 0)

    def _value(self, schema: Any, name: str, depth: int) -> Any:
        schema = self._resolved(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._enum(schema, name)
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                return self._union(schema[key], name, depth)
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, name, depth)
        if kind in {"integer", "number"}:
            return self._number(schema, name, whole=kind == "integer")
        if kind == "boolean":
            return self._boolean(schema, name)
        return None if kind == "null" else self._string(schema, name)

    def _resolved(self, schema: Any, depth: int) -> Json:
        """A schema with its references followed and its ``allOf`` merged."""
        if depth > _DEPTH or schema is False:
            raise ServiceError(400, 5024, "JSON Mode couldn't be met")
        if not isinstance(schema, dict):
            return {}
        if "$ref" in schema:
            target: Any = self._root
            for part in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
                target = target.get(part.replace("~1", "/").replace("~0", "~"), {}) if part else target
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return self._resolved({**target, **rest}, depth + 1)
        if schema.get("allOf"):
            merged: Json = {key: value for key, value in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                resolved = self._resolved(part, depth + 1)
                properties = {**merged.get("properties", {}), **resolved.get("properties", {})}
                required = [*merged.get("required", []), *resolved.get("required", [])]
                merged = {**resolved, **merged}
                if properties:
                    merged |= {"properties": properties, "required": required}
            return merged
        return schema

    def _enum(self, schema: Json, name: str) -> Any:
        """The value said of the property, or one that the text has, or the default, or the first."""
        values = schema["enum"]
        words = r"[\s_-]+".join(map(re.escape, split_name(name)))
        for pattern in (rf"\b{words}\b\W+(?:is\W+)?{{}}\b", r"\b{}\b"):
            for value in values:
                if re.search(pattern.format(re.escape(str(value))), self._source.text, re.IGNORECASE):
                    return value
        return schema.get("default", values[0])

    def _union(self, branches: list[Any], name: str, depth: int) -> Any:
        """The first branch that can be built; null only when there is no other."""
        ordered = sorted(branches, key=lambda branch: _kind(self._resolved(branch, depth)) == "null")
        said = self._source.said_of(name)
        if said is not None and not _is_number(said):
            ordered.sort(key=lambda branch: _kind(self._resolved(branch, depth)) != "string")
        for branch in ordered:
            try:
                return self._value(branch, name, depth + 1)
            except ServiceError:
                continue
        raise ServiceError(400, 5024, "JSON Mode couldn't be met")

    def _object(self, schema: Json, depth: int) -> Json:
        required = schema.get("required", [])
        built: Json = {}
        for name, inner in (schema.get("properties") or {}).items():
            if name not in required and (depth >= _DEPTH // 2 or (self._sparse and not self._spoken_of(inner, name))):
                continue
            try:
                built[name] = self._value(inner, name, depth + 1)
            except ServiceError:
                if name in required:
                    raise
        return built

    def _spoken_of(self, schema: Any, name: str) -> bool:
        """Whether the text gives an optional property a value."""
        resolved = self._resolved(schema, 0)
        branches = [self._resolved(branch, 0) for branch in resolved.get("anyOf") or [resolved]]
        values = [str(value) for branch in branches for value in branch.get("enum") or []]
        if values:
            return any(re.search(rf"\b{re.escape(value)}\b", self._source.text, re.IGNORECASE) for value in values)
        return self._source.said_of(name) is not None

    def _array(self, schema: Json, name: str, depth: int) -> list[Any]:
        if schema.get("prefixItems"):
            return [self._value(item, name, depth + 1) for item in schema["prefixItems"]]
        items = self._resolved(schema.get("items") or {"type": "string"}, depth)
        offered = {"string": self._source.quoted or self._source.names, "integer": self._source.numbers}
        offered["number"] = offered["integer"]
        count = max(schema.get("minItems", 1), min(len(offered.get(_kind(items), [])), schema.get("maxItems", 5)))
        count = min(count, schema.get("maxItems", count))
        values = [self._value(items, name, depth + 1) for _ in range(count)]
        if schema.get("uniqueItems"):
            values = [value for index, value in enumerate(values) if value not in values[:index]]
        if len(values) < schema.get("minItems", 0):
            raise ServiceError(400, 5024, "JSON Mode couldn't be met")
        return values

    def _number(self, schema: Json, name: str, *, whole: bool) -> int | float:
        step = schema.get("multipleOf") or (1 if whole else 0)
        low = schema.get("minimum", _above(schema.get("exclusiveMinimum"), step))
        high = schema.get("maximum", _below(schema.get("exclusiveMaximum"), step))
        candidates = [self._source.said_of(name), *self._source.numbers, schema.get("default"), 1, 0, low, high, step]
        for candidate in candidates:
            if candidate is None or isinstance(candidate, bool) or not _is_number(str(candidate)):
                continue
            value = float(candidate)
            within = (low is None or value >= low) and (high is None or value <= high)
            if within and (not step or value % step == 0):
                if str(candidate) in self._source.numbers:
                    self._source.numbers.remove(str(candidate))
                return int(value) if whole or value.is_integer() else value
        raise ServiceError(400, 5024, "JSON Mode couldn't be met")

    def _boolean(self, schema: Json, name: str) -> bool:
        said = (self._source.said_of(name) or "").lower()
        if said in {"true", "yes", "on", "false", "no", "off"}:
            return said in {"true", "yes", "on"}
        if "default" in schema:
            return bool(schema["default"])
        words = r"[\s_-]+".join(map(re.escape, split_name(name)))
        return not re.search(rf"(?i)\b(?:no|not|without|non)[\s-]+{words}", self._source.text)

    def _string(self, schema: Json, name: str) -> str:
        form = schema.get("format", "")
        if form in _CANNED:
            return self._source.formatted(form) or _CANNED[form]
        if "pattern" in schema:
            return self._patterned(schema, name)
        text = self._free_text(schema, name)
        if schema.get("maxLength") is not None:
            text = text[: schema["maxLength"]]
        return text.ljust(schema.get("minLength", 0), ".")

    def _free_text(self, schema: Json, name: str) -> str:
        said = self._source.said_of(name)
        words = set(split_name(name))
        if words & _WHOLE_TEXT and said is None:
            quoted = self._source.next_of(self._source.quoted)
            return quoted or self._source.text.strip() or name
        if words & _PLACES and said is None:
            said = self._source.next_of([*self._source.names, *self._source.initials])
        if said is not None:
            return self._full_name(said)
        found = self._source.next_of(self._source.quoted) or self._source.next_of(self._source.names)
        return (
            found or schema.get("default") or self._source.text.strip() or schema.get("description") or name or "text"
        )

    def _full_name(self, said: str) -> str:
        """The whole of a name or quotation of which one word was found."""
        for phrase in [*self._source.quoted, *self._source.names]:
            if phrase.startswith(said):
                self._source.next_of([phrase])
                return phrase
        return said

    def _patterned(self, schema: Json, name: str) -> str:
        words = re.findall(r"[^\s,;]+", self._source.everything)
        candidates = [
            self._source.said_of(name),
            *self._source.quoted,
            *words,
            *schema.get("examples", []),
            *_TRIES,
        ]
        longest = schema.get("maxLength", 10_000)
        for candidate in candidates:
            trimmed = str(candidate or "").strip(".!?()'\"")
            if trimmed and len(trimmed) <= longest and re.search(schema["pattern"], trimmed):
                return trimmed
        raise ServiceError(400, 5024, "JSON Mode couldn't be met")


def _kind(schema: Json) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return str(next((one for one in kind if one != "null"), "null"))
    if kind is None:
        return "object" if "properties" in schema else "array" if "items" in schema else "string"
    return str(kind)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text) is not None


def _above(bound: float | None, step: float) -> float | None:
    return None if bound is None else bound + (step or 0.001)


def _below(bound: float | None, step: float) -> float | None:
    return None if bound is None else bound - (step or 0.001)
