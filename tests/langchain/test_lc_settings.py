"""Every setting, for the object and for one call; invalid settings; clients, loops, threads and timeouts."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.messages import HumanMessage, SystemMessage, trim_messages
from langchain_core.rate_limiters import InMemoryRateLimiter
from tests.support import every_row, held

import langchain_workers_ai as ours
from langchain_workers_ai import ChatWorkersAI, WorkersAIDecisions, WorkersAIEmbeddings, WorkersAIRerank
from workers_ai.catalogue import lookup
from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

ACCOUNT = "0123456789abcdef0123456789abcdef"
MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
OTHER = "@cf/zai-org/glm-5.2"

PARAMS: dict[str, Any] = {
    "temperature": 0.0,
    "top_p": 0.5,
    "max_tokens": 900,
    "stop": ["END"],
    "seed": 7,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "logprobs": True,
    "top_logprobs": 3,
    "reasoning_effort": "low",
    "chat_template_kwargs": {"enable_thinking": False},
    "response_format": {"type": "json_object"},
}


@pytest.mark.parametrize("place", ["object", "call", "bind"])
@every_row("name", PARAMS)
def test_every_parameter_is_sent(
    name: str, place: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Any
) -> None:
    """https://github.com/cloudflare/ai/pull/459"""
    given = {name: PARAMS[name]}
    one: Any = chat(model=OTHER, api=route, **(given if place == "object" else {}))
    ask(one.bind(**given) if place == "bind" else one, "hi", **(given if place == "call" else {}))
    body = emulator.log.last.json
    assert body[name] == PARAMS[name]
    assert emulator.log.last.query == {}
    assert not (PARAMS.keys() - {name}) & body.keys()


@pytest.mark.parametrize("place", ["object", "call"])
@every_row("name", [name for name in PARAMS if name != "reasoning_effort"])
def test_none_is_unset(
    name: str, place: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    given = {name: None}
    one = chat(model=OTHER, **(given if place == "object" else {}))
    call(one, "invoke", "hi", **(given if place == "call" else {}))
    assert name not in emulator.log.last.json


def test_a_call_setting_overrides_the_object(chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any) -> None:
    one = chat(model=OTHER, temperature=1, stop=["A"], model_kwargs={"a": 1, "b": 1})
    ask(one, "hi", temperature=0, stop=["B"], model_kwargs={"b": 2})
    body = emulator.log.last.json
    assert (body["temperature"], body["stop"], body["a"], body["b"]) == (0, ["B"], 1, 2)


@pytest.mark.parametrize("name", ["model", "model_name"])
def test_the_model_of_one_call(
    name: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, ask: Any
) -> None:
    answer = ask(chat(model=OTHER, api=route), "hi", **{name: MODEL})
    assert emulator.log.last.model == MODEL
    assert answer.response_metadata["model_name"] == MODEL


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"model_name": MODEL}, "model", MODEL),
        ({"stop_sequences": ["END"]}, "stop", ["END"]),
        ({"request_timeout": 5}, "timeout", 5),
        ({"api_key": "other-token"}, "api_token", "other-token"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_aliases_of_settings(given: dict[str, Any], field: str, value: Any) -> None:
    settings = {"account_id": ACCOUNT, "api_token": "token", "model": MODEL}
    settings.pop(field, None)
    one = ChatWorkersAI(**settings, **given)
    found = getattr(one, field)
    assert (found.get_secret_value() if field == "api_token" else found) == value


@pytest.mark.parametrize("stop", ["END", ["END"]])
@pytest.mark.parametrize("name", ["stop", "stop_sequences"])
def test_stop_is_a_list_on_the_wire(
    stop: Any, name: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    call(chat(**{name: stop}), "invoke", "hi")
    assert emulator.log.last.json["stop"] == ["END"]
    call(chat(), "invoke", "hi", **{name: stop})
    assert emulator.log.last.json["stop"] == ["END"]


@pytest.mark.parametrize("place", ["object", "call"])
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"on_busy": "wait"}, None),
        ({"on_busy": "retry"}, True),
        ({"on_busy": "raise"}, True),
        ({"reject_if_busy": True}, True),
    ],
    ids=["wait", "retry", "raise", "reject_if_busy"],
)
def test_on_busy_is_in_the_options_of_the_body(
    given: dict[str, Any],
    sent: bool | None,
    place: str,
    chat: Callable[..., ChatWorkersAI],
    emulator: Emulator,
    route: str,
    ask: Any,
) -> None:
    """https://developers.cloudflare.com/workers-ai/features/reject-if-busy/"""
    one = chat(api=route, model=MODEL, model_kwargs={"options": {"mine": 1}}, **(given if place == "object" else {}))
    ask(one, "hi", **(given if place == "call" else {}))
    options = {"mine": 1} if sent is None else {"mine": 1, "rejectIfBusy": sent}
    assert emulator.log.last.json["options"] == options
    assert emulator.log.last.query == {}


# --- invalid settings ---

CLASSES: dict[str, Callable[..., Any]] = {
    "chat": lambda **settings: ChatWorkersAI(**{"model": MODEL, **settings}),
    "embeddings": lambda **settings: WorkersAIEmbeddings(**{"model": "@cf/baai/bge-m3", **settings}),
    "rerank": lambda **settings: WorkersAIRerank(**settings),
    "decisions": lambda **settings: WorkersAIDecisions(**settings),
}
GOOD = {"account_id": ACCOUNT, "api_token": "token-of-mine"}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"account_id": None}, "CLOUDFLARE_ACCOUNT_ID or CF_ACCOUNT_ID"),
    ({"account_id": ""}, "CLOUDFLARE_ACCOUNT_ID"),
    ({"account_id": "${CLOUDFLARE_ACCOUNT_ID}"}, "CLOUDFLARE_ACCOUNT_ID"),
    ({"account_id": "a/../b"}, "CLOUDFLARE_ACCOUNT_ID"),
    ({"account_id": "token-of-mine"}, "is the API token"),
    ({"api_token": None}, "CLOUDFLARE_API_TOKEN.*CF_API_TOKEN"),
    ({"api_token": "to ken"}, "api_token is malformed"),
    ({"api_token": "**********"}, "masked as in a dump"),
    ({"base_url": "http://example.org/client/v4"}, "allow_insecure_http"),
    ({"base_url": "https://api.cloudflare.com/client/v4/accounts/other/ai/v1"}, "contains another account"),
    ({"base_url": "not a url"}, "base_url"),
    ({"gateway": "my gateway"}, "gateway id"),
    ({"gateway": {"name": "x"}}, "gateway has no option"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": "soon"}, "timeout"),
    ({"max_retries": -1}, "max_retries"),
    ({"max_retries": 1.5}, "max_retries"),
    ({"on_busy": "panic"}, "on_busy"),
    ({"default_headers": {"a b": "c"}}, "header name"),
    ({"default_headers": {"a": "b\r\nc: d"}}, "header a"),
    ({"model": "@cf/../x"}, "model"),
    ({"model": "@cf/a?b"}, "model"),
    ({"model": ""}, "model"),
    ({"api_tokn": "x"}, "api_token"),
    ({"acount_id": "x"}, "account_id"),
    ({"max_retry": 1}, "max_retries"),
    ({"api_token": "a", "api_key": "b"}, "api_token twice"),
    ({"http_client": httpx.AsyncClient()}, "http_client serves the sync calls"),
    ({"http_client": "client"}, "http_client serves the sync calls"),
    ({"http_async_client": httpx.Client()}, "http_async_client serves the async calls"),
]


@every_row(("given", "says"), BAD)
@every_row("kind", CLASSES)
def test_invalid_settings_raise_in_the_constructor(kind: str, given: dict[str, Any], says: str) -> None:
    """https://github.com/anomalyco/opencode/issues/18552, https://github.com/cloudflare/ai/issues/400"""
    with pytest.raises(ours.ConfigurationError, match=says) as caught:
        CLASSES[kind](**{**GOOD, **given})
    assert isinstance(caught.value, ValueError)
    if given.get("account_id") != "token-of-mine":
        assert "token-of-mine" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"temprature": 0}, "temperature"),
        ({"max_token": 1}, "max_tokens"),
        ({"tool_chioce": "auto"}, "tool_choice"),
        ({"zzz": 1}, "model_kwargs"),
    ],
)
def test_an_unknown_keyword_suggests_the_nearest(
    given: dict[str, Any], says: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any
) -> None:
    with pytest.raises(ours.ConfigurationError, match=says):
        chat(**given)
    for one in (chat(), chat().bind(**given)):
        with pytest.raises(ours.ConfigurationError, match=says):
            ask(one, "hi", **(given if isinstance(one, ChatWorkersAI) else {}))
    assert emulator.log.entries == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"api": "native"}, "api"),
        ({"on_busy": "panic"}, "on_busy"),
        ({"model": "@cf/a b"}, "model"),
        ({"stop": 5}, "stop must be a string or a list of strings"),
        ({"tools": 5}, "tools must be a list of tools, not a int"),
        ({"tools": "clock"}, "tools must be a list of tools, not a str"),
        ({"model_kwargs": [1]}, "model_kwargs must be a dict"),
        ({"tools": [{"type": "function"}]}, "tool 0 has no name"),
        ({"tools": [{"type": "function", "function": {}}]}, "tool 0 has no name"),
    ],
)
def test_bad_values_of_one_call(
    given: dict[str, Any], says: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any
) -> None:
    with pytest.raises(ours.ConfigurationError, match=says):
        ask(chat(), "hi", **given)
    assert emulator.log.entries == []


def test_creating_an_object_sends_nothing(emulator: Emulator, chat: Callable[..., ChatWorkersAI]) -> None:
    """A token that may run models may lack the permission to list them (https://github.com/odysseus-dev/odysseus/pull/5175)."""
    chat().bind_tools([]).with_retry()
    assert emulator.log.entries == []


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CF_ACCOUNT_ID", f" {ACCOUNT}\n")
    monkeypatch.setenv("CF_AI_API_TOKEN", "token-from-env")
    monkeypatch.setenv("BASE_URL", "http://evil.example")
    monkeypatch.setenv("AI_GATEWAY", "not-mine")
    for make in CLASSES.values():
        one = make()
        assert (one.account_id, one.api_token.get_secret_value()) == (ACCOUNT, "token-from-env")
        assert (one.base_url, one.gateway) == ("https://api.cloudflare.com/client/v4", None)


@pytest.mark.parametrize("kind", ["rerank", "decisions"])
def test_defaults_are_models_of_today(kind: str) -> None:
    """https://github.com/cloudflare/cloudflare-docs/issues/32501"""
    card = lookup(CLASSES[kind](**GOOD).model)
    assert (card.retired_on, card.task is None) == (None, False)


# --- clients, loops and threads ---


def test_own_clients_are_used_for_their_half_and_left_open(emulator: Emulator) -> None:
    """https://github.com/langchain-ai/langchain/issues/32348"""
    seen: list[str] = []
    transport = emulator.transport()
    client = httpx.Client(transport=transport, event_hooks={"request": [lambda request: seen.append("sync")]})

    async def hook(request: httpx.Request) -> None:
        seen.append("async")

    aclient = httpx.AsyncClient(transport=transport, event_hooks={"request": [hook]})
    one = ChatWorkersAI(model=MODEL, **GOOD, http_client=client, http_async_client=aclient)
    one.invoke("hi")
    asyncio.run(one.ainvoke("hi"))
    assert seen == ["sync", "async"]
    assert [entry.headers["authorization"] for entry in emulator.log.entries] == ["REDACTED"] * 2
    one.client.close()
    assert not client.is_closed


def test_one_object_in_several_loops_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """https://github.com/langchain-ai/langchain/issues/35783"""
    emulator = Emulator(clock=Clock("real"), latency_s=0.01)
    with emulator.serve() as url:
        one = ChatWorkersAI(model=MODEL, base_url=url, **GOOD)
        embeddings = WorkersAIEmbeddings(model="@cf/baai/bge-m3", base_url=url, **GOOD)

        async def both() -> str:
            answer, _ = await asyncio.gather(one.ainvoke("hi"), embeddings.aembed_query("hi"))
            return answer.text

        def in_a_loop(_: int) -> str:
            return asyncio.run(both())

        texts = {in_a_loop(0), in_a_loop(1)}
        with ThreadPoolExecutor(4) as pool:
            texts |= set(pool.map(in_a_loop, range(8)))
            texts |= {answer.text for answer in pool.map(lambda _: one.invoke("hi"), range(8))}
        assert len(texts) == 1
    assert {entry.status for entry in emulator.log.entries} == {200}


def test_async_calls_are_truly_concurrent() -> None:
    """https://github.com/langchain-ai/langchain/issues/36547"""
    emulator = Emulator(clock=Clock("manual"), latency_s=1)
    transport = emulator.transport()
    one = ChatWorkersAI(model=MODEL, **GOOD, http_async_client=httpx.AsyncClient(transport=transport))

    async def many() -> int:
        await one.abatch(["hi"] * 50)
        return threading.active_count()

    with held(emulator, 50):
        threads = threading.active_count()
        assert asyncio.run(many()) <= threads + 1
    assert emulator.log.peak_concurrency == 50


@pytest.mark.real_time
@pytest.mark.parametrize("setting", ["config", "object"])
def test_concurrency_is_bounded_on_request(setting: str, call: Any) -> None:
    emulator = Emulator(clock=Clock("manual"), latency_s=1)
    transport = emulator.transport()
    clients = {
        "http_client": httpx.Client(transport=transport),
        "http_async_client": httpx.AsyncClient(transport=transport),
    }
    one = ChatWorkersAI(model=MODEL, **GOOD, **clients, **({"max_concurrency": 4} if setting == "object" else {}))
    with held(emulator, 4):
        call(one, "batch", ["hi"] * 12, {"max_concurrency": 4} if setting == "config" else None)
    assert emulator.log.peak_concurrency == 4


def test_timeout_errors_have_host_and_model(emulator: Emulator, chat: Callable[..., ChatWorkersAI], ask: Any) -> None:
    emulator.faults.add(Fault.latency(30, times=None))
    with pytest.raises(ours.APITimeoutError, match=r"api\.cloudflare\.com did not answer.*gpt-oss-120b") as caught:
        ask(chat(timeout=2, max_retries=0), "hi")
    assert caught.value.is_retryable
    assert not isinstance(caught.value, TimeoutError)  # an OSError, which LangGraph never retries
    emulator.faults.clear()
    emulator.faults.add(Fault.latency(30, times=None))
    assert ask(chat(timeout=httpx.Timeout(60), max_retries=0), "hi").text


def test_every_wait_calls_on_retry(
    emulator: Emulator, chat: Callable[..., ChatWorkersAI], ask: Any, no_waiting: list[float]
) -> None:
    emulator.faults.add(Fault.error(429, 3040, "no capacity", retry_after="7", times=2))
    events: list[Any] = []
    ask(chat(on_retry=events.append), "hi")
    assert [(event.attempt, event.wait_s) for event in events] == [(1, 7.0), (2, 7.0)]
    assert no_waiting[:2] == [7.0, 7.0]


def test_the_rate_limiter_of_langchain(chat: Callable[..., ChatWorkersAI], call: Any) -> None:
    taken: list[bool] = []

    class Counting(InMemoryRateLimiter):
        def acquire(self, *, blocking: bool = True) -> bool:
            taken.append(blocking)
            return True

        async def aacquire(self, *, blocking: bool = True) -> bool:
            return self.acquire(blocking=blocking)

    one = chat(rate_limiter=Counting())
    call(one, "invoke", "hi")
    call(one, "stream", "hi")
    assert taken == [True, True]


# --- facts about a model that LangChain reads ---


def test_the_cache_key_includes_model_and_parameters(
    emulator: Emulator, chat: Callable[..., ChatWorkersAI], call: Any
) -> None:
    cache = InMemoryCache()
    models = [
        chat(model=MODEL, cache=cache),
        chat(model=OTHER, cache=cache),
        chat(model=MODEL, cache=cache, temperature=1),
        chat(model=MODEL, cache=cache, api="run"),
        chat(model=MODEL, cache=cache, model_kwargs={"a": 1}),
    ]
    for count, one in enumerate(models, 1):
        for _ in range(2):
            call(one, "invoke", "hi")
        assert len(emulator.log.entries) == count
    call(chat(model=MODEL, cache=cache, api_token="another-token"), "invoke", "hi")
    assert len(emulator.log.entries) == len(models)
    changed = models[0].model_copy(update={"model": "@cf/qwen/qwen3-30b-a3b-fp8"})
    call(changed, "invoke", "hi")
    assert len(emulator.log.entries) == len(models) + 1


def test_tokens_are_counted_without_a_tokenizer(chat: Callable[..., ChatWorkersAI]) -> None:
    """https://github.com/langchain-ai/langchain/issues/30162"""
    one = chat()
    assert one.get_num_tokens("hello world, hello") == 5
    assert one.get_num_tokens("") == 0
    assert one.get_num_tokens("half \ud800") == 2
    assert len(one.get_token_ids("abcdefgh")) == 2
    messages = [SystemMessage("Be brief."), *(HumanMessage(f"question {n} " * 20) for n in range(10))]
    total = one.get_num_tokens_from_messages(messages)
    assert 400 < total < 1200
    kept = trim_messages(messages, max_tokens=300, token_counter=one, include_system=True)
    assert kept[0] == messages[0]
    assert kept[-1] == messages[-1]
    assert one.get_num_tokens_from_messages(kept) <= 300
    tool = {"name": "clock", "description": "Tell the time.", "parameters": {"type": "object", "properties": {}}}
    assert one.get_num_tokens_from_messages(messages, [tool]) > total


def test_traces_have_provider_model_and_parameters(chat: Callable[..., ChatWorkersAI]) -> None:
    one = chat(model=MODEL, temperature=0.5, max_tokens=9, stop=["A"])
    params = one._get_ls_params(stop=["B"], model=OTHER)
    assert params["ls_provider"] == "workers-ai"
    assert params["ls_model_name"] == OTHER
    assert (params["ls_temperature"], params["ls_max_tokens"], params["ls_stop"]) == (0.5, 9, ["B"])
    assert one.metadata["lc_versions"]["langchain-workers-ai"] == ours.__version__


def test_the_profile_follows_the_model(chat: Callable[..., ChatWorkersAI]) -> None:
    one = chat(model=MODEL)
    assert (one.profile["max_input_tokens"], one.profile["tool_calling"]) == (24000, True)
    assert one.profile["structured_output"] is True
    assert one.profile["image_inputs"] is False
    one.model = "@cf/meta/llama-3.2-1b-instruct"
    assert (one.profile["max_input_tokens"], one.profile["tool_calling"]) == (60000, False)
    assert chat(model="@cf/new/model").profile is None
    assert chat(model=MODEL, profile={"max_input_tokens": 7}).profile == {"max_input_tokens": 7}
