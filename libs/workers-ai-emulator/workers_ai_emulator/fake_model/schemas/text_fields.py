"""Values of text properties in a schema."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from workers_ai_emulator.fake_model.reading.knowledge import language_of, sentiment_word
from workers_ai_emulator.fake_model.reading.texts import ABOUT, creative_field, summary_of, topic_of, verdict_of
from workers_ai_emulator.fake_model.schemas.values import Source, split_name
from workers_ai_emulator.rules.tokens import word_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator.wire import Json

    Finder = Callable[[Source, set[str]], str | None]

_YES_NO = re.compile(r"(?is)['\"]?\byes\b['\"]?.{0,40}['\"]?\bno\b")
_SAYING = re.compile(
    r"(?i)\b(?:saying|that says?|that reads|with the (?:message|text|body))\s*[:,]?\s*(?:that\s+)?(.+)$"
)
_REASON = "It fits best what was asked."
_REMINDER = re.compile(r"(?i)\bremind(?:er)?(?: me)? to (.+?)(?=\s+(?:on|at|tomorrow|today|next)\b|[.!]|$)")
_SENTIMENTS = ["positive", "negative", "neutral"]
UNKNOWN = "unknown"


def message_of(source: Source, words: set[str]) -> str | None:
    """Return a quotation, the message or the topic of the text; else the whole text."""
    stated = (
        _SAYING.search(source.text)
        or _REMINDER.search(source.text)
        or (ABOUT.search(source.text) if words & {"body", "content", "message"} else None)
    )
    return source.next_of(source.quoted) or (stated.group(1).rstrip(".") if stated else source.text.strip()) or None


# Words in the name of a property, and a function that returns its text. The first matching row applies.
TEXT_FIELDS: tuple[tuple[frozenset[str], Finder], ...] = (
    (
        word_set("reason justification explanation rationale feedback why thought reasoning"),
        lambda source, words: _REASON,
    ),
    (word_set("answer response result output conclusion"), lambda source, words: source.answer or None),
    (word_set("followup follow"), lambda source, words: f"What else is known about {topic_of(source.text)}?"),
    (word_set("language"), lambda source, words: language_of(source.text)),
    (word_set("sentiment mood tone"), lambda source, words: sentiment_word(source.text, _SENTIMENTS)),
    (
        word_set("setup punchline joke poem story"),
        lambda source, words: creative_field(words, source.text),
    ),
    (
        word_set("summary description overview abstract notes conditions"),
        lambda source, words: source.answer if "conditions" in words else summary_of(source.text).strip("'") or None,
    ),
    (
        word_set("title"),
        lambda source, words: source.next_of([*source.quoted, *source.others]) or topic_of(source.text),
    ),
    (
        word_set("query question q search subject topic title keyword term plot"),
        lambda source, words: source.next_of(source.quoted) or topic_of(source.text),
    ),
    (
        word_set("text input prompt message request task content body instruction sentence"),
        message_of,
    ),
)  # fmt: skip


def text_value(source: Source, schema: Json, name: str) -> str | None:
    """Return the text of a property; None if the source has no value.

    Args:
        source: The values of the text.
        schema: The schema of the property.
        name: The name of the property.
    """
    words = set(split_name(name))
    verdict = verdict_of(source.prompt) if _YES_NO.search(str(schema.get("description", ""))) else None
    if verdict is not None:
        return "yes" if verdict else "no"
    stated = source.stated_value(name)
    if stated is not None:
        return _full_phrase(source, stated)
    if (measured := source.measured(name)) is not None:
        return measured
    candidates = source.values_of_kind(name)
    if candidates is not None and (found := source.next_of(candidates)):
        return found
    for named, find in TEXT_FIELDS:
        if words & named and (value := find(source, words)):
            return value
    if candidates is not None:
        return None
    return source.next_of(source.quoted) or source.next_of(source.names)


def fallback_text(source: Source, schema: Json, name: str) -> str:
    """Return the text of a required property without a value in the source."""
    if schema.get("default"):
        return str(schema["default"])
    if source.values_of_kind(name) is not None and "name" not in split_name(name):
        return UNKNOWN
    return topic_of(source.text) if source.text.strip() else str(schema.get("description") or name or "text")


def _full_phrase(source: Source, stated: str) -> str:
    """Return the whole name or quotation that begins with a value."""
    for phrase in [*source.quoted, *source.names]:
        if phrase.startswith(stated):
            source.next_of([phrase])
            return phrase
    return stated
