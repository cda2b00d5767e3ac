"""JSON answers, with and without a schema."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from workers_ai_emulator.player.answers import answer_text
from workers_ai_emulator.player.schemas import Instance
from workers_ai_emulator.player.source import Source

if TYPE_CHECKING:
    from workers_ai_emulator.player.reading import Reading
    from workers_ai_emulator.player.request import ChatRequest
    from workers_ai_emulator.wire import Json

_KEYS = re.compile(
    r"((?:['\"`]\w+['\"`](?:\s*,\s*(?:and\s+)?|\s+and\s+)?)+)\s*(?:keys?|fields?|properties)", re.IGNORECASE
)
_KEYS_AFTER = re.compile(
    r"(?:keys?|fields?|properties)\s*:?\s*((?:['\"`]?\w+['\"`]?(?:\s*,\s*(?:and\s+)?|\s+and\s+))*['\"`]?\w+['\"`]?)",
    re.IGNORECASE,
)


def json_answer(request: ChatRequest, reading: Reading) -> Any:
    """A JSON value that fits the schema; without one, the keys or the example that the prompt gives."""
    user = request.turns[request.last_user].text if request.last_user >= 0 else ""
    background = "\n".join(reading.context) + "\n".join(text for _, text in reading.results)
    source = Source(user, background)
    if request.schema is not None:
        return Instance(request.schema, source, sparse=False).build()
    everything = "\n".join(turn.text for turn in request.turns)
    schema = _schema_in(everything)
    if schema is not None:
        return Instance(schema, source, sparse=False).build()
    return {"answer": answer_text(reading, 0)}


def _schema_in(text: str) -> Json | None:
    """The schema that a text describes: as a schema, as an example, or by the names of its keys."""
    example = _object_in(text)
    if example is not None:
        return example if "properties" in example else _schema_of(example)
    found = _KEYS.search(text) or _KEYS_AFTER.search(text)
    names = [name for name in re.findall(r"\w+", found.group(1)) if name.lower() != "and"] if found else []
    if not names:
        return None
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}


def _object_in(text: str) -> Json | None:
    """The first JSON object in a text."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            value, _ = decoder.raw_decode(text, match.start())
        except ValueError:
            continue
        if value:
            return dict(value)
    return None


def _schema_of(value: Any) -> Json:
    """The plainest schema that an example fits."""
    if isinstance(value, dict):
        properties = {key: _schema_of(item) for key, item in value.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if isinstance(value, list):
        return {"type": "array", "items": _schema_of(value[0])} if value else {"type": "array"}
    kinds: dict[type, str] = {bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return {"type": kinds.get(type(value), "string")}
