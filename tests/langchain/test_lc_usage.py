"""Tokens, neurons and cost: correct in complete and streamed answers, and counted once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import HumanMessage

from langchain_workers_ai import BadRequestError
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workers_ai import ChatWorkersAI
    from workers_ai_emulator import Emulator

MODEL = "@cf/zai-org/glm-5.2"
OTHER = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
PRICE_IN, PRICE_CACHED, PRICE_OUT = (
    1.4e-6,
    0.26e-6,
    4.4e-6,
)  # https://developers.cloudflare.com/workers-ai/platform/pricing/
PRICE_NEURON = 0.011 / 1000


def tokens(given: int, made: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made, **more}


WANTED = {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14}


def event(usage: Any, content: str = "a", finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}], "usage": usage}


STREAMS: dict[str, list[dict[str, Any]]] = {
    "at the end, without a choice": [event(None), event(None, "", "stop"), {"choices": [], "usage": tokens(10, 4)}],
    "at the end, with the finish reason": [event(None), event(tokens(10, 4), "", "stop")],
    # https://github.com/langchain-ai/langchain/issues/30429
    "running totals": [event(tokens(10, 1)), event(tokens(10, 2)), event(tokens(10, 4), "", "stop")],
    # https://github.com/cloudflare/ai/issues/651
    "increments": [event(tokens(10, 1)), event(tokens(0, 1)), event(tokens(0, 2)), event(tokens(0, 0), "", "stop")],
    "increments, and a record at the end": [
        event(tokens(10, 1)),
        event(tokens(0, 3), "", "stop"),
        {"choices": [], "usage": tokens(10, 4)},
    ],
    "floats": [
        event(tokens(10, 1, neurons=0.2)),
        event(tokens(10, 2, neurons=0.3)),
        event(tokens(10, 4, neurons=0.5), "", "stop"),
    ],
    "native": [{"response": "a"}, {"response": "", "usage": tokens(10, 4)}],
}


@pytest.mark.parametrize("shape", STREAMS)
def test_streams(shape: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    lines = [b"data: " + json.dumps(one).encode() + b"\n\n" for one in STREAMS[shape]]
    emulator.faults.add(Fault.sse([*lines, b"data: [DONE]\n\n"], times=None))
    one = chat(model=MODEL)
    chunks = call(one, "stream", "hi")
    assert [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata] == [WANTED]
    total = call.collect(one, "hi")
    assert total.usage_metadata == WANTED
    numbers = [name for chunk in chunks for name in ("neurons", "cost_usd") if name in chunk.response_metadata]
    assert numbers.count("cost_usd") == 1
    assert numbers.count("neurons") == (1 if shape == "floats" else 0)


def test_details(chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]) -> None:
    usage = tokens(
        10,
        4,
        prompt_tokens_details={"cached_tokens": 8},
        completion_tokens_details={"reasoning_tokens": 3},
    )
    model.says("Hi", usage=usage)
    answer = ask(chat(model=MODEL, api=model.route), "hi")
    details = {"input_token_details": {"cache_read": 8}, "output_token_details": {"reasoning": 3}}
    assert answer.usage_metadata == {**WANTED, **details}
    assert answer.response_metadata["cost_usd"] == pytest.approx(2 * PRICE_IN + 8 * PRICE_CACHED + 4 * PRICE_OUT)
    assert "neurons" not in answer.response_metadata


def test_neurons_outrank_the_list_price(
    chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    model.says("Hi", usage=tokens(10, 4, neurons=2.5))
    metadata = ask(chat(model=MODEL, api=model.route), "hi").response_metadata
    assert metadata["neurons"] == 2.5
    assert metadata["cost_usd"] == pytest.approx(2.5 * PRICE_NEURON)


def test_neurons_of_the_header(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    body = {"result": {"response": "Hi", "usage": tokens(10, 4)}, "success": True}
    emulator.faults.add(Fault.reply(body, headers={"cf-ai-neurons": "1.98"}))
    assert call(chat(model=MODEL), "invoke", "hi").response_metadata["neurons"] == 1.98


def test_a_model_without_a_price_has_no_cost(
    chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]
) -> None:
    model.says("Hi", usage=tokens(10, 4))
    metadata = ask(chat(model="@cf/new/model", api=model.route), "hi").response_metadata
    assert not {"neurons", "cost_usd"} & metadata.keys()


def test_an_alias_is_charged_as_the_model_that_answered(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    """Successors answer for retired models (https://github.com/cloudflare/cloudflare-docs/issues/32501)."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    emulator.faults.add(Fault.reply({"choices": [choice], "model": MODEL, "usage": tokens(10, 4)}))
    metadata = call(chat(model="@cf/old/alias"), "invoke", "hi").response_metadata
    assert (metadata["model_name"], metadata["served_model"]) == ("@cf/old/alias", MODEL)
    assert metadata["cost_usd"] == pytest.approx(10 * PRICE_IN + 4 * PRICE_OUT)


def test_missing_usage_is_none(chat: Callable[..., ChatWorkersAI], model: Any, ask: Callable[..., Any]) -> None:
    model.says("Hi")
    assert ask(chat(model=MODEL, api=model.route), "hi").usage_metadata is None


def test_streams_report_their_usage_by_default(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    """https://github.com/langchain-ai/langchain-litellm/issues/115"""
    assert call.collect(chat(model=OTHER), "hi").usage_metadata["output_tokens"] > 0
    assert emulator.log.last.json["stream_options"] == {"include_usage": True}
    for one, given in ((chat(model=OTHER, stream_usage=False), {}), (chat(model=OTHER), {"stream_usage": False})):
        call.collect(one, "hi", **given)
        assert emulator.log.last.json["stream_options"] == {"include_usage": False}


def test_a_service_that_does_not_report_usage_still_answers(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    refused = Fault.error(400, 5006, "Bad input: Error: additional property '/stream_options'")
    emulator.faults.add(refused)
    total = call.collect(chat(model=OTHER), "hi")
    assert total.text
    assert [entry.json.get("stream_options") for entry in emulator.log.entries] == [{"include_usage": True}, None]
    emulator.log.clear()
    emulator.faults.add(Fault.error(400, 5006, "Bad input: Error: something else", times=None))
    with pytest.raises(BadRequestError):
        call.collect(chat(model=OTHER), "hi")
    assert len(emulator.log.entries) == 1


def test_the_usage_callback_adds_up_by_model(
    chat: Callable[..., ChatWorkersAI], model: Any, call: Any, emulator: Emulator
) -> None:
    model.says("Hi", usage=tokens(10, 4), times=None)
    counter = UsageMetadataCallbackHandler()
    config = {"callbacks": [counter]}
    one = chat(model=MODEL, api=model.route)
    call(one, "invoke", "hi", config=config)
    call(one, "stream", "hi", config=config)
    call(one, "invoke", "hi", config=config, model=OTHER)
    twice = {name: 2 * count for name, count in WANTED.items()}
    counted = {name: {key: usage[key] for key in WANTED} for name, usage in counter.usage_metadata.items()}
    assert counted == {MODEL: twice, OTHER: WANTED}


def test_the_usage_callback_as_a_context(chat: Callable[..., ChatWorkersAI], model: Any, call: Any) -> None:
    model.says("Hi", usage=tokens(10, 4), times=None)
    with get_usage_metadata_callback() as counter:
        call(chat(model=MODEL, api=model.route), "batch", ["a", "b", "c"])
    assert counter.usage_metadata[MODEL]["total_tokens"] == 42


def test_several_prompts_of_one_call_are_added_up(chat: Callable[..., ChatWorkersAI], model: Any, call: Any) -> None:
    """Nested records are also summed. langchain-cloudflare raises a TypeError."""
    model.says("Hi", usage=tokens(10, 4, prompt_tokens_details={"cached_tokens": 8}), times=None)
    result = call(chat(model=MODEL, api=model.route), "generate", [[HumanMessage("a")], [HumanMessage("b")]])
    assert result.llm_output == {
        "model_name": MODEL,
        "token_usage": {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28},
    }
    assert len(result.generations) == 2


def test_usage_and_cost_of_the_service_are_reported(
    chat: Callable[..., ChatWorkersAI], route: str, ask: Callable[..., Any]
) -> None:
    answer = ask(chat(model=OTHER, api=route), "Why is the sky blue?")
    usage, metadata = answer.usage_metadata, answer.response_metadata
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens"] > 1
    assert metadata["cost_usd"] == pytest.approx(metadata["neurons"] * PRICE_NEURON)
