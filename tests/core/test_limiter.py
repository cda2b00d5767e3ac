"""The shared limiter: a rejection of one call slows all calls of the account."""

from __future__ import annotations

import gc
import heapq
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from workers_ai import Client, RetryPolicy
from workers_ai._calls.requests import Calls
from workers_ai._flow.steps import Flow, Send, Sleep
from workers_ai._limits.limiter import AccountLimiter, limiter_for
from workers_ai._limits.tickets import Ticket
from workers_ai._wire.request import Request


def ticket(model: str = "@cf/a", task: str = "chat", **settings: Any) -> Ticket:
    return Ticket(model, task, **settings)


@pytest.fixture
def limiter(clock: Any) -> AccountLimiter:
    return AccountLimiter(clock)


def admitted(limiter: AccountLimiter, **settings: Any) -> Ticket:
    one = ticket(**settings)
    assert limiter.wait_s(one) == 0.0
    return one


def test_one_limiter_for_each_account_and_url(account: dict[str, Any]) -> None:
    first, second = Client(**account), Client(**account, max_retries=0)
    assert first._connection.calls.limiter is second._connection.calls.limiter
    elsewhere = Client(**account, base_url="https://other.example/client/v4")
    assert elsewhere._connection.calls.limiter is not first._connection.calls.limiter
    assert limiter_for("u", "a") is not limiter_for("u", "b")


def test_an_idle_account_delays_no_call(limiter: AccountLimiter) -> None:
    assert [limiter.wait_s(ticket()) for _ in range(500)] == [0.0] * 500


def test_a_rejection_delays_only_its_model_for_retry_after(limiter: AccountLimiter, clock: Any) -> None:
    limiter.busy(admitted(limiter), 5.0, for_all=True)
    assert limiter.wait_s(ticket()) == 5.0
    assert limiter.wait_s(ticket("@cf/b")) == 0.0
    assert limiter.wait_s(ticket("@cf/b", "embeddings")) == 0.0
    clock.now += 5.0
    assert limiter.wait_s(ticket()) == 0.0


def test_a_rejection_shrinks_the_window_to_the_served_requests(limiter: AccountLimiter) -> None:
    served = [admitted(limiter, rejects_if_busy=True) for _ in range(4)]
    limiter.busy(admitted(limiter, rejects_if_busy=True), 0.5, for_all=False)
    fifth = ticket(rejects_if_busy=True)
    assert limiter.wait_s(fifth) > 0.0
    limiter.done(served[0])
    assert limiter.wait_s(fifth) == 0.0
    assert limiter.wait_s(ticket(rejects_if_busy=True)) > 0.0


def test_a_rejected_call_does_not_try_a_larger_window(limiter: AccountLimiter, clock: Any) -> None:
    """Otherwise the call with the reserved slot would be rejected until its retries end."""
    served = [admitted(limiter, rejects_if_busy=True) for _ in range(4)]
    rejected = admitted(limiter, rejects_if_busy=True)
    limiter.busy(rejected, 60.0, for_all=False, returns=True)
    for _ in range(20):  # the window grows to 5
        limiter.done(served.pop(0))
        served.append(admitted(limiter, rejects_if_busy=True))
    clock.now += 60.0
    assert limiter.wait_s(rejected) > 0.0
    limiter.done(served.pop())
    assert limiter.wait_s(rejected) == 0.0


def test_recovery_is_gradual(limiter: AccountLimiter, clock: Any) -> None:
    served = [admitted(limiter, rejects_if_busy=True) for _ in range(4)]
    limiter.busy(admitted(limiter, rejects_if_busy=True), 0.5, for_all=False)

    def round_of_calls() -> int:
        """Serve the running requests. Return the number of requests that are admitted next."""
        clock.now += 1.0
        for one in served:
            limiter.done(one)
        served.clear()
        while limiter.wait_s(one := ticket(rejects_if_busy=True)) == 0.0:
            served.append(one)
        limiter.leave(one)
        return len(served)

    sizes = [round_of_calls() for _ in range(12)]
    assert sizes[0] == 4
    assert 5 <= sizes[-1] <= 8
    assert all(0 <= later - earlier <= 1 for earlier, later in itertools.pairwise(sizes))
    clock.now += 61.0  # no rejection for a minute: the window grows again
    assert [round_of_calls() for _ in range(3)][-1] >= 2 * sizes[-1]


def test_a_limit_per_minute_delays_only_its_task(limiter: AccountLimiter, clock: Any) -> None:
    limiter.limited(admitted(limiter), 60.0)
    assert limiter.wait_s(ticket()) == 60.0
    assert limiter.wait_s(ticket("@cf/b")) == 60.0
    assert limiter.wait_s(ticket("@cf/b", "embeddings")) == 0.0
    clock.now += 60.0
    assert limiter.wait_s(ticket()) == 0.0


def test_after_a_limit_per_minute_the_documented_rate_applies(limiter: AccountLimiter, clock: Any) -> None:
    limiter.limited(admitted(limiter), 60.0)
    clock.now += 60.0
    for _ in range(300):
        limiter.done(admitted(limiter))
    assert limiter.wait_s(ticket()) == 60.0
    clock.now += 59.0
    assert limiter.wait_s(ticket()) == 1.0
    clock.now += 1.0
    assert limiter.wait_s(ticket()) == 0.0


@pytest.mark.parametrize("may_wait", [True, False])
def test_the_requested_rate_limit_applies(may_wait: bool, limiter: AccountLimiter, clock: Any) -> None:
    own = {"requests_per_minute": 2, "may_wait": may_wait}
    limiter.done(admitted(limiter, **own))
    clock.now += 10.0
    limiter.done(admitted(limiter, **own))
    third = ticket(**own)
    assert limiter.wait_s(third) == 50.0
    assert limiter.wait_s(ticket(task="embeddings", **own)) == 0.0
    clock.now += 50.0
    assert limiter.wait_s(third) == 0.0


@pytest.mark.parametrize("model_limit", [None, 10])
def test_a_limit_per_minute_admits_calls_in_the_order_of_arrival(
    model_limit: int | None, limiter: AccountLimiter, clock: Any
) -> None:
    own = {"requests_per_minute": 10, "model_limit": model_limit}
    calls = [ticket(**own) for _ in range(35)]
    admitted: list[Ticket] = []
    due = [(0.0, call.number, call) for call in calls]
    cancelled = calls[12]
    while due:
        # Calls that are due at the same time check their tickets in reverse order. Only the limiter keeps the order.
        at = min(due)[0]
        clock.now = max(clock.now, at)
        now, due = [one for one in due if one[0] <= clock.now], [one for one in due if one[0] > clock.now]
        for _, _, call in sorted(now, key=lambda one: one[1]) if at == 0.0 else sorted(now, reverse=True):
            if wait := limiter.wait_s(call):
                due.append((clock.now + wait + 0.001, call.number, call))
            else:
                limiter.done(call)
                admitted.append(call)
        if cancelled in [one[2] for one in due]:
            limiter.leave(cancelled)
            due = [one for one in due if one[2] is not cancelled]
    assert [[call in admitted[i : i + 10] for call in calls].count(True) for i in (0, 10, 20)] == [10, 10, 10]
    calls.remove(cancelled)
    for minute in (0, 10, 20):
        assert set(admitted[minute : minute + 10]) == set(calls[minute : minute + 10])


def test_a_call_without_retries_never_waits_for_the_limiter(limiter: AccountLimiter) -> None:
    limiter.busy(admitted(limiter), 30.0, for_all=True)
    limiter.limited(admitted(limiter, may_wait=False), 60.0)
    assert limiter.wait_s(ticket()) > 0.0
    assert limiter.wait_s(ticket(may_wait=False)) == 0.0


LIMITS = [(3040, {"retry-after": "30"}, 30.0), (3021, {}, 60.0), (3021, {"retry-after": "9"}, 9.0)]
ASKING = Request("run/@cf/a", {}, "@cf/a", "chat")


@pytest.mark.parametrize(("code", "headers", "wait_s"), LIMITS)
def test_other_calls_wait_for_retry_after_unless_they_may_not_retry(
    code: int, headers: dict[str, str], wait_s: float, make_calls: Any, play: Any, ok: Any, refusal: Any,
    limiter: AccountLimiter,
) -> None:  # fmt: skip
    waits = make_calls(limiter).exchange(ASKING)
    assert isinstance(next(waits), Send)
    assert waits.send(refusal(429, code, headers=headers)).seconds == wait_s
    for settings in ({"max_retries": 0}, {"on_busy": "raise"}):
        assert play(make_calls(limiter, **settings).exchange(ASKING), [ok()]).slept == []
    assert play(make_calls(limiter).exchange(ASKING), [ok()]).slept == [wait_s]
    waits.close()


@pytest.mark.parametrize(("code", "headers", "wait_s"), LIMITS)
def test_a_call_that_stops_waiting_delays_no_other_call(
    code: int, headers: dict[str, str], wait_s: float, make_calls: Any, play: Any, ok: Any, refusal: Any,
    limiter: AccountLimiter,
) -> None:  # fmt: skip
    play(make_calls(limiter, max_retries=0).exchange(ASKING), [refusal(429, code, headers=headers)])
    assert play(make_calls(limiter).exchange(ASKING), [ok()]).slept == []


def test_a_short_sleep_does_not_delay_a_call_again(
    make_calls: Any, ok: Any, refusal: Any, limiter: AccountLimiter
) -> None:
    """If sleep is patched out, as in tests, the next request is sent at once, without spinning for a minute."""
    flow = make_calls(limiter).exchange(ASKING)
    next(flow)
    assert flow.send(refusal(429, 3021)) == Sleep(60.0)
    assert isinstance(next(flow), Send)  # although the clock did not advance
    with pytest.raises(StopIteration):
        flow.send(ok())


def test_waiting_calls_are_admitted_in_order_of_arrival(limiter: AccountLimiter, clock: Any) -> None:
    served = admitted(limiter, rejects_if_busy=True)
    limiter.busy(admitted(limiter, rejects_if_busy=True), 0.1, for_all=False)
    waiting = [ticket(rejects_if_busy=True) for _ in range(5)]
    for one in waiting:
        assert limiter.wait_s(one) > 0.0
    order = []
    while waiting:
        limiter.done(served)
        clock.now += 0.5
        for one in reversed(waiting):
            if limiter.wait_s(one) == 0.0:
                served = one
                order.append(one.number)
        waiting = [one for one in waiting if not one.in_flight]
    assert order == sorted(order)


def test_a_retried_call_keeps_its_number(limiter: AccountLimiter) -> None:
    first, second = admitted(limiter, rejects_if_busy=True), ticket(rejects_if_busy=True)
    limiter.busy(admitted(limiter, rejects_if_busy=True), 0.1, for_all=False)
    first.number = 1
    assert limiter.wait_s(second) > 0.0
    limiter.busy(first, 0.0, for_all=False)
    assert limiter.wait_s(first) == 0.0


def test_a_call_that_never_returns_does_not_block_the_rest(limiter: AccountLimiter, clock: Any) -> None:
    served = admitted(limiter, rejects_if_busy=True)
    limiter.busy(admitted(limiter, rejects_if_busy=True), 0.1, for_all=False)
    gone, here = ticket(rejects_if_busy=True), ticket(rejects_if_busy=True)
    assert limiter.wait_s(gone) > 0.0
    assert limiter.wait_s(here) > 0.0
    limiter.done(served)
    clock.now += 30.0
    assert any(limiter.wait_s(here) == 0.0 for _ in range(3))


@pytest.mark.parametrize("moment", ["waiting", "in flight", "between tries"])
def test_a_cancelled_call_leaves_no_trace(
    moment: str, make_calls: Any, ok: Any, refusal: Any, limiter: AccountLimiter
) -> None:
    request = Request("run/@cf/a", {}, "@cf/a", "chat")
    if moment == "waiting":
        limiter.busy(admitted(limiter), 3.0, for_all=True)
    flow = make_calls(limiter, on_busy="retry").exchange(request)
    step = next(flow)
    if moment == "between tries":
        step = flow.send(refusal(429, 3040))
    assert isinstance(step, Send if moment == "in flight" else Sleep)
    flow.close()
    lane = limiter._models["@cf/a"]
    assert (lane.in_flight, list(lane.waiting)) == (0, [])


def test_thousands_of_calls_leave_nothing_behind(limiter: AccountLimiter, clock: Any) -> None:
    for _ in range(2000):
        clock.now += 1.0
        limiter.done(admitted(limiter, model="@cf/many", requests_per_minute=1000))
        limiter.done(admitted(limiter, model="@cf/many", may_wait=False, requests_per_minute=1000))
    assert len(limiter._minutes["chat"].sent) <= 121
    gc.collect()
    # Threads of other tests may hold tickets of other models.
    assert not [one for one in gc.get_objects() if isinstance(one, Ticket) and one.model == "@cf/many"]


def test_counts_are_right_from_many_threads(limiter: AccountLimiter) -> None:
    def many() -> None:
        for _ in range(500):
            limiter.done(admitted(limiter))

    threads = [threading.Thread(target=many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert limiter._models["@cf/a"].in_flight == 0


class Service:
    """A service with a number of slots, in virtual time. It rejects requests without a free slot."""

    def __init__(self, clock: Any, slots: int, work_s: float, reject_s: float = 0.02) -> None:
        self.clock, self.slots, self.work_s, self.reject_s = clock, slots, work_s, reject_s
        self.in_work = self.requests = 0

    def run(self, flows: list[Flow[Any]], refuse: Callable[[], httpx.Response], ok: Callable[[], Any]) -> list[Any]:
        """Run all flows concurrently to their ends."""
        results: list[Any] = [None] * len(flows)
        order: Iterator[int] = itertools.count()
        events: list[tuple[float, int, int, Any]] = [(0.0, next(order), i, "begin") for i in range(len(flows))]
        heapq.heapify(events)
        start = self.clock.now
        while events:
            at, _, index, what = heapq.heappop(events)
            self.clock.now = start + at
            if what == "served":
                self.in_work -= 1
            try:
                step = self._go_on(flows[index], what, refuse, ok)
            except StopIteration as stop:
                results[index] = stop.value
                continue
            after, then = self._take(step)
            heapq.heappush(events, (at + after, next(order), index, then))
        return results

    def _go_on(self, flow: Flow[Any], what: str, refuse: Any, ok: Any) -> Any:
        if what == "served":
            return flow.send(ok())
        return flow.send(refuse()) if what == "rejected" else next(flow)

    def _take(self, step: Any) -> tuple[float, str]:
        if isinstance(step, Sleep):
            return step.seconds, "slept"
        self.requests += 1
        if self.in_work >= self.slots:
            return self.reject_s, "rejected"
        self.in_work += 1
        return self.work_s, "served"


@pytest.mark.parametrize(("slots", "work_s"), [(4, 1.0), (4, 0.1), (2, 5.0), (16, 0.5)])
def test_four_objects_with_fifty_calls_each_share_the_slots(
    slots: int, work_s: float, account: dict[str, Any], clock: Any, make_calls: Any, ok: Any, refusal: Any
) -> None:
    limiter = AccountLimiter(clock)
    objects: list[Calls] = [make_calls(limiter, on_busy="retry", policy=RetryPolicy(max_retries=8)) for _ in range(4)]
    request = Request("run/@cf/a", {}, "@cf/a", "chat")
    flows = [calls.exchange(request) for _ in range(50) for calls in objects]
    service = Service(clock, slots, work_s)
    began = clock.now
    results = service.run(flows, lambda: refusal(429, 3040), ok)
    assert all(result.data["success"] for result in results)
    assert service.requests <= 1.3 * 200
    assert clock.now - began <= 1.5 * (200 * work_s / slots)
