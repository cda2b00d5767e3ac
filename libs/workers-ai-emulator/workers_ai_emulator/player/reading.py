"""Reading a conversation: the question, and the context it is to be answered from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers_ai_emulator.player.request import Turn

_SENTENCE = re.compile(r"(?<=[.!?。\uff01\uff1f])\s+|\n+")
_LABELLED = re.compile(r"(?im)^[ \t]*(?:user )?(?:question|query|input)[ \t]*:[ \t]*(\S.*)$")
_ANSWER_LABEL = re.compile(r"(?im)^[ \t]*(?:answer|response|helpful answer)[ \t]*:[ \t]*$")
_LABEL = re.compile(r"^\s*(?:context|documents?|sources?|passages?|text)\s*:\s*", re.IGNORECASE)
_INSTRUCTION = re.compile(
    r"\s*(?:you are|you're|you have|you will|you must|use |using |answer|if you|given |please |respond|reply|do not"
    r"|don't|never |always |just say|keep |return |context information|say |be |think |cite |based on)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """A conversation as the player understands it.

    Attributes:
        question: What is asked now.
        context: Sentences an answer may be drawn from, in order.
        results: Texts of the tool results since the last user turn, with the tool's name where it is known.
    """

    question: str
    context: list[str]
    results: list[tuple[str, str]]


def read(turns: list[Turn]) -> Reading:
    """Find the question and its context in a conversation."""
    last = max((index for index, turn in enumerate(turns) if turn.role == "user"), default=-1)
    asked = turns[last].text if last >= 0 else ""
    question, rest = _split(asked)
    texts = [turn.text for index, turn in enumerate(turns) if index != last and turn.role != "tool"]
    texts += [turn.text for turn in turns[: max(last, 0)] if turn.role == "tool"]
    names = {str(call.get("id")): _name(call) for turn in turns for call in turn.tool_calls}
    results = [(names.get(turn.tool_call_id, ""), turn.text) for turn in turns[last + 1 :] if turn.role == "tool"]
    context = [sentence for text in [*texts, rest] for sentence in sentences(text)]
    return Reading(question, context, results)


def sentences(text: str) -> list[str]:
    """The sentences of a text that state something; instructions to the model are left out."""
    found = (_LABEL.sub("", part).strip() for part in _SENTENCE.split(text))
    return [part for part in found if any(letter.isalnum() for letter in part) and not _INSTRUCTION.match(part)]


def _split(text: str) -> tuple[str, str]:
    """The question inside a user turn, and what stands around it."""
    text = _ANSWER_LABEL.sub("", text).strip()
    labelled = list(_LABELLED.finditer(text))
    if labelled:
        found = labelled[-1]
        return found.group(1).strip(), text[: found.start()] + "\n" + text[found.end() :]
    parts = [part.strip() for part in _SENTENCE.split(text) if part.strip()]
    asked = [part for part in parts if part.endswith(("?", "\uff1f"))]
    if len(parts) < 2 or not asked:
        return text, ""
    return asked[-1], "\n".join(part for part in parts if part != asked[-1])


def _name(call: dict[str, object]) -> str:
    function = call.get("function")
    return str(function.get("name", "")) if isinstance(function, dict) else str(call.get("name", ""))
