"""The asynchronous queue, and its open questions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.emulator.conftest import BGE, GEMMA, LLAMA, code_of, message_of, user

from workers_ai_emulator import Emulator, ItemFailure, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx
    from tests.emulator.conftest import Api

THREE = {"requests": [{"text": ["a", "b"], "external_reference": "one"}, {"text": "c"}, {"text": ["d"]}]}


def submitted(api: Api, model: str = BGE, body: Any = THREE) -> str:
    return str(api.queue(model, body).json()["result"]["request_id"])


def poll(api: Api, request_id: str, model: str = BGE) -> httpx.Response:
    return api.queue(model, {"request_id": request_id})


def collected(api: Api, model: str = BGE, body: Any = THREE) -> list[dict[str, Any]]:
    request_id = submitted(api, model, body)
    for _ in range(api.emulator.queue.settings.polls + 1):
        result = poll(api, request_id, model).json()["result"]
    if "results" in result:
        return sorted(result["results"], key=lambda item: item["index"])
    return sorted(result["responses"], key=lambda item: item["id"])


def test_a_batch_is_queued_then_running_then_done(make_api: Callable[..., Api]) -> None:
    api = make_api(queue=QueueSettings(polls=2, shuffle=False))
    accepted = api.queue(BGE, THREE)
    request_id = accepted.json()["result"]["request_id"]
    states = [poll(api, request_id).json()["result"]["status"] for _ in range(2)]
    result = poll(api, request_id).json()["result"]

    assert accepted.status_code == 200
    assert {"status": "queued", "request_id": request_id, "model": BGE} == accepted.json()["result"]
    assert states == ["queued", "running"]
    assert {"responses", "usage"} == set(result)
    assert [(item["id"], item["external_reference"]) for item in result["responses"]] == [
        (0, "one"),
        (1, None),
        (2, None),
    ]
    assert [item["result"]["shape"] for item in result["responses"]] == [[2, 768], [1, 768], [1, 768]]
    assert result["usage"] == {"prompt_tokens": 8, "completion_tokens": 0, "total_tokens": 8}


def test_a_finished_batch_can_be_collected_again_and_is_charged_once(api: Api) -> None:
    request_id = submitted(api)
    poll(api, request_id)
    first = poll(api, request_id)
    paid = api.emulator.limits.neurons_today
    second = poll(api, request_id)

    assert first.json() == second.json()
    assert 0 < paid == api.emulator.limits.neurons_today


def test_queued_and_direct_results_are_equal(api: Api) -> None:
    direct = api.embed(["a", "b"]).json()["result"]

    assert direct == collected(api)[0]["result"]


def test_chat_uses_the_queue_too(api: Api) -> None:
    requests = [{**user("Hello"), "external_reference": "r"}, {"prompt": "Hello", "max_tokens": 2}]
    native = collected(api, LLAMA, {"requests": requests})
    newer = collected(api, GEMMA, {"requests": [user("Hello")]})

    assert native[0]["result"]["response"] == "Hello! How can I help you today?"
    assert native[0]["external_reference"] == "r"
    assert newer[0]["result"]["object"] == "chat.completion"


def test_gpt_oss_accepts_input_in_the_queue(api: Api) -> None:
    requests = [{"input": "Hello", "reasoning": {"effort": "low"}}, {"input": []}]
    good, bad = collected(api, "@cf/openai/gpt-oss-120b", {"requests": requests})

    assert good["result"]["object"] == "response"
    assert good["result"]["output"][-1]["content"][0]["text"] == "Hello! How can I help you today?"
    assert (bad["success"], bad["error"]["code"]) == (False, 5006)


def test_a_batch_may_take_seconds(make_api: Callable[..., Api]) -> None:
    api = make_api(queue=QueueSettings(progress="seconds", seconds=300))
    request_id = submitted(api)
    states = []
    for _ in range(3):
        states.append(poll(api, request_id).json()["result"].get("status", "done"))
        api.emulator.clock.advance(150)

    assert states == ["queued", "running", "done"]


@pytest.mark.parametrize(("progress", "done"), [("at_once", True), ("never", False)])
def test_a_batch_may_be_done_at_once_or_never(make_api: Callable[..., Api], progress: Any, done: bool) -> None:
    api = make_api(queue=QueueSettings(progress=progress))
    request_id = submitted(api)

    assert [done] * 5 == ["responses" in poll(api, request_id).json()["result"] for _ in range(5)]


def test_a_malformed_item_fails_alone(api: Api) -> None:
    items = collected(api, body={"requests": [{"text": "a"}, {"text": ["b", ""]}, {"text": ["c"] * 101}]})

    assert [item["success"] for item in items] == [True, False, False]
    assert [item["error"]["code"] for item in items[1:]] == [5006, 5006]
    assert "'/text/1' must be >= 1" in items[1]["error"]["message"]


@pytest.mark.parametrize(
    ("key", "read"), [("error", lambda item: item["error"]), ("errors", lambda item: item["errors"][0])]
)
def test_items_fail_by_index_or_content(make_api: Callable[..., Api], key: Any, read: Callable[[Any], Any]) -> None:
    failures = [ItemFailure(index=0, times=1), ItemFailure(contains="poison", code=3043, message="AiError: broken")]
    api = make_api(queue=QueueSettings(failures=failures, error_key=key))
    body = {"requests": [{"text": "a"}, {"text": ["b", "a poison c"]}, {"text": "d"}]}
    first, again = collected(api, body=body), collected(api, body=body)

    assert [item["success"] for item in first] == [False, False, True]
    assert [item["success"] for item in again] == [True, False, True]
    assert read(first[1]) == {"code": 3043, "message": "AiError: broken"}
    assert "result" not in first[1]


def test_a_failed_item_can_have_no_reason(make_api: Callable[..., Api]) -> None:
    api = make_api(queue=QueueSettings(failures=[ItemFailure(index=1)], error_key=""))

    assert collected(api)[1] == {"id": 1, "success": False, "external_reference": None}


def test_unknown_lost_and_expired_ids_are_errors(make_api: Callable[..., Api]) -> None:
    api = make_api(queue=QueueSettings(lose=1, unknown_code=3099, unknown_status=400, retention_s=3600))
    lost, kept = submitted(api), submitted(api)

    assert code_of(poll(api, "no-such-id")) == (400, 3099)
    assert code_of(poll(api, lost)) == (400, 3099)
    assert code_of(poll(api, kept, "@cf/baai/bge-small-en-v1.5")) == (400, 3099)
    assert poll(api, kept).json()["result"]["status"] == "running"
    api.emulator.clock.advance(3600)
    assert code_of(poll(api, kept)) == (400, 3099)
    again = submitted(api)
    api.emulator.queue.expire(again)
    assert code_of(poll(api, again)) == (400, 3099)


def test_a_batch_may_fail_as_a_whole(make_api: Callable[..., Api]) -> None:
    api = make_api(queue=QueueSettings(progress="at_once", fail_batches=1))

    assert code_of(poll(api, submitted(api))) == (500, 5001)
    assert "responses" in poll(api, submitted(api)).json()["result"]


def test_statuses_and_the_key_of_a_finished_batch_are_choices(make_api: Callable[..., Api]) -> None:
    api = make_api(queue=QueueSettings(submit_status=202, pending_status=202, status_when_done="complete"))
    accepted = api.queue(BGE, THREE)
    request_id = accepted.json()["result"]["request_id"]
    pending, done = poll(api, request_id), poll(api, request_id)

    assert (accepted.status_code, pending.status_code, done.status_code) == (202, 202, 200)
    assert done.json()["result"]["status"] == "complete"


def test_a_model_may_answer_at_once(make_api: Callable[..., Api]) -> None:
    api = make_api(queue=QueueSettings(answers_at_once=True, shuffle=False))

    assert [item["id"] for item in api.queue(BGE, THREE).json()["result"]["responses"]] == [0, 1, 2]


def test_responses_may_come_in_any_order(make_api: Callable[..., Api]) -> None:
    api = make_api(queue=QueueSettings(progress="at_once"))
    request_id = submitted(api, body={"requests": [{"text": "a"}] * 20})
    first, again = ([item["id"] for item in poll(api, request_id).json()["result"]["responses"]] for _ in range(2))

    assert list(range(20)) == sorted(first)
    assert list(range(20)) != first == again


def test_polling_works_without_the_flag_unless_it_is_needed(api: Api) -> None:
    request_id = submitted(api)
    assert api.run(BGE, {"request_id": request_id}).json()["result"]["status"] == "running"

    api.emulator.queue.settings.poll_needs_flag = True
    assert code_of(api.run(BGE, {"request_id": request_id})) == (400, 5006)


@pytest.mark.parametrize("body", [{"options": {"queueRequest": True}}, {"queueRequest": True}])
def test_only_the_query_parameter_queues_a_request(api: Api, body: dict[str, Any]) -> None:
    assert "data" in api.run(BGE, {"text": "a", **body}).json()["result"]
    assert code_of(api.run(BGE, {**THREE, **body})) == (400, 5006)


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (BGE, {"requests": []}),
        (BGE, {"text": "a"}),
        (BGE, {"requests": ["a"]}),
        ("@cf/openai/gpt-oss-120b", {"requests": [{"input": "a"}, user("b")]}),
    ],
)
def test_a_submission_is_checked(api: Api, model: str, body: dict[str, Any]) -> None:
    assert code_of(api.queue(model, body)) == (400, 5006)


@pytest.mark.parametrize("model", ["@cf/qwen/qwen3-embedding-0.6b", "@cf/zai-org/glm-4.7-flash", "cloudflare/auto"])
def test_a_model_without_the_queue_returns_8007(api: Api, model: str) -> None:
    reply = api.queue(model, {"requests": [user("a")]})

    assert code_of(reply) == (400, 8007)
    assert "This model does not support request queuing" in message_of(reply)
    api.emulator.queue.settings.unsupported_code = 10063
    assert code_of(api.queue(model, {"requests": [user("a")]})) == (400, 10063)


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Return the weather", "parameters": SCHEMA},
}


@pytest.mark.parametrize("model", [LLAMA, GEMMA, "@cf/meta/llama-4-scout-17b-16e-instruct"])
def test_an_item_has_its_own_parameters(api: Api, model: str) -> None:
    requests = [
        user("Weather in Oslo?") | {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        user("Weather in Oslo?") | {"tools": [WEATHER], "tool_choice": "required"},
        user("Tell me about yourself") | {"max_tokens": 2, "chat_template_kwargs": {"enable_thinking": False}},
        user("Hello") | {"temperature": 99},
    ]
    filled, called, truncated, invalid = collected(api, model, {"requests": requests})

    assert _answer(filled) == {"city": "Oslo"}
    assert "weather" in str(called["result"])
    assert len(str(_answer(truncated)).split()) <= 2
    assert invalid["error"]["code"] == 5006
    if "choices" in truncated["result"]:
        assert truncated["result"]["choices"][0]["finish_reason"] == "length"


def _answer(item: dict[str, Any]) -> Any:
    result = item["result"]
    if "response" in result:
        return result["response"]
    content = result["choices"][0]["message"]["content"]
    return json.loads(content) if content.startswith("{") else content


def test_open_questions_about_items_are_switches(make_api: Callable[..., Api]) -> None:
    bad = {"requests": [user("Hello"), user("Hello") | {"temperature": 99}]}
    prompt = {"requests": [{"prompt": "Hello"}]}
    schema = {"prompt": "Oslo", "response_format": {"type": "json_schema", "json_schema": SCHEMA}}
    api = make_api(queue=QueueSettings(hybrid_items="native", hybrid_messages="reject", item_formats="ignore"))

    assert set(collected(api, LLAMA, prompt)[0]["result"]) == {"response", "tool_calls"}
    assert code_of(api.queue(LLAMA, bad)) == (400, 5006)
    assert isinstance(collected(api, LLAMA, {"requests": [schema]})[0]["result"]["response"], str)
    assert code_of(make_api(queue=QueueSettings(bad_item="submission")).queue(GEMMA, bad)) == (400, 5006)


def test_a_slow_job_finishes_after_its_time(make_api: Callable[..., Api]) -> None:
    api = make_api(queue=QueueSettings(progress="at_once", slow=1, slow_seconds=600))
    slow, quick = submitted(api), submitted(api)

    assert [poll(api, slow).json()["result"]["status"] for _ in range(2)] == ["queued", "running"]
    assert "responses" in poll(api, quick).json()["result"]
    api.emulator.clock.advance(600)
    assert "responses" in poll(api, slow).json()["result"]


def test_the_limit_per_minute_counts_submissions_but_no_polls(make_api: Callable[..., Api]) -> None:
    api = make_api(rpm={"Text Generation": 2}, queue=QueueSettings(polls=5))
    first = submitted(api, GEMMA, {"requests": [user("a")] * 3})
    submitted(api, GEMMA, {"requests": [user("b")]})

    assert code_of(api.queue(GEMMA, {"requests": [user("c")]})) == (429, 3021)
    assert [poll(api, first, GEMMA).status_code for _ in range(5)] == [200] * 5


def test_ten_megabytes_are_too_many(api: Api) -> None:
    reply = api.queue(BGE, {"requests": [{"text": "a" * 10_000_000}]})

    assert code_of(reply) == (413, 3006)


def test_the_queue_accepts_batches_at_capacity_unless_set_otherwise(api: Api) -> None:
    api.emulator.capacity.slots = 0
    assert api.queue(BGE, THREE).status_code == 200

    api.emulator.settings.busy_in_queue = True
    assert code_of(api.queue(BGE, THREE)) == (429, 3040)


def test_the_log_counts_submissions_polls_and_texts(api: Api) -> None:
    collected(api)

    assert dict(api.emulator.log.routes) == {"submit": 1, "poll": 2}
    assert (api.emulator.log.texts_embedded, api.emulator.log.texts_repeated) == (4, 0)


def test_batches_and_settings_are_gone_after_a_reset() -> None:
    emulator = Emulator(queue=QueueSettings(polls=7))
    emulator.queue.settings.polls = 1
    emulator.queue.submit("id", BGE, b"{}")
    emulator.reset()

    assert (emulator.queue.jobs, emulator.queue.settings.polls) == ([], 7)


def test_a_deployed_batch_worker_is_the_queue_behind_two_routes(api: Api) -> None:
    host = "https://batch.example.workers.dev"
    accepted = api.http.post(f"{host}/batch", json={"texts": ["a"] * 150}).json()
    pending = api.http.get(f"{host}/batch/{accepted['request_id']}").json()
    done = api.http.get(f"{host}/batch/{accepted['request_id']}").json()

    assert (accepted["status"], pending["status"]) == ("queued", "running")
    assert [item["result"]["shape"] for item in sorted(done["responses"], key=lambda item: item["id"])] == [
        [100, 1024],
        [50, 1024],
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", "/batch", {"texts": []}, (400, "INVALID_BODY")),
        ("POST", "/batch", {"texts": [""]}, (400, "INVALID_BODY")),
        ("POST", "/batch", None, (400, "INVALID_BODY")),
        ("GET", "/batch/nonsense", None, (400, "INVALID_REQUEST_ID")),
        ("GET", "/batch/00000000-0000-4000-8000-000000000000", None, (502, "BATCH_ERROR")),
    ],
)
def test_errors_of_a_batch_worker_have_their_own_form(
    api: Api, method: str, path: str, body: Any, expected: tuple[int, str]
) -> None:
    reply = api.http.request(method, f"https://batch.example.workers.dev{path}", json=body)

    assert expected == (reply.status_code, reply.json()["error"]["code"])
