"""Choose the tools to call and their arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workers_ai_emulator.fake_model.reading.arithmetic import Ref, Step, plain, steps_of
from workers_ai_emulator.fake_model.reading.knowledge import topic_stems, with_related
from workers_ai_emulator.fake_model.reading.texts import answers_question
from workers_ai_emulator.fake_model.schemas.instance import Instance
from workers_ai_emulator.fake_model.schemas.values import Source, split_name
from workers_ai_emulator.rules.tokens import content_stems, stem, word_set, words_of
from workers_ai_emulator.shapes.answer import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator.fake_model.reading.conversation import Reading
    from workers_ai_emulator.fake_model.request import ChatRequest, Tool

# Words in the name of a tool that say nothing about its purpose.
_VERBS = word_set(
    "get fetch find do run call tool function my make a the to agent transfer use lookup look list show "
    "give for of user information info create set read write check manage handle perform execute process"
)
_COMMON = word_set("get fetch find show give tell look search use call run do tool function transfer_to the a an for")
_SIGNS = {
    "add": ("add", "sum", "plu"),
    "subtract": ("sub", "min", "dif"),
    "multiply": ("mul", "tim", "pro"),
    "divide": ("div", "quo"),
    "power": ("pow", "exp"),
}
_CALCULATORS = word_set("calculator calculate calc math evaluate compute expression")
_LOOKS_UP = word_set(
    "search retriev lookup quer knowledge document doc wiki wikipedia browse web faq rag context semantic"
)
_LOOKS_UP_SAID = re.compile(
    r"(?i)\b(?:search(?:es)?|look(?:s|ing)? up|retrieve[sd]?|query|answer(?:s|ing)? (?:any )?questions?"
    r"|provides? information"
    r"|(?:get|find|return|fetch)s? (?:\w+ )?information|useful for (?:when you need|answering|questions|summar)"
    r"|knowledge base)\b"
)
_QUERY_WORDS = word_set("query question q search input text topic term keyword request prompt key name entity")
_REQUEST = re.compile(
    r"(?i)(?:^|,\s*|\b(?:please|you|and|then)\s+)(?:search|find|look up|tell me|explain|describe|research|compare"
    r"|list|show me|give me|summari[sz]e)\b"
    r"|^(?:what|who|where|when|which|why|how|is|are|does|do|did|can|was|were|will)\b.*"
)
_SMALL_TALK = re.compile(
    r"(?i)\b(?:my name|who am i|how are you|about me|about myself|do you remember|did i|have i|you do|are you"
    r"|you help)\b"
)
_THEN = re.compile(r"(?i)\b(?:then|after that|afterwards|and finally|once you)\b")
_SEVERAL = re.compile(r"(?:\s*,\s*(?:and\s+|or\s+)?|\s+(?:and|or|versus|vs\.?|with|compared to|than)\s+(?:in\s+)?)")
_BOUNDARY = re.compile(r"[.?!;,]\s+|\b(?:and|then|also)\b")
_TAG = re.compile(r"</?\w+>")
_AGENT = re.compile(r"[\"']?(\w+)[\"']?\s*:\s*[\"']?([^\"'\n,}]+)")


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned tool call.

    Attributes:
        tool: The tool.
        place: Position of the call in the request.
        source: Source of its arguments.
        needs: Indices of the planned calls that compute its operands.
        operands: The operands of an arithmetic call; None for other calls.
    """

    tool: Tool
    place: int
    source: Source
    needs: tuple[int, ...] = ()
    operands: tuple[int | float | Ref, ...] | None = None


def choose(request: ChatRequest, reading: Reading, new_id: Callable[[str, int], str]) -> list[ToolCall]:
    """Return the tool calls of the next reply; empty if the reply is prose.

    ``auto`` plans calls from the request: arithmetic, each tool that the request names, and each tool that shares
    words with it in name or description; else a search tool. Calls with a result are not repeated. ``required`` makes
    the planned calls, then fills a form or calls the closest tool. A named tool is always called.

    Args:
        request: The request.
        reading: The parts of the conversation.
        new_id: Returns an id, from the tool's name and the number of the call in this reply.
    """
    if not request.tools or request.tool_choice == "none":
        return []
    by_name = {tool.name: tool for tool in request.tools}
    results = [text for _, text in reading.results]
    whole = Source(reading.request, "\n".join(results), reading.answer, reading.text)
    form = Source(_TAG.sub("", reading.request), "\n".join([*reading.context, *results]), reading.answer, reading.text)
    if request.tool_choice in by_name:
        tool = by_name[request.tool_choice]
        ready = [Planned(tool, 0, form if _is_form(tool) else whole)]
    else:
        forced = request.tool_choice != "auto"
        actions = [tool for tool in request.tools if not (forced and _is_form(tool))]
        ready = waiting(plan(reading, actions), reading)
        ready = ready or handover(reading, request.tools)
        if not ready and forced:
            tool = _closest(reading, request.tools)
            ready = [Planned(tool, 0, form if _is_form(tool) else whole)]
        if ready and (_THEN.search(reading.request) or not request.parallel):
            ready = ready[:1]
    return [
        ToolCall(new_id(one.tool.name, number), one.tool.name, _arguments(one, results))
        for number, one in enumerate(ready)
    ]


def plan(reading: Reading, tools: list[Tool]) -> list[Planned]:
    """Return the calls that a request needs, in the order of the request. A tool may occur several times."""
    text = reading.request
    planned = _calculations(text, tools)
    calculated = {one.tool.name for one in planned}
    operators = (
        {tool.name for tool in tools if any(_operator(tool, operation) for operation in _SIGNS)} if planned else set()
    )
    others = [tool for tool in tools if tool.name not in calculated | operators and not _hands_over(tool)]
    planned += _requested(text, others)
    planned += _lookups(reading, others, planned)
    ordered = sorted(range(len(planned)), key=lambda number: planned[number].place)
    if any(one.needs for one in planned):
        ordered = list(range(len(planned)))
    return _with_providers([planned[number] for number in ordered], others)


def waiting(planned: list[Planned], reading: Reading) -> list[Planned]:
    """Return the planned calls that have no result yet and have all operands."""
    made, done = len(reading.results), 0
    finished: set[int] = set()
    while len(finished) < len(planned):
        ready = [
            number for number, one in enumerate(planned) if number not in finished and finished.issuperset(one.needs)
        ]
        if not ready or done + len(ready) > made:
            return [planned[number] for number in ready[made - done :]]
        finished.update(ready)
        done += len(ready)
    return []


def handover(reading: Reading, tools: list[Tool]) -> list[Planned]:
    """Return a call that transfers the conversation to the closest agent; empty if no agent matches."""
    for tool in filter(_hands_over, tools):
        agents = dict(_AGENT.findall(tool.description.partition("available agents")[2]))
        request_stems = topic_stems(reading.request)
        scores = {
            agent: len(request_stems & topic_stems(f"{' '.join(split_name(agent))} {description}") - _VERBS)
            for agent, description in agents.items()
            if agent not in reading.visited
        }
        best = max(scores, key=lambda agent: scores[agent], default=None)
        if best is not None and scores[best]:
            return [Planned(tool, 0, Source(f"to_agent: {best}, reason: '{reading.request}'"))]
    return []


def _calculations(text: str, tools: list[Tool]) -> list[Planned]:
    """Plan a call for each arithmetic operation of a tool, or a calculator call for each expression."""
    steps = steps_of(text)
    found = [next((tool for tool in tools if _operator(tool, step.operation)), None) for step in steps]
    if steps and all(found):
        return [_calculation(tool, step) for tool, step in zip(found, steps, strict=True) if tool is not None]
    calculator = next((tool for tool in tools if _CALCULATORS & set(split_name(tool.name)) and _only_text(tool)), None)
    if calculator is None:
        return []
    expressions = dict.fromkeys((step.expression, step.place) for step in steps)
    return [Planned(calculator, place, Source(f"'{expression}'")) for expression, place in expressions]


def _calculation(tool: Tool, step: Step) -> Planned:
    needs = tuple(operand.step for operand in step.operands if isinstance(operand, Ref))
    return Planned(tool, step.place, Source(""), needs, step.operands)


def _operator(tool: Tool, operation: str) -> bool:
    """Return whether a tool computes an arithmetic operation of two numbers."""
    kinds = [schema.get("type") for schema in _properties(tool).values() if isinstance(schema, dict)]
    numeric = sum(kind in {"integer", "number"} for kind in kinds) >= 2 or "array" in kinds
    return numeric and any(word.startswith(_SIGNS[operation]) for word in split_name(tool.name))


def _requested(text: str, tools: list[Tool]) -> list[Planned]:
    """Plan a call of each tool that a request names or mentions. The arguments come from the same clause."""
    named = [
        (found.start(), tool, {tool.name})
        for tool in tools
        if (found := re.search(rf"\b{re.escape(tool.name)}\b", text))
    ]
    mentions = named or [(place, tool, shared) for tool in tools for place, shared in [_mention(text, tool)] if shared]
    requested = [(place, tool) for place, tool, shared in mentions if not any(shared < one for *_, one in mentions)]
    requested.sort(key=lambda pair: pair[0])
    cuts = [max((one.end() for one in _BOUNDARY.finditer(text, 0, place)), default=0) for place, _ in requested]
    planned: list[Planned] = []
    for (place, tool), start, end in zip(requested, [0, *cuts[1:]], [*cuts[1:], len(text)], strict=False):
        part = text[start:end]
        clause = part if len(requested) > 1 and Source(part).names and len(content_stems(part)) > 2 else text
        planned += [Planned(tool, place, Source(clause, text))] * _repeats(clause, tool)
    return planned


def _mention(text: str, tool: Tool) -> tuple[int, set[str]]:
    """Return where a request mentions a tool, and their common words or topics."""
    own = split_name(tool.name)
    names = {stem(word) for word in own if word not in _VERBS} or {stem(word) for word in own if word not in _COMMON}
    request_stems = content_stems(text)
    if own and text.lower().startswith(f"{own[0]} ") and not names & _COMMON and own[0] not in _COMMON:
        return 0, {own[0], *(request_stems & names)}
    shared = with_related(request_stems) & with_related(names)
    if not shared:
        shared = request_stems & (content_stems(_purpose(tool)) - _COMMON)
        if len(shared) < 2 and len(shared) * 2 < len(request_stems):
            return -1, set()
    words = [word for word in words_of(text) if with_related({stem(word)}) & shared]
    return text.lower().find(words[0]) if words else 0, shared


def _lookups(reading: Reading, tools: list[Tool], planned: list[Planned]) -> list[Planned]:
    """Plan a call of the search tool for each question of the request.

    Return no call if the context has the answer or the request is about the user.
    """
    text = reading.request
    taken = [one.place for one in planned]
    parts = [
        part
        for part in reading.sentences
        if _REQUEST.search(part)
        and not _SMALL_TALK.search(part)
        and not any(text.find(part) <= place < text.find(part) + len(part) for place in taken)
    ]
    able = [tool for tool in tools if _looks_up(tool)]
    if not able or not parts or answers_question(reading.question, reading.context):
        return []
    best = max(able, key=lambda tool: len(topic_stems(text) & topic_stems(_purpose(tool))))
    return [Planned(best, text.find(part), Source(part, text)) for part in parts]


def _with_providers(planned: list[Planned], tools: list[Tool]) -> list[Planned]:
    """If the request has no location, insert a call that returns a location before each call that needs it."""
    for number, one in enumerate(planned):
        for name in _required(one.tool):
            if one.source.values_of_kind(name) != [] or not {"location", "city", "place"} & set(split_name(name)):
                continue
            for tool in tools:
                if not _required(tool) and "location" in split_name(tool.name) and tool is not one.tool:
                    before = [Planned(tool, one.place, one.source), *planned[:number]]
                    return [
                        *before,
                        Planned(one.tool, one.place, one.source, tuple(range(len(before)))),
                        *planned[number + 1 :],
                    ]
    return planned


def _arguments(planned: Planned, results: list[str]) -> dict[str, object]:
    """Return the arguments of a call: operands in order, or values of the request."""
    if planned.operands is None:
        source = planned.source
        if planned.needs:
            source = Source(results[planned.needs[0]] if planned.needs[0] < len(results) else "", source.text)
        built = Instance(planned.tool.parameters, source, sparse=not _is_form(planned.tool)).build()
        return built if isinstance(built, dict) else {}
    numbers = [_number(results, one) if isinstance(one, Ref) else one for one in planned.operands]
    properties = _properties(planned.tool)
    lists = [name for name, schema in properties.items() if schema.get("type") == "array"]
    if lists:
        return {lists[0]: numbers}
    numeric = [name for name, schema in properties.items() if schema.get("type") in {"integer", "number"}]
    return dict(zip(numeric, numbers, strict=False))


def _number(results: list[str], ref: Ref) -> int | float:
    found = re.search(r"-?\d+(?:\.\d+)?", results[ref.step]) if ref.step < len(results) else None
    return plain(float(found.group())) if found else 0


def _repeats(question: str, tool: Tool) -> int:
    """Return how often to call a tool with one required text: once per name in ``Oslo and Paris``."""
    required = _required(tool)
    if len(required) != 1 or _properties(tool).get(required[0], {}).get("type") != "string":
        return 1
    if (_QUERY_WORDS - {"name"}) & set(split_name(required[0])):
        return 1
    names = Source(question).names
    places = sorted(question.find(name) for name in names)
    ordered = sorted(names, key=question.find)
    joined = [
        _SEVERAL.fullmatch(question[start + len(name) : following])
        for start, name, following in zip(places, ordered, places[1:], strict=False)
    ]
    conjunctions = any(match and re.search(r"and|or|v|with|to|than", match.group()) for match in joined)
    return len(names) if joined and all(joined) and conjunctions else 1


def _closest(reading: Reading, tools: list[Tool]) -> Tool:
    """Return the tool for a forced call. Forms come first, then tools that were not called yet."""
    request_stems = topic_stems(reading.request)
    called = {name for name, _ in reading.results}

    def fit(tool: Tool) -> tuple[bool, bool, int]:
        words = f"{' '.join(split_name(tool.name))} {_purpose(tool)} {' '.join(_properties(tool))}"
        return tool.name not in called, bool(called) and _is_form(tool), len(request_stems & topic_stems(words))

    return max(tools, key=fit)


def _purpose(tool: Tool) -> str:
    """Return the first paragraph of a tool's description, without the signature in its first line."""
    return re.split(r"\n\s*\n|\n\s*Args:", tool.description.strip())[0][:300]


def _is_form(tool: Tool) -> bool:
    """Return whether a tool is a form for the answer: its name looks like a class."""
    return tool.name[:1].isupper() and "_" not in tool.name


def _hands_over(tool: Tool) -> bool:
    return "to_agent" in _properties(tool)


def _looks_up(tool: Tool) -> bool:
    words = {stem(word) for word in split_name(tool.name)} | set(split_name(tool.name))
    return _only_text(tool) and bool(words & _LOOKS_UP or _LOOKS_UP_SAID.search(_purpose(tool)))


def _only_text(tool: Tool) -> bool:
    """Return whether a tool needs exactly one free text."""
    properties, required = _properties(tool), _required(tool)
    needed = required or list(properties)[:1]
    if len(needed) != 1 or properties.get(needed[0], {}).get("type", "string") != "string":
        return False
    known = Source("").values_of_kind(needed[0])
    return not properties[needed[0]].get("enum") and (known is None or bool(set(split_name(needed[0])) & _QUERY_WORDS))


def _properties(tool: Tool) -> dict[str, dict[str, object]]:
    properties = tool.parameters.get("properties") or {}
    return {name: schema if isinstance(schema, dict) else {} for name, schema in properties.items()}


def _required(tool: Tool) -> list[str]:
    return [name for name in tool.parameters.get("required") or [] if name in _properties(tool)]
