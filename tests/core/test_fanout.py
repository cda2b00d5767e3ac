"""Many requests of one call: bounded, in order, and the first failure stops the rest."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import httpx
import pytest

from workers_ai import AsyncClient
from workers_ai import errors as e
from workers_ai._calls import requests

BGE = "@cf/baai/bge-small-en-v1.5"


def first_text(request: httpx.Request) -> str:
    return str(json.loads(request.content)["text"][0])


def vectors(request: httpx.Request, **more: Any) -> httpx.Response:
    texts = json.loads(request.content)["text"]
    result = {"data": [[float(text), 1.0] for text in texts], **more}
    return httpx.Response(200, json={"result": result, "success": True})


def refusal(status: int, code: int, **headers: str) -> httpx.Response:
    entry = {"message": "AiError: no", "code": code}
    return httpx.Response(status, headers=headers, json={"errors": [entry], "success": False, "result": {}})


@pytest.mark.parametrize("limit", [1, 3, 64])
def test_results_keep_the_order_of_the_texts_however_requests_end(limit: int, face: Any) -> None:
    gate, seen = threading.Barrier(3), 0

    def out_of_order(request: httpx.Request) -> httpx.Response:
        nonlocal seen
        seen += 1
        if limit > 1 and one.mode == "sync" and seen <= 3:
            gate.wait(timeout=60)  # fails unless three requests run at the same time
        return vectors(request)

    one = face(out_of_order, max_concurrency=limit)
    reply = one.embed(BGE, [str(number) for number in range(30)], batch_size=5)
    assert [vector[0] for vector in reply.vectors] == [float(number) for number in range(30)]
    assert seen == 6


def test_after_a_failure_no_request_starts(face: Any) -> None:
    seen: list[str] = []
    failed = threading.Event()

    def fail_the_second(request: httpx.Request) -> httpx.Response:
        seen.append(first_text(request))
        if first_text(request) == "1":
            failed.set()
            return refusal(400, 5006)
        if one.mode == "sync":
            failed.wait(timeout=60)
        return vectors(request)

    one = face(fail_the_second, max_concurrency=2)
    with pytest.raises(e.BadRequestError):
        one.embed(BGE, [str(number) for number in range(40)], batch_size=1)
    assert len(seen) < 10


class Together(httpx.AsyncBaseTransport):
    """Answers the first three requests at once, with large replies; counts the replies parsed before each request."""

    def __init__(self) -> None:
        self.parsed = 0
        self.parsed_before: list[int] = []
        self._all = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)  # as a socket does before it writes
        self.parsed_before.append(self.parsed)
        if len(self.parsed_before) == 3:
            self._all.set()
        await self._all.wait()
        return vectors(request, padding="x" * 200_000)


def test_the_next_request_is_sent_before_all_replies_are_parsed(
    account: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise replies that arrive together delay the next requests by the time that parsing all of them takes."""
    together, read = Together(), requests.read_reply

    def counting(*args: Any, **options: Any) -> Any:
        together.parsed += 1
        return read(*args, **options)

    monkeypatch.setattr(requests, "read_reply", counting)
    client = AsyncClient(http_async_client=httpx.AsyncClient(transport=together), max_concurrency=3, **account)
    asyncio.run(client.embed(BGE, [str(number) for number in range(6)], batch_size=1))
    assert together.parsed_before == [0, 0, 0, 1, 2, 3]


class BothInFlight:
    """Two requests at once: the first is rejected with a delay of half a minute, the second permanently."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.both, self.released = threading.Barrier(2), threading.Event()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(first_text(request))
        self.both.wait(timeout=60)
        if first_text(request) == "0":
            self.released.set()
            return refusal(429, 3040, **{"retry-after": "30"})
        assert self.released.wait(60)
        return refusal(400, 5006)

    async def awaiting(self, request: httpx.Request) -> httpx.Response:
        return await asyncio.to_thread(self, request)


def test_after_a_failure_no_other_flow_retries(face: Any) -> None:
    service = BothInFlight()
    one = face(service, max_concurrency=2)
    if one.mode == "async":
        one = face(service.awaiting, max_concurrency=2)
    began = time.monotonic()
    with pytest.raises(e.BadRequestError):
        one.embed(BGE, ["0", "1"], batch_size=1)
    assert time.monotonic() - began < 50
    assert not threading.Event().wait(0.4)  # longer than the interval of the check for a stop
    assert sorted(service.seen) == ["0", "1"]
