"""Checks in Pyodide, with ``env.AI`` written in JavaScript. Run by ``run.mjs``; not collected by pytest."""

from __future__ import annotations

import json
import runpy
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable
from types import ModuleType, SimpleNamespace
from typing import Any

from js import Object
from pyodide.ffi import to_js
from worker import env

from workers_ai import AsyncClient, GatewayOptions, RetryPolicy, errors
from workers_ai.types import BatchJob

LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
HELLO = [{"role": "user", "content": "Grüße"}]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def client(**settings: Any) -> AsyncClient:
    return AsyncClient(binding=env.AI, retry=RetryPolicy(max_retries=2, base_s=0.01), **settings)


class Raw:
    """The binding with ``Response`` objects as results."""

    @staticmethod
    async def run(model: str, inputs: Any, options: Any) -> Any:
        more = to_js({"returnRawResponse": True}, dict_converter=Object.fromEntries)
        return await env.AI.run(model, inputs, Object.assign(more, options))


def last_call() -> list[Any]:
    calls: list[str] = env.AI.calls
    return json.loads(calls[-1])


async def collect(pieces: AsyncIterator[Any]) -> list[Any]:
    return [piece async for piece in pieces]


async def failure(call: Awaitable[Any]) -> errors.WorkersAIError:
    try:
        await call
    except errors.WorkersAIError as exc:
        return exc
    raise AssertionError("no error")


async def check_the_core_imports_little() -> None:
    assert sys.platform == "emscripten"
    assert not {"sqlite3", "typer", "rich", "tqdm", "multiprocessing"} & set(sys.modules)


async def check_chat() -> None:
    reply = await client(session_id="s-1").chat(LLAMA, HELLO)
    assert reply.text == "Hello from JavaScript"
    assert reply.usage is not None
    assert reply.usage.total_tokens == 7
    assert last_call() == [LLAMA, {"messages": HELLO}, {"extraHeaders": {"x-session-affinity": "s-1"}}]


async def check_null_is_sent_as_null() -> None:
    await client().chat("@cf/zai-org/glm-5.2", HELLO, api="run", reasoning_effort=None)
    assert last_call()[1] == {"messages": HELLO, "reasoning_effort": None}


async def check_tools() -> None:
    reply = await client().chat(LLAMA, HELLO, tools=[WEATHER])
    (call,) = reply.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Zürich"})
    assert reply.finish_reason == "tool_calls"


async def check_stream() -> None:
    pieces = await collect(client().stream_chat(LLAMA, HELLO))
    assert "".join(piece.text for piece in pieces) == "Grüße aus dem Worker 🌤"
    assert len(pieces) == 5
    assert pieces[-1].last


async def check_a_stream_closed_early_is_cancelled() -> None:
    pieces = client().stream_chat(LLAMA, HELLO)
    assert (await anext(pieces)).text == "Grüße "
    await pieces.aclose()
    assert len(env.AI.cancelled) == 1


async def check_a_stream_without_a_piece_in_time() -> None:
    before = len(env.AI.cancelled)
    silent = AsyncClient(binding=env.AI, timeout=0.05, max_retries=0)
    error = await failure(collect(silent.stream_chat("@cf/test/silent", HELLO)))
    assert type(error) is errors.APITimeoutError
    assert len(env.AI.cancelled) == before + 1


async def check_a_whole_answer_on_a_stream() -> None:
    pieces = await collect(client().stream_chat("@cf/test/whole", HELLO))
    assert "".join(piece.text for piece in pieces) == "Ganz 🌤"
    assert (await client().chat("@cf/test/whole", HELLO)).text == "Ganz 🌤"


async def check_nothing_is_no_answer() -> None:
    for model in ("@cf/test/null", "@cf/test/undefined"):
        error = await failure(client().chat(model, HELLO))
        assert type(error) is errors.APIResponseValidationError


async def check_gateway_and_headers() -> None:
    settings = {"gateway": GatewayOptions("gw", cache_ttl_s=60), "default_headers": {"x-mine": "ä".encode().hex()}}
    await client(**settings).chat(LLAMA, HELLO)
    assert last_call()[2] == {"gateway": {"id": "gw", "cacheTtl": 60}, "extraHeaders": {"x-mine": "c3a4"}}


async def check_whole_responses() -> None:
    raw = AsyncClient(binding=Raw(), max_retries=0, on_busy="raise")
    reply = await raw.chat(LLAMA, HELLO)
    assert (reply.text, reply.headers["cf-ai-neurons"]) == ("Hello from JavaScript", "1.50")
    pieces = await collect(raw.stream_chat(LLAMA, HELLO))
    assert "".join(piece.text for piece in pieces) == "Grüße aus dem Worker 🌤"
    assert pieces[-1].headers["cf-ray"] == "0123456789abcdef-ZRH"
    env.AI.beBusy(1)
    error = await failure(raw.chat(LLAMA, HELLO))
    assert (type(error), error.status_code, error.retry_after) == (errors.CapacityError, 429, 7.0)
    env.AI.beBusy(0)


async def check_the_queue() -> None:
    batch = client().batch
    job = await batch.submit("@cf/baai/bge-m3", [{"text": ["a", "bb"], "external_reference": "x"}, {"text": ["ccc"]}])
    assert last_call()[2] == {"queueRequest": True}
    items = await batch.collect(BatchJob(job.request_id, "@cf/baai/bge-m3"))
    assert last_call()[1:] == [{"request_id": job.request_id}, {}]
    assert [item.external_reference for item in items] == ["x", None]
    assert [[row[0] for row in item.result["data"]] for item in items] == [[1, 2], [3]]
    vectors = (await client().embed("@cf/baai/bge-m3", ["a", "bb"], queue="always")).vectors
    assert [row[0] for row in vectors] == [1, 2]


async def check_a_stream_that_breaks_off() -> None:
    error = await failure(collect(client().stream_chat("@cf/test/breaks", HELLO)))
    assert type(error) is errors.StreamInterruptedError
    assert error.partial == "Grüße "
    assert "Network connection lost" in str(error)


async def check_embeddings() -> None:
    texts = ["x" * (number + 1) for number in range(250)]
    reply = await client().embed("@cf/baai/bge-m3", texts)
    assert [row[0] for row in reply.vectors] == list(range(1, 251))


async def check_rerank() -> None:
    ranking = await client().rerank("@cf/baai/bge-reranker-base", "q", ["long text", "short"], top_n=2)
    assert [score.index for score in ranking] == [1, 0]


async def check_models() -> None:
    assert await client().models() == [{"name": "@cf/baai/bge-m3"}]


async def check_busy_is_tried_again() -> None:
    env.AI.beBusy(2)
    before = len(env.AI.calls)
    assert (await client(on_busy="retry").embed("@cf/baai/bge-m3", ["a"])).vectors == [[1, 1, 0.5]]
    assert len(env.AI.calls) - before == 3
    assert last_call()[2] == {"rejectIfBusy": True}


async def check_thrown_errors_are_typed() -> None:
    env.AI.beBusy(1)
    for model, settings, expected, code in (
        ("@cf/test/gone", {}, errors.NotFoundError, 5007),
        (LLAMA, {"on_busy": "raise"}, errors.CapacityError, 3040),
    ):
        error = await failure(client(**settings).chat(model, HELLO))
        assert (type(error), error.code) == (expected, code)
        assert "InferenceUpstreamError" not in error.message


async def check_the_example() -> None:
    """Check ``examples/worker.py`` with substitutes for the classes of the runtime."""
    runtime = ModuleType("workers")
    runtime.Request = runtime.WorkerEntrypoint = object
    runtime.Response = SimpleNamespace(from_json=lambda data, **options: (data, options))
    sys.modules["workers"] = runtime
    entry = runpy.run_path("/examples/worker.py")["Default"]()
    entry.env = env

    async def text() -> str:
        return '{"question": "Why?"}'

    answer, _ = await entry.fetch(SimpleNamespace(method="POST", text=text))
    assert answer == {"answer": "Hello from JavaScript", "tokens": 7}


async def main() -> int:
    failures = 0
    for name, check in [(n, c) for n, c in globals().items() if n.startswith("check_")]:
        try:
            await check()
        except Exception:  # noqa: BLE001 - reported, and counted
            failures += 1
            print("FAILED", name)  # noqa: T201
            traceback.print_exc()
        else:
            print("ok    ", name)  # noqa: T201
    return failures
