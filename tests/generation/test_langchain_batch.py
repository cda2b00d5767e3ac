"""``ChatWorkersAI(queue="always")``: ``batch`` and its other forms through the asynchronous queue."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import RunnableParallel
from langchain_core.tools import tool
from pydantic import BaseModel
from tests.support import Caller, skip_waits, wired

from langchain_workers_ai import (
    BatchItemError,
    ChatWorkersAI,
    ConfigurationError,
    QuotaExhaustedError,
    WorkersAIBatchGenerator,
)
from workers_ai_emulator import Clock, Emulator, Fault, QueueSettings
from workers_ai_emulator.state.queue import ItemFailure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[..., ChatWorkersAI]

KIMI = "@cf/moonshotai/kimi-k2.6"
TEMPLATE = ChatPromptTemplate.from_template("{x}")
PROMPTS = ["Name a fjord.", "Name a lake.", "Name a river."]


class City(BaseModel):
    """A city."""

    name: str


@tool
def clock(city: str) -> str:
    """Return the time in a city."""
    return f"noon in {city}"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    return skip_waits(monkeypatch)


@pytest.fixture
def emulator() -> Emulator:
    return Emulator(clock=Clock("jump"), queue=QueueSettings("at_once"))


@pytest.fixture
def chat(emulator: Emulator) -> Make:
    return lambda **settings: ChatWorkersAI(**wired(emulator, **{"model": KIMI, "queue": "always", **settings}))


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    return Caller(request.param)


def routes(emulator: Emulator) -> list[str]:
    return [entry.route for entry in emulator.log.entries if entry.route != "poll"]


def items(emulator: Emulator) -> list[Any]:
    """Return the items of all submissions."""
    return [item for entry in emulator.log.entries if entry.route == "submit" for item in entry.json["requests"]]


class Recorder(BaseCallbackHandler):
    """Record events with their run ids."""

    run_inline = True

    def __init__(self) -> None:
        self.events: list[str] = []
        self.runs: set[Any] = set()

    def on_chat_model_start(self, *args: Any, run_id: Any, tags: Any = None, **kwargs: Any) -> None:
        self.events.append(f"start {tags}")
        self.runs.add(run_id)

    def on_llm_end(self, response: Any, *, run_id: Any, **kwargs: Any) -> None:
        self.events.append("end")

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.events.append(type(error).__name__)


@pytest.mark.parametrize("queue", ["never", "always"])
def test_callbacks_ids_usage_and_order_are_those_of_direct_calls(
    queue: str, chat: Make, emulator: Emulator, call: Caller
) -> None:
    recorder = Recorder()
    answers = call(chat(queue=queue), "batch", PROMPTS, {"callbacks": [recorder], "tags": ["t"]})
    assert routes(emulator) == (["submit"] if queue == "always" else ["chat_completions"] * 3)
    assert sorted(recorder.events) == ["end"] * 3 + ["start ['t']"] * 3
    assert {answer.id for answer in answers} == {f"lc_run--{run}-0" for run in recorder.runs}
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        direct = chat(queue="never").invoke(prompt)
        assert answer.text == direct.text
        assert answer.usage_metadata["output_tokens"] == direct.usage_metadata["output_tokens"]
        assert answer.response_metadata["finish_reason"] == "stop"
        assert answer.response_metadata["model_name"] == KIMI


def test_other_calls_send_direct_requests(chat: Make, emulator: Emulator, call: Caller) -> None:
    call(chat(), "invoke", "hi")
    call(chat(), "stream", "hi")
    assert routes(emulator) == ["chat_completions"] * 2


@pytest.mark.parametrize(
    ("build", "check"),
    [
        (lambda model: TEMPLATE | model | StrOutputParser(), str),
        (lambda model: TEMPLATE | model.bind(max_tokens=900), None),
        (lambda model: TEMPLATE | model.with_structured_output(City), City),
        (lambda model: TEMPLATE | model.with_structured_output(City, include_raw=True), dict),
        (lambda model: TEMPLATE | model.bind_tools([clock], tool_choice="clock"), None),
        (lambda model: TEMPLATE | model.with_retry(), None),
    ],
    ids=["parser", "bind", "structured", "include_raw", "tools", "retry"],
)
def test_chains_reach_the_queue(build: Any, check: Any, chat: Make, emulator: Emulator, call: Caller) -> None:
    answers = call(build(chat()), "batch", [{"x": "the city Oslo"}, {"x": "the city Bergen"}])
    assert routes(emulator) == ["submit"]
    assert len(items(emulator)) == 2
    for answer in answers:
        assert check is None or isinstance(answer, check)
        if check is dict:
            assert (isinstance(answer["parsed"], City), answer["parsing_error"]) == (True, None)
    if "tools" in items(emulator)[0]:
        assert [answer.tool_calls[0]["name"] for answer in answers] == ["clock", "clock"]


def test_a_failed_input_fails_alone(chat: Make, emulator: Emulator, call: Caller) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains="lake", code=3030, message="too many tokens")]
    recorder = Recorder()
    first, failed, last = call(chat(), "batch", PROMPTS, {"callbacks": [recorder]}, return_exceptions=True)
    assert (first.text, last.text) != ("", "")
    assert isinstance(failed, BatchItemError)
    assert (failed.index, failed.code, "too many tokens" in str(failed)) == (1, 3030, True)
    assert sorted(recorder.events) == ["BatchItemError", "end", "end", "start []", "start []", "start []"]
    with pytest.raises(BatchItemError, match="too many tokens"):
        call(chat(), "batch", PROMPTS)


def test_an_invalid_input_fails_alone_and_is_not_sent(chat: Make, emulator: Emulator, call: Caller) -> None:
    answers = call(chat(), "batch", ["hi", 7, []], return_exceptions=True)
    assert [isinstance(answer, Exception) for answer in answers] == [False, True, True]
    assert len(items(emulator)) == 1


def test_fallbacks_answer_failed_inputs(chat: Make, emulator: Emulator, call: Caller) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains="lake", code=3030)]
    answers = call(chat().with_fallbacks([chat(queue="never")]), "batch", PROMPTS)
    assert all(answer.text for answer in answers)
    assert routes(emulator) == ["submit", "chat_completions"]


def test_a_ledger_keeps_the_answers(chat: Make, emulator: Emulator, call: Caller, tmp_path: Path) -> None:
    ledger = tmp_path / "answers.ledger"
    before = call(chat(ledger=ledger), "batch", PROMPTS)
    emulator.log.clear()
    after = call(chat(ledger=ledger), "batch", [*PROMPTS, *PROMPTS])
    assert [answer.text for answer in after] == [answer.text for answer in before] * 2
    assert emulator.log.entries == []
    call(chat(ledger=ledger, temperature=0.5), "batch", PROMPTS[:1])
    assert [item["temperature"] for item in items(emulator)] == [0.5]
    with pytest.raises(ConfigurationError, match="ledger"):
        call(chat(ledger=ledger, model="@cf/openai/gpt-oss-120b"), "batch", PROMPTS)


def test_an_exhausted_quota_stops_the_run_and_the_next_call_continues(
    chat: Make, emulator: Emulator, call: Caller, tmp_path: Path
) -> None:
    model = chat(ledger=tmp_path / "answers.ledger")
    call(model, "batch", PROMPTS[:1])
    emulator.faults.add(Fault.error(429, 3036, "daily free allocation used up", route="submit"))
    answers = call(model, "batch", PROMPTS, return_exceptions=True)
    assert [type(answer) for answer in answers[1:]] == [QuotaExhaustedError] * 2
    assert answers[0].text
    assert all(answer.text for answer in call(model, "batch", PROMPTS))


def test_answers_in_the_cache_are_not_sent(chat: Make, emulator: Emulator, call: Caller) -> None:
    model = chat(cache=InMemoryCache())
    call(model, "batch", PROMPTS[:2])
    emulator.log.clear()
    answers = call(model, "batch", PROMPTS)
    assert [item["messages"][0]["content"] for item in items(emulator)] == PROMPTS[2:]
    assert all(answer.text for answer in answers)


class Limiter(BaseRateLimiter):
    """Count the permitted requests."""

    def __init__(self) -> None:
        self.permitted = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        self.permitted += 1
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        return self.acquire()


def test_the_rate_limiter_counts_requests_to_the_queue(
    chat: Make, emulator: Emulator, call: Caller, tmp_path: Path
) -> None:
    limiter = Limiter()
    model = chat(rate_limiter=limiter)
    call(model, "batch", [f"Say {number}." for number in range(30)])
    assert limiter.permitted == emulator.log.requests == 2
    call(WorkersAIBatchGenerator(model, ledger=tmp_path / "ledger"), "generate", PROMPTS)
    assert limiter.permitted == emulator.log.requests == 4


def test_a_wrong_number_of_configurations_sends_nothing(chat: Make, emulator: Emulator, call: Caller) -> None:
    with pytest.raises(ValueError, match="same length"):
        call(chat(), "batch", PROMPTS, [{}])
    assert emulator.log.entries == []


def test_batch_as_completed_uses_the_queue(chat: Make, emulator: Emulator, call: Caller) -> None:
    if call.mode == "sync":
        found = dict(chat().batch_as_completed(PROMPTS))
    else:
        found = dict(call(chat(), "batch_as_completed", PROMPTS))
    assert routes(emulator) == ["submit"]
    assert sorted(found) == [0, 1, 2]


def test_streaming_models_do_not_send_directly(chat: Make, emulator: Emulator, call: Caller) -> None:
    call(chat(streaming=True), "batch", PROMPTS)
    assert routes(emulator) == ["submit"]


def test_many_inputs_without_a_ledger_warn(chat: Make) -> None:
    with pytest.warns(UserWarning, match="150 inputs has no ledger"):
        chat().batch([f"Say {number}." for number in range(150)])


def test_a_model_without_a_queue_raises(chat: Make) -> None:
    with pytest.raises(ConfigurationError, match="queue"):
        chat(model="@cf/zai-org/glm-4.7-flash")


def test_an_empty_batch_sends_nothing(chat: Make, emulator: Emulator, call: Caller) -> None:
    assert call(chat(), "batch", []) == []
    assert emulator.log.entries == []


class TestQueuedCopy:
    """``ChatWorkersAI.queued``: single async calls share submissions."""

    @pytest.fixture
    def queued(self, chat: Make, tmp_path: Path) -> Make:
        return lambda **settings: chat(queue="never", **settings).queued(ledger=tmp_path / "ledger", window_s=0.05)

    def test_branches_of_a_runnable_parallel(self, queued: Make, emulator: Emulator) -> None:
        limiter = Limiter()
        model = queued(rate_limiter=limiter)
        chain = RunnableParallel(fjord=TEMPLATE | model, lake=TEMPLATE | model.with_structured_output(City))
        found = asyncio.run(chain.abatch([{"x": f"the city {name}"} for name in ("Oslo", "Bergen", "Moss")]))
        assert routes(emulator) == ["submit"]
        assert (len(items(emulator)), limiter.permitted) == (6, 2)
        assert all(answer["fjord"].text and isinstance(answer["lake"], City) for answer in found)

    def test_streams_and_later_copies_use_the_queue(self, queued: Make, emulator: Emulator) -> None:
        async def pieces(model: ChatWorkersAI) -> list[str]:
            return [piece.text async for piece in model.astream("Name a fjord.")]

        copies = [queued(streaming=True), copy.deepcopy(queued()), queued().model_copy()]
        answers = [asyncio.run(pieces(model)) for model in copies]
        assert answers == [answers[0]] * 3
        assert (len(answers[0]), routes(emulator)) == (1, ["submit"])

    def test_a_model_without_a_queue_raises(self, queued: Make) -> None:
        with pytest.raises(ConfigurationError, match="has no asynchronous queue"):
            queued(model="@cf/zai-org/glm-4.7-flash")
