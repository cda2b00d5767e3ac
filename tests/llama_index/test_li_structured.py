"""Structured prediction in its four forms, by tool and by schema."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.extractors import PydanticProgramExtractor
from llama_index.core.instrumentation.events.llm import (
    LLMStructuredPredictEndEvent,
    LLMStructuredPredictInProgressEvent,
    LLMStructuredPredictStartEvent,
)
from llama_index.core.program import FunctionCallingProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import TextNode
from llama_index.core.selectors import PydanticSingleSelector
from llama_index.core.tools import ToolMetadata
from llama_index.core.types import PydanticProgramMode
from pydantic import BaseModel
from tests.llama_index.conftest import tool_call

from workers_ai.errors import APIResponseValidationError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.llms.workers_ai import WorkersAI
    from tests.llama_index.conftest import Script
    from tests.support import Caller

    from workers_ai_emulator import Emulator

    Make = Callable[..., WorkersAI]

ASK = PromptTemplate("{text}")
FORCED = {"type": "function", "function": {"name": "Person"}}
FORMS = pytest.mark.parametrize("form", ["structured_predict", "stream_structured_predict"])


class Person(BaseModel):
    """A person."""

    name: str
    age: int


class City(BaseModel):
    name: str


class Trip(BaseModel):
    """A trip."""

    city: City
    mood: Literal["calm", "wild"]
    note: str | None = None
    when: int | str


def answer(script: Script, form: str, arguments: str, **options: Any) -> None:
    """Script a call of ``Person`` in the requested form."""
    if form == "structured_predict":
        script.completion({"content": "", "tool_calls": [tool_call("Person", arguments)]}, **options)
    else:
        script.deltas({"tool_calls": [tool_call("Person", arguments, index=0)]}, **options)


def prose(script: Script, form: str, text: str, finish: str = "stop") -> None:
    """Script prose instead of the object."""
    if form == "structured_predict":
        script.completion({"content": text}, finish=finish)
    else:
        script.deltas({"content": text}, finish=finish)


class TestByTool:
    @FORMS
    def test_tool_is_forced_in_every_form(self, llm: Make, emulator: Emulator, call: Caller, form: str) -> None:
        call(llm(), form, Person, ASK, text="Ann is 41 years old.")
        assert emulator.log.last.json["tool_choice"] == FORCED
        assert emulator.log.requests == 1

    @FORMS
    def test_tool_choice_of_the_model_is_overridden(
        self, llm: Make, emulator: Emulator, call: Caller, form: str
    ) -> None:
        for choice in ("weather", "none", "auto", {"type": "function", "function": {"name": "weather"}}):
            call(llm(tool_choice=choice), form, Person, ASK, text="Ann is 41 years old.")
            assert emulator.log.last.json["tool_choice"] == FORCED

    @FORMS
    def test_output_cls_must_be_a_class(self, llm: Make, call: Caller, form: str) -> None:
        with pytest.raises(ConfigurationError, match="output_cls must be a pydantic class"):
            call(llm(), form, dict, ASK, text="x")

    @FORMS
    def test_system_prompt_is_kept_in_every_form(self, llm: Make, emulator: Emulator, call: Caller, form: str) -> None:
        call(llm(system_prompt="Be exact."), form, Person, ASK, text="Ann is 41 years old.")
        assert [message["role"] for message in emulator.log.last.json["messages"]] == ["system", "user"]

    @FORMS
    def test_plain_text_raises(self, llm: Make, script: Script, call: Caller, form: str) -> None:
        prose(script, form, "Sure! Ann is 41.")
        with pytest.raises(
            APIResponseValidationError, match=r"valid Person: the model wrote text instead of a tool call.*Ann"
        ):
            call(llm(), form, Person, ASK, text="x")

    @FORMS
    def test_call_written_as_text_is_parsed(self, llm: Make, script: Script, call: Caller, form: str) -> None:
        prose(script, form, '{"name": "Ann", "age": 41}')
        found = call(llm(model="@cf/openai/gpt-oss-120b"), form, Person, ASK, text="x")
        assert (found[-1] if isinstance(found, list) else found) == Person(name="Ann", age=41)

    @FORMS
    def test_reasoning_up_to_max_tokens_suggests_max_tokens(
        self, llm: Make, script: Script, call: Caller, form: str
    ) -> None:
        prose(script, form, "", finish="length")
        with pytest.raises(APIResponseValidationError, match="increase max_tokens"):
            call(llm(), form, Person, ASK, text="x")

    @FORMS
    def test_missing_field_raises_with_the_answer(self, llm: Make, script: Script, call: Caller, form: str) -> None:
        answer(script, form, '{"name": "Ann"}')
        with pytest.raises(ValueError, match="age: Field required") as caught:
            call(llm(), form, Person, ASK, text="x")
        assert caught.value.body == '{"name": "Ann"}'

    @FORMS
    def test_endless_repetition_is_shortened_in_the_error(
        self, llm: Make, script: Script, call: Caller, form: str
    ) -> None:
        answer(script, form, '{"name": "' + "A-001-" * 4000, finish="length")
        with pytest.raises(APIResponseValidationError) as caught:
            call(llm(), form, Person, ASK, text="x")
        assert len(str(caught.value)) < 1000
        assert "increase max_tokens" in str(caught.value)

    @FORMS
    def test_options_of_the_caller_are_not_changed(
        self, llm: Make, emulator: Emulator, call: Caller, form: str
    ) -> None:
        options = {"tool_choice": "none", "temperature": 0.5}
        call(llm(), form, Person, ASK, llm_kwargs=options, text="Ann is 41 years old.")
        assert options == {"tool_choice": "none", "temperature": 0.5}
        assert emulator.log.last.json["tool_choice"] == FORCED
        assert emulator.log.last.json["temperature"] == 0.5

    def test_partial_objects_are_streamed(self, llm: Make, script: Script, call: Caller) -> None:
        pieces = ['{"name": "A', 'nn", "age"', ": 41}"]
        script.deltas(*({"tool_calls": [tool_call("Person", piece, index=0)]} for piece in pieces))
        seen = call(llm(), "stream_structured_predict", Person, ASK, text="x")
        assert [found.name for found in seen][:2] == ["A", "Ann"]
        assert seen[0].age is None
        assert seen[-1] == Person(name="Ann", age=41)

    @FORMS
    def test_model_without_forced_tools_uses_a_schema(
        self, llm: Make, emulator: Emulator, call: Caller, form: str
    ) -> None:
        model = llm(model="@cf/mistralai/mistral-small-3.1-24b-instruct")
        call(model, form, Person, ASK, text="Ann is 41 years old.")
        assert emulator.log.last.route == "run"
        assert emulator.log.last.json["guided_json"]["required"] == ["name", "age"]
        assert "tool_choice" not in emulator.log.last.json

    def test_nested_optional_union_and_enum(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        trip = call(llm(), "structured_predict", Trip, ASK, text="A calm trip to Oslo in 2027")
        assert isinstance(trip, Trip)
        assert "$defs" not in str(emulator.log.last.json["tools"])

    @FORMS
    def test_events(self, llm: Make, events: list[Any], call: Caller, form: str) -> None:
        call(llm(), form, Person, ASK, text="Ann is 41 years old.")
        assert sum(isinstance(event, LLMStructuredPredictStartEvent) for event in events) == 1
        (end,) = [event for event in events if isinstance(event, LLMStructuredPredictEndEvent)]
        assert end.output == Person(name="Ann", age=41)
        streamed = any(isinstance(event, LLMStructuredPredictInProgressEvent) for event in events)
        assert streamed == (form == "stream_structured_predict")


class TestBySchema:
    @FORMS
    def test_schema_is_sent_with_a_name(self, llm: Make, emulator: Emulator, call: Caller, form: str) -> None:
        call(llm(should_use_structured_outputs=True), form, Person, ASK, text="Ann is 41 years old.")
        body = emulator.log.last.json
        assert body["response_format"]["json_schema"]["name"] == "Person"
        assert body["response_format"]["json_schema"]["schema"]["required"] == ["name", "age"]
        assert "tools" not in body

    def test_schema_is_bare_on_the_native_route(self, llm: Make, emulator: Emulator) -> None:
        model = llm(should_use_structured_outputs=True, api="run")
        assert model.structured_predict(Person, ASK, text="Ann is 41 years old.") == Person(name="Ann", age=41)
        assert emulator.log.last.json["response_format"]["json_schema"]["title"] == "Person"

    def test_object_instead_of_text(self, llm: Make, script: Script, call: Caller) -> None:
        script.native({"response": {"name": "Ann", "age": 41}})
        model = llm(should_use_structured_outputs=True, api="run")
        assert call(model, "structured_predict", Person, ASK, text="x") == Person(name="Ann", age=41)

    @pytest.mark.parametrize(
        "text",
        [
            '```json\n{"name": "Ann", "age": 41}\n```',
            'Ann, 41.\n</think>\n\n{"name": "Ann", "age": 41}',
            ' {"name": "Ann", "age": 41}\n',
        ],
    )
    @FORMS
    def test_object_in_a_code_fence_or_after_reasoning(
        self, llm: Make, script: Script, call: Caller, form: str, text: str
    ) -> None:
        script.completion({"content": text})  # the service does not stream objects
        found = call(llm(should_use_structured_outputs=True), form, Person, ASK, text="x")
        assert (found[-1] if isinstance(found, list) else found) == Person(name="Ann", age=41)

    def test_line_breaks_in_strings_are_accepted(self, llm: Make, script: Script, call: Caller) -> None:
        script.completion({"content": '{"name": "Ann\nLee", "age": 41}'})
        found = call(llm(should_use_structured_outputs=True), "structured_predict", Person, ASK, text="x")
        assert found == Person(name="Ann\nLee", age=41)

    def test_refusal_raises(self, llm: Make, script: Script, call: Caller) -> None:
        script.completion({"content": None, "refusal": "I cannot tell."})
        with pytest.raises(APIResponseValidationError, match=r"the model refused.*I cannot tell"):
            call(llm(should_use_structured_outputs=True), "structured_predict", Person, ASK, text="x")

    @FORMS
    def test_text_without_an_object_raises(self, llm: Make, script: Script, call: Caller, form: str) -> None:
        script.completion({"content": "Sure! Here is ..."})
        with pytest.raises(APIResponseValidationError, match="Sure! Here is"):
            call(llm(should_use_structured_outputs=True), form, Person, ASK, text="x")

    def test_model_without_tools_uses_a_schema(self, llm: Make, emulator: Emulator) -> None:
        model = llm(model="@cf/deepseek-ai/deepseek-r1-distill-qwen-32b")
        assert model.structured_predict(Person, ASK, text="Ann is 41 years old.") == Person(name="Ann", age=41)
        assert "response_format" in emulator.log.last.json


class TestByText:
    @FORMS
    def test_text_mode_adds_instructions_to_the_prompt(
        self, llm: Make, script: Script, call: Caller, form: str
    ) -> None:
        prose(script, form, '{"name": "Ann", "age": 41}')
        model = llm(pydantic_program_mode=PydanticProgramMode.LLM)
        found = call(model, form, Person, PromptTemplate("{text}"), text="x")
        assert (found[-1] if isinstance(found, list) else found) == Person(name="Ann", age=41)


class TestComponents:
    """Components of LlamaIndex that request objects in their own way."""

    @pytest.mark.filterwarnings("ignore:The `json` method is deprecated:DeprecationWarning")  # LlamaIndex calls it
    @pytest.mark.parametrize("method", ["chat", "complete", "stream_chat"])
    def test_structured_llm(self, llm: Make, call: Caller, method: str) -> None:
        structured = llm().as_structured_llm(Person)
        text = "Ann is 41 years old."
        given = text if method == "complete" else [ChatMessage(role="user", content=text)]
        response = call(structured, method, given)
        assert (response[-1] if isinstance(response, list) else response).raw == Person(name="Ann", age=41)

    @pytest.mark.parametrize("parallel", [True, False])
    def test_function_calling_program(self, llm: Make, emulator: Emulator, call: Caller, parallel: bool) -> None:
        program = FunctionCallingProgram.from_defaults(
            output_cls=Person, prompt=ASK, llm=llm(), allow_parallel_tool_calls=parallel
        )
        text = "Ann is 41 years old."
        found = program(text=text) if call.mode == "sync" else asyncio.run(program.acall(text=text))
        assert found == ([Person(name="Ann", age=41)] if parallel else Person(name="Ann", age=41))
        assert emulator.log.last.json["tool_choice"] == FORCED

    def test_streamed_function_calling_program(self, llm: Make) -> None:
        # LlamaIndex drops every tool choice here.
        program = FunctionCallingProgram.from_defaults(output_cls=Person, prompt=ASK, llm=llm(tool_choice="Person"))
        assert list(program.stream_call(text="Ann is 41 years old."))[-1] == Person(name="Ann", age=41)

    def test_selector(self, llm: Make, script: Script, call: Caller) -> None:
        choices = [ToolMetadata(name="a", description="about museums"), ToolMetadata(name="b", description="ferries")]
        script.completion({"content": "", "tool_calls": [tool_call("SingleSelection", '{"index": 2, "reason": "r"}')]})
        found = call(PydanticSingleSelector.from_defaults(llm=llm()), "select", choices, "When does the ferry leave?")
        assert (found.ind, found.reason) == (1, "r")

    def test_extractor(self, llm: Make) -> None:
        program = FunctionCallingProgram.from_defaults(output_cls=Person, prompt=ASK, llm=llm())
        extractor = PydanticProgramExtractor(program=program, input_key="text", show_progress=False)
        nodes = [TextNode(text="Ann is 41 years old."), TextNode(text="Bob is 30 years old.")]
        assert extractor.extract(nodes) == [{"name": "Ann", "age": 41}, {"name": "Bob", "age": 30}]
