"""Chat messages made fit for the service: what is sent, whichever framework it came from.

Messages come in as OpenAI-shaped dicts. The rules, each with a public report behind it:

- ``content`` is always there and never null (https://github.com/we-promise/sure/pull/467).
- Text parts are joined to one string; a list stays only where it carries an image
  (https://github.com/anomalyco/opencode/issues/30381).
- ``arguments`` is JSON text; text that is not JSON is wrapped, since the service refuses it.
- Every call has its result, and images stand in user turns: see :mod:`workers_ai._wire.chat.turns`.
- Reasoning goes back as ``reasoning``, never inside the text (https://github.com/cloudflare/ai/pull/451).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from workers_ai._wire.chat.images import image_data_url
from workers_ai._wire.chat.tool_calls import arguments_text, original_id
from workers_ai._wire.chat.turns import arrange_turns, bridge_tool_turns
from workers_ai._wire.json_parsing import json_text
from workers_ai._wire.json_writing import is_cache_mark, plain_json
from workers_ai._wire.quirks import DEVELOPER_IS_SYSTEM, NINE_LETTER_IDS, NO_REASONING_BACK, NO_USER_AFTER_TOOL
from workers_ai.catalogue import ModelCard
from workers_ai.errors import BadRequestError
from workers_ai.types import JSON

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["known_call_ids", "prepare_messages"]

_LINK = re.compile(r"(?!data:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_NINE = re.compile(r"[A-Za-z0-9]{9}")


def known_call_ids(messages: Iterable[Mapping[str, JSON]]) -> frozenset[str]:
    """Ids of all tool calls in the conversation so far."""
    return frozenset(
        call["id"]
        for message in messages
        for call in message.get("tool_calls") or ()
        if isinstance(call, dict) and isinstance(call.get("id"), str)
    )


def prepare_messages(messages: Sequence[Mapping[str, JSON]], card: ModelCard) -> list[dict[str, JSON]]:
    """Make messages fit; the caller's own stay as they are.

    Raises:
        BadRequestError: There is no message, or one is none, or carries what the service does not take: a remote image,
            a document, audio.
    """
    try:
        if not len(messages):
            raise BadRequestError("there is no message to answer", model=card.id)
        prepared = [_prepare(message, index, card) for index, message in enumerate(messages)]
    except (AttributeError, TypeError) as exc:  # looked at here alone, so that messages that are some pay nothing
        raise _refuse(_what_is_odd(messages) or f"the messages cannot be written as JSON: {exc}", card) from exc
    turns = arrange_turns(messages, prepared)
    return bridge_tool_turns(turns) if NO_USER_AFTER_TOOL.of(card) else turns


def _what_is_odd(messages: Any) -> str | None:
    """Why these are no messages; None where each of them is one."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        return f"messages must be a list of dicts with role and content, not a {type(messages).__name__}"
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            return f"message {index} must be a dict with role and content, not a {type(message).__name__}"
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list) or not all(map(_is_call, calls)):
            return f"the tool_calls of message {index} must be a list of dicts with id and function"
    return None


def _is_call(call: Any) -> bool:
    return isinstance(call, Mapping) and isinstance(call.get("function") or {}, Mapping)


def _prepare(message: Mapping[str, JSON], index: int, card: ModelCard) -> dict[str, JSON]:
    role = message.get("role", "user")
    if role == "developer" and DEVELOPER_IS_SYSTEM.of(card):
        role = "system"
    out: dict[str, JSON] = {"role": role, "content": _content(message.get("content"), role, index, card)}
    if name := message.get("name"):
        out["name"] = name
    if role == "assistant":
        if calls := message.get("tool_calls"):
            out["tool_calls"] = [_call(call, card) for call in calls]
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
    if role == "assistant":  # what else another provider's class has left in its turn is no words of the model's
        parts = [part for part in parts if _is_part(part)]
    elif role == "tool" and not all(map(_is_part, parts)):
        return plain_json(parts)  # data that a tool returned
    parts = [_part(part, index, card) for part in parts]
    if any(part["type"] != "text" for part in parts):
        return parts
    # An assistant's parts are pieces of one text; other parts are texts of their own.
    return ("" if role == "assistant" else "\n").join(part["text"] for part in parts)


def _text(value: Any) -> str:
    """Return a string as it is, None as "", anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else plain_json(value)


def _is_part(part: Any) -> bool:
    return isinstance(part, Mapping) and ("type" in part or "text" in part)


def _part(part: Any, index: int, card: ModelCard) -> dict[str, Any]:
    if isinstance(part, Mapping):
        kind = part.get("type")
        if kind == "image_url":
            return _image(part.get("image_url"), index, card)
        if kind == "text" or (kind is None and "text" in part):
            return {"type": "text", "text": _text(part.get("text"))}
        what = f"type {kind!r}" if kind is not None else f"unknown form with the keys {sorted(map(str, part))}"
    else:
        what = f"type {type(part).__name__}"
    raise _refuse(
        f"message {index} has content of {what:.200}, which Workers AI chat models do not take: "
        "send its text, or an image as a data: URL",
        card,
    )


def _image(image: Any, index: int, card: ModelCard) -> dict[str, Any]:
    if card.vision is False:
        raise _refuse(
            f"message {index} holds an image, and {card.id} accepts text alone: use a vision model, or leave the image "
            "out",
            card,
        )
    given = _text(image.get("url") if isinstance(image, dict) else image)
    url = image_data_url(given)
    if url is None:
        what = "links to an image" if _LINK.match(given) else "has data that is not marked as an image"
        raise _refuse(
            f"message {index} {what}: the service takes images alone, and fetches no links; "
            "pass the bytes as base64 or as a data: URL with their media type",
            card,
        )
    return {"type": "image_url", "image_url": {**(image if isinstance(image, dict) else {}), "url": url}}


def _refuse(message: str, card: ModelCard) -> BadRequestError:
    return BadRequestError(message, model=card.id)


def _call(call: Mapping[str, Any], card: ModelCard) -> dict[str, Any]:
    function = call.get("function") or call
    return {
        "id": _wire_id(json_text(call.get("id")), card),
        "type": "function",
        "function": {"name": function.get("name") or "", "arguments": _arguments(function.get("arguments"))},
    }


def _arguments(arguments: Any) -> str:
    """Return arguments as the text of a JSON object; text that is not one is wrapped."""
    text = arguments_text(arguments) if isinstance(arguments, str) or not arguments else plain_json(arguments)
    try:
        value = from_json(text, allow_inf_nan=False)
        if isinstance(value, dict):
            json.dumps(value, allow_nan=False)  # 1e999 is JSON, and becomes infinity
            return text
    except ValueError:  # maybe for a lone surrogate, which JSON allows as an escape
        with suppress(ValueError, RecursionError):
            value = json.loads(text, parse_constant=_reject_constant)
            if isinstance(value, dict):
                return json.dumps(value, ensure_ascii=False, allow_nan=False)
    return plain_json({"invalid_arguments": text})


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _wire_id(call_id: str, card: ModelCard) -> str:
    """The id as the model wrote it, in the form its family demands."""
    own = original_id(call_id)
    if NINE_LETTER_IDS.of(card) and not _NINE.fullmatch(own):
        return hashlib.sha256(own.encode()).hexdigest()[:9]
    return own
