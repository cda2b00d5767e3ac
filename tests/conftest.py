"""Fixtures for every test: no account in the environment, and no limiter state of another test."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx
import hypothesis
import pytest
from tests.support import thin_out

from workers_ai import AsyncClient, Client, RetryPolicy
from workers_ai._limits import limiter
from workers_ai.types import ChatDelta, ChatReply, EmbedReply, RerankScore

ACCOUNT = "0123456789abcdef0123456789abcdef"
TOKEN = "token-of-the-tests-0123456789"
AT_ONCE = RetryPolicy(max_retries=2, base_s=0.0)

Handler = Callable[[httpx.Request], httpx.Response]

# Every worker and child process imports up to 4,000 modules. Keep the compiled modules for the next run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A ledger waits for the disk at each commit, so keep the files of the tests in memory if there is space.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2 * 10**9:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# The same examples in every run, at any speed of the machine. tests/fuzz/run.py searches for new ones.
hypothesis.settings.register_profile(
    "suite",
    hypothesis.settings.get_profile("ci"),
    max_examples=int(os.environ.get("WORKERS_AI_FUZZ_EXAMPLES", "30")),
)
hypothesis.settings.load_profile("suite")


def pytest_configure() -> None:
    """Handle SIGINT as Python does, by another function, so that ``asyncio.run`` does not set its own handler.

    Setting it writes the repr of the task and of its result: a tenth of the time of an async test.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections, and exclude the items from later ones. Both would take seconds.

    Hypothesis must be imported before: it asks the collector for referrers.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run each row on one combination of axes, such as sync and route; on all with ``WORKERS_AI_ALL_AXES``."""
    if not os.environ.get("WORKERS_AI_ALL_AXES"):
        kept = thin_out(items)
        numbers = set(map(id, kept))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in numbers])
        items[:] = kept


@pytest.fixture(autouse=True)
def _nothing_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("CLOUDFLARE_", "CF_")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(limiter, "_limiters", {})


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses before a retry and between polls of the queue to a hundredth."""
    pause = anyio.sleep
    monkeypatch.setattr("time.sleep", lambda seconds: threading.Event().wait(seconds / 100))
    monkeypatch.setattr("anyio.sleep", lambda seconds: pause(seconds / 100))


@pytest.fixture
def account() -> dict[str, Any]:
    """Return the keywords that every client requires."""
    return {"account_id": ACCOUNT, "api_token": TOKEN}


class Face:
    """A client with the same methods for sync and async. Every async call runs in a new event loop.

    Args:
        mode: ``"sync"`` or ``"async"``.
        transport: An httpx transport, a function of the request, or None for real connections.
        settings: Settings of the client. Retries do not wait unless ``retry`` is set.
    """

    def __init__(self, mode: str, transport: Any, settings: Mapping[str, Any]) -> None:
        keywords: dict[str, Any] = {"account_id": ACCOUNT, "api_token": TOKEN, "retry": AT_ONCE, **settings}
        if transport is not None:
            if not isinstance(transport, httpx.BaseTransport):
                transport = httpx.MockTransport(transport)
            name, made = ("http_client", httpx.Client) if mode == "sync" else ("http_async_client", httpx.AsyncClient)
            keywords[name] = made(transport=transport)
        self.mode = mode
        if mode == "sync":
            self.client = Client(**keywords)
        else:
            self.aclient = AsyncClient(**keywords)

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        if self.mode == "sync":
            return getattr(self.client, name)(*args, **options)
        return asyncio.run(getattr(self.aclient, name)(*args, **options))

    def chat(self, *args: Any, **options: Any) -> ChatReply:
        return self._call("chat", *args, **options)

    def embed(self, *args: Any, **options: Any) -> EmbedReply:
        return self._call("embed", *args, **options)

    def rerank(self, *args: Any, **options: Any) -> list[RerankScore]:
        return self._call("rerank", *args, **options)

    def models(self, **filters: Any) -> list[dict[str, Any]]:
        return self._call("models", **filters)

    def stream(self, *args: Any, take: int | None = None, **options: Any) -> list[ChatDelta]:
        """Return all pieces of a stream, or the first ``take`` pieces and close the stream."""
        if self.mode == "sync":
            pieces = self.client.stream_chat(*args, **options)
            got = []
            for piece in pieces:
                got.append(piece)
                if len(got) == take:
                    pieces.close()
            return got

        async def collect() -> list[ChatDelta]:
            pieces = self.aclient.stream_chat(*args, **options)
            got = []
            async for piece in pieces:
                got.append(piece)
                if len(got) == take:
                    await pieces.aclose()
            return got

        return asyncio.run(collect())


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Callable[..., Face]:
    """Return a function that creates a :class:`Face`. The test runs once for each mode."""
    return lambda transport, **settings: Face(request.param, transport, settings)
