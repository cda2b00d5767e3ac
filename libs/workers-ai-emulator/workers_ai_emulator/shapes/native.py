"""The native family: ``result.response`` and ``{"response": …}`` events.

Sources: https://developers.cloudflare.com/workers-ai/models/ and the type definitions of cloudflare/workerd.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from workers_ai_emulator.shapes.chunks import Padding, argument_pieces, text_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.shapes.answer import Answer, Choice, ToolCall
    from workers_ai_emulator.wire import Json


def whole(answer: Answer, model: Model) -> Json:
    """Return the ``result`` of a whole reply. This family reports no finish reason."""
    choice = answer.choices[0]
    return {**response_of(choice, model), "usage": usage_of(answer, model)}


def response_of(choice: Choice, model: Model) -> Json:
    """Return ``response`` and ``tool_calls``. The hybrid family has them, too."""
    if choice.tool_calls:
        return {"response": None, "tool_calls": [_call(call, model) for call in choice.tool_calls]}
    if choice.is_json:
        return {"response": choice.parsed, "tool_calls": []}
    return {"response": parsed(_text(choice, model)), "tool_calls": []}


def parsed(text: str) -> object:
    """Return a text that is a JSON object or list as its value, and other texts unchanged, as the service does."""
    if text.strip()[:1] not in {"{", "["}:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def events(answer: Answer, model: Model, padding: Padding, *, usage: bool = True) -> Iterator[Json]:
    """Yield the events of a stream, without the end mark."""
    choice = answer.choices[0]
    for piece in text_pieces(_text(choice, model)):
        yield {"response": piece, "p": padding()}
    for index, call in enumerate(choice.tool_calls):
        for part in call_pieces(index, call):
            yield {"tool_calls": [part], "p": padding()}
    if choice.tool_calls:
        yield {"finish_reason": "tool_calls"}
    yield {"response": ""}
    if usage:
        yield usage_event(answer, model)


def call_pieces(index: int, call: ToolCall) -> Iterator[Json]:
    """Yield a call in pieces: its name, its arguments, and a last piece with null values."""
    yield {"id": call.id, "type": "function", "index": index, "function": {"name": call.name}}
    for piece in argument_pieces(call.arguments_text):
        yield {"index": index, "function": {"arguments": piece}}
    yield {"id": None, "type": None, "index": index, "function": {"name": None, "arguments": ""}}


def usage_event(answer: Answer, model: Model) -> Json:
    """Return the event with the usage of the whole request."""
    return {"response": "", "usage": usage_of(answer, model)}


def usage_of(answer: Answer, model: Model) -> Json:
    """Return the usage record of the model."""
    usage: Json = answer.usage.as_dict()
    if model.usage_without_neurons:
        usage = {key: usage[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return usage


def _text(choice: Choice, model: Model) -> str:
    return f"{choice.reasoning}\n</think>\n\n{choice.text}" if model.reasoning and choice.reasoning else choice.text


def _call(call: ToolCall, model: Model) -> Json:
    if model.tool_calls == "nested":
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return {"name": call.name, "arguments": call.arguments}
