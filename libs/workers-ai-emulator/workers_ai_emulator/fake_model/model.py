"""Complete one chat request: choose the rule that applies, then truncate the answer to ``max_tokens``."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from workers_ai_emulator.fake_model import prose, tools
from workers_ai_emulator.fake_model.intents import intent_answer
from workers_ai_emulator.fake_model.reading.conversation import read
from workers_ai_emulator.fake_model.schemas.json_answers import json_answer
from workers_ai_emulator.rules.tokens import count_tokens
from workers_ai_emulator.shapes.answer import Choice
from workers_ai_emulator.shapes.chunks import text_pieces
from workers_ai_emulator.wire import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.fake_model.request import ChatRequest

_CALL_TOKENS = 16


def complete(model: Model, request: ChatRequest, new_id: Callable[[str, int], str]) -> Choice:
    """Return one completion of a request.

    The rules apply in this order: tool calls if the request forces them or the question requires them, JSON if the
    request requires it, an intent of :data:`INTENTS` if the prompt matches one, prose.

    Args:
        model: The model to imitate.
        request: The request.
        new_id: Returns the id of a tool call, from the tool's name and the number of the call.

    Raises:
        ServiceError: 8006 if a forced call does not fit into ``max_tokens``, 5024 if no value fits the schema.
    """
    if "llama-guard" in model.id:
        return _guard(request)
    reading = read(request.turns)
    reading = dataclasses.replace(reading, answer=prose.answer_text(reading))
    choice = Choice(reasoning=prose.thinking_text(reading, request.effort) if request.thinking else "")
    if model.function_calling:
        choice.tool_calls = tools.choose(request, reading, new_id)
    if choice.tool_calls:
        choice.finish_reason = "tool_calls"
        return _with_room_for_calls(request, choice)
    if request.wants_json and model.json_mode != "ignored":
        choice.parsed = json_answer(request, reading)
        choice.is_json = True
        choice.text = json.dumps(choice.parsed, ensure_ascii=False)
    else:
        images = sum(turn.images for turn in request.turns)
        from_intent = None if reading.results else intent_answer(request, reading)
        choice.text = from_intent or (reading.answer if reading.results else prose.seen_text(images) + reading.answer)
        _stop(request, choice)
    _shorten(request, choice)
    return choice


def _guard(request: ChatRequest) -> Choice:
    """Return the verdict "safe" of a content guard, as an object if the request requires JSON."""
    return Choice(text="safe", parsed={"safe": True, "categories": []}, is_json=request.wants_json)


def _with_room_for_calls(request: ChatRequest, choice: Choice) -> Choice:
    """Drop tool calls that exceed ``max_tokens``; raise 8006 if the request forced them."""
    if request.max_tokens is None or request.max_tokens >= count_tokens(choice.reasoning) + _CALL_TOKENS:
        return choice
    if request.tool_choice != "auto" and request.thinking:
        raise ServiceError(400, 8006, "The forced tool call did not fit into max_tokens")
    choice.tool_calls, choice.finish_reason = [], "length"
    _shorten(request, choice)
    choice.finish_reason = "length"
    return choice


def _stop(request: ChatRequest, choice: Choice) -> None:
    """Truncate the text before the first stop sequence."""
    places = [(place, sequence) for sequence in request.stop if sequence and (place := choice.text.find(sequence)) >= 0]
    if places:
        place, choice.matched_stop = min(places)
        choice.text = choice.text[:place]


def _shorten(request: ChatRequest, choice: Choice) -> None:
    """Truncate reasoning and text to ``max_tokens``. Reasoning is counted first and may use all tokens."""
    if request.max_tokens is None:
        return
    thinking = _first_tokens(choice.reasoning, request.max_tokens)
    left = request.max_tokens - count_tokens(thinking)
    text = _first_tokens(choice.text, left) if thinking == choice.reasoning else ""
    if (thinking, text) != (choice.reasoning, choice.text):
        choice.reasoning, choice.text, choice.finish_reason = thinking, text, "length"
        choice.matched_stop, choice.is_json = None, False


def _first_tokens(text: str, budget: int) -> str:
    """Return the beginning of a text, at most ``budget`` tokens."""
    if count_tokens(text) <= budget:
        return text
    pieces = text_pieces(text)
    kept = max(0, int(budget / 1.3)) or (1 if budget > 0 else 0)
    while kept > 1 and count_tokens("".join(pieces[:kept])) > budget:
        kept -= 1
    return "".join(pieces[:kept])
