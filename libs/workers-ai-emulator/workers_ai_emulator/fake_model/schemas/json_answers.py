"""Answer in JSON, by the schema of the request or of the prompt."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from workers_ai_emulator.fake_model.reading.texts import sentences_of
from workers_ai_emulator.fake_model.schemas.instance import Instance
from workers_ai_emulator.fake_model.schemas.values import Source

if TYPE_CHECKING:
    from workers_ai_emulator.fake_model.reading.conversation import Reading
    from workers_ai_emulator.fake_model.request import ChatRequest
    from workers_ai_emulator.wire import Json

_KEYS = re.compile(
    r"((?:['\"`]\w+['\"`](?:\s*,\s*(?:and\s+)?|\s+and\s+)?)+)\s*(?:keys?|fields?|properties)", re.IGNORECASE
)
_KEYS_AFTER = re.compile(
    r"(?:keys?|fields?|properties)\s*:?\s*((?:['\"`]?\w+['\"`]?(?:\s*,\s*(?:and\s+)?|\s+and\s+))*['\"`]?\w+['\"`]?)",
    re.IGNORECASE,
)
# A line such as ``"answer": string  // answer to the question`` or ``choice: 1,`` describes one key.
_KEY_LINE = re.compile(
    r"(?m)^\s*\"?(\w+)\"?\s*:\s*(?:(string|number|integer|boolean)\b\s*(?://\s*(.*))?|(\d+)|\"[^\"\n]*\")\s*,?\s*$"
)
_FORMAT_WORDS = re.compile(
    r"(?i)\bjson\b|\bschema\b|\b(?:well-)?formatted\b|\bkeys?\b|code fences?|\bmarkdown\b|strict output format"
    r"|wrap the output|top-level"
    r"|do not (?:prepend|repeat|include)|^answer the user(?:'s)? (?:query|question)|^query:"
)
_TAG = re.compile(r"</?\w+>")
_FENCE = re.compile(r"(?s)```\w*\n.*?```")
_EXAMPLE = re.compile(r"(?si)(?:as an example, )?for the schema \{.*?not well-formatted\.?")


def json_answer(request: ChatRequest, reading: Reading) -> object:
    """Return a JSON value that fits the schema of the request, else the keys or the example of the prompt."""
    user = request.turns[request.last_user].text if request.last_user >= 0 else ""
    background = "\n".join([*reading.context, *(text for _, text in reading.results)])
    if request.schema is not None:
        return Instance(request.schema, Source(_TAG.sub("", user), background, reading.answer), sparse=False).build()
    everything = "\n".join(turn.text for turn in request.turns)
    schema = described_schema(everything)
    if schema is not None:
        source = Source(_without_format(user) or user, background, reading.answer)
        return Instance(schema, source, sparse=False).build()
    return {"answer": reading.answer}


def described_schema(text: str) -> Json | None:
    """Return the schema in a text: a schema, lines of keys, an example, or names of keys.

    If there are several schemas, the last one applies, and the others are examples.
    """
    if '{{"' in text:  # an unfilled template
        text = text.replace("{{", "{").replace("}}", "}")
    objects = _objects_in(_EXAMPLE.sub("", text))
    schemas = [found for found in objects if isinstance(found.get("properties"), dict)]
    if schemas:
        return schemas[-1]
    lines = _KEY_LINE.findall(text)
    if lines:
        kinds = {
            name: {"type": kind or ("integer" if number else "string"), "description": description}
            for name, kind, description, number in lines
        }
        return {"type": "object", "properties": kinds, "required": list(kinds)}
    if objects:
        return _schema_of(objects[0])
    found = _KEYS.search(text) or _KEYS_AFTER.search(text)
    names = [name for name in re.findall(r"\w+", found.group(1)) if name.lower() != "and"] if found else []
    if not names:
        return None
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}


def _without_format(text: str) -> str:
    """Return a prompt without the instructions about its format."""
    text = _EXAMPLE.sub("", _FENCE.sub("", text))
    text = re.sub(r"(?s)\{\{\".*\}\}", "", text)
    for found in _spans(text):
        text = text.replace(found, "")
    kept = (part.partition(":")[2] if _FORMAT_WORDS.search(part) else part for part in sentences_of(text))
    return "\n".join(part.strip() for part in kept if part.strip())


def _objects_in(text: str) -> list[Json]:
    """Return the outermost non-empty JSON objects of a text."""
    return [value for value in (json.loads(span) for span in _spans(text)) if value]


def _spans(text: str) -> list[str]:
    """Return the parts of a text that are JSON objects."""
    decoder, spans, end = json.JSONDecoder(), [], 0
    for match in re.finditer(r"\{", text):
        if match.start() < end:
            continue
        try:
            _, end = decoder.raw_decode(text, match.start())
        except ValueError:
            continue
        spans.append(text[match.start() : end])
    return spans


def _schema_of(value: object) -> Json:
    """Return the simplest schema that an example matches."""
    if isinstance(value, dict):
        properties = {key: _schema_of(item) for key, item in value.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if isinstance(value, list):
        return {"type": "array", "items": _schema_of(value[0])} if value else {"type": "array"}
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return {"type": kinds.get(type(value), "string")}
