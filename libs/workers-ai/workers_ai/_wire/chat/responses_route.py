"""The Responses route (gpt-oss only, whole answers only): https://developers.cloudflare.com/workers-ai/configuration/open-ai-compatibility/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from workers_ai._wire.chat.schemas import description_of, schema_of
from workers_ai.types import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["responses_body"]

_RENAMED: Final = {"max_tokens": "max_output_tokens"}


def responses_body(model: str, messages: Sequence[Mapping[str, JSON]], given: Mapping[str, Any]) -> dict[str, JSON]:
    """The body of ``POST /ai/v1/responses`` for chat messages and chat parameters."""
    body: dict[str, JSON] = {
        "model": model,
        "input": [item for message in messages for item in _items(message)],
    }
    for name, value in given.items():
        if name == "tools":
            body["tools"] = [{"type": "function", **tool["function"]} for tool in value]
        elif name == "tool_choice":
            body["tool_choice"] = {"type": "function", **value["function"]} if isinstance(value, dict) else value
        elif name == "response_format":
            body["text"] = {"format": _text_format(value)}
        elif name == "reasoning_effort":
            body["reasoning"] = {"effort": value}
        else:
            body[_RENAMED.get(name, name)] = value
    return body


def _items(message: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    content = _content(message["content"])
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}]
    items: list[dict[str, JSON]] = []
    if content or not message.get("tool_calls"):
        items.append({"role": message["role"], "content": content})
    items += [
        {"type": "function_call", "call_id": call["id"], **call["function"]} for call in message.get("tool_calls") or ()
    ]
    return items


def _content(content: JSON) -> JSON:
    """Text, or parts under the names they have on this route."""
    if isinstance(content, str):
        return content
    return [
        {"type": "input_image", "image_url": part["image_url"]["url"]}
        if part["type"] == "image_url"
        else {"type": "input_text", "text": part["text"]}
        for part in content
    ]


def _text_format(response_format: Mapping[str, JSON]) -> dict[str, JSON]:
    if response_format.get("type") != "json_schema":
        return dict(response_format)
    schema, name, strict = schema_of(response_format)
    out: dict[str, JSON] = {"type": "json_schema", "name": name or "response", "schema": schema}
    if description := description_of(response_format):
        out["description"] = description
    if strict is not None:
        out["strict"] = strict
    return out
