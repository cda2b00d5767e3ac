"""The OpenAI family: ``chat.completion`` objects, bare on ``/ai/v1`` and inside ``result`` on ``/ai/run``.

The engines of these models add different keys: sglang ``matched_stop``, vLLM a set of null keys. All replies on
``/ai/v1`` have the null keys (recorded by public repositories in September 2026).
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workers_ai_emulator.rules.tokens import count_tokens, neurons
from workers_ai_emulator.shapes.answer import Choice, ToolCall, Usage
from workers_ai_emulator.shapes.chunks import Padding, argument_pieces, text_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.shapes.answer import Answer
    from workers_ai_emulator.wire import Json

StreamUsage = Literal["each", "last", "none"]

_END_TOKEN = 163586
_NULLS_OF_REPLY = (
    "service_tier",
    "prompt_logprobs",
    "prompt_text",
    "prompt_token_ids",
    "kv_transfer_params",
    "ec_transfer_params",
    "metrics",
)
_NULLS_OF_CHOICE = ("stop_reason", "token_ids", "routed_experts")
_NULLS_OF_MESSAGE = ("refusal", "annotations", "audio", "function_call", "reasoning")


@dataclass(frozen=True, slots=True)
class Style:
    """The form of stream events.

    Attributes:
        padding: Creates the ``p`` of an event; None for no padding.
        usage: ``each``: increments on every event. ``last``: the sum on the event without choices, null on the
            others. ``none``: no usage.
    """

    padding: Padding | None
    usage: StreamUsage = "each"


def whole(answer: Answer, model: Model, *, compat: bool = False) -> Json:
    """Return a ``chat.completion``.

    Args:
        answer: The answer of the model.
        model: The model to imitate.
        compat: Whether the reply is for ``/ai/v1``.
    """
    nulls = compat or model.engine == "vllm"
    choices = [_choice(index, choice, answer, model, nulls=nulls) for index, choice in enumerate(answer.choices)]
    return {
        "id": answer.id,
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": choices,
        "usage": answer.usage.as_dict(),
        **(dict.fromkeys(_NULLS_OF_REPLY) if nulls else {}),
    }


def whole_text(answer: Answer, model: Model) -> Json:
    """Return a ``text_completion``, this family's answer to a ``prompt``."""
    choices = [
        {"index": index, "text": choice.text, "logprobs": None, "finish_reason": choice.finish_reason}
        for index, choice in enumerate(answer.choices)
    ]
    return {**whole(answer, model), "choices": choices, "object": "text_completion"}


def queued(completion: Json, model: Model) -> Json:
    """Return a completion in the form of a finished batch: without neurons, always with reasoning and tool calls."""
    usage = {key: value for key, value in completion["usage"].items() if key != "neurons"}
    for choice in completion["choices"]:
        if "message" in choice:
            choice["message"] = dict.fromkeys(("reasoning_content", "tool_calls")) | choice["message"]
    extra = {"metadata": {"weight_version": "default"}} if model.engine == "sglang" else {}
    return {
        **completion,
        "id": str(completion["id"]).removeprefix("chatcmpl-").replace("-", ""),
        "usage": {**usage, "prompt_tokens_details": None},
        **extra,
    }


def choices_of(completion: Json, is_json: bool) -> list[Choice]:
    """Return the choices of an upstream's ``chat.completion``."""
    return [_choice_of(choice, is_json) for choice in completion["choices"]]


def events(answer: Answer, model: Model, style: Style) -> Iterator[Json]:
    """Yield the events of a stream, without the native usage event and the end mark."""
    chunks = _Chunks(answer, model, style)
    for index, choice in enumerate(answer.choices):
        first: Json = {"role": "assistant", "content": ""}
        if model.engine == "sglang":
            first["reasoning_content"] = None
        prompt = answer.usage.prompt_tokens if index == 0 else 0
        yield chunks.event(index, first, Usage(prompt, 0, answer.usage.cached_tokens))
        for delta, tokens, text in deltas(choice, model):
            yield chunks.event(index, delta, Usage(0, tokens), text)
        end = chunks.event(index, {"reasoning_content": None} if model.engine == "sglang" else {}, Usage(0, 0))
        end["choices"][0]["finish_reason"] = choice.finish_reason
        if model.engine == "sglang":
            end["choices"][0]["matched_stop"] = _matched_stop(choice)
        yield end
    if not model.late_zeros or style.usage == "last":
        yield chunks.last()


def zeros(answer: Answer, model: Model, style: Style) -> Json:
    """Return the zero usage event that follows the native usage event in some streams."""
    return _Chunks(answer, model, style).zeros()


def deltas(choice: Choice, model: Model) -> Iterator[tuple[Json, int, str]]:
    """Yield each delta between the first and the last, with its tokens and visible text."""
    for piece in text_pieces(choice.reasoning):
        yield dict.fromkeys(model.reasoning_keys, piece), count_tokens(piece), ""
    hidden = model.answers_in_reasoning and not choice.reasoning
    for piece in text_pieces(choice.text):
        yield {"content": "", "reasoning": piece} if hidden else {"content": piece}, count_tokens(piece), piece
    for delta in _call_deltas(choice):
        yield {"tool_calls": [delta]}, 1, ""


def message_of(choice: Choice, model: Model, *, nulls: bool) -> Json:
    """Return the message of a whole reply."""
    ate_budget = choice.reasoning and not choice.text and choice.finish_reason == "length"
    message: Json = {"role": "assistant", "content": None if ate_budget else choice.text}
    if nulls:
        message |= dict.fromkeys(_NULLS_OF_MESSAGE)
    if choice.reasoning:
        message |= dict.fromkeys(model.reasoning_keys, choice.reasoning)
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


class _Chunks:
    """Create the events of one answer, and count the tokens that were reported."""

    def __init__(self, answer: Answer, model: Model, style: Style) -> None:
        self._answer = answer
        self._model = model
        self._style = style
        self._left = answer.usage.completion_tokens

    def event(self, index: int, delta: Json, usage: Usage, text: str = "") -> Json:
        usage.completion_tokens = min(usage.completion_tokens, self._left)
        self._left -= usage.completion_tokens
        choice: Json = {
            "index": index,
            "delta": delta,
            "logprobs": _logprobs(text, self._answer.logprobs) if text else None,
            "finish_reason": None,
        }
        if self._model.engine == "sglang":
            choice["matched_stop"] = None
        return self._wrap([choice], usage)

    def last(self) -> Json:
        event = self._wrap([], Usage(0, self._left))
        if self._style.usage == "last":
            event["usage"] = self._answer.usage.as_dict()
        return event

    def zeros(self) -> Json:
        return self._wrap([], Usage(0, 0))

    def _wrap(self, choices: list[Json], usage: Usage) -> Json:
        usage.neurons = neurons(self._model, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        event: Json = {
            "id": self._answer.id,
            "object": "chat.completion.chunk",
            "created": self._answer.created,
            "model": self._answer.model,
            "choices": choices,
        }
        if self._style.usage != "none":
            event["usage"] = usage.as_dict() if self._style.usage == "each" else None
        if self._style.padding is not None:
            event["p"] = self._style.padding()
        return event


def _choice(index: int, choice: Choice, answer: Answer, model: Model, *, nulls: bool) -> Json:
    shape: Json = {
        "index": index,
        "message": message_of(choice, model, nulls=nulls),
        "logprobs": _logprobs(choice.text, answer.logprobs),
        "finish_reason": choice.finish_reason,
    }
    if nulls:
        shape |= dict.fromkeys(_NULLS_OF_CHOICE)
    if model.engine == "vllm":
        return shape | {"stop_reason": choice.matched_stop}
    return shape | {"matched_stop": _matched_stop(choice)}


def _matched_stop(choice: Choice) -> str | int | None:
    if choice.matched_stop is None and choice.finish_reason == "stop":
        return _END_TOKEN
    return choice.matched_stop


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


def _call_deltas(choice: Choice) -> Iterator[Json]:
    """Yield the pieces of calls; the first piece of a call has no ``arguments`` key."""
    for index, call in enumerate(choice.tool_calls):
        yield {"index": index, "id": call.id, "type": "function", "function": {"name": call.name}}
        for piece in argument_pieces(call.arguments_text):
            yield {"index": index, "function": {"arguments": piece}}


def _logprobs(text: str, alternatives: int | None) -> Json | None:
    """Return log probabilities: one token per word, all equal."""
    if alternatives is None:
        return None
    tokens: list[Json] = []
    for piece in text_pieces(text):
        token = {"token": piece, "logprob": -0.25, "bytes": list(piece.encode())}
        tokens.append({**token, "top_logprobs": [token][:alternatives]})
    return {"content": tokens}
