"""Read a conversation: the request, the question in it, and the context it is to be answered from."""

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
_HISTORY = re.compile(r"(?im)^\s*(?:human|user|ai|assistant)\s*:\s*")
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
    """A conversation as the fake model understands it.

    Attributes:
        text: The last user turn.
        request: What the last user turn asks for, without labelled context.
        question: The one question in it.
        asked: The sentences of the request.
        context: Sentences an answer may be drawn from, in order.
        results: Texts of the tool results since the last user turn or handover, with the tool's name if known.
        visited: Agents that the conversation was handed to since the last user turn.
        answer: Prose answer to the request, for fields of a form that ask for one.
    """

    text: str
    request: str
    question: str
    asked: list[str]
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
        part for index, turn in enumerate(turns) if index != last and turn.role != "tool" for part in _stated(turn)
    ]
    texts = [turn.text for turn in turns[: max(last, 0)] if turn.role == "tool"]
    calls, told, unmatched = _results(turns[last + 1 :])
    visited = {agent for _, _, agent in calls if agent}
    handed = [index for index, (_, name, agent) in enumerate(calls) if agent or name.startswith("transfer_to")]
    first = handed[-1] + 1 if handed else 0
    results = [(calls[index][1], told[index]) for index in sorted(told) if index >= first]
    results += [("", one) for one in unmatched]
    texts += [told[index] for index in sorted(told) if index < first and index not in handed]
    context += [sentence for one in [*texts, rest] for sentence in sentences(one)]
    labelled = bool(_LABELLED.search(text)) or len(text) > _LONG
    request = question if labelled else text.strip()
    return Reading(text, request, question, sentences_of(request), context, results, visited)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text that state something; instructions to the model are left out."""
    found = (_LABEL.sub("", part).strip() for part in sentences_of(text))
    return [part for part in found if any(letter.isalnum() for letter in part) and not _INSTRUCTION.match(part)]


def history_of(turns: list[Turn]) -> str:
    """Return what was said before the last user turn, one message a paragraph."""
    last = max((index for index, turn in enumerate(turns) if turn.role == "user"), default=-1)
    return "\n\n".join(turn.text for turn in turns[: max(last, 0)] if turn.role != "system" and turn.text)


def _results(turns: list[Turn]) -> tuple[list[tuple[str, str, str]], dict[int, str], list[str]]:
    """Return the calls in some turns, the results by the number of the call, and results of no known call.

    Some models use one id again in every reply, so a result belongs to the first call with its id that has none.
    """
    calls: list[tuple[str, str, str]] = []
    told: dict[int, str] = {}
    unmatched: list[str] = []
    for turn in turns:
        calls += [_call(call) for call in turn.tool_calls]
        if turn.role == "tool":
            fitting = [index for index, call in enumerate(calls) if call[0] == turn.tool_call_id and index not in told]
            if fitting:
                told[fitting[0]] = turn.text
            else:
                unmatched.append(turn.text)
    return calls, told, unmatched


def _stated(turn: Turn) -> list[str]:
    """Return what a turn states; the users' own words are said back to them."""
    stated = sentences(turn.text)
    if turn.role != "user":
        return stated
    return [_said_back(part) for part in stated if not part.endswith("?")]


def _said_back(sentence: str) -> str:
    """Turn a sentence from the first person into the second."""
    for pattern, word in _SECOND_PERSON:
        sentence = re.sub(pattern, word, sentence)
    return sentence[:1].upper() + sentence[1:]


def _split(text: str) -> tuple[str, str]:
    """Return the question inside a user turn, and what stands around it."""
    text = _ANSWER_LABEL.sub("", text).strip()
    labelled = list(_LABELLED.finditer(text))
    if labelled:
        found = labelled[-1]
        return found.group(1).strip(), text[: found.start()] + "\n" + text[found.end() :]
    parts = [part.strip() for part in SENTENCE.split(text) if part.strip()]
    asked = [part for part in parts if part.endswith(("?", "\uff1f"))]
    if len(parts) < 2 or not asked:
        return text, ""
    return asked[-1], "\n".join(part for part in parts if part != asked[-1])


def _call(call: dict[str, object]) -> tuple[str, str, str]:
    """Return the id of a call, its tool and the agent it hands over to, if any."""
    function = call.get("function")
    held = function if isinstance(function, dict) else call
    agent = re.search(r"to_agent['\"]*\s*:\s*['\"](\w+)", str(held.get("arguments", "")))
    return str(call.get("id")), str(held.get("name", "")), agent.group(1) if agent else ""
