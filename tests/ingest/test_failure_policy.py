"""The failure policy and the polling queue."""

from __future__ import annotations

import pytest

from workers_ai.errors import BadRequestError, BatchItemError, CapacityError, InternalServerError, RateLimitError
from workers_ai.ledger._failure_policy import (
    ALONE_TRIES,
    LOST_TRIES,
    REJECTIONS,
    STRIKES,
    Health,
    Retry,
    after_failed_requests,
    after_lost_job,
)
from workers_ai.ledger._polling_queue import PendingJob, PollingQueue


def failure(code: int | None) -> BatchItemError:
    return BatchItemError("no", index=0, code=code)


@pytest.mark.parametrize(
    ("group", "tries", "part"),
    [
        ([1, 2], {1: (100, 0), 2: (100, 0)}, 1),
        ([1, 2, 3], {1: (100, 0), 2: (100, 0), 3: (100, 1)}, 2),
        (list(range(100)), dict.fromkeys(range(100), (100, 0)), 50),
        (list(range(1000)), dict.fromkeys(range(1000), (100, 0)), 50),
        (list(range(10)), {n: (3 if n == 4 else 100, 0) for n in range(10)}, 2),
    ],
)
def test_texts_that_fail_together_are_retried_in_halves(
    group: list[int], tries: dict[int, tuple[int, int]], part: int
) -> None:
    """The size of the failed request is halved, not that of the submission, which has many requests."""
    decision = after_failed_requests([(group, failure(5001))], tries)
    assert decision.failures == []
    assert decision.again == [Retry(part, tries[text_id][1], text_id) for text_id in group]


@pytest.mark.parametrize(
    ("code", "tries", "again"), [(5001, 0, True), (5001, 1, False), (None, 0, True), (None, 1, False), (5004, 0, False)]
)
def test_a_text_that_fails_alone(code: int | None, tries: int, again: bool) -> None:
    """It is retried once, unless its code is not retryable."""
    assert ALONE_TRIES == 2
    decision = after_failed_requests([([7], failure(code))], {7: (1, tries)})
    assert decision.again == ([Retry(1, tries + 1, 7)] if again else [])
    assert decision.failures == ([] if again else [(7, code, "no")])


def test_texts_that_are_lost_keep_the_size_of_their_requests() -> None:
    assert LOST_TRIES == 3
    lost = failure(None)
    lost.status_code = 404
    decision = after_lost_job(lost, {1: (100, 0), 2: (5, 1), 3: (100, 2)})
    assert decision.again == [Retry(100, 1, 1), Retry(5, 2, 2)]
    assert decision.failures == [(3, None, "no")]


def test_a_submission_that_fails_as_a_whole_is_split_into_smaller_ones() -> None:
    tries, group = dict.fromkeys(range(300), (100, 0)), range(300)
    parts = []
    while True:
        decision = after_lost_job(failure(None), {n: tries[n] for n in group})
        if decision.failures:
            break
        tries = {retry.input_id: (retry.part, retry.tries) for retry in decision.again}
        parts.append(tries[0][0])
        group = range(min(len(group), -tries[0][0])) if tries[0][0] < 0 else group
    assert (parts, decision.failures) == ([100, -100, -50, -25, -13, -7, -4, -2, -1], [(0, None, "no")])


@pytest.mark.parametrize("code", [3040, 3043, 3050, 3021, 3008])
def test_a_request_with_a_transient_error_is_not_halved(code: int) -> None:
    decision = after_failed_requests([([1, 2], failure(code))], {1: (100, 0), 2: (100, 0)})
    assert (decision.again, decision.failures) == ([Retry(100, 1, 1), Retry(100, 1, 2)], [])
    assert decision.waits is not None
    decision = after_failed_requests([([1, 2], failure(code))], {1: (100, STRIKES), 2: (100, STRIKES)})
    assert [retry.part for retry in decision.again] == [1, 1], "a text that fails like this every time is found"


@pytest.mark.parametrize("error", [failure(3036), failure(4006), BatchItemError("daily free allocation used", index=0)])
def test_an_exhausted_quota_is_not_recorded_as_a_failure_of_texts(error: BatchItemError) -> None:
    decision = after_failed_requests([([1, 2], error)], {1: (100, 0), 2: (100, 0)})
    assert (decision.again, decision.stops) == ([Retry(100, 0, 1), Retry(100, 0, 2)], error)


def test_consecutive_failures_back_off_and_end_the_run() -> None:
    health, now = Health(), 0.0
    waits = []
    for _ in range(STRIKES):
        waits.append(health.strike(InternalServerError("down"), now))
        now += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    with pytest.raises(InternalServerError):
        health.strike(InternalServerError("down"), now)


def test_failures_of_one_outage_count_once_for_all_workers() -> None:
    health = Health()
    assert health.strike(CapacityError("busy"), 0.0) == 1.0
    assert [health.strike(CapacityError("busy"), 0.25) for _ in range(20)] == [0.75] * 20


def test_a_success_resets_the_count_of_failures() -> None:
    health = Health()
    assert [health.strike(CapacityError("busy"), now) for now in (0.0, 1.0)] == [1.0, 2.0]
    health.succeed()
    assert health.strike(CapacityError("busy"), 3.0) == 1.0


@pytest.mark.parametrize(
    ("code", "retry_after", "wait"), [(None, 7.0, 7.0), (None, 3600.0, 60.0), (3021, None, 60.0), (3040, None, 1.0)]
)
def test_the_error_text_of_the_service_is_kept(code: int | None, retry_after: float | None, wait: float) -> None:
    error = RateLimitError("slower", code=code, status_code=429)
    error.retry_after = retry_after
    assert Health().strike(error, 0.0) == wait


def test_a_lost_reply_is_tolerated_once() -> None:
    health, error = Health(), InternalServerError("lost")
    health.unanswered(error)
    health.succeed()
    health.unanswered(error)
    with pytest.raises(InternalServerError):
        health.unanswered(error)


def test_rejections_of_everything_are_not_recorded_as_failures_of_texts() -> None:
    health, error = Health(), BadRequestError("no")
    for _ in range(REJECTIONS):
        health.rejected(error)
    with pytest.raises(BadRequestError):
        health.rejected(error)
    other = Health()
    other.succeed()
    for _ in range(10 * REJECTIONS):
        other.rejected(error)


def test_failed_requests_end_a_run_in_which_nothing_succeeds() -> None:
    full, single = (failure(5004), True), (failure(5004), False)
    health = Health()
    health.blame([single] * 60)
    health.blame([full] * 4)
    with pytest.raises(BatchItemError):
        health.blame([full])
    other = Health()
    other.blame([full] * REJECTIONS)
    with pytest.raises(BatchItemError):
        other.blame([full])
    fine = Health()
    fine.succeed()
    fine.blame([full, single] * 1000)


def test_jobs_are_polled_when_they_are_due() -> None:
    listed = PollingQueue()
    assert (len(listed), listed.take(0.0), listed.due_in(0.0, 5.0)) == (0, None, 5.0)
    for due in (3.0, 1.0, 2.0):
        listed.put(PendingJob(due, None, None, 0.0))  # type: ignore[arg-type]
    assert listed.take(0.5) is None
    assert [listed.due_in(now, 5.0) for now in (0.5, 1.0, 4.0, -9.0)] == [0.5, 0.0, 0.0, 5.0]
    assert [watched.due for watched in iter(lambda: listed.take(2.5), None)] == [1.0, 2.0]
    assert len(listed) == 1
