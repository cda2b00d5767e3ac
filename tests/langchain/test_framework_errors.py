"""Every row of the error tree against every retry and fallback of LangChain and LangGraph, with default arguments."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_core import exceptions as lc
from langchain_core.output_parsers import JsonOutputParser
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy
from tests.support import every_row

import langchain_workers_ai as ours
from langchain_workers_ai import errors as twins
from workers_ai import errors as core
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workers_ai import ChatWorkersAI
    from workers_ai_emulator import Emulator

MODEL = "@cf/openai/gpt-oss-120b"
SECOND = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"


class Row(NamedTuple):
    fault: Callable[..., Fault]
    arguments: tuple[Any, ...]
    cls: type[core.WorkersAIError]
    kind: type[lc.ModelError]
    again: bool
    """Whether another try may help."""

    def add(self, emulator: Emulator) -> None:
        emulator.faults.add(self.fault(*self.arguments, times=None, model=MODEL))


ROWS = {
    "busy": Row(Fault.error, (429, 3040, "no capacity"), ours.CapacityError, lc.ModelRateLimitError, True),
    "minute": Row(Fault.error, (429, 3021, "rate limit"), ours.RateLimitError, lc.ModelRateLimitError, True),
    "plain 429": Row(Fault.reply, ("slow down", 429), ours.RateLimitError, lc.ModelRateLimitError, True),
    "quota": Row(Fault.error, (429, 4006, "used up"), ours.QuotaExhaustedError, lc.ModelRateLimitError, False),
    "old quota": Row(Fault.error, (429, 3036, "used up"), ours.QuotaExhaustedError, lc.ModelRateLimitError, False),
    "token": Row(Fault.error, (401, 10000, "no"), ours.AuthenticationError, lc.ModelAuthenticationError, False),
    "gateway": Row(Fault.error, (401, 2009, "no"), ours.AuthenticationError, lc.ModelAuthenticationError, False),
    "forbidden": Row(Fault.error, (403, 5018, "no"), ours.PermissionDeniedError, lc.ModelPermissionDeniedError, False),
    "paid": Row(Fault.error, (403, 5035, "no"), ours.PaidPlanRequiredError, lc.ModelPermissionDeniedError, False),
    "unknown model": Row(Fault.error, (400, 5007, "no"), ours.NotFoundError, lc.ModelNotFoundError, False),
    "retired": Row(Fault.error, (410, 5028, "no"), ours.ModelRetiredError, lc.ModelNotFoundError, False),
    "bad input": Row(Fault.error, (400, 5006, "bad"), ours.BadRequestError, lc.ModelInvalidRequestError, False),
    "window": Row(Fault.error, (413, 5021, "long"), ours.ContextWindowExceededError, lc.ContextOverflowError, False),
    "schema": Row(Fault.error, (400, 5025, "no"), ours.StructuredOutputError, lc.ModelInvalidRequestError, False),
    "too large": Row(Fault.error, (413, 3006, "big"), ours.RequestTooLargeError, lc.ModelInvalidRequestError, False),
    "their timeout": Row(Fault.error, (408, 3007, "late"), ours.RequestTimeoutError, lc.ModelTimeoutError, True),
    "our timeout": Row(Fault.latency, (3600,), ours.APITimeoutError, lc.ModelTimeoutError, True),
    "failure": Row(Fault.error, (500, 3043, "oops"), ours.InternalServerError, lc.ModelAPIError, True),
    "edge page": Row(Fault.html, (522,), ours.InternalServerError, lc.ModelAPIError, True),
    "dropped": Row(Fault.drop, (), ours.APIConnectionError, lc.ModelConnectionError, True),
    "no result": Row(Fault.reply, ({"result": None},), ours.APIResponseValidationError, lc.ModelError, False),
}  # fmt: skip


@pytest.fixture(params=ROWS, name="row")
def failing(request: pytest.FixtureRequest, emulator: Emulator) -> Row:
    """Return a service that always fails for the first model. The second model answers."""
    row = ROWS[request.param]
    row.add(emulator)
    return row


@pytest.fixture
def once(chat: Callable[..., ChatWorkersAI]) -> ChatWorkersAI:
    """Return the failing model without its own retries, so that those of the framework can be counted."""
    return chat(model=MODEL, max_retries=0)


def sent(emulator: Emulator) -> list[str]:
    return [entry.model for entry in emulator.log.entries]


@every_row("method", ["invoke", "stream"])
def test_errors_are_subclasses_in_both_libraries(
    row: Row, once: ChatWorkersAI, emulator: Emulator, call: Any, method: str
) -> None:
    emulator.log.clear()
    with pytest.raises(row.cls) as caught:
        call(once, method, "hello")
    error = caught.value
    assert type(error) is row.cls
    assert isinstance(error, row.kind)
    assert error.is_retryable is row.again
    assert error.attempts == 1
    assert error.model == MODEL
    assert sent(emulator) == [MODEL]
    assert ours.is_retryable(error) is row.again
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert str(copy.copy(error)) == str(error)


def test_attempts_are_counted_in_the_error(
    row: Row, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    with pytest.raises(row.cls) as caught:
        call(chat(model=MODEL, max_retries=2), "invoke", "hello")
    assert caught.value.attempts == len(emulator.log.entries) == (3 if row.again else 1)


def test_model_retry_middleware(row: Row, once: ChatWorkersAI, emulator: Emulator, call: Any) -> None:
    agent = create_agent(once, [], middleware=[ModelRetryMiddleware()])
    question = {"messages": [("user", "hello")]}
    if row.again:
        answer = call(agent, "invoke", question)["messages"][-1]
        assert row.cls.__name__ in answer.text
    else:
        with pytest.raises(row.cls):
            call(agent, "invoke", question)
    assert sent(emulator) == [MODEL] * (3 if row.again else 1)


def test_model_fallback_middleware(
    row: Row, once: ChatWorkersAI, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    agent = create_agent(once, [], middleware=[ModelFallbackMiddleware(chat(model=SECOND))])
    answer = call(agent, "invoke", {"messages": [("user", "hello")]})["messages"][-1]
    assert answer.response_metadata["model_name"] == SECOND
    assert sent(emulator) == [MODEL, SECOND]


RETRYING: list[tuple[Callable[[ChatWorkersAI], Any], int]] = [
    (lambda once: once.with_retry(), 3),
    (lambda once: once.bind(temperature=0).with_retry(stop_after_attempt=2), 2),
    (lambda once: (once | JsonOutputParser()).with_retry(retry_if_exception_type=ours.is_retryable), 3),
]
"""A model, a bound model and a chain that retry, with their number of attempts."""


@every_row(("retrying", "attempts"), RETRYING)
def test_with_retry(
    retrying: Callable[[ChatWorkersAI], Any],
    attempts: int,
    row: Row,
    once: ChatWorkersAI,
    emulator: Emulator,
    call: Any,
) -> None:
    emulator.log.clear()
    with pytest.raises(row.cls):
        call(retrying(once), "invoke", "hello")
    assert sent(emulator) == [MODEL] * (attempts if row.again else 1)


@every_row("method", ["invoke", "stream"])
def test_with_fallbacks(
    row: Row, once: ChatWorkersAI, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any, method: str
) -> None:
    emulator.log.clear()
    answer = call(once.with_fallbacks([chat(model=SECOND)]), method, "hello")
    last = answer[-1] if method == "stream" else answer
    assert last.response_metadata["model_name"] == SECOND
    assert sent(emulator) == [MODEL, SECOND]


class State(TypedDict):
    text: str


def test_langgraph_retry_policy(row: Row, once: ChatWorkersAI, emulator: Emulator, call: Any) -> None:
    def ask(state: State) -> State:
        return {"text": once.invoke(state["text"]).text}

    async def aask(state: State) -> State:
        return {"text": (await once.ainvoke(state["text"])).text}

    graph = StateGraph(State)
    graph.add_node("ask", ask if call.mode == "sync" else aask, retry_policy=RetryPolicy())
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    with pytest.raises(row.cls):
        call(graph.compile(), "invoke", {"text": "hello"})
    assert sent(emulator) == [MODEL] * (3 if row.again else 1)


def test_an_answer_that_does_not_parse_is_retryable(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    emulator.faults.add(
        Fault.reply({"choices": [{"message": {"content": "no JSON"}, "finish_reason": "stop"}]}, times=2)
    )
    emulator.faults.add(Fault.reply({"choices": [{"message": {"content": '{"a": 1}'}, "finish_reason": "stop"}]}))
    structured = chat().with_structured_output({"type": "object", "properties": {"a": {}}}, method="json_schema")
    assert call(structured.with_retry(retry_if_exception_type=ours.is_retryable), "invoke", "hello") == {"a": 1}


def test_every_core_error_has_a_langchain_class() -> None:
    abstract = {"WorkersAIError", "ErrorResponse"}
    for name in set(core.__all__) - abstract:
        twin, original = getattr(twins, name), getattr(core, name)
        assert issubclass(twin, original), name
        assert issubclass(twin, lc.ModelError), name
        assert getattr(ours, name) is twin
        for base in original.__bases__:
            if base.__name__ in core.__all__ and base is not core.WorkersAIError:
                assert issubclass(twin, getattr(twins, base.__name__)), f"{name} is a {base.__name__}"
    assert twins.as_model_error(core.CapacityError("x")).is_retryable is True


def test_the_facts_of_the_reply_are_kept(once: ChatWorkersAI, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(
        Fault.error(429, 3040, "no capacity", retry_after="7", headers={"cf-ray": "ray-1", "cf-aig-log-id": "log-1"})
    )
    with pytest.raises(ours.CapacityError) as caught:
        call(once, "invoke", "hello")
    error = caught.value
    assert (error.status_code, error.code, error.retry_after) == (429, 3040, 7.0)
    assert error.response is not None
    assert error.response.json()["errors"][0]["code"] == 3040
    assert (error.ray_id, error.gateway_log_id) == ("ray-1", "log-1")
    assert error.request_id
    assert "3040" in str(error)
    assert "\n" not in str(error)


def test_an_interrupted_stream_raises_with_the_partial_text(once: ChatWorkersAI, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.sse([b'data: {"choices":[{"index":0,"delta":{"content":"The answer is"}}]}\n\n']))
    with pytest.raises(ours.StreamInterruptedError) as caught:
        call(once, "stream", "hello")
    assert caught.value.partial == "The answer is"
    assert isinstance(caught.value, lc.ModelError)
    assert caught.value.is_retryable is False


def test_an_error_frame_raises_its_own_class(once: ChatWorkersAI, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(
        Fault.sse(
            [
                b'data: {"choices":[{"index":0,"delta":{"content":"par"}}]}\n\n',
                b'data: {"errors":[{"code":3040,"message":"no capacity"}],"success":false}\n\n',
            ]
        )
    )
    with pytest.raises(ours.CapacityError) as caught:
        call(once, "stream", "hello")
    assert caught.value.partial == "par"


@pytest.mark.parametrize("on_busy", ["raise", "reject_if_busy"])
def test_on_busy_raise_goes_straight_to_the_fallback(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any, on_busy: str
) -> None:
    emulator.faults.add(Fault.busy(times=None, model=MODEL))
    setting = {"on_busy": "raise"} if on_busy == "raise" else {"reject_if_busy": True}
    answer = call(chat(model=MODEL, **setting).with_fallbacks([chat(model=SECOND)]), "invoke", "hello")
    assert answer.response_metadata["model_name"] == SECOND
    assert sent(emulator) == [MODEL, SECOND]
    assert emulator.log.entries[0].json["options"] == {"rejectIfBusy": True}


def test_quota_errors_have_the_reset_time(once: ChatWorkersAI, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.error(429, 4006, "used up"))
    with pytest.raises(ours.QuotaExhaustedError, match="00:00 UTC") as caught:
        call(once, "invoke", "hello")
    assert caught.value.resets_at is not None
    assert caught.value.resets_at.hour == 0


def test_configuration_errors_are_not_repeated(once: ChatWorkersAI, emulator: Emulator, call: Any) -> None:
    with pytest.raises(ours.ConfigurationError, match="temperature") as caught:
        call(once.with_retry(), "invoke", "hello", temperatur=1)
    assert isinstance(caught.value, (lc.ModelError, ValueError))
    assert sent(emulator) == []


def test_summarization_catches_the_window(once: ChatWorkersAI, emulator: Emulator) -> None:
    emulator.faults.add(Fault.error(413, 5021, "The estimated number of input tokens exceeds the window"))
    with pytest.raises(lc.ContextOverflowError):
        once.invoke("hello")
