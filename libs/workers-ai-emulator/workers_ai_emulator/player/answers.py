"""Prose: the sentences of the context that answer the question, or an honest word that there are none."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from workers_ai_emulator.rules.words import content_stems

if TYPE_CHECKING:
    from workers_ai_emulator.player.reading import Reading

_GREETINGS = {"hello", "hey", "hi", "morning", "thank", "howdy"}
_LONG_RESULT = 400
_SENTENCES = 3


def answer_text(reading: Reading, images: int) -> str:
    """Answer in prose.

    Args:
        reading: The conversation.
        images: Number of images in it; the player sees that they are there and no more.
    """
    if reading.results:
        return _from_results(reading)
    seen = f"I see {images} image{'s' if images > 1 else ''}. " if images else ""
    found = best_sentences(reading.question, reading.context)
    if found:
        return seen + " ".join(found)
    if content_stems(reading.question) & _GREETINGS:
        return f"{seen}Hello! How can I help you today?"
    if reading.context:
        return f"{seen}I could not find an answer to that in the context I was given."
    return f"{seen}I have no context to answer this from: {reading.question}"


def best_sentences(question: str, context: list[str], count: int = _SENTENCES) -> list[str]:
    """The sentences that share most with the question, in the order of the context.

    A shared word counts more the fewer sentences hold it; a sentence must come up to half of the best one.
    """
    wanted = content_stems(question)
    stems = [content_stems(sentence) for sentence in context]
    frequency = Counter(stem for held in stems for stem in held)
    scores = [
        sum(math.log(1 + len(context) / frequency[stem]) for stem in wanted & held) / math.sqrt(4 + len(held))
        for held in stems
    ]
    best = max(scores, default=0.0)
    if best <= 0.0:
        return []
    ranked = sorted(range(len(context)), key=lambda index: -scores[index])[:count]
    chosen = sorted(index for index in ranked if scores[index] >= best / 2)
    return list(dict.fromkeys(context[index] for index in chosen))


def thinking_text(reading: Reading, effort: str) -> str:
    """What a reasoning model thinks first: longer with more effort."""
    thoughts = [
        f"The user asks: {reading.question[:200]}",
        f"There are {len(reading.context)} sentences of context and {len(reading.results)} tool results.",
        "I answer with what fits the question best and add nothing.",
    ]
    return " ".join(thoughts[: {"low": 1, "minimal": 1, "medium": 2}.get(effort, 3)])


def _from_results(reading: Reading) -> str:
    told = []
    for name, text in reading.results:
        if len(text) > _LONG_RESULT:
            found = best_sentences(reading.question, [line for line in text.splitlines() if line.strip()])
            text = " ".join(found) or text[:_LONG_RESULT]
        told.append(f"The result of {name} is: {text}" if name else f"The result is: {text}")
    return "\n".join(told)
