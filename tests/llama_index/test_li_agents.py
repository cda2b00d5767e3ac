"""Agents: complete runs, streamed events and errors."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.agent.workflow import (
    AgentOutput,
    AgentStream,
    AgentWorkflow,
    FunctionAgent,
    ReActAgent,
    ToolCall,
    ToolCallResult,
)
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel
from tests.llama_index.conftest import tool_call

from workers_ai.errors import APIResponseValidationError, CapacityError, ConfigurationError
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.llms.workers_ai import WorkersAI
    from tests.llama_index.conftest import Script
    from tests.support import Caller

    from workers_ai_emulator import Emulator

    Make = Callable[..., WorkersAI]

# LlamaIndex reads every attribute of an agent, including those that pydantic deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
GPT_OSS = "@cf/openai/gpt-oss-120b"
FORCED = {"type": "function", "function": {"name": "weather"}}


def weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


def clock(zone: str) -> str:
    """Time in a zone."""
    return f"noon in {zone}"


def asks(script: Script, *calls: dict[str, Any], streaming: bool = True, **fields: Any) -> None:
    """Script a turn in which the model calls tools."""
    if streaming:
        script.deltas(*([fields] if fields else []), {"tool_calls": list(calls)}, finish="tool_calls")
    else:
        script.completion({"content": "", "tool_calls": list(calls), **fields}, finish="tool_calls")


def says(script: Script, *pieces: str) -> None:
    """Script a turn in which the model answers, in pieces."""
    script.deltas(*({"content": piece} for piece in pieces))


def run(agent: Any, question: Any, **options: Any) -> Any:
    """Return the output of one run."""

    async def ask() -> Any:
        return await agent.run(question, **options)

    return asyncio.run(ask())


def watched(agent: Any, question: str) -> tuple[Any, list[Any]]:
    """Return the output of one run and its events."""

    async def ask() -> Any:
        handler = agent.run(question)
        events = [event async for event in handler.stream_events()]
        return await handler, events

    return asyncio.run(ask())


class TestFunctionAgent:
    @pytest.mark.parametrize("streaming", [True, False])
    @pytest.mark.parametrize("settings", [{"model": LLAMA}, {"model": GPT_OSS}, {"model": LLAMA, "api": "run"}])
    def test_agent_finishes(self, llm: Make, emulator: Emulator, streaming: bool, settings: dict[str, Any]) -> None:
        agent = FunctionAgent(llm=llm(**settings), tools=[weather, clock], streaming=streaming)
        output = run(agent, "What is the weather in Paris?")
        assert "sunny in Paris" in str(output)
        assert [result.tool_name for result in output.tool_calls] == ["weather"]
        assert emulator.log.requests == 2
        assert all(isinstance(message["content"], str) for message in emulator.log.last.json["messages"])

    @pytest.mark.parametrize("streaming", [True, False])
    def test_three_tool_turns(self, llm: Make, script: Script, emulator: Emulator, streaming: bool) -> None:
        # The model counts its calls from zero in every reply, and reasons before each.
        for city in ("Oslo", "Moss", "Rome"):
            call = tool_call("weather", f'{{"city": "{city}"}}', "functions.weather:0", 0)
            asks(script, call, streaming=streaming, reasoning_content=f"try {city}")
        agent = FunctionAgent(llm=llm(model=GPT_OSS), tools=[weather, clock], streaming=streaming)
        output = run(agent, "What is the weather?")
        assert [result.tool_kwargs["city"] for result in output.tool_calls] == ["Oslo", "Moss", "Rome"]
        assert len({result.tool_id for result in output.tool_calls}) == 3
        history = emulator.log.last.json["messages"]
        calls = [call for message in history for call in message.get("tool_calls", ())]
        results = [message for message in history if message["role"] == "tool"]
        # The model's own ids are sent back to it.
        assert {call["id"] for call in calls} == {one["tool_call_id"] for one in results} == {"functions.weather:0"}
        assert [result["content"] for result in results] == ["sunny in Oslo", "sunny in Moss", "sunny in Rome"]
        assert all(isinstance(message["content"], str) for message in history)
        assert [message["reasoning"] for message in history if "tool_calls" in message] == [
            "try Oslo",
            "try Moss",
            "try Rome",
        ]

    def test_all_parallel_calls_of_one_chunk_run(self, llm: Make, script: Script, emulator: Emulator) -> None:
        asks(
            script,
            tool_call("weather", '{"city": "Oslo"}', "same", 0),
            tool_call("clock", '{"zone": "CET"}', "same", 1),
            tool_call("weather", '{"city": "Rome"}', "same", 2),
        )
        output = run(FunctionAgent(llm=llm(), tools=[weather, clock]), "Weather and time?")
        assert sorted(str(result.tool_output) for result in output.tool_calls) == [
            "noon in CET",
            "sunny in Oslo",
            "sunny in Rome",
        ]
        results = {one["tool_call_id"]: one["content"] for one in emulator.log.last.json["messages"][-3:]}
        assert len(results) == 3

    def test_tool_without_arguments(self, llm: Make, script: Script) -> None:
        asks(script, tool_call("now", "", "c", 0))
        now = FunctionTool.from_defaults(lambda: "noon", name="now", description="Time")
        (result,) = run(FunctionAgent(llm=llm(), tools=[now]), "Time?").tool_calls
        assert (result.tool_kwargs, str(result.tool_output)) == ({}, "noon")

    def test_initial_tool_choice_applies_to_first_step_only(self, llm: Make, emulator: Emulator) -> None:
        run(FunctionAgent(llm=llm(), tools=[weather, clock], initial_tool_choice="weather"), "Paris?")
        first, second = (entry.json for entry in emulator.log.entries)
        assert first["tool_choice"] == FORCED
        assert "tool_choice" not in second

    def test_tool_error_is_sent_to_the_model(self, llm: Make, script: Script, emulator: Emulator) -> None:
        asks(script, tool_call("weather", '{"town": "Paris"}', "a", 0))
        run(FunctionAgent(llm=llm(), tools=[weather]), "weather?")
        assert "unexpected keyword argument 'town'" in emulator.log.last.json["messages"][-1]["content"]

    def test_return_direct_then_next_run(self, llm: Make, script: Script, emulator: Emulator) -> None:
        asks(script, tool_call("weather", '{"city": "Oslo"}', "a", 0))
        direct = FunctionTool.from_defaults(weather, return_direct=True)
        agent, memory = FunctionAgent(llm=llm(), tools=[direct]), ChatMemoryBuffer.from_defaults(token_limit=4000)
        assert str(run(agent, "Weather?", memory=memory)) == "sunny in Oslo"
        run(agent, "Thanks", memory=memory)
        assistants = [one for one in emulator.log.last.json["messages"] if one["role"] == "assistant"]
        assert all("tool_call_id" not in one for one in assistants)

    def test_conversation_over_several_runs(self, llm: Make, emulator: Emulator) -> None:
        agent = FunctionAgent(llm=llm(), tools=[weather], system_prompt="Be brief.")
        memory = ChatMemoryBuffer.from_defaults(token_limit=4000)
        run(agent, "What is the weather in Paris?", memory=memory)
        run(agent, "What is the weather in Rome?", memory=memory)
        roles = [message["role"] for message in emulator.log.last.json["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "tool"]

    def test_image_in_the_question(self, llm: Make, emulator: Emulator) -> None:
        picture = ImageBlock(image=b"\x89PNG", image_mimetype="image/png")
        question = ChatMessage(role="user", blocks=[TextBlock(text="What is this?"), picture])
        run(FunctionAgent(llm=llm(model="@cf/moonshotai/kimi-k2.6"), tools=[weather]), question)
        content = emulator.log.entries[0].json["messages"][0]["content"]
        assert [part["type"] for part in content] == ["text", "image_url"]

    def test_agents_with_copied_models(self, llm: Make) -> None:
        twin = llm().model_copy(update={"temperature": 0.0})
        assert "sunny" in str(run(FunctionAgent(llm=twin, tools=[weather]), "What is the weather in Paris?"))
        again = pickle.loads(pickle.dumps(twin))
        again.http_async_client = twin.http_async_client
        assert "sunny" in str(run(FunctionAgent(llm=again, tools=[weather]), "What is the weather in Paris?"))

    def test_capacity_error_reaches_the_caller(self, llm: Make, emulator: Emulator) -> None:
        emulator.faults.add(Fault.busy(times=None))
        with pytest.raises(CapacityError):
            run(FunctionAgent(llm=llm(on_busy="raise"), tools=[weather]), "weather?")
        assert emulator.log.requests == 1

    @pytest.mark.parametrize("streaming", [True, False])
    def test_malformed_arguments_raise_and_run_no_tool(self, llm: Make, script: Script, streaming: bool) -> None:
        asks(script, tool_call("weather", "city=Oslo", "a", 0), streaming=streaming)
        with pytest.raises(APIResponseValidationError, match="not a JSON object"):
            run(FunctionAgent(llm=llm(), tools=[weather], streaming=streaming), "weather?")

    def test_model_without_tools_raises(self, llm: Make, call: Caller, emulator: Emulator) -> None:
        model = llm(model="@cf/meta/llama-3.2-1b-instruct")
        with pytest.raises(ValueError, match="FunctionCallingLLM"):
            run(FunctionAgent(llm=model, tools=[weather]), "weather?")
        with pytest.raises(ConfigurationError, match=r"llama-3.2-1b-instruct does not call tools.*is_function_calling"):
            call(model, "predict_and_call", [FunctionTool.from_defaults(weather)], user_msg="weather?")
        assert emulator.log.requests == 0


class TestEvents:
    def test_events_of_a_run(self, llm: Make, script: Script) -> None:
        asks(script, tool_call("weather", '{"city": "Oslo"}', "a", 0), reasoning_content="look it up")
        says(script, "It is ", "sunny.")
        output, events = watched(FunctionAgent(llm=llm(model=GPT_OSS), tools=[weather]), "Weather?")
        (called,) = [event for event in events if type(event) is ToolCall]
        (result,) = [event for event in events if isinstance(event, ToolCallResult)]
        streamed = [event for event in events if isinstance(event, AgentStream)]
        assert (called.tool_name, called.tool_kwargs) == ("weather", {"city": "Oslo"})
        assert str(result.tool_output) == "sunny in Oslo"
        assert "".join(event.thinking_delta or "" for event in streamed) == "look it up"
        assert "".join(event.delta for event in streamed) == "It is sunny."
        assert streamed[-1].response == str(output) == "It is sunny."
        assert sum(isinstance(event, AgentOutput) for event in events) == 2

    def test_partial_calls_are_streamed(self, llm: Make, script: Script) -> None:
        pieces = ['{"ci', 'ty": "Os', 'lo"}']
        script.deltas(*({"tool_calls": [tool_call("weather", piece, "a", 0)]} for piece in pieces), finish="tool_calls")
        _, events = watched(FunctionAgent(llm=llm(), tools=[weather]), "Weather?")
        seen = [
            event.tool_calls[0].tool_kwargs for event in events if isinstance(event, AgentStream) and event.tool_calls
        ]
        assert {"city": "Os"} in seen
        assert {"city": "Oslo"} in seen

    def test_raw_reply_of_the_last_chunk_is_kept(self, llm: Make, script: Script) -> None:
        script.deltas({"content": "hi"}, usage={"prompt_tokens": 7, "completion_tokens": 3})
        output, _ = watched(FunctionAgent(llm=llm(), tools=[weather]), "Hello")
        assert output.raw["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


class TestWorkflows:
    def test_handoff_between_agents(self, llm: Make, script: Script, emulator: Emulator) -> None:
        asks(script, tool_call("handoff", '{"to_agent": "sky", "reason": "it knows"}', "h1", 0))
        asks(script, tool_call("weather", '{"city": "Paris"}', "w1", 0))
        desk = FunctionAgent(name="desk", description="Greets", llm=llm(), tools=[clock], can_handoff_to=["sky"])
        sky = FunctionAgent(name="sky", description="Knows the weather", llm=llm(model=GPT_OSS), tools=[weather])
        output = run(AgentWorkflow(agents=[desk, sky], root_agent="desk"), "What is the weather in Paris?")
        assert output.current_agent_name == "sky"
        assert "sunny in Paris" in str(output)
        assert [entry.model for entry in emulator.log.entries] == [LLAMA, GPT_OSS, GPT_OSS]

    def test_structured_output(self, llm: Make) -> None:
        class Report(BaseModel):
            """A report."""

            city: str
            sky: str

        workflow = AgentWorkflow.from_tools_or_functions([weather], llm=llm(), output_cls=Report)
        assert isinstance(run(workflow, "What is the weather in Paris?").get_pydantic_model(Report), Report)

    @pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning")
    @pytest.mark.parametrize("streaming", [True, False])
    def test_react_agent_works_without_tool_calls(self, llm: Make, script: Script, streaming: bool) -> None:
        for text in (
            'Thought: I need the weather.\nAction: weather\nAction Input: {"city": "Oslo"}',
            "Thought: I can answer without using any more tools.\nAnswer: Sunny.",
        ):
            if streaming:
                says(script, text[:20], text[20:])
            else:
                script.completion({"content": text})
        model = llm(model="@cf/meta/llama-3.2-1b-instruct")
        output = run(ReActAgent(llm=model, tools=[weather], streaming=streaming), "Weather in Oslo?")
        assert str(output) == "Sunny."
        assert [str(result.tool_output) for result in output.tool_calls] == ["sunny in Oslo"]


@pytest.mark.parametrize("arguments", ["", '{"path": "a', '{"path": NaN}'])
@pytest.mark.parametrize("streaming", [False, True])
def test_truncated_or_empty_call_is_not_run(streaming: bool, arguments: str, llm: Make, script: Script) -> None:
    ran: list[str] = []

    def delete(path: str = "*") -> str:
        """Delete files."""
        ran.append(path)
        return "deleted"

    one = tool_call("delete", arguments)
    if streaming:
        script.deltas({"tool_calls": [{"index": 0, **one}]}, finish="length")
    else:
        script.completion({"content": "", "tool_calls": [one]}, finish="length")

    async def run() -> Any:
        return await FunctionAgent(tools=[delete], llm=llm(max_retries=0), streaming=streaming).run("hi")

    with pytest.raises(APIResponseValidationError, match="of delete are not a JSON object"):
        asyncio.run(run())
    assert ran == []
