"""Answer in prose: from tool results, by arithmetic, from the context, or from general knowledge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from workers_ai_emulator.fake_model.reading.arithmetic import compute, steps_of
from workers_ai_emulator.fake_model.reading.knowledge import FACTS
from workers_ai_emulator.fake_model.reading.texts import best_sentences, sentences_of, topic_of
from workers_ai_emulator.rules.tokens import content_stems, words_of

if TYPE_CHECKING:
    from workers_ai_emulator.fake_model.reading.conversation import Reading

_GREETINGS = {"hello", "hey", "hi", "morning", "thanks", "thank", "howdy"}
_NAMED = re.compile(r"(?i:\bmy name is|\bi am|\bi'm|\bthis is)\s+([A-Z]\w+)|(?i:\bmy name is)\s+(\w+)")
_OF_ONESELF = re.compile(r"(?i)(?:please\s+)?(?:i|i'm|i've|my|remember)\b")
_ABOUT_MODEL = re.compile(r"(?i)\b(?:what can you do|who are you|what are you|can you help|what do you do)\b")
_LONG_RESULT = 400
_FACTS = [(fact, content_stems(fact)) for fact in sentences_of(FACTS)]


def answer_text(reading: Reading) -> str:
    """Return an answer in prose."""
    if reading.results:
        return _from_results(reading)
    found = _calculated(reading) or best_sentences(reading.question, reading.context)
    if found:
        return " ".join(found)
    return _small_talk(reading) or " ".join(known_facts(reading.question)) or _unknown(reading)


def seen_text(images: int) -> str:
    """Return the sentence with the number of images in the conversation; empty without images."""
    return f"I see {images} image{'s' if images > 1 else ''}. " if images else ""


def known_facts(question: str) -> list[str]:
    """Return the general facts with all content words of a question's topic."""
    topic = content_stems(topic_of(question))
    return [fact for fact, stems in _FACTS if topic and topic <= stems][:2]


def thinking_text(reading: Reading, effort: str) -> str:
    """Return the reasoning before an answer; more effort makes it longer."""
    thoughts = [
        f"The user asks: {reading.question[:200]}",
        f"There are {len(reading.context)} sentences of context and {len(reading.results)} tool results.",
        "I answer with what fits the question best and add nothing.",
    ]
    return " ".join(thoughts[: {"low": 1, "minimal": 1, "medium": 2}.get(effort, 3)])


def _calculated(reading: Reading) -> list[str]:
    """Return an equation for each expression of the request."""
    steps = steps_of(reading.request)
    totals = {step.expression: total for step, total in zip(steps, compute(steps), strict=True)}
    return [
        f"{expression.strip('()') if expression.count('(') == 1 else expression} = {total}."
        for expression, total in totals.items()
    ]


def _small_talk(reading: Reading) -> str:
    """Return the answer to a greeting or to a statement about the user; empty for other requests."""
    named = _NAMED.search(reading.request)
    if named:
        return f"Hello {named.group(1) or named.group(2).capitalize()}! How can I help you today?"
    if _ABOUT_MODEL.search(reading.request):
        return "I am the fake model of an emulator: I answer from the context, call tools and fill in forms."
    words = words_of(reading.question)
    if _GREETINGS & set(words) and len(words) <= 8:
        return "Hello! How can I help you today?"
    lines = _OF_ONESELF.match(reading.request) and not reading.request.rstrip().endswith("?")
    return "Thank you for telling me, I will remember that." if lines else ""


def _unknown(reading: Reading) -> str:
    if reading.context:
        return "I could not find an answer to that in the context I was given."
    return "I do not know: there is no context to answer this from."


def _from_results(reading: Reading) -> str:
    lines = []
    for name, text in reading.results:
        if len(text) > _LONG_RESULT:
            text = " ".join(best_sentences(reading.question, sentences_of(text))) or text[:_LONG_RESULT]
        lines.append(f"The result of {name} is: {text}" if name else f"The result is: {text}")
    return "\n".join(lines)
