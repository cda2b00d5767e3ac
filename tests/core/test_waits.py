"""Every wait has a limit: gates, limits, deadlines, idle streams, and code that interrupts the holder of a lock."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import AT_ONCE, Face

from workers_ai import AsyncClient, Client, Limiter, RetryPolicy
from workers_ai import errors as e
from workers_ai._calls.chat import chat, plan_call
from workers_ai._calls.requests import Calls
from workers_ai._flow.drivers import adrive, drive
from workers_ai._flow.steps import Send, Sleep
from workers_ai._limits.gate import Gate
from workers_ai._limits.limiter import AccountLimiter, limiter_for
from workers_ai._limits.tickets import Ticket
from workers_ai._wire.request import Request
from workers_ai_emulator import Emulator

CHAT = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
PAID = "@cf/zai-org/glm-5.3"
HI = [{"role": "user", "content": "hi"}]
ASKING = Request("run/@cf/a", {}, "@cf/a", "chat")
EVENT = b'data: {"response":"a"}\n\n'

pytestmark = pytest.mark.timeout(100)


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers_ai._limits.tickets.IDLE_STREAM_S", 0.05)
    monkeypatch.setattr("workers_ai._limits.gate._LOCK_S", 0.05)


class Drip(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream without end."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield EVENT

    async def __aiter__(self) -> Any:
        while True:
            yield EVENT


def streaming(request: httpx.Request) -> httpx.Response:
    if b'"stream"' in request.content:
        return httpx.Response(200, stream=Drip(), headers={"content-type": "text/event-stream"})
    return httpx.Response(200, json={"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]})


def nested(one: Face, streams: int) -> str:
    """Open streams, read one piece of each, and make a call while they are open."""
    if one.mode == "sync":
        opened = [one.client.stream_chat(CHAT, HI) for _ in range(streams)]
        for stream in opened:
            next(stream)
        return one.client.chat(CHAT, HI).text

    async def run() -> str:
        opened = [one.aclient.stream_chat(CHAT, HI) for _ in range(streams)]
        for stream in opened:
            await anext(stream)
        try:
            return (await one.aclient.chat(CHAT, HI)).text
        finally:
            for stream in opened:
                await stream.aclose()

    return asyncio.run(run())


@pytest.mark.parametrize("limit", [1, 3])
def test_idle_streams_hold_no_slot(face: Callable[..., Face], limit: int) -> None:
    assert nested(face(streaming, max_concurrency=limit), limit) == "ok"


def test_idle_streams_do_not_fill_the_window_of_a_congested_model(face: Callable[..., Face]) -> None:
    one = face(streaming, on_busy="retry")
    client = one.client if one.mode == "sync" else one.aclient
    limiter = client._connection.calls.limiter
    rejected = Ticket(CHAT, "chat")
    limiter.wait_s(rejected)
    limiter.busy(rejected, 0.0, for_all=False)
    assert nested(one, 1) == "ok"


def test_the_error_of_a_wait_for_a_slot_explains_the_wait(
    face: Callable[..., Face], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers_ai._limits.tickets.IDLE_STREAM_S", 1000.0)
    with pytest.raises(e.APITimeoutError, match=r"max_concurrency=1 became free within timeout=0\.2 s"):
        nested(face(streaming, max_concurrency=1, timeout=0.2), 1)
    with pytest.raises(e.APITimeoutError, match=r"total_timeout=0\.1 s .*max_concurrency=1"):
        nested(face(streaming, max_concurrency=1, total_timeout=0.1), 1)


def test_a_gate_admits_in_the_order_of_arrival(clock: Any) -> None:
    gate, order = Gate(2), []
    holders = [Ticket("@cf/a", "chat") for _ in range(2)]
    assert [gate.wait_s(one, clock.now) for one in holders] == [0.0, 0.0]
    tickets = [Ticket("@cf/a", "chat") for _ in range(40)]
    assert all(gate.wait_s(one, clock.now) > 0 for one in tickets)
    waiting = list(tickets)
    for one in holders:
        gate.leave(one, clock.now)
    while waiting:
        random.shuffle(waiting)
        clock.now += 0.01
        admitted = [one for one in waiting if gate.wait_s(one, clock.now) == 0.0]
        order += sorted(one.number for one in admitted)
        for one in admitted:
            gate.leave(one, clock.now)
            waiting.remove(one)
    assert order == [one.number for one in tickets]


def test_a_rejected_call_keeps_its_number_at_the_gate(make_calls: Any, ok: Any, refusal: Any, clock: Any) -> None:
    calls: Calls = replace(make_calls(AccountLimiter(clock), policy=RetryPolicy(max_retries=2)), gate=Gate(1))
    first, second = calls.exchange(ASKING), calls.exchange(ASKING)
    assert isinstance(next(first), Send)
    assert isinstance(next(second), Sleep)
    assert isinstance(first.send(refusal(500, 3043)), Sleep)  # waits for its backoff without a slot
    clock.now += 20.0
    assert isinstance(next(first), Send)
    assert isinstance(next(second), Sleep)
    with pytest.raises(StopIteration):
        first.send(ok())
    clock.now += 1.0
    assert isinstance(next(second), Send)
    second.close()


@pytest.mark.parametrize("on_busy", ["wait", "retry"])
def test_a_call_rejected_at_capacity_is_admitted_before_new_calls(
    on_busy: str, make_calls: Any, refusal: Any, clock: Any
) -> None:
    calls = make_calls(AccountLimiter(clock), on_busy=on_busy)
    first = calls.exchange(ASKING)
    next(first)
    pause = first.send(refusal(429, 3040))
    clock.now += pause.seconds + 0.01
    newcomer = calls.exchange(ASKING)
    assert isinstance(next(newcomer), Sleep)
    assert isinstance(next(first), Send)
    first.close()
    newcomer.close()


def test_a_gate_holds_no_ticket_of_the_account(make_calls: Any, clock: Any) -> None:
    limiter = AccountLimiter(clock)
    calls = replace(make_calls(limiter), gate=Gate(1))
    flows = [calls.exchange(ASKING) for _ in range(5)]
    steps = [next(flow) for flow in flows]
    assert [type(step) for step in steps] == [Send, *[Sleep] * 4]
    assert limiter._models["@cf/a"].in_flight == 1
    for flow in flows:
        flow.close()
    assert limiter._models["@cf/a"].in_flight == 0
    assert [*calls.gate._holders, *calls.gate._waiting] == []


# --- limits per minute, and the total time ---


def test_a_limit_per_minute_raises_if_waiting_is_not_allowed(
    make_calls: Any, play: Any, refusal: Any, limiter_: AccountLimiter
) -> None:
    for settings in ({"on_busy": "raise"}, {"total_timeout": 30.0}):
        played = play(make_calls(limiter_, **settings).exchange(ASKING), [refusal(429, 3021)])
        assert (type(played.error), played.error.code, played.slept) == (e.RateLimitError, 3021, [])
    # Another call holds the slot. The wait would be too long, so nothing sleeps.
    holder = make_calls(limiter_).exchange(ASKING)
    next(holder)
    holder.send(refusal(429, 3021))
    played = play(make_calls(limiter_, total_timeout=30.0).exchange(ASKING), [])
    assert (type(played.error), played.slept) == (e.APITimeoutError, [])
    assert "total_timeout=30.0 s" in str(played.error)
    holder.close()


def test_requests_per_minute_raises_if_waiting_is_not_allowed(
    make_calls: Any, play: Any, ok: Any, limiter_: AccountLimiter
) -> None:
    calls = make_calls(limiter_, on_busy="raise", requests_per_minute=1)
    play(calls.exchange(ASKING), [ok()])
    played = play(calls.exchange(ASKING), [])
    assert (type(played.error), played.error.is_retryable, played.error.retry_after) == (e.RateLimitError, True, 60.0)


class SlowDrip(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that arrives too slowly."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            threading.Event().wait(0.02)
            yield b" "

    async def __aiter__(self) -> Any:
        while True:
            await asyncio.sleep(0.02)
            yield b" "


@pytest.mark.parametrize("media", ["application/json", "text/event-stream"])
def test_the_total_time_bounds_an_answer_that_keeps_coming(face: Callable[..., Face], media: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.extensions["timeout"]["read"] <= 0.3
        return httpx.Response(200, stream=SlowDrip(), headers={"content-type": media})

    one = face(answer, total_timeout=0.3)
    for call in (one.chat, one.stream):
        with pytest.raises(e.APITimeoutError, match=r"total_timeout is 0\.3 s"):
            call(CHAT, HI)


def test_all_requests_of_a_call_share_one_total_timeout(face: Callable[..., Face]) -> None:
    sent: list[None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(None)
        threading.Event().wait(0.1)
        return httpx.Response(200, json={"result": {"data": [[1.0, 2.0]]}, "success": True})

    with pytest.raises(e.APITimeoutError, match="total_timeout"):
        face(answer, total_timeout=0.35, max_concurrency=1).embed("@cf/baai/bge-m3", ["a"] * 30, batch_size=1)
    assert len(sent) < 10


@pytest.fixture
def limiter_(clock: Any) -> AccountLimiter:
    return AccountLimiter(clock)


def test_a_limit_of_one_model_delays_only_that_model(
    make_calls: Any, play: Any, ok: Any, refusal: Any, limiter_: AccountLimiter
) -> None:
    calls = make_calls(limiter_)
    paid = Request("v1/chat/completions", {}, PAID, "chat")
    holder = calls.exchange(paid)
    next(holder)
    holder.send(refusal(429, 3021))
    assert play(calls.exchange(Request("run/x", {}, CHAT, "chat")), [ok()]).slept == []
    assert play(calls.exchange(paid), [ok()]).slept[0] == 60.0
    holder.close()


def test_documented_limits_apply_from_the_start(make_calls: Any, limiter_: AccountLimiter, clock: Any) -> None:
    calls = make_calls(limiter_, requests_per_minute="documented")
    flows = [calls.exchange(Request("v1/chat/completions", {}, PAID, "chat")) for _ in range(25)]
    steps = [next(flow) for flow in flows]
    assert [type(step) for step in steps] == [*[Send] * 20, *[Sleep] * 5]
    assert all(step.seconds == 60.0 for step in steps[20:])
    for flow in flows:
        flow.close()


def test_state_of_idle_models_and_accounts_is_released(
    make_calls: Any, limiter_: AccountLimiter, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        one = Ticket(f"@cf/{number}", "chat")
        limiter_.wait_s(one)
        limiter_.limited(one, 60.0)
        clock.now += 61.0
    clock.now += 601.0
    assert [limiter_.wait_s(Ticket("@cf/a", "chat")) for _ in range(400)] == [0.0] * 400
    assert set(limiter_._models) == {"@cf/a"}
    monkeypatch.setattr("workers_ai._limits.limiter.AccountLimiter", lambda: AccountLimiter(clock))
    kept = limiter_for("u", "kept")
    limiter_for("u", "gone")
    clock.now += 601.0
    known = limiter_for("u", "new") and limiter_for.__globals__["_limiters"]
    gc.collect()
    limiter_for("u", "new")
    assert ("u", "gone") not in known
    assert limiter_for("u", "kept") is kept


# --- rate limiters of frameworks ---


def test_a_wait_for_a_rate_limiter_is_bounded_and_holds_no_ticket(face: Callable[..., Face]) -> None:
    one = face(streaming, timeout=0.1)
    never = threading.Event()

    async def anever() -> None:
        await asyncio.sleep(1000)

    connection = (one.client if one.mode == "sync" else one.aclient)._connection
    paced = connection.paced(lambda: never.wait(5), anever)
    plan = plan_call(paced.settings, CHAT, HI, {}, stream=False)
    run = drive if one.mode == "sync" else lambda *args: asyncio.run(adrive(*args))
    with pytest.raises(e.APITimeoutError, match=r"rate_limiter admitted no request within 0\.1 s"):
        run(chat(paced.calls, plan), paced.transport)
    never.set()
    assert CHAT not in connection.calls.limiter._models


# --- code that interrupts the holder of a lock ---


def test_an_abandoned_stream_in_a_reference_cycle_ends_while_the_lock_is_held(account: dict[str, Any]) -> None:
    client = Client(**account, http_client=httpx.Client(transport=httpx.MockTransport(streaming)), max_concurrency=2)
    calls = client._connection.calls
    stream: Any = client.stream_chat(CHAT, HI)
    next(stream)
    cycle: list[Any] = [stream]
    cycle.append(cycle)
    with calls.limiter._lock, calls.gate._lock:  # type: ignore[union-attr]
        del stream, cycle
        gc.collect()
    assert client.chat(CHAT, HI).text == "ok"
    assert calls.limiter._models[CHAT].in_flight == 0
    assert not calls.gate._holders  # type: ignore[union-attr]


def test_a_call_that_interrupts_the_holder_of_the_lock_continues(account: dict[str, Any]) -> None:
    """A signal handler on the main thread calls the client."""
    client = Client(**account, http_client=httpx.Client(transport=httpx.MockTransport(streaming)), max_concurrency=2)
    calls = client._connection.calls
    with calls.limiter._lock, calls.gate._lock:  # type: ignore[union-attr]
        assert client.chat(CHAT, HI).text == "ok"


class BadClose(Drip):
    def close(self) -> None:
        raise OSError("close failed")

    async def aclose(self) -> None:
        raise OSError("close failed")


def test_a_reply_whose_close_raises_releases_its_slots(face: Callable[..., Face]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=BadClose(), headers={"content-type": "text/event-stream"})

    one = face(answer, max_concurrency=1)
    for _ in range(3):
        assert len(one.stream(CHAT, HI, take=1)) == 1
    calls = (one.client if one.mode == "sync" else one.aclient)._connection.calls
    assert calls.limiter._models[CHAT].in_flight == 0
    assert not calls.gate._holders


def test_copies_share_callback_gate_and_limiter_and_deep_copies_have_their_own_gate(account: dict[str, Any]) -> None:
    one = Client(**account, on_retry=print, max_concurrency=3)._connection
    for twin in (copy.copy(one), one.paced(print, asyncio.sleep), one.for_call({"timeout": 3})):
        assert twin.calls.on_retry is print
        assert (twin.calls.gate, twin.calls.limiter) == (one.calls.gate, one.calls.limiter)
    deep = copy.deepcopy(one)
    assert deep.calls.on_retry is print
    assert deep.calls.limiter is one.calls.limiter
    assert deep.calls.gate is not one.calls.gate


def test_a_limiter_can_be_passed_in(account: dict[str, Any]) -> None:
    limiter = Limiter()
    client, other = (Client(**account, limiter=limiter) for _ in range(2))
    assert client._connection.calls.limiter is other._connection.calls.limiter
    restored = pickle.loads(pickle.dumps(client))
    assert restored._connection.calls.limiter is limiter_for(client.settings.base_url, client.settings.account_id)


# --- cancellations and event loops ---

CANCELLATIONS = int(os.environ.get("WORKERS_AI_CANCELLATIONS", "60"))
LOOPS = int(os.environ.get("WORKERS_AI_LOOPS", "10"))


def descriptors() -> int:
    """Return the number of open descriptors of this process; 0 if the system does not list them."""
    listed = Path("/proc/self/fd")
    return len(list(listed.iterdir())) if listed.is_dir() else 0


@pytest.mark.timeout(100 + CANCELLATIONS / 5 + LOOPS)
def test_random_cancellations_and_many_event_loops_leak_nothing(account: dict[str, Any]) -> None:
    """Run with ``WORKERS_AI_CANCELLATIONS=1000 WORKERS_AI_LOOPS=200`` for the long form."""
    chance = random.Random(7)
    with Emulator(latency_s=0.002).serve() as url:
        client = AsyncClient(base_url=url, **account, max_concurrency=4, on_busy="retry", retry=AT_ONCE)

        async def call() -> None:
            if chance.random() < 0.5:
                await client.chat(CHAT, HI)
            else:
                async for _ in client.stream_chat(CHAT, HI):
                    pass

        async def cancelled(count: int) -> None:
            tasks = [asyncio.create_task(call()) for _ in range(count)]
            for task in tasks:
                asyncio.get_running_loop().call_later(chance.random() * 0.02, task.cancel)
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.chat(CHAT, HI)

        asyncio.run(cancelled(4))
        gc.collect()
        before = descriptors()
        for _ in range(LOOPS):
            asyncio.run(cancelled(max(1, CANCELLATIONS // LOOPS)))
        gc.collect()
        after = descriptors()
    calls = client._connection.calls
    assert calls.limiter._models[CHAT].in_flight == 0
    assert [*calls.gate._holders, *calls.gate._waiting] == []
    assert after <= before + 4
