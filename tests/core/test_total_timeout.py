"""``total_timeout`` limits an exchange with a server that sends slowly, or sends endless headers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest

from workers_ai import AsyncClient, Client
from workers_ai import errors as e
from workers_ai._transports.total_timeout import bound

HI = [{"role": "user", "content": "hi"}]
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: "

# The first bytes of each server, and the bytes that it repeats.
SERVERS: dict[str, tuple[bytes, bytes]] = {
    "a head that drips": (b"HTTP/1.1 200 OK\r\nx-a: ", b"a"),
    "interim responses": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "a body that drips": (CHUNKED + b"application/json\r\n\r\n", b"1\r\n \r\n"),
    "a chunk size that drips": (CHUNKED + b"text/event-stream\r\n\r\n", b"0"),
    "comments in a stream": (CHUNKED + b"text/event-stream\r\n\r\n", b"3\r\n:\n\n\r\n"),
}


def _answer(connection: socket.socket, first: bytes, again: bytes, ended: threading.Event) -> None:
    with connection, suppress(OSError):
        connection.recv(65536)
        connection.sendall(first)
        while not ended.wait(0.01):
            connection.sendall(again)


@pytest.fixture
def serve() -> Iterator[Callable[[bytes, bytes], str]]:
    """Start servers that send the first bytes and then the others until the end of the test."""
    ended = threading.Event()
    threads: list[threading.Thread] = []
    sockets: list[socket.socket] = []

    def start(target: Callable[..., None], *args: Any) -> None:
        threads.append(thread := threading.Thread(target=target, args=args))
        thread.start()

    def accept(server: socket.socket, first: bytes, again: bytes) -> None:
        while not ended.is_set():
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            start(_answer, connection, first, again, ended)

    def serve(first: bytes, again: bytes) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        server.settimeout(0.05)
        sockets.append(server)
        start(accept, server, first, again)
        return f"http://127.0.0.1:{server.getsockname()[1]}/client/v4"

    yield serve
    ended.set()
    for thread in threads:
        thread.join(60)
    for server in sockets:
        server.close()


def test_no_reply_outlasts_total_timeout(serve: Callable[[bytes, bytes], str], account: dict[str, Any]) -> None:
    def end(url: str, *, stream: bool, is_async: bool) -> BaseException | None:
        settings = {**account, "base_url": url, "total_timeout": 0.2, "max_retries": 0}

        async def acall() -> None:
            async with AsyncClient(**settings) as client:
                if stream:
                    async for _ in client.stream_chat("@cf/a", HI):
                        pass
                else:
                    await client.chat("@cf/a", HI)

        try:
            if is_async:
                asyncio.run(acall())
            else:
                with Client(**settings) as client:
                    list(client.stream_chat("@cf/a", HI)) if stream else client.chat("@cf/a", HI)
        except e.WorkersAIError as exc:
            return exc
        return None

    with ThreadPoolExecutor(4 * len(SERVERS)) as pool:
        calls = {
            (name, stream, is_async): pool.submit(end, url, stream=stream, is_async=is_async)
            for name, sent in SERVERS.items()
            for url in [serve(*sent)]
            for stream in (False, True)
            for is_async in (False, True)
        }
        ends = {call: future.result(timeout=100) for call, future in calls.items()}
    assert {call: type(found) for call, found in ends.items()} == dict.fromkeys(ends, e.APITimeoutError)
    assert all("total_timeout is 0.2 s" in str(found) for found in ends.values())


def test_total_timeout_holds_through_a_proxy(
    serve: Callable[[bytes, bytes], str], account: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    proxy = serve(*SERVERS["a head that drips"])
    monkeypatch.setenv("HTTP_PROXY", proxy.removesuffix("/client/v4"))
    settings = {**account, "base_url": "http://service.example/client/v4", "allow_insecure_http": True}
    with (
        Client(**settings, total_timeout=0.2, max_retries=0) as client,
        pytest.raises(e.APITimeoutError, match=r"total_timeout is 0\.2 s"),
    ):
        client.chat("@cf/a", HI)


def test_a_pool_with_other_private_names_is_left_unchanged() -> None:
    with httpx.Client() as client:
        pool: Any = client._transport._pool  # type: ignore[attr-defined]
        del pool._network_backend
        bound(client)
        assert not hasattr(pool, "_network_backend")
