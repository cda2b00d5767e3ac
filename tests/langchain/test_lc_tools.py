"""Tools: definitions and choice in the request, tool calls in the reply; whole and streamed, on both routes."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.utils import message_chunk_to_message
from langchain_core.runnables import RunnableBinding
from langchain_core.tools import BaseTool, tool
from pydantic import BaseModel, Field
from pydantic.v1 import BaseModel as BaseModelV1
from tests.support import every_row

import langchain_workers_ai as ours
from langchain_workers_ai._translation.from_wire import delta_translator
from workers_ai.types import ChatDelta, ToolCallDelta
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workers_ai import ChatWorkersAI
    from workers_ai_emulator import Emulator

NATIVE = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
OPENAI = "@cf/zai-org/glm-5.2"
MISTRAL = "@cf/mistralai/mistral-small-3.1-24b-instruct"
NO_TOOLS = "@cf/meta/llama-3.2-1b-instruct"


@tool
def clock(city: str) -> str:
    """Tell the time in a city."""
    return f"14:02 in {city}"


@tool
def search(query: str) -> str:
    """Search the web."""
    return f"found {query}"


def plain(city: str) -> str:
    """Tell the time in a city.

    Args:
        city: Where.
    """
    return city


class AsPydantic(BaseModel):
    """Tell the time in a city."""

    city: str = Field(description="Where.")


class AsPydanticV1(BaseModelV1):
    """Tell the time in a city."""

    city: str


class AsTypedDict(TypedDict):
    """Tell the time in a city."""

    city: Annotated[str, ..., "Where."]


class AsSubclass(BaseTool):
    name: str = "subclass"
    description: str = "Tell the time in a city."

    def _run(self, city: str) -> str:
        return city


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
DEFINITIONS: dict[str, tuple[Any, str]] = {
    "decorated": (clock, "clock"),
    "function": (plain, "plain"),
    "subclass": (AsSubclass(), "subclass"),
    "Pydantic": (AsPydantic, "AsPydantic"),
    "Pydantic v1": (AsPydanticV1, "AsPydanticV1"),
    "TypedDict": (AsTypedDict, "AsTypedDict"),
    "OpenAI dict": (
        {"type": "function", "function": {"name": "d", "description": "Tell the time.", "parameters": SCHEMA}},
        "d",
    ),
    "function dict": ({"name": "d", "description": "Tell the time.", "parameters": SCHEMA}, "d"),
    "JSON schema": ({"title": "d", "description": "Tell the time.", **SCHEMA}, "d"),
    "Anthropic dict": ({"name": "d", "description": "Tell the time.", "input_schema": SCHEMA}, "d"),
}


@pytest.mark.parametrize("form", DEFINITIONS)
def test_every_definition(
    form: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Callable[..., Any]
) -> None:
    definition, name = DEFINITIONS[form]
    before = copy.deepcopy(definition) if isinstance(definition, dict) else None
    bound = chat(model=NATIVE, api=route).bind_tools([definition], tool_choice=name)
    assert isinstance(bound, RunnableBinding)
    answer = ask(bound, "Time in Oslo?")
    (sent,) = emulator.log.last.json["tools"]
    assert sent["type"] == "function"
    function = sent["function"]
    assert function["name"] == name
    assert function["description"].startswith("Tell the time")
    assert function["parameters"]["type"] == "object"
    assert function["parameters"]["required"] == ["city"]
    assert function["parameters"]["properties"]["city"]["type"] == "string"
    assert "strict" not in function
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [(name, {"city": "Oslo"})]
    if before is not None:
        assert definition == before


@pytest.mark.parametrize(
    "bare",
    [
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "function": {"name": "now", "description": None, "parameters": None}},
        {"type": "function", "function": {"name": "now", "description": False, "parameters": False}},
    ],
    ids=["absent", "null", "false"],
)
def test_missing_parts_of_a_tool_are_omitted_or_completed(
    bare: dict[str, Any], chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    """https://github.com/cloudflare/ai/pull/454; the older schema demands a description and parameters."""
    call(chat(model=OPENAI).bind_tools([bare]), "invoke", "hi")
    assert emulator.log.last.json["tools"] == [{"type": "function", "function": {"name": "now"}}]
    completed = {"name": "now", "description": "now", "parameters": {"type": "object", "properties": {}}}
    for older in (NATIVE, "@cf/openai/gpt-oss-120b", "@cf/qwen/qwen3-30b-a3b-fp8"):
        call(chat(model=older).bind_tools([bare]), "invoke", "hi")
        assert emulator.log.last.json["tools"] == [{"type": "function", "function": completed}]


class Tree(BaseModel):
    """A tree."""

    value: int
    children: list[Tree] = []


@tool
def plant(tree: Tree) -> str:
    """Plant a tree."""
    return str(tree)


@pytest.mark.parametrize("definition", [Tree, plant])
def test_arguments_that_refer_to_themselves(
    definition: Any, chat: Callable[..., ChatWorkersAI], model: Any, call: Any
) -> None:
    """LangChain's conversion returns ``"items": {}`` for them, which accepts anything."""
    nested = {"value": 1, "children": [{"value": 2, "children": []}]}
    name, arguments = ("Tree", nested) if definition is Tree else ("plant", {"tree": nested})
    model.says("", tool_calls=[wire(name, json.dumps(arguments))])
    answer = call(chat(model=NATIVE, api=model.route).bind_tools([definition]), "invoke", "hi")
    assert answer.tool_calls[0]["args"] == arguments
    sent = model.bodies[-1]["tools"][0]["function"]
    assert "#/$defs/Tree" in json.dumps(sent["parameters"])
    assert '"items": {}' not in json.dumps(sent)
    assert sent["parameters"]["type"] == "object"


def test_tools_of_one_call(chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Callable[..., Any]) -> None:
    answer = ask(chat(), "Time in Oslo?", tools=[clock, AsTypedDict], tool_choice="clock")
    assert [tool["function"]["name"] for tool in emulator.log.last.json["tools"]] == ["clock", "AsTypedDict"]
    assert answer.tool_calls[0]["args"] == {"city": "Oslo"}


@pytest.mark.parametrize("strict", [True, False])
def test_strict_is_sent_when_set(
    strict: bool, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    call(chat().bind_tools([clock], strict=strict), "invoke", "hi")
    assert emulator.log.last.json["tools"][0]["function"]["strict"] is strict


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


CHOICES: list[tuple[Any, Any, Any]] = [
    # choice, form with two tools, form with one tool
    ("auto", "auto", "auto"),
    ("none", "none", "none"),
    ("any", "required", named("clock")),
    ("required", "required", named("clock")),
    (True, "required", named("clock")),
    ("clock", named("clock"), named("clock")),
    (named("clock"), named("clock"), named("clock")),
    ({"type": "function", "name": "clock"}, named("clock"), named("clock")),
    ({"type": "auto"}, "auto", "auto"),
    ({"type": "any"}, "required", named("clock")),
    (False, None, None),
]


@pytest.mark.parametrize(("given", "of_two", "of_one"), CHOICES, ids=[str(row[0]) for row in CHOICES])
@every_row("place", ["bind_tools", "bind", "call", "object"])
def test_every_choice(
    given: Any,
    of_two: Any,
    of_one: Any,
    place: str,
    chat: Callable[..., ChatWorkersAI],
    emulator: Emulator,
    route: str,
    call: Any,
) -> None:
    """The service rejects ``any`` (https://github.com/cloudflare/ai/pull/454)."""
    for tools, wanted in (([clock, search], of_two), ([clock], of_one)):
        one: Any = chat(model=OPENAI, api=route, **({"tool_choice": given} if place == "object" else {}))
        one = one.bind_tools(tools, **({"tool_choice": given} if place == "bind_tools" else {}))
        if place == "bind":
            one = one.bind(tool_choice=given)
        call(one, "invoke", "hi", **({"tool_choice": given} if place == "call" else {}))
        assert emulator.log.last.json.get("tool_choice") == wanted


def test_an_unset_tool_choice_is_not_sent(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Callable[..., Any]
) -> None:
    """https://github.com/cloudflare/ai/issues/85, https://github.com/langchain-ai/langchain/issues/25357"""
    ask(chat(api=route).bind_tools([clock]), "hi")
    assert not {"tool_choice", "parallel_tool_calls", "strict"} & emulator.log.last.json.keys()


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("place", ["bind_tools", "call", "object"])
def test_parallel_tool_calls_is_sent_only_if_the_user_sets_it(
    value: bool, place: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, call: Any
) -> None:
    given = {"parallel_tool_calls": value}
    bound = chat(api=route, **(given if place == "object" else {})).bind_tools(
        [clock], **(given if place == "bind_tools" else {})
    )
    call(bound, "invoke", "hi", **(given if place == "call" else {}))
    assert emulator.log.last.json["parallel_tool_calls"] is value


@pytest.mark.parametrize("model", [MISTRAL, "@cf/zai-org/glm-4.7-flash"])
def test_a_forced_tool_is_forced_on_every_model(
    model: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    """https://github.com/cloudflare/ai/issues/404; glm-4.7-flash accepts only the named form."""
    answer = call(chat(model=model).bind_tools([clock], tool_choice="any"), "invoke", "hi")
    assert emulator.log.last.json["tool_choice"] == {"type": "function", "function": {"name": "clock"}}
    assert [one["name"] for one in answer.tool_calls] == ["clock"]


@pytest.mark.parametrize("model", [MISTRAL, "@cf/zai-org/glm-4.7-flash"])
def test_an_agent_with_a_tool_strategy_ends(model: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator) -> None:
    agent = create_agent(chat(model=model), [], response_format=ToolStrategy(AsPydantic))
    assert agent.invoke({"messages": [HumanMessage("hi")]}, {"recursion_limit": 4})["structured_response"]
    assert len(emulator.log.entries) == 1


def test_an_unsupported_tool_choice_is_never_dropped_silently(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    bound = chat(model="@cf/zai-org/glm-4.7-flash").bind_tools([clock, search], tool_choice="any")
    with pytest.warns(UserWarning, match=r"glm-4\.7-flash does not accept tool_choice 'required'.*Bind a single tool"):
        call(bound, "invoke", "hi")
    assert "tool_choice" not in emulator.log.last.json


def test_no_tools_at_all(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Callable[..., Any]
) -> None:
    """Agents bind an empty list if they only need a structured answer."""
    ask(chat(api=route).bind_tools([], parallel_tool_calls=False), "hi")
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & emulator.log.last.json.keys()


@pytest.mark.parametrize("choice", ["weather", {"type": "function", "function": {"name": "weather"}}])
def test_a_choice_of_an_unknown_tool(choice: Any, chat: Callable[..., ChatWorkersAI]) -> None:
    with pytest.raises(ours.ConfigurationError, match=r"'weather' is not one of the tools: use one of clock, search"):
        chat().bind_tools([clock, search], tool_choice=choice)


def test_a_tool_that_is_not_a_function(chat: Callable[..., ChatWorkersAI]) -> None:
    with pytest.raises(ours.ConfigurationError, match="web_search"):
        chat().bind_tools([{"type": "web_search"}])


def test_the_error_of_a_model_without_tools_is_raised(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Callable[..., Any]
) -> None:
    """https://github.com/FlowiseAI/Flowise/pull/4846"""
    emulator.faults.add(Fault.error(400, 5006, "model does not take tools"))
    with pytest.raises(ours.BadRequestError, match="does not take tools") as caught:
        ask(chat(model=NO_TOOLS).bind_tools([clock]), "hi")
    assert NO_TOOLS in str(caught.value)


@pytest.mark.parametrize(
    ("code", "text", "cls", "says"),
    [
        (8006, "The forced tool call did not fit", ours.StructuredOutputError, "max_tokens"),
        (3030, '"auto" tool choice requires a parser', ours.BadRequestError, "tool choice requires a parser"),
        (8001, "Invalid input", ours.BadRequestError, "Invalid input"),
    ],
)
def test_rejections_of_tools_are_not_repeated(
    code: int,
    text: str,
    cls: type[Exception],
    says: str,
    chat: Callable[..., ChatWorkersAI],
    emulator: Emulator,
    ask: Callable[..., Any],
) -> None:
    """https://github.com/cloudflare/ai/pull/575, https://github.com/cloudflare/ai/issues/85"""
    emulator.faults.add(Fault.error(400, code, text, times=None))
    with pytest.raises(cls, match=says):
        ask(chat().bind_tools([clock], tool_choice="clock"), "hi", max_tokens=8)
    assert len(emulator.log.entries) == 1


# --- replies ---


def wire(name: Any, arguments: Any, call_id: Any = "c1", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


REPLIES: dict[str, tuple[list[dict[str, Any]], list[tuple[str, Any]]]] = {
    "arguments as text": ([wire("clock", '{"city": "Oslo"}')], [("clock", {"city": "Oslo"})]),
    "arguments as an object": ([wire("clock", {"city": "Oslo"})], [("clock", {"city": "Oslo"})]),
    "arguments empty": ([wire("now", "")], [("now", {})]),
    "arguments null": ([wire("now", None)], [("now", {})]),
    "arguments the text null": ([wire("now", "null")], [("now", {})]),
    "flat": ([{"name": "clock", "arguments": {"city": "Oslo"}}], [("clock", {"city": "Oslo"})]),
    "no id": ([wire("clock", "{}", None)], [("clock", {})]),
    "two with one id": ([wire("a", "{}", "x1"), wire("b", "{}", "x1")], [("a", {}), ("b", {})]),
    "a control token": (
        [wire("refund", '{"orderRef": "<|\\"|", "cents": 950}')],
        [("refund", {"orderRef": '<|"|', "cents": 950})],
    ),
    "control characters": ([wire("note", '{"text": "a\nb"}')], [("note", {"text": "a\nb"})]),
    "unicode": ([wire("clock", '{"city": "Tromsø 北京"}')], [("clock", {"city": "Tromsø 北京"})]),
}


@pytest.mark.parametrize("shape", REPLIES)
def test_calls_in_replies(shape: str, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]) -> None:
    calls, wanted = REPLIES[shape]
    model.says(None, tool_calls=calls)
    answer = ask(chat(model=NATIVE, api=model.route).bind_tools([clock]), "hi")
    assert [(one["name"], one["args"]) for one in answer.tool_calls] == wanted
    assert answer.invalid_tool_calls == []
    ids = [one["id"] for one in answer.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert answer.text == ""
    assert answer.content == ""
    assert answer.response_metadata["finish_reason"] == "tool_calls"


BROKEN = {
    '{"city": Os': "not valid JSON",
    '{"city": "Os': "not valid JSON",
    '{"city": "Oslo",': "not valid JSON",
    '["Oslo"]': "a JSON list, not an object",
    '"Oslo"': "a JSON str, not an object",
    "7": "a JSON int, not an object",
    "{,}": "not valid JSON",
    '{"city": NaN}': "NaN is not JSON",
    '{"city": -Infinity}': "Infinity is not JSON",
    '{"city": 1e999}': "1e999 is too large",
    '{"a":' * 100_000: "nested too deep",
    '{"a":' + "9" * 6_000 + "}": "not valid JSON",
}


@pytest.mark.parametrize("arguments", BROKEN, ids=lambda text: text[:20])
def test_broken_arguments_are_kept_in_invalid_calls_and_sent_back_as_json(
    arguments: str, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    """In streams, too: LangChain would repair them, and an agent would run the tool with truncated arguments."""
    model.says("Let me see.", tool_calls=[wire("clock", arguments), wire("search", "{}", "c2")]).says("Noon.")
    one = chat(model=NATIVE, api=model.route).bind_tools([clock, search])
    answer = ask(one, "hi")
    (invalid,) = answer.invalid_tool_calls
    assert (invalid["name"], invalid["id"], invalid["args"]) == ("clock", "c1", arguments)
    assert BROKEN[arguments] in invalid["error"]
    assert [call["name"] for call in answer.tool_calls] == ["search"]
    assert answer.text == "Let me see."
    assert answer.response_metadata["finish_reason"] == "tool_calls"
    results = [ToolMessage("again", tool_call_id="c1"), ToolMessage("found", tool_call_id="c2")]
    assert ask(one, [HumanMessage("hi"), answer, *results]).text == "Noon."
    calls = {call["id"]: call["function"]["arguments"] for call in model.bodies[-1]["messages"][1]["tool_calls"]}
    assert calls["c2"] == "{}"
    assert list(json.loads(calls["c1"])) == ["invalid_arguments"]


NESTED = '{"a": ["x\\n\\"", {"b": [1, "]"]}], "c": "}"}'


@every_row("length", range(1, len(NESTED)))
def test_a_call_truncated_anywhere_is_invalid(length: int) -> None:
    cut = NESTED[:length]
    first = delta_translator("m")(ChatDelta(tool_calls=[ToolCallDelta(0, "c1", "f", cut)])).message
    last = delta_translator("m")(
        ChatDelta(tool_calls=[ToolCallDelta(0, None, None, "", cut, "why")], last=True, finish_reason="length")
    ).message
    total = first + last
    assert isinstance(total, AIMessageChunk)
    assert total.tool_calls == []
    assert [(call["name"], call["args"], call["error"]) for call in total.invalid_tool_calls] == [("f", cut, "why")]
    (without_addition,) = AIMessageChunk(content="", tool_call_chunks=total.tool_call_chunks).invalid_tool_calls
    assert without_addition["name"] == "f"
    whole = message_chunk_to_message(total)
    assert (type(whole), whole.invalid_tool_calls) == (AIMessage, total.invalid_tool_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize("arguments", ['{"a":' * 3_000, '{"a":' + "9" * 6_000])
def test_an_unparsable_call_is_invalid_in_a_stream_too(arguments: str) -> None:
    call = ToolCallDelta(0, "c1", "f", arguments, arguments, "why")
    piece = delta_translator("m")(ChatDelta(tool_calls=[call])).message
    assert isinstance(piece, AIMessageChunk)
    assert piece.tool_calls == []
    assert [invalid["name"] for invalid in piece.invalid_tool_calls] == ["f"]


class Inner(TypedDict):
    city: str


class Bare(TypedDict):
    inner: Inner


def test_a_typed_dict_without_docstring_is_sent_without_description(chat: Callable[..., ChatWorkersAI]) -> None:
    inner = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    parameters = {"type": "object", "properties": {"inner": inner}, "required": ["inner"]}
    tools = chat().bind_tools([Bare]).kwargs["tools"]  # type: ignore[attr-defined]
    assert tools == [{"type": "function", "function": {"name": "Bare", "parameters": parameters}}]
    requested = chat().with_structured_output(Bare, method="json_schema").first.kwargs["response_format"]  # type: ignore[attr-defined]
    assert requested["json_schema"]["schema"] == {"title": "Bare", **parameters}


def test_empty_tools_are_omitted_and_invalid_lists_rejected(chat: Callable[..., ChatWorkersAI]) -> None:
    assert "tools" not in chat().bind_tools(None).kwargs  # type: ignore[arg-type, attr-defined]
    for odd in (5, "clock", {"type": "function", "function": {"name": "clock"}}):
        with pytest.raises(ours.ConfigurationError, match="tools must be a list of tools, not a"):
            chat().bind_tools(odd)  # type: ignore[arg-type]
    with pytest.raises(ours.ConfigurationError, match=r"a int cannot become a tool \(Unsupported function"):
        chat().bind_tools([5])  # type: ignore[list-item]


@pytest.mark.parametrize("route", ["chat_completions"], indirect=True)
def test_an_answer_truncated_inside_a_call_raises(
    chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    model.says("", "length", tool_calls=[wire("clock", '{"city": "Os')])
    answer = ask(chat().bind_tools([clock]), "hi")
    assert (answer.tool_calls, answer.response_metadata["finish_reason"]) == ([], "length")


def test_text_reasoning_and_calls_in_one_reply(
    chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    """CHANGELOG of langchain-cloudflare 0.3.0"""
    model.says("Let me see.", reasoning_content="need the clock", tool_calls=[wire("clock", "{}")])
    answer = ask(chat(model=OPENAI, api=model.route).bind_tools([clock]), "hi")
    assert (answer.text, answer.additional_kwargs["reasoning_content"]) == ("Let me see.", "need the clock")
    assert [block["type"] for block in answer.content_blocks] == ["reasoning", "text", "tool_call"]


LEAKED = '{"name": "clock", "arguments": {"city": "Oslo"}}'


def test_a_forced_call_that_leaked_as_text_is_parsed(
    chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    """https://github.com/cloudflare/ai/issues/574"""
    model.says(LEAKED)
    answer = ask(chat(api=model.route).bind_tools([clock], tool_choice="clock"), "hi")
    assert [(one["name"], one["args"]) for one in answer.tool_calls] == [("clock", {"city": "Oslo"})]
    assert (answer.text, answer.response_metadata["finish_reason"]) == ("", "tool_calls")


def test_text_that_looks_like_a_call_stays_text_where_nothing_was_forced(
    chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    model.says(LEAKED, times=None)
    for one in (chat(api=model.route), chat(api=model.route).bind_tools([clock])):
        answer = ask(one, "hi")
        assert (answer.text, answer.tool_calls) == (LEAKED, [])


def test_ids_that_repeat_over_turns_are_made_unique_and_restored(
    chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    """Kimi counts its calls from zero in every reply (https://github.com/cloudflare/ai/issues/526)."""
    own = "functions.clock:0"
    for _ in range(3):
        model.says(None, tool_calls=[wire("clock", "{}", own)])
    one = chat(model="@cf/moonshotai/kimi-k2.6", api=model.route).bind_tools([clock])
    history: list[Any] = [HumanMessage("hi")]
    for _ in range(3):
        answer = ask(one, history)
        history += [answer, ToolMessage("14:02", tool_call_id=answer.tool_calls[0]["id"])]
    ids = [message.tool_call_id for message in history if isinstance(message, ToolMessage)]
    assert ids[0] == own
    assert len(set(ids)) == 3
    sent = model.bodies[-1]["messages"]
    assert [one["tool_call_id"] for one in sent if one["role"] == "tool"] == [own, own]
    assert [one["tool_calls"][0]["id"] for one in sent if "tool_calls" in one] == [own, own]


def test_a_forced_choice_holds_only_for_the_call_it_was_bound_to(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    """https://github.com/oracle/langchain-oracle/issues/49"""
    one = chat(model=NATIVE)
    first = call(one.bind_tools([clock], tool_choice="clock"), "invoke", "Time in Oslo?")
    history = [HumanMessage("Time in Oslo?"), first, clock.invoke(first.tool_calls[0])]
    last = call(one.bind_tools([clock]), "invoke", history)
    assert "tool_choice" not in emulator.log.last.json
    assert (last.tool_calls, "14:02 in Oslo" in last.text) == ([], True)
