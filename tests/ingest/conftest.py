"""One interface to sync and async ingestion, against an emulator in this process, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.bulk_runs import VirtualTime, use_clock, virtual_time

from workers_ai import AsyncClient, Client
from workers_ai.ingest import IngestReport, aingest, ingest
from workers_ai_emulator import Emulator, QueueSettings

MODEL = "@cf/baai/bge-small-en-v1.5"


class Ingestor:
    """Run ``ingest`` or ``aingest`` on one ledger.

    Args:
        face: ``"sync"`` or ``"async"``.
        account: Credentials.
        emulator: The service, unless a call has another transport.
        ledger: The ledger, unless a call has another one.
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
            use_clock(client, self.clock)
            return ingest(documents, client=client, **options)
        aclient = AsyncClient(http_async_client=httpx.AsyncClient(transport=transport), **settings)
        use_clock(aclient, self.clock)
        return asyncio.run(aingest(documents, client=aclient, **options))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """Return virtual time."""
    return virtual_time(monkeypatch)


@pytest.fixture
def emulator() -> Emulator:
    """Return an emulator whose queue has every result at the first poll."""
    return Emulator(queue=QueueSettings("at_once"))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "corpus.ledger"


@pytest.fixture(params=["sync", "async"])
def run(
    request: pytest.FixtureRequest, account: dict[str, Any], emulator: Emulator, ledger: Path, clock: VirtualTime
) -> Ingestor:
    """Return a function that ingests. The test runs once sync and once async."""
    return Ingestor(request.param, account, emulator, ledger, clock)


@pytest.fixture
def texts() -> Callable[..., list[tuple[str, str]]]:
    """Return a function that returns a number of different documents."""

    def documents(count: int, first: int = 0) -> list[tuple[str, str]]:
        return [(f"doc-{number}", f"text number {number}") for number in range(first, first + count)]

    return documents


@pytest.fixture
def submitted(emulator: Emulator) -> Callable[[], list[list[list[str]]]]:
    """Return the texts of each request of each submission."""
    return lambda: [
        [request["text"] for request in entry.json["requests"]]
        for entry in emulator.log.entries
        if entry.route == "submit"
    ]
