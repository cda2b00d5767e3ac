"""The OpenAI family: ``chat.completion`` objects, bare on ``/ai/v1`` and inside ``result`` on ``/ai/run``.

Every event of a stream has padding and its own, incremental usage, as captured from newer models in October
2026 (https://github.com/cloudflare/ai/issues/651 shows such usage). Models of the native family take this
shape on ``/ai/v1`` too, with an id like ``id-<milliseconds>`` (https://github.com/vercel/ai/issues/4031).
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from workers_ai_emulator.rules.words import count_tokens, neurons
from workers_ai_emulator.shapes.answer import Choice, ToolCall, Usage
from workers_ai_emulator.shapes.pieces import Padding, argument_pieces, text_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.shapes.answer import Answer
    from workers_ai_emulator.wire import Json


def whole(answer: Answer) -> Json:
    """A ``chat.completion``."""
    choices = [
        {
            "index": index,
            "message": _message(choice),
            "logprobs": _logprobs(choice.text, answer.logprobs),
            "finish_reason": choice.finish_reason,
            "matched_stop": choice.matched_stop,
        }
        for index, choice in enumerate(answer.choices)
    ]
    return {
        "choices": choices,
        "created": answer.created,
        "id": answer.id,
        "model": answer.model,
        "object": "chat.completion",
        "usage": answer.usage.as_dict(),
    }


def choices_of(completion: Json, is_json: bool) -> list[Choice]:
    """The choices of a foreign ``chat.completion``, read back from their wire form."""
    return [_choice_of(choice, is_json) for choice in completion["choices"]]


def whole_text(answer: Answer) -> Json:
    """A ``text_completion``, the answer of this family to a ``prompt``."""
    choices = [
        {"index": index, "text": choice.text, "logprobs": None, "finish_reason": choice.finish_reason}
        for index, choice in enumerate(answer.choices)
    ]
    return {**whole(answer), "choices": choices, "object": "text_completion"}


def events(answer: Answer, model: Model, padding: Padding) -> Iterator[Json]:
    """The events of a stream up to the one without choices; the native usage event and the end mark come after."""
    chunks = _Chunks(answer, model, padding)
    for index, choice in enumerate(answer.choices):
        first = {"role": "assistant", "content": "", "reasoning_content": None}
        yield chunks.event(
            index,
            first,
            Usage(answer.usage.prompt_tokens if index == 0 else 0, 0, answer.usage.cached_tokens),
        )
        for piece in text_pieces(choice.reasoning):
            yield chunks.event(index, {"reasoning_content": piece}, Usage(0, count_tokens(piece)))
        for piece in text_pieces(choice.text):
            yield chunks.event(index, {"content": piece}, Usage(0, count_tokens(piece)), piece)
        for delta in _call_deltas(choice):
            yield chunks.event(index, {"tool_calls": [delta]}, Usage(0, 1))
        end = chunks.event(index, {"reasoning_content": None}, Usage(0, 0))
        end["choices"][0] |= {"finish_reason": choice.finish_reason, "matched_stop": choice.matched_stop}
        yield end
    yield chunks.last()


class _Chunks:
    """Makes events of one answer and keeps count of the tokens already told."""

    def __init__(self, answer: Answer, model: Model, padding: Padding) -> None:
        self._answer = answer
        self._model = model
        self._padding = padding
        self._left = answer.usage.completion_tokens

    def event(self, index: int, delta: Json, usage: Usage, text: str = "") -> Json:
        usage.completion_tokens = min(usage.completion_tokens, self._left)
        self._left -= usage.completion_tokens
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": _logprobs(text, self._answer.logprobs) if text else None,
            "finish_reason": None,
            "matched_stop": None,
        }
        return self._wrap([choice], usage)

    def last(self) -> Json:
        return self._wrap([], Usage(0, self._left))

    def _wrap(self, choices: list[Json], usage: Usage) -> Json:
        usage.neurons = neurons(self._model, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        return {
            "id": self._answer.id,
            "object": "chat.completion.chunk",
            "created": self._answer.created,
            "model": self._answer.model,
            "choices": choices,
            "usage": usage.as_dict(),
            "p": self._padding(),
        }


def _choice_of(choice: Json, is_json: bool) -> Choice:
    message = choice["message"]
    read = Choice(text=message.get("content") or "", finish_reason=choice.get("finish_reason") or "stop")
    read.reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    for call in message.get("tool_calls") or []:
        function = call["function"]
        read.tool_calls.append(ToolCall(call["id"], function["name"], json.loads(function["arguments"] or "{}")))
    if is_json and not read.tool_calls:
        with contextlib.suppress(ValueError):
            read.parsed, read.is_json = json.loads(read.text), True
    return read


def _message(choice: Choice) -> Json:
    ate_budget = choice.reasoning and not choice.text and choice.finish_reason == "length"
    message: Json = {"role": "assistant", "content": None if ate_budget else choice.text}
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.tool_calls:
        message["content"] = choice.text or None
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text},
            }
            for call in choice.tool_calls
        ]
    return message


def _call_deltas(choice: Choice) -> Iterator[Json]:
    for index, call in enumerate(choice.tool_calls):
        yield {
            "index": index,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        for piece in argument_pieces(call.arguments_text):
            yield {"index": index, "function": {"arguments": piece}}


def _logprobs(text: str, alternatives: int | None) -> Json | None:
    """Log probabilities of made-up tokens: one per word, all equally sure."""
    if alternatives is None:
        return None
    tokens: list[dict[str, Any]] = []
    for piece in text_pieces(text):
        token = {"token": piece, "logprob": -0.25, "bytes": list(piece.encode())}
        tokens.append({**token, "top_logprobs": [token][:alternatives]})
    return {"content": tokens}
