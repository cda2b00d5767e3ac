"""Reasoning: its settings in the body, its text beside the answer, and answers that it leaves without text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workers_ai import ChatWorkersAI
    from workers_ai_emulator import Emulator

MODEL = "@cf/zai-org/glm-5.2"
SWITCH = {"enable_thinking": False}


@pytest.mark.parametrize("place", ["object", "call", "bind"])
@pytest.mark.parametrize(
    "given",
    [
        {"reasoning_effort": "low"},
        {"reasoning_effort": None},
        {"chat_template_kwargs": SWITCH},
        {"reasoning_effort": "high", "chat_template_kwargs": SWITCH},
    ],
    ids=["effort", "no effort", "switch", "both"],
)
def test_settings_are_sent_in_the_body(
    given: dict[str, Any],
    place: str,
    chat: Callable[..., ChatWorkersAI],
    emulator: Emulator,
    route: str,
    ask: Callable[..., Any],
) -> None:
    """https://github.com/cloudflare/ai/issues/501; an effort of None given explicitly is sent as null."""
    one: Any = chat(model=MODEL, api=route, **(given if place == "object" else {}))
    ask(one.bind(**given) if place == "bind" else one, "hi", **(given if place == "call" else {}))
    body = emulator.log.last.json
    assert {name: body[name] for name in given} == given
    assert emulator.log.last.query == {}


def test_an_effort_per_call_outranks_that_of_the_object(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    one = chat(model=MODEL, reasoning_effort="high")
    for given, sent in (({}, "high"), ({"reasoning_effort": "low"}, "low"), ({"reasoning_effort": None}, None)):
        call(one, "invoke", "hi", **given)
        assert emulator.log.last.json["reasoning_effort"] == sent


def test_an_unset_effort_is_not_sent(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    call(chat(model=MODEL), "invoke", "hi")
    assert not {"reasoning_effort", "chat_template_kwargs"} & emulator.log.last.json.keys()


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_separate_from_the_text(
    name: str, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    """https://github.com/langchain-ai/langchain/issues/35006"""
    model.says("4", **{name: "2 + 2"})
    answer = ask(chat(model=MODEL, api=model.route), "hi")
    assert (answer.content, answer.text) == ("4", "4")
    assert answer.additional_kwargs == {"reasoning_content": "2 + 2"}
    assert [(block["type"], block.get("reasoning", block.get("text"))) for block in answer.content_blocks] == [
        ("reasoning", "2 + 2"),
        ("text", "4"),
    ]
    assert StrOutputParser().invoke(answer) == "4"


def test_standard_blocks(chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]) -> None:
    model.says("4", reasoning_content="2 + 2")
    answer = ask(chat(model=MODEL, api=model.route, output_version="v1"), "hi")
    blocks = [{key: value for key, value in block.items() if key != "index"} for block in answer.content]
    assert blocks == [{"type": "reasoning", "reasoning": "2 + 2"}, {"type": "text", "text": "4"}]
    assert answer.text == "4"


@pytest.mark.parametrize("output_version", ["v0", "v1"])
def test_reasoning_is_sent_back_in_the_form_of_the_service(
    output_version: str, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    model.says("4", reasoning_content="2 + 2").says("8")
    one = chat(model=MODEL, api=model.route, output_version=output_version)
    first = ask(one, "2 + 2?")
    ask(one, [HumanMessage("2 + 2?"), first, HumanMessage("twice?")])
    assert model.bodies[-1]["messages"][1] == {"role": "assistant", "content": "4", "reasoning": "2 + 2"}


@pytest.mark.parametrize("route", ["chat_completions"], indirect=True)
def test_an_answer_whose_reasoning_used_up_max_tokens(
    chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    """https://github.com/cloudflare/workers-sdk/issues/13239"""
    model.says(None, "length", reasoning_content="First I ...")
    answer = ask(chat(model=MODEL), "hi")
    assert (answer.content, answer.response_metadata["finish_reason"]) == ("", "length")
    assert answer.additional_kwargs["reasoning_content"] == "First I ..."


@pytest.mark.parametrize("method", ["function_calling", "json_schema", "json_mode"])
@pytest.mark.parametrize("route", ["chat_completions"], indirect=True)
def test_structured_output_then_suggests_a_higher_max_tokens(
    method: Any, chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    model.says(None, "length", reasoning_content="First I ...")
    schema = {"title": "answer", "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    with pytest.raises(OutputParserException, match="increase max_tokens"):
        ask(chat(model=MODEL).with_structured_output(schema, method=method), "hi")


def test_reasoning_options_change_the_answer_of_the_emulator(
    chat: Callable[..., ChatWorkersAI], ask: Callable[..., Any]
) -> None:
    thought = ask(chat(model="@cf/openai/gpt-oss-120b", reasoning_effort="high"), "Why is the sky blue?")
    assert thought.additional_kwargs["reasoning_content"]
    silent = ask(chat(model=MODEL, chat_template_kwargs=SWITCH), "Why is the sky blue?")
    assert (silent.additional_kwargs, bool(silent.text)) == ({}, True)


def test_a_lone_closing_tag_is_left_in_the_text(
    chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    """Tags are not split (https://github.com/cloudflare/workers-ai-provider/issues/16)."""
    model.says("count legs\n</think>\n\nFour.")
    one = chat(model="@cf/deepseek-ai/deepseek-r1-distill-qwen-32b", api=model.route)
    assert ask(one, "hi").text == "count legs\n</think>\n\nFour."


def test_json_is_read_behind_a_closing_tag(chat: Callable[..., ChatWorkersAI], model: Any, call: Any) -> None:
    model.says('count legs\n</think>\n\n{"legs": 4}')
    schema = {"title": "legs", "type": "object", "properties": {"legs": {"type": "integer"}}}
    structured = chat(api=model.route).with_structured_output(schema, method="json_mode")
    assert call(structured, "invoke", "hi") == {"legs": 4}


def test_reasoning_of_another_class_does_not_reach_the_text(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    message = AIMessage(
        [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "secret"}]},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "4"},
        ]
    )
    call(chat(model=MODEL), "invoke", [HumanMessage("hi"), message, HumanMessage("hi")])
    turn = emulator.log.last.json["messages"][1]
    assert turn == {"role": "assistant", "content": "4", "reasoning": "secret"}
