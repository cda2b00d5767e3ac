"""Four objects with fifty concurrent calls each, on a service with four slots that rejects all other requests.

Only time is virtual. Threads, event loops, clients and the emulator are real.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import httpx
import pytest
from tests.core.virtual_time import EmulatorClock, VirtualTime

from workers_ai import AsyncClient, Client
from workers_ai_emulator import Emulator

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
HI = [{"role": "user", "content": "hi"}]
OBJECTS, CALLS, SLOTS = 4, 50, 4
IDEAL_REQUESTS = OBJECTS * CALLS

Mode = Literal["threads", "loop", "own loops"]
MIXES: dict[str, list[Mode]] = {
    "threads": ["threads"] * OBJECTS,
    "one loop each": ["own loops"] * OBJECTS,
    "one loop for all": ["loop"] * OBJECTS,
    "threads and loops": ["threads", "threads", "own loops", "own loops"],
}


def jobs_of(
    mixes: list[Mode], virtual: VirtualTime, transport: Any, account: dict[str, Any], call: str, **settings: Any
) -> list[Callable[[], Any]]:
    """Return one job for each thread, and one for each event loop."""
    jobs: list[Callable[[], Any]] = []
    shared: list[AsyncClient] = []

    async def many(*clients: AsyncClient) -> list[Any]:
        asks = [_aask(client, call) for client in clients for _ in range(CALLS)]
        return await asyncio.gather(*asks, return_exceptions=True)

    for mode in mixes:
        if mode == "threads":
            client = Client(**account, **settings, http_client=httpx.Client(transport=transport))
            client._connection.calls.clock = virtual.now
            jobs += [lambda client=client: [_ask(client, call)]] * CALLS
            continue
        aclient = AsyncClient(**account, **settings, http_async_client=httpx.AsyncClient(transport=transport))
        aclient._connection.calls.clock = virtual.now
        if mode == "loop":
            shared.append(aclient)
        else:
            jobs.append(virtual.awaiting(lambda aclient=aclient: many(aclient)))
    if shared:
        jobs.append(virtual.awaiting(lambda: many(*shared)))
    return jobs


def _ask(client: Client, call: str) -> Any:
    if call == "chat":
        return client.chat(MODEL, HI).text
    return "".join(piece.text for piece in client.stream_chat(MODEL, HI))


async def _aask(client: AsyncClient, call: str) -> Any:
    if call == "chat":
        return (await client.chat(MODEL, HI)).text
    return "".join([piece.text async for piece in client.stream_chat(MODEL, HI)])


@pytest.mark.parametrize(
    ("mix", "call", "latency_s"),
    [
        (MIXES["threads"], "chat", 0.1),
        (MIXES["one loop each"], "stream", 2.0),
        (MIXES["one loop for all"], "chat", 0.1),
        (MIXES["threads and loops"], "stream", 2.0),
    ],
    ids=MIXES,
)
def test_no_call_fails_and_all_slots_are_used(
    mix: list[Mode], call: str, latency_s: float, virtual: VirtualTime, account: dict[str, Any]
) -> None:
    emulator = Emulator(clock=EmulatorClock(virtual), slots=SLOTS, latency_s=latency_s)
    jobs = jobs_of(mix, virtual, emulator.transport(), account, call, on_busy="retry")
    results = virtual.run(jobs)
    texts = [text for result in results for text in (result if isinstance(result, list) else [result])]
    assert [text for text in texts if not isinstance(text, str)] == []
    assert len(texts) == IDEAL_REQUESTS
    assert len(set(texts)) == 1
    assert len(emulator.log.entries) <= 1.3 * IDEAL_REQUESTS
    assert virtual.now() <= 1.5 * (IDEAL_REQUESTS * latency_s / SLOTS)
