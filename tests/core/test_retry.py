"""When a failed call is retried, and when not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from tests.support import every_row

from workers_ai import errors as e
from workers_ai._wire.error_mapping import retry_after_s
from workers_ai._wire.request import Request
from workers_ai.retry import RetryPolicy

REQUEST = Request("run/@cf/a", {"messages": []}, "@cf/a", "chat")
BUSY = e.CapacityError("busy", status_code=429, code=3040)
PER_MINUTE = e.RateLimitError("limit", status_code=429, code=3021)


@every_row(("attempt", "bound_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 8.0), (40, 8.0)])
@every_row("drawn", [0.0, 0.25, 1.0])
def test_full_jitter_is_a_part_of_the_doubling_bound(attempt: int, bound_s: float, drawn: float) -> None:
    policy = RetryPolicy(max_retries=50, jitter=lambda: drawn)
    assert drawn * bound_s == policy.wait_s(attempt, BUSY)


def test_thousands_of_attempts_do_not_overflow_the_backoff() -> None:
    assert RetryPolicy(max_retries=5000, base_s=0.0, total_s=1e9).wait_s(4000, BUSY) == 0.0


@every_row(("asked_s", "waited_s"), [(0.0, 0.0), (1.5, 1.5), (60.0, 60.0), (61.0, 60.0), (86400.0, 60.0)])
def test_retry_after_of_the_service_is_honoured_up_to_a_minute(asked_s: float, waited_s: float) -> None:
    error = e.CapacityError("busy", status_code=429, code=3040, retry_after=asked_s)
    assert waited_s == RetryPolicy(jitter=lambda: 1.0).wait_s(1, error)


def test_a_limit_per_minute_waits_a_minute_unless_retry_after_is_set() -> None:
    policy = RetryPolicy(jitter=lambda: 0.0)
    events = e.RateLimitError("limit", status_code=429, code=3021, retry_after=7.0)
    plain = e.RateLimitError("limit", status_code=429)
    assert (policy.wait_s(1, PER_MINUTE), policy.wait_s(1, events), policy.wait_s(1, plain)) == (60.0, 7.0, 0.0)


@pytest.mark.parametrize(
    "error",
    [
        e.QuotaExhaustedError("gone", status_code=429, code=3036, retry_after=1.0),
        e.QuotaExhaustedError("gone", status_code=429, code=4006),
        e.BadRequestError("bad", status_code=400),
        e.StreamInterruptedError("cut"),
        e.APIResponseValidationError("odd"),
        e.BatchTimeoutError("late"),
    ],
)
def test_errors_that_are_not_retryable_are_not_retried(error: e.WorkersAIError) -> None:
    assert RetryPolicy(max_retries=99).wait_s(1, error) is None


def test_retries_end_after_max_retries() -> None:
    policy = RetryPolicy(max_retries=2, base_s=0.0)
    assert [policy.wait_s(attempt, BUSY) for attempt in (1, 2, 3)] == [0.0, 0.0, None]


def test_no_attempt_starts_after_total_timeout() -> None:
    policy = RetryPolicy(max_retries=9, total_s=100.0)
    assert policy.wait_s(1, PER_MINUTE, elapsed_s=40.0) == 60.0
    assert policy.wait_s(1, PER_MINUTE, elapsed_s=40.1) is None


NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)


@every_row(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=42), usegmt=True)}, 42.0),
        ({"retry-after": format_datetime(NOW - timedelta(hours=1), usegmt=True)}, 0.0),
        ({"retry-after": "Sun, 29 Nov 2026 12:00:09 -0000"}, 9.0),
        ({"retry-after": "later"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 21 Oct 99999999999999999999 07:28:00 GMT"}, None),
    ],
)
def test_retry_after_is_read_in_every_spelling(headers: dict[str, str], seconds: float | None) -> None:
    assert seconds == retry_after_s(httpx.Headers(headers), lambda: NOW)


def test_a_call_at_capacity_is_retried(make_calls: Any, play: Any, ok: Any, refusal: Any) -> None:
    played = play(make_calls().exchange(REQUEST), [refusal(429, 3040), refusal(500), ok()])
    assert played.result.data["result"] == {"response": "hi"}
    assert played.slept == [0.5, 1.0]
    assert played.sent == [REQUEST] * 3


@pytest.mark.parametrize("code", [3036, 4006])
def test_a_quota_error_is_raised_after_one_request_and_no_wait(
    code: int, make_calls: Any, play: Any, refusal: Any
) -> None:
    played = play(make_calls(max_retries=9).exchange(REQUEST), [refusal(429, code, headers={"retry-after": "1"})])
    assert isinstance(played.error, e.QuotaExhaustedError)
    assert (played.error.attempts, played.slept, len(played.sent)) == (1, [], 1)


@every_row(
    "answer",
    [
        lambda refusal: refusal(429, 3040),
        lambda refusal: refusal(408, 3007),
        lambda refusal: refusal(409),
        lambda refusal: refusal(503),
        lambda refusal: httpx.Response(524, text="<html><title>524: A timeout occurred</title></html>"),
        lambda refusal: httpx.ConnectError("refused"),
        lambda refusal: httpx.RemoteProtocolError("Server disconnected"),
        lambda refusal: httpx.ReadTimeout("slow"),
    ],
)
def test_max_retries_bounds_the_requests_and_the_error_counts_them(
    answer: Callable[[Any], Any], make_calls: Any, play: Any, refusal: Any
) -> None:
    once = play(make_calls(max_retries=0).exchange(REQUEST), [answer(refusal)])
    assert (once.error.attempts, len(once.sent), once.slept) == (1, 1, [])
    thrice = play(make_calls(max_retries=2).exchange(REQUEST), [answer(refusal) for _ in range(3)])
    assert (thrice.error.attempts, len(thrice.sent)) == (3, 3)
    assert "after 3 attempts" in str(thrice.error)
    assert thrice.error.is_retryable


def test_a_stream_is_retried_only_before_its_headers(make_calls: Any, play: Any, refusal: Any) -> None:
    opened = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=b"")
    played = play(make_calls().exchange(REQUEST, stream=True), [refusal(429, 3040), opened])
    assert played.result.stream is opened
    assert len(played.sent) == 2


def test_callback_and_log_report_every_wait(
    make_calls: Any, play: Any, ok: Any, refusal: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="workers_ai")
    events: list[Any] = []
    play(make_calls(on_retry=events.append).exchange(REQUEST), [refusal(429, 3040), refusal(502), ok()])
    assert [(e.CapacityError, 1, 0.5), (e.InternalServerError, 2, 1.0)] == [
        (type(event.error), event.attempt, event.wait_s) for event in events
    ]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split("retrying in ")[1][:6] for line in lines] == ["0.50 s", "1.00 s"]
    assert "code 3040" in lines[0]


def test_on_busy_raise_retries_only_other_failures(make_calls: Any, play: Any, ok: Any, refusal: Any) -> None:
    busy = play(make_calls(on_busy="raise").exchange(REQUEST), [refusal(429, 3040)])
    assert isinstance(busy.error, e.CapacityError)
    assert busy.slept == []
    failed = play(make_calls(on_busy="raise").exchange(REQUEST), [refusal(500), ok()])
    assert len(failed.sent) == 2


def test_an_unknown_exception_of_the_transport_is_raised_unchanged(make_calls: Any, play: Any) -> None:
    played = play(make_calls().exchange(REQUEST), [RuntimeError("a fault of ours")])
    assert str(played.error) == "a fault of ours"
