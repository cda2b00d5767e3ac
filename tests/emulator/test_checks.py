"""Request checks, as strict as the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.emulator.conftest import BGE, GEMMA, LLAMA, code_of, message_of, user

from workers_ai_emulator import Emulator

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.conftest import Api

CODER = "@cf/qwen/qwen2.5-coder-32b-instruct"
SCOUT = "@cf/meta/llama-4-scout-17b-16e-instruct"
M3 = "@cf/baai/bge-m3"
QWEN3_EMBEDDING = "@cf/qwen/qwen3-embedding-0.6b"
CALL = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
ASKED = {"role": "user", "content": "Time in Oslo?"}
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "t", **function}}


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            "Type mismatch of '/messages/1/content', 'null'",
        ),
        ({"role": "assistant", "tool_calls": [CALL]}, "required properties at '/messages/1' are 'role,content'"),
        ({"role": "user", "content": [{"type": "text", "text": "hi"}]}, "'array' not in 'string'"),
    ],
)
def test_older_schemas_accept_only_string_contents(api: Api, compat: bool, broken: dict[str, Any], text: str) -> None:
    messages = [ASKED, broken]
    reply = api.chat(CODER, messages) if compat else api.run(CODER, {"messages": messages})

    assert code_of(reply) == (400, 5006)
    assert text in message_of(reply)
    assert "AiError: Bad input: Error: oneOf at '/' not met" in message_of(reply)


def test_newer_schemas_accept_null_contents_and_parts(api: Api) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Time in Oslo?"}, PIXEL]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "14:02"},
    ]

    assert api.chat(GEMMA, messages).status_code == 200


def test_all_schemas_reject_a_null_user_content(api: Api) -> None:
    assert code_of(api.chat(GEMMA, [{"role": "user", "content": None}])) == (400, 5006)


@pytest.mark.parametrize("arguments", ["{", '"text"', ""])
def test_arguments_must_be_valid_json_text_on_replay(api: Api, arguments: str) -> None:
    call = {**CALL, "function": {"name": "clock", "arguments": arguments}}
    answered = {"role": "tool", "tool_call_id": "call_1", "content": "14:02"}
    reply = api.chat(GEMMA, [ASKED, {"role": "assistant", "content": "", "tool_calls": [call]}, answered])

    assert reply.status_code == 400
    assert "function.arguments must be valid JSON" in message_of(reply)


def test_arguments_as_an_object_are_a_type_mismatch(api: Api) -> None:
    call = {**CALL, "function": {"name": "clock", "arguments": {"city": "Oslo"}}}
    reply = api.chat(LLAMA, [ASKED, {"role": "assistant", "content": "", "tool_calls": [call]}])

    assert code_of(reply) == (400, 5006)
    assert "'object' not in 'string'" in message_of(reply)


def test_a_tool_call_without_a_result_is_rejected(api: Api) -> None:
    messages = [ASKED, {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "user", "content": "Well?"}]

    assert code_of(api.chat(LLAMA, messages)) == (400, 5006)


@pytest.mark.parametrize(
    ("model", "body", "expected"),
    [
        (GEMMA, {"tools": [tool(description="d")], "tool_choice": "any"}, (400, 8001)),
        (GEMMA, {"tools": [tool(description=False)]}, (400, 8001)),
        (GEMMA, {"tools": [tool(parameters=False)]}, (400, 8001)),
        (LLAMA, {"tools": [tool()]}, (400, 5006)),
        (LLAMA, {"tools": [tool(description="d", parameters={"type": "object"})]}, (400, 5006)),
        ("@cf/zai-org/glm-4.7-flash", {"tool_choice": "required"}, (400, 8001)),
        (
            "@cf/meta/llama-3.1-8b-instruct-fp8",
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            (400, 5025),
        ),
        (LLAMA, {"response_format": {"type": "json_schema", "json_schema": {}}, "stream": True}, (400, 5023)),
        (LLAMA, {"response_format": None}, (400, 5006)),
        (LLAMA, {"response_format": {"type": "json_schema", "json_schema": False}}, (400, 5006)),
        (LLAMA, {"temperature": 6}, (400, 5006)),
        (LLAMA, {"temperature": None}, (400, 5006)),
        (LLAMA, {"max_tokens": 24_000}, (413, 5021)),
        (GEMMA, {"tools": [tool()], "tool_choice": "required", "max_tokens": 20}, (400, 8006)),
    ],
)
def test_an_invalid_parameter_has_its_code(
    api: Api, model: str, body: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert expected == code_of(api.chat(model, **body))


def test_unknown_parameters_are_ignored(api: Api) -> None:
    assert api.chat(GEMMA, enable_thinking=False, reasoning={"effort": "none"}).status_code == 200


def test_the_context_window_error_includes_both_numbers(api: Api) -> None:
    reply = api.chat(LLAMA, "word " * 20_000)

    assert code_of(reply) == (413, 5021)
    assert "exceeded this model context window limit (24000)" in message_of(reply)


def test_qwen3_8_rejects_a_later_system_message(api: Api) -> None:
    messages = [ASKED, {"role": "system", "content": "Be brief."}]

    assert "System message must be at the beginning." in message_of(api.chat("@cf/qwen/qwen3.8-27b", messages))


def test_images_must_be_data_urls_on_vision_models(api: Api) -> None:
    remote = {"type": "image_url", "image_url": {"url": "https://example.org/cat.jpg"}}

    assert api.chat(SCOUT, [{"role": "user", "content": [PIXEL]}]).status_code == 200
    assert code_of(api.chat(SCOUT, [{"role": "user", "content": [remote]}])) == (400, 5006)
    assert code_of(api.chat("@cf/zai-org/glm-4.7-flash", [{"role": "user", "content": [PIXEL]}])) == (400, 8007)


def test_tools_on_a_model_without_them_are_ignored_or_rejected(api: Api) -> None:
    body = {"tools": [tool(description="d")]}
    ignored = api.run("@cf/meta/llama-3.2-3b-instruct", {**user("t"), **body})
    api.emulator.settings.unsupported_tools = "reject"

    assert ignored.json()["result"]["tool_calls"] == []
    assert code_of(api.run("@cf/meta/llama-3.2-3b-instruct", {**user("t"), **body})) == (400, 5006)


@pytest.mark.parametrize(
    ("model", "body", "text"),
    [
        (BGE, {"text": ["a"] * 101}, "must have at most 100 items"),
        (QWEN3_EMBEDDING, {"text": ["a"] * 33}, "must have at most 32 items"),
        (BGE, {"text": ["a", ""]}, "'/text/1' must be >= 1"),
        (BGE, {"text": ""}, "'/text/0' must be >= 1"),
        (BGE, {"text": [1]}, "'integer' not in 'string'"),
        (BGE, {"text": ["a"], "pooling": "max"}, "'/pooling' must be one of"),
        (BGE, {"texts": ["a"]}, "required properties at '/' are 'text'"),
        (M3, {"text": []}, "required properties at '/' are 'contexts'"),
        ("@cf/baai/bge-reranker-base", {"query": "", "contexts": [{"text": "a"}]}, "'/query'"),
        ("@cf/baai/bge-reranker-base", {"query": "a", "contexts": [{"text": ""}]}, "'/contexts/0'"),
        ("@cf/baai/bge-reranker-base", {"query": "a", "contexts": []}, "'/contexts'"),
        (BGE, {"requests": [{"text": "a"}]}, "additional property '/requests'"),
        (BGE, ["a"], "'array' not in 'object'"),
    ],
)
def test_embedding_inputs_are_checked(api: Api, model: str, body: Any, text: str) -> None:
    reply = api.run(model, body)

    assert code_of(reply) == (400, 5006)
    assert text in message_of(reply)


@pytest.mark.parametrize("value", [[], [""], [[15339, 1917]], ["a"] * 101])
def test_the_openai_embeddings_route_is_as_strict(api: Api, value: Any) -> None:
    reply = api.http.post("/ai/v1/embeddings", json={"model": BGE, "input": value})

    assert code_of(reply) == (400, 5006)


def test_bge_m3_counts_its_window_over_the_whole_request(api: Api) -> None:
    texts = ["word " * 1000] * 60
    refused = api.embed(texts, M3)
    truncated = api.embed(texts, M3, truncate_inputs=True)

    assert code_of(refused) == (400, 3030)
    assert "Max context reached 78120 tokens but model supports only 60000" in message_of(refused)
    assert truncated.json()["result"]["shape"] == [60, 1024]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("@cf/meta/llama-3.1-8b-instruct", (410, 5028)),
        ("@cf/microsoft/phi-2", (410, 5028)),
    ],
)
def test_retired_models_are_rejected_on_both_routes(api: Api, model: str, expected: tuple[int, int]) -> None:
    assert expected == code_of(api.run(model, user("hi")))
    assert expected == code_of(api.chat(model))


@pytest.mark.parametrize("model", ["@cf/nobody/nothing", "@cf/nonsense", "cf/baai/bge-m3", "meta/llama-3", "gpt-4o"])
def test_an_unknown_model_returns_7000_in_the_path_and_5007_in_the_body(api: Api, model: str) -> None:
    routed = api.run(model, user("hi"))
    shared = api.http.post(
        "/ai/run", json={"model": model, "input": user("hi")}, headers={"cf-aig-gateway-id": "default"}
    )
    named = api.chat(model)

    assert routed.status_code == 400
    assert routed.json() == {
        "success": False,
        "errors": [{"code": 7000, "message": "No route for that URI"}],
        "messages": [],
        "result": None,
    }
    assert not {"cf-ai-req-id", "cf-auditlog-id", "api-version"} & set(routed.headers)
    for reply in (shared, named):
        assert code_of(reply) == (400, 5007)
        text = f"AiError: No such model: No such model {model} or task ({reply.headers['cf-ai-req-id']})"
        assert message_of(reply) == text


@pytest.mark.parametrize(
    "model", ["cloudflare/auto", "dynamic/my-route", "anthropic/claude-5", "openai/gpt-9", "acme/some/model:free"]
)
def test_models_of_third_parties_and_routes_are_answered(api: Api, model: str) -> None:
    gateway = {"cf-aig-gateway-id": "default"}
    shared = api.http.post("/ai/run", json={"model": model, "input": user("Hello")}, headers=gateway)
    responses = api.http.post("/ai/v1/responses", json={"model": model, "input": "Hello"})
    vectors = api.http.post("/ai/v1/embeddings", json={"model": model, "input": ["Hello"]})

    assert [reply.status_code for reply in (api.chat(model), shared, responses, vectors)] == [200] * 4
    assert "data: [DONE]" in api.chat(model, stream=True).text


def test_kimi_k2_5_is_answered_by_its_successor(api: Api) -> None:
    assert api.chat("@cf/moonshotai/kimi-k2.5").json()["model"] == "@cf/moonshotai/kimi-k2.6"


def test_paid_models_need_the_paid_plan(make_api: Callable[..., Api]) -> None:
    free = make_api(paid_plan=False)

    assert code_of(free.chat("@cf/zai-org/glm-5.3")) == (403, 5035)
    assert free.chat(GEMMA).status_code == 200


def test_a_body_that_is_missing_broken_or_too_large(make_api: Callable[..., Api]) -> None:
    api = make_api(max_body_bytes=1000)

    assert code_of(api.http.post(f"/ai/run/{BGE}")) == (400, 3003)
    assert code_of(api.http.post(f"/ai/run/{BGE}", content=b"{")) == (400, 5006)
    assert code_of(api.embed("a" * 1000)) == (413, 3006)


@pytest.mark.parametrize(
    ("model", "body", "expected"),
    [
        ("@cf/nonsense", {}, (400, 7000)),
        (GEMMA, {"lora": "mine"}, (405, 5005)),
        ("@cf/zai-org/glm-5.2", {"top_k": 5}, (400, 8001)),
    ],
)
def test_other_documented_errors(api: Api, model: str, body: dict[str, Any], expected: tuple[int, int]) -> None:
    assert code_of(api.run(model, {**user("hi"), **body})) == expected


def test_llama_vision_needs_accepted_terms(make_api: Callable[..., Api]) -> None:
    reply = make_api(licence_agreed=False).run("@cf/meta/llama-3.2-11b-vision-instruct", user("hi"))

    assert code_of(reply) == (403, 5016)


@pytest.mark.parametrize(
    "odd",
    [
        {"messages": [{"role": "assistant", "content": "", "tool_calls": 5}]},
        {"messages": [{"role": "user", "content": "a"}], "tools": 5},
        {"messages": [{"role": "user", "content": "a"}], "max_tokens": "many"},
        {"messages": [{"role": "user", "content": "a"}], "guided_json": {"properties": 5}},
    ],
    ids=["tool_calls", "tools", "max_tokens", "guided_json"],
)
def test_a_field_of_an_unexpected_type_is_bad_input(odd: dict[str, Any]) -> None:
    emulator = Emulator()
    with httpx.Client(transport=emulator.transport(), headers={"authorization": "Bearer any"}) as http:
        url = "https://api.cloudflare.com/client/v4/accounts/acct/ai/run/@cf/meta/llama-3.3-70b-instruct-fp8-fast"
        reply = http.post(url, json=odd)
    assert (reply.status_code, reply.json()["errors"][0]["code"]) == (400, 5006)
