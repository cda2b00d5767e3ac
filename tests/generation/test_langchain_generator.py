"""``WorkersAIBatchGenerator``: a chain over a corpus, through the asynchronous queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from pydantic import BaseModel
from tests.support import Caller, skip_waits, wired

from langchain_workers_ai import ChatWorkersAI, ConfigurationError, WorkersAIBatchGenerator
from workers_ai_emulator import Clock, Emulator, QueueSettings
from workers_ai_emulator.state.queue import ItemFailure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

KIMI = "@cf/moonshotai/kimi-k2.6"
TEMPLATE = ChatPromptTemplate.from_template("Name a fact about {x}.")
ROWS = [{"x": name} for name in ("Oslo", "Bergen", "Moss")]


class Fact(BaseModel):
    """A fact."""

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
def model(emulator: Emulator) -> ChatWorkersAI:
    return ChatWorkersAI(**wired(emulator, model=KIMI, max_tokens=900))


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    return Caller(request.param)


@pytest.fixture
def generator(tmp_path: Path) -> Callable[..., WorkersAIBatchGenerator]:
    return lambda chain, **options: WorkersAIBatchGenerator(
        chain, **{"ledger": tmp_path / "answers.ledger", "progress": False, **options}
    )


def items(emulator: Emulator) -> list[Any]:
    return [item for entry in emulator.log.entries if entry.route == "submit" for item in entry.json["requests"]]


def test_a_chain_answers_in_order_and_a_second_run_costs_nothing(
    model: ChatWorkersAI, generator: Any, emulator: Emulator, call: Caller
) -> None:
    chain = TEMPLATE | model | StrOutputParser()
    report = call(generator(chain), "generate", ROWS, ["a", "b", "c"])
    assert (report.answered, report.reused, report.failed) == (3, 0, 0)
    answers = list(report.answers())
    assert [answer.id for answer in answers] == ["a", "b", "c"]
    assert [answer.data for answer in answers] == [chain.invoke(row) for row in ROWS]
    assert {item["max_tokens"] for item in items(emulator)} == {900}
    emulator.log.clear()
    assert call(generator(chain), "generate", iter(ROWS)).reused == 3
    assert emulator.log.entries == []
    assert "parsers" not in report.to_dict()


def test_a_structured_chain_returns_objects(model: ChatWorkersAI, generator: Any, call: Caller) -> None:
    chain = TEMPLATE | model.with_structured_output(Fact, method="json_schema")
    answers = list(call(generator(chain), "generate", ROWS).answers())
    assert all(isinstance(answer.data, Fact) for answer in answers)


def test_a_model_alone_returns_messages_with_calls_and_usage(
    model: ChatWorkersAI, generator: Any, call: Caller
) -> None:
    bound = model.bind_tools([clock], tool_choice="clock").with_config(tags=["t"])
    (answer,) = call(generator(bound), "generate", ["What time is it in Oslo?"]).answers()
    assert answer.data.tool_calls[0]["name"] == "clock"
    assert answer.data.usage_metadata["output_tokens"] > 0


def test_failed_inputs_and_rejected_answers_have_an_error(
    model: ChatWorkersAI, generator: Any, emulator: Emulator, call: Caller
) -> None:
    class Strict(StrOutputParser):
        def parse(self, text: str) -> str:
            raise ValueError("not a fact")

    emulator.queue.settings.failures = [ItemFailure(contains="Bergen", code=3030, message="too many tokens")]
    report = call(generator(TEMPLATE | model | Strict()), "generate", ROWS)
    errors = [answer.error for answer in report.answers()]
    assert (report.failed, [error.code for error in errors]) == (1, [None, 3030, None])
    assert "not a fact" in errors[0].message


async def test_asynchronous_iterators(model: ChatWorkersAI, generator: Any) -> None:
    async def rows() -> AsyncIterator[Any]:
        for row in ROWS:
            yield row

    report = await generator(TEMPLATE | model).agenerate(rows())
    assert (report.answered, [answer.id for answer in report.answers()]) == (3, [0, 1, 2])


def test_an_estimate_sends_nothing(model: ChatWorkersAI, generator: Any, emulator: Emulator) -> None:
    assert generator(TEMPLATE | model).estimate(ROWS).inputs == 3
    assert emulator.log.entries == []


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda model: TEMPLATE | RunnableLambda(str) | model, "RunnableLambda before the model"),
        (lambda model: TEMPLATE | model | RunnableLambda(str), "RunnableLambda after the model"),
        (lambda _: TEMPLATE, "no ChatWorkersAI among its steps .ChatPromptTemplate"),
        (lambda model: TEMPLATE | model.with_retry(), "ChatPromptTemplate, RunnableRetry"),
    ],
)
def test_unsupported_steps_raise(build: Any, says: str, model: ChatWorkersAI, generator: Any) -> None:
    with pytest.raises(ConfigurationError, match=says):
        generator(build(model))


def test_an_input_that_does_not_fit_the_prompt_raises(
    model: ChatWorkersAI, generator: Any, emulator: Emulator, call: Caller
) -> None:
    with pytest.raises(ConfigurationError, match="input 1 does not fit the chain"):
        call(generator(TEMPLATE | model), "generate", [ROWS[0], {"y": 1}])
    assert items(emulator) == []


@pytest.mark.parametrize("given", ["Oslo", {"x": "Oslo"}])
def test_a_single_input_raises(
    given: Any, model: ChatWorkersAI, generator: Any, emulator: Emulator, call: Caller
) -> None:
    with pytest.raises(ConfigurationError, match=f"iterable of inputs of the chain, not a {type(given).__name__}"):
        call(generator(TEMPLATE | model), "generate", given)
    assert items(emulator) == []


@pytest.mark.parametrize(
    ("ids", "says"), [(["a"], r"more inputs than ids \(1\)"), (["a", "b", "c", "d"], r"more ids than inputs \(3\)")]
)
def test_a_wrong_number_of_ids_raises(
    ids: list[str], says: str, model: ChatWorkersAI, generator: Any, call: Caller
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        call(generator(TEMPLATE | model), "generate", ROWS, ids)
