"""Queues with faults and both forms of results: every input has one answer, or an error with a reason."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from tests.generation.conftest import FakeJob, FakeQueue, Generator, first_prompt, inputs, prompt_of, refusal

from workers_ai.errors import (
    APIResponseValidationError,
    BatchError,
    BatchItemError,
    CapacityError,
    ConfigurationError,
    NotFoundError,
    QuotaExhaustedError,
    WorkersAIError,
)
from workers_ai_emulator import Emulator, QueueSettings

INPUTS, PER_JOB = 300, 30
BAD = "question number 77"


def shuffled(items: list[Any]) -> list[Any]:
    return random.Random(3).sample(items, len(items))


def renumbered(items: list[Any]) -> list[Any]:
    """Swap the indexes of all items; only the references are right."""
    name = "index" if "index" in items[0] else "id"
    return [{**item, name: len(items) - 1 - item[name]} for item in items]


class Foreign:
    """Give the first item of each job the reference of another input, once for each input."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, items: list[Any]) -> list[Any]:
        reference = items[0]["external_reference"]
        if reference in self.seen:
            return items
        self.seen.add(reference)
        return [{**items[0], "external_reference": "0" * 16}, *items[1:]]


def at_first(code: int, which: Callable[[str], bool]) -> Callable[[dict[str, Any]], Any]:
    """Fail some inputs the first time."""
    seen: set[str] = set()

    def answer(request: dict[str, Any]) -> Any:
        prompt = first_prompt(request)
        if which(prompt) and prompt not in seen:
            seen.add(prompt)
            return {"error": {"code": code, "message": "no"}}
        return f"answer to {prompt}"

    return answer


def failing(code: int, which: Callable[[str], bool]) -> Callable[[dict[str, Any]], Any]:
    def answer(request: dict[str, Any]) -> Any:
        prompt = first_prompt(request)
        return {"error": {"code": code, "message": "no"}} if which(prompt) else f"answer to {prompt}"

    return answer


def running(job: FakeJob) -> dict[str, Any]:
    return {"status": "running", "request_id": f"request-{job.number}", "model": "m"}


def has_bad(job: FakeJob) -> bool:
    return any(first_prompt(request) == BAD for request in job.requests)


@dataclass
class Case:
    """One fault.

    Attributes:
        queue: Arguments of the queue.
        ends: The error that ends the run, or None.
        failed: Ids of the inputs that fail.
        factor: Inputs that may be sent, as a multiple of the corpus.
    """

    queue: dict[str, Any]
    ends: type[WorkersAIError] | None = None
    failed: tuple[str, ...] = ()
    factor: float = 1.0


BY_HUNDREDS = ("id-0", "id-100", "id-200")

CASES = {
    "results, shuffled": Case({"order": shuffled}),
    "responses, shuffled": Case({"shape": "responses", "order": shuffled}),
    "no references, no usage": Case({"reference": False, "usage": False, "order": shuffled}),
    "responses without usage": Case({"shape": "responses", "usage": False}),
    "wrong indexes, right references": Case({"order": renumbered}),
    "a reference of another input": Case({"order": Foreign()}, factor=1.1),
    "slow jobs": Case({"poll": lambda job: running(job) if job.polls < 6 else None}),
    "items that fail": Case(
        {"answer": failing(5004, lambda prompt: prompt.endswith(("00", " 0")))},
        failed=BY_HUNDREDS,
        factor=1.02,
    ),
    "items at capacity": Case({"answer": at_first(3040, lambda prompt: prompt.endswith("7"))}, factor=1.2),
    "a lost job": Case(
        {"poll": lambda job: refusal(404, 5504, "AiError: Request not found in queue") if job.number == 4 else None},
        factor=1.1,
    ),
    "a job that fails": Case(
        {"poll": lambda job: {"status": "failed", "error": "died"} if job.number == 4 else None}, factor=1.1
    ),
    "an input that fails its job": Case(
        {"poll": lambda job: {"status": "failed", "error": "died"} if has_bad(job) else None},
        failed=("id-77",),
        factor=1.6,
    ),
    "an input that fails its submission": Case(
        {"accept": lambda job: refusal(400, 5006, "AiError: bad input") if has_bad(job) else None},
        failed=("id-77",),
    ),
    "submissions at capacity": Case(
        {"accept": lambda job: refusal(429, 3040, "AiError: Capacity temporarily exceeded") if job.number % 3 else None}
    ),
    "a page in place of an accepted submission": Case(
        {"accept": lambda job: httpx.Response(200, html="<html>soon</html>") if job.number in (0, 3) else None}
    ),
    "a submission without a request id": Case(
        {"accept": lambda job: httpx.Response(200, json={"result": {}}) if job.number == 0 else None}
    ),
    "pages in place of all accepted submissions": Case(
        {"accept": lambda job: httpx.Response(200, html="<html>soon</html>")}, ends=APIResponseValidationError
    ),
    "a model without a queue": Case(
        {"accept": lambda job: refusal(400, 8007, "AiError: This model does not support request queuing")},
        ends=ConfigurationError,
    ),
    "an unknown model": Case({"accept": lambda job: refusal(400, 5007, "No such model")}, ends=NotFoundError),
    "too large submissions": Case({"accept": lambda job: httpx.Response(413) if len(job.requests) > 20 else None}),
    "quota": Case(
        {
            "accept": lambda job: (
                refusal(429, 4006, "you have used up your daily free allocation") if job.number > 4 else None
            )
        },
        ends=QuotaExhaustedError,
    ),
    "every input fails": Case({"answer": failing(5004, lambda prompt: True)}, ends=BatchItemError, factor=1.1),
    "items always at capacity": Case({"answer": failing(3040, lambda prompt: True)}, ends=CapacityError, factor=9.0),
    "results without an answer": Case({"answer": lambda request: {"response": None}, "shape": "responses"}),
    "one id for all": Case(
        {"accept": lambda job: httpx.Response(200, json={"result": {"request_id": "one"}}) if job.number else None},
        ends=BatchError,
        factor=1.1,
    ),
}


@pytest.mark.parametrize(("name", "face"), [(name, ("sync", "async")[n % 2]) for n, name in enumerate(CASES)])
def test_a_hostile_queue(account: Any, ledger: Any, clock: Any, name: str, face: str) -> None:
    case, run = CASES[name], Generator(face, account, ledger, clock)
    queue = FakeQueue(**case.queue)
    source = inputs(INPUTS)
    began, clock.step_s = clock.now, 10.0
    if case.ends is not None:
        with pytest.raises(case.ends):
            run(source, queue, requests_per_job=PER_JOB)
    else:
        report = run(source, queue, requests_per_job=PER_JOB)
        assert tuple(failure.id for failure in report.failures) == case.failed
        assert (report.answered, report.failed) == (INPUTS - len(case.failed), len(case.failed))
        assert all(failure.message and failure.position == int(failure.id[3:]) for failure in report.failures)
        assert report.output_tokens == queue.output_tokens or not queue.usage
        texts = {answer.id: answer.text for answer in report.answers()}
        wanted = "" if name == "results without an answer" else "answer to {}"
        assert texts == {doc_id: None if doc_id in case.failed else wanted.format(text) for doc_id, text in source}
    assert len(queue.sent) <= case.factor * INPUTS
    assert clock.now - began < 2 * 3600
    healthy = FakeQueue(jobs=queue.jobs, submissions=1000)
    whole = run(source, healthy, requests_per_job=PER_JOB)
    assert (whole.answered + whole.reused, whole.failed) == (INPUTS, 0)
    assert len(queue.sent) + len(healthy.sent) <= case.factor * INPUTS + len(case.failed) + INPUTS * (
        case.ends is not None
    )


def test_runs_of_one_process_submit_one_after_the_other(account: Any, ledger: Any) -> None:
    """A kill then repeats at most one submission, for any number of runs on the ledger. In real time: turns expire."""
    active: list[int] = []
    overlaps: list[int] = []

    def accept(job: FakeJob) -> None:
        active.append(job.number)
        threading.Event().wait(0.01)
        overlaps.append(len(active))
        active.remove(job.number)

    queue = FakeQueue(accept=accept)
    runs = [
        threading.Thread(target=Generator(face, account, ledger, time.monotonic), args=(inputs(40, first), queue),
                         kwargs={"requests_per_job": 10})
        for face, first in (("sync", 0), ("sync", 40), ("async", 80))
    ]  # fmt: skip
    for thread in runs:
        thread.start()
    for thread in runs:
        thread.join()
    assert len(queue.sent) == 120
    assert set(overlaps) == {1}


@pytest.mark.parametrize("code", [8007, 10063, 5006])
def test_a_model_without_a_queue_at_the_service_ends_the_run(sync: Generator, code: int) -> None:
    emulator = Emulator(queue=QueueSettings(unsupported_code=code))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"has no asynchronous queue.*mode='direct'"):
        sync(
            inputs(60), emulator.transport(), requests_per_job=10, max_concurrency=1,
            model="@cf/ibm-granite/granite-4.0-h-micro",
        )  # fmt: skip
    assert emulator.log.requests == 1


@pytest.mark.parametrize("shape", ["results", "responses"])
def test_each_item_has_its_reference_in_the_request(sync: Generator, shape: str) -> None:
    queue = FakeQueue(shape=shape)
    report = sync([("a", "one"), ("b", "two")], queue, system="Be brief.", temperature=0)
    references = [body["external_reference"] for body in queue.bodies]
    assert references == [answer.hash.hex()[:16] for answer in report.answers()]
    assert queue.bodies[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
    ]
    assert (queue.bodies[0]["max_tokens"], queue.bodies[0]["temperature"]) == (100, 0)
    assert "stream" not in queue.bodies[0]


def test_usage_of_a_job_is_divided_by_the_length_of_answers(sync: Generator) -> None:
    def summed(job: FakeJob) -> dict[str, Any] | None:
        return {**queue.done(job), "usage": {"prompt_tokens": 100, "completion_tokens": 60, "total_tokens": 160}}

    queue = FakeQueue(
        shape="responses", usage=False, answer=lambda request: "x" * (10 if "1" in prompt_of(request) else 90)
    )
    queue.poll = summed
    report = sync([("a", "1"), ("b", "2")], queue)
    short, long = report.answers()
    assert (report.input_tokens, report.output_tokens) == (100, 60)
    assert short.usage
    assert long.usage
    assert short.usage.output_tokens < long.usage.output_tokens
    assert short.usage.output_tokens + long.usage.output_tokens in (59, 60)


@pytest.mark.parametrize("percent", [10, 50, 99])
def test_the_cost_limit_is_not_exceeded(sync: Generator, percent: int) -> None:
    """The fake model reports a token for four bytes and 12 to 100 tokens for an answer."""

    def answer(request: dict[str, Any]) -> Any:
        return {"response": "x", "tokens": 12 + int(prompt_of(request).split()[-1]) * 37 % 89}

    source = inputs(400)
    free = FakeQueue(answer)
    cost = sync(source, free, ledger=sync.ledger.with_name("free"), requests_per_job=20).cost_usd
    assert cost is not None
    queue, limit = FakeQueue(answer), cost * percent / 100
    with pytest.raises(BatchError, match="cost limit"):
        sync(source, queue, requests_per_job=20, limit_cost_usd=limit * 0.999)
    spent = (queue.input_tokens * 0.95 + queue.output_tokens * 4.0) / 1e6
    assert 0.5 * limit < spent <= limit
    rest = sync(source, queue, requests_per_job=20, limit_cost_usd=2 * cost)
    assert (rest.answered + rest.reused, len(queue.sent)) == (400, 400)


def test_json_of_every_form_is_read(sync: Generator) -> None:
    forms = ['{"n": 1}', '```json\n{"n": 1}\n```', 'Here you are: {"n": 1}', {"n": 1}]
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    queue = FakeQueue(lambda request: {"response": forms[int(prompt_of(request))]}, shape="responses")
    report = sync([(n, str(n)) for n in range(4)], queue, schema=schema)
    assert [answer.data for answer in report.answers()] == [{"n": 1}] * 4
    assert json.loads(next(iter(report.answers())).text or "") == {"n": 1}


def without_index(items: list[Any], count: int) -> list[Any]:
    """Return the items in another order, a number of them without their index."""
    return [{name: item[name] for name in item if name != "index"} for item in items[:count][::-1]] + items[count:]


@pytest.mark.parametrize(("count", "sent"), [(5, 5), (2, 5), (1, 5)])
def test_items_without_an_index_are_matched_by_reference(run: Generator, count: int, sent: int) -> None:
    queue = FakeQueue(order=lambda items: without_index(items, count))
    report = run(inputs(5), queue)
    assert [answer.text for answer in report.answers()] == [f"answer to question number {n}" for n in range(5)]
    assert len(queue.sent) == sent


def test_items_with_neither_index_nor_reference_fail_after_a_retry(run: Generator) -> None:
    queue = FakeQueue(order=lambda items: without_index(items, 2), reference=False)
    report = run(inputs(5), queue)
    assert [failure.id for failure in report.failures] == ["id-0", "id-1"]
    assert {failure.message for failure in report.failures} == {"the queue returned no result for this item"}
    assert [answer.text for answer in report.answers()][2:] == [f"answer to question number {n}" for n in (2, 3, 4)]


def test_impossible_usage_and_empty_references_lose_no_answer(run: Generator) -> None:
    def odd(items: list[Any]) -> list[Any]:
        for item, tokens in zip(items, (10**30, -5, "many", 2.0**70), strict=True):
            item["result"]["usage"] = {"prompt_tokens": tokens, "completion_tokens": tokens}
            item["external_reference"] = ""
        return items

    report = run(inputs(4), FakeQueue(order=odd))
    assert [answer.text for answer in report.answers()] == [f"answer to question number {n}" for n in range(4)]
    assert (report.answered, report.failed) == (4, 0)
    assert 0 < report.input_tokens < 10_000
