"""Chat replies: both families, both routes, whole and streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.emulator.conftest import GEMMA, LLAMA, NATIVE, events_of, user

if TYPE_CHECKING:
    from tests.emulator.conftest import Api

GREETING = "Hello! How can I help you today?"
MISTRAL = "@cf/mistralai/mistral-small-3.1-24b-instruct"
SCOUT = "@cf/meta/llama-4-scout-17b-16e-instruct"
QWEN3 = "@cf/qwen/qwen3-30b-a3b-fp8"
CLOCK_TOOL = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Tells the time in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city"}},
            "required": ["city"],
        },
    },
}
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


def test_native_replies_have_response_in_the_envelope(api: Api) -> None:
    body = api.run(NATIVE, user("Hello")).json()

    assert body == {
        "result": {"response": GREETING, "tool_calls": [], "usage": body["result"]["usage"]},
        "success": True,
        "errors": [],
        "messages": [],
    }
    assert {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "neurons"} == set(
        body["result"]["usage"]
    )


def test_newer_models_have_a_chat_completion_in_result(api: Api) -> None:
    result = api.run(GEMMA, {**user("Hello"), **NO_THINKING}).json()["result"]

    assert result["object"] == "chat.completion"
    assert result["choices"][0]["message"] == {"role": "assistant", "content": GREETING}
    assert result["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("model", [LLAMA, GEMMA])
def test_the_openai_route_answers_every_model_without_an_envelope(api: Api, model: str) -> None:
    body = api.chat(model, **NO_THINKING).json()

    assert body["choices"][0]["message"]["content"] == GREETING
    assert "success" not in body
    assert model == body["model"]


def test_a_prompt_returns_a_text_completion_in_the_newer_family(api: Api) -> None:
    result = api.run(QWEN3, {"prompt": "Hello", **NO_THINKING}).json()["result"]

    assert (result["object"], result["choices"][0]["text"]) == ("text_completion", GREETING)


def test_a_native_stream_has_padding_then_usage_then_the_end_mark(api: Api) -> None:
    reply = api.run(NATIVE, {**user("Hello"), "stream": True})
    *pieces, empty, usage, done = events_of(reply)

    assert reply.headers["content-type"] == "text/event-stream"
    assert "".join(piece["response"] for piece in pieces) == GREETING
    assert all(piece["p"] for piece in pieces)
    assert empty == {"response": ""}
    assert usage["response"] == ""
    assert usage["usage"]["total_tokens"] > 0
    assert done == "[DONE]"


def test_a_newer_stream_has_the_captured_order_of_events(api: Api) -> None:
    role, *middle, finish, no_choices, native, done = events_of(
        api.run(GEMMA, {**user("Hello"), **NO_THINKING, "stream": True})
    )

    assert role["choices"][0]["delta"] == {"role": "assistant", "content": "", "reasoning_content": None}
    assert "".join(event["choices"][0]["delta"]["content"] for event in middle) == GREETING
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert no_choices["choices"] == []
    assert {"response", "usage"} == set(native)
    assert done == "[DONE]"
    assert all(event["p"] for event in [role, *middle, finish, no_choices])


def test_usage_of_a_newer_stream_is_incremental_and_adds_up_to_the_native_event(api: Api) -> None:
    *events, native, _ = events_of(api.run(GEMMA, {**user("Tell me why"), "stream": True}))

    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert native["usage"][name] == sum(event["usage"][name] for event in events)
    assert [0] * (len(events) - 1) == [event["usage"]["prompt_tokens"] for event in events[1:]]
    assert native["usage"]["neurons"] == pytest.approx(sum(event["usage"]["neurons"] for event in events))


@pytest.mark.parametrize(("switch", "expected"), [(False, False), (True, True)])
def test_the_native_event_on_the_openai_route_is_a_switch(api: Api, switch: bool, expected: bool) -> None:
    api.emulator.settings.v1_native_usage = switch
    events = events_of(api.chat(GEMMA, stream=True))

    assert expected == ("response" in events[-2])


def test_whole_and_streamed_replies_have_the_same_answer(api: Api) -> None:
    whole = api.chat(GEMMA, "Why?").json()["choices"][0]["message"]
    deltas = [event["choices"][0]["delta"] for event in events_of(api.chat(GEMMA, "Why?", stream=True))[:-2]]

    assert whole["content"] == "".join(delta.get("content") or "" for delta in deltas)
    assert whole["reasoning_content"] == "".join(delta.get("reasoning_content") or "" for delta in deltas)


def test_native_tool_calls_are_flat_or_nested_by_model(api: Api) -> None:
    flat = api.run(NATIVE, {**user("Time in Oslo?"), "tools": [CLOCK_TOOL]}).json()["result"]
    nested = api.run(SCOUT, {**user("Time in Oslo?"), "tools": [CLOCK_TOOL]}).json()["result"]

    assert flat["tool_calls"] == [{"name": "clock", "arguments": {"city": "Oslo"}}]
    assert flat["response"] is None
    (call,) = nested["tool_calls"]
    assert (call["type"], call["function"]) == ("function", {"name": "clock", "arguments": {"city": "Oslo"}})
    assert len(call["id"]) == 9


def test_openai_tool_calls_have_ids_and_arguments_as_text(api: Api) -> None:
    choice = api.chat(GEMMA, "Time in Oslo?", tools=[CLOCK_TOOL]).json()["choices"][0]

    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert call["function"] == {"name": "clock", "arguments": '{"city": "Oslo"}'}
    assert call["id"]


def test_tool_calls_are_streamed_name_first_then_arguments_in_pieces(api: Api) -> None:
    events = events_of(api.chat(GEMMA, "Time in Oslo?", tools=[CLOCK_TOOL], stream=True))
    calls = [
        call for event in events[:-1] for choice in event["choices"] for call in choice["delta"].get("tool_calls", [])
    ]

    assert calls[0]["function"] == {"name": "clock"}
    assert "".join(call["function"]["arguments"] for call in calls[1:]) == '{"city": "Oslo"}'
    assert len(calls) > 2


def test_a_native_stream_ends_each_call_with_a_null_sentinel(api: Api) -> None:
    events = events_of(api.run(NATIVE, {**user("Time in Oslo?"), "tools": [CLOCK_TOOL], "stream": True}))
    calls = [call for event in events[:-1] for call in event.get("tool_calls", [])]

    assert calls[-1] == {"id": None, "type": None, "index": 0, "function": {"name": None, "arguments": ""}}
    assert {"finish_reason": "tool_calls"} in events


def test_kimi_counts_its_calls_from_zero_in_every_reply(api: Api) -> None:
    kimi = "@cf/moonshotai/kimi-k2.6"
    ids = [
        api.chat(kimi, f"Time in {city}?", tools=[CLOCK_TOOL]).json()["choices"][0]["message"]["tool_calls"][0]["id"]
        for city in ("Oslo", "Rome")
    ]

    assert ids == ["functions.clock:0"] * 2


def test_json_mode_is_an_object_in_the_native_family_and_text_in_the_newer_one(api: Api) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    wanted = {"response_format": {"type": "json_schema", "json_schema": schema}}

    assert api.run(NATIVE, {**user("Ann is 41."), **wanted}).json()["result"]["response"] == {"age": 41}
    newer = api.run(GEMMA, {**user("Ann is 41."), **wanted}).json()["result"]
    assert newer["choices"][0]["message"]["content"] == '{"age": 41}'


@pytest.mark.parametrize("form", ["bare", "wrapped", "guided"])
def test_a_schema_may_be_bare_wrapped_or_guided(api: Api, form: str) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    bodies = {
        "bare": {"response_format": {"type": "json_schema", "json_schema": schema}},
        "wrapped": {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}},
        "guided": {"guided_json": schema},
    }

    assert api.run(MISTRAL, {**user("Ann is 41."), **bodies[form]}).json()["result"]["response"] == {"age": 41}


def test_reasoning_can_be_turned_off_and_can_use_all_of_max_tokens(api: Api) -> None:
    on = api.chat(GEMMA).json()["choices"][0]["message"]
    off = api.chat(GEMMA, **NO_THINKING).json()["choices"][0]["message"]
    eaten = api.chat(GEMMA, max_tokens=5).json()["choices"][0]

    assert on["reasoning_content"]
    assert "reasoning_content" not in off
    assert (eaten["finish_reason"], eaten["message"]["content"]) == ("length", None)
    assert eaten["message"]["reasoning_content"]


@pytest.mark.parametrize(
    ("model", "settings", "thinks"),
    [
        ("@cf/moonshotai/kimi-k2.6", NO_THINKING, True),
        ("@cf/moonshotai/kimi-k2.6", {"chat_template_kwargs": {"thinking": False}}, True),
        ("@cf/moonshotai/kimi-k2.6", {"reasoning_effort": "none"}, False),
        ("@cf/openai/gpt-oss-20b", NO_THINKING, True),
        ("@cf/openai/gpt-oss-120b", NO_THINKING, True),
        ("@cf/zai-org/glm-5.3", {"reasoning_effort": "none"}, True),
    ],
)
def test_models_turn_thinking_off_in_different_ways(api: Api, model: str, settings: Any, thinks: bool) -> None:
    message = api.chat(model, max_tokens=500, **settings).json()["choices"][0]["message"]
    assert ("reasoning_content" in message) is thinks
    assert message["content"]


def test_a_reasoning_model_of_the_native_family_has_only_a_closing_tag(api: Api) -> None:
    text = api.run("@cf/deepseek-ai/deepseek-r1-distill-qwen-32b", user("Hello")).json()["result"]["response"]

    assert text.endswith(f"</think>\n\n{GREETING}")
    assert "<think>" not in text


def test_max_tokens_and_stop_sequences_end_an_answer(api: Api) -> None:
    cut = api.chat(LLAMA, max_tokens=4).json()
    stopped = api.chat(LLAMA, stop=["you", "help"]).json()["choices"][0]

    assert (
        cut["choices"][0]["finish_reason"],
        cut["choices"][0]["message"]["content"],
    ) == ("length", "Hello! How can")
    assert cut["usage"]["completion_tokens"] == 4
    assert (
        stopped["finish_reason"],
        stopped["message"]["content"],
        stopped["stop_reason"],
    ) == ("stop", "Hello! How can I ", "help")


def test_several_completions_and_log_probabilities_on_request(api: Api) -> None:
    body = api.chat(GEMMA, n=2, logprobs=True, top_logprobs=1, **NO_THINKING).json()

    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    tokens = body["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == GREETING
    assert len(tokens[0]["top_logprobs"]) == 1


def test_neurons_are_the_list_price(api: Api) -> None:
    reply = api.chat(GEMMA, **NO_THINKING)
    usage = reply.json()["usage"]

    expected = (usage["prompt_tokens"] * 0.1 + usage["completion_tokens"] * 0.3) / 11
    assert usage["neurons"] == pytest.approx(expected, rel=1e-6)
    assert f"{expected:.2f}" == reply.headers["cf-ai-neurons"]


def test_session_affinity_caches_prefixes_in_blocks(api: Api) -> None:
    model = "@cf/deepseek-ai/deepseek-v4-flash-0731"
    messages = [{"role": "system", "content": "word " * 500}, {"role": "user", "content": "Hello"}]

    def ask(session: str) -> dict[str, float]:
        headers = {"x-session-affinity": session}
        reply = api.http.post("/ai/v1/chat/completions", json={"model": model, "messages": messages}, headers=headers)
        return reply.json()["usage"] | reply.json()["usage"]["prompt_tokens_details"]

    cold, warm, other = ask("one"), ask("one"), ask("two")

    assert (cold["cached_tokens"], other["cached_tokens"]) == (0, 0)
    assert warm["cached_tokens"] == 640
    assert cold["neurons"] - warm["neurons"] == pytest.approx(640 * (0.44 - 0.014) / 11, rel=1e-5)


def test_gpt_oss_answers_input_as_responses_and_messages_as_chat(api: Api) -> None:
    model = "@cf/openai/gpt-oss-120b"
    responses = api.run(model, {"input": "Hello"}).json()["result"]
    compat = api.http.post("/ai/v1/responses", json={"model": model, "input": "Hello"}).json()
    chat = api.run(model, user("Hello")).json()["result"]

    assert (responses["object"], compat["object"], chat["object"]) == ("response", "response", "chat.completion")
    assert compat["output"][-1]["content"][0]["text"] == GREETING
    assert compat["status"] == "completed"


def test_a_responses_conversation_with_a_tool_ends(api: Api) -> None:
    model = "@cf/openai/gpt-oss-20b"
    tool = {"type": "function", **CLOCK_TOOL["function"]}
    items = [{"role": "user", "content": "Time in Oslo?"}]

    first = api.http.post("/ai/v1/responses", json={"model": model, "input": items, "tools": [tool]}).json()
    (call,) = [item for item in first["output"] if item["type"] == "function_call"]
    items += [call, {"type": "function_call_output", "call_id": call["call_id"], "output": "14:02"}]
    second = api.http.post("/ai/v1/responses", json={"model": model, "input": items, "tools": [tool]}).json()

    assert call["arguments"] == '{"city": "Oslo"}'
    assert second["output"][-1]["content"][0]["text"] == "The result of clock is: 14:02"


def test_third_party_models_answer_in_the_newer_family(api: Api) -> None:
    reply = api.http.post("/ai/run", json={"model": "openai/some-model", "input": user("Hello")})

    assert reply.json()["result"]["choices"][0]["message"]["content"] == GREETING
