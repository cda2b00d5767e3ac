"""Keywords of one call: settings as in the OpenAI SDK, and keywords that LlamaIndex's components pass."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from llama_index.core.agent.react import ReActChatFormatter, ReActOutputParser
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.extractors import DocumentContextExtractor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.tools import FunctionTool
from llama_index.llms.workers_ai import GatewayOptions
from pydantic import BaseModel
from tests.support import every_row

from workers_ai.errors import CapacityError, ConfigurationError
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.llms.workers_ai import WorkersAI
    from tests.llama_index.conftest import Script
    from tests.support import Caller

    from workers_ai_emulator import Emulator

    Make = Callable[..., WorkersAI]

USER = [ChatMessage(role="user", content="Hello")]
FORMS = pytest.mark.parametrize(
    ("form", "given"), [("chat", USER), ("stream_chat", USER), ("complete", "Hello"), ("stream_complete", "Hello")]
)


class Person(BaseModel):
    """A person."""

    name: str
    age: int


class TestSettings:
    @FORMS
    def test_settings_are_sent(self, llm: Make, emulator: Emulator, call: Caller, form: str, given: Any) -> None:
        settings = {
            "extra_headers": {"x-trace": "t-1"}, "extra_body": {"lora_scale": 1}, "max_completion_tokens": 7,
            "gateway": GatewayOptions("other", metadata={"team": "a"}), "timeout": (5, 60), "max_retries": None,
        }  # fmt: skip
        call(llm(gateway="usual"), form, given, **settings)
        sent = emulator.log.last
        assert (sent.headers["x-trace"], sent.headers["cf-aig-gateway-id"]) == ("t-1", "other")
        assert (sent.json["lora_scale"], sent.json["max_tokens"]) == (1, 7)

    @FORMS
    def test_reject_if_busy(self, llm: Make, emulator: Emulator, call: Caller, form: str, given: Any) -> None:
        emulator.faults.add(Fault.error(429, 3040, "busy", times=5))
        with pytest.raises(CapacityError):
            call(llm(), form, given, reject_if_busy=True)
        assert emulator.log.requests == 1
        assert emulator.log.last.json["options"] == {"rejectIfBusy": True}

    @pytest.mark.parametrize("form", ["structured_predict", "stream_structured_predict"])
    @pytest.mark.parametrize("settings", [{}, {"should_use_structured_outputs": True}])
    def test_settings_of_structured_prediction(
        self, llm: Make, emulator: Emulator, call: Caller, form: str, settings: Any
    ) -> None:
        options = {"extra_headers": {"x-trace": "t-1"}, "timeout": 9, "max_tokens": 99}
        call(llm(**settings), form, Person, PromptTemplate("Ann is 41 years old."), llm_kwargs=options)
        assert (emulator.log.last.headers["x-trace"], emulator.log.last.json["max_tokens"]) == ("t-1", 99)

    def test_settings_of_construction(self, llm: Make, emulator: Emulator) -> None:
        model = llm(max_retries=None, timeout=(5, 60), max_completion_tokens=7, total_timeout=30)
        model.chat(USER)
        assert emulator.log.last.json["max_tokens"] == 7
        assert model.timeout == httpx.Timeout(60, connect=5)

    def test_the_same_setting_twice_is_rejected(self, llm: Make) -> None:
        with pytest.raises(ConfigurationError, match="max_tokens was set twice"):
            llm().chat(USER, max_tokens=5, max_completion_tokens=7)

    @FORMS
    def test_response_format_of_additional_kwargs_never_streams(
        self, llm: Make, emulator: Emulator, call: Caller, form: str, given: Any
    ) -> None:
        call(llm(additional_kwargs={"response_format": {"type": "json_object"}}), form, given)
        assert "stream" not in emulator.log.last.json

    @pytest.mark.parametrize("per_call", [True, False])
    def test_response_format_accepts_a_class(self, llm: Make, emulator: Emulator, call: Caller, per_call: bool) -> None:
        settings = {"response_format": Person}
        found = call(llm(**({} if per_call else settings)), "chat", USER, **(settings if per_call else {}))
        sent = emulator.log.last.json["response_format"]["json_schema"]
        assert (sent["name"], sent["description"]) == ("Person", "A person.")
        assert sent["schema"]["required"] == ["name", "age"]
        assert "stream" not in emulator.log.last.json
        assert found.message.content

    def test_responses_route_rejects_other_models(self, llm: Make, emulator: Emulator, call: Caller) -> None:
        with pytest.raises(ConfigurationError, match="gpt-oss"):
            call(llm(api="responses"), "chat", USER)
        assert emulator.log.requests == 0


class TestKeywordsWithoutMeaning:
    @FORMS
    def test_ignored_with_one_warning(self, llm: Make, emulator: Emulator, call: Caller, form: str, given: Any) -> None:
        with pytest.warns(UserWarning, match="WorkersAI ignores user=") as caught:
            call(llm(), form, given, user="u-1", n=1)
        assert len(caught) == 1
        assert not {"user", "n"} & emulator.log.last.json.keys()

    def test_n_above_one_is_rejected(self, llm: Make) -> None:
        with pytest.raises(ConfigurationError, match="n=2: the service returns one answer per call"):
            llm().chat(USER, n=2)


@pytest.mark.parametrize("reasoning", [None, "It is about a ferry."])
def test_document_context_extractor(llm: Make, emulator: Emulator, script: Script, reasoning: str | None) -> None:
    """The extractor passes a header of Anthropic, ignores errors, and reads only the first block of the answer."""
    script.completion({"content": "About ferries.", "reasoning_content": reasoning})
    docstore = SimpleDocumentStore()
    docstore.add_documents([TextNode(id_="doc", text="The ferry leaves at 14:02. The museum is closed on Mondays.")])
    node = TextNode(text="The ferry leaves at 14:02.")
    node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc")
    extractor = DocumentContextExtractor(docstore=docstore, llm=llm(), max_context_length=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = asyncio.run(extractor.aextract([node]))
    assert found["context"] == "About ferries."
    assert emulator.log.last.headers["anthropic-beta"]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
def test_predict_and_call_by_react(llm: Make, script: Script, call: Caller) -> None:
    """A model without tools uses the text protocol if formatter and parser are passed."""
    model = llm(model="@cf/meta/llama-3.2-1b-instruct")
    text = 'Thought: I need the weather.\nAction: weather\nAction Input: {"city": "Oslo"}'
    script.deltas({"content": text[:20]}, {"content": text[20:]})

    def weather(city: str) -> str:
        """Weather of a city."""
        return f"sunny in {city}"

    tools = [FunctionTool.from_defaults(weather)]
    parts = {"react_chat_formatter": ReActChatFormatter(), "output_parser": ReActOutputParser()}
    assert call(model, "predict_and_call", tools, user_msg="Weather?", **parts).response == "sunny in Oslo"


class TestObjectsAmongWords:
    """One JSON value is found, no matter whether it was requested in the prompt, by a schema or by a forced tool."""

    @pytest.mark.parametrize(
        "settings", [{"pydantic_program_mode": "llm"}, {"should_use_structured_outputs": True}, {}]
    )
    @pytest.mark.parametrize("form", ["structured_predict", "stream_structured_predict"])
    @every_row(
        "text",
        [
            '{"name": "Ann", "age": 41}',
            'Sure! Here it is:\n```json\n{"name": "Ann", "age": 41}\n```\nLet me know.',
            '<think>{"name"?}</think>{"name": "Ann", "age": 41}\n\nHope it helps',
        ],
    )
    def test_one_value_in_prose(
        self, llm: Make, script: Script, emulator: Emulator, call: Caller, form: str, text: str, settings: Any
    ) -> None:
        if (
            form == "structured_predict" or "should_use_structured_outputs" in settings
        ):  # an answer to a schema is not streamed
            script.completion({"content": text})
        else:
            script.deltas({"content": text[:30]}, {"content": text[30:]})
        found = call(llm(**settings), form, Person, PromptTemplate("{text}"), text="x")
        assert (found[-1] if isinstance(found, list) else found) == Person(name="Ann", age=41)
        in_prompt = "JSON schema" in emulator.log.last.json["messages"][0]["content"]
        assert in_prompt == ("pydantic_program_mode" in settings)
