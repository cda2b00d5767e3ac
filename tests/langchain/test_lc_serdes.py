"""Dumps, pickles and copies can be loaded and used, and include no secret from the environment."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_core.load import dumpd, dumps, load, loads
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

import langchain_workers_ai as ours
from langchain_workers_ai import ChatWorkersAI, GatewayOptions, WorkersAIDecisions, WorkersAIEmbeddings, WorkersAIRerank
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator import Emulator

pytestmark = pytest.mark.filterwarnings("ignore:The function `load:langchain_core._api.LangChainBetaWarning")

ACCOUNT = "0123456789abcdef0123456789abcdef"
TOKEN = "secret-token-for-tests"
HEADER = "secret-header-value"
GATEWAY = "secret-gateway-token"
MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
OURS: dict[str, Any] = {"allowed_objects": [ChatWorkersAI], "valid_namespaces": ["langchain_workers_ai"]}
SECRETS = (TOKEN, HEADER, GATEWAY)
GIVEN: dict[str, Any] = {
    "account_id": ACCOUNT,
    "api_token": TOKEN,
    "default_headers": {"x-mine": f"Bearer {HEADER}"},
    "gateway": GatewayOptions("gw", token=GATEWAY, cache_ttl_s=60, metadata={"team": "a"}),
    "session_id": "s-1",
    "max_retries": 5,
    "timeout": 9,
    "on_busy": "raise",
}
MAKERS: dict[str, Callable[..., Any]] = {
    "chat": lambda **more: ChatWorkersAI(**{"model": MODEL, **GIVEN, **more}),
    "embeddings": lambda **more: WorkersAIEmbeddings(**{"model": "@cf/baai/bge-m3", **GIVEN, **more}),
    "rerank": lambda **more: WorkersAIRerank(**{**GIVEN, **more}),
    "decisions": lambda **more: WorkersAIDecisions(**{**GIVEN, **more}),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_an_httpx_timeout_survives_every_dump(kind: str) -> None:
    timeout = httpx.Timeout(5, read=60)
    one = MAKERS[kind](timeout=timeout)
    assert one.timeout is timeout
    plain = {"connect": 5, "read": 60, "write": 5, "pool": 5}
    dumped = json.loads(one.model_dump_json())
    assert dumped["timeout"] == plain
    assert MAKERS[kind](timeout=dumped["timeout"]).timeout == timeout
    if kind == "chat":
        loaded = loads(dumps(one), secrets_map={"CLOUDFLARE_API_TOKEN": TOKEN}, **OURS)
        assert loaded.timeout == timeout


class Person(BaseModel):
    """A person."""

    name: str


def wire(one: Any, emulator: Emulator) -> Any:
    """Return the same object, connected to the emulator."""
    one.http_client = httpx.Client(transport=emulator.transport())
    one.http_async_client = httpx.AsyncClient(transport=emulator.transport())
    return one


def used(one: Any, emulator: Emulator) -> Any:
    """Return the headers and body of the object's first request."""
    wire(one, emulator)
    if isinstance(one, ChatWorkersAI):
        assert one.invoke("hi").text
    elif isinstance(one, WorkersAIEmbeddings):
        assert len(one.embed_query("hi")) == 1024
    elif isinstance(one, WorkersAIRerank):
        assert one.rerank(["a"], "q")
    else:
        assert one.client._connection.settings.account_id == ACCOUNT
        return None
    return emulator.log.last.headers


# --- no secrets ---


@pytest.mark.parametrize("kind", MAKERS)
def test_no_form_of_an_object_shows_a_secret(kind: str) -> None:
    """https://github.com/langchain-ai/langchain-community/issues/478"""
    one = MAKERS[kind]()
    forms = [
        repr(one),
        str(one),
        str(one.model_dump()),
        one.model_dump_json(),
        str(vars(one)),
        str(one.__repr_args__()),
    ]
    forms += [
        f"{one:}",
        str(one.__repr_args__()),
        str(one.client._connection.settings),
        repr(one.client),
        repr(one.client._connection.transport),
    ]
    if kind == "chat":
        forms += [dumps(one), str(dumpd(one)), str(one._identifying_params), str(one._get_invocation_params())]
        forms += [str(one._get_ls_params()), str(one.bind(temperature=0)), dumps(one.bind(temperature=0))]
        forms += [repr(one.with_structured_output(Person)), repr(one.with_retry()), one._get_llm_string()]
    for form in forms:
        assert not [secret for secret in SECRETS if secret in form], form


def test_traces_errors_and_logs_show_no_secret(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    one = wire(MAKERS["chat"](max_retries=1, on_busy="wait"), emulator)
    emulator.faults.add(Fault.error(429, 3040, f"no capacity for {TOKEN} {HEADER} {GATEWAY}", times=None))
    collected = RunCollectorCallbackHandler()
    with caplog.at_level(logging.DEBUG), pytest.raises(ours.CapacityError) as caught:
        one.invoke("hi", config={"callbacks": [collected]})
    error = caught.value
    chain = [str(error), repr(error), str(vars(error)), str(error.response.text), str(error.__cause__)]
    chain += [str(pickle.dumps(error)), caplog.text, str(collected.traced_runs[0].model_dump())]
    for form in chain:
        assert not [secret for secret in SECRETS if secret in form], form
    assert "retrying in" in caplog.text


def test_a_lost_connection_shows_no_secret(emulator: Emulator) -> None:
    one = wire(MAKERS["chat"](max_retries=0), emulator)
    emulator.faults.add(Fault.drop())
    with pytest.raises(ours.APIConnectionError) as caught:
        one.invoke("hi")
    context = caught.value.__cause__ or caught.value.__context__
    for form in (str(caught.value), str(vars(caught.value)), repr(context)):
        assert not [secret for secret in SECRETS if secret in form]


# --- LangChain's own dumps ---


def test_a_dump_has_the_variable_of_the_secret(emulator: Emulator) -> None:
    one = MAKERS["chat"](temperature=0.5, stop=["END"], model_kwargs={"a": 1})
    dumped = json.loads(dumps(one))
    assert dumped["kwargs"]["api_token"] == {"lc": 1, "type": "secret", "id": ["CLOUDFLARE_API_TOKEN"]}
    secrets = {"CLOUDFLARE_API_TOKEN": TOKEN}
    back = loads(dumps(one), **OURS, secrets_map=secrets)
    assert isinstance(back, ChatWorkersAI)
    same = (
        "model",
        "temperature",
        "stop",
        "model_kwargs",
        "account_id",
        "session_id",
        "max_retries",
        "timeout",
        "on_busy",
    )
    assert {name: getattr(back, name) for name in same} == {name: getattr(one, name) for name in same}
    assert back.gateway == GatewayOptions("gw", cache_ttl_s=60, metadata={"team": "a"})  # its token is not dumped
    assert dumpd(back)["kwargs"] == dumpd(back.model_copy())["kwargs"]
    headers = used(back, emulator)
    assert headers["cf-aig-gateway-id"] == "gw"
    assert (headers["cf-aig-cache-ttl"], headers["x-session-affinity"]) == ("60", "s-1")


def test_a_dump_reads_the_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    text = dumps(MAKERS["chat"]())
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "token-from-env")
    back = loads(text, **OURS, secrets_from_env=True)
    assert back.api_token.get_secret_value() == "token-from-env"


def test_a_chain_and_bound_tools_survive_a_dump(emulator: Emulator) -> None:
    tool = {"name": "clock", "description": "Tell the time.", "parameters": {"type": "object", "properties": {}}}
    prompt = ChatPromptTemplate([("user", "{word}")])
    chain = prompt | MAKERS["chat"]().bind_tools([tool], tool_choice="none") | StrOutputParser()
    back = load(
        dumpd(chain),
        allowed_objects="all",
        valid_namespaces=["langchain_workers_ai"],
        secrets_map={"CLOUDFLARE_API_TOKEN": TOKEN},
        additional_import_mappings={
            ("langchain_workers_ai", "chat_models", "ChatWorkersAI"): (
                "langchain_workers_ai",
                "chat_models",
                "ChatWorkersAI",
            )
        },
    )
    wire(back.steps[1].bound, emulator)
    assert back.invoke({"word": "hi"})
    assert emulator.log.last.json["tools"][0]["function"]["name"] == "clock"


# --- pickles and copies ---


@pytest.mark.parametrize("kind", MAKERS)
def test_pickle(kind: str, emulator: Emulator) -> None:
    one = wire(MAKERS[kind](), emulator)
    before = used(one, emulator)
    back = pickle.loads(pickle.dumps(one))
    assert back.http_client is None
    assert back.api_token.get_secret_value() == TOKEN
    after = used(back, emulator)
    assert after == before
    assert {name: getattr(back, name) for name in GIVEN} == {name: getattr(one, name) for name in GIVEN}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_token_from_the_environment_stays_out_of_a_pickle(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", TOKEN)
    one = MAKERS[kind](api_token=None, default_headers=None, gateway=None)
    pickled = pickle.dumps(one)
    assert TOKEN.encode() not in pickled
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "token-of-the-other-side")
    assert pickle.loads(pickled).api_token.get_secret_value() == "token-of-the-other-side"
    monkeypatch.delenv("CLOUDFLARE_API_TOKEN")
    with pytest.raises(ours.ConfigurationError, match="CLOUDFLARE_API_TOKEN"):
        pickle.loads(pickled)


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "model_copy": lambda one: one.model_copy(),
    "deep model_copy": lambda one: one.model_copy(deep=True),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", MAKERS)
def test_copies_work_and_share_the_users_clients(way: str, kind: str, emulator: Emulator) -> None:
    one = wire(MAKERS[kind](), emulator)
    client = one.http_client
    before = used(one, emulator)
    client = one.http_client
    back = COPIES[way](one)
    assert back.http_client is client
    assert back == one
    if before is not None:
        assert used(back, emulator) == before


@pytest.mark.parametrize("way", COPIES)
def test_a_change_to_a_copy_does_not_affect_the_original(
    way: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator
) -> None:
    one = chat(model=MODEL, session_id="a")
    one.invoke("hi")
    back = COPIES[way](one)
    back.session_id, back.model = "b", "@cf/zai-org/glm-5.2"
    back.invoke("hi")
    one.invoke("hi")
    sent = [(entry.headers["x-session-affinity"], entry.model) for entry in emulator.log.entries]
    assert sent == [("a", MODEL), ("b", "@cf/zai-org/glm-5.2"), ("a", MODEL)]


def test_an_update_of_a_copy(chat: Callable[..., ChatWorkersAI], emulator: Emulator) -> None:
    one = chat(model=MODEL)
    one.invoke("hi")
    back = one.model_copy(update={"model": "@cf/meta/llama-3.2-1b-instruct", "session_id": "b"})
    back.invoke("hi")
    assert (emulator.log.last.model, emulator.log.last.headers["x-session-affinity"]) == (back.model, "b")
    assert (one.profile["max_input_tokens"], back.profile["max_input_tokens"]) == (24000, 60000)


def test_bound_and_structured_models_pickle(emulator: Emulator) -> None:
    tool = {"name": "clock", "description": "Tell the time.", "parameters": {"type": "object", "properties": {}}}
    bound = pickle.loads(pickle.dumps(MAKERS["chat"]().bind_tools([tool])))
    wire(bound.bound, emulator)
    assert bound.invoke("hi").text
    structured = pickle.loads(pickle.dumps(MAKERS["chat"]().with_structured_output(Person)))
    wire(structured.first.bound, emulator)
    assert isinstance(structured.invoke("Ann is a person."), Person)
    assert isinstance(copy.deepcopy(structured).invoke("Ann is a person."), Person)


# --- messages ---


@pytest.fixture
def conversation(chat: Callable[..., ChatWorkersAI], emulator: Emulator) -> list[Any]:
    """Return replies of the emulator: one with a call and reasoning, and a final answer."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"name": "clock", "description": "Tell the time in a city.", "parameters": parameters}
    one = chat(model="@cf/zai-org/glm-5.2", gateway="gw").bind_tools([tool])
    question = HumanMessage("What time is it in Oslo?")
    first = one.invoke([question])
    result = ToolMessage("14:02", tool_call_id=first.tool_calls[0]["id"])
    return [question, first, result, one.invoke([question, first, result])]


def test_messages_survive_every_trip(conversation: list[Any]) -> None:
    assert isinstance(conversation[1], AIMessage)
    assert conversation[1].additional_kwargs["reasoning_content"]
    assert conversation[1].response_metadata["headers"]["cf-aig-cache-status"]
    assert pickle.loads(pickle.dumps(conversation)) == conversation
    assert copy.deepcopy(conversation) == conversation
    assert loads(dumps(conversation), allowed_objects="messages") == conversation
    serializer = JsonPlusSerializer()
    assert serializer.loads_typed(serializer.dumps_typed(conversation)) == conversation
    for message in conversation:
        assert type(message).model_validate_json(message.model_dump_json()) == message
