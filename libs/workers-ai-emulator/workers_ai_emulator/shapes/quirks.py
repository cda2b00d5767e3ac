"""Named shapes of replies without streaming. Each was reported publicly for Workers AI or a similar service.

Sources: https://github.com/cloudflare/ai/issues (302, 384, 424, 526, 574), https://github.com/cloudflare/workers-sdk/issues
(12398, 13239), https://github.com/langchain-ai/langchain/issues/34123.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from workers_ai_emulator.wire import Json


def whole(shape: str, body: Json) -> Json:
    """Return a body in a named shape; unchanged if the shape is for streams only."""
    change = WHOLE.get(shape)
    return change(body) if change else body


def _messages(body: Json) -> Iterator[Json]:
    """Yield the messages of a reply. In the native and hybrid families, ``result`` itself is a message, too."""
    result = body.get("result", body)
    if not isinstance(result, dict):
        return
    yield from (choice["message"] for choice in result.get("choices", []) if "message" in choice)
    if "choices" not in result or "response" in result:
        yield result


def _choices(body: Json) -> list[Json]:
    result = body.get("result", body)
    return list(result.get("choices", [])) if isinstance(result, dict) else []


def text_key(message: Json) -> str:
    """Return the key of a message's text: ``response`` in the native family, else ``content``."""
    return "response" if "response" in message else "content"


def _on_messages(change: Callable[[Json], None]) -> Callable[[Json], Json]:
    def apply(body: Json) -> Json:
        for message in _messages(body):
            change(message)
        return body

    return apply


def _on_calls(change: Callable[[Json], None]) -> Callable[[Json], Json]:
    """Change each tool call."""

    def apply(body: Json) -> Json:
        for message in _messages(body):
            for call in message.get("tool_calls") or []:
                change(call)
        return body

    return apply


def function_of(call: Json) -> Json:
    """Return the object with name and arguments of a call."""
    function = call.get("function")
    return function if isinstance(function, dict) else call


def as_number(text: object) -> object:
    """Convert a text of digits to a number. Return other values unchanged."""
    try:
        return json.loads(text.strip()) if isinstance(text, str) and text.strip().isdecimal() else text
    except ValueError:
        return text


def rename_reasoning(message: Json) -> None:
    """Move ``reasoning_content`` to ``reasoning``."""
    if "reasoning_content" in message:
        message["reasoning"] = message.pop("reasoning_content")


def both_reasoning(message: Json) -> None:
    """Copy ``reasoning_content`` to ``reasoning``."""
    if "reasoning_content" in message:
        message["reasoning"] = message["reasoning_content"]


def _numeric(message: Json) -> None:
    message[text_key(message)] = as_number(message.get(text_key(message)))


def _null_text(message: Json) -> None:
    message[text_key(message)] = None


def _no_text(message: Json) -> None:
    message.pop(text_key(message), None)


def _parsed_text(message: Json) -> None:
    key = text_key(message)
    if isinstance(message.get(key), str) and message[key][:1] in {"{", "["}:
        message[key] = json.loads(message[key])


def _text_response(message: Json) -> None:
    key = text_key(message)
    if not isinstance(message.get(key), str | None):
        message[key] = json.dumps(message[key], ensure_ascii=False)


def _set_arguments(value: str | None) -> Callable[[Json], None]:
    def change(call: Json) -> None:
        function_of(call)["arguments"] = value

    return change


def _object_arguments(call: Json) -> None:
    arguments = function_of(call)["arguments"]
    function_of(call)["arguments"] = json.loads(arguments) if isinstance(arguments, str) else arguments


def _text_arguments(call: Json) -> None:
    arguments = function_of(call)["arguments"]
    function_of(call)["arguments"] = arguments if isinstance(arguments, str) else json.dumps(arguments)


def _same_id(call: Json) -> None:
    call["id"] = "x1"


def _no_id(call: Json) -> None:
    call.pop("id", None)


def _counted_id(call: Json) -> None:
    call["id"] = f"functions.{function_of(call)['name']}:0"


def _leaked(body: Json) -> Json:
    for message in _messages(body):
        calls = message.get("tool_calls") or []
        if calls:
            arguments = function_of(calls[0])["arguments"]
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            message |= {text_key(message): text, "tool_calls": []}
    for choice in _choices(body):
        choice["finish_reason"] = "stop"
    return body


def _finish(reason: str | None) -> Callable[[Json], Json]:
    def apply(body: Json) -> Json:
        for choice in _choices(body):
            choice["finish_reason"] = reason
        return body

    return apply


def _without(*keys: str) -> Callable[[Json], Json]:
    def apply(body: Json) -> Json:
        for part in (body, body.get("result")):
            for key in keys:
                if isinstance(part, dict):
                    part.pop(key, None)
        return body

    return apply


def _internal_model(body: Json) -> Json:
    result = body.get("result", body)
    if isinstance(result, dict) and "model" in result:
        result["model"] = f"{result['model'].rsplit('/', 1)[-1]}-external"
    return body


WHOLE: dict[str, Callable[[Json], Json]] = {
    "numeric": _on_messages(_numeric),
    "null_text": _on_messages(_null_text),
    "no_text": _on_messages(_no_text),
    "object_text": _on_messages(_parsed_text),
    "json_as_text": _on_messages(_text_response),
    "reasoning": _on_messages(rename_reasoning),
    "both_reasoning": _on_messages(both_reasoning),
    "empty_arguments": _on_calls(_set_arguments("")),
    "null_arguments": _on_calls(_set_arguments(None)),
    "object_arguments": _on_calls(_object_arguments),
    "text_arguments": _on_calls(_text_arguments),
    "same_ids": _on_calls(_same_id),
    "no_ids": _on_calls(_no_id),
    "counted_ids": _on_calls(_counted_id),
    "leaked_call": _leaked,
    "stop_with_calls": _finish("stop"),
    "no_finish": _finish(None),
    "no_usage": _without("usage"),
    "no_messages": _without("messages", "errors"),
    "bare_result": lambda body: body.get("result", body),
    "internal_model": _internal_model,
}
