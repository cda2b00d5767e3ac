"""Which tools to call, and with what."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from workers_ai_emulator.player.schemas import Instance
from workers_ai_emulator.player.source import Source, split_name
from workers_ai_emulator.rules.words import content_stems, stem
from workers_ai_emulator.shapes.answer import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator.player.reading import Reading
    from workers_ai_emulator.player.request import ChatRequest, Tool

_VERBS = {
    "get",
    "fetch",
    "find",
    "do",
    "run",
    "call",
    "tool",
    "function",
    "my",
    "make",
    "a",
    "the",
    "to",
    "agent",
}
_VERBS |= {"transfer", "use", "lookup", "look", "list", "show", "give"}
_ARITHMETIC = {
    "multiply": r"\d\s*[*\u00d7x]\s*\d|\btimes\b|\bproduct\b|\bmultipl",
    "add": r"\d\s*\+\s*-?\d|\bplus\b|\bsum\b|\badd(?:ed|ing)?\b",
    "subtract": r"\d\s+-\s+\d|\bminus\b|\bdifference\b|\bsubtract",
    "divide": r"\d\s*/\s*\d|\bdivided?\b|\bquotient\b",
}
_THEN = re.compile(r"(?i)\b(?:then|after that|afterwards|and finally)\b")
_SEVERAL = re.compile(r"(?:\s*,\s*(?:and\s+|or\s+)?|\s+(?:and|or|versus|vs\.?)\s+(?:in\s+)?)")


def choose(request: ChatRequest, reading: Reading, new_id: Callable[[str, int], str]) -> list[ToolCall]:
    """The calls to make now; none when the turn is to be answered in prose.

    ``auto`` plans calls from the question: each tool it names, or whose name or description it shares words
    with. What has been called since the question is not called again. ``required`` calls the tool that fits
    best, and a named one is always called.

    Args:
        request: The request.
        reading: The conversation as it was understood.
        new_id: Makes an id from a tool's name and the number of the call in this reply.
    """
    if not request.tools or request.tool_choice == "none":
        return []
    by_name = {tool.name: tool for tool in request.tools}
    if request.tool_choice in by_name:
        planned = [by_name[request.tool_choice]]
    elif request.tool_choice == "auto":
        made = sum(len(turn.tool_calls) for turn in request.turns[request.last_user + 1 :])
        planned = plan(reading.question, request.tools)[made:]
        if planned and (_THEN.search(reading.question) or not request.parallel):
            planned = planned[:1]
    else:
        planned = plan(reading.question, request.tools) or [_closest(reading.question, request.tools)]
        planned = planned if request.parallel else planned[:1]
    results = "\n".join(text for _, text in reading.results)
    source = Source(request.turns[request.last_user].text if request.last_user >= 0 else "", results)
    calls = []
    for number, tool in enumerate(planned):
        arguments = Instance(tool.parameters, source, sparse=True).build()
        calls.append(ToolCall(new_id(tool.name, number), tool.name, arguments))
    return calls


def plan(question: str, tools: list[Tool]) -> list[Tool]:
    """The tools a question asks for, in the order in which it does; one may come several times."""
    named = [(question.find(tool.name), tool) for tool in tools if re.search(rf"\b{re.escape(tool.name)}\b", question)]
    found = named or [(place, tool) for tool in tools if (place := _place(question, tool)) >= 0]
    planned: list[Tool] = []
    for _, tool in sorted(found, key=lambda pair: pair[0]):
        planned += [tool] * (_repeats(question, tool) if len(found) == 1 else 1)
    return planned


def _place(question: str, tool: Tool) -> int:
    """Where in the question a tool is asked for; -1 when it is not."""
    names = {stem(word) for word in split_name(tool.name)} - _VERBS
    for name, pattern in _ARITHMETIC.items():
        if any(word.startswith(name[:3]) for word in names) and (found := re.search(pattern, question)):
            return found.start()
    asked = content_stems(question)
    shared = asked & names
    if not shared:
        shared = asked & (content_stems(tool.description) - _VERBS)
        if len(shared) < 2 and len(shared) * 2 < len(asked):
            return -1
    return min((max(0, question.lower().find(word)) for word in shared), default=-1)


def _repeats(question: str, tool: Tool) -> int:
    """How often a tool with one required text is asked for: once per name of a list such as ``Oslo and Paris``."""
    required = tool.parameters.get("required") or []
    properties = tool.parameters.get("properties") or {}
    if len(required) != 1 or properties.get(required[0], {}).get("type") != "string":
        return 1
    names = Source(question).names
    places = sorted(question.find(name) for name in names)
    ordered = sorted(names, key=question.find)
    joined = [
        _SEVERAL.fullmatch(question[start + len(name) : following])
        for start, name, following in zip(places, ordered, places[1:], strict=False)
    ]
    conjunctions = any(match and re.search(r"and|or|v", match.group()) for match in joined)
    return len(names) if joined and all(joined) and conjunctions else 1


def _closest(question: str, tools: list[Tool]) -> Tool:
    asked = content_stems(question)
    return max(
        tools,
        key=lambda tool: len(asked & content_stems(f"{' '.join(split_name(tool.name))} {tool.description}")),
    )
