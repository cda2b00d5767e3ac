"""Chat messages made fit for the service: what is sent, whichever framework it came from.

Messages come in as OpenAI-shaped dicts. The rules, each with a public report behind it:

- ``content`` is always there and never null (https://github.com/we-promise/sure/pull/467).
- Text parts are joined to one string; a list stays only where it carries an image
  (https://github.com/anomalyco/opencode/issues/30381).
- ``arguments`` is JSON text; text that is not JSON is wrapped, since the service refuses it.
- Every call has its result: one that was never answered makes later turns fail.
- Reasoning goes back as ``reasoning``, never inside the text (https://github.com/cloudflare/ai/pull/451).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from workers_ai.catalogue import ModelCard
from workers_ai.errors import BadRequestError
from workers_ai.wire.jsontext import json_text, parse_json
from workers_ai.wire.toolcalls import arguments_text, original_id
from workers_ai.wire.types import JSON

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["known_call_ids", "prepare_messages"]

_LINK = re.compile(r"(?!data:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_NINE_ONLY: Final = ("mistral", "llama-4")
_UNANSWERED: Final = "No result: this call was not answered."


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
    return _answer_every_call(prepared)


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
    if role == "developer" and card.family == "native":
        role = "system"
    out: dict[str, JSON] = {"role": role, "content": _content(message.get("content"), role, index, card)}
    if name := message.get("name"):
        out["name"] = name
    if role == "assistant":
        if calls := message.get("tool_calls"):
            out["tool_calls"] = [_call(call, card) for call in calls]
        if (reasoning := message.get("reasoning")) and card.family != "native":
            out["reasoning"] = reasoning
    elif role == "tool":
        out["tool_call_id"] = _wire_id(json_text(message.get("tool_call_id")), card)
    return out


def _content(content: JSON, role: str, index: int, card: ModelCard) -> JSON:
    if not isinstance(content, list):
        return json_text(content)
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    if role == "assistant":  # what else another provider's class has left in its turn is no words of the model's
        parts = [part for part in parts if _is_part(part)]
    elif not all(map(_is_part, parts)):
        return json_text(content)  # data, such as the result of a tool
    if any(part.get("type") not in ("text", None) for part in parts):
        return [_part(part, index, card) for part in parts]
    # An assistant's parts are pieces of one text; other parts are texts of their own.
    return ("" if role == "assistant" else "\n").join(json_text(part.get("text")) for part in parts)


def _is_part(part: Any) -> bool:
    return isinstance(part, Mapping) and ("type" in part or "text" in part)


def _part(part: Mapping[str, Any], index: int, card: ModelCard) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "image_url":
        image = part.get("image_url")
        url = json_text(image.get("url") if isinstance(image, dict) else image)
        if not url[:11].lower().startswith("data:image/"):
            what = "links to an image" if _LINK.match(url) else "has data that is not marked as an image"
            raise _refuse(
                f"message {index} {what}: the service takes images alone, and fetches no links; "
                "pass the bytes as base64 or as a data: URL with their media type",
                card,
            )
        return {"type": "image_url", "image_url": {**(image if isinstance(image, dict) else {}), "url": url}}
    if kind == "text":
        return {"type": "text", "text": json_text(part.get("text"))}
    raise _refuse(
        f"message {index} has content of type {kind!r}, which Workers AI chat models do not take: "
        "send its text, or an image as a data: URL",
        card,
    )


def _refuse(message: str, card: ModelCard) -> BadRequestError:
    return BadRequestError(message, model=card.id)


def _call(call: Mapping[str, Any], card: ModelCard) -> dict[str, Any]:
    function = call.get("function") or call
    try:
        text = arguments_text(function.get("arguments"))
    except ValueError as exc:
        what = f"the arguments of a call of {function.get('name')!r:.80} cannot be written as JSON: {exc}"
        raise _refuse(what, card) from exc
    try:
        valid = isinstance(parse_json(text, strict=True), dict)
    except ValueError:
        valid = False
    if not valid:
        text = json.dumps({"invalid_arguments": text}, ensure_ascii=False)
    return {
        "id": _wire_id(json_text(call.get("id")), card),
        "type": "function",
        "function": {"name": function.get("name") or "", "arguments": text},
    }


def _wire_id(call_id: str, card: ModelCard) -> str:
    """The id as the model wrote it, in the form its family demands."""
    own = original_id(call_id)
    if any(name in card.id for name in _NINE_ONLY) and not _NINE.fullmatch(own):
        return hashlib.sha256(own.encode()).hexdigest()[:9]
    return own


def _answer_every_call(messages: list[dict[str, JSON]]) -> list[dict[str, JSON]]:
    out: list[dict[str, JSON]] = []
    open_ids: list[str] = []
    for message in [*messages, {"role": "end"}]:
        if message["role"] == "tool":
            if message["tool_call_id"] in open_ids:
                open_ids.remove(message["tool_call_id"])
        elif open_ids:
            out += [{"role": "tool", "content": _UNANSWERED, "tool_call_id": call_id} for call_id in open_ids]
            open_ids = []
        out.append(message)
        if message.get("tool_calls"):
            open_ids = [call["id"] for call in message["tool_calls"]]
    return out[:-1]
