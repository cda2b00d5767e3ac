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
    r"\s*(?:\d+[.)]\s*|[-*]\s+)?(?:you are|you're|you will|you must|please |respond|reply |think step|cite "
    r"|based on the"
    r"|use (?:the following|the given|the tool|only|this|these|three)|using the (?:following|tool|context)|given the "
    r"|answer (?:the|from|in|only|using|with|all|any|questions?|based|briefly|like|as)|answer[.:]"
    r"|if you (?:don't|do not|can't|cannot)|(?:do not|don't) (?:try|make|use|answer|mention)|just say|say so|say that"
    r"|always (?:answer|use|be|cite)|never (?:directly|make|mention|answer)|avoid statements|some rules"
    r"|keep (?:the answer|it |your)|be (?:brief|concise|helpful|polite)|context information"
    r"|return (?:nothing|only|the result as|your|json|a json))",
    re.IGNORECASE,
)
_WRAPPED = 40


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
    found = (_LABEL.sub("", part).strip() for part in _SENTENCE.split(_unwrapped(text)))
    return [part for part in found if any(letter.isalnum() for letter in part) and not _INSTRUCTION.match(part)]


def _unwrapped(text: str) -> str:
    """The text with wrapped lines joined: a long line without an end, and one that goes on in lower case."""
    lines: list[str] = []
    for line in text.splitlines():
        goes_on = line.lstrip()[:1].islower() and lines and len(lines[-1].strip()) >= _WRAPPED
        if goes_on and lines[-1].rstrip()[-1] not in ".!?:;":
            lines[-1] = f"{lines[-1].rstrip()} {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines)


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
