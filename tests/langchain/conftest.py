"""LangChain classes wired to the emulator, and one way to call them sync and async."""

from __future__ import annotations

import asyncio
import json
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings
from workers_ai._limits.limiter import Limiter
from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

ACCOUNT = "0123456789abcdef0123456789abcdef"
TOKEN = "secret-token-for-tests"
MODEL = "@cf/openai/gpt-oss-120b"
NATIVE = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
VISION = "@cf/moonshotai/kimi-k2.6"


def wired(emulator: Emulator, **settings: Any) -> dict[str, Any]:
    """Settings that reach an emulator in this process."""
    transport = emulator.transport()
    return {
        "account_id": ACCOUNT,
        "api_token": TOKEN,
        "http_client": httpx.Client(transport=transport),
        "http_async_client": httpx.AsyncClient(transport=transport),
        **settings,
    }


@pytest.fixture
def emulator() -> Emulator:
    """A fresh service whose clock never sleeps."""
    return Emulator(clock=Clock("jump"))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits take no time, our own and those of LangChain's and LangGraph's retries; the list has their seconds.

    The clock of the shared limiter goes on by as much.
    """
    waited: list[float] = []
    pause = asyncio.sleep

    async def asleep(seconds: float, *_: Any) -> None:
        waited.append(seconds)
        await pause(0)

    monkeypatch.setattr("time.sleep", waited.append)
    monkeypatch.setattr("anyio.sleep", asleep)
    monkeypatch.setattr("asyncio.sleep", asleep)
    monkeypatch.setattr("workers_ai._limits.limiter.Limiter", lambda: Limiter(lambda: monotonic() + sum(waited)))
    return waited


@pytest.fixture
def chat(emulator: Emulator) -> Callable[..., ChatWorkersAI]:
    """Makes chat models; keywords are settings."""
    return lambda **settings: ChatWorkersAI(**wired(emulator, **{"model": MODEL, **settings}))


@pytest.fixture
def embeddings(emulator: Emulator) -> Callable[..., WorkersAIEmbeddings]:
    """Makes embedding models; keywords are settings."""
    return lambda **settings: WorkersAIEmbeddings(**wired(emulator, **{"model": "@cf/baai/bge-m3", **settings}))


class Caller:
    """Calls the sync or the async twin of a method; one test body for both."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __call__(self, target: Any, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """``target.method(...)``, or its ``a``-twin in a fresh event loop. Streams come back as lists."""
        streams = method == "stream"
        if self.mode == "sync":
            result = getattr(target, method)(*args, **kwargs)
            return list(result) if streams else result

        async def run() -> Any:
            result = getattr(target, f"a{method}")(*args, **kwargs)
            return [item async for item in result] if streams else await result

        return asyncio.run(run())

    def collect(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The sum of a stream."""
        total: Any = None
        for piece in self(target, "stream", *args, **kwargs):
            total = piece if total is None else total + piece
        return total


def sse(*events: Any, done: bool = True) -> list[bytes]:
    """Server-sent events of these values."""
    lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return [*lines, b"data: [DONE]\n\n"] if done else lines


def delta(content: Any = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One event of a streamed chat completion."""
    piece = {"content": content, **fields} if content is not None else fields
    return {"choices": [{"index": 0, "delta": piece, "finish_reason": finish}]}


def completion(content: Any, finish: str | None = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    """A whole chat completion."""
    body = {"role": "assistant", "content": content, **message}
    whole: dict[str, Any] = {"choices": [{"index": 0, "message": body, "finish_reason": finish}]}
    return whole if usage is None else {**whole, "usage": usage}


def tool_call(name: str, arguments: Any, call_id: str | None = "c1", **more: Any) -> dict[str, Any]:
    """One tool call on the wire."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


class Model:
    """What the model says next, whole or streamed as it is asked, in the shape of the route.

    Calls to ``says`` are answers to consecutive requests.
    """

    def __init__(self, emulator: Emulator, route: str) -> None:
        self._emulator = emulator
        self.route = route

    def says(
        self, content: Any = "", finish: str | None = "stop", usage: Any = None, times: int | None = 1, **message: Any
    ) -> Model:
        """Answer the next request with this message."""
        native = self.route == "run"
        whole = _native(content, usage, message) if native else completion(content, finish, usage, **message)
        events = _native_events(content, usage, message) if native else _events(content, finish, usage, message)
        self._emulator.faults.add(
            Fault.reply(whole, stream=False, times=times), Fault.sse(sse(*events), stream=True, times=times)
        )
        return self

    @property
    def heard(self) -> list[Any]:
        """Bodies of the requests so far."""
        return [entry.json for entry in self._emulator.log.entries]


def _native(content: Any, usage: Any, message: dict[str, Any]) -> dict[str, Any]:
    result = {"response": content, **message, **({} if usage is None else {"usage": usage})}
    return {"result": result, "success": True, "errors": [], "messages": []}


def _native_events(content: Any, usage: Any, message: dict[str, Any]) -> list[dict[str, Any]]:
    last = {"response": "", **({} if usage is None else {"usage": usage})}
    return [{"response": content, **message}, last]


def _events(content: Any, finish: str | None, usage: Any, message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls") or ())]
    first = delta(content, role="assistant", **{**message, **({"tool_calls": calls} if calls else {})})
    return [first, delta(finish=finish), *([] if usage is None else [{"choices": [], "usage": usage}])]


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    """The caller, once sync and once async."""
    return Caller(request.param)


@pytest.fixture(params=["whole", "streamed"])
def ask(request: pytest.FixtureRequest, call: Caller) -> Callable[..., Any]:
    """Asks a model and gives its message: whole or added up from a stream, sync or async."""

    def whole(target: Any, /, *args: Any, **kwargs: Any) -> Any:
        return call(target, "invoke", *args, **kwargs)

    return whole if request.param == "whole" else call.collect


@pytest.fixture(params=["chat_completions", "run"])
def route(request: pytest.FixtureRequest) -> str:
    """The route to take."""
    return str(request.param)


@pytest.fixture
def model(emulator: Emulator, route: str) -> Model:
    """Scripts the answers, in the shape of the route."""
    return Model(emulator, route)
