"""Runs in which texts, submissions or the service fail."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from workers_ai import AsyncClient, Client
from workers_ai._flow.concurrency import agather
from workers_ai._flow.steps import Do, Flow, Send
from workers_ai._wire.request import Request
from workers_ai.errors import (
    APIConnectionError,
    AuthenticationError,
    BadRequestError,
    BatchError,
    BatchItemError,
    BatchTimeoutError,
    CapacityError,
    InternalServerError,
    PaidPlanRequiredError,
    QuotaExhaustedError,
    RateLimitError,
    WorkersAIError,
)
from workers_ai.ingest import IngestReport, aingest, ingest
from workers_ai.ledger import _engine as engine
from workers_ai.ledger import _run as api
from workers_ai.ledger._ledger import Ledger
from workers_ai_emulator import Fault, ItemFailure

MODEL = "@cf/baai/bge-small-en-v1.5"
BAD = "text number 37"


@pytest.fixture(params=["queue", "direct"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


def rejecting(emulator: Any, bad: Callable[[bytes], bool], status: int, code: int) -> httpx.MockTransport:
    """Return a transport to the emulator that rejects request bodies for which ``bad`` is true."""
    refusal = {"success": False, "errors": [{"code": code, "message": "AiError: no"}], "result": None, "messages": []}

    def answer(request: httpx.Request) -> httpx.Response:
        if bad(request.content):
            return httpx.Response(status, json=refusal)
        return emulator.handle(request)

    return httpx.MockTransport(answer)


# Texts


def test_one_bad_text_does_not_affect_others(run: Any, texts: Any, emulator: Any, submitted: Any) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains=f'"{BAD}"', code=5004, message="not this one")]
    report = run(texts(150), max_concurrency=1)
    assert (report.embedded, report.failed) == (149, 1)
    assert report.failures == [("doc-37", 5004, "not this one", 37)]
    assert "doc-37" not in dict(report.vectors())
    sizes = [len(group) for requests in submitted() for group in requests if BAD in group]
    assert sizes == [100, 50, 25, 13, 6, 3, 1]


def test_a_rejected_text_does_not_fail_others(run: Any, texts: Any, emulator: Any) -> None:
    transport = rejecting(emulator, lambda body: f'"{BAD}"'.encode() in body, 400, 5006)
    report = run(texts(150), mode="direct", transport=transport)
    assert report.embedded == 149
    assert [(failure.id, failure.code) for failure in report.failures] == [("doc-37", 5006)]
    assert emulator.log.texts_repeated == 0


def test_a_text_that_fails_a_whole_submission_is_found(run: Any, texts: Any, emulator: Any) -> None:
    transport = rejecting(emulator, lambda body: f'"{BAD}"'.encode() in body, 400, 5006)
    report = run(texts(1500), transport=transport)
    assert report.embedded == 1499
    assert [(failure.id, failure.code, failure.message) for failure in report.failures] == [("doc-37", 5006, "no")]
    assert emulator.log.texts_repeated == 0


@pytest.mark.parametrize("count", [1, 2, 60])
def test_a_corpus_of_bad_texts_is_reported_text_by_text(run: Any, texts: Any, emulator: Any, count: int) -> None:
    emulator.queue.settings.failures = [ItemFailure(code=5004)]
    report = run(texts(count))
    assert (report.embedded, report.failed) == (0, count)
    assert [failure.id for failure in report.failures] == [f"doc-{number}" for number in range(count)]


def test_a_run_ends_if_everything_is_rejected(run: Any, texts: Any, emulator: Any, mode: str) -> None:
    """A fault of all requests is not recorded as a failure of each text."""
    transport = rejecting(emulator, lambda body: b"request_id" not in body, 400, 5006)
    with pytest.raises(BadRequestError, match="code 5006"):
        run(texts(1100), mode=mode, transport=transport)
    report = run(texts(1100), mode=mode)
    assert (report.embedded, report.failed) == (1100, 0)


def test_a_transient_failure_is_retried_alone(run: Any, texts: Any, emulator: Any) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains=f'"{BAD}"', code=5001, times=7)]
    report = run(texts(100), max_concurrency=1)
    assert (report.embedded, report.failed) == (100, 0)
    assert emulator.log.times_embedded(BAD) == 8


def test_a_permanent_failure_is_tried_alone_twice(run: Any, texts: Any, emulator: Any) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains=f'"{BAD}"', code=5001)]
    report = run(texts(100), max_concurrency=1)
    assert [(failure.id, failure.code) for failure in report.failures] == [("doc-37", 5001)]
    assert emulator.log.times_embedded(BAD) == 8


def test_a_failed_text_is_tried_again_by_the_next_run(run: Any, texts: Any, emulator: Any) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains=f'"{BAD}"', code=5004)]
    assert run(texts(40)).failed == 1
    emulator.queue.settings.failures = []
    before = emulator.log.texts_embedded
    report = run(texts(40))
    assert (report.embedded, report.reused, report.failed) == (1, 39, 0)
    assert emulator.log.texts_embedded == before + 1


def test_every_document_with_a_failed_text_is_reported(run: Any, emulator: Any) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains='"bad"', code=5004, message="no")]
    report = run([("a", "bad"), ("b", "good"), ("c", "bad")])
    assert (report.embedded, report.reused, report.failed) == (1, 0, 2)
    assert report.failures == [("a", 5004, "no", 0), ("c", 5004, "no", 2)]
    assert [(row.id, row.vector is None) for row in report.rows()] == [("a", True), ("b", False), ("c", True)]


def test_failures_raise_on_request(run: Any, texts: Any, emulator: Any) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains=f'"{BAD}"', code=5004, message="not this one")]
    with pytest.raises(BatchItemError, match="1 of 40 inputs failed; the first: not this one") as caught:
        run(texts(40), raise_on_failure=True)
    error = caught.value
    assert (error.index, error.external_reference, error.code) == (37, "doc-37", 5004)
    emulator.queue.settings.failures = []
    assert run(texts(40), raise_on_failure=True).embedded == 1


@pytest.mark.parametrize(
    ("vectors", "says"),
    [
        ([[0.1, float("nan")]], "NaN"),
        ([[0.0, 0.0]], "all zeros"),
        ([[1e300, 1.0]], "float"),
        ([[0.1, 0.2], [0.3, 0.4]], "2 vectors for 1 texts"),
        ([], "no vectors"),
    ],
)
def test_invalid_vectors_are_never_stored(run: Any, ledger: Any, vectors: Any, says: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=json.dumps({"result": {"data": vectors}, "success": True}))

    report = run([("a", "text")], mode="direct", transport=httpx.MockTransport(answer))
    assert report.failed == 1
    assert says in report.failures[0].message
    with Ledger(ledger) as held:
        assert held.counts()["vectors"] == 0


# Submissions


def test_a_submission_that_is_too_large_is_halved(run: Any, emulator: Any) -> None:
    documents = [(number, f"{number} " + "x" * 10_000) for number in range(100)]
    emulator.queue.settings.max_bytes = 300_000
    report = run(documents)
    assert (report.embedded, report.failed) == (100, 0)
    assert emulator.log.texts_repeated == 0


def test_one_text_that_is_too_large_is_reported(run: Any, emulator: Any) -> None:
    documents = [(number, f"text {number}" * (40_000 if number == 5 else 1)) for number in range(20)]
    emulator.queue.settings.max_bytes = 150_000
    report = run(documents)
    assert report.embedded == 19
    assert [(failure.id, failure.code) for failure in report.failures] == [(5, 3006)]


def test_a_submission_that_the_queue_loses_is_sent_again(run: Any, texts: Any, emulator: Any) -> None:
    emulator.queue.settings.lose = 1
    report = run(texts(30))
    assert (report.embedded, report.failed, report.retries) == (30, 0, 1)
    assert emulator.queue.submitted == 2


def test_a_submission_that_fails_as_a_whole_is_sent_again(run: Any, texts: Any, emulator: Any) -> None:
    emulator.queue.settings.fail_batches = 1
    report = run(texts(30))
    assert (report.embedded, report.failed, report.retries) == (30, 0, 1)


def test_texts_that_the_queue_loses_three_times_are_reported(run: Any, texts: Any, emulator: Any) -> None:
    emulator.queue.settings.lose = 100
    report = run(texts(30))
    assert (report.embedded, report.failed) == (0, 30)
    assert "is unknown to the asynchronous queue" in report.failures[0].message
    assert emulator.queue.submitted == 3


def test_a_model_that_answers_at_once_is_supported(run: Any, texts: Any, emulator: Any) -> None:
    emulator.queue.settings.answers_at_once = True
    report = run(texts(30))
    assert report.embedded == 30
    assert emulator.log.routes["poll"] == 0


def test_results_are_matched_by_id(run: Any, texts: Any, emulator: Any) -> None:
    ordered = dict(run(texts(950)).vectors())
    emulator.queue.settings.shuffle = True
    shuffled = dict(run(texts(950), ledger=run.ledger.with_name("shuffled")).vectors())
    assert shuffled == ordered


def test_a_submission_whose_reply_is_lost_is_sent_again_once(run: Any, texts: Any, emulator: Any) -> None:
    emulator.faults.add(Fault.drop(route="submit"))
    report = run(texts(30), max_concurrency=1)
    assert (report.embedded, report.retries) == (30, 1)
    emulator.faults.add(Fault.drop(route="submit", times=2))
    with pytest.raises(APIConnectionError):
        run(texts(60), max_concurrency=1)
    assert run(texts(60)).embedded == 30


def test_failed_polls_are_retried(run: Any, texts: Any, emulator: Any) -> None:
    emulator.faults.add(Fault.html(502, route="poll", times=3), Fault.drop(route="poll"))
    report = run(texts(30), max_concurrency=1)
    assert (report.embedded, report.retries) == (30, 0)
    assert emulator.queue.submitted == 1


# The service


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.error(401, 10000, "no"), AuthenticationError),
        (Fault.error(429, 4006, "used up"), QuotaExhaustedError),
        (Fault.error(429, 3036, "used up"), QuotaExhaustedError),
        (Fault.error(403, 5035, "paid plan"), PaidPlanRequiredError),
    ],
)
def test_an_error_that_stops_the_run_raises_and_the_next_run_sends_the_rest(
    run: Any, texts: Any, emulator: Any, mode: str, fault: Fault, error: type[WorkersAIError]
) -> None:
    route = "submit" if mode == "queue" else "run"
    fault.route, fault.skip, fault.times = route, 2, None
    emulator.faults.add(fault)
    with pytest.raises(error):
        run(texts(1000), mode=mode, texts_per_job=100, max_concurrency=2)
    assert emulator.log.texts_embedded == 200
    emulator.faults.clear()
    report = run(texts(1000), mode=mode, texts_per_job=100)
    assert (report.embedded + report.reused, report.failed) == (1000, 0)
    assert (emulator.log.texts_embedded, emulator.log.texts_repeated) == (1000, 0)


def test_after_a_quota_error_no_text_is_paid_for_again(run: Any, texts: Any, emulator: Any) -> None:
    emulator.limits.neurons_per_day = 1.0
    with pytest.raises(QuotaExhaustedError) as caught:
        run(texts(3000), max_concurrency=1)
    assert caught.value.resets_at is not None
    emulator.limits.neurons_per_day = None
    report = run(texts(3000))
    assert report.embedded + report.reused == 3000
    assert report.reused >= 1000
    assert emulator.log.texts_repeated == 0


def test_a_deadline_error_lists_submissions_and_the_next_run_collects_them(
    run: Any, texts: Any, emulator: Any, ledger: Any
) -> None:
    emulator.queue.settings.progress = "never"
    with pytest.raises(BatchTimeoutError, match=r"the deadline of 60 s has passed") as caught:
        run(texts(40), texts_per_job=10, max_concurrency=2, deadline_s=60)
    ids = {job.request_id for job in emulator.queue.jobs}
    assert len(ids) == 4
    assert set(caught.value.request_ids) == ids
    with Ledger(ledger) as held:
        assert {(job.request_id, job.texts, job.alive) for job in held.in_flight()} == {(i, 10, False) for i in ids}
    emulator.queue.settings.progress = "at_once"
    report = run(texts(40), texts_per_job=10)
    assert report.embedded == 40
    assert emulator.queue.submitted == 4
    assert emulator.log.texts_repeated == 0


def test_a_job_that_never_ends_fails_after_a_day(
    run: Any, texts: Any, emulator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "JOB_DEADLINE_S", 5.0)  # a shorter day
    emulator.queue.settings.progress = "never"
    with pytest.raises(BatchTimeoutError, match="not finished after a day"):
        run(texts(5), max_concurrency=1)
    assert 5 < run.clock.now - 1000 < 7
    assert 6 <= emulator.log.routes["poll"] <= 9, "each wait is 1.7 times the one before"


def test_a_service_at_capacity_is_retried(run: Any, texts: Any, emulator: Any, mode: str) -> None:
    route = "submit" if mode == "queue" else "run"
    emulator.faults.add(Fault.busy(route=route, times=5))
    report = run(texts(300), mode=mode, texts_per_job=100, max_concurrency=1)
    assert (report.embedded, report.retries) == (300, 5)
    assert run.clock.now > 1000 + 0.5 * (2 + 4 + 8 + 16 + 32) - 1


def test_the_minute_of_a_rate_limit_is_waited_for(run: Any, texts: Any, emulator: Any) -> None:
    emulator.faults.add(Fault.error(429, 3021, "per minute", route="submit"))
    assert run(texts(3), max_concurrency=1).embedded == 3
    assert 59 <= run.clock.now - 1000 <= 125


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Fault.busy(), CapacityError), (Fault.error(503, 3043, "down"), InternalServerError),
     (Fault.error(429, None, "slow down", retry_after="7"), RateLimitError)],
)  # fmt: skip
def test_an_outage_ends_the_run_after_minutes(
    run: Any, texts: Any, emulator: Any, mode: str, fault: Fault, error: type[WorkersAIError]
) -> None:
    fault.times = None
    emulator.faults.add(fault)
    with pytest.raises(error):
        run(texts(500), mode=mode)
    assert 50 < run.clock.now - 1000 < 900
    emulator.faults.clear()
    assert run(texts(500), mode=mode).embedded == 500
    assert emulator.log.texts_repeated == 0


def test_the_cost_limit_is_never_exceeded(run: Any, texts: Any, emulator: Any) -> None:
    """2,000 texts of 4 tokens at $0.02 per million tokens cost $0.00016."""
    with pytest.raises(BatchError, match=r"the cost limit of \$0.0001 is reached: run the same call again"):
        run(texts(2000), limit_cost_usd=0.0001, texts_per_job=100, max_concurrency=2)
    assert 1000 < emulator.log.texts_embedded <= 1250
    report = run(texts(2000))
    assert report.embedded + report.reused == 2000
    assert emulator.log.texts_repeated == 0


# The caller


def test_an_error_of_the_source_ends_the_run_and_results_are_kept(run: Any, texts: Any, emulator: Any) -> None:
    def source() -> Iterator[tuple[str, str]]:
        yield from texts(2000)
        raise LookupError("no more of these")

    with pytest.raises(LookupError, match="no more of these"):
        run(source(), max_concurrency=1)
    sent = emulator.log.texts_embedded
    report = run(texts(2500))
    assert report.embedded + report.reused == 2500
    assert (emulator.log.texts_embedded, emulator.log.texts_repeated) == (2500, 0)
    assert sent >= 1000


def test_an_interrupt_leaves_a_usable_ledger(run: Any, texts: Any, emulator: Any, ledger: Any) -> None:
    def source() -> Iterator[tuple[str, str]]:
        yield from texts(2000)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(source(), max_concurrency=1)
    with Ledger(ledger) as held:
        assert all(job.request_id for job in held.in_flight())
    report = run(texts(2500))
    assert report.embedded + report.reused == 2500
    assert (emulator.log.texts_embedded, emulator.log.texts_repeated) == (2500, 0)


def test_a_cancelled_ingestion_leaves_a_usable_ledger(texts: Any, emulator: Any, ledger: Any, account: Any) -> None:
    async def cancelled() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def source() -> Iterator[tuple[str, str]]:
            yield from texts(1000)
            loop.call_soon_threadsafe(task.cancel)
            yield from texts(1000, 1000)

        async with httpx.AsyncClient(transport=emulator.transport()) as http:
            client = AsyncClient(http_async_client=http, **account)
            await aingest(source(), ledger=ledger, model=MODEL, client=client, progress=False)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    with Ledger(ledger) as held:
        assert all(job.request_id and not job.alive for job in held.in_flight())
    with httpx.Client(transport=emulator.transport()) as http:
        client = Client(http_client=http, **account)
        report = ingest(texts(2000), ledger=ledger, model=MODEL, client=client, progress=False)
    assert report.embedded + report.reused == 2000
    assert emulator.log.texts_repeated <= 1000, "more than the one submission that was being sent"


@pytest.mark.parametrize("size", [1, 200_000])
def test_replies_received_before_a_cancellation_are_stored(size: int) -> None:
    """Cancel after both replies arrived. The event wakes the first flow before the cancellation is delivered."""
    recorded: list[int] = []
    sent: list[Request] = []

    def flow(number: int) -> Flow[None]:
        yield Send(Request("models/search", None, "", "catalogue"))
        yield Do(lambda: recorded.append(number))

    class Sender:
        async def asend(self, request: Request, stream: bool) -> Any:
            sent.append(request)
            if len(sent) == 2:
                both.set()
                asyncio.get_running_loop().call_soon(task.cancel)
            else:
                await both.wait()
            return httpx.Response(200, content=bytes(size))

    async def main() -> None:
        nonlocal both
        both = asyncio.Event()
        await agather([flow(1), flow(2)], Sender(), 2)

    async def cancelled() -> None:
        nonlocal task
        task = asyncio.create_task(main())
        await task

    both: asyncio.Event
    task: asyncio.Task[None]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert sorted(recorded) == [1, 2]


def test_a_hanging_request_delays_no_later_run(
    texts: Any, emulator: Any, ledger: Any, account: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_WORKERS_END_S", 0.05)
    monkeypatch.setattr(engine, "_MAX_TURN_S", 0.05)
    sent, end, answered = threading.Event(), threading.Event(), threading.Event()

    def hanging(request: httpx.Request) -> httpx.Response:
        sent.set()
        end.wait(60)
        answered.set()
        return emulator.handle(request)

    def run(transport: Any, deadline_s: float | None = None) -> IngestReport:
        client = Client(http_client=httpx.Client(transport=transport), **account)
        return ingest(texts(1500), ledger=ledger, model=MODEL, client=client, progress=False, deadline_s=deadline_s)

    with pytest.raises(BatchTimeoutError):
        run(httpx.MockTransport(hanging), deadline_s=0.5)
    assert sent.is_set()
    assert run(emulator.transport()).embedded == 1500
    assert not answered.is_set()
    end.set()


@pytest.mark.parametrize("mode", ["queue", "direct"])
def test_an_interrupt_waits_for_no_request_that_hangs(
    texts: Any, emulator: Any, ledger: Any, account: Any, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    monkeypatch.setattr(api, "_INTERRUPTED_S", 0.05)
    end, answered = threading.Event(), threading.Event()

    def hanging(request: httpx.Request) -> httpx.Response:
        if b"text number 0" in request.content:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        end.wait(60)
        answered.set()
        return emulator.handle(request)

    client = Client(http_client=httpx.Client(transport=httpx.MockTransport(hanging)), **account)
    with pytest.raises(KeyboardInterrupt):
        ingest(texts(1000), ledger=ledger, model=MODEL, client=client, progress=False, mode=mode)
    assert not answered.is_set()
    end.set()
    with Ledger(ledger) as held:
        assert held.in_flight() == []


def test_a_second_interrupt_still_leaves_a_usable_ledger(
    run: Any, texts: Any, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine.Engine, "wait_for_workers", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(texts(10))
    with Ledger(ledger) as held:
        assert not any(job.alive for job in held.in_flight())
    assert run(texts(10)).failed == 0


def test_a_slow_source_does_not_delay_results(run: Any, texts: Any, emulator: Any, ledger: Any) -> None:
    """While the run waits for the source, finished submissions are collected."""
    collected = threading.Event()

    def answer(request: httpx.Request) -> httpx.Response:
        reply = emulator.handle(request)
        if b"responses" in reply.content:
            collected.set()
        return reply

    def source() -> Iterator[tuple[str, str]]:
        yield from texts(1000)
        assert collected.wait(100), "the first submission was not collected"
        yield from texts(1000, 1000)

    report = run(source(), max_concurrency=2, transport=httpx.MockTransport(answer))
    assert report.embedded == 2000
