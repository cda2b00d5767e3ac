"""Tools: definitions in the request, and tool calls of the reply in every form."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.tools import FunctionTool
from tests.llama_index.conftest import tool_call
from tests.support import every_row

from workers_ai.errors import APIResponseValidationError, BadRequestError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.llms.workers_ai import WorkersAI
    from tests.llama_index.conftest import Script
    from tests.support import Caller

    from workers_ai_emulator import Emulator

    Make = Callable[..., WorkersAI]

USER = [ChatMessage(role="user", content="What is the weather in Paris?")]
FORCED = {"type": "function", "function": {"name": "weather"}}


def weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


def clock(zone: str) -> str:
    """Time in a zone."""
    return f"noon in {zone}"


WEATHER = FunctionTool.from_defaults(weather)
CLOCK = FunctionTool.from_defaults(clock)
ODD = FunctionTool.from_defaults(weather, name="Weather[str] of a city")


def selections(model: WorkersAI, response: Any) -> list[tuple[str, dict[str, Any]]]:
    found = model.get_tool_calls_from_response(response, error_on_no_tool_call=False)
    return [(one.tool_name, one.tool_kwargs) for one in found]


class TestRequest:
    @every_row(
        ("tools", "options", "choice"),
        [
            ([WEATHER], {}, None),
            ([WEATHER], {"tool_required": True}, FORCED),
            ([WEATHER, CLOCK], {"tool_required": True}, "required"),
            ([WEATHER, CLOCK], {"tool_choice": "any"}, "required"),
            ([WEATHER, CLOCK], {"tool_choice": "auto"}, "auto"),
            ([WEATHER, CLOCK], {"tool_choice": "auto", "tool_required": True}, "required"),
            ([WEATHER, CLOCK], {"tool_choice": "none"}, "none"),
            ([WEATHER, CLOCK], {"tool_choice": "weather"}, FORCED),
            ([WEATHER, CLOCK], {"tool_choice": FORCED, "tool_required": True}, FORCED),
            ([], {"tool_required": True}, None),
        ],
    )
    def test_tool_choice(
        self, llm: Make, emulator: Emulator, call: Caller, tools: Any, options: dict[str, Any], choice: Any
    ) -> None:
        call(llm(), "chat_with_tools", tools, chat_history=USER, **options)
        assert emulator.log.last.json.get("tool_choice") == choice

    @pytest.mark.parametrize("model", ["@cf/mistralai/mistral-small-3.1-24b-instruct", "@cf/zai-org/glm-4.7-flash"])
    def test_tool_is_forced_on_every_model(self, llm: Make, emulator: Emulator, call: Caller, model: str) -> None:
        one = llm(model=model)
        response = call(one, "chat_with_tools", [WEATHER], chat_history=USER, tool_required=True)
        assert emulator.log.last.json["tool_choice"] == FORCED
        assert [name for name, _ in selections(one, response)] == ["weather"]

    def test_tool_name_is_sanitised_and_restored(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        model = llm()
        response = call(model, "chat_with_tools", [ODD], chat_history=USER, tool_choice="Weather[str] of a city")
        assert emulator.log.last.json["tool_choice"]["function"]["name"] == "Weather_str__of_a_city"
        assert selections(model, response) == [("Weather[str] of a city", {"city": "Paris"})]
        answer = call(model, "predict_and_call", [ODD], chat_history=USER, tool_required=True)
        assert answer.response == "sunny in Paris"

    @pytest.mark.filterwarnings(
        "ignore::pydantic.warnings.PydanticDeprecationWarning"
    )  # LlamaIndex's agents use deprecated fields
    def test_tool_name_is_restored_in_streams_and_agents(self, llm: Make, call: Caller) -> None:
        model = llm()
        responses = call(model, "stream_chat_with_tools", [ODD], chat_history=USER, tool_required=True)
        assert selections(model, responses[-1]) == [("Weather[str] of a city", {"city": "Paris"})]
        agent = FunctionAgent(llm=model, tools=[ODD], initial_tool_choice="Weather[str] of a city")

        async def ask() -> Any:
            return await agent.run("What is the weather in Paris?")

        assert [str(result.tool_output) for result in asyncio.run(ask()).tool_calls] == ["sunny in Paris"]

    def test_duplicate_tool_names_raise(self, llm: Make) -> None:
        twin = FunctionTool.from_defaults(clock, name="Weather[str]_of a city")
        with pytest.raises(ValueError, match="two tools have the name 'Weather_str__of_a_city'"):
            llm().chat_with_tools([ODD, twin], chat_history=USER)

    def test_tool_choice_field_is_the_default(self, llm: Make, emulator: Emulator) -> None:
        llm(tool_choice="weather").chat_with_tools([WEATHER, CLOCK], chat_history=USER)
        assert emulator.log.last.json["tool_choice"] == FORCED

    def test_default_choice_of_another_tool_is_not_sent(self, llm: Make, emulator: Emulator) -> None:
        model = llm(tool_choice="weather")
        model.chat_with_tools([CLOCK], chat_history=USER)
        assert "tool_choice" not in emulator.log.last.json
        model.chat_with_tools([CLOCK], chat_history=USER, tool_required=True)
        assert emulator.log.last.json["tool_choice"]["function"]["name"] == "clock"

    @pytest.mark.parametrize("choice", ["wether", {"type": "function", "function": {"name": "wether"}}])
    def test_choice_of_an_unknown_tool_raises(self, llm: Make, emulator: Emulator, call: Caller, choice: Any) -> None:
        with pytest.raises(ConfigurationError, match="'wether' is not one of the tools: weather, clock"):
            call(llm(), "chat_with_tools", [WEATHER, CLOCK], chat_history=USER, tool_choice=choice)
        assert emulator.log.requests == 0

    def test_non_tool_is_rejected(self, llm: Make, call: Caller) -> None:
        with pytest.raises(BadRequestError, match=r"tool 1 is a function: use FunctionTool\.from_defaults"):
            call(llm(), "chat_with_tools", [WEATHER, clock], chat_history=USER)

    @pytest.mark.parametrize("allowed", [True, False])
    def test_parallel_tool_calls_is_sent_only_if_set(self, llm: Make, emulator: Emulator, allowed: bool) -> None:
        llm().chat_with_tools([WEATHER], chat_history=USER, allow_parallel_tool_calls=allowed)
        assert "parallel_tool_calls" not in emulator.log.last.json
        llm(parallel_tool_calls=allowed).chat_with_tools([WEATHER], chat_history=USER)
        assert emulator.log.last.json["parallel_tool_calls"] is allowed

    def test_tool_schema_has_no_extra_keys(self, llm: Make, emulator: Emulator) -> None:
        llm().chat_with_tools([WEATHER], chat_history=USER)
        (tool,) = emulator.log.last.json["tools"]
        assert set(tool["function"]) == {"name", "description", "parameters"}
        assert "additionalProperties" not in tool["function"]["parameters"]

    def test_user_msg_can_be_a_chat_message(self, llm: Make, emulator: Emulator) -> None:
        llm().chat_with_tools([WEATHER], user_msg=ChatMessage(role="user", content="hi"), chat_history=USER)
        assert [message["content"] for message in emulator.log.last.json["messages"]] == [USER[0].content, "hi"]


class TestReplies:
    def test_parallel_calls_are_trimmed_unless_allowed(self, llm: Make, script: Script, call: Caller) -> None:
        calls = [tool_call("weather", '{"city": "Paris"}', "a"), tool_call("clock", '{"zone": "CET"}', "b")]
        both = [("weather", {"city": "Paris"}), ("clock", {"zone": "CET"})]
        for allowed, expected in ((True, both), (False, both[:1])):
            script.completion({"content": "", "tool_calls": calls}, finish="tool_calls")
            model = llm()
            response = call(
                model, "chat_with_tools", [WEATHER, CLOCK], chat_history=USER, allow_parallel_tool_calls=allowed
            )
            assert selections(model, response) == expected
            assert len(response.message.additional_kwargs["tool_calls"]) == len(expected)

    @pytest.mark.parametrize("arguments", ["", None, "null", {}])
    def test_missing_arguments_become_an_empty_object(
        self, llm: Make, script: Script, call: Caller, arguments: Any
    ) -> None:
        script.completion({"content": "", "tool_calls": [tool_call("now", arguments)]})
        model = llm()
        assert selections(model, call(model, "chat", USER)) == [("now", {})]

    def test_native_flat_call_without_id(self, llm: Make, script: Script, call: Caller) -> None:
        script.native({"response": None, "tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]})
        model = llm(api="run")
        response = call(model, "chat", USER)
        assert selections(model, response) == [("weather", {"city": "Oslo"})]
        assert response.message.blocks[-1].tool_call_id

    @pytest.mark.parametrize(("arguments", "cut"), [('{"city": "Par', True), ("city=Paris", False)])
    def test_malformed_arguments_raise(
        self, llm: Make, script: Script, call: Caller, arguments: str, cut: bool
    ) -> None:
        script.completion({"content": "", "tool_calls": [tool_call("weather", arguments)]}, finish="length")
        model = llm()
        response = call(model, "chat", USER)
        with pytest.raises(APIResponseValidationError, match="of weather are not a JSON") as caught:
            model.get_tool_calls_from_response(response)
        assert ("increase max_tokens" in str(caught.value)) == cut

    def test_arguments_must_be_an_object(self, llm: Make, script: Script) -> None:
        script.completion({"content": "", "tool_calls": [tool_call("weather", "[1]")]})
        model = llm()
        with pytest.raises(APIResponseValidationError):
            model.get_tool_calls_from_response(model.chat(USER))

    def test_unusual_tool_call_id_is_kept(self, llm: Make, script: Script) -> None:
        script.completion({"content": "", "tool_calls": [tool_call("refund", '{"ref": "<|\\"|", "cents": 950}')]})
        model = llm()
        assert selections(model, model.chat(USER)) == [("refund", {"ref": '<|"|', "cents": 950})]

    def test_forced_call_written_as_text_is_parsed(self, llm: Make, script: Script, call: Caller) -> None:
        script.completion({"content": '{"city": "Paris"}', "tool_calls": []})
        model = llm()
        response = call(model, "chat_with_tools", [WEATHER], chat_history=USER, tool_required=True)
        assert selections(model, response) == [("weather", {"city": "Paris"})]


class TestStreams:
    def test_two_calls_in_one_chunk(self, llm: Make, script: Script, call: Caller) -> None:
        calls = [tool_call("weather", '{"city": "A"}', "a", 0), tool_call("clock", '{"zone": "B"}', "b", 1)]
        script.deltas({"tool_calls": calls}, finish="tool_calls")
        model = llm()
        last = call(model, "stream_chat", USER)[-1]
        assert selections(model, last) == [("weather", {"city": "A"}), ("clock", {"zone": "B"})]

    def test_name_and_id_repeated_in_each_chunk(self, llm: Make, script: Script, call: Caller) -> None:
        script.deltas(
            {"tool_calls": [tool_call("add", '{"a":', "1", 0)]}, {"tool_calls": [tool_call("add", " 2}", "1", 0)]}
        )
        model = llm()
        *_, block = call(model, "stream_chat", USER)[-1].message.blocks
        assert block == ToolCallBlock(tool_call_id="1", tool_name="add", tool_kwargs={"a": 2})

    def test_arguments_before_the_name_and_nulls_at_the_end(self, llm: Make, script: Script, call: Caller) -> None:
        script.deltas(
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"zone":'}}]},
            {"tool_calls": [tool_call("clock", '"CET"}', "c1", 0)]},
            {"tool_calls": [{"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": None}}]},
        )
        model = llm()
        assert selections(model, call(model, "stream_chat", USER)[-1]) == [("clock", {"zone": "CET"})]

    def test_partial_arguments_can_be_read(self, llm: Make, script: Script, call: Caller) -> None:
        pieces = ["", '{"city"', ': "Par', 'is"}']
        script.deltas(*({"tool_calls": [tool_call("weather", piece, "a", 0)]} for piece in pieces))
        model = llm()
        read = [selections(model, response)[0][1] for response in call(model, "stream_chat", USER)]
        assert read[0] == {}
        assert {"city": "Par"} in read
        assert read[-1] == {"city": "Paris"}

    def test_generated_ids_are_unique_over_turns(self, llm: Make, script: Script, call: Caller) -> None:
        past = ChatMessage(
            role="assistant", blocks=[ToolCallBlock(tool_call_id="t:0", tool_name="weather", tool_kwargs={})]
        )
        result = ChatMessage(role="tool", content="x", additional_kwargs={"tool_call_id": "t:0"})
        calls = [tool_call("weather", "{}", "t:0", 0), tool_call("clock", "{}", "t:0", 1)]
        script.deltas({"tool_calls": calls})
        last = call(llm(), "stream_chat", [*USER, past, result, *USER])[-1]
        ids = [block.tool_call_id for block in last.message.blocks if isinstance(block, ToolCallBlock)]
        assert len({"t:0", *ids}) == 3
