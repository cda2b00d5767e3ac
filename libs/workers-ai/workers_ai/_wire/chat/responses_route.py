"""Create the request body of the Responses route (gpt-oss and third-party models), and find its reply among events.

Source: https://developers.cloudflare.com/workers-ai/configuration/open-ai-compatibility/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workers_ai._wire.chat.schemas import description_of, schema_name, schema_of
from workers_ai._wire.error_mapping import read_error
from workers_ai._wire.json_parsing import parse_body
from workers_ai._wire.json_types import JSON
from workers_ai._wire.sse import whole_events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["reply_in_events", "responses_body"]

_RENAMED: Final = {"max_tokens": "max_output_tokens"}


def responses_body(model: str, messages: Sequence[Mapping[str, JSON]], given: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the body of ``POST /ai/v1/responses``, from prepared chat messages and parameters."""
    body: dict[str, JSON] = {
        "model": model,
        "input": [item for message in messages for item in _items(message)],
    }
    for name, value in given.items():
        if name == "tools":
            body["tools"] = [{"type": "function", **_function(tool)} for tool in _dicts(value)]
        elif name == "tool_choice":
            body["tool_choice"] = {"type": "function", **_function(value)} if isinstance(value, dict) else value
        elif name == "response_format" and isinstance(value, dict):
            body["text"] = {"format": _text_format(value)}
        elif name == "reasoning_effort":
            body["reasoning"] = {"effort": value}
        else:
            body[_RENAMED.get(name, name)] = value
    return body


def _items(message: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    """Return the input items of a message: its content, then its tool calls."""
    content = _content(message["content"])
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}]
    calls = _dicts(message.get("tool_calls"))
    items: list[dict[str, JSON]] = []
    if content or not calls:
        items.append({"role": message["role"], "content": content})
    return items + [{"type": "function_call", "call_id": call["id"], **_function(call)} for call in calls]


def _content(content: JSON) -> JSON:
    """Return a text unchanged; convert parts to the types of this route."""
    return content if isinstance(content, str) else [_part(part) for part in _dicts(content)]


def _part(part: Mapping[str, JSON]) -> dict[str, JSON]:
    image = part.get("image_url")
    if isinstance(image, dict):
        return {"type": "input_image", "image_url": image["url"]}
    return {"type": "input_text", "text": part["text"]}


def _function(value: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Return the function inside a tool, choice or call. This route has no nesting."""
    function = value.get("function")
    return function if isinstance(function, dict) else {}


def _dicts(value: JSON) -> list[dict[str, JSON]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text_format(response_format: Mapping[str, JSON]) -> dict[str, JSON]:
    if response_format.get("type") != "json_schema":
        return dict(response_format)
    schema, name, strict = schema_of(response_format)
    out: dict[str, JSON] = {"type": "json_schema", "name": schema_name(name), "schema": schema}
    if description := description_of(response_format):
        out["description"] = description
    if strict is not None:
        out["strict"] = strict
    return out


def reply_in_events(body: bytes) -> JSON:
    """Return the reply in an event stream that answers a request for a whole answer; None for events of other routes.

    It is the first error event, else the response of the last event that has one
    (https://platform.openai.com/docs/api-reference/responses-streaming).
    """
    response: JSON = None
    for data in whole_events(body):
        if data == b"[DONE]":
            break
        try:
            event = parse_body(data)
        except ValueError:
            continue
        if not isinstance(event, dict):
            continue
        if read_error(event) is not None:
            return event
        if str(event.get("type")).startswith("response.") and isinstance(latest := event.get("response"), dict):
            response = latest
    return response
