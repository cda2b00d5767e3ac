"""Build instances of a JSON schema, with values from a text where types allow it."""

from __future__ import annotations

import copy
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from workers_ai_emulator.fake_model.reading.knowledge import language_of, sentiment_of, sentiment_word
from workers_ai_emulator.fake_model.reading.texts import (
    keywords_of,
    most_fitting,
    phrases_of,
    ranked_choices,
    topic_of,
    verdict_of,
)
from workers_ai_emulator.fake_model.schemas.text_fields import fallback_text, text_value
from workers_ai_emulator.fake_model.schemas.values import Source, split_name
from workers_ai_emulator.rules.tokens import word_set
from workers_ai_emulator.wire import ServiceError

if TYPE_CHECKING:
    from workers_ai_emulator.wire import Json

_DEPTH = 8
_TAGS = word_set("keywords tags topics themes")
_PHRASES = word_set("points features pros cons steps facts insights findings highlights ingredients items")
_PARTS = word_set("sections chapters queries subtasks plan questions parts")
_PART_NAMES = ("Introduction to {0}", "{0} in practice", "Outlook on {0}")
_PEOPLE = word_set("attendees participants people guests members names")
_JUDGED = word_set("relevant grounded supported correct passing passes binary faithful")
_CHOSEN = word_set("index choice selection")
_LIKELY = word_set("confidence probability certainty")
_RATED = word_set("rating score stars satisfaction")
_UPSET = word_set("aggressiveness anger aggression frustration toxicity")
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


_DIGITS = re.compile(r"\d+(?:\.\d+)?")


class Instance:
    """A builder of one instance.

    Args:
        root: The complete schema. ``$ref`` points into it.
        source: The values of the text.
        sparse: Whether optional properties without a value in the text are left out, as in a tool call.
    """

    def __init__(self, root: Json, source: Source, *, sparse: bool) -> None:
        self._root = root
        self._source = source
        self._sparse = sparse
        source.exclude(root.get("properties") or {})

    def build(self) -> object:
        """Return the instance.

        Raises:
            ServiceError: 5024, if no value fits the schema.
        """
        return self._value(self._root, "", 0)

    def build_part(self, schema: Json, depth: int) -> object:
        """Return an instance of one part of the schema."""
        return self._value(schema, "", depth)

    def _value(self, schema: object, name: str, depth: int) -> object:
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

    def _resolved(self, schema: object, depth: int) -> Json:
        """Return a schema with its references followed and its ``allOf`` merged."""
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

    def _enum(self, schema: Json, name: str) -> object:
        """Return the value that the text states or mentions for the property, the default, or the first value."""
        values = schema["enum"]
        words = r"[\s_-]+".join(map(re.escape, split_name(name)))
        for value in values:
            if re.search(rf"\b{words}\b\W+(?:is\W+)?{re.escape(str(value))}\b", self._source.text, re.IGNORECASE):
                return value
        if {str(value).lower() for value in values} == {"yes", "no"}:
            verdict = verdict_of(self._source.prompt)
            answer = "no" if verdict is False else "yes"
            return next(value for value in values if str(value).lower() == answer)
        fitting = self._fitting(values, [str(value) for value in values])
        return fitting[0] if fitting else schema.get("default", values[0])

    def _fitting(self, values: list[object], meanings: list[str]) -> list[object]:
        """Return the values in the text; else the values that fit its sentiment, language or meaning.

        If the text contains all values, it only lists them, and none is returned for it.
        """
        text = self._source.text
        matches = [re.search(rf"\b{re.escape(str(value))}\b", text, re.IGNORECASE) for value in values]
        places = sorted((found.start(), index) for index, found in enumerate(matches) if found)
        if places and (len(places) < len(values) or len(values) == 1):
            return [values[index] for _, index in places]
        texts = [str(value) for value in values]
        word = sentiment_word(text, texts) or next(
            (one for one in texts if one.capitalize() == language_of(text)), None
        )
        if word is not None:
            return [values[texts.index(word)]]
        return [values[index] for index in most_fitting(text, meanings)]

    def _choices(self, schema: Json, depth: int) -> tuple[list[object], list[str]]:
        """Return the values of an enum or of constants, with their descriptions; empty for other schemas."""
        if schema.get("enum"):
            return schema["enum"], [str(value) for value in schema["enum"]]
        branches = [self._resolved(branch, depth) for branch in schema.get("anyOf") or schema.get("oneOf") or [schema]]
        if not all("const" in branch for branch in branches):
            return [], []
        values = [branch["const"] for branch in branches]
        return values, [f"{branch['const']} {branch.get('description', '')}" for branch in branches]

    def _union(self, branches: list[object], name: str, depth: int) -> object:
        """Return an instance of the first valid branch; null if the text has no value."""
        values, meanings = self._choices({"anyOf": branches}, depth)
        if values:
            return (self._fitting(values, meanings) or values)[0]
        ordered = sorted(branches, key=lambda branch: _kind(self._resolved(branch, depth)) == "null")
        first = self._resolved(ordered[0], depth)
        if _kind(self._resolved(ordered[-1], depth)) == "null" and self._lacks(first, name):
            return None
        stated = self._source.stated_value(name)
        if stated is not None and not _is_number(stated):
            ordered.sort(key=lambda branch: _kind(self._resolved(branch, depth)) != "string")
        for branch in ordered:
            try:
                return self._value(branch, name, depth + 1)
            except ServiceError:
                continue
        raise ServiceError(400, 5024, "JSON Mode couldn't be met")

    def _lacks(self, schema: Json, name: str) -> bool:
        """Return whether the text has no value for a nullable property."""
        source = self._source
        if schema.get("enum") or source.stated_value(name) is not None:
            return False
        if _kind(schema) in {"integer", "number"}:
            return not source.numbers
        return _kind(schema) == "string" and text_value(copy.deepcopy(source), schema, name) is None

    def _object(self, schema: Json, depth: int) -> Json:
        required, properties = schema.get("required", []), schema.get("properties") or {}
        built: Json = {}
        for name in sorted(properties, key=self._source.rank_of):
            inner = properties[name]
            if name not in required and (depth >= _DEPTH // 2 or (self._sparse and not self._mentioned(inner, name))):
                continue
            try:
                built[name] = self._value(inner, name, depth + 1)
            except ServiceError:
                if name in required:
                    raise
        return {name: built[name] for name in properties if name in built}

    def _mentioned(self, schema: object, name: str) -> bool:
        """Return whether the text has a value for an optional property."""
        resolved = self._resolved(schema, 0)
        branches = [self._resolved(branch, 0) for branch in resolved.get("anyOf") or [resolved]]
        values = [str(value) for branch in branches for value in branch.get("enum") or []]
        if values:
            return any(re.search(rf"\b{re.escape(value)}\b", self._source.text, re.IGNORECASE) for value in values)
        source = self._source
        if any(_kind(branch) in {"integer", "number"} for branch in branches) and source.measured(name) is not None:
            return True
        return source.stated_value(name) is not None or bool(source.values_of_kind(name, sure=True))

    def _array(self, schema: Json, name: str, depth: int) -> list[object]:
        if schema.get("prefixItems"):
            return [self._value(item, name, depth + 1) for item in schema["prefixItems"]]
        items = self._resolved(schema.get("items") or {"type": "string"}, depth)
        longest = schema.get("maxItems", 5)
        values = self._listed(items, name, depth)[:longest]
        offered = {"integer": self._source.numbers, "string": self._source.quoted or self._source.names}
        offered["number"] = offered["integer"]
        if not values:
            count = min(max(1, len(offered.get(_kind(items), []))), longest)
            values = [self._value(items, name, depth + 1) for _ in range(count)]
        while len(values) < schema.get("minItems", 0):
            values.append(self._value(items, name, depth + 1))
        if schema.get("uniqueItems"):
            values = [value for index, value in enumerate(values) if value not in values[:index]]
        if len(values) < schema.get("minItems", 0):
            raise ServiceError(400, 5024, "JSON Mode couldn't be met")
        return values

    def _listed(self, items: Json, name: str, depth: int) -> list[object]:
        """Return the values in the text of the kind that the name of a list suggests; empty for other names."""
        source, words = self._source, set(split_name(name))
        values, meanings = self._choices(items, depth)
        if values:
            return list(dict.fromkeys(self._fitting(values, meanings))) or values[:1]
        if _kind(items) == "object":
            return self._objects(items, words, depth)
        if _kind(items) != "string" or items.get("format") or items.get("pattern"):
            return []
        if words & _TAGS:
            return list(keywords_of(source.text))
        if words & _PHRASES:
            return list(phrases_of(source.quoted[0] if source.quoted else source.text))
        if words & _PARTS:
            return [part.format(topic_of(source.text)) for part in _PART_NAMES]
        return list(source.values_of_kind(name, sure=True) or (source.others if words & _PEOPLE else []))

    def _objects(self, items: Json, words: set[str], depth: int) -> list[object]:
        """Return an object for each person in the text, or for each part of a plan."""
        source, text = self._source, self._source.text
        if words & _PARTS:
            parts = [Source(f"'{part.format(topic_of(text))}'", answer=source.answer) for part in _PART_NAMES]
        else:
            named = [word for word in items.get("properties", {}) if split_name(word)[-1:] == ["name"]]
            starts = sorted(text.find(one) for one in [*source.people, *source.initials]) if named else []
            parts = [Source(text[start:end]) for start, end in pairwise([*starts, len(text)])]
        return [Instance(self._root, part, sparse=False).build_part(items, depth + 1) for part in parts]

    def _number(self, schema: Json, name: str, *, whole: bool) -> int | float:
        step = schema.get("multipleOf") or (1 if whole else 0)
        low = schema.get("minimum", _above(schema.get("exclusiveMinimum"), step))
        high = schema.get("maximum", _below(schema.get("exclusiveMaximum"), step))
        source = self._source
        amounts = [
            found.group() for one in source.values_of_kind(name, sure=True) or [] if (found := _DIGITS.search(one))
        ]
        candidates = [
            source.stated_value(name),
            source.measured(name),
            *amounts[:1],
            *self._implied(name, low, high),
            *source.numbers,
        ]
        candidates += [schema.get("default"), 1, 0, low, high, step]
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

    def _implied(self, name: str, low: float | None, high: float | None) -> list[int | float]:
        """Return the number that a prompt implies: the number of its best choice, or a rating by sentiment."""
        words = set(split_name(name))
        if words & _CHOSEN:
            return [number for number, _ in ranked_choices(self._source.prompt)[:1]]
        if words & _LIKELY:
            return [0.9, 90]
        if self._source.numbers or not words & (_RATED | _UPSET):
            return []
        mood = sentiment_of(self._source.text)
        least, most = (1 if low is None else low), (10 if high is None else high)
        if words & _UPSET:
            return [most if mood < 0 else least]
        return [{-1: least, 0: round(least + 0.8 * (most - least)), 1: most}[mood]]

    def _boolean(self, schema: Json, name: str) -> bool:
        stated = (self._source.stated_value(name) or "").lower()
        if stated in {"true", "yes", "on", "false", "no", "off"}:
            return stated in {"true", "yes", "on"}
        verdict = verdict_of(self._source.prompt) if set(split_name(name)) & _JUDGED else None
        if verdict is not None:
            return verdict
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
        text = text_value(self._source, schema, name) or fallback_text(self._source, schema, name)
        if schema.get("maxLength") is not None:
            text = text[: schema["maxLength"]]
        return text.ljust(schema.get("minLength", 0), ".")

    def _patterned(self, schema: Json, name: str) -> str:
        words = re.findall(r"[^\s,;]+", self._source.everything)
        candidates = [
            self._source.stated_value(name),
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
