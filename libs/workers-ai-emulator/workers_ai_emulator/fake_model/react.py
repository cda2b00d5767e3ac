"""Answer as an agent that reasons in text: ``Thought``, ``Action``, ``Action Input``, ``Observation``."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING

from workers_ai_emulator.fake_model import tools
from workers_ai_emulator.fake_model.prose import answer_text
from workers_ai_emulator.fake_model.reading.texts import sentences_of
from workers_ai_emulator.fake_model.request import Tool

if TYPE_CHECKING:
    from workers_ai_emulator.fake_model.reading.conversation import Reading
    from workers_ai_emulator.fake_model.request import ChatRequest
    from workers_ai_emulator.wire import Json

_DESCRIBED = re.compile(r"> Tool Name: (\S+)\nTool Description: (.*?)\nTool Args: (\{.*?\})\n", re.DOTALL)
_SIGNED = re.compile(r"(?m)^(\w+)(?:\(([^)\n]*)\)(?:\s*->\s*[\w.'\[\], |]+)?)?\s*(?:-|:)\s+(.+)$")
_OBSERVATION = re.compile(r"(?s)Observation:\s*(.*?)(?=\n\s*Thought:|\Z)")
_ACTION = re.compile(r"(?m)^Action:[ \t]*(\w+)")
_ASKED = re.compile(r"(?m)^Question:[ \t]*(.+)$")
_TYPES = {"int": "integer", "float": "number", "bool": "boolean"}


def react_text(request: ChatRequest, reading: Reading) -> str | None:
    """Return the next step of the agent in the form of the prompt; None if the prompt has no tools."""
    prompt = "\n".join(turn.text for turn in request.turns if turn.role == "system") or request.turns[0].text
    json_form = "Tool Args:" in prompt
    known = _described_tools(prompt) if json_form else _signed_tools(prompt)
    if not known:
        return None
    turns = [turn for turn in request.turns if turn.role != "system"]
    questions = [turn.text for turn in turns if turn.role == "user" and not turn.text.startswith("Observation:")]
    question = (_ASKED.findall(questions[-1]) or [questions[-1]])[-1] if questions else reading.question
    last = max((index for index, turn in enumerate(turns) if turn.text == questions[-1]), default=0) if questions else 0
    trail = "\n".join(turn.text for turn in (turns[last + 1 :] if json_form else turns[last:]))
    trail = trail if json_form else trail[trail.rfind("Begin!") + 1 :]
    names = [one for one in _ACTION.findall(trail) if one in {tool.name for tool in known}]
    observed = [one.strip() for one in _OBSERVATION.findall(trail) if one.strip()]
    results = list(zip(names, observed, strict=False))
    own = dataclasses.replace(
        reading,
        request=question,
        question=question,
        sentences=sentences_of(question),
        context=[],
        results=results,
        visited=set(),
    )
    one_by_one = dataclasses.replace(request, tools=known, tool_choice="auto", parallel=False)
    calls = tools.choose(one_by_one, own, lambda name, number: name)
    if calls:
        return _action(calls[0].name, calls[0].arguments, json_form=json_form)
    answer = answer_text(own)
    if json_form:
        return f"Thought: I can answer without using any more tools.\nAnswer: {answer}"
    return f"I now know the final answer.\nFinal Answer: {answer}"


def _action(name: str, arguments: Json, *, json_form: bool) -> str:
    if json_form:
        head = "Thought: I need to use a tool to help me answer the question."
        return f"{head}\nAction: {name}\nAction Input: {json.dumps(arguments, ensure_ascii=False)}"
    value = next(iter(arguments.values())) if len(arguments) == 1 else json.dumps(arguments, ensure_ascii=False)
    return f"I need to use {name}.\nAction: {name}\nAction Input: {value}"


def _described_tools(prompt: str) -> list[Tool]:
    found = []
    for name, description, schema in _DESCRIBED.findall(prompt):
        try:
            found.append(Tool(name, description, json.loads(schema)))
        except ValueError:
            continue
    return found


def _signed_tools(prompt: str) -> list[Tool]:
    """Return tools that are listed as ``name(argument: type) -> type - description``, or without a signature."""
    head = prompt.partition("following tools")[2].partition("Use the following format")[0]
    found = []
    for name, signature, description in _SIGNED.findall(head):
        pairs = [part.split(":") for part in signature.split(",") if ":" in part] if signature else [["query", "str"]]
        properties = {
            pair[0].strip(): {"type": _TYPES.get(pair[1].split("=")[0].strip(" '"), "string")} for pair in pairs
        }
        found.append(
            Tool(name, description, {"type": "object", "properties": properties, "required": list(properties)})
        )
    return found
