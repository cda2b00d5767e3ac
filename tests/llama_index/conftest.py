"""Fixtures: LlamaIndex classes connected to the emulator, and scripted replies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.embeddings.workers_ai import WorkersAIEmbedding
from llama_index.llms.workers_ai import WorkersAI
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank
from tests.support import Caller, skip_waits, wired

from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def emulator() -> Emulator:
    """Return a new emulator whose clock does not sleep."""
    return Emulator(clock=Clock("jump"))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Skip all waits, and return the list that collects the skipped seconds."""
    return skip_waits(monkeypatch)


@pytest.fixture
def llm(emulator: Emulator) -> Callable[..., WorkersAI]:
    """Return a function that creates LLMs from settings."""
    return lambda **settings: WorkersAI(**wired(emulator, **settings))


@pytest.fixture
def embedding(emulator: Emulator) -> Callable[..., WorkersAIEmbedding]:
    """Return a function that creates embedding models from settings."""
    return lambda **settings: WorkersAIEmbedding(**wired(emulator, **settings))


@pytest.fixture
def reranker(emulator: Emulator) -> Callable[..., WorkersAIRerank]:
    """Return a function that creates rerankers from settings."""
    return lambda **settings: WorkersAIRerank(**wired(emulator, **settings))


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    """Return the caller, for sync and for async."""
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
    """Collect all events of LlamaIndex's instrumentation, in order."""
    root = get_dispatcher()
    recorder = _Recorder(seen=[])
    root.add_event_handler(recorder)
    yield recorder.seen
    root.event_handlers.remove(recorder)


class Script:
    """Script replies of the emulator, one per request."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    def completion(self, message: dict[str, Any], *, finish: str = "stop", **fields: Any) -> None:
        """Add a complete reply of chat completions."""
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        self._emulator.faults.add(Fault.reply({"id": "id-1", "model": "m", "choices": [choice], **fields}))

    def native(self, result: Any) -> None:
        """Add a complete reply of the native route."""
        self._emulator.faults.add(Fault.reply({"result": result, "success": True, "errors": [], "messages": []}))

    def deltas(
        self, *deltas: dict[str, Any], finish: str | None = "stop", usage: Any = None, done: bool = True, **where: Any
    ) -> None:
        """Add a stream of chat completions. ``where`` selects the requests that get it."""
        lines = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        if finish:
            lines.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if usage:
            lines.append({"choices": [], "usage": usage})
        chunks = [f"data: {json.dumps(line)}\n\n".encode() for line in lines]
        self._emulator.faults.add(Fault.sse([*chunks, b"data: [DONE]\n\n"] if done else chunks, **where))

    def body(self, body: Any, *, status: int = 200, **fault: Any) -> None:
        """Add a reply with this body."""
        self._emulator.faults.add(Fault.reply(body, status=status, **fault))


@pytest.fixture
def script(emulator: Emulator) -> Script:
    """Return the script of the emulator's replies."""
    return Script(emulator)


def tool_call(name: str, arguments: Any, call_id: str | None = "call-1", index: int | None = None) -> dict[str, Any]:
    """Return one entry of ``tool_calls``."""
    entry: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": arguments}}
    if call_id is not None:
        entry["id"] = call_id
    if index is not None:
        entry["index"] = index
    return entry
