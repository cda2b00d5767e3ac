"""The native family: ``result.response`` and ``{"response": …}`` events.

Sources: https://developers.cloudflare.com/workers-ai/models/ and the type definitions of cloudflare/workerd.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai_emulator.shapes.pieces import Padding, argument_pieces, text_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.shapes.answer import Answer, ToolCall
    from workers_ai_emulator.wire import Json


def whole(answer: Answer, model: Model) -> Json:
    """The ``result`` of a whole reply. This family has no finish reason."""
    choice = answer.choices[0]
    result: Json = {"response": choice.parsed if choice.is_json else choice.text}
    if model.reasoning and choice.reasoning:
        result["response"] = f"{choice.reasoning}\n</think>\n\n{choice.text}"
    if choice.tool_calls:
        result["response"] = None
        result["tool_calls"] = [_call(call, model) for call in choice.tool_calls]
    return result | {"usage": answer.usage.as_dict()}


def events(answer: Answer, model: Model, padding: Padding) -> Iterator[Json]:
    """The events of a stream, without the end mark."""
    choice = answer.choices[0]
    text = f"{choice.reasoning}\n</think>\n\n{choice.text}" if model.reasoning and choice.reasoning else choice.text
    for piece in text_pieces(text):
        yield {"response": piece, "p": padding()}
    for index, call in enumerate(choice.tool_calls):
        start = {"id": call.id, "type": "function", "index": index, "function": {"name": call.name}}
        yield {"tool_calls": [start], "p": padding()}
        for piece in argument_pieces(call.arguments_text):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}], "p": padding()}
        end = {"id": None, "type": None, "index": index, "function": {"name": None, "arguments": ""}}
        yield {"tool_calls": [end], "p": padding()}
    if choice.tool_calls:
        yield {"finish_reason": "tool_calls"}
    yield {"response": ""}
    yield usage_event(answer)


def usage_event(answer: Answer) -> Json:
    """The event that carries the usage of the whole request."""
    return {"response": "", "usage": answer.usage.as_dict()}


def _call(call: ToolCall, model: Model) -> Json:
    if model.tool_calls == "nested":
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return {"name": call.name, "arguments": call.arguments}
