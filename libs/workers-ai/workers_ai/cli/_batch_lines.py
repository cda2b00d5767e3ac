"""Read lines of OpenAI's batch format as chat requests.

A line is ``{"custom_id", "method", "url", "body"}`` (https://platform.openai.com/docs/guides/batch). Its body is for
``/v1/chat/completions`` or ``/v1/responses``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from workers_ai._wire.params import CHAT_PARAMS
from workers_ai.errors import BadRequestError
from workers_ai.generation import ChatInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai.types import JSON

__all__ = ["chat_of_line", "is_batch_line"]

_URLS: Final = ("/chat/completions", "/responses")
_WITHOUT_EFFECT: Final = frozenset({
    "stream", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "background",
})  # fmt: skip
"""Fields of a body that do not change the answer."""
_RENAMED: Final = {"max_completion_tokens": "max_tokens", "max_output_tokens": "max_tokens"}
_PARTS: Final = ("text", "input_text", "output_text")


def is_batch_line(row: Mapping[str, object]) -> bool:
    """Return whether a row is a line of OpenAI's batch format."""
    return "custom_id" in row and isinstance(row.get("body"), Mapping)


def chat_of_line(row: Mapping[str, object], model: str | None) -> ChatInput:
    """Return the request of a line.

    Args:
        row: The line.
        model: Model id of the generation; None if unknown.

    Raises:
        BadRequestError: The line is not a chat request, or has a parameter that is not supported.
    """
    body, url = row["body"], row.get("url")
    assert isinstance(body, Mapping)
    if url and not str(url).rstrip("/").endswith(_URLS):
        raise BadRequestError(f"the url {url!r:.100} is not supported: use {' or '.join(_URLS)}")
    own = body.get("model")
    if isinstance(own, str) and own.startswith("@") and model is not None and own != model:
        raise BadRequestError(f"the body has the model {own!r:.100}, not {model!r}: pass one file for each model")
    if "messages" in body:
        messages, read = body["messages"], {"messages", "model"}
    elif "input" in body:
        messages, read = _messages(body), {"input", "instructions", "model", "text", "reasoning"}
    else:
        raise BadRequestError("the body has neither messages nor input: add one")
    if not (isinstance(messages, list) and all(isinstance(message, Mapping) for message in messages)):
        raise BadRequestError("messages must be a list of objects with role and content")
    fields = {name: value for name, value in body.items() if value is not None and name not in read}
    if "messages" not in body:
        fields |= _flat_params(body)
    return ChatInput(messages, _params(fields))


def _params(fields: Mapping[str, JSON]) -> dict[str, JSON]:
    if fields.get("stream"):
        raise BadRequestError("the body has stream, but answers of a batch are not streamed: remove it")
    if fields.get("n", 1) != 1:
        raise BadRequestError("the body has n: write one line for each answer")
    params = {_RENAMED.get(name, name): value for name, value in fields.items() if name not in {*_WITHOUT_EFFECT, "n"}}
    if unknown := sorted(params.keys() - CHAT_PARAMS):
        raise BadRequestError(f"the body has unsupported parameters: {', '.join(unknown)}; remove them")
    return params


def _flat_params(body: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the parameters that the Responses API nests differently from chat completions."""
    params: dict[str, JSON] = {}
    effort = _object(body, "reasoning").get("effort")
    if effort is not None:
        params["reasoning_effort"] = effort
    form = _object(_object(body, "text"), "format")
    if form.get("type") == "json_schema":
        schema = {name: value for name, value in form.items() if name != "type"}
        params["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif form.get("type") == "json_object":
        params["response_format"] = form
    return params


def _object(fields: Mapping[str, JSON], name: str) -> Mapping[str, JSON]:
    value = fields.get(name) or {}
    if not isinstance(value, Mapping):
        raise BadRequestError(f"{name} must be an object, not {value!r:.100}")
    return value


def _messages(body: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    """Return the ``instructions`` and ``input`` of the Responses API as chat messages."""
    given = body["input"]
    items: Sequence[JSON] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not (isinstance(items, list) and all(isinstance(item, Mapping) for item in items)):
        raise BadRequestError("input must be a text or a list of objects")
    first = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    return [*first, *map(_message, items)]


def _message(item: Mapping[str, JSON]) -> dict[str, JSON]:
    kind = item.get("type", "message")
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    if kind != "message" or "role" not in item:
        raise BadRequestError(f"input has an item of the unsupported type {kind!r:.100}: remove it")
    content = item.get("content")
    return {"role": item["role"], "content": list(map(_part, content)) if isinstance(content, list) else content}


def _part(part: JSON) -> dict[str, JSON]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in _PARTS:
        return {"type": "text", "text": part.get("text")}
    if kind == "input_image" and isinstance(url := part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": url}}
    raise BadRequestError(f"input has a part of the unsupported type {kind!r:.100}: remove it")
