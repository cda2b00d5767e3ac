"""Split a conversation into the request, its question, and the context for the answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workers_ai_emulator.fake_model.reading.texts import SENTENCE, sentences_of

if TYPE_CHECKING:
    from workers_ai_emulator.fake_model.request import Turn

_LABELLED = re.compile(
    r"(?im)^[ \t]*(?:user |search |here is the user )?(?:question|query|input|follow up message)[ \t]*:[ \t]*(\S.*)$"
)
_ANSWER_LABEL = re.compile(r"(?im)^[ \t]*(?:new |refined )?(?:answer|response|helpful answer)[ \t]*:[ \t]*$")
_LABEL = re.compile(
    r"^\s*(?:(?:new )?context|documents?|sources?|passages?|text|original answer|content|response)\s*:\s*",
    re.IGNORECASE,
)
_INSTRUCTION = re.compile(
    r"\s*(?:\d+[.)]\s*|[-*]\s+)?(?:you are|you're|you will|you must|you have|you should|please |respond|reply "
    r"|think step|cite "
    r"|based on the|here (?:is|are)|some rules|sub question:|instruction:|when in doubt|\*\*re|treat |the following"
    r"|use (?:the following|the given|the tool|only|this|these|three|it)|using the (?:following|tool|context"
    r"|above|information)|given the "
    r"|answer (?:the|from|in|only|using|with|all|any|questions?|based|briefly|like|as|\"don't)|answer[.:]"
    r"|if (?:you|the (?:user|context|retrieved|assistant|document))\b|(?:do not|don't) (?:try|make|use|answer"
    r"|mention)|just say|say so|say that"
    r"|always (?:answer|use|be|cite)|never (?:directly|make|mention|answer|reference)|avoid statements"
    r"|keep (?:the answer|it |your)|be (?:brief|concise|helpful|polite)|context information|once you|look up"
    r"|i am an? (?:helpful )?assistant|the assistant is|the following is a friendly"
    r"|return (?:nothing|only|the result as|your|json|a json))",
    re.IGNORECASE,
)
_SECOND_PERSON = (
    (r"\b[Mm]y\b", "your"),
    (r"\b[Ii](?:'m| am)\b", "you are"),
    (r"\b[Ii](?:'ve| have)\b", "you have"),
    (r"\b[Ii]\b", "you"),
    (r"\bme\b", "you"),
)
_LONG = 600


@dataclass(frozen=True, slots=True)
class Reading:
    """The parts of a conversation.

    Attributes:
        text: The last user turn.
        request: The request of the last user turn, without labelled context.
        question: The main question of the request.
        sentences: The sentences of the request.
        context: Sentences that can be part of the answer, in order.
        results: Tool names (empty if unknown) and result texts since the last user turn or transfer.
        visited: Agents that received the conversation since the last user turn.
        answer: Answer in prose, for the answer fields of a form.
    """

    text: str
    request: str
    question: str
    sentences: list[str]
    context: list[str]
    results: list[tuple[str, str]]
    visited: set[str] = field(default_factory=set)
    answer: str = ""


def read(turns: list[Turn]) -> Reading:
    """Find the request and its context in a conversation."""
    last = max((index for index, turn in enumerate(turns) if turn.role == "user"), default=-1)
    text = turns[last].text if last >= 0 else ""
    question, rest = _split(text)
    context = [
        part for index, turn in enumerate(turns) if index != last and turn.role != "tool" for part in _statements(turn)
    ]
    texts = [turn.text for turn in turns[: max(last, 0)] if turn.role == "tool"]
    calls, answered, unmatched = _results(turns[last + 1 :])
    visited = {agent for _, _, agent in calls if agent}
    handovers = [index for index, (_, name, agent) in enumerate(calls) if agent or name.startswith("transfer_to")]
    first = handovers[-1] + 1 if handovers else 0
    results = [(calls[index][1], answered[index]) for index in sorted(answered) if index >= first]
    results += [("", one) for one in unmatched]
    texts += [answered[index] for index in sorted(answered) if index < first and index not in handovers]
    context += [sentence for one in [*texts, rest] for sentence in sentences(one)]
    labelled = bool(_LABELLED.search(text)) or len(text) > _LONG
    request = question if labelled else text.strip()
    return Reading(text, request, question, sentences_of(request), context, results, visited)


def sentences(text: str) -> list[str]:
    """Return the statements of a text, without instructions to the model."""
    found = (_LABEL.sub("", part).strip() for part in sentences_of(text))
    return [part for part in found if any(letter.isalnum() for letter in part) and not _INSTRUCTION.match(part)]


def history_of(turns: list[Turn]) -> str:
    """Return the messages before the last user turn, one per paragraph."""
    last = max((index for index, turn in enumerate(turns) if turn.role == "user"), default=-1)
    return "\n\n".join(turn.text for turn in turns[: max(last, 0)] if turn.role != "system" and turn.text)


def _results(turns: list[Turn]) -> tuple[list[tuple[str, str, str]], dict[int, str], list[str]]:
    """Return the tool calls in some turns, their results by index of the call, and results without a call.

    Some models repeat ids in every reply. A result belongs to the first call with its id that has no result.
    """
    calls: list[tuple[str, str, str]] = []
    answered: dict[int, str] = {}
    unmatched: list[str] = []
    for turn in turns:
        calls += [_call(call) for call in turn.tool_calls]
        if turn.role == "tool":
            same_id = (index for index, call in enumerate(calls) if call[0] == turn.tool_call_id)
            fitting = [index for index in same_id if index not in answered]
            if fitting:
                answered[fitting[0]] = turn.text
            else:
                unmatched.append(turn.text)
    return calls, answered, unmatched


def _statements(turn: Turn) -> list[str]:
    """Return the statements of a turn. Statements of users are changed to the second person."""
    statements = sentences(turn.text)
    if turn.role != "user":
        return statements
    return [_in_second_person(part) for part in statements if not part.endswith("?")]


def _in_second_person(sentence: str) -> str:
    """Change a sentence from the first person to the second."""
    for pattern, word in _SECOND_PERSON:
        sentence = re.sub(pattern, word, sentence)
    return sentence[:1].upper() + sentence[1:]


def _split(text: str) -> tuple[str, str]:
    """Return the question of a user turn, and the rest of the turn."""
    text = _ANSWER_LABEL.sub("", text).strip()
    labelled = list(_LABELLED.finditer(text))
    if labelled:
        found = labelled[-1]
        return found.group(1).strip(), text[: found.start()] + "\n" + text[found.end() :]
    parts = [part.strip() for part in SENTENCE.split(text) if part.strip()]
    questions = [part for part in parts if part.endswith(("?", "\uff1f"))]
    if len(parts) < 2 or not questions:
        return text, ""
    return questions[-1], "\n".join(part for part in parts if part != questions[-1])


def _call(call: dict[str, object]) -> tuple[str, str, str]:
    """Return the id of a call, its tool and the agent that it transfers to, if any."""
    function = call.get("function")
    held = function if isinstance(function, dict) else call
    agent = re.search(r"to_agent['\"]*\s*:\s*['\"](\w+)", str(held.get("arguments", "")))
    return str(call.get("id")), str(held.get("name", "")), agent.group(1) if agent else ""
