"""Capacity policies: ``on_busy`` in requests, the recipe for fallbacks, and the number of attempts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel
from tests.support import every_row, wired

import langchain_workers_ai as ours
from langchain_workers_ai import (
    CapacityError,
    ModelRetiredError,
    PaidPlanRequiredError,
    QuotaExhaustedError,
    WorkersAIEmbeddings,
    WorkersAIRerank,
)
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workers_ai import ChatWorkersAI
    from workers_ai_emulator import Emulator

FAST = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
OTHER = "@cf/openai/gpt-oss-120b"

TASKS: dict[str, Callable[[Any, Any, Emulator, dict[str, Any]], Any]] = {
    "chat": lambda call, chat, _, given: call(chat(**given), "invoke", "hi"),
    "chat, run": lambda call, chat, _, given: call(chat(api="run", **given), "invoke", "hi"),
    "chat, responses": lambda call, chat, _, given: call(chat(api="responses", **given), "invoke", "hi"),
    "stream": lambda call, chat, _, given: call(chat(**given), "stream", "hi"),
    "stream, run": lambda call, chat, _, given: call(chat(api="run", **given), "stream", "hi"),
    "documents": lambda call, _, emulator, given: call(
        WorkersAIEmbeddings(**wired(emulator, model="@cf/baai/bge-m3", **given)), "embed_documents", ["a"]
    ),
    "query": lambda call, _, emulator, given: call(
        WorkersAIEmbeddings(**wired(emulator, model="@cf/baai/bge-m3", **given)), "embed_query", "a"
    ),
    "rerank": lambda call, _, emulator, given: call(WorkersAIRerank(**wired(emulator, **given)), "rerank", ["a"], "q"),
    "compress": lambda call, _, emulator, given: call(
        WorkersAIRerank(**wired(emulator, **given)), "compress_documents", [Document("a")], "q"
    ),
}


@pytest.mark.parametrize("task", TASKS)
@every_row(
    ("given", "options"),
    [
        ({}, None),
        ({"on_busy": "wait"}, None),
        ({"on_busy": "retry"}, {"rejectIfBusy": True}),
        ({"on_busy": "raise"}, {"rejectIfBusy": True}),
        ({"reject_if_busy": True}, {"rejectIfBusy": True}),
        ({"reject_if_busy": False}, None),
    ],
)
def test_on_busy_is_in_the_body_of_every_task(
    task: str, given: dict[str, Any], options: Any, chat: Any, emulator: Emulator, call: Any
) -> None:
    """https://developers.cloudflare.com/workers-ai/features/reject-if-busy/"""
    TASKS[task](call, chat, emulator, given)
    assert emulator.log.last.json.get("options") == options
    assert emulator.log.last.query == {}


@pytest.mark.parametrize("task", TASKS)
@every_row(("on_busy", "requests"), [("wait", 3), ("retry", 3), ("raise", 1)])
def test_number_of_requests_at_capacity(
    task: str, on_busy: str, requests: int, chat: Any, emulator: Emulator, call: Any
) -> None:
    emulator.reset()
    emulator.faults.add(Fault.busy(times=None))
    with pytest.raises(CapacityError) as caught:
        TASKS[task](call, chat, emulator, {"on_busy": on_busy})
    assert caught.value.attempts == len(emulator.log.entries) == requests


@pytest.mark.parametrize("task", TASKS)
def test_a_short_failure_is_hidden_by_retries(task: str, chat: Any, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.busy(), Fault.error(500, 3043, "oops"))
    assert TASKS[task](call, chat, emulator, {"on_busy": "retry"})
    assert len(emulator.log.entries) == 3


@pytest.mark.parametrize("task", TASKS)
@every_row("code", [3036, 4006])
def test_an_exhausted_allocation_is_never_retried(
    task: str, code: int, chat: Any, emulator: Emulator, call: Any, no_waiting: list[float]
) -> None:
    emulator.reset()
    text = "you have used up your daily free allocation of 10,000 neurons"  # the Responses route sends no number
    emulator.faults.add(Fault.error(429, code, text, retry_after="3600", times=None))
    with pytest.raises(QuotaExhaustedError, match=r"renewed at .* 00:00 UTC"):
        TASKS[task](call, chat, emulator, {"max_retries": 5, "on_busy": "retry"})
    assert len(emulator.log.entries) == 1
    assert [seconds for seconds in no_waiting if seconds] == []


# --- the recipe of the README ---


@pytest.fixture
def recipe(chat: Callable[..., ChatWorkersAI]) -> Any:
    """Return a model that uses a fallback only if the first model is at capacity."""
    return chat(model=FAST, on_busy="raise").with_fallbacks(
        [chat(model=OTHER, on_busy="retry")], exceptions_to_handle=(CapacityError,)
    )


def models(emulator: Emulator) -> list[str]:
    return [entry.model for entry in emulator.log.entries]


def test_at_capacity_the_fallback_is_used_at_once(
    recipe: Any, emulator: Emulator, ask: Any, no_waiting: list[float]
) -> None:
    emulator.faults.add(Fault.busy(times=None, model=FAST))
    assert ask(recipe, "hi").response_metadata["model_name"] == OTHER
    assert models(emulator) == [FAST, OTHER]
    assert [seconds for seconds in no_waiting if seconds] == []


def test_if_both_models_are_at_capacity_the_first_error_is_raised(recipe: Any, emulator: Emulator, ask: Any) -> None:
    emulator.faults.add(Fault.busy(times=None))
    with pytest.raises(CapacityError) as caught:
        ask(recipe, "hi")
    assert caught.value.model == FAST
    assert models(emulator) == [FAST, OTHER, OTHER, OTHER]


def test_an_exhausted_allocation_raises_with_the_reset_time(recipe: Any, emulator: Emulator, ask: Any) -> None:
    emulator.faults.add(Fault.error(429, 4006, "you have used up your daily free allocation", times=None))
    with pytest.raises(QuotaExhaustedError, match=r"renewed at \d{4}-\d\d-\d\d 00:00 UTC") as caught:
        ask(recipe, "hi")
    assert (caught.value.resets_at.hour, caught.value.resets_at.utcoffset().total_seconds()) == (0, 0)
    assert models(emulator) == [FAST]


def test_the_error_of_a_paid_model_has_the_plan(recipe: Any, emulator: Emulator, ask: Any) -> None:
    emulator.faults.add(Fault.error(403, 5035, "This model requires a paid plan", times=None))
    with pytest.raises(PaidPlanRequiredError, match="Workers Paid plan"):
        ask(recipe, "hi")
    assert models(emulator) == [FAST]


def test_the_error_of_a_retired_model_has_its_successor(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any
) -> None:
    """https://github.com/cloudflare/cloudflare-docs/issues/32501"""
    retired = "@cf/meta/llama-3.1-8b-instruct"
    emulator.faults.add(Fault.error(410, 5028, "This model was deprecated on 2026-05-30", times=None))
    one = chat(model=retired).with_fallbacks([chat(model=OTHER)], exceptions_to_handle=(CapacityError,))
    with pytest.raises(ModelRetiredError, match=r"Use @cf/meta/llama-3\.1-8b-instruct-fp8 instead") as caught:
        ask(one, "hi")
    assert caught.value.successor == "@cf/meta/llama-3.1-8b-instruct-fp8"
    assert models(emulator) == [retired]


@pytest.mark.parametrize("kind", ["tools", "structured", "chain"])
def test_the_fallback_recipe_with_tools_schemas_and_chains(
    kind: str, chat: Callable[..., ChatWorkersAI], recipe: Any, emulator: Emulator, call: Any
) -> None:
    class Person(BaseModel):
        """A person."""

        name: str

    emulator.faults.add(Fault.busy(times=None, model=FAST))
    if kind == "tools":
        tool = {"name": "clock", "description": "Tell the time.", "parameters": {"type": "object", "properties": {}}}
        assert call(recipe.bind_tools([tool]), "invoke", "hi").response_metadata["model_name"] == OTHER
    elif kind == "structured":
        assert isinstance(call(recipe.with_structured_output(Person), "invoke", "Ann is a person."), Person)
    else:
        chain = ChatPromptTemplate([("user", "{word}")]) | recipe | StrOutputParser()
        assert "".join(call(chain, "stream", {"word": "hi"}))
    assert models(emulator) == [FAST, OTHER]


def test_a_batch_falls_back_item_by_item(recipe: Any, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.busy(times=2, model=FAST))
    answers = call(recipe, "batch", ["a", "b", "c", "d"], {"max_concurrency": 1})
    assert sorted(answer.response_metadata["model_name"] for answer in answers) == sorted([FAST, FAST, OTHER, OTHER])


@pytest.mark.parametrize("method", ["invoke", "stream"])
def test_the_fallback_recipe_in_an_agent(method: str, recipe: Any, emulator: Emulator, call: Any) -> None:
    def get_weather(city: str) -> str:
        """Weather of a city."""
        return f"sunny in {city}"

    emulator.faults.add(Fault.busy(times=1, model=FAST))
    inputs = {"messages": [("user", "What is the weather in Oslo?")]}
    agent = create_agent(recipe, [get_weather])
    state = call(agent, method, inputs, **({"stream_mode": "values"} if method == "stream" else {}))
    messages = (state[-1] if method == "stream" else state)["messages"]
    assert "sunny in Oslo" in messages[-1].text
    assert models(emulator) == [FAST, OTHER, FAST]


def test_an_agent_uses_the_fallback_and_returns_to_the_first_model(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    emulator.faults.add(Fault.busy(times=1, model=FAST))
    first = chat(model=FAST, on_busy="raise")
    agent = create_agent(first, [], middleware=[ModelFallbackMiddleware(chat(model=OTHER))])
    for wanted in (OTHER, FAST):
        answer = call(agent, "invoke", {"messages": [("user", "hi")]})["messages"][-1]
        assert answer.response_metadata["model_name"] == wanted
    assert models(emulator) == [FAST, OTHER, FAST]


def test_a_fallback_of_an_agent_fails_too_when_the_allocation_is_exhausted(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    emulator.faults.add(Fault.error(429, 4006, "used up", times=None))
    agent = create_agent(chat(model=FAST), [], middleware=[ModelFallbackMiddleware(chat(model=OTHER))])
    with pytest.raises(QuotaExhaustedError, match="00:00 UTC"):
        call(agent, "invoke", {"messages": [("user", "hi")]})
    assert models(emulator) == [FAST, OTHER]


# --- retries of the client and of LangChain multiply ---


@pytest.mark.parametrize(("ours_", "theirs", "requests"), [(0, 1, 1), (0, 3, 3), (2, 1, 3), (2, 3, 9), (1, 2, 4)])
def test_retries_multiply(
    ours_: int, theirs: int, requests: int, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    emulator.faults.add(Fault.error(500, 3043, "oops", times=None))
    one = chat(max_retries=ours_)
    with pytest.raises(ours.InternalServerError) as caught:
        call(one.with_retry(stop_after_attempt=theirs), "invoke", "hi")
    assert len(emulator.log.entries) == requests
    assert caught.value.attempts == ours_ + 1
    emulator.log.clear()
    agent = create_agent(one, [], middleware=[ModelRetryMiddleware(max_retries=theirs - 1, on_failure="error")])
    with pytest.raises(ours.InternalServerError):
        call(agent, "invoke", {"messages": [("user", "hi")]})
    assert len(emulator.log.entries) == requests


def test_only_max_retries_repeats_a_stream(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    """LangChain's ``with_retry`` does not retry streams. ``max_retries`` does, until the first event."""
    emulator.faults.add(Fault.error(500, 3043, "oops", times=None))
    with pytest.raises(ours.InternalServerError):
        call(chat(max_retries=2).with_retry(), "stream", "hi")
    assert len(emulator.log.entries) == 3


def test_a_model_at_capacity_does_not_slow_other_models(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any, no_waiting: list[float]
) -> None:
    """All objects that use a model share its backoff. Other models are not affected."""
    emulator.faults.add(Fault.error(429, 3040, "no capacity", retry_after="30", model=FAST))
    call(chat(model=FAST), "invoke", "hi")
    assert max(no_waiting) == pytest.approx(30, abs=1)
    no_waiting.clear()
    call(chat(model=OTHER), "invoke", "hi")
    assert [seconds for seconds in no_waiting if seconds] == []
    call(chat(model=FAST), "invoke", "hi")
    assert max(no_waiting) == pytest.approx(30, abs=1)


def test_many_calls_and_few_slots(chat: Callable[..., ChatWorkersAI], emulator: Emulator) -> None:
    """Two objects share the state of a service at capacity, so that no call fails."""
    emulator.capacity.slots, emulator.capacity.max_wait_s = 2, 0.0
    models_ = [chat(model=FAST, on_busy="retry", max_retries=8) for _ in range(2)]

    async def many() -> list[Any]:
        return await asyncio.gather(*(one.ainvoke("hi") for one in models_ for _ in range(10)))

    assert all(answer.text for answer in asyncio.run(many()))
