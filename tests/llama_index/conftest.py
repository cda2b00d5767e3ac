"""LlamaIndex classes wired to the emulator, scripted replies, and one way to call sync and async."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.embeddings.workers_ai import WorkersAIEmbedding
from llama_index.llms.workers_ai import WorkersAI
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank

from workers_ai._limits.limiter import Limiter
from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ACCOUNT = "0123456789abcdef0123456789abcdef"
TOKEN = "token-of-the-tests-0123456789"


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
    """Waits of retries take no time, and the limiter's clock moves by them; the list has their seconds."""
    waited: list[float] = []
    monkeypatch.setattr("workers_ai._limits.limiter.Limiter", partial(Limiter, lambda: time.monotonic() + sum(waited)))

    async def asleep(seconds: float) -> None:
        waited.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr("workers_ai._flow.drivers.time.sleep", waited.append)
    monkeypatch.setattr("anyio.sleep", asleep)
    return waited


@pytest.fixture
def llm(emulator: Emulator) -> Callable[..., WorkersAI]:
    """Makes LLMs; keywords are settings."""
    return lambda **settings: WorkersAI(**wired(emulator, **settings))


@pytest.fixture
def embedding(emulator: Emulator) -> Callable[..., WorkersAIEmbedding]:
    """Makes embedding models; keywords are settings."""
    return lambda **settings: WorkersAIEmbedding(**wired(emulator, **settings))


@pytest.fixture
def reranker(emulator: Emulator) -> Callable[..., WorkersAIRerank]:
    """Makes rerankers; keywords are settings."""
    return lambda **settings: WorkersAIRerank(**wired(emulator, **settings))


class Caller:
    """Calls a method or its ``a``-twin; a stream comes back as a list."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __call__(self, target: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.mode == "sync":
            result = getattr(target, method)(*args, **kwargs)
            return list(result) if inspect.isgenerator(result) else result

        async def run() -> Any:
            result = await getattr(target, f"a{method}")(*args, **kwargs)
            return [item async for item in result] if inspect.isasyncgen(result) else result

        return asyncio.run(run())


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    """The caller, once sync and once async."""
    return Caller(request.param)


class _Recorder(BaseEventHandler):
    seen: list[Any]

    @classmethod
    def class_name(cls) -> str:
        return "Recorder"

    def handle(self, event: Any, **kwargs: Any) -> None:
        self.seen.append(event)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """Every event of LlamaIndex's instrumentation, in order."""
    root = get_dispatcher()
    recorder = _Recorder(seen=[])
    root.add_event_handler(recorder)
    yield recorder.seen
    root.event_handlers.remove(recorder)


class Script:
    """Replies in the place of the emulator's own, one for each request."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    def completion(self, message: dict[str, Any], *, finish: str = "stop", **fields: Any) -> None:
        """A whole reply of chat completions."""
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        self._emulator.faults.add(Fault.reply({"id": "id-1", "model": "m", "choices": [choice], **fields}))

    def native(self, result: Any) -> None:
        """A whole reply of the native route."""
        self._emulator.faults.add(Fault.reply({"result": result, "success": True, "errors": [], "messages": []}))

    def deltas(
        self, *deltas: dict[str, Any], finish: str | None = "stop", usage: Any = None, done: bool = True, **where: Any
    ) -> None:
        """A stream of chat completions; ``where`` binds it to certain requests."""
        lines = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        if finish:
            lines.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if usage:
            lines.append({"choices": [], "usage": usage})
        chunks = [f"data: {json.dumps(line)}\n\n".encode() for line in lines]
        self._emulator.faults.add(Fault.sse([*chunks, b"data: [DONE]\n\n"] if done else chunks, **where))

    def body(self, body: Any, *, status: int = 200, **fault: Any) -> None:
        """Exactly this body."""
        self._emulator.faults.add(Fault.reply(body, status=status, **fault))


@pytest.fixture
def script(emulator: Emulator) -> Script:
    """Scripted replies of the emulator."""
    return Script(emulator)


def tool_call(name: str, arguments: Any, call_id: str | None = "call-1", index: int | None = None) -> dict[str, Any]:
    """One entry of ``tool_calls``."""
    entry: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    if call_id is not None:
        entry["id"] = call_id
    if index is not None:
        entry["index"] = index
    return entry
