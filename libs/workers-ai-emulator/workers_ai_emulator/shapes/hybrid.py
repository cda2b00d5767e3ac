"""The hybrid family: a ``chat.completion`` with ``response`` and ``tool_calls`` beside its ``choices``.

Recorded for llama-3.3-70b-instruct-fp8-fast on ``/ai/run`` since September 2026, with and without streaming. No
recording shows where its tool calls are; ``Settings.hybrid_tool_calls`` selects the place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from workers_ai_emulator.shapes import native, openai

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.shapes.answer import Answer
    from workers_ai_emulator.wire import Json

CallsAt = Literal["both", "choices", "top"]


def whole(answer: Answer, model: Model, calls_at: CallsAt) -> Json:
    """Return the ``result`` of a whole reply."""
    result = openai.whole(answer, model)
    result |= native.response_of(answer.choices[0], model)
    if calls_at == "choices":
        result["tool_calls"] = []
    if calls_at == "top":
        for choice in result["choices"]:
            if choice["message"].pop("tool_calls", None):
                choice["message"]["content"], choice["finish_reason"] = "", "stop"
    return result


def events(answer: Answer, model: Model, style: openai.Style, calls_at: CallsAt) -> Iterator[Json]:
    """Yield the events of a stream, without the end mark. Each event has the text in both forms."""
    choice = answer.choices[0]
    yield _event(answer, style, {"role": "assistant", "content": ""})
    for delta, _, text in openai.deltas(choice, model):
        calls = delta.get("tool_calls") or []
        shown = {key: value for key, value in delta.items() if key != "tool_calls" or calls_at != "top"}
        yield _event(answer, style, shown, text, [] if calls_at == "choices" else calls)
    end = _event(answer, style, {"content": ""})
    calls_hidden = calls_at == "top" and choice.tool_calls
    end["choices"][0]["finish_reason"] = "stop" if calls_hidden else choice.finish_reason
    yield end
    if style.usage != "none":
        yield native.usage_event(answer, model)


def _event(answer: Answer, style: openai.Style, delta: Json, text: str = "", calls: list[Json] | None = None) -> Json:
    event: Json = {
        "id": answer.id,
        "object": "chat.completion.chunk",
        "created": answer.created,
        "model": answer.model,
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
        "response": text,
        "tool_calls": calls or [],
    }
    if style.padding is not None:
        event["p"] = style.padding()
    return event
