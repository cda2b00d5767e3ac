"""Replies that public repositories recorded of the service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.emulator.conftest import BGE, GEMMA, LLAMA, NATIVE, code_of, events_of, message_of, user

from workers_ai_emulator import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx
    from tests.emulator.conftest import Api

KIMI = "@cf/moonshotai/kimi-k2.6"
OSS = "@cf/openai/gpt-oss-20b"
QWEN = "@cf/qwen/qwen3.8-27b"
NEMOTRON = "@cf/nvidia/nemotron-3-120b-a12b"
SCOUT = "@cf/meta/llama-4-scout-17b-16e-instruct"
BGE_M3 = "@cf/baai/bge-m3"
GREETING = "Hello! How can I help you today?"
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Tells the time in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
NULLS = {"service_tier", "prompt_logprobs", "prompt_text", "prompt_token_ids", "kv_transfer_params"}
NULLS |= {"ec_transfer_params", "metrics"}


def finished(api: Api, model: str, requests: list[Any]) -> dict[str, Any]:
    accepted = api.queue(model, {"requests": requests}).json()["result"]
    return api.queue(model, {"request_id": accepted["request_id"]}).json()["result"]


@pytest.fixture
def queue(make_api: Callable[..., Api]) -> Api:
    return make_api(queue=QueueSettings(progress="at_once"))


# --- the queue ---


def test_batches_of_the_openai_family_finish_under_results(queue: Api) -> None:
    done = finished(queue, KIMI, [{**user("Hello"), "external_reference": "a"}, user("Hi")])
    first = next(item for item in done["results"] if item["index"] == 0)

    assert set(done) == {"results", "usage"}
    assert set(first) == {"index", "result", "success"}
    assert set(first["result"]) == {"id", "object", "created", "model", "choices", "usage", "metadata"}
    assert len(first["result"]["id"]) == 32
    assert "neurons" not in first["result"]["usage"]
    message = first["result"]["choices"][0]["message"]
    assert (message["content"], message["tool_calls"]) == (GREETING, None)
    assert done["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "results"),
        ({"results_for": "kimi"}, "responses"),
        ({"results_models": {GEMMA: False}}, "responses"),
        ({"results_models": {GEMMA: True}, "results_for": "kimi"}, "results"),
    ],
)
def test_the_shape_of_a_batch_is_a_switch_per_model(make_api: Callable[..., Api], settings: Any, key: str) -> None:
    api = make_api(queue=QueueSettings(progress="at_once", **settings))

    assert key in finished(api, GEMMA, [user("Hello")])
    assert "results" in finished(api, KIMI, [user("Hello")])


def test_scout_is_queued_and_json_text_becomes_an_object(queue: Api) -> None:
    wanted = {"response_format": {"type": "json_schema", "json_schema": PERSON}}
    done = finished(queue, SCOUT, [{**user("Ann is 41."), **wanted}])

    assert done["responses"] == [
        {"id": 0, "result": {"response": {"age": 41}, "tool_calls": []}, "success": True, "external_reference": None}
    ]


def test_gpt_oss_is_queued_in_the_responses_form_only(queue: Api) -> None:
    assert finished(queue, OSS, [{"input": "Hello"}])["results"][0]["result"]["object"] == "response"
    refused = queue.queue(OSS, {"requests": [{"input": "Hello"}, user("Hello")]})
    assert code_of(refused) == (400, 5006)
    assert "'messages'" in message_of(refused)


def test_an_unknown_request_id_has_its_own_code(api: Api) -> None:
    reply = api.queue(BGE, {"request_id": "00000000-0000-4000-8000-000000000000"})

    assert code_of(reply) == (404, 5504)
    assert message_of(reply) == f"AiError: AiError: Request not found in queue ({reply.headers['cf-ai-req-id']})"


# --- whole replies ---


def test_a_hybrid_result_has_both_forms(api: Api) -> None:
    reply = api.run(LLAMA, user("Hello"))
    result = reply.json()["result"]

    keys = {"id", "object", "created", "model", "choices", "response", "tool_calls", "usage"}
    assert set(result) == keys | NULLS
    assert (result["model"], result["response"], result["tool_calls"]) == (
        "@cf/meta/llama-3.3-70b-instruct-sd",
        GREETING,
        [],
    )
    assert result["choices"][0]["message"] == {
        "role": "assistant",
        "content": GREETING,
        **dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning")),
    }
    assert "matched_stop" not in result["choices"][0]
    assert result["id"] == f"chatcmpl-{reply.headers['cf-ai-req-id']}"


def test_a_hybrid_result_parses_json_and_reports_another_model(api: Api) -> None:
    wanted = {"response_format": {"type": "json_schema", "json_schema": PERSON}}
    result = api.run(LLAMA, {**user("Ann is 41."), **wanted}).json()["result"]

    assert (result["model"], result["response"]) == ("@cf/meta/llama-3.3-70b-json", {"age": 41})
    assert json.loads(result["choices"][0]["message"]["content"]) == {"age": 41}


@pytest.mark.parametrize(("place", "nested", "flat"), [("both", 1, 1), ("choices", 1, 0), ("top", 0, 1)])
def test_the_place_of_hybrid_calls_is_a_switch(api: Api, place: Any, nested: int, flat: int) -> None:
    api.emulator.settings.hybrid_tool_calls = place
    body = {**user("Time in Oslo?"), "tools": [CLOCK]}
    result = api.run(LLAMA, body).json()["result"]
    events = events_of(api.run(LLAMA, {**body, "stream": True}))[:-1]
    deltas = [choice["delta"] for event in events for choice in event.get("choices", [])]

    choice = result["choices"][0]
    assert len(choice["message"].get("tool_calls", [])) == nested
    assert result["tool_calls"] == [{"name": "clock", "arguments": {"city": "Oslo"}}] * flat
    assert choice["finish_reason"] == ("tool_calls" if nested else "stop")
    assert any("tool_calls" in delta for delta in deltas) is bool(nested)
    assert any(event.get("tool_calls") for event in events) is bool(flat)


def test_native_json_text_becomes_an_object(api: Api) -> None:
    from workers_ai_emulator.shapes.native import parsed

    assert [parsed(text) for text in ('{"a": 1}', "[1]", "```json\n{}\n```", "{a", "7", "")] == [
        {"a": 1},
        [1],
        "```json\n{}\n```",
        "{a",
        "7",
        "",
    ]
    scout = api.run(SCOUT, user("Hello")).json()["result"]
    assert scout["tool_calls"] == []
    assert set(scout["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}


def test_the_openai_route_has_ids_by_time_and_null_keys(api: Api) -> None:
    for model in (OSS, GEMMA, NATIVE, LLAMA):
        reply = api.chat(model)
        body = reply.json()
        assert body["id"].startswith("id-1")
        assert body["model"] == model
        assert set(body) >= NULLS
        assert "cf-ai-req-id" not in reply.headers
        assert ("matched_stop" in body["choices"][0]) == (model in {GEMMA, NATIVE})


@pytest.mark.parametrize(
    ("model", "keys"),
    [(OSS, {"reasoning", "reasoning_content"}), (QWEN, {"reasoning"}), (GEMMA, {"reasoning_content"})],
)
def test_reasoning_is_under_the_keys_of_the_model(api: Api, model: str, keys: set[str]) -> None:
    names = {"reasoning", "reasoning_content"}
    message = api.run(model, user("Hello")).json()["result"]["choices"][0]["message"]
    events = events_of(api.run(model, {**user("Hello"), "stream": True}))[:-1]
    deltas = [choice["delta"] for event in events for choice in event.get("choices", [])]

    assert {name for name in names if message.get(name)} == keys
    assert {name for delta in deltas for name in names if delta.get(name)} == keys


# --- streams ---


def test_hybrid_events_have_the_text_in_both_forms(api: Api) -> None:
    first, *events, finish, usage, done = events_of(api.run(LLAMA, {**user("Hello"), "stream": True}))

    assert (first["choices"][0]["delta"]["content"], first["response"]) == ("", "")
    assert "".join(event["response"] for event in events) == GREETING
    assert all(event["response"] == event["choices"][0]["delta"]["content"] for event in events)
    assert all(event["tool_calls"] == [] and event["p"] for event in events)
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert set(usage) == {"response", "usage"}
    assert done == "[DONE]"


def test_nemotron_without_reasoning_streams_its_answer_as_reasoning(api: Api) -> None:
    body = {**user("Hello"), **NO_THINKING}
    events = events_of(api.run(NEMOTRON, {**body, "stream": True}))[:-1]
    deltas = [choice["delta"] for event in events for choice in event.get("choices", [])]

    assert "".join(delta.get("reasoning") or "" for delta in deltas) == GREETING
    assert "".join(delta.get("content") or "" for delta in deltas) == ""
    assert api.run(NEMOTRON, body).json()["result"]["choices"][0]["message"]["content"] == GREETING


@pytest.mark.parametrize(("chance", "last"), [(0.0, "response"), (1.0, "choices")])
def test_zeros_may_follow_the_usage_of_a_stream(api: Api, chance: float, last: str) -> None:
    api.emulator.settings.late_zeros_chance = chance
    events = events_of(api.run(QWEN, {**user("Hello"), "stream": True}))[:-1]

    assert last in events[-1]
    assert sum("response" in event for event in events) == 1
    assert chance == 0.0 or events[-1]["usage"]["total_tokens"] == 0


@pytest.mark.parametrize("model", [GEMMA, NATIVE, LLAMA])
def test_include_usage_false_removes_usage_from_a_stream(api: Api, model: str) -> None:
    options = {"stream": True, "stream_options": {"include_usage": False}}
    for reply in (api.run(model, {**user("Hello"), **options}), api.chat(model, **options)):
        assert not any("usage" in event for event in events_of(reply)[:-1])


def test_include_usage_on_the_openai_route_sends_one_sum_at_the_end(api: Api) -> None:
    *events, last, _ = events_of(api.chat(GEMMA, stream=True, stream_options={"include_usage": True}))

    assert {event["usage"] for event in events} == {None}
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] > 10


# --- headers and errors ---


def test_headers_of_the_edge_by_kind_of_reply(api: Api) -> None:
    search = api.http.get("/ai/models/search")
    unauthorized = api.http.post(f"/ai/run/{BGE}", json={"text": "a"}, headers={"authorization": "Bearer wrong-token"})

    assert search.headers["ratelimit-policy"] == '"default";q=1200;w=300'
    for reply in (api.embed("a"), api.chat(GEMMA), api.embed("")):
        assert reply.headers["api-version"] == "2026-09-25.epoch"
        assert reply.headers["cf-auditlog-id"]
        assert not {"ratelimit", "ratelimit-policy"} & set(reply.headers)
    assert code_of(unauthorized) == (401, 10000)
    assert unauthorized.headers["cf-auditlog-id"]
    assert "api-version" not in unauthorized.headers


def test_errors_of_the_responses_route_are_openai_error_objects(api: Api) -> None:
    def ask() -> httpx.Response:
        return api.http.post("/ai/v1/responses", json={"model": OSS, "input": ""})

    refused = ask()
    api.emulator.limits.use_up_quota()
    used_up = api.http.post("/ai/v1/responses", json={"model": OSS, "input": "a"})

    assert (refused.status_code, set(refused.json()), refused.json()["error"]["code"]) == (
        400,
        {"error"},
        "invalid_prompt",
    )
    assert (used_up.status_code, used_up.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert used_up.json()["error"]["message"].startswith("AiError: AiError: you have used up")


def test_the_anthropic_route_rejects_models_of_the_catalogue(api: Api) -> None:
    reply = api.http.post("/ai/v1/messages", json={"model": GEMMA, "messages": []})

    assert (reply.status_code, reply.json()["type"]) == (400, "error")
    assert reply.json()["error"]["message"].startswith(
        f'AiError: Anthropic Messages API is not supported for model "{GEMMA}" ('
    )


@pytest.mark.parametrize(
    ("texts", "says"),
    [(["w " * 7000], "Sequence too long: 9102 > 8192"), (["w " * 5000] * 10, "but model supports only 60000")],
)
def test_bge_m3_limits_each_text_and_their_sum(api: Api, texts: list[str], says: str) -> None:
    reply = api.embed(texts, BGE_M3)

    assert code_of(reply) == (400, 3030)
    assert says in message_of(reply)
    assert api.embed(texts, BGE_M3, truncate_inputs=True).status_code == 200


def test_the_error_of_an_invalid_decision_payload_is_json(api: Api) -> None:
    body = {
        "model": "clef-omni",
        "state": "s",
        "questions": {"q": {"type": "noul", "instructions": "Is it?"}},
        "images": ["data:image/png;base64,%%%"],
    }
    reply = api.run("@cf/cloudflare/clef-omni", body)
    slashes = {"type": "choice", "instructions": "Which?", "criteria": {"a/b": "x", "c/d": "y"}}

    assert code_of(reply) == (422, 5012)
    error = json.loads(message_of(reply))["error"]
    assert error["details"] == {"fieldErrors": {"images": ["image payload is invalid"]}}
    for wrong in ({"model": "clef-omni"}, {**body, "images": [], "questions": {"q": slashes}}):
        assert "required properties at '/' are 'model,state,questions'" in message_of(
            api.run("@cf/cloudflare/clef-omni", wrong)
        )


# --- accepted requests ---

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
]}  # fmt: skip


@pytest.mark.parametrize("model", [GEMMA, SCOUT])
@pytest.mark.parametrize("role", ["system", "assistant", "tool", "user"])
def test_only_users_may_send_images(api: Api, model: str, role: str) -> None:
    message = {"role": role, "content": [{"type": "text", "text": "see"}, PICTURE]}
    if role == "tool":
        message["tool_call_id"] = "abcdefghi"
    turns = [{"role": "user", "content": "Hello"}, *([CALL] if role == "tool" else []), message]
    first = [message, turns[0]] if role == "system" else turns

    assert api.chat(model, first).status_code == (200 if role == "user" else 400)


@pytest.mark.parametrize("arguments", ['{"x": NaN}', '{"x": Infinity}', "[1]"])
def test_replayed_arguments_are_strict_json(api: Api, arguments: str) -> None:
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "clock", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "1"},
    ]

    assert code_of(api.chat(GEMMA, messages)) == (400, 8007)
    body = f'{{"model": "{GEMMA}", "messages": [{{"role": "user", "content": "a"}}], "seed": NaN}}'
    assert code_of(api.http.post("/ai/v1/chat/completions", content=body)) == (400, 5006)


@pytest.mark.parametrize(("model", "status"), [(LLAMA, 400), (OSS, 400), (GEMMA, 200)])
def test_older_schemas_reject_a_null_effort(api: Api, model: str, status: int) -> None:
    assert api.chat(model, reasoning_effort=None).status_code == status


@pytest.mark.parametrize(
    ("model", "choice", "status"),
    [
        ("@cf/zai-org/glm-4.7-flash", "required", 400),
        ("@cf/zai-org/glm-4.7-flash", {"type": "function", "function": {"name": "clock"}}, 200),
        ("@cf/mistralai/mistral-small-3.1-24b-instruct", "required", 200),
    ],
)
def test_forms_of_forced_tool_choice_by_model(api: Api, model: str, choice: Any, status: int) -> None:
    assert api.chat(model, tools=[CLOCK], tool_choice=choice, max_tokens=500).status_code == status
