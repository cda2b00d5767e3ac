"""HTTP clients: one for sync, one per event loop; which of them are closed."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import httpx
import pytest
import trio

from workers_ai import AsyncClient, Client
from workers_ai import errors as e
from workers_ai._flow.drivers import adrive
from workers_ai._flow.steps import Do, Flow, Send
from workers_ai._transports.clients import KEPT_CONNECTIONS, Clients
from workers_ai._wire.request import Request
from workers_ai_emulator import Emulator, Fault

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
HI = [{"role": "user", "content": "hi"}]
STREAM = b'data: {"response":"a"}\n\ndata: {"response":"b"}\n\ndata: [DONE]\n\n'


@pytest.fixture
def url() -> Iterator[str]:
    """Return the URL of the emulator on a socket."""
    with Emulator().serve() as base_url:
        yield base_url


@pytest.fixture
def aclient(url: str, account: dict[str, Any]) -> AsyncClient:
    return AsyncClient(base_url=url, **account)


def test_httpx_is_imported_at_the_first_call() -> None:
    code = "import sys; from workers_ai import Client; Client(account_id='a', api_token='b'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"httpx", "anyio"} & set(done.stdout.split())


def test_one_client_in_two_event_loops_one_after_the_other(aclient: AsyncClient) -> None:
    for _ in range(2):
        assert asyncio.run(aclient.chat(MODEL, HI)).text
    gc.collect()  # an open resource would warn here, and warnings are errors


def test_one_client_in_the_loops_of_several_threads(aclient: AsyncClient) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(3):
                assert asyncio.run(aclient.chat(MODEL, HI)).text
        except BaseException as exc:  # noqa: BLE001 - reported below
            failures.append(exc)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    gc.collect()


def test_connections_are_kept_within_a_loop(url: str, aclient: AsyncClient) -> None:
    async def twice() -> bool:
        await aclient.chat(MODEL, HI)
        clients = await aclient._connection.transport._loop_clients()
        await aclient.chat(MODEL, HI)
        return clients is await aclient._connection.transport._loop_clients() and len(clients.created) == 1

    assert asyncio.run(twice())


async def test_concurrent_requests_keep_their_connections_and_no_cookies(account: dict[str, Any]) -> None:
    at_once, heads, served = 25, [], []  # httpx keeps 20 connections
    arrived = asyncio.Barrier(at_once)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                heads.append([tuple(line.lower().split(b": ", 1)) for line in head.split(b"\r\n")[1:-2]])
                await reader.readexactly(int(dict(heads[-1])[b"content-length"]))
                await arrived.wait()
                writer.write(b'HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 16\r\n\r\n{"response":"a"}')
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        async with AsyncClient(base_url=f"http://{host}", **account) as client:
            for _ in range(3):
                await asyncio.gather(*(client.chat(MODEL, HI) for _ in range(at_once)))
        assert len(served) == at_once
        await asyncio.gather(*served)  # each ends with its connection
    for head in heads:
        names = [name for name, _ in head]
        assert b"cookie" not in names
        assert len(names) == len(set(names))
        assert dict(head)[b"host"] == host.encode()
        assert dict(head)[b"content-type"] == b"application/json"


def test_an_open_stream_keeps_its_client_from_other_calls(url: str, account: dict[str, Any]) -> None:
    with Client(base_url=url, **account) as client:
        stream = client.stream_chat(MODEL, HI)
        next(stream)
        client.chat(MODEL, HI)
        clients = client._connection.transport._sync
        assert len(clients.created) == 2
        stream.close()
        list(client.stream_chat(MODEL, HI))
        client.chat(MODEL, HI)
        assert len(clients.created) == 2


def test_clients_that_keep_no_connection_are_used_last() -> None:
    made: list[int] = []
    clients: Clients[Any] = Clients(lambda kept: made.append(kept) or f"client {len(made)}")
    taken = [clients.take() for _ in range(KEPT_CONNECTIONS + 2)]
    assert made == [1] * KEPT_CONNECTIONS + [0, 0]
    for client in taken:
        clients.release(client)
    assert {clients.take() for _ in range(KEPT_CONNECTIONS)} == set(taken[:KEPT_CONNECTIONS])
    assert {clients.take(), clients.take()} == set(taken[KEPT_CONNECTIONS:])


@pytest.mark.parametrize("clean", [True, False], ids=["asyncio.run", "loop.close"])
def test_clients_of_a_closed_event_loop_are_released(clean: bool, account: dict[str, Any]) -> None:
    client = AsyncClient(**account, base_url="http://127.0.0.1:9", max_retries=0)

    async def fail() -> None:
        with pytest.raises(e.APIConnectionError):
            await client.chat(MODEL, HI)

    loops = []
    for _ in range(3):
        if clean:
            asyncio.run(fail())
            continue
        loop = asyncio.new_event_loop()
        loop.run_until_complete(fail())
        loop.close()
        loops.append(weakref.ref(loop))
        del loop
    asyncio.run(fail())
    gc.collect()
    assert [loop() for loop in loops] == [None] * len(loops)
    assert len(client._connection.transport._loops) == 0


def test_aclose_and_close_may_be_followed_by_another_call(url: str, account: dict[str, Any]) -> None:
    async def twice() -> None:
        async with AsyncClient(base_url=url, **account) as client:
            await client.chat(MODEL, HI)
            await client.aclose()
            assert (await client.chat(MODEL, HI)).text

    asyncio.run(twice())
    with Client(base_url=url, **account) as client:
        client.chat(MODEL, HI)
        client.close()
        assert client.chat(MODEL, HI).text


def test_trio_works_too(url: str, account: dict[str, Any]) -> None:
    async def main() -> tuple[str, str]:
        async with AsyncClient(base_url=url, max_concurrency=1, **account) as client:
            whole = await client.chat(MODEL, HI)
            pieces = [piece async for piece in client.stream_chat(MODEL, HI)]
            vectors = await client.embed("@cf/baai/bge-m3", [str(n) for n in range(250)])
        assert len(vectors.vectors) == 250
        return whole.text, "".join(piece.text for piece in pieces)

    whole, streamed = trio.run(main)
    assert whole == streamed != ""


@pytest.mark.parametrize("twin", [lambda one: pickle.loads(pickle.dumps(one)), copy.copy, copy.deepcopy])
def test_a_client_that_was_used_pickles_and_copies(twin: Callable[[Any], Any], url: str, account: Any) -> None:
    client = Client(base_url=url, **account)
    client.chat(MODEL, HI)
    again = twin(client)
    assert again.chat(MODEL, HI).text
    assert again.settings == client.settings
    asynchronous = AsyncClient(base_url=url, **account)
    asyncio.run(asynchronous.chat(MODEL, HI))
    assert asyncio.run(twin(asynchronous).chat(MODEL, HI)).text


def test_own_clients_are_used_for_their_half_with_our_url_and_credentials_and_never_closed(
    url: str, account: dict[str, Any]
) -> None:
    seen: list[httpx.Request] = []
    own = httpx.Client(
        auth=("me", "password"),
        headers={"x-own": "1"},
        base_url="https://elsewhere.example",
        timeout=1,
        event_hooks={"request": [seen.append]},
    )
    with Client(base_url=url, http_client=own, timeout=77, **account) as client:
        client.chat(MODEL, HI)
    (request,) = seen
    assert request.headers["authorization"] == "Bearer token-of-the-tests-0123456789"
    assert str(request.url).startswith(url)
    assert request.headers["x-own"] == "1"
    assert request.extensions["timeout"] == {"connect": 10.0, "read": 77, "write": 77, "pool": 77}
    assert not own.is_closed
    own.close()

    async def main() -> None:
        own = httpx.AsyncClient(auth=("me", "password"))
        async with AsyncClient(base_url=url, http_async_client=own, **account) as client:
            assert (await client.chat(MODEL, HI)).text
        assert not own.is_closed
        await own.aclose()

    asyncio.run(main())


def test_an_own_sync_client_is_not_used_for_async_calls(url: str, account: dict[str, Any]) -> None:
    never = httpx.Client(transport=httpx.MockTransport(lambda request: pytest.fail("used")))
    client = AsyncClient(base_url=url, http_client=never, **account)
    assert asyncio.run(client.chat(MODEL, HI)).text


class Gauge:
    """Count calls and streams that are open at the same time."""

    def __init__(self) -> None:
        self.open = self.peak = 0
        self.lock = threading.Lock()

    def change(self, by: int) -> None:
        with self.lock:
            self.open += by
            self.peak = max(self.peak, self.open)


class Gauged(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream that is open until it is closed."""

    def __init__(self, gauge: Gauge) -> None:
        self.gauge = gauge
        gauge.change(1)

    def __iter__(self) -> Iterator[bytes]:
        time.sleep(0.002)  # noqa: TID251 - waits for the other calls
        yield STREAM

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.sleep(0.002)
        yield STREAM

    def close(self) -> None:
        self.gauge.change(-1)

    async def aclose(self) -> None:
        self.gauge.change(-1)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_max_concurrency_bounds_calls_and_streams(mode: str, streamed: bool, account: dict[str, Any]) -> None:
    gauge = Gauge()

    def answer(request: httpx.Request) -> httpx.Response:
        if streamed:
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Gauged(gauge))
        gauge.change(1)
        time.sleep(0.002)  # noqa: TID251 - waits for the other calls
        gauge.change(-1)
        return httpx.Response(200, json={"response": "a"})

    transport = httpx.MockTransport(answer)
    if mode == "sync":
        client = Client(max_concurrency=3, http_client=httpx.Client(transport=transport), **account)

        def one() -> None:
            list(client.stream_chat(MODEL, HI)) if streamed else client.chat(MODEL, HI)

        threads = [threading.Thread(target=one) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        aclient = AsyncClient(max_concurrency=3, http_async_client=httpx.AsyncClient(transport=transport), **account)

        async def aone() -> None:
            if streamed:
                assert [piece async for piece in aclient.stream_chat(MODEL, HI)]
            else:
                await aclient.chat(MODEL, HI)

        async def main() -> None:
            await asyncio.gather(*(aone() for _ in range(12)))

        asyncio.run(main())
    assert 1 <= gauge.peak <= 3
    assert gauge.open == 0


@pytest.mark.parametrize(
    "fault",
    [Fault.cut(after_events=1), Fault.error_frame(3040), Fault.drop(), Fault.error(500), Fault.reply("<html>")],
    ids=lambda fault: fault.kind,
)
def test_a_failed_stream_releases_its_slot(fault: Fault, face: Any) -> None:
    emulator = Emulator()
    one = face(emulator.transport(), max_concurrency=1, max_retries=0, retry=None)
    emulator.faults.add(replace(fault))  # a fault counts the requests it applied to
    with pytest.raises(e.WorkersAIError):
        one.stream(MODEL, HI)
    assert one.stream(MODEL, HI)[-1].last
    one.stream(MODEL, HI, take=1)
    assert one.chat(MODEL, HI).text


class Held(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream that raises an interrupt, or waits forever, before its first piece."""

    def __init__(self, interrupt: type[BaseException], waits: asyncio.Event) -> None:
        self.interrupt = interrupt
        self.waits = waits

    def __iter__(self) -> Iterator[bytes]:
        raise self.interrupt
        yield b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.waits.set()
        await asyncio.Event().wait()
        yield b""


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, ZeroDivisionError, None])
def test_an_interrupted_stream_releases_its_slot(
    interrupt: type[BaseException] | None, account: dict[str, Any]
) -> None:
    waits = asyncio.Event()
    held = [Held(interrupt or SystemExit, waits)]

    def answer(request: httpx.Request) -> httpx.Response:
        if held:
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=held.pop())
        return httpx.Response(200, json={"response": "a"})

    transport = httpx.MockTransport(answer)
    done: list[str] = []
    if interrupt is not None:
        client = Client(max_concurrency=1, http_client=httpx.Client(transport=transport), **account)
        with pytest.raises(interrupt):
            list(client.stream_chat(MODEL, HI))
        worker = threading.Thread(target=lambda: done.append(client.chat(MODEL, HI).text), daemon=True)
        worker.start()
        worker.join(60)
    else:
        aclient = AsyncClient(max_concurrency=1, http_async_client=httpx.AsyncClient(transport=transport), **account)

        async def main() -> None:
            stream = asyncio.ensure_future(anext(aclient.stream_chat(MODEL, HI)))
            await waits.wait()
            stream.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stream
            done.append((await asyncio.wait_for(aclient.chat(MODEL, HI), 60)).text)

        asyncio.run(main())
    assert done == ["a"]


def test_a_cancelled_flow_sends_nothing_more_through_a_transport_that_never_waits() -> None:
    sent: list[Request] = []

    class Immediate:
        async def asend(self, request: Request, stream: bool) -> httpx.Response:
            sent.append(request)
            scope.cancel()
            return httpx.Response(200)

    def flow() -> Flow[None]:
        for _ in range(3):
            yield Do(lambda: None)
            yield Send(Request("run/m", {}, "m", "chat"))

    async def main() -> None:
        nonlocal scope
        with anyio.CancelScope() as scope:
            await adrive(flow(), Immediate())

    scope: Any = None
    asyncio.run(main())
    assert len(sent) == 1


def test_a_body_that_is_not_json_serializable_is_a_bad_request(face: Any) -> None:
    one = face(lambda request: pytest.fail("sent"))
    for params in [{"temperature": float("nan")}, {"extra_body": {"a": {1}}}]:
        with pytest.raises(e.BadRequestError, match="cannot be written as JSON"):
            one.chat(MODEL, HI, **params)


def test_a_lone_surrogate_changes_no_other_character(face: Any) -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json={"response": "a"})

    face(answer).chat(MODEL, [{"role": "user", "content": "a\ud83d\ude00b\ud800c"}])
    assert sent[0]["messages"][0]["content"] == "a😀b\ufffdc"


def test_headers_are_not_sent_to_a_redirect_target(account: dict[str, Any]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.host == "api.cloudflare.com"
        return httpx.Response(307, headers={"location": "https://evil.example/"})

    transport = httpx.MockTransport(answer)
    sync = Client(http_client=httpx.Client(transport=transport, follow_redirects=True), **account)
    with pytest.raises(e.BadRequestError) as caught:
        sync.chat(MODEL, HI)
    assert caught.value.status_code == 307
    own = httpx.AsyncClient(transport=transport, follow_redirects=True)
    with pytest.raises(e.BadRequestError):
        asyncio.run(AsyncClient(http_async_client=own, **account).chat(MODEL, HI))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
def test_a_forked_process_opens_its_own_connections(url: str, account: dict[str, Any]) -> None:
    client = Client(base_url=url, **account)
    client.chat(MODEL, HI)
    parent = client._connection.transport._sync
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns if a process with threads forks; the server has threads
        child = os.fork()
    if child == 0:
        fresh = client._connection.transport._sync is None and client.chat(MODEL, HI).text != ""
        os._exit(0 if fresh else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client._connection.transport._sync is parent


def test_the_timeout_of_the_settings_is_a_typed_error(account: dict[str, Any]) -> None:
    emulator = Emulator(latency_s=5.0)
    with emulator.serve() as base_url:
        client = Client(base_url=base_url, timeout=0.05, max_retries=0, **account)
        with pytest.raises(e.APITimeoutError, match=r"127\.0\.0\.1 did not answer in time while waiting for the resp"):
            client.chat(MODEL, HI)
        aclient = AsyncClient(base_url=base_url, timeout=0.05, max_retries=0, **account)
        with pytest.raises(e.APITimeoutError) as caught:
            asyncio.run(aclient.chat(MODEL, HI))
        assert (caught.value.is_retryable, caught.value.model) == (True, MODEL)


def test_a_refused_connection_is_a_typed_error(face: Any, account: dict[str, Any]) -> None:
    client = Client(base_url="http://127.0.0.1:9", max_retries=0, **account)
    with pytest.raises(e.APIConnectionError, match=r"no response from 127\.0\.0\.1"):
        client.chat(MODEL, HI)
    aclient = AsyncClient(base_url="http://127.0.0.1:9", max_retries=0, **account)
    with pytest.raises(e.APIConnectionError, match=r"no response from 127\.0\.0\.1"):
        asyncio.run(aclient.chat(MODEL, HI))


def test_a_single_body_is_sent_as_json(face: Any) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"response": "a"})

    face(answer).chat(MODEL, [{"role": "user", "content": "Zoë 🦊"}])
    assert sent[0].headers["content-type"] == "application/json"
    assert json.loads(sent[0].content.decode())["messages"][0]["content"] == "Zoë 🦊"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_no_exception_behind_an_error_holds_the_token(streamed: bool, face: Any) -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("broken", request=request)

    one = face(broken, max_retries=0)
    with pytest.raises(e.APIConnectionError) as caught:
        one.stream(MODEL, HI) if streamed else one.chat(MODEL, HI)
    behind: BaseException | None = caught.value.__context__
    seen = 0
    while behind is not None:
        if isinstance(behind, httpx.RequestError):
            assert "authorization" not in behind.request.headers
            seen += 1
        behind = behind.__context__
    assert seen


PROXIES = {"a scheme": {"HTTP_PROXY": "ftp://x"}, "a network": {"HTTP_PROXY": "http://x", "NO_PROXY": "[::1]"}}


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("given", PROXIES.values(), ids=PROXIES)
def test_an_environment_that_httpx_rejects_is_reported(
    given: dict[str, str], mode: str, account: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(e.ConfigurationError, match="NO_PROXY"):
        Client(**account).chat(MODEL, HI) if mode == "sync" else asyncio.run(AsyncClient(**account).chat(MODEL, HI))


def test_a_client_with_a_callback_that_does_not_pickle_pickles(account: dict[str, Any]) -> None:
    assert pickle.loads(pickle.dumps(Client(on_retry=lambda event: None, **account))).settings.max_retries == 2
