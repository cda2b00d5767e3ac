"""Number of requests of a failing call: with the packages' own retries, and with the retry policy of workflows."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.rate_limiter import TokenBucketRateLimiter
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from llama_index.embeddings.workers_ai import WorkersAIBatchEmbedding
from llama_index.llms.workers_ai import WorkersAI, WorkersAIRetryPolicy
from tests.llama_index.standard import CountingLimiter
from tests.support import wired
from workflows.retry_policy import RetryPolicy as WorkflowRetryPolicy

from workers_ai import errors as e
from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.llama_index.conftest import Script
    from tests.support import Caller

    Make = Callable[..., Any]

USER = [ChatMessage(role="user", content="Hello")]


class Row(NamedTuple):
    """A failure: its fault, its class, and whether it is retryable."""

    fault: Callable[..., Fault]
    arguments: tuple[Any, ...]
    cls: type[e.WorkersAIError]
    again: bool


ROWS = {
    "busy": Row(Fault.error, (429, 3040, "no capacity"), e.CapacityError, True),
    "minute": Row(Fault.error, (429, 3021, "rate limit"), e.RateLimitError, True),
    "plain 429": Row(Fault.reply, ("slow down", 429), e.RateLimitError, True),
    "quota": Row(Fault.error, (429, 4006, "used up"), e.QuotaExhaustedError, False),
    "quota as documented": Row(Fault.error, (429, 3036, "used up"), e.QuotaExhaustedError, False),
    "token": Row(Fault.error, (401, 10000, "no"), e.AuthenticationError, False),
    "gateway": Row(Fault.error, (401, 2009, "no"), e.AuthenticationError, False),
    "forbidden": Row(Fault.error, (403, 5018, "no"), e.PermissionDeniedError, False),
    "paid": Row(Fault.error, (403, 5035, "no"), e.PaidPlanRequiredError, False),
    "unknown model": Row(Fault.error, (400, 5007, "no"), e.NotFoundError, False),
    "unknown path": Row(Fault.error, (404, 3042, "no"), e.NotFoundError, False),
    "retired": Row(Fault.error, (410, 5028, "no"), e.ModelRetiredError, False),
    "bad input": Row(Fault.error, (400, 5006, "bad"), e.BadRequestError, False),
    "budget": Row(Fault.error, (400, 8006, "more tokens"), e.StructuredOutputError, False),
    "too large": Row(Fault.error, (413, 3006, "big"), e.RequestTooLargeError, False),
    "their timeout": Row(Fault.error, (408, 3007, "late"), e.RequestTimeoutError, True),
    "aborted": Row(Fault.error, (408, 3008, "aborted"), e.RequestTimeoutError, True),
    "our timeout": Row(Fault.latency, (3600,), e.APITimeoutError, True),
    "failure": Row(Fault.error, (500, 3043, "oops"), e.InternalServerError, True),
    "edge page": Row(Fault.html, (522,), e.InternalServerError, True),
    "dropped": Row(Fault.drop, (), e.APIConnectionError, True),
    "no result": Row(Fault.reply, ({"result": None, "success": True},), e.APIResponseValidationError, False),
}
PASSING = sorted(name for name, row in ROWS.items() if row.again)


@pytest.fixture
def failing(emulator: Emulator) -> Callable[..., Row]:
    """Return a function that adds one fault, for all requests or ``times`` times."""

    def add(name: str, times: int | None = None) -> Row:
        row = ROWS[name]
        emulator.faults.add(row.fault(*row.arguments, times=times))
        return row

    return add


@pytest.fixture(params=["chat", "complete", "stream_chat", "embedding", "rerank"])
def ask(request: pytest.FixtureRequest, call: Caller, llm: Make, embedding: Make, reranker: Make) -> Callable[..., Any]:
    """Return a function that sends one call of each kind, sync or async. Keywords are settings."""
    node = NodeWithScore(node=TextNode(text="a"))
    return {
        "chat": lambda **settings: call(llm(**settings), "chat", USER),
        "complete": lambda **settings: call(llm(**settings), "complete", "Hello"),
        "stream_chat": lambda **settings: call(llm(**settings), "stream_chat", USER)[-1],
        "embedding": lambda **settings: call(embedding(**settings), "get_text_embedding", "a"),
        "rerank": lambda **settings: call(reranker(**settings), "postprocess_nodes", [node], query_str="q"),
    }[request.param]


class TestRequests:
    @pytest.mark.parametrize("max_retries", [0, 2])
    @pytest.mark.parametrize("name", ROWS)
    def test_failing_call_is_sent_max_retries_times(
        self, ask: Any, failing: Any, emulator: Emulator, name: str, max_retries: int
    ) -> None:
        row = failing(name)
        with pytest.raises(row.cls) as caught:
            ask(max_retries=max_retries)
        assert type(caught.value) is row.cls
        assert emulator.log.requests == (max_retries + 1 if row.again else 1)
        assert caught.value.attempts == emulator.log.requests
        assert caught.value.is_retryable == row.again

    @pytest.mark.parametrize("name", PASSING)
    def test_call_succeeds_after_retryable_errors(self, ask: Any, failing: Any, emulator: Emulator, name: str) -> None:
        whole = ask()
        failing(name, times=2)
        again = ask()
        assert emulator.log.requests == 4
        shown = [str(getattr(one, "message", one)) for one in (whole, again)]
        assert shown[0] == shown[1]

    def test_default_is_three_attempts(self, ask: Any, failing: Any, emulator: Emulator) -> None:
        failing("busy")
        with pytest.raises(e.CapacityError):
            ask()
        assert emulator.log.requests == 3

    def test_on_busy_raise_raises_capacity_errors_at_once(self, ask: Any, failing: Any, emulator: Emulator) -> None:
        failing("busy")
        with pytest.raises(e.CapacityError):
            ask(on_busy="raise")
        assert emulator.log.requests == 1
        assert emulator.log.last.json["options"] == {"rejectIfBusy": True}

    def test_exhausted_quota_has_resets_at(self, ask: Any, failing: Any, no_waiting: list[float]) -> None:
        failing("quota")
        with pytest.raises(e.QuotaExhaustedError) as caught:
            ask()
        assert caught.value.resets_at.time() == dt.time(0, 0)
        assert no_waiting == []


class TestWaits:
    @pytest.mark.parametrize(("told", "waited"), [("7", 7), ("600", 60)])
    def test_retry_after_is_honoured(
        self, ask: Any, emulator: Emulator, no_waiting: list[float], told: str, waited: float
    ) -> None:
        emulator.faults.add(Fault.error(429, 3040, "busy", retry_after=told))
        ask()
        assert sum(no_waiting) == pytest.approx(waited, abs=0.1)

    def test_rate_limit_per_minute_waits_until_the_next_minute(
        self, ask: Any, failing: Any, no_waiting: list[float]
    ) -> None:
        failing("minute", times=1)
        ask()
        assert sum(no_waiting) == pytest.approx(60, abs=0.1)

    def test_on_retry_is_called_before_each_wait(self, ask: Any, failing: Any) -> None:
        told: list[Any] = []
        failing("failure", times=2)
        ask(on_retry=told.append)
        assert [(event.attempt, type(event.error)) for event in told] == [
            (1, e.InternalServerError),
            (2, e.InternalServerError),
        ]
        assert [event.wait_s <= bound for event, bound in zip(told, (0.5, 1.0), strict=True)] == [True, True]

    @pytest.mark.parametrize("kind", ["chat", "stream_chat", "embedding", "ledger"])
    def test_on_retry_with_a_rate_limiter_and_with_a_ledger(
        self, llm: Make, embedding: Make, failing: Any, call: Caller, emulator: Emulator, tmp_path: Path, kind: str
    ) -> None:
        told: list[Any] = []
        settings: dict[str, Any] = {"on_retry": told.append, "rate_limiter": CountingLimiter()}
        failing("failure", times=2)
        if kind in ("chat", "stream_chat"):
            call(llm(**settings), kind, USER)
        elif kind == "embedding":
            call(embedding(**settings), "get_text_embedding", "a")
        else:
            model = WorkersAIBatchEmbedding(**wired(emulator), ledger=tmp_path / "ledger", queue="never", **settings)
            call(model, "get_text_embedding", "a")
        assert [event.attempt for event in told] == [1, 2]


class TestStreams:
    @pytest.mark.parametrize("abrupt", [False, True])
    def test_interrupted_stream_raises_and_is_not_retried(
        self, llm: Make, emulator: Emulator, call: Caller, abrupt: bool
    ) -> None:
        whole = call(llm(), "stream_chat", USER)[-1].message.content
        emulator.faults.add(Fault.cut(after_events=2, abrupt=abrupt))
        with pytest.raises(e.StreamInterruptedError) as caught:
            call(llm(), "stream_chat", USER)
        assert emulator.log.requests == 2
        assert caught.value.partial
        assert whole.startswith(caught.value.partial)

    def test_error_event_in_a_stream_raises_the_typed_error(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        emulator.faults.add(Fault.error_frame(3040, "no capacity", after_events=2))
        with pytest.raises(e.CapacityError) as caught:
            call(llm(), "stream_chat", USER)
        assert emulator.log.requests == 1
        assert caught.value.partial

    def test_finish_reason_without_done_mark_ends_the_stream(self, llm: Make, script: Script, call: Caller) -> None:
        script.deltas({"content": "all of it"}, done=False)
        assert call(llm(), "stream_chat", USER)[-1].message.content == "all of it"

    def test_error_before_the_first_chunk_yields_nothing(self, llm: Make, failing: Any) -> None:
        failing("busy")
        pieces = llm(max_retries=0).stream_chat(USER)
        with pytest.raises(e.CapacityError):
            next(pieces)


class TestWorkflows:
    def error(self, **facts: Any) -> e.CapacityError:
        error = e.CapacityError("busy")
        for name, value in facts.items():
            setattr(error, name, value)
        return error

    def test_policy_matches_the_workflow_protocol(self) -> None:
        assert isinstance(WorkersAIRetryPolicy(), WorkflowRetryPolicy)

    @pytest.mark.parametrize(
        ("error", "delay"),
        [
            ({"retry_after": 7.0}, 7.0),
            ({"retry_after": 600.0}, 60.0),
        ],
    )
    def test_policy_returns_retry_after(self, error: dict[str, Any], delay: float) -> None:
        assert WorkersAIRetryPolicy().next(0.0, 1, self.error(**error)) == delay

    def test_jitter_is_bounded_and_repeatable_with_a_seed(self) -> None:
        policy = WorkersAIRetryPolicy(max_attempts=9, base_s=1.0, cap_s=4.0)
        waits = [[policy.next(0.0, attempt, self.error(), seed=seed) for seed in range(50)] for attempt in range(1, 6)]
        assert [max(some) <= bound for some, bound in zip(waits, (1, 2, 4, 4, 4), strict=True)] == [True] * 5
        assert max(waits[2]) > 2
        assert policy.next(0.0, 1, self.error(), seed=3) == waits[0][3]

    @pytest.mark.parametrize("name", ROWS)
    def test_which_errors_are_retried(self, llm: Make, failing: Any, name: str) -> None:
        row = failing(name)
        with pytest.raises(row.cls) as caught:
            llm(max_retries=0).chat(USER)
        assert (WorkersAIRetryPolicy().next(0.0, 1, caught.value) is not None) == row.again

    def test_maximum_attempts_and_total_time(self) -> None:
        policy = WorkersAIRetryPolicy(max_attempts=3, total_s=100.0)
        assert policy.next(0.0, 2, self.error(retry_after=1.0)) == 1.0
        assert policy.next(0.0, 3, self.error(retry_after=1.0)) is None
        assert policy.next(99.5, 1, self.error(retry_after=1.0)) is None
        assert policy.next(0.0, 1, KeyError("not ours")) is None

    def test_cause_of_an_error_is_used(self) -> None:
        outer = RuntimeError("the step failed")
        outer.__cause__ = self.error(retry_after=3.0)
        assert WorkersAIRetryPolicy().next(0.0, 1, outer) == 3.0

    @pytest.mark.parametrize(("name", "requests"), [("busy", 3 * 2), ("quota", 1)])
    def test_step_retries_multiply_with_max_retries(
        self, llm: Make, failing: Any, emulator: Emulator, name: str, requests: int
    ) -> None:
        row = failing(name)
        model = llm(max_retries=1)

        class Asking(Workflow):
            @step(retry_policy=WorkersAIRetryPolicy(base_s=0.0))
            async def ask(self, event: StartEvent) -> StopEvent:
                return StopEvent(result=str(await model.acomplete("Hello")))

        async def run() -> Any:
            return await Asking().run()

        with pytest.raises(row.cls):
            asyncio.run(run())
        assert emulator.log.requests == requests

    def test_step_succeeds_after_capacity_errors(self, llm: Make, failing: Any, emulator: Emulator) -> None:
        failing("busy", times=2)
        model = llm(on_busy="raise")

        class Asking(Workflow):
            @step(retry_policy=WorkersAIRetryPolicy(base_s=0.0))
            async def ask(self, event: StartEvent) -> StopEvent:
                return StopEvent(result=str(await model.acomplete("Hello")))

        async def run() -> Any:
            return await Asking().run()

        assert asyncio.run(run()) == str(llm().complete("Hello"))
        assert emulator.log.requests == 4


class TestFallback:
    """Handling of each kind of error; the README of the LLM has the recipe."""

    FIRST, SECOND = "@cf/meta/llama-3.3-70b-instruct-fp8-fast", "@cf/openai/gpt-oss-120b"

    def answer(self, llm: Make, call: Caller) -> str:
        first, second = llm(model=self.FIRST, on_busy="raise"), llm(model=self.SECOND)
        try:
            return str(call(first, "complete", "Hello"))
        except (e.CapacityError, e.ModelRetiredError):
            return str(call(second, "complete", "Hello"))

    @pytest.mark.parametrize("name", ["busy", "retired"])
    def test_second_model_answers(self, llm: Make, emulator: Emulator, call: Caller, name: str) -> None:
        row = ROWS[name]
        emulator.faults.add(row.fault(*row.arguments, model=self.FIRST))
        assert self.answer(llm, call)
        assert [entry.model for entry in emulator.log.entries] == [self.FIRST, self.SECOND]

    @pytest.mark.parametrize("name", ["quota", "paid", "token"])
    def test_errors_that_a_fallback_cannot_solve_are_raised(
        self, llm: Make, failing: Any, emulator: Emulator, call: Caller, name: str
    ) -> None:
        row = failing(name)
        with pytest.raises(row.cls):
            self.answer(llm, call)
        assert emulator.log.requests == 1

    def test_each_error_has_a_remedy(self, llm: Make, failing: Any, emulator: Emulator) -> None:
        for name, cure in (("quota", "renewed at"), ("paid", "Workers Paid")):
            row = failing(name, times=1)
            with pytest.raises(row.cls, match=cure):
                llm().complete("Hello")
        emulator.faults.add(Fault.error(410, 5028, "This model was deprecated"))
        with pytest.raises(e.ModelRetiredError, match=r"Use @cf/moonshotai/kimi-k2\.6 instead"):
            llm(model="@cf/moonshotai/kimi-k2.5").complete("Hello")


class TestRateLimiter:
    """LlamaIndex's limiter, with a clock that its waits advance."""

    @pytest.fixture
    def slept(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        slept: list[float] = []

        async def asleep(seconds: float) -> None:
            slept.append(seconds)

        class Time:
            monotonic = staticmethod(lambda: 1000.0 + sum(slept))
            sleep = staticmethod(slept.append)

        monkeypatch.setattr("llama_index.core.rate_limiter.time", Time)
        monkeypatch.setattr("llama_index.core.rate_limiter.asyncio", type("Asyncio", (), {"sleep": asleep}))
        return slept

    def test_one_limiter_for_llm_and_embedding(
        self, llm: Make, embedding: Make, call: Caller, slept: list[float]
    ) -> None:
        shared = TokenBucketRateLimiter(requests_per_minute=2)
        model, embed_model = llm(rate_limiter=shared), embedding(rate_limiter=shared, batch_size=1, num_workers=1)
        call(model, "chat", USER)
        call(embed_model, "get_query_embedding", "a")
        assert slept == []
        call(embed_model, "get_text_embedding_batch", ["b", "c"])
        call(model, "complete", "Hello")
        assert sum(slept) == pytest.approx(3 * 30)

    @pytest.mark.parametrize("name", ["busy", "failure"])
    def test_each_request_acquires_the_limiter_once(
        self, llm: Make, embedding: Make, failing: Any, emulator: Emulator, call: Caller, name: str
    ) -> None:
        limiter = CountingLimiter()
        model, embed_model = llm(rate_limiter=limiter), embedding(rate_limiter=limiter)
        calls: list[tuple[Any, str, Any]] = [
            (model, "chat", USER),
            (model, "complete", "Hello"),
            (model, "stream_chat", USER),
            (model, "stream_complete", "Hello"),
            (embed_model, "get_text_embedding", "a"),
        ]
        for number, (target, method, given) in enumerate(calls, 1):
            failing(name, times=2)
            call(target, method, given)
            assert limiter.acquired == emulator.log.requests == 3 * number

    def test_requests_per_minute_is_shared_by_the_account(
        self, embedding: Make, emulator: Emulator, call: Caller, no_waiting: list[float]
    ) -> None:
        one, two = (embedding(requests_per_minute=2, batch_size=1, num_workers=1) for _ in range(2))
        call(one, "get_text_embedding_batch", ["a", "b"])
        assert no_waiting == []
        call(two, "get_text_embedding_batch", ["c"])
        assert sum(no_waiting) == pytest.approx(60, abs=1)
        assert emulator.log.requests == 3


class TestBusyService:
    def test_many_calls_with_few_slots_all_succeed(self) -> None:
        emulator = Emulator(clock=Clock("real"), slots=4, latency_s=0.01)
        model = WorkersAI(**wired(emulator, on_busy="retry", max_retries=10))

        async def many() -> Any:
            return await asyncio.gather(*(model.acomplete(f"Hello {number}") for number in range(20)))

        assert all(str(answer) for answer in asyncio.run(many()))
        assert emulator.log.statuses[200] == 20
        assert emulator.capacity.peak == 4
