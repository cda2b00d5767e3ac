"""Ingestion that reads the same sync and async, against an emulator in this process, in virtual time."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest
from tests.support import thin_out

from workers_ai import AsyncClient, Client
from workers_ai._flow import drivers as flow
from workers_ai._limits import limiter
from workers_ai.ingest import IngestReport, aingest, ingest
from workers_ai_emulator import Emulator, QueueSettings

MODEL = "@cf/baai/bge-small-en-v1.5"
_real_sleep = time.sleep  # noqa: TID251 - what virtual time falls back on
_real_asleep = anyio.sleep


class VirtualTime:
    """A clock that a wait advances; nothing sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self._pass(seconds)
        _real_sleep(0.0005)

    async def asleep(self, seconds: float) -> None:
        self._pass(seconds)
        await _real_asleep(0.0005)

    def _pass(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class Ingestor:
    """Runs ``ingest`` or ``aingest`` on one ledger.

    Args:
        face: ``"sync"`` or ``"async"``.
        account: Credentials.
        emulator: What answers, unless a call names another transport.
        ledger: The ledger, unless a call names another one.
        clock: Virtual time.
    """

    def __init__(
        self, face: str, account: dict[str, Any], emulator: Emulator, ledger: Path, clock: VirtualTime
    ) -> None:
        self.face, self.account, self.emulator, self.ledger, self.clock = face, account, emulator, ledger, clock

    def __call__(
        self,
        documents: Iterable[Any],
        *,
        transport: Any = None,
        max_concurrency: int = 4,
        max_retries: int = 0,
        on_busy: Any = "wait",
        **options: Any,
    ) -> IngestReport:
        transport = transport or self.emulator.transport()
        settings = {
            **self.account,
            "max_concurrency": max_concurrency,
            "max_retries": max_retries,
            "on_busy": on_busy,
        }
        options = {"ledger": self.ledger, "model": MODEL, "progress": False, **options}
        if self.face == "sync":
            client = Client(http_client=httpx.Client(transport=transport), **settings)
            self._in_virtual_time(client)
            return ingest(documents, client=client, **options)
        aclient = AsyncClient(http_async_client=httpx.AsyncClient(transport=transport), **settings)
        self._in_virtual_time(aclient)
        return asyncio.run(aingest(documents, client=aclient, **options))

    def _in_virtual_time(self, client: Client | AsyncClient) -> None:
        client._connection.calls.clock = self.clock
        client._connection.calls.limiter = limiter.AccountLimiter(self.clock)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    virtual = VirtualTime()
    monkeypatch.setattr(flow, "time", SimpleNamespace(sleep=virtual.sleep))
    monkeypatch.setattr(anyio, "sleep", virtual.asleep)
    return virtual


@pytest.fixture
def emulator() -> Emulator:
    """One whose queue has every result at the first poll."""
    return Emulator(queue=QueueSettings("at_once"))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "corpus.ledger"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test sync and async; a test with rows of its own runs all of them on one face."""
    if "run" in metafunc.fixturenames:
        rows = any(metafunc.definition.iter_markers("parametrize"))
        one = ("sync", "async")[zlib.crc32(metafunc.function.__name__.encode()) % 2]
        metafunc.parametrize("run", [one] if rows else ["sync", "async"], indirect=True)


@pytest.fixture
def run(
    request: pytest.FixtureRequest, account: dict[str, Any], emulator: Emulator, ledger: Path, clock: VirtualTime
) -> Ingestor:
    """Ingests; the test runs once for each face."""
    return Ingestor(request.param, account, emulator, ledger, clock)


@pytest.fixture
def texts() -> Callable[..., list[tuple[str, str]]]:
    """Return a function that returns so many documents, all different."""

    def documents(count: int, first: int = 0) -> list[tuple[str, str]]:
        return [(f"doc-{number}", f"text number {number}") for number in range(first, first + count)]

    return documents


@pytest.fixture
def submitted(emulator: Emulator) -> Callable[[], list[list[list[str]]]]:
    """The texts of each request of each submission that was sent."""
    return lambda: [
        [request["text"] for request in entry.json["requests"]]
        for entry in emulator.log.entries
        if entry.route == "submit"
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests of LangChain's ingestion sync or async in turn, not both: the two share their flow."""
    here = Path(__file__).parent
    mine = [item for item in items if item.path.parent == here and item.path.name.startswith("test_langchain_")]
    kept = {id(item) for item in thin_out(mine, rows=1)}
    dropped = {id(item) for item in mine} - kept
    config.hook.pytest_deselected(items=[item for item in mine if id(item) in dropped])
    items[:] = [item for item in items if id(item) not in dropped]
