"""Structured output: every kind of schema, method and option; and every answer that does not fit."""

from __future__ import annotations

import datetime
import enum
import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypedDict, Union

import pytest
from langchain_core.exceptions import ModelRefusalError, OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk
from pydantic import BaseModel, ConfigDict, Field
from pydantic.v1 import BaseModel as BaseModelV1
from tests.support import every_row

import langchain_workers_ai as ours
from langchain_workers_ai._translation.parser import AnswerParser
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workers_ai import ChatWorkersAI
    from workers_ai_emulator import Emulator

MODEL = "@cf/zai-org/glm-5.2"
NATIVE = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
MISTRAL = "@cf/mistralai/mistral-small-3.1-24b-instruct"
METHODS: list[Any] = ["function_calling", "json_schema", "json_mode"]


class Person(BaseModel):
    """A person."""

    name: str = Field(description="full name")
    age: int


class PersonV1(BaseModelV1):
    """A person."""

    name: str
    age: int


class PersonDict(TypedDict):
    """A person."""

    name: Annotated[str, ..., "full name"]
    age: Annotated[int, ..., "years"]


PROPERTIES = {"name": {"type": "string"}, "age": {"type": "integer"}}
JSON_SCHEMA = {"title": "Person", "type": "object", "properties": PROPERTIES, "required": ["name", "age"]}
SCHEMAS: dict[str, tuple[Any, Any]] = {
    "Pydantic": (Person, Person(name="Ann", age=41)),
    "Pydantic v1": (PersonV1, PersonV1(name="Ann", age=41)),
    "TypedDict": (PersonDict, {"name": "Ann", "age": 41}),
    "JSON schema": (JSON_SCHEMA, {"name": "Ann", "age": 41}),
    "JSON schema without a title": (
        {key: value for key, value in JSON_SCHEMA.items() if key != "title"},
        {"name": "Ann", "age": 41},
    ),
    "function dict": (
        {"name": "Person", "description": "A person.", "parameters": JSON_SCHEMA},
        {"name": "Ann", "age": 41},
    ),
    "tool dict": (
        {"type": "function", "function": {"name": "Person", "parameters": JSON_SCHEMA}},
        {"name": "Ann", "age": 41},
    ),
    "response_format": (
        {"type": "json_schema", "json_schema": {"name": "Person", "schema": JSON_SCHEMA, "strict": True}},
        {"name": "Ann", "age": 41},
    ),
    "Anthropic dict": ({"name": "Person", "input_schema": JSON_SCHEMA}, {"name": "Ann", "age": 41}),
}
ANSWER = json.dumps({"name": "Ann", "age": 41})


def says(model: Any, method: str, text: str, name: str = "Person", **more: Any) -> None:
    """Script this JSON as the answer, in the form of the method."""
    if method != "function_calling":
        model.says(text, times=None, **more)
        return
    function = {"name": name, "arguments": text}
    model.says("", times=None, tool_calls=[{"id": "c1", "type": "function", "function": function}], **more)


@pytest.mark.parametrize("kind", SCHEMAS)
@every_row(("method", "include_raw"), [(method, raw) for method in METHODS for raw in (False, True)])
def test_every_schema_by_every_method(
    kind: str,
    method: Any,
    include_raw: bool,
    chat: Callable[..., ChatWorkersAI],
    emulator: Emulator,
    model: Any,
    call: Any,
) -> None:
    emulator.reset()
    schema, wanted = SCHEMAS[kind]
    says(model, method, ANSWER, "response" if "without" in kind else getattr(schema, "__name__", "Person"))
    structured = chat(model=MODEL, api=model.route).with_structured_output(
        schema, method=method, include_raw=include_raw
    )
    result = call(structured, "invoke", "Ann is 41.")
    if include_raw:
        assert (result["parsed"], result["parsing_error"]) == (wanted, None)
        assert isinstance(result["raw"], AIMessage)
    else:
        assert result == wanted
        assert type(result) is type(wanted)


@pytest.mark.parametrize("kind", SCHEMAS)
@every_row("method", METHODS)
def test_streams_end_in_the_same_value(
    kind: str, method: Any, chat: Callable[..., ChatWorkersAI], emulator: Emulator, model: Any, call: Any
) -> None:
    emulator.reset()
    schema, wanted = SCHEMAS[kind]
    says(model, method, ANSWER, "response" if "without" in kind else getattr(schema, "__name__", "Person"))
    structured = chat(model=MODEL, api=model.route).with_structured_output(schema, method=method)
    pieces = call(structured, "stream", "Ann is 41.")
    assert pieces[-1] == wanted
    assert len(model.bodies) == 1
    # The service rejects a schema in a stream (5023), so one complete answer is yielded.
    assert model.bodies[-1].get("stream", False) is (method == "function_calling")


def test_a_streamed_dict_grows(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    def piece(**call: Any) -> bytes:
        event = {"choices": [{"delta": {"tool_calls": [{"index": 0, **call}]}, "finish_reason": None}]}
        return b"data: " + json.dumps(event).encode() + b"\n\n"

    pieces = [
        piece(id="c1", function={"name": "Person", "arguments": ""}),
        piece(function={"arguments": '{"name": "An'}),
        piece(function={"arguments": 'n", "age"'}),
        piece(function={"arguments": ": 41}"}),
        b"data: [DONE]\n\n",
    ]
    emulator.faults.add(Fault.sse(pieces, times=None))
    grown = call(chat(model=MODEL).with_structured_output(JSON_SCHEMA), "stream", "hi")
    assert grown == [{"name": "An"}, {"name": "Ann"}, {"name": "Ann", "age": 41}]
    assert call(chat(model=MODEL).with_structured_output(Person), "stream", "hi") == [Person(name="Ann", age=41)]


@pytest.mark.timeout(60)  # repetitions are parsed in linear time
@pytest.mark.parametrize("text", ['```json\n{"code": ' + "\n" * 20_000 + "x", '{"a":' * 5_000, "[" * 100_000])
def test_a_streamed_answer_of_repetitions_is_rejected(
    text: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    emulator.faults.add(Fault.reply({"response": text}))
    one = chat(model=MODEL).with_structured_output(JSON_SCHEMA, method="json_mode")
    with pytest.raises(OutputParserException, match="the answer is not JSON"):
        call(one, "stream", "hi")


@pytest.mark.parametrize(
    ("pieces", "grown"),
    [
        (['```json\n{"name": "An', 'n", "age": 41}\n```'], [{"name": "An"}, {"name": "Ann", "age": 41}]),
        (['<think>{}</think>{"name', '": "Ann", "age": 41}'], [{}, {"name": "Ann", "age": 41}]),
    ],
)
def test_a_partial_dict_is_parsed_in_a_fence_and_after_reasoning(pieces: list[str], grown: list[Any]) -> None:
    parser = AnswerParser(answer_schema=JSON_SCHEMA)
    assert list(parser.transform(AIMessageChunk(piece) for piece in pieces)) == grown


# --- requests ---


def test_function_calling_forces_the_tool(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Callable[..., Any]
) -> None:
    ask(chat(model=MODEL, api=route).with_structured_output(Person), "Ann is 41.")
    body = emulator.log.last.json
    (tool,) = body["tools"]
    assert tool["function"]["name"] == "Person"
    assert tool["function"]["description"] == "A person."
    assert tool["function"]["parameters"]["properties"]["name"]["description"] == "full name"
    assert body["tool_choice"] == {"type": "function", "function": {"name": "Person"}}
    assert not {"response_format", "parallel_tool_calls"} & body.keys()
    assert "strict" not in tool["function"]


@pytest.mark.parametrize("strict", [None, True, False])
def test_a_schema_is_bare_on_run_and_named_on_chat_completions(
    strict: bool | None, chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Callable[..., Any]
) -> None:
    one = chat(model=MODEL, api=route).with_structured_output(JSON_SCHEMA, method="json_schema", strict=strict)
    ask(one, "Ann is 41.")
    body = emulator.log.last.json
    stated = {} if strict is None else {"strict": strict}
    named = {"name": "Person", "schema": JSON_SCHEMA, **stated}
    wanted = JSON_SCHEMA if route == "run" else named
    assert body["response_format"] == {"type": "json_schema", "json_schema": wanted}
    assert not {"tools", "tool_choice", "stream"} & body.keys()


def test_json_mode(chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]) -> None:
    model.says(ANSWER, times=None)
    ask(chat(model=MODEL, api=model.route).with_structured_output(JSON_SCHEMA, method="json_mode"), "Give a JSON.")
    assert model.bodies[-1]["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize("strict", [True, False])
def test_strict_tools(strict: bool, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    call(chat(model=MODEL).with_structured_output(Person, strict=strict), "invoke", "Ann is 41.")
    assert emulator.log.last.json["tools"][0]["function"]["strict"] is strict


@pytest.mark.parametrize("method", [None, "json_schema"])
def test_mistral_is_guided_by_its_own_field(
    method: Any, chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Callable[..., Any]
) -> None:
    """Mistral rejects ``tool_choice`` and accepts ``guided_json`` (CHANGELOG of langchain-cloudflare 0.1.10)."""
    result = ask(chat(model=MISTRAL).with_structured_output(Person, method=method), "Ann is 41 years old.")
    assert isinstance(result, Person)
    entry = emulator.log.last
    assert entry.route == "run"
    assert entry.json["guided_json"]["required"] == ["name", "age"]
    assert not {"tools", "tool_choice", "response_format"} & entry.json.keys()


def test_the_default_method_avoids_tools_where_there_are_none(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    call(chat(model="@cf/zai-org/glm-4.7-flash").with_structured_output(JSON_SCHEMA), "invoke", "Ann is 41.")
    assert "tools" not in emulator.log.last.json
    assert emulator.log.last.json["response_format"]["type"] == "json_schema"


def test_tools_beside_a_schema(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    def clock(city: str) -> str:
        """Tell the time in a city."""
        return city

    structured = chat(model=MODEL).with_structured_output(Person, method="json_schema", tools=[clock])
    assert isinstance(call(structured, "invoke", "Ann is 41."), Person)
    assert emulator.log.last.json["tools"][0]["function"]["name"] == "clock"


@pytest.mark.parametrize("method", METHODS)
def test_parameters_of_the_call(method: Any, chat: Callable[..., ChatWorkersAI], model: Any, call: Any) -> None:
    says(model, method, ANSWER)
    one = chat(model=MODEL, api=model.route)
    structured = one.with_structured_output(JSON_SCHEMA, method=method, max_tokens=900, temperature=0)
    call(structured, "invoke", "Ann is 41.")
    assert (model.bodies[-1]["max_tokens"], model.bodies[-1]["temperature"]) == (900, 0)


def test_an_unset_format_is_absent(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    """https://github.com/cloudflare/ai/pull/393"""
    call(chat(response_format=None), "invoke", "hi", response_format={}, guided_json=None)
    assert not {"response_format", "guided_json"} & emulator.log.last.json.keys()


# --- nested schemas (https://github.com/langchain-ai/langchain/issues/25460) ---


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class City(BaseModel):
    name: str


class Trip(BaseModel):
    """A trip."""

    city: City
    stops: list[City]
    mood: Literal["good", "bad"]
    colour: Colour
    note: Optional[str] = None  # noqa: UP045 - an Optional is one of the forms
    when: Union[int, str]  # noqa: UP007 - a Union is one of the forms


class Tree(BaseModel):
    """A tree."""

    value: int
    children: list[Tree] = []


TRIP = {"city": {"name": "Oslo"}, "stops": [{"name": "Lom"}], "mood": "good", "colour": "red", "when": "today"}


@pytest.mark.parametrize("method", METHODS)
def test_nested_schemas(method: Any, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]) -> None:
    says(model, method, json.dumps(TRIP), "Trip")
    trip = ask(chat(model=MODEL, api=model.route).with_structured_output(Trip, method=method), "hi")
    assert trip == Trip(
        city=City(name="Oslo"), stops=[City(name="Lom")], mood="good", colour=Colour.RED, note=None, when="today"
    )
    body = json.dumps(model.bodies[-1])
    assert "$ref" not in body  # guided decoding does not support references
    assert "$defs" not in body
    if method != "json_mode":
        assert '"enum": ["red", "blue"]' in body


class Strict(BaseModel):
    """A class that accepts texts for dates only from JSON."""

    model_config = ConfigDict(strict=True)

    day: datetime.date
    colour: Colour
    place: tuple[float, float]


@pytest.mark.parametrize("method", METHODS)
def test_a_strict_class(method: Any, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]) -> None:
    says(model, method, '{"day": "2026-11-29", "colour": "red", "place": [59.9, 10.7]}', "Strict")
    found = ask(chat(model=MODEL, api=model.route).with_structured_output(Strict, method=method), "hi")
    assert found == Strict(day=datetime.date(2026, 11, 29), colour=Colour.RED, place=(59.9, 10.7))


class TreeV1(BaseModelV1):
    """A tree."""

    value: int
    children: list[TreeV1] = []


TreeV1.update_forward_refs()


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
@pytest.mark.parametrize("schema", [Tree, TreeV1])
def test_a_recursive_schema_keeps_its_references(
    schema: Any, method: Any, chat: Callable[..., ChatWorkersAI], model: Any, call: Any
) -> None:
    """LangChain's conversion returns ``"items": {}`` for it, which accepts anything."""
    says(model, method, '{"value": 1, "children": [{"value": 2, "children": []}]}', schema.__name__)
    structured = chat(model=MODEL, api=model.route).with_structured_output(schema, method=method)
    assert call(structured, "invoke", "hi") == schema(value=1, children=[schema(value=2)])
    assert f"/{schema.__name__}" in json.dumps(model.bodies[-1])
    assert '"items": {}' not in json.dumps(model.bodies[-1])


def test_names_are_valid_on_the_wire(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    schema = {**JSON_SCHEMA, "title": "Person[int] of Ann"}
    result = call(chat(model=MODEL).with_structured_output(schema), "invoke", "Ann is 41.")
    assert emulator.log.last.json["tools"][0]["function"]["name"] == "Person_int__of_Ann"
    assert result.keys() == {"name", "age"}


# --- answers in unusual forms that fit ---

ODD = {
    "an object, parsed already": {"name": "Ann", "age": 41},
    "in a fence": f"```json\n{ANSWER}\n```",
    "in a bare fence": f"```\n{ANSWER}\n```",
    "behind a thought": f"I think</think>\n{ANSWER}",
    "behind a thought, in a fence": f"<think>\nso\n</think>\n```json\n{ANSWER}\n```",
    "with white space": f"\n  {ANSWER}\n",
}


@pytest.mark.parametrize("form", ODD)
@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_answers_in_odd_forms(
    form: str, method: Any, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    """https://github.com/cloudflare/workers-sdk/issues/12398"""
    model.says(ODD[form], times=None)
    structured = chat(model=MODEL, api=model.route).with_structured_output(Person, method=method)
    assert ask(structured, "hi") == Person(name="Ann", age=41)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
        ({"type": "integer"}, 0),
        ({"type": "number"}, 0.5),
        ({"type": "boolean"}, False),
        ({"type": "string"}, "a"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 7),
    ],
)
@pytest.mark.parametrize("parsed", [True, False])
def test_values_that_are_not_objects(
    schema: Any, value: Any, parsed: bool, chat: Callable[..., ChatWorkersAI], model: Any, call: Any
) -> None:
    """JSON mode returns a value, parsed or as text (https://github.com/cloudflare/workers-sdk/issues/12398)."""
    model.says(value if parsed and value != "a" else json.dumps(value), times=None)
    structured = chat(model=MODEL, api=model.route).with_structured_output(schema, method="json_schema")
    result = call(structured, "invoke", "hi")
    assert (result, type(result)) == (value, type(value))
    assert call(structured, "stream", "hi") == [value]


@pytest.mark.parametrize("method", ["function_calling"])
@pytest.mark.parametrize(
    "text",
    [ANSWER, f'{{"name": "Person", "arguments": {ANSWER}}}', f'{{"name": "Person", "parameters": {ANSWER}}}'],
    ids=["arguments alone", "arguments", "parameters"],
)
def test_a_forced_call_that_leaked_as_text_is_parsed(
    text: str, method: Any, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    """https://github.com/cloudflare/ai/issues/574; the schema also has a property ``name``."""
    model.says(text, times=None)
    structured = chat(model=MODEL, api=model.route).with_structured_output(Person, method=method)
    assert ask(structured, "hi") == Person(name="Ann", age=41)


# --- answers that do not fit ---

MISFITS: dict[str, tuple[str, str]] = {
    "prose": ("Sure! Here is Ann.", "not JSON|text instead of calling"),
    "empty": ("", "empty|text instead of calling|lacks name|does not fit"),
    "a field is missing": ('{"name": "Ann"}', "age"),
    "a list": ("[1, 2]", "list|Person|not an object"),
    "null": ("null", "null|Person|NoneType|not an object|lacks name"),
    "cut off": ('{"name": "Ann", "age": 4', "not JSON|JSON"),
}


@pytest.mark.parametrize("route", ["chat_completions"], indirect=True)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", MISFITS)
@every_row("kind", ["Pydantic", "Pydantic v1", "TypedDict", "JSON schema"])
def test_an_answer_that_does_not_fit_raises_with_its_text(
    form: str,
    method: Any,
    kind: str,
    chat: Callable[..., ChatWorkersAI],
    emulator: Emulator,
    model: Any,
    ask: Callable[..., Any],
) -> None:
    """Never None, never a KeyError (https://github.com/cloudflare/cloudflare-docs/issues/27786)."""
    emulator.reset()
    text, wanted = MISFITS[form]
    schema = SCHEMAS[kind][0]
    if form == "prose":
        model.says(text, times=None)
    else:
        says(model, method, text, getattr(schema, "__name__", "Person"))
    structured = chat(model=MODEL, api=model.route).with_structured_output(schema, method=method)
    with pytest.raises(OutputParserException, match=wanted) as caught:
        ask(structured, "hi")
    if text and form != "null":
        shown = str(caught.value.llm_output)
        assert text in shown or text.replace(" ", "") in shown.replace(" ", "")
    assert ours.is_retryable(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_with_the_raw_message_nothing_is_raised(
    method: Any, chat: Callable[..., ChatWorkersAI], model: Any, call: Any
) -> None:
    says(model, method, '{"name": "Ann"}')
    structured = chat(model=MODEL, api=model.route).with_structured_output(Person, method=method, include_raw=True)
    result = call(structured, "invoke", "hi")
    assert result["parsed"] is None
    assert isinstance(result["parsing_error"], OutputParserException)
    assert isinstance(result["raw"], AIMessage)


def test_another_tool_than_the_forced_one(
    chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    says(model, "function_calling", "{}", "other")
    with pytest.raises(OutputParserException, match="called other instead of Person"):
        ask(chat(model=MODEL, api=model.route).with_structured_output(Person), "hi")


def test_endless_text_is_shortened(chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]) -> None:
    """https://github.com/cloudflare/langchain-cloudflare/commit/9437e4c"""
    model.says('{"name": "A' + "-001" * 6000, times=None)
    structured = chat(model=MODEL, api=model.route).with_structured_output(Person, method="json_schema")
    with pytest.raises(OutputParserException, match="24011 characters") as caught:
        ask(structured, "hi")
    assert len(str(caught.value)) < 2500


@pytest.mark.parametrize("route", ["chat_completions"], indirect=True)
@pytest.mark.parametrize("method", METHODS)
def test_a_refusal_raises(method: Any, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]) -> None:
    model.says(None, refusal="I cannot help with that.")
    structured = chat(model=MODEL).with_structured_output(Person, method=method)
    with pytest.raises(ModelRefusalError, match="cannot help") as caught:
        ask(structured, "hi")
    assert caught.value.is_retryable is False


@pytest.mark.parametrize(
    ("code", "text"),
    [(5025, "no such mode"), (5024, "JSON Mode couldn't be met"), (8006, "too few tokens"), (5023, "no stream")],
)
def test_the_service_has_no_answer(
    code: int, text: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Callable[..., Any]
) -> None:
    emulator.faults.add(Fault.error(400, code, text, times=None))
    with pytest.raises(ours.StructuredOutputError) as caught:
        ask(chat(model=MODEL).with_structured_output(Person, method="json_schema"), "hi")
    assert caught.value.code == code
    assert len(emulator.log.entries) == 1


# --- bad input ---


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        (Person, {"method": "magic"}, "'magic' is invalid: use one of function_calling, json_schema, json_mode"),
        (Person, {"method": "json_mode", "strict": True}, "strict= is invalid"),
        ({"a": 1}, {}, "neither a JSON schema nor an OpenAI function"),
        ("Person", {}, "must be a Pydantic class, a TypedDict or a dict, not str"),
        (None, {"method": "json_mode"}, "a TypedDict or a dict, not NoneType"),
        (int, {}, "a TypedDict or a dict, not int"),
        (Colour, {}, "a TypedDict or a dict, not Colour"),
        (list[Person], {}, "a TypedDict or a dict, not"),
        (Union[Person, Trip], {}, "a TypedDict or a dict, not"),  # noqa: UP007
        (Person, {"tools": []}, "tools is set by method='function_calling'"),
        (Person, {"method": "json_schema", "response_format": {}}, "response_format is set by method='json_schema'"),
    ],
)
def test_invalid_input_raises_at_once(
    schema: Any, options: dict[str, Any], says: str, chat: Callable[..., ChatWorkersAI]
) -> None:
    with pytest.raises(ours.ConfigurationError, match=says):
        chat().with_structured_output(schema, **options)


def test_an_unknown_keyword_suggests_the_nearest(chat: Callable[..., ChatWorkersAI], emulator: Emulator) -> None:
    with pytest.raises(ours.ConfigurationError, match="max_tokens"):
        chat().with_structured_output(Person, max_token=3).invoke("hi")
    assert emulator.log.entries == []


AROUND = ["Sure! Here it is:\n```json\n{}\n```\nLet me know.", "```json\n{}\n```\nDone.", "{}\n\nHope it helps"]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("method", METHODS)
def test_an_answer_among_words(
    method: Any, around: str, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any], call: Any
) -> None:
    """https://github.com/langchain4j/langchain4j/issues/1446; a forced tool that was answered in text, too."""
    model.says(around.replace("{}", '{"name": "Ann", "age": 41}'), times=None)
    llm = chat(model=MODEL, api=model.route)
    assert ask(llm.with_structured_output(Person, method=method), "hi") == Person(name="Ann", age=41)
    schema = Person.model_json_schema()
    pieces = call(llm.with_structured_output(schema, method=method), "stream", "hi")
    assert pieces[-1] == {"name": "Ann", "age": 41}


@pytest.mark.parametrize(
    ("finish", "says"),
    [("length", "increase max_tokens"), ("content_filter", "a content filter stopped"), ("odd", "finish reason 'odd'")],
)
@pytest.mark.parametrize("route", ["chat_completions"])
@pytest.mark.parametrize("method", METHODS)
def test_an_empty_answer_includes_the_reason(
    method: Any, finish: str, says: str, route: str, chat: Callable[..., ChatWorkersAI], model: Any, call: Any
) -> None:
    model.says("", times=None, finish=finish)
    structured = chat(model=MODEL, api=route).with_structured_output(Person, method=method)
    for way in ("invoke", "stream"):
        with pytest.raises(OutputParserException, match=says):
            call.collect(structured, "hi") if way == "stream" else call(structured, way, "hi")


@pytest.mark.parametrize("schema", [Person, Person.model_json_schema()], ids=["class", "dict"])
@pytest.mark.parametrize("method", METHODS)
@every_row("text", ['{"name": "Ann", "ag', '{"name": "Ann", "age": NaN}', ""])
def test_with_the_raw_message_a_stream_raises_nothing(
    method: Any, schema: Any, text: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, model: Any, call: Any
) -> None:
    emulator.reset()
    says(model, method, text, finish="length")
    structured = chat(model=MODEL, api=model.route).with_structured_output(schema, method=method, include_raw=True)
    total = call.collect(structured, "hi")
    assert total["parsed"] is None
    assert isinstance(total["parsing_error"], OutputParserException)
    assert isinstance(total["raw"], AIMessage)
