"""Convert chat messages from OpenAI-shaped dicts to the form that the service accepts.

The rules, each with a public report as its source:

- ``content`` is never missing or null (https://github.com/we-promise/sure/pull/467).
- Text parts are joined to one string. Only content with an image remains a list
  (https://github.com/anomalyco/opencode/issues/30381).
- ``arguments`` is the text of a JSON object. Any other text is wrapped in an object, since the service rejects it.
- Every call has a result, and images are in user turns: see :mod:`workers_ai._wire.chat.turns`.
- Reasoning is sent back as ``reasoning``, never inside the text (https://github.com/cloudflare/ai/pull/451).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic_core import from_json

from workers_ai._wire.chat.images import image_data_url
from workers_ai._wire.chat.tool_calls import arguments_text, original_id
from workers_ai._wire.chat.turns import arrange_turns, bridge_tool_turns
from workers_ai._wire.json_parsing import json_text, replace_lone_surrogates
from workers_ai._wire.json_types import JSON
from workers_ai._wire.json_writing import is_cache_mark, plain_json
from workers_ai._wire.quirks import DEVELOPER_IS_SYSTEM, NINE_LETTER_IDS, NO_REASONING_BACK, NO_USER_AFTER_TOOL
from workers_ai.catalogue import ModelCard
from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["known_call_ids", "prepare_messages"]

_LINK = re.compile(r"(?!data:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_NINE_CHARACTERS = re.compile(r"[A-Za-z0-9]{9}")


def known_call_ids(messages: Iterable[Mapping[str, JSON]]) -> frozenset[str]:
    """Return the ids of all tool calls in a conversation."""
    calls = [call for message in messages for call in _listed(message.get("tool_calls")) if isinstance(call, dict)]
    return frozenset(call_id for call in calls if isinstance(call_id := call.get("id"), str))


def _listed(value: JSON) -> Sequence[JSON]:
    return value if isinstance(value, (list, tuple)) else ()


def prepare_messages(messages: Sequence[Mapping[str, JSON]], card: ModelCard) -> list[dict[str, JSON]]:
    """Convert messages. The caller's messages are not changed.

    Raises:
        BadRequestError: The list is empty, a message is invalid, or its content is not supported: a remote image, a
            document, audio. The message includes the index.
    """
    try:
        if not len(messages):
            raise BadRequestError("messages is empty: pass at least one message", model=card.id)
        prepared = [_prepare(message, index, card) for index, message in enumerate(messages)]
    except (AttributeError, TypeError) as exc:  # checked only after a failure, so that valid messages cost nothing
        raise _error(_find_problem(messages) or f"the messages cannot be written as JSON: {exc}", card) from exc
    turns = arrange_turns(messages, prepared)
    return bridge_tool_turns(turns) if NO_USER_AFTER_TOOL.of(card) else turns


def _find_problem(messages: object) -> str | None:
    """Describe the first invalid message; None if all are valid."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        return f"messages must be a list of dicts with role and content, not a {type(messages).__name__}"
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            return f"message {index} must be a dict with role and content, not a {type(message).__name__}"
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list) or not all(map(_is_call, calls)):
            return f"the tool_calls of message {index} must be a list of dicts with id and function"
    return None


def _is_call(call: object) -> bool:
    return isinstance(call, Mapping) and isinstance(call.get("function") or {}, Mapping)


def _prepare(message: Mapping[str, JSON], index: int, card: ModelCard) -> dict[str, JSON]:
    role = message.get("role", "user")
    if role == "developer" and DEVELOPER_IS_SYSTEM.of(card):
        role = "system"
    out: dict[str, JSON] = {"role": role, "content": _content(message.get("content"), str(role), index, card)}
    if name := message.get("name"):
        out["name"] = name
    if role == "assistant":
        if calls := message.get("tool_calls"):
            out["tool_calls"] = _calls(calls, card)
        if (reasoning := message.get("reasoning")) and not NO_REASONING_BACK.of(card):
            out["reasoning"] = reasoning
    elif role == "tool":
        out["tool_call_id"] = _wire_id(json_text(message.get("tool_call_id")), card)
    return out


def _content(content: JSON, role: str, index: int, card: ModelCard) -> JSON:
    if not isinstance(content, list):
        return _text(content) if role == "tool" else json_text(content)
    parts = [
        {"type": "text", "text": part} if isinstance(part, str) else part for part in content if not is_cache_mark(part)
    ]
    if role == "assistant":  # other parts were added by another provider's class; the model did not write them
        parts = [part for part in parts if _is_part(part)]
    elif role == "tool" and not all(map(_is_part, parts)):
        return plain_json(parts)  # data that a tool returned
    converted = [_part(part, index, card) for part in parts]
    if any(part["type"] != "text" for part in converted):
        return converted
    # An assistant's parts are pieces of one text; other parts are separate texts.
    return ("" if role == "assistant" else "\n").join(str(part["text"]) for part in converted)


def _text(value: object) -> str:
    """Return a string as it is, None as "", anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else plain_json(value)


def _is_part(part: object) -> bool:
    return isinstance(part, Mapping) and ("type" in part or "text" in part)


def _part(part: JSON, index: int, card: ModelCard) -> dict[str, JSON]:
    if isinstance(part, Mapping):
        kind = part.get("type")
        if kind == "image_url":
            return _image(part.get("image_url"), index, card)
        if kind == "text" or (kind is None and "text" in part):
            return {"type": "text", "text": _text(part.get("text"))}
        what = f"type {kind!r}" if kind is not None else f"an unknown form with the keys {sorted(map(str, part))}"
    else:
        what = f"type {type(part).__name__}"
    raise _error(
        f"message {index} has content of {what:.200}, which Workers AI chat models do not accept: "
        "pass its text, or an image as a data: URL",
        card,
    )


def _image(image: JSON, index: int, card: ModelCard) -> dict[str, JSON]:
    if card.vision is False:
        raise _error(
            f"message {index} has an image, but {card.id} accepts only text: use a vision model, or remove the image",
            card,
        )
    given = _text(image.get("url") if isinstance(image, dict) else image)
    url = image_data_url(given)
    if url is None:
        what = "has a link to an image" if _LINK.match(given) else "has data without the media type of an image"
        raise _error(
            f"message {index} {what}: the service does not fetch links and accepts only images. "
            "Pass the bytes as base64, or as a data: URL with their media type",
            card,
        )
    return {"type": "image_url", "image_url": {**(image if isinstance(image, dict) else {}), "url": url}}


def _error(message: str, card: ModelCard) -> BadRequestError:
    return BadRequestError(message, model=card.id)


def _calls(calls: JSON, card: ModelCard) -> list[dict[str, JSON]]:
    if not isinstance(calls, (list, tuple)) or not all(map(_is_call, calls)):
        raise TypeError("tool_calls must be a list of dicts")
    return [_call(call, card) for call in calls if isinstance(call, Mapping)]


def _call(call: Mapping[str, JSON], card: ModelCard) -> dict[str, JSON]:
    nested = call.get("function")
    function = nested if nested and isinstance(nested, Mapping) else call
    return {
        "id": _wire_id(json_text(call.get("id")), card),
        "type": "function",
        "function": {"name": function.get("name") or "", "arguments": _arguments(function.get("arguments"))},
    }


def _arguments(arguments: JSON) -> str:
    """Return arguments as the text of a JSON object. Wrap any other text in an object."""
    text = arguments_text(arguments)
    try:
        value = from_json(text, allow_inf_nan=False)
        if isinstance(value, dict):
            json.dumps(value, allow_nan=False)  # 1e999 is JSON, and is parsed as infinity
            return text
    except ValueError:  # possibly an escaped lone surrogate, which is valid JSON
        with suppress(ValueError, RecursionError):
            value = json.loads(text, parse_constant=_reject_constant)
            if isinstance(value, dict):
                return replace_lone_surrogates(json.dumps(value, ensure_ascii=False, allow_nan=False))
    return plain_json({"invalid_arguments": text})


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _wire_id(call_id: str, card: ModelCard) -> str:
    """Return the model's own id. If the model requires nine letters or digits, return a hash of any other id."""
    own = original_id(call_id)
    if NINE_LETTER_IDS.of(card) and not _NINE_CHARACTERS.fullmatch(own):
        return hashlib.sha256(own.encode()).hexdigest()[:9]
    return own
