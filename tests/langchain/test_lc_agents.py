"""Complete runs of real agents: sync, async and streamed; graphs, supervisors, memory and structured answers."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain.agents.structured_output import ProviderStrategy, StructuredOutputValidationError, ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel
from typing_extensions import TypedDict

import langchain_workers_ai as ours
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workers_ai import ChatWorkersAI
    from workers_ai_emulator import Emulator

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
GPT_OSS = "@cf/openai/gpt-oss-120b"
KIMI = "@cf/moonshotai/kimi-k2.6"


@tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


@tool
def get_clock(city: str) -> str:
    """Time in a city."""
    return f"noon in {city}"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


TOOLS = [get_weather, get_clock, add]
SETTINGS = [{"model": MODEL}, {"model": MODEL, "api": "run"}, {"model": GPT_OSS}, {"model": KIMI}]
QUESTION = "Use get_weather for Oslo, then get_clock for Oslo, and then add 20 and 22."


def wire(name: str, arguments: dict[str, Any], call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def graph_of(model: ChatWorkersAI, mode: str, **options: Any) -> Any:
    """Return a graph of LangGraph's parts: a model, a tool node and a conditional edge."""
    bound = model.bind_tools(TOOLS)

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke(state["messages"])]}

    async def aask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask if mode == "sync" else aask)
    graph.add_node("tools", ToolNode(TOOLS))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(**options)


@pytest.fixture(params=["create_agent", "graph"])
def agent(request: pytest.FixtureRequest, call: Any) -> Callable[..., Any]:
    """Return a function that creates an agent of either kind, with three tools."""
    if request.param == "create_agent":
        return lambda model, **options: create_agent(model, TOOLS, **options)
    return lambda model, **options: graph_of(model, call.mode, **options)


def run(agent: Any, call: Any, way: str, question: Any, config: Any = None) -> list[Any]:
    """Return all messages of one run. ``"messages"`` streams tokens and returns the sums of their chunks."""
    inputs = {"messages": question if isinstance(question, list) else [("user", question)]}
    if way == "invoke":
        return list(call(agent, "invoke", inputs, config)["messages"])
    parts = call(agent, "stream", inputs, config, stream_mode=["messages", "values"])
    tokens = [part[0] for mode, part in parts if mode == "messages" if isinstance(part[0], AIMessageChunk)]
    messages = [part for mode, part in parts if mode == "values"][-1]["messages"]
    question = max(place for place, message in enumerate(messages) if isinstance(message, HumanMessage))
    for message in messages[question:]:
        if isinstance(message, AIMessage):
            pieces = [token for token in tokens if token.id == message.id]
            assert "".join(piece.text for piece in pieces) == message.text
            assert pieces
    return list(messages)


def state_of(agent: Any, call: Any, way: str, question: str) -> Any:
    """Return the last state of one run."""
    inputs = {"messages": [("user", question)]}
    if way == "invoke":
        return call(agent, "invoke", inputs)
    parts = call(agent, "stream", inputs, stream_mode=["messages", "values"])
    return [part for mode, part in parts if mode == "values"][-1]


@pytest.mark.parametrize("way", ["invoke", "messages"])
@pytest.mark.parametrize(
    "settings", [{"model": MODEL}, {"model": MODEL, "api": "run"}, {"model": GPT_OSS}, {"model": KIMI}]
)
def test_three_tools_one_after_another(
    settings: dict[str, Any], way: str, agent: Any, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    messages = run(agent(chat(**settings)), call, way, QUESTION)
    results = [(message.name, message.content) for message in messages if isinstance(message, ToolMessage)]
    assert results == [("get_weather", "sunny in Oslo"), ("get_clock", "noon in Oslo"), ("add", "42")]
    last = messages[-1]
    assert isinstance(last, AIMessage)
    assert (last.tool_calls, last.response_metadata["finish_reason"]) == ([], "stop")
    assert "42" in last.text
    assert len(emulator.log.entries) == 4
    assert {entry.status for entry in emulator.log.entries} == {200}
    for entry in emulator.log.entries:
        assert entry.json.get("stream", False) is (way == "messages")
        assert all(isinstance(message["content"], str) for message in entry.json["messages"])
    usages = [message.usage_metadata for message in messages if isinstance(message, AIMessage)]
    assert all(usage["input_tokens"] for usage in usages)


@pytest.mark.parametrize("way", ["invoke", "messages"])
def test_ids_that_repeat_in_every_turn(
    way: str, agent: Any, chat: Callable[..., ChatWorkersAI], model: Any, call: Any
) -> None:
    """LangGraph keys results by id; Kimi counts from zero in each reply (https://github.com/cloudflare/ai/issues/526)."""
    for city in ("Oslo", "Moss", "Rome"):
        model.says(
            None,
            reasoning_content=f"try {city}",
            tool_calls=[wire("get_weather", {"city": city}, "functions.get_weather:0")],
        )
    model.says("All sunny, all day, everywhere.")
    messages = run(agent(chat(model=KIMI, api=model.route)), call, way, "Weather?")
    results = [message for message in messages if isinstance(message, ToolMessage)]
    assert [message.content for message in results] == ["sunny in Oslo", "sunny in Moss", "sunny in Rome"]
    assert len({message.tool_call_id for message in results}) == 3
    sent = model.bodies[-1]["messages"]
    assert {one["tool_call_id"] for one in sent if one["role"] == "tool"} == {"functions.get_weather:0"}
    assert [one["reasoning"] for one in sent if "tool_calls" in one] == ["try Oslo", "try Moss", "try Rome"]


@pytest.mark.parametrize("way", ["invoke", "messages"])
def test_parallel_calls_that_share_an_id(
    way: str, agent: Any, chat: Callable[..., ChatWorkersAI], model: Any, call: Any
) -> None:
    model.says(
        "",
        tool_calls=[
            wire("get_weather", {"city": "Oslo"}),
            wire("get_clock", {"city": "Moss"}),
            wire("add", {"a": 1, "b": 2}),
        ],
    )
    model.says("All of that, one by one.")
    messages = run(agent(chat(model=MODEL, api=model.route)), call, way, "Weather, clock and sum?")
    results = {message.content for message in messages if isinstance(message, ToolMessage)}
    assert results == {"sunny in Oslo", "noon in Moss", "3"}
    sent = [one["tool_call_id"] for one in model.bodies[-1]["messages"] if one["role"] == "tool"]
    assert len(set(sent)) == 3


@pytest.mark.parametrize("way", ["invoke", "messages"])
def test_a_truncated_tool_call_is_not_run(
    way: str, agent: Any, chat: Callable[..., ChatWorkersAI], model: Any, call: Any
) -> None:
    cut = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Os'}}
    model.says("", tool_calls=[cut]).says("Once more, then.")
    messages = run(agent(chat(model=MODEL, api=model.route)), call, way, "Weather?")
    assert not [message for message in messages if isinstance(message, ToolMessage) and "sunny" in str(message.content)]
    assert messages[1].invalid_tool_calls[0]["name"] == "get_weather"


def test_the_error_of_a_tool_is_sent_to_the_model(chat: Callable[..., ChatWorkersAI], model: Any, call: Any) -> None:
    """An invalid value is passed to the tool unchanged, and its error is sent back (https://github.com/cloudflare/workers-sdk/issues/13333)."""
    model.says("", tool_calls=[wire("add", {"a": '<|"|', "b": 2})]).says("I cannot add that.")
    messages = run(create_agent(chat(model=MODEL, api=model.route), TOOLS), call, "invoke", "Add!")
    assert messages[2].status == "error"
    assert messages[-1].text == "I cannot add that."
    assert "a" in model.bodies[-1]["messages"][2]["content"]


def test_an_error_in_the_middle_is_typed(
    agent: Any, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    emulator.faults.add(Fault.error(429, 4006, "used up", skip=1))
    with pytest.raises(ours.QuotaExhaustedError, match="00:00 UTC"):
        run(agent(chat(model=MODEL)), call, "invoke", QUESTION)
    assert len(emulator.log.entries) == 2


def test_an_error_3040_between_replies_is_retried(
    agent: Any, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    emulator.faults.add(Fault.busy(skip=1, times=2))
    messages = run(agent(chat(model=MODEL)), call, "messages", QUESTION)
    assert "42" in messages[-1].text
    assert [entry.code for entry in emulator.log.entries] == [None, 3040, 3040, None, None, None]


# --- a supervisor ---


def test_a_supervisor_with_two_agents(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    """Each agent is a tool of the supervisor."""
    weather = create_agent(chat(model=MODEL), [get_weather], system_prompt="You know the weather.")
    sums = create_agent(chat(model=MODEL), [add], system_prompt="You add.")

    def talk(agent: Any, request: str) -> str:
        return str(agent.invoke({"messages": [("user", request)]})["messages"][-1].text)

    @tool
    def ask_weather(request: str) -> str:
        """Ask the weather agent."""
        return talk(weather, "What is the weather in Oslo?")

    @tool
    def ask_sums(request: str) -> str:
        """Ask the agent that adds."""
        return talk(sums, "What is 20 plus 22?")

    supervisor = create_agent(chat(model=GPT_OSS), [ask_weather, ask_sums])
    messages = run(supervisor, call, "invoke", "Use ask_weather for Oslo, then ask_sums for 20 plus 22.")
    results = {message.name: message.content for message in messages if isinstance(message, ToolMessage)}
    assert "sunny in Oslo" in results["ask_weather"]
    assert "42" in results["ask_sums"]
    assert "42" in messages[-1].text
    assert [entry.model for entry in emulator.log.entries].count(MODEL) == 4


# --- memory ---


def test_a_conversation_continues_in_a_new_object(
    agent: Any, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    saver = InMemorySaver()
    config = {"configurable": {"thread_id": "t-1"}}
    first = run(agent(chat(model=MODEL), checkpointer=saver), call, "invoke", "What is the weather in Oslo?", config)
    again = run(
        agent(chat(model=GPT_OSS), checkpointer=saver), call, "messages", "What is the clock in Bergen?", config
    )
    assert again[: len(first)] == first
    assert "noon in Bergen" in again[-1].text
    assert [one["role"] for one in emulator.log.last.json["messages"]] == [
        "user", "assistant", "tool", "assistant", "user", "assistant", "tool",
    ]  # fmt: skip
    assert {entry.headers["x-session-affinity"] for entry in emulator.log.entries} == {"t-1"}


def test_the_model_can_change_during_a_conversation(chat: Callable[..., ChatWorkersAI], model: Any, call: Any) -> None:
    """A turn with reasoning and calls of one model is sent to a model of another family."""
    model.says(
        "", reasoning_content="think", tool_calls=[wire("get_weather", {"city": "Oslo"}, "functions.get_weather:0")]
    )
    history = [HumanMessage("Weather?")]
    history.append(call(chat(model=KIMI, api=model.route).bind_tools(TOOLS), "invoke", history))
    history.append(get_weather.invoke(history[-1].tool_calls[0]))
    for name in (MODEL, GPT_OSS, "@cf/mistralai/mistral-small-3.1-24b-instruct"):
        assert "sunny in Oslo" in call(chat(model=name, api=model.route).bind_tools(TOOLS), "invoke", history).text
    # Mistral accepts only ids of nine letters and digits.
    ids = [one["tool_call_id"] for one in model.bodies[-1]["messages"] if one["role"] == "tool"]
    assert [len(one) for one in ids] == [9]


def test_a_long_history_is_summarized_when_the_window_is_full(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    """The profile has the size of the window. If it is exceeded, the error is the class that the middleware catches."""
    emulator.faults.add(Fault.error(413, 5021, "exceeds the context window"))  # applies to the request for a summary
    one = chat(model=MODEL)
    middleware = SummarizationMiddleware(one, trigger=("fraction", 0.05), keep=("messages", 2))
    agent = create_agent(one, [], middleware=[middleware])
    history: list[Any] = []
    for n in range(20):
        history += [HumanMessage(f"question {n} " * 30), AIMessage(f"answer {n} " * 30)]
    messages = run(agent, call, "invoke", [*history, HumanMessage("hi")])
    assert [entry.code for entry in emulator.log.entries] == [5021, None, None]
    assert len(emulator.log.entries[1].body) < len(emulator.log.entries[0].body)
    assert len(emulator.log.last.json["messages"]) == 3
    assert messages[-1].text


# --- structured answers ---


class Weather(BaseModel):
    """Weather of a city."""

    city: str
    sunny: bool


class WeatherDict(TypedDict):
    """Weather of a city."""

    city: str
    sunny: bool


@pytest.mark.parametrize("way", ["invoke", "messages"])
@pytest.mark.parametrize("schema", [Weather, WeatherDict])
@pytest.mark.parametrize("settings", [{"model": MODEL}, {"model": GPT_OSS}, {"model": MODEL, "api": "run"}])
def test_an_answer_by_the_models_own_schema(
    settings: dict[str, Any], schema: Any, way: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    """A bare schema uses the provider strategy, because the profile lists structured output."""
    agent = create_agent(chat(**settings), [get_weather], response_format=schema)
    state = state_of(agent, call, way, "What is the weather in Oslo?")
    answer = state["structured_response"]
    assert isinstance(answer, Weather) if schema is Weather else answer.keys() == {"city", "sunny"}
    bodies = [entry.json for entry in emulator.log.entries]
    assert all(body["response_format"]["type"] == "json_schema" for body in bodies)
    assert [[one["function"]["name"] for one in body["tools"]] for body in bodies] == [["get_weather"]] * len(bodies)
    assert [message.content for message in state["messages"] if isinstance(message, ToolMessage)] == ["sunny in Oslo"]


@pytest.mark.parametrize("way", ["invoke", "messages"])
@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
def test_an_answer_by_either_strategy(
    strategy: Any, way: str, chat: Callable[..., ChatWorkersAI], model: Any, call: Any
) -> None:
    model.says("", tool_calls=[wire("get_weather", {"city": "Oslo"})])
    text = json.dumps({"city": "Oslo", "sunny": True})
    if strategy is ToolStrategy:
        model.says("", tool_calls=[wire("Weather", json.loads(text), "c2")])
    else:
        model.says(text, times=None)
    agent = create_agent(chat(model=GPT_OSS, api=model.route), [get_weather], response_format=strategy(Weather))
    state = state_of(agent, call, way, "Weather of Oslo?")
    assert state["structured_response"] == Weather(city="Oslo", sunny=True)
    assert len(model.bodies) == 2
    if strategy is ToolStrategy:
        assert model.bodies[0]["tool_choice"] == "required"
        assert "response_format" not in model.bodies[0]


def test_a_model_without_schemas_answers_by_a_tool(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    one = chat(model="@cf/qwen/qwen3-30b-a3b-fp8")
    assert not (one.profile or {}).get("structured_output")
    agent = create_agent(one, [], response_format=Weather)
    state = call(agent, "invoke", {"messages": [("user", "The weather of Oslo is sunny.")]})
    assert isinstance(state["structured_response"], Weather)
    assert emulator.log.last.json["tools"][0]["function"]["name"] == "Weather"


def test_an_answer_without_tools(chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, call: Any) -> None:
    agent = create_agent(chat(model=MODEL, api=route), [], response_format=ProviderStrategy(Weather))
    state = call(agent, "invoke", {"messages": [("user", "The weather of Oslo is sunny.")]})
    assert isinstance(state["structured_response"], Weather)
    assert "tools" not in emulator.log.last.json


def test_an_answer_that_does_not_fit_is_an_error(chat: Callable[..., ChatWorkersAI], model: Any, call: Any) -> None:
    model.says("Sure! It is sunny.", times=None)
    agent = create_agent(chat(model=MODEL, api=model.route), [], response_format=ProviderStrategy(Weather))
    with pytest.raises(StructuredOutputValidationError):
        call(agent, "invoke", {"messages": [("user", "Weather?")]})


# --- copies ---


def test_a_copied_agent_works(chat: Callable[..., ChatWorkersAI], call: Any) -> None:
    agent = copy.copy(create_agent(chat(model=MODEL), TOOLS))
    assert "42" in run(agent, call, "invoke", QUESTION)[-1].text


def test_an_agent_made_of_a_pickled_model(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    """Compiled graphs cannot be pickled. Models, tools and messages can, and a new agent is created from them."""
    one = chat(model=MODEL)
    back = pickle.loads(pickle.dumps(one))
    back.http_client, back.http_async_client = one.http_client, one.http_async_client
    messages = run(create_agent(back, TOOLS), call, "invoke", QUESTION)
    assert "42" in messages[-1].text
    assert pickle.loads(pickle.dumps(messages)) == messages


def test_an_agent_in_another_loop(chat: Callable[..., ChatWorkersAI]) -> None:
    agent = create_agent(chat(model=MODEL), TOOLS)
    for _ in range(2):
        state = asyncio.run(agent.ainvoke({"messages": [("user", QUESTION)]}))
        assert "42" in state["messages"][-1].text


@pytest.mark.parametrize("route", ["chat_completions"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [("", "length"), (None, "abort"), ('{"path": "a', "length"), ('{"path": NaN}', "content_filter")],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_truncated_or_empty_tool_call_is_not_run(
    streaming: bool, reason: str, arguments: Any, chat: Callable[..., ChatWorkersAI], model: Any, call: Any
) -> None:
    """https://github.com/vllm-project/vllm/pull/46303"""
    ran: list[str] = []

    @tool
    def delete(path: str = "*") -> str:
        """Delete files."""
        ran.append(path)
        return "deleted"

    function = {"name": "delete", "arguments": arguments}
    model.says("", reason, tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": function}], times=None)
    agent = create_agent(chat(model=GPT_OSS, api=model.route, streaming=streaming), [delete])
    last = call(agent, "invoke", {"messages": [HumanMessage("hi")]})["messages"][-1]
    assert ran == []
    assert last.response_metadata["finish_reason"] == reason
    (invalid,) = last.invalid_tool_calls
    assert (invalid["name"], invalid["args"]) == ("delete", arguments or "")
    assert {"length": "max_tokens", "content_filter": "content filter", "abort": "'abort'"}[reason] in invalid["error"]
