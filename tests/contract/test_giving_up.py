"""Rule 15: closing or cancelling a call ends its request immediately."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from workers_ai import AsyncClient

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
HI = [{"role": "user", "content": "hi"}]
EVENT = b'data: {"response":"a"}\n\n'


class Endless(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream that continues until it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    def __iter__(self) -> Any:
        while True:
            yield EVENT

    async def __aiter__(self) -> Any:
        while True:
            yield EVENT
            await asyncio.sleep(0)

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("route", ["run", "chat_completions"])
@pytest.mark.parametrize("take", [1, 3])
def test_closing_a_stream_closes_its_reply(take: int, route: str, face: Any) -> None:
    body, headers = Endless(), {"content-type": "text/event-stream"}
    one = face(lambda request: httpx.Response(200, headers=headers, stream=body))
    assert [piece.text for piece in one.stream(MODEL, HI, api=route, take=take)] == ["a"] * take
    assert body.closed == 1


def test_a_stream_whose_task_is_cancelled_closes_its_reply(account: dict[str, Any]) -> None:
    body, headers, seen = Endless(), {"content-type": "text/event-stream"}, asyncio.Event()
    transport = httpx.MockTransport(lambda request: httpx.Response(200, headers=headers, stream=body))

    async def read() -> None:
        client = AsyncClient(**account, http_async_client=httpx.AsyncClient(transport=transport))
        async for _ in client.stream_chat(MODEL, HI):
            seen.set()

    async def main() -> None:
        task = asyncio.create_task(read())
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert body.closed == 1


@pytest.mark.parametrize("call", ["chat", "embed", "rerank"])
def test_a_cancelled_call_is_not_retried(call: str, account: dict[str, Any]) -> None:
    arguments = {"chat": (MODEL, HI), "embed": ("@cf/baai/bge-m3", ["a"]), "rerank": ("@cf/a", "q", ["a"])}
    requests, started = [], asyncio.Event()

    async def never(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        client = AsyncClient(**account, http_async_client=httpx.AsyncClient(transport=httpx.MockTransport(never)))
        task = asyncio.create_task(getattr(client, call)(*arguments[call]))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert len(requests) == 1
