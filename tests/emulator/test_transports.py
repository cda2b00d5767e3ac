"""The emulator through every transport: in process, async, trio, ASGI, socket; and the control routes."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio
from tests.emulator.conftest import BASE, BGE, GEMMA, LLAMA, NATIVE, events_of, user
from tests.support import held

from workers_ai_emulator import Clock, Emulator, Fault
from workers_ai_emulator.state.log import Log, LogEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADERS = {"authorization": "Bearer token"}


@pytest.fixture
def served() -> Iterator[tuple[Emulator, httpx.Client]]:
    emulator = Emulator()
    with emulator.serve() as url, httpx.Client(base_url=f"{url}/accounts/acct", headers=HEADERS, verify=False) as http:
        yield emulator, http


async def astream(http: httpx.AsyncClient) -> list[Any]:
    async with http.stream("POST", f"/ai/run/{GEMMA}", json={**user("Hello"), "stream": True}) as reply:
        await reply.aread()
        return events_of(reply)


async def test_one_transport_serves_both_kinds_of_client() -> None:
    emulator = Emulator(clock=Clock("jump"))
    transport = emulator.transport()
    with httpx.Client(transport=transport, base_url=BASE, headers=HEADERS) as http:
        assert http.post(f"/ai/run/{BGE}", json={"text": "a"}).status_code == 200
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=HEADERS) as ahttp:
        assert (await ahttp.post(f"/ai/run/{BGE}", json={"text": "a"})).status_code == 200
        assert (await astream(ahttp))[-1] == "[DONE]"
    assert emulator.log.running == 0


@pytest.mark.parametrize("handler", ["handle", "ahandle"])
async def test_handle_works_with_httpx_mock_transport(handler: str) -> None:
    emulator = Emulator()
    transport = httpx.MockTransport(getattr(emulator, handler))
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=HEADERS) as http:
        assert (await http.post(f"/ai/run/{BGE}", json={"text": "a"})).status_code == 200


async def test_waiting_requests_do_not_block_the_event_loop() -> None:
    emulator = Emulator(latency_s=1, slots=50, clock=Clock("manual"))
    started = emulator.clock.now()
    async with httpx.AsyncClient(transport=emulator.transport(), base_url=BASE, headers=HEADERS) as http:
        with held(emulator, 100):
            replies = await asyncio.gather(*[http.post(f"/ai/run/{BGE}", json={"text": "a"}) for _ in range(100)])

    assert {200} == {reply.status_code for reply in replies}
    assert emulator.clock.now() - started >= 2
    assert emulator.capacity.peak == 50


async def test_a_cancelled_request_releases_its_slot() -> None:
    emulator = Emulator(latency_s=30, slots=1)
    async with httpx.AsyncClient(transport=emulator.transport(), base_url=BASE, headers=HEADERS) as http:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(http.post(f"/ai/run/{BGE}", json={"text": "a"}, timeout=None), 0.02)

    assert (emulator.capacity.in_work, emulator.log.running) == (0, 0)


async def test_the_clients_read_timeout_applies_in_the_process() -> None:
    emulator = Emulator(latency_s=30, clock=Clock("jump"))
    async with httpx.AsyncClient(transport=emulator.transport(), base_url=BASE, headers=HEADERS, timeout=2) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.post(f"/ai/run/{BGE}", json={"text": "a"})


async def test_a_stream_that_pauses_too_long_times_out() -> None:
    emulator = Emulator(clock=Clock("jump"))
    emulator.faults.add(Fault.slow(30, times=None))
    async with httpx.AsyncClient(transport=emulator.transport(), base_url=BASE, headers=HEADERS, timeout=2) as http:
        with pytest.raises(httpx.ReadTimeout):
            await astream(http)


def test_the_transport_works_with_trio() -> None:
    emulator = Emulator(latency_s=0.01)

    async def main() -> int:
        async with httpx.AsyncClient(transport=emulator.transport(), base_url=BASE, headers=HEADERS) as http:
            return (await http.post(f"/ai/run/{BGE}", json={"text": "a"})).status_code

    assert trio.run(main) == 200


async def test_the_asgi_transport() -> None:
    emulator = Emulator(latency_s=0.01)
    transport = httpx.ASGITransport(emulator.asgi())
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=HEADERS) as http:
        assert (await http.post(f"/ai/run/%40cf%2Fbaai/{BGE[9:]}", json={"text": "a"})).json()["result"]["shape"] == [
            1,
            768,
        ]
        assert (await astream(http))[-1] == "[DONE]"
        emulator.faults.add(Fault.drop())
        with pytest.raises(ConnectionResetError):
            await http.post(f"/ai/run/{BGE}", json={"text": "a"})


async def test_asgi_lifespan_is_answered() -> None:
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await Emulator().asgi()({"type": "lifespan"}, receive, send)

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_socket_and_process_return_the_same(served: tuple[Emulator, httpx.Client]) -> None:
    emulator, http = served
    with httpx.Client(transport=emulator.transport(), base_url=BASE, headers=HEADERS) as inside:
        for path, body in [
            (f"/ai/run/{BGE}", {"text": "a"}),
            (f"/ai/run/{NATIVE}", {**user("Hello"), "stream": False}),
        ]:
            assert inside.post(path, json=body).json() == http.post(path, json=body).json()


def test_a_stream_arrives_piece_by_piece(served: tuple[Emulator, httpx.Client]) -> None:
    emulator, http = served
    emulator.faults.add(Fault.slow(0.01))
    times = []
    with http.stream("POST", f"/ai/run/{LLAMA}", json={**user("Hello"), "stream": True}) as reply:
        assert reply.headers["transfer-encoding"] == "chunked"
        times = [time.perf_counter() for _ in reply.iter_raw()]

    assert times[-1] - times[0] > 0.04


def test_connections_are_kept_alive_and_dropped_by_a_fault(served: tuple[Emulator, httpx.Client]) -> None:
    emulator, http = served
    emulator.faults.add(Fault.drop(skip=2))
    assert [http.post(f"/ai/run/{BGE}", json={"text": "a"}).status_code for _ in range(2)] == [200, 200]
    with pytest.raises(httpx.RemoteProtocolError):
        http.post(f"/ai/run/{BGE}", json={"text": "a"})
    assert http.post(f"/ai/run/{BGE}", json={"text": "a"}).status_code == 200


def test_closing_a_stream_releases_its_slot(served: tuple[Emulator, httpx.Client]) -> None:
    emulator, http = served
    emulator.faults.add(Fault.slow(0.02))
    with http.stream("POST", f"/ai/run/{LLAMA}", json={**user("Hello"), "stream": True}) as reply:
        next(reply.iter_raw())
    until = time.monotonic() + 60
    while emulator.capacity.in_work and time.monotonic() < until:
        threading.Event().wait(0.01)

    assert emulator.capacity.in_work == 0


def test_a_chunked_request_and_an_expected_continue_are_read(served: tuple[Emulator, httpx.Client]) -> None:
    _, http = served
    body = (piece for piece in (b'{"text":', b'"a"}'))

    assert http.post(f"/ai/run/{BGE}", content=body).status_code == 200
    assert http.post(f"/ai/run/{BGE}", json={"text": "a"}, headers={"expect": "100-continue"}).status_code == 200


def test_invalid_http_closes_only_its_connection(served: tuple[Emulator, httpx.Client]) -> None:
    _, http = served
    with socket.create_connection((http.base_url.host, http.base_url.port or 0)) as raw:
        raw.sendall(b"nonsense\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400 ")

    assert http.post(f"/ai/run/{BGE}", json={"text": "a"}).status_code == 200


def test_a_stopped_server_closes_its_connections() -> None:
    emulator = Emulator()
    http = httpx.Client(headers=HEADERS)
    with emulator.serve() as url:
        assert http.post(f"{url}/accounts/acct/ai/run/{BGE}", json={"text": "a"}).status_code == 200
    with pytest.raises(httpx.TransportError):
        http.post(f"{url}/accounts/acct/ai/run/{BGE}", json={"text": "a"})
    http.close()


def test_a_hundred_connections_at_once() -> None:
    emulator = Emulator(latency_s=1, clock=Clock("manual"))

    async def main(url: str) -> None:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(
            base_url=f"{url}/accounts/acct", headers=HEADERS, limits=limits, timeout=100
        ) as http:
            await asyncio.gather(*[http.post(f"/ai/run/{BGE}", json={"text": "a"}) for _ in range(100)])

    with emulator.serve() as url, held(emulator, 100):
        asyncio.run(main(url))

    assert dict(emulator.log.statuses) == {200: 100}
    assert emulator.log.peak_concurrency == 100


def test_control_over_http(served: tuple[Emulator, httpx.Client]) -> None:
    emulator, http = served
    control = f"http://{http.base_url.host}:{http.base_url.port}/__emulator__"

    def post(path: str, body: Any) -> Any:
        return http.post(f"{control}/{path}", json=body).json()

    post(
        "faults", [{"kind": "error", "status": 429, "code": 3040, "times": None}, {"kind": "latency", "seconds": 0.001}]
    )
    assert [fault["kind"] for fault in http.get(f"{control}/faults").json()] == ["error", "latency"]
    assert http.post(f"/ai/run/{BGE}", json={"text": "a"}).status_code == 429
    assert http.delete(f"{control}/faults").json() == []
    assert (post("capacity", {"slots": 3, "max_wait_s": 5})["slots"], emulator.capacity.max_wait_s) == (3, 5)
    post("capacity", {"model_slots": {LLAMA: 0}, "busy_for": 0.0})
    assert post("limits", {"quota_code": 3036, "use_up_quota": True})["quota_code"] == 3036
    assert http.post(f"/ai/run/{BGE}", json={"text": "a"}).status_code == 429
    assert post("queue", {"polls": 9, "failures": [{"index": 1}], "expire": "x"})["polls"] == 9
    assert post("settings", {"latency_s": 2.5})["latency_s"] == 2.5
    before = emulator.clock.now()
    assert post("clock/advance", {"seconds": 3600})["now"] > before + 3599
    assert post("texts", {"texts": ["a"]}) == {"a": 0}
    assert len(http.get(f"{control}/log", params={"last": 5}).json()) == 2
    state = http.get(f"{control}/state").json()
    assert {"counters", "capacity", "limits", "queue", "faults", "settings", "now"} == set(state)
    assert post("reset", None) == {"reset": True}
    assert (emulator.log.requests, emulator.settings.latency_s, emulator.capacity.slots) == (0, 0.0, None)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("faults", {"kind": "error", "nope": 1}, 400),
        ("faults", {}, 400),
        ("capacity", {"slot": 1}, 400),
        ("settings", {"latency": 1}, 400),
        ("settings", {"hybrid_tool_calls": "nowhere"}, 400),
        ("queue", {"progress": "later"}, 400),
        ("clock/advance", {}, 400),
        ("nothing", {}, 501),
    ],
)
def test_an_invalid_control_request_returns_the_reason(path: str, body: Any, status: int) -> None:
    with httpx.Client(transport=Emulator().transport()) as http:
        reply = http.post(f"http://emulator/__emulator__/{path}", json=body)

    assert (status, "1") == (reply.status_code, reply.headers["x-workers-ai-emulator"])


def test_an_abrupt_interruption_drops_the_connection_inside_the_body(served: tuple[Emulator, httpx.Client]) -> None:
    emulator, http = served
    with httpx.Client(transport=emulator.transport(), base_url=BASE, headers=HEADERS) as inside:
        for client in (http, inside):
            emulator.faults.add(Fault.cut(2, abrupt=True))
            with (
                client.stream("POST", f"/ai/run/{LLAMA}", json={**user("Hello"), "stream": True}) as reply,
                pytest.raises(httpx.RemoteProtocolError),
            ):
                list(reply.iter_raw())
            assert reply.status_code == 200
            assert client.post(f"/ai/run/{BGE}", json={"text": "a"}).status_code == 200
    assert (emulator.capacity.in_work, emulator.log.running) == (0, 0)


async def test_an_abrupt_interruption_in_an_async_client() -> None:
    emulator = Emulator()
    emulator.faults.add(Fault.cut(2, abrupt=True))
    async with httpx.AsyncClient(transport=emulator.transport(), base_url=BASE, headers=HEADERS) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await astream(http)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://203.0.113.7"}, 403),
        ({"host": "[", "origin": "http://["}, 403),
        ({"origin": "http://localhost:5173"}, 200),
        ({"host": "emulator:8787"}, 200),
        ({}, 200),
    ],
)
def test_control_requests_of_other_sites_are_rejected(
    served: tuple[Emulator, httpx.Client], headers: dict[str, str], status: int
) -> None:
    emulator, http = served
    reply = http.post(f"{http.base_url.copy_with(path='/__emulator__/reset')}", headers=headers)

    assert reply.status_code == status
    assert emulator.log.requests == 0


def test_a_request_body_is_limited_while_it_is_read() -> None:
    emulator = Emulator(max_body_bytes=100_000)
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 500_000_000:
            sent += 65_536
            yield b"x" * 65_536

    with emulator.serve() as url, httpx.Client(headers=HEADERS) as http:
        try:
            reply = http.post(f"{url}/accounts/acct/ai/run/{BGE}", content=endless())
            assert (reply.status_code, reply.json()["errors"][0]["code"]) == (413, 3006)
        except httpx.WriteError:
            pass
        assert sent < 100_000_000
        assert len(emulator.log.last.body or b"") == 100_001
        assert emulator.log.last.code == 3006


@pytest.mark.parametrize(
    "begun", [b"", b"POST / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nab"]
)
def test_an_idle_connection_ends(begun: bytes) -> None:
    server = Emulator().serve(idle_s=0.05)
    with server as url, socket.create_connection((httpx.URL(url).host, httpx.URL(url).port or 0)) as raw:
        raw.settimeout(60)
        raw.sendall(begun)
        assert raw.recv(100) == b""


def test_head_and_empty_replies_are_valid_http(served: tuple[Emulator, httpx.Client]) -> None:
    emulator, http = served
    emulator.faults.add(Fault.reply(b"", status=204))

    assert http.post(f"/ai/run/{BGE}", json={"text": "a"}).status_code == 204
    assert http.head("/ai/models/search").content == b""
    assert http.post(f"/ai/run/{BGE}", json={"text": "a"}).status_code == 200


def test_the_log_is_limited() -> None:
    log = Log(max_entries=10, max_body_bytes=1_000)
    for number in range(100):
        headers = {f"h{index}": "v" * 5_000 for index in range(200)}
        log.add(LogEntry("POST", "/" * 9_000, {"q": "v" * 9_000}, headers, 0.0, body=b"x" * (number % 50)))

    assert len(log.entries) == 10
    assert len(log._bodies) <= 10
    assert log._body_bytes == sum(len(entry.body or b"") for entry in log.entries)
    assert sum(len(value) for value in log.last.headers.values()) <= 200_000
    assert (len(log.last.path), log.requests) == (2_000, 100)
