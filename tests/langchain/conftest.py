"""LangChain classes that send to the emulator, and scripted answers of its model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import Caller, skip_waits, wired

from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings
from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL = "@cf/openai/gpt-oss-120b"
NATIVE = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
VISION = "@cf/moonshotai/kimi-k2.6"


@pytest.fixture
def emulator() -> Emulator:
    """Return a new emulator whose clock jumps instead of sleeping."""
    return Emulator(clock=Clock("jump"))


@pytest.fixture(autouse=True)
def no_waiting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Skip all sleeps and collect their seconds, except in tests with the marker ``real_time``."""
    return [] if request.node.get_closest_marker("real_time") else skip_waits(monkeypatch)


@pytest.fixture
def chat(emulator: Emulator) -> Callable[..., ChatWorkersAI]:
    """Return a function that creates chat models from settings."""
    return lambda **settings: ChatWorkersAI(**wired(emulator, **{"model": MODEL, **settings}))


@pytest.fixture
def embeddings(emulator: Emulator) -> Callable[..., WorkersAIEmbeddings]:
    """Return a function that creates embedding models from settings."""
    return lambda **settings: WorkersAIEmbeddings(**wired(emulator, **{"model": "@cf/baai/bge-m3", **settings}))


def sse(*events: Any, done: bool = True) -> list[bytes]:
    """Return server-sent events of these values."""
    lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return [*lines, b"data: [DONE]\n\n"] if done else lines


def delta(content: Any = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return one event of a streamed chat completion."""
    piece = {"content": content, **fields} if content is not None else fields
    return {"choices": [{"index": 0, "delta": piece, "finish_reason": finish}]}


def completion(content: Any, finish: str | None = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    """Return a complete chat completion."""
    body = {"role": "assistant", "content": content, **message}
    whole: dict[str, Any] = {"choices": [{"index": 0, "message": body, "finish_reason": finish}]}
    return whole if usage is None else {**whole, "usage": usage}


def tool_call(name: str, arguments: Any, call_id: str | None = "c1", **more: Any) -> dict[str, Any]:
    """Return one tool call on the wire."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


class Model:
    """Scripted answers of the model, complete or streamed as requested, in the form of the route.

    Calls of ``says`` script the answers of consecutive requests.
    """

    def __init__(self, emulator: Emulator, route: str) -> None:
        self._emulator = emulator
        self.route = route

    def says(
        self, content: Any = "", finish: str | None = "stop", usage: Any = None, times: int | None = 1, **message: Any
    ) -> Model:
        """Script the answer to the next request."""
        native = self.route == "run"
        whole = _native(content, usage, message) if native else completion(content, finish, usage, **message)
        events = _native_events(content, usage, message) if native else _events(content, finish, usage, message)
        self._emulator.faults.add(
            Fault.reply(whole, stream=False, times=times), Fault.sse(sse(*events), stream=True, times=times)
        )
        return self

    @property
    def bodies(self) -> list[Any]:
        """Return the bodies of all requests."""
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
    """Return the caller, once sync and once async."""
    return Caller(request.param)


@pytest.fixture(params=["whole", "streamed"])
def ask(request: pytest.FixtureRequest, call: Caller) -> Callable[..., Any]:
    """Return a function that calls a model and returns its message: complete or the sum of a stream."""

    def whole(target: Any, /, *args: Any, **kwargs: Any) -> Any:
        return call(target, "invoke", *args, **kwargs)

    return whole if request.param == "whole" else call.collect


@pytest.fixture(params=["chat_completions", "run"])
def route(request: pytest.FixtureRequest) -> str:
    """Return the route of the call."""
    return str(request.param)


@pytest.fixture
def model(emulator: Emulator, route: str) -> Model:
    """Return scripted answers in the shape of the route."""
    return Model(emulator, route)
