"""Capacity, quota and limits."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.emulator.conftest import BGE, GEMMA, LLAMA, code_of, message_of, user

from workers_ai_emulator import Clock, Emulator

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.conftest import Api

REJECT = {"options": {"rejectIfBusy": True}}
DAY_S = 86_400


@pytest.mark.parametrize("route", ["native", "compat", "embeddings"])
def test_reject_if_busy_in_the_body_rejects_at_once(api: Api, route: str) -> None:
    api.emulator.capacity.slots = 0
    replies = {
        "native": lambda: api.run(LLAMA, {**user("hi"), **REJECT}),
        "compat": lambda: api.chat(GEMMA, stream=True, **REJECT),
        "embeddings": lambda: api.embed("a", **REJECT),
    }
    before = api.emulator.clock.now()
    reply = replies[route]()

    assert code_of(reply) == (429, 3040)
    assert "Capacity temporarily exceeded, please try again." in message_of(reply)
    assert before == api.emulator.clock.now()
    assert api.emulator.log.rejected == 1


@pytest.mark.parametrize(
    ("body", "query"),
    [
        ({}, ""),
        ({}, "?rejectIfBusy=true"),
        ({"rejectIfBusy": True}, ""),
        ({"options": {"rejectIfBusy": "true"}}, ""),
        ({"options": {"queueRequest": True}}, ""),
    ],
)
def test_other_requests_wait_and_then_fail(api: Api, body: dict[str, Any], query: str) -> None:
    api.emulator.capacity.slots = 0
    before = api.emulator.clock.now()

    assert code_of(api.run(BGE, {"text": "a", **body}, query)) == (429, 3040)
    assert pytest.approx(api.emulator.clock.now() - before) == 60


def test_reject_if_busy_can_be_turned_off_per_route(api: Api) -> None:
    api.emulator.settings.reject_on = ["chat_completions"]
    api.emulator.capacity.slots = 0
    before = api.emulator.clock.now()
    api.embed("a", **REJECT)

    assert api.emulator.clock.now() > before


def test_a_waiting_request_runs_after_the_busy_period(api: Api) -> None:
    api.emulator.capacity.busy_for(20)
    before = api.emulator.clock.now()

    assert api.embed("a").status_code == 200
    assert pytest.approx(api.emulator.clock.now() - before) == 20


def test_one_model_can_be_busy_while_others_answer(api: Api) -> None:
    api.emulator.capacity.set_model_slots(LLAMA, 0)

    assert code_of(api.chat(LLAMA, **REJECT)) == (429, 3040)
    assert api.chat(GEMMA, **REJECT).status_code == 200
    api.emulator.capacity.set_model_slots(LLAMA, None)
    assert api.chat(LLAMA, **REJECT).status_code == 200


def test_slots_limit_concurrency_and_all_requests_finish() -> None:
    emulator = Emulator(slots=4, latency_s=0.01)
    with (
        httpx.Client(transport=emulator.transport(), headers={"authorization": "Bearer t"}) as http,
        concurrent.futures.ThreadPoolExecutor(24) as pool,
    ):
        url = f"https://api.cloudflare.com/client/v4/accounts/acct/ai/run/{BGE}"
        statuses = list(pool.map(lambda _: http.post(url, json={"text": "a"}).status_code, range(48)))

    assert statuses == [200] * 48
    assert emulator.capacity.peak == 4
    assert (emulator.capacity.in_work, emulator.capacity.waiting) == (0, 0)


def test_a_stream_holds_its_slot_until_it_is_closed(make_api: Callable[..., Api]) -> None:
    api = make_api(slots=1)
    with api.http.stream("POST", f"/ai/run/{LLAMA}", json={**user("hi"), "stream": True}):
        assert code_of(api.chat(LLAMA, **REJECT)) == (429, 3040)

    assert api.chat(LLAMA, **REJECT).status_code == 200


def test_a_cancelled_wait_leaves_the_capacity_queue() -> None:
    emulator = Emulator(slots=0)
    with httpx.Client(transport=emulator.transport(), headers={"authorization": "Bearer t"}, timeout=0.02) as http:
        url = f"https://api.cloudflare.com/client/v4/accounts/acct/ai/run/{BGE}"
        with pytest.raises(httpx.ReadTimeout):
            http.post(url, json={"text": "a"})

    assert (emulator.capacity.waiting, emulator.log.running) == (0, 0)


def test_a_manual_clock_blocks_requests_until_it_advances() -> None:
    emulator = Emulator(clock=Clock("manual"), latency_s=30)
    done = threading.Event()

    def ask() -> None:
        with httpx.Client(transport=emulator.transport(), headers={"authorization": "Bearer t"}) as http:
            http.post(f"https://api.cloudflare.com/client/v4/accounts/a/ai/run/{BGE}", json={"text": "a"}, timeout=None)
        done.set()

    thread = threading.Thread(target=ask)
    thread.start()
    emulator.clock.advance(29)
    assert not done.wait(0.05)
    while not done.wait(0.01):
        emulator.clock.advance(1)
    thread.join()


def test_a_released_slot_ends_a_wait_on_a_manual_clock() -> None:
    emulator = Emulator(clock=Clock("manual"), slots=1)
    first = drain(emulator.capacity.enter("m", reject_if_busy=False))
    waiting = emulator.capacity.enter("m", reject_if_busy=False)
    next(waiting)
    emulator.clock.advance(10)
    next(waiting)
    first.release()

    assert emulator.capacity.in_work == 1
    drain(waiting).release()
    assert emulator.capacity.in_work == 0


def drain(flow: Any) -> Any:
    """Return the result of a flow without further waits."""
    try:
        next(flow)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the flow still waits")


@pytest.mark.parametrize("code", [4006, 3036])
def test_the_daily_allocation_is_reset_at_midnight_utc(make_api: Callable[..., Api], code: int) -> None:
    api = make_api(neurons_per_day=0.001, quota_code=code, clock=Clock("jump", start=10 * DAY_S + 60))
    first = api.chat(GEMMA)
    second = api.chat(GEMMA)
    api.emulator.clock.advance(DAY_S - 61)
    still = api.chat(GEMMA)
    api.emulator.clock.advance(1)

    assert first.status_code == 200
    assert [(429, code)] * 2 == [code_of(second), code_of(still)]
    assert "daily free allocation of 10,000 neurons" in message_of(second)
    assert api.chat(GEMMA).status_code == 200


def test_use_up_quota_exhausts_the_allocation(api: Api) -> None:
    api.emulator.limits.use_up_quota()

    assert code_of(api.embed("a")) == (429, 4006)


def test_requests_per_minute_are_counted_by_task(make_api: Callable[..., Api]) -> None:
    api = make_api(rpm={"Text Embeddings": 2})
    statuses = [api.embed("a").status_code for _ in range(3)]
    refused = api.embed("a")
    api.emulator.clock.advance(60)

    assert statuses == [200, 200, 429]
    assert code_of(refused) == (429, 3021)
    assert "rate limiting: inference request per min rate reached" in message_of(refused)
    assert api.chat(GEMMA).status_code == 200
    assert api.embed("a").status_code == 200


def test_a_paid_model_has_a_documented_limit_of_its_own(make_api: Callable[..., Api]) -> None:
    api = make_api(enforce_rpm=True)
    statuses = [api.chat("@cf/zai-org/glm-5.2").status_code for _ in range(21)]

    assert statuses == [200] * 20 + [429]
    assert api.chat("@cf/zai-org/glm-5.3").status_code == 200


def test_the_api_wide_limit_sends_retry_after(make_api: Callable[..., Api]) -> None:
    api = make_api(api_requests_per_5_min=2)
    statuses = [api.embed("a").status_code, api.http.get("/ai/models/search").status_code]
    refused = api.embed("a")
    api.emulator.clock.advance(299)
    still = api.embed("a")
    api.emulator.clock.advance(2)

    assert statuses == [200, 200]
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "300")
    assert refused.json()["result"] is None
    assert still.headers["retry-after"] == "1"
    assert api.embed("a").status_code == 200


def test_latency_moves_the_clock(make_api: Callable[..., Api]) -> None:
    api = make_api(latency_s=2.5)
    before = api.emulator.clock.now()
    api.embed("a")
    api.chat(GEMMA)

    assert pytest.approx(api.emulator.clock.now() - before) == 5.0
