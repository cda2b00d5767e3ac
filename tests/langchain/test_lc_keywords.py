"""Keywords of LangChain's components and of the OpenAI SDK, schemas, copies and streams (B139, B140, B143)."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, TypedDict

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.exceptions import OutputParserException
from langchain_core.load import dumps, loads
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField
from langchain_core.tools import tool
from langchain_core.tracers import BaseTracer
from pydantic import BaseModel

import langchain_workers_ai as ours
from langchain_workers_ai import ChatWorkersAI

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator import Emulator

    Make = Callable[..., ChatWorkersAI]

GPT_OSS = "@cf/openai/gpt-oss-120b"
NATIVE = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
SECRET = "a-secret-of-one-call"
KIMI = "@cf/moonshotai/kimi-k2.6"  # accepts null for reasoning_effort
PLAIN = {"model": GPT_OSS, "messages": [{"role": "user", "content": "hi"}]}


class Person(BaseModel):
    """A person."""

    name: str
    age: int


# --- one call ---


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "per call"])
def test_settings_of_one_call(bound: bool, chat: Make, emulator: Emulator, ask: Any) -> None:
    settings: dict[str, Any] = {
        "timeout": (5, 60), "max_retries": None, "extra_headers": {"x-tenant": SECRET}, "extra_body": {"foo": 1},
        "max_completion_tokens": 7, "gateway": {"event_id": "e1", "metadata": {"team": "a"}, "collect_log": False},
        "reasoning": {"effort": "low"}, "logit_bias": {"5": 1}, "n": 1,
    }  # fmt: skip
    one = chat(gateway="gw")
    if bound:
        kept = one.bind(**settings)
        assert SECRET not in repr(kept)
        ask(kept, "hi")
    else:
        ask(one, "hi", **settings)
    sent = emulator.log.last
    body = {name: value for name, value in sent.json.items() if not name.startswith("stream")}
    more = {"max_tokens": 7, "reasoning_effort": "low", "foo": 1, "logit_bias": {"5": 1}}
    assert body == {**PLAIN, **more}
    assert sent.headers["x-tenant"] == SECRET
    assert {name: value for name, value in sent.headers.items() if name.startswith("cf-aig")} == {
        "cf-aig-gateway-id": "gw", "cf-aig-event-id": "e1", "cf-aig-metadata": '{"team": "a"}',
        "cf-aig-collect-log": "false",
    }  # fmt: skip


def test_a_secret_of_one_call_is_in_no_trace_and_no_cache_key(chat: Make) -> None:
    class Tracer(BaseTracer):
        def _persist_run(self, run: Any) -> None:
            runs.append(repr(vars(run)))

    class Cache(InMemoryCache):
        def update(self, prompt: str, llm_string: str, return_val: Any) -> None:
            runs.append(llm_string)

    runs: list[str] = []
    one = chat(cache=Cache())
    one.invoke(
        "hi", config={"callbacks": [Tracer()]}, extra_headers={"x": SECRET}, gateway={"id": "g", "token": SECRET}
    )
    assert len(runs) == 2
    assert SECRET not in str(runs)


def test_a_keyword_without_a_meaning_is_ignored_with_one_warning(chat: Make, emulator: Emulator, ask: Any) -> None:
    with pytest.warns(UserWarning, match="ChatWorkersAI ignores service_tier, store, user: ") as caught:
        ask(chat(), "hi", user="u", store=True, service_tier="auto", verbosity=None)
    assert len(caught) == 1
    assert "user" not in emulator.log.last.json
    with pytest.warns(UserWarning, match="ignores user") as caught:
        made = chat(user="u", n=1, max_completion_tokens=9, extra_body={"a": 1}, logit_bias={"5": 1})
    assert len(caught) == 1
    assert (made.max_tokens, made.model_kwargs) == (9, {"logit_bias": {"5": 1}, "a": 1})


def test_more_answers_than_one_are_rejected(chat: Make, emulator: Emulator, ask: Any) -> None:
    for call in (lambda: ask(chat(), "hi", n=2), lambda: chat(n=2)):
        with pytest.raises(ours.ConfigurationError, match="n=2: the service returns one answer"):
            call()
    assert emulator.log.entries == []


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ({"type": "tool", "name": "clock"}, "clock"),
        ({"tool": {"name": "clock"}}, "clock"),
        ({"any": {}}, "clock"),
        ({"type": "any"}, "clock"),
        ({"auto": {}}, None),
        (False, None),
    ],
)
def test_every_form_of_tool_choice(choice: Any, sent: str | None, chat: Make, emulator: Emulator) -> None:
    chat().bind_tools([{"name": "clock", "parameters": {}}], tool_choice=choice).invoke("hi")
    named = {"type": "function", "function": {"name": sent}}
    assert emulator.log.last.json.get("tool_choice") == (named if sent else "auto" if choice else None)


def test_a_tool_choice_of_unknown_form_is_reported(chat: Make) -> None:
    with pytest.raises(ours.ConfigurationError, match="tool_choice"):
        chat().bind_tools([{"name": "clock", "parameters": {}}], tool_choice={"mode": "any"}).invoke("hi")


# --- OpenAI's older functions, which classic chains and agents use ---


deprecated = pytest.mark.filterwarnings("ignore::Warning")


@deprecated
def test_an_extraction_by_functions_is_not_empty(chat: Make, model: Any, call: Any) -> None:
    from langchain_classic.chains.structured_output import create_openai_fn_runnable

    model.says(tool_calls=[{"id": "c", "function": {"name": "Person", "arguments": '{"name": "Ann", "age": 41}'}}])
    chain = create_openai_fn_runnable([Person], chat(api=model.route))
    assert call(chain, "invoke", "Ann is 41.") == Person(name="Ann", age=41)
    assert model.bodies[0]["tool_choice"]["function"]["name"] == "Person"


@deprecated
def test_an_agent_by_functions(chat: Make, model: Any, call: Any) -> None:
    from langchain_classic.agents import AgentExecutor, create_openai_functions_agent

    @tool
    def clock(city: str) -> str:
        """Tell the time."""
        return f"14:02 in {city}"

    model.says(tool_calls=[{"id": "c", "function": {"name": "clock", "arguments": '{"city": "Oslo"}'}}])
    model.says("It is 14:02.")
    prompt = ChatPromptTemplate([("user", "{input}"), ("placeholder", "{agent_scratchpad}")])
    agent = create_openai_functions_agent(chat(api=model.route), [clock], prompt)
    assert call(AgentExecutor(agent=agent, tools=[clock]), "invoke", {"input": "Oslo?"})["output"] == "It is 14:02."
    made, result = model.bodies[-1]["messages"][1:]
    assert made["tool_calls"][0]["id"] == result["tool_call_id"]
    assert result["content"] == "14:02 in Oslo"


# --- structured output ---

SCHEMA = {
    "title": "person", "type": "object", "required": ["name", "age"],
    "properties": {
        "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "home": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "friend": {"$ref": "#/$defs/Friend"},
    },
    "$defs": {"Friend": {"type": "object", "properties": {"age": {"type": "integer"}}, "additionalProperties": False}},
}  # fmt: skip


class Typed(TypedDict):
    """A person."""

    name: str
    age: int


@pytest.mark.parametrize("schema", [SCHEMA, Typed, Person], ids=["dict", "TypedDict", "class"])
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_a_wrong_type_raises_whatever_the_kind_of_schema(
    schema: Any, method: Any, chat: Make, model: Any, call: Any
) -> None:
    def says(text: str) -> None:
        called = [{"id": "c", "function": {"name": name, "arguments": text}}]
        model.says(
            text if method == "json_schema" else "", **({} if method == "json_schema" else {"tool_calls": called})
        )

    name = "person" if schema is SCHEMA else schema.__name__
    structured = chat(api=model.route).with_structured_output(schema, method=method)
    for wrong in ('{"name": 5, "age": 41}', '{"name": "Ann", "age": "old"}', '{"name": "Ann", "age": null}'):
        says(wrong)
        with pytest.raises(OutputParserException, match=r"name|age"):
            call(structured, "invoke", "hi")
    says('{"name": "Ann", "age": "41"}')  # models of the older family write numbers as texts, and pydantic reads them
    found = call(structured, "invoke", "hi")
    assert (found if isinstance(found, dict) else found.model_dump()) == {"name": "Ann", "age": 41}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"age": -1}, "age is -1, but minimum is 0"),
        ({"tags": ["a", "c"]}, r"tags\[1\] is 'c', not one of"),
        ({"home": 5}, "home is a JSON integer, not string or home is a JSON integer, not null"),
        ({"friend": {"age": "x"}}, "friend.age is a JSON string, not integer"),
        ({"friend": {"size": 1}}, "friend.size is not allowed"),
    ],
)
def test_a_dict_schema_is_checked_to_its_leaves(more: Any, says: str, chat: Make, emulator: Emulator) -> None:
    from workers_ai._wire.chat.schema_validation import conform

    with pytest.raises(ValueError, match=says):
        conform({"name": "Ann", "age": 41, **more}, SCHEMA)
    assert conform({"name": "Ann", "age": 41.0, "extra": 1}, SCHEMA) == {"name": "Ann", "age": 41, "extra": 1}


@pytest.mark.parametrize("way", ["per call", "bound", "constructor"])
def test_response_format_accepts_a_class(way: str, chat: Make, emulator: Emulator, call: Any, route: str) -> None:
    if way == "constructor":
        call(chat(response_format=Person, api=route), "invoke", "hi")
    elif way == "bound":
        call(chat(api=route).bind(response_format=Person), "invoke", "hi")
    else:
        call(chat(api=route), "invoke", "hi", response_format=Person)
    sent = emulator.log.last.json["response_format"]["json_schema"]
    schema = sent if route == "run" else sent["schema"]
    assert (schema["title"], schema["description"], set(schema["properties"])) == (
        "Person",
        "A person.",
        {"name", "age"},
    )
    if route != "run":
        assert (sent["name"], sent["description"]) == ("Person", "A person.")


def test_name_and_description_of_an_envelope_reach_the_native_route(chat: Make, emulator: Emulator) -> None:
    envelope = {"name": "person", "description": "One person.", "schema": {"type": "object", "properties": {}}}
    chat(api="run").invoke("hi", response_format={"type": "json_schema", "json_schema": envelope})
    sent = emulator.log.last.json["response_format"]["json_schema"]
    assert sent == {"title": "person", "description": "One person.", "type": "object", "properties": {}}


@pytest.mark.parametrize("name", ["model_kwargs", "extra_body"])
def test_a_response_format_among_extra_fields_does_not_stream(name: str, chat: Make, emulator: Any, call: Any) -> None:
    call.collect(chat(), "hi", **{name: {"response_format": {"type": "json_object"}}})
    assert "stream" not in emulator.log.last.json


# --- copies ---


def remade(one: ChatWorkersAI) -> dict[str, Any]:
    local = {name: getattr(one, name) for name in ("http_client", "http_async_client", "api_token")}
    plain = one.model_dump()
    configurable: Any = one.configurable_fields(seed=ConfigurableField(id="seed"))
    either: Any = one.configurable_alternatives(ConfigurableField(id="which"), other=one)
    loaded = loads(
        dumps(one), allowed_objects=[ChatWorkersAI], valid_namespaces=["langchain_workers_ai"],
        secrets_map={"CLOUDFLARE_API_TOKEN": "t" * 20},
    )  # fmt: skip
    return {
        "configurable_fields": configurable.prepare({"configurable": {"seed": None}})[0],
        "configurable_alternatives": either.prepare({"configurable": {"which": "other"}})[0],
        "model_dump": ChatWorkersAI(**{**plain, **local}),
        "model_validate": ChatWorkersAI.model_validate({**plain, **local}),
        "model_copy": one.model_copy(deep=True),
        "copy": copy.copy(one),
        "deepcopy": copy.deepcopy(one),
        "dumps and loads": loaded.model_copy(update=local),
    }


@deprecated
@pytest.mark.parametrize(
    ("given", "sent"),
    [({}, {}), ({"reasoning_effort": None}, {"reasoning_effort": None}), ({"temperature": 0.0}, {"temperature": 0.0})],
    ids=str,
)
def test_copies_send_only_set_parameters(given: Any, sent: Any, chat: Make, emulator: Emulator) -> None:
    made = remade(chat(model=KIMI, **given))
    for way, one in made.items():
        one.invoke("hi")
        assert emulator.log.last.json == {**PLAIN, "model": KIMI, **sent}, way
        assert not one._streaming_disabled(), way


def test_the_profile_follows_the_model(chat: Make) -> None:
    one = chat(model=NATIVE)
    configurable = one.configurable_fields(model=ConfigurableField(id="m"))
    made: Any = configurable.prepare({"configurable": {"m": GPT_OSS}})[0]
    assert (one.profile["max_input_tokens"], made.profile["max_input_tokens"]) == (24_000, 128_000)
    copied = one.model_copy(update={"model": GPT_OSS})
    one.model = GPT_OSS
    assert one.profile == copied.profile == made.profile
    own: Any = chat(profile={"max_input_tokens": 5}).configurable_fields(model=ConfigurableField(id="m"))
    assert own.prepare({"configurable": {"m": NATIVE}})[0].profile == {"max_input_tokens": 5}


def test_tokens_of_every_kind_of_tool_are_counted(chat: Make) -> None:
    def clock(city: str) -> str:
        """Tell the time."""
        return city

    one = chat()
    hi = [HumanMessage("hi")]
    alone = one.get_num_tokens_from_messages(hi)
    for made in (Person, Typed, clock, tool(clock), SCHEMA | {"description": "A person."}):
        assert one.get_num_tokens_from_messages(hi, tools=[made]) > alone


# --- streams ---


def test_generate_keeps_llm_output_when_streaming(chat: Make, call: Any) -> None:
    results = {}
    for streaming in (True, False):
        result = call(chat(streaming=streaming), "generate", [[HumanMessage("hi")], [HumanMessage("hi")]])
        results[streaming] = result.llm_output
    assert results[True] == results[False]
    assert results[True]["token_usage"]["total_tokens"] > 0
    assert results[True]["model_name"] == GPT_OSS


@pytest.mark.parametrize("way", [{"stream_usage": False}, {"stream_options": {"include_usage": False}}], ids=str)
def test_usage_that_was_not_requested_is_dropped(way: Any, chat: Make, model: Any, call: Any) -> None:
    model.says("ok", usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})
    total = call.collect(chat(api=model.route), "hi", **way)
    assert (total.text, total.usage_metadata) == ("ok", None)
    assert "neurons" not in json.dumps(total.response_metadata.get("neurons", ""))
