"""The core through ``env.AI`` of a Python Worker, in place of HTTP."""

from __future__ import annotations

import asyncio
import copy
import pickle
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from tests.support import every_row

from workers_ai import AsyncClient, Client, GatewayOptions, RetryPolicy, errors
from workers_ai.integration._pydantic_fields import ConnectionFields
from workers_ai_emulator import Fault

LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
QWEN = "@cf/qwen/qwen3-30b-a3b-fp8"
BGE = "@cf/baai/bge-base-en-v1.5"
RERANKER = "@cf/baai/bge-reranker-base"
HELLO = [{"role": "user", "content": "Hello"}]
AT_ONCE = RetryPolicy(max_retries=2, base_s=0.0)


async def _all(pieces: Any) -> list[Any]:
    return [piece async for piece in pieces]


@pytest.mark.parametrize("model", [LLAMA, QWEN])
@pytest.mark.parametrize("api", [None, "chat_completions", "run"])
def test_a_chat_is_one_run_of_the_model(env_ai: Any, emulator: Any, model: str, api: Any) -> None:
    reply = asyncio.run(AsyncClient(binding=env_ai).chat(model, HELLO, api=api, temperature=0.5))
    assert env_ai.calls == [(model, {"messages": HELLO, "temperature": 0.5}, {})]
    assert reply.text
    assert reply.finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.output_tokens > 0


@pytest.mark.parametrize("model", [LLAMA, QWEN])
def test_a_stream_arrives_in_pieces(env_ai: Any, model: str) -> None:
    client = AsyncClient(binding=env_ai)
    pieces = asyncio.run(_all(client.stream_chat(model, HELLO)))
    whole = asyncio.run(client.chat(model, HELLO))
    assert env_ai.calls[0] == (model, {"messages": HELLO, "stream": True}, {})
    assert len(pieces) > 2
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1].usage.output_tokens > 0
    assert not env_ai.readers[0].cancelled


def test_lone_surrogates_are_replaced_in_the_inputs(env_ai: Any) -> None:
    sent = {"\ud83d!": "\ufffd!", "\U0001f600": "\U0001f600"}
    for given, wanted in sent.items():
        asyncio.run(AsyncClient(binding=env_ai).chat(LLAMA, [{"role": "user", "content": given}]))
        assert env_ai.calls[-1][1]["messages"][0]["content"] == wanted


def test_a_stream_that_is_closed_early_is_cancelled(env_ai: Any) -> None:
    async def first() -> str:
        pieces = AsyncClient(binding=env_ai).stream_chat(LLAMA, HELLO)
        piece = await anext(pieces)
        await pieces.aclose()
        return piece.text

    assert asyncio.run(first())
    assert env_ai.readers[0].cancelled


def test_an_interrupted_stream_keeps_the_received_text(scripted: Any, reader: Any, thrown: Any) -> None:
    async def broken() -> Any:
        yield b'data: {"response":"Half"}\n\n'
        raise thrown("Network connection lost.")

    binding = scripted(lambda *_: SimpleNamespace(getReader=lambda: reader(broken())))
    with pytest.raises(errors.StreamInterruptedError, match="Network connection lost") as caught:
        asyncio.run(_all(AsyncClient(binding=binding).stream_chat(LLAMA, HELLO)))
    assert caught.value.partial == "Half"


def test_an_answer_that_is_not_a_stream_is_yielded_as_one_chunk(scripted: Any) -> None:
    binding = scripted(lambda *_: {"response": "All at once"})
    pieces = asyncio.run(_all(AsyncClient(binding=binding).stream_chat(LLAMA, HELLO)))
    assert [piece.text for piece in pieces] == ["All at once", ""]
    assert pieces[-1].last


def test_embeddings_keep_their_order_over_several_runs(env_ai: Any, emulator: Any) -> None:
    texts = [f"text number {number}" for number in range(230)]
    reply = asyncio.run(AsyncClient(binding=env_ai).embed(BGE, texts, pooling="cls"))
    assert sorted(len(inputs["text"]) for _, inputs, _ in env_ai.calls) == [30, 100, 100]
    assert {inputs["pooling"] for _, inputs, _ in env_ai.calls} == {"cls"}
    with httpx.Client(transport=emulator.transport(), headers={"authorization": "Bearer x"}) as http:
        last = http.post(
            f"https://api.cloudflare.com/client/v4/accounts/{'0' * 32}/ai/run/{BGE}",
            json={"text": texts[229:], "pooling": "cls"},
        ).json()["result"]["data"]
    assert reply.vectors[229:] == last
    assert len(reply.vectors) == 230


def test_reranking(env_ai: Any) -> None:
    ranking = asyncio.run(
        AsyncClient(binding=env_ai).rerank(RERANKER, "orange cloud", ["a llama", "an orange cloud"], top_n=1)
    )
    assert [score.index for score in ranking] == [1]
    assert env_ai.calls == [
        (
            RERANKER,
            {"query": "orange cloud", "contexts": [{"text": "a llama"}, {"text": "an orange cloud"}], "top_k": 1},
            {},
        )
    ]


def test_the_models_of_the_account(env_ai: Any) -> None:
    names = {row["name"] for row in asyncio.run(AsyncClient(binding=env_ai).models(search="bge"))}
    assert BGE in names


@pytest.mark.parametrize("on_busy", ["retry", "raise"])
def test_reject_if_busy_is_in_the_third_argument(env_ai: Any, emulator: Any, on_busy: Any) -> None:
    client = AsyncClient(binding=env_ai, on_busy=on_busy, retry=AT_ONCE)
    emulator.faults.add(Fault.busy(times=1))
    if on_busy == "raise":
        with pytest.raises(errors.CapacityError) as caught:
            asyncio.run(client.chat(LLAMA, HELLO))
        assert (caught.value.code, caught.value.status_code, caught.value.attempts) == (3040, 429, 1)
    else:
        asyncio.run(client.chat(LLAMA, HELLO))
    asyncio.run(client.embed(BGE, ["a"]))
    asyncio.run(client.rerank(RERANKER, "a", ["b"]))
    asyncio.run(_all(client.stream_chat(LLAMA, HELLO)))
    assert len(env_ai.calls) == (4 if on_busy == "raise" else 5)
    for _, inputs, options in env_ai.calls:
        assert options == {"rejectIfBusy": True}
        assert "options" not in inputs


def test_gateway_session_and_headers_are_in_the_third_argument(env_ai: Any) -> None:
    gateway = GatewayOptions(
        "my-gateway", token="gw-secret", cache_ttl_s=60, skip_cache=False, cache_key="k", metadata={"team": "a"},
        collect_log=True, event_id="e", request_timeout_ms=1000, max_attempts=3, retry_delay_ms=10, backoff="linear",
    )  # fmt: skip
    client = AsyncClient(binding=env_ai, gateway=gateway, session_id="of-the-client", default_headers={"X-Mine": "1"})
    asyncio.run(client.chat(LLAMA, HELLO, session_id="of-the-call"))
    assert env_ai.calls[0][2] == {
        "gateway": {
            "id": "my-gateway",
            "cacheTtl": 60,
            "skipCache": False,
            "cacheKey": "k",
            "metadata": {"team": "a"},
            "collectLog": True,
            "eventId": "e",
            "requestTimeoutMs": 1000,
            "retries": {"maxAttempts": 3, "retryDelayMs": 10, "backoff": "linear"},
        },
        "extraHeaders": {"x-session-affinity": "of-the-call", "X-Mine": "1"},
    }


def test_the_models_of_the_auto_router_are_sent_in_a_header(env_ai: Any) -> None:
    gateway = GatewayOptions("my-gateway", allowed_models=["@cf/*", "anthropic/*"])
    asyncio.run(AsyncClient(binding=env_ai, gateway=gateway).chat(LLAMA, HELLO))
    assert env_ai.calls[0][2] == {
        "gateway": {"id": "my-gateway"},
        "extraHeaders": {"cf-aig-allowed-models": "@cf/*,anthropic/*"},
    }


def test_a_model_of_another_author_uses_the_default_gateway(scripted: Any) -> None:
    seen: list[Any] = []
    binding = scripted(lambda *call: seen.append(call) or {"response": "ok"})
    asyncio.run(AsyncClient(binding=binding, on_busy="raise").chat("openai/gpt-5", HELLO))
    assert seen == [("openai/gpt-5", {"messages": HELLO}, {"rejectIfBusy": True, "gateway": {"id": "default"}})]


def test_the_responses_route_is_sent_as_a_run(env_ai: Any) -> None:
    reply = asyncio.run(AsyncClient(binding=env_ai).chat("@cf/openai/gpt-oss-20b", HELLO, api="responses"))
    model, inputs, _ = env_ai.calls[0]
    assert model == "@cf/openai/gpt-oss-20b"
    assert "model" not in inputs
    assert inputs["input"]
    assert reply.text


def test_a_schema_is_sent_bare(env_ai: Any) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    response_format = {"type": "json_schema", "json_schema": {"name": "Answer", "schema": schema}}
    asyncio.run(AsyncClient(binding=env_ai).chat(LLAMA, HELLO, response_format=response_format))
    sent = env_ai.calls[0][1]["response_format"]["json_schema"]
    assert sent["type"] == "object"
    assert sent["properties"] == schema["properties"]


@every_row(("text", "cls", "code", "status", "attempts"), [
        ("3040: Capacity temporarily exceeded, please try again.", errors.CapacityError, 3040, 429, 3),
        ("3036: You have used up your daily free allocation", errors.QuotaExhaustedError, 3036, 429, 1),
        ("5007: No such model @cf/none or task", errors.NotFoundError, 5007, 400, 1),
        ("5006: Error: required properties at '/' are 'messages'", errors.BadRequestError, 5006, 400, 1),
        ("5021: The estimated number of input and maximum output tokens exceeded this model context window limit",
         errors.ContextWindowExceededError, 5021, 413, 1),
        ("3046: Request timeout", errors.RequestTimeoutError, 3046, 408, 3),
        ('{"internalCode": 3043, "name": "AiError", "message": "?"}', errors.InternalServerError, 3043, 500, 3),
        ("undefined: JSON Mode couldn't be met", errors.StructuredOutputError, None, 500, 1),
        ("Network connection lost.", errors.InternalServerError, None, 500, 3),
    ])  # fmt: skip
def test_a_thrown_text_is_the_typed_error(
    scripted: Any,
    thrown: Any,
    text: str,
    cls: type[errors.APIStatusError],
    code: int | None,
    status: int,
    attempts: int,
) -> None:
    calls: list[Any] = []

    def throw(*call: Any) -> None:
        calls.append(call)
        raise thrown(text)

    client = AsyncClient(binding=scripted(throw), retry=AT_ONCE)
    with pytest.raises(cls) as caught:
        asyncio.run(client.chat(LLAMA, HELLO))
    assert type(caught.value) is cls
    assert (caught.value.code, caught.value.status_code, caught.value.model) == (code, status, LLAMA)
    assert (caught.value.attempts, len(calls)) == (attempts, attempts)


def test_a_binding_that_never_answers_times_out(scripted: Any) -> None:
    client = AsyncClient(binding=scripted(lambda *_: asyncio.sleep(3600)), timeout=0.01, max_retries=0)
    with pytest.raises(errors.APITimeoutError, match=r"env\.ai did not answer in time"):
        asyncio.run(client.chat(LLAMA, HELLO))


def test_requests_in_flight_are_bounded(scripted: Any) -> None:
    now, most = 0, 0

    async def answer(model: str, inputs: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        now -= 1
        return {"response": "ok"}

    async def many() -> None:
        client = AsyncClient(binding=scripted(answer), max_concurrency=3)
        await asyncio.gather(*(client.chat(LLAMA, HELLO) for _ in range(12)))

    asyncio.run(many())
    assert most == 3


def test_errors_of_blocking_calls_suggest_the_async_form(env_ai: Any) -> None:
    client = Client(binding=env_ai)
    for call in (
        lambda: client.chat(LLAMA, HELLO),
        lambda: next(client.stream_chat(LLAMA, HELLO)),
        lambda: client.embed(BGE, ["a"]),
        lambda: client.rerank(RERANKER, "a", ["b"]),
    ):
        with pytest.raises(errors.ConfigurationError, match="no blocking calls: use AsyncClient"):
            call()
    assert env_ai.calls == []


def test_an_invalid_binding_is_rejected_by_the_constructor() -> None:
    with pytest.raises(errors.ConfigurationError, match=r"binding has no run\(\)"):
        AsyncClient(binding=SimpleNamespace())


class _Thing(ConnectionFields):
    pass


def test_fields_accept_a_binding_in_place_of_an_account(env_ai: Any) -> None:
    thing = _Thing(binding=env_ai)
    assert asyncio.run(thing.async_client.embed(BGE, ["a"])).vectors
    assert "binding" not in thing.model_dump()
    assert "FakeAI" not in repr(thing)
    for copied in (copy.copy(thing), copy.deepcopy(thing), thing.model_copy()):
        assert copied.binding is env_ai
        assert asyncio.run(copied.async_client.embed(BGE, ["a"])).vectors


def test_a_pickle_drops_the_binding_with_a_warning(env_ai: Any) -> None:
    thing = pickle.loads(pickle.dumps(_Thing(binding=env_ai)))
    with pytest.raises(errors.ConfigurationError, match="set binding= again"):
        _ = thing.async_client
    thing.binding = env_ai
    assert asyncio.run(thing.async_client.embed(BGE, ["a"])).vectors
    restored = pickle.loads(pickle.dumps(AsyncClient(binding=env_ai)))
    with pytest.raises(errors.ConfigurationError, match="set binding= again"):
        asyncio.run(restored.embed(BGE, ["a"]))


def test_the_worker_of_the_guide_answers(env_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "python-workers.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    runtime = ModuleType("workers")
    runtime.WorkerEntrypoint, runtime.Response = SimpleNamespace, str  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "workers", runtime)
    namespace: dict[str, Any] = {}
    exec(compile(code, "python-workers.md", "exec"), namespace)
    entry = namespace["Default"](env=SimpleNamespace(AI=env_ai))
    assert asyncio.run(entry.fetch(None))
    assert env_ai.calls[0][1]["stream"] is True
