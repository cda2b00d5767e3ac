"""Named shapes of streams. Each was reported publicly for Workers AI or a similar service.

Sources: https://github.com/vercel/ai/issues/4031, https://github.com/decolua/9router/issues/1645,
https://github.com/cloudflare/ai/pull/393, https://github.com/cloudflare/ai/issues/523,
https://github.com/cloudflare/ai/pull/424, https://github.com/langchain-ai/langchain/issues/30429.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from workers_ai_emulator.shapes import quirks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from workers_ai_emulator.wire import Json


def streamed(shape: str, events: list[Json]) -> list[Json]:
    """Return events in a named shape; unchanged if the shape is for replies without streaming only."""
    change = STREAMED.get(shape)
    return change(events) if change else events


def _deltas(events: list[Json]) -> Iterator[Json]:
    """Yield the deltas of a stream; in the native family, the events themselves."""
    for event in events:
        if "choices" in event:
            yield from (choice["delta"] for choice in event["choices"])
        elif "usage" not in event:
            yield event


def _on_deltas(change: Callable[[Json], None]) -> Callable[[list[Json]], list[Json]]:
    def apply(events: list[Json]) -> list[Json]:
        for delta in _deltas(events):
            change(delta)
        for event in events:
            if "choices" in event and "response" in event:
                change(event)
        return events

    return apply


def _on_calls(change: Callable[[Json], None]) -> Callable[[list[Json]], list[Json]]:
    def on_delta(delta: Json) -> None:
        for call in delta.get("tool_calls") or []:
            change(call)

    return _on_deltas(on_delta)


def _numeric(delta: Json) -> None:
    for key in ("response", "content"):
        if key in delta:
            delta[key] = quirks.as_number(delta[key])


def _same_id(call: Json) -> None:
    if call.get("id"):
        call["id"] = "x1"


def _no_id(call: Json) -> None:
    call.pop("id", None)


def _counted_id(call: Json) -> None:
    if call.get("id"):
        call["id"] = f"functions.{quirks.function_of(call)['name']}:0"


def _cumulative(events: list[Json]) -> list[Json]:
    """Report cumulative usage, as older vLLM does, without the native usage event."""
    seen = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    kept = [event for event in events if "choices" in event]
    for event in kept:
        seen = {key: count + ((event.get("usage") or {}).get(key) or 0) for key, count in seen.items()}
        event["usage"] = dict(seen)
    return kept or events


def legacy_chunks(events: list[Json]) -> list[Json]:
    """Return chunks without index, role, finish reason, usage and padding."""
    kept = []
    for event in events:
        for choice in event.get("choices", []):
            delta = {key: value for key, value in choice["delta"].items() if key == "content" and value}
            if delta:
                same = {key: event[key] for key in ("id", "object", "created", "model")}
                kept.append({**same, "choices": [{"delta": delta}]})
    return kept or events


def _no_usage(events: list[Json]) -> list[Json]:
    kept = [event for event in events if "usage" not in event or event.get("choices")]
    for event in kept:
        event.pop("usage", None)
    return kept


def _arguments_first(events: list[Json]) -> list[Json]:
    """Send the first piece of the arguments before the name."""
    starts = {}
    for place, event in enumerate(events):
        for delta in _deltas([event]):
            for call in delta.get("tool_calls") or []:
                if call.get("id"):
                    starts[place] = call
    for place, call in starts.items():
        following = [c for d in _deltas(events[place + 1 : place + 2]) for c in d.get("tool_calls") or []]
        if following:
            events[place], events[place + 1] = events[place + 1], events[place]
            quirks.function_of(call).pop("arguments", None)
    return events


def _object_arguments(events: list[Json]) -> list[Json]:
    """Send each call in one event, with its arguments as an object."""
    texts: dict[int, str] = {}
    starts: dict[int, Json] = {}
    kept = []
    for event in events:
        calls = [call for delta in _deltas([event]) for call in delta.get("tool_calls") or []]
        for call in calls:
            function = quirks.function_of(call)
            texts[call["index"]] = texts.get(call["index"], "") + (function.get("arguments") or "")
            if call.get("id"):
                starts[call["index"]] = function
        if not calls or any(call.get("id") for call in calls):
            kept.append(event)
    for index, function in starts.items():
        function["arguments"] = json.loads(texts[index] or "{}")
    return kept


def _null_end(events: list[Json]) -> list[Json]:
    """Add a piece of a call with null values before the finish reason of a stream with calls."""
    if not any(delta.get("tool_calls") for delta in _deltas(events)):
        return events
    end: Json = {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": None}}
    place = next((at for at, event in enumerate(events) if _finishes(event)), len(events))
    model: Any = events[place - 1]
    extra: Json = {"tool_calls": [end]}
    if "choices" in model:
        both = {"response": "", "tool_calls": []} if "response" in model else {}
        extra = {**model, **both, "choices": [{**model["choices"][0], "delta": extra}]}
    return [*events[:place], extra, *events[place:]]


def _finishes(event: Json) -> bool:
    return any(choice.get("finish_reason") for choice in event.get("choices", [])) or "finish_reason" in event


def _no_finish(events: list[Json]) -> list[Json]:
    for event in events:
        event.pop("finish_reason", None)
        for choice in event.get("choices", []):
            choice["finish_reason"] = None
    return events


def _early_finish(events: list[Json]) -> list[Json]:
    """Set ``finish_reason: stop`` on every text event, so that text follows a finish."""
    for event in events:
        for choice in event.get("choices", []):
            if choice["delta"].get("content"):
                choice["finish_reason"] = "stop"
    return events


def _stop_with_calls(events: list[Json]) -> list[Json]:
    for event in events:
        for choice in event.get("choices", []):
            choice["finish_reason"] = "stop" if choice["finish_reason"] else None
    return events


def _null_pieces(events: list[Json]) -> list[Json]:
    """Add an event without text before each event with text."""
    doubled = []
    for event in events:
        if event.get("choices") and event["choices"][0]["delta"].get("content"):
            doubled.append({**event, "choices": [{**event["choices"][0], "delta": {"content": None}}]})
            doubled[-1].pop("usage", None)
            doubled[-1] |= {"response": None} if "response" in event else {}
        elif event.get("response"):
            doubled.append({"response": None, "p": ""})
        doubled.append(event)
    return doubled


STREAMED: dict[str, Callable[[list[Json]], list[Json]]] = {
    "numeric": _on_deltas(_numeric),
    "reasoning": _on_deltas(quirks.rename_reasoning),
    "both_reasoning": _on_deltas(quirks.both_reasoning),
    "same_ids": _on_calls(_same_id),
    "no_ids": _on_calls(_no_id),
    "counted_ids": _on_calls(_counted_id),
    "cumulative_usage": _cumulative,
    "legacy_chunks": legacy_chunks,
    "no_usage": _no_usage,
    "arguments_first": _arguments_first,
    "object_arguments": _object_arguments,
    "null_end": _null_end,
    "no_finish": _no_finish,
    "early_finish": _early_finish,
    "stop_with_calls": _stop_with_calls,
    "null_pieces": _null_pieces,
    "empty_stream": lambda _: [],
}
