"""The Responses route: requests and replies.

Fields are those of Cloudflare's types (https://github.com/cloudflare/workerd/blob/main/types/defines/ai.d.ts).
Answers are never streamed (https://developers.cloudflare.com/workers-ai/configuration/open-ai-compatibility/).
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from readers import disagreements, of_deltas, of_reply
from shapes import CLOCK, HI, Call, Want, nested

from workers_ai import errors as e
from workers_ai._wire.batch import read_submission
from workers_ai._wire.chat.reply import read_chat
from workers_ai._wire.request import ReplyContext

MODEL = "@cf/openai/gpt-oss-120b"
USAGE = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12, "output_tokens_details": {"reasoning_tokens": 3}}
PARAMETERS = CLOCK["function"]["parameters"]


def response(*output: Any, **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "model": MODEL, "output": list(output), **more}


def message(*texts: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "content": parts}


def call(name: str, arguments: str, call_id: str = "call_1", item_id: str = "fc_1") -> dict[str, Any]:
    return {"type": "function_call", "id": item_id, "call_id": call_id, "name": name, "arguments": arguments}


def thought(text: str, where: str) -> dict[str, Any]:
    kind = {"content": "reasoning_text", "summary": "summary_text"}[where]
    return {"type": "reasoning", "summary": [], where: [{"type": kind, "text": text}]}


CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FILTERED = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
CLOCK_CALL = Call("clock", {"city": "Oslo"}, "call_1")

REPLIES = {
    "one text": (response(message("Hello")), Want("Hello")),
    "several parts and messages": (response(message("Hel", "lo"), message("!")), Want("Hello!")),
    "text outside the items": (response(output_text="Hello"), Want("Hello")),
    "thoughts": (response(thought("2+2", "content"), message("4")), Want("4", "2+2")),
    "a summary of thoughts": (response(thought("2+2", "summary"), message("4")), Want("4", "2+2")),
    "a call": (response(call("clock", '{"city":"Oslo"}')), Want(calls=(CLOCK_CALL,), finish="tool_calls")),
    "a call beside text": (
        response(message("Let me see."), call("clock", '{"city":"Oslo"}')),
        Want("Let me see.", calls=(CLOCK_CALL,), finish="tool_calls"),
    ),
    "two calls": (
        response(call("clock", '{"city":"Oslo"}'), call("search", "{}", "call_2")),
        Want(calls=(CLOCK_CALL, Call("search", {}, "call_2")), finish="tool_calls"),
    ),
    "a call with its item's id alone": (
        response({key: value for key, value in call("clock", "{}").items() if key != "call_id"}),
        Want(calls=(Call("clock", {}, "fc_1"),), finish="tool_calls"),
    ),
    "calls and texts of other kinds": (
        response(
            {"type": "output_text", "text": "Let me "},
            {
                "type": "message",
                "content": [
                    {"type": "output_text", "text": "see."},
                    {"type": "tool_use", "id": "call_1", "name": "clock", "input": {"city": "Oslo"}},
                ],
            },
        ),
        Want("Let me see.", calls=(CLOCK_CALL,), finish="tool_calls"),
    ),
    "a refusal": (
        response({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}),
        Want(refusal="No."),
    ),
    "cut by the bound": (response(message("Hel"), **CUT), Want("Hel", finish="length")),
    "filtered": (response(message("Hel"), **FILTERED), Want("Hel", finish="content_filter")),
    "nothing but thoughts": (response(thought("hm", "content"), **CUT), Want("", "hm", finish="length")),
    "usage": (response(message("Hello"), usage=USAGE), Want("Hello", usage=(5, 7, 12))),
    "invalid items": (response(None, "text", {}, {"type": "other"}, message("Hello")), Want("Hello")),
    "content that is null": (response({"type": "message", "content": None}, message("Hello")), Want("Hello")),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "to a stream"])
@pytest.mark.parametrize("enveloped", [False, True], ids=["bare", "in the envelope"])
@pytest.mark.parametrize(("body", "want"), REPLIES.values(), ids=REPLIES)
def test_replies_of_the_responses_route(body: Any, want: Want, enveloped: bool, stream: bool, face: Any) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"result": body, "success": True} if enveloped else body)

    one = face(answer)
    got = (
        of_deltas(one.stream(MODEL, HI, api="responses")) if stream else of_reply(one.chat(MODEL, HI, api="responses"))
    )
    assert disagreements(want, got) == []
    (request,) = seen
    assert request.url.path.endswith("/ai/v1/responses")
    assert "stream" not in json.loads(request.content)


def test_reasoning_tokens_are_counted(face: Any) -> None:
    reply = face(lambda request: httpx.Response(200, json=response(message("4"), usage=USAGE))).chat(
        MODEL, HI, api="responses"
    )
    assert (reply.usage.reasoning_tokens, reply.id, reply.model) == (3, "resp_1", MODEL)


SENT = {
    "a question": (HI, {}, {"input": [{"role": "user", "content": "hi"}]}),
    "the bound has another name": (HI, {"max_tokens": 9}, {"max_output_tokens": 9}),
    "effort is an object": (HI, {"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
    "no effort": (HI, {"reasoning_effort": None}, {}),
    "sampling": (HI, {"temperature": 0, "top_p": 0.5}, {"temperature": 0, "top_p": 0.5}),
    "tools are flat": (
        HI,
        {"tools": [CLOCK]},
        {"tools": [{"type": "function", "name": "clock", "description": "The clock.", "parameters": PARAMETERS}]},
    ),
    "a named choice is flat": (
        HI,
        {"tools": [CLOCK], "tool_choice": "clock"},
        {"tool_choice": {"type": "function", "name": "clock"}},
    ),
    "a choice that is a word": (HI, {"tools": [CLOCK], "tool_choice": "auto"}, {"tool_choice": "auto"}),
    "a schema is a format of the text": (
        HI,
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": PARAMETERS, "strict": True},
            }
        },
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": PARAMETERS, "strict": True}}},
    ),
    "a bare schema gets a name": (
        HI,
        {"response_format": {"type": "json_schema", "json_schema": PARAMETERS}},
        {"text": {"format": {"type": "json_schema", "name": "response", "schema": PARAMETERS}}},
    ),
    "JSON mode": (
        HI,
        {"response_format": {"type": "json_object"}},
        {"text": {"format": {"type": "json_object"}}},
    ),
    "a conversation with a call": (
        [
            {"role": "user", "content": "Time in Oslo?"},
            {"role": "assistant", "content": "", "tool_calls": [nested("clock", '{"city":"Oslo"}', "call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "14:02"},
        ],
        {},
        {
            "input": [
                {"role": "user", "content": "Time in Oslo?"},
                {"type": "function_call", "call_id": "call_1", "name": "clock", "arguments": '{"city":"Oslo"}'},
                {"type": "function_call_output", "call_id": "call_1", "output": "14:02"},
            ]
        },
    ),
    "text beside a call": (
        [
            {"role": "user", "content": "Time?"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [nested("clock", "{}", "call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "14:02"},
        ],
        {},
        {
            "input": [
                {"role": "user", "content": "Time?"},
                {"role": "assistant", "content": "Let me see."},
                {"type": "function_call", "call_id": "call_1", "name": "clock", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "14:02"},
            ]
        },
    ),
}


@pytest.mark.parametrize(("messages", "params", "has"), SENT.values(), ids=SENT)
def test_requests_of_the_responses_route(messages: Any, params: Any, has: Any, face: Any) -> None:
    bodies: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json=response(message("{}")))

    face(answer).chat(MODEL, messages, api="responses", **params)
    (body,) = bodies
    assert {key: body[key] for key in has} == has
    assert set(body) <= {"model", "input", *has, *(key for key in params if key in ("tools", "temperature", "top_p"))}


@pytest.mark.parametrize("params", [{"top_k": 3}, {"guided_json": {}}, {"lora": "x"}, {"raw": True}], ids=str)
def test_options_of_the_native_route_are_rejected(params: Any, face: Any) -> None:
    one = face(lambda request: pytest.fail("sent"))
    with pytest.raises(e.ConfigurationError, match=next(iter(params))):
        one.chat(MODEL, HI, api="responses", **params)


@pytest.mark.parametrize("body", [{"object": "response"}, {"object": "response", "output": None}], ids=str)
def test_a_response_without_a_list_of_items_is_invalid(body: Any, face: Any) -> None:
    one = face(lambda request: httpx.Response(200, json=body))
    with pytest.raises(e.APIResponseValidationError, match="has no answer"):
        one.chat(MODEL, HI, api="responses")


FAILURES = {
    "server_error": (e.InternalServerError, 3),
    "rate_limit_exceeded": (e.RateLimitError, 3),
    "insufficient_quota": (e.QuotaExhaustedError, 1),
    "invalid_prompt": (e.BadRequestError, 1),
    "context_length_exceeded": (e.ContextWindowExceededError, 1),
    "unknown_code": (e.APIResponseValidationError, 1),
    3040: (e.CapacityError, 3),
    None: (e.APIResponseValidationError, 1),
}


@pytest.mark.parametrize(("stream", "enveloped"), [(False, False), (True, True)], ids=["whole", "to a stream"])
@pytest.mark.parametrize("code", FAILURES, ids=str)
def test_a_failed_response_is_the_typed_error_of_its_code(code: Any, enveloped: bool, stream: bool, face: Any) -> None:
    error, tries = FAILURES[code]
    seen: list[httpx.Request] = []
    body = response(status="failed", error=None if code is None else {"code": code, "message": "It broke."})

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"result": body, "success": True} if enveloped else body)

    one = face(answer, max_retries=2)
    with pytest.raises(e.WorkersAIError, match="It broke" if code else "status failed: no reason was given") as caught:
        one.stream(MODEL, HI, api="responses") if stream else one.chat(MODEL, HI, api="responses")
    assert (type(caught.value), len(seen)) == (error, tries)
    assert caught.value.is_retryable is (tries > 1)
    item = read_submission({"responses": [{"id": 0, "result": body, "success": True}]}, MODEL, 1).answer.items[0]
    assert item.success is (code is None)


BROKE = {"code": "server_error", "message": "It broke."}
STARTED = {"type": "response.created", "response": response(status="in_progress")}
DELTA = {"type": "response.output_text.delta", "delta": "Hel"}
CHAT_EVENTS = [
    {"choices": [{"index": 0, "delta": {"reasoning": "hm", "content": "Hel"}, "logprobs": {"content": [1]}}]},
    {"choices": [{"index": 0, "delta": {"content": "lo"}, "logprobs": {"content": [2]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "clock"}}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":"Oslo"}'}}]}}]},
    {"choices": [{"delta": {}, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 5, "completion_tokens": 7}},
]
EVENTS: dict[str, tuple[list[Any], Want | type[e.WorkersAIError], int]] = {
    "completed": (
        [STARTED, DELTA, {"type": "response.completed", "response": response(message("Hello"))}],
        Want("Hello"),
        1,
    ),
    "incomplete": (
        [STARTED, {"type": "response.incomplete", "response": response(message("Hel"), **CUT)}],
        Want("Hel", finish="length"),
        1,
    ),
    "failed": (
        [STARTED, DELTA, {"type": "response.failed", "response": response(status="failed", error=BROKE)}],
        e.InternalServerError,
        3,
    ),
    "failed without a reason": (
        [{"type": "response.failed", "response": response(status="failed", error=None)}],
        e.APIResponseValidationError,
        1,
    ),
    "an error": ([STARTED, {"type": "error", **BROKE}], e.InternalServerError, 3),
    "an error inside": ([{"type": "error", "error": BROKE}], e.InternalServerError, 3),
    "quota": ([{"type": "error", "code": "insufficient_quota", "message": "No."}], e.QuotaExhaustedError, 1),
    "at capacity": ([{"errors": [{"code": 3040, "message": "Busy."}], "success": False}], e.CapacityError, 3),
    "cut": ([STARTED, DELTA], e.APIResponseValidationError, 1),
    "chat": (CHAT_EVENTS, Want("Hello", "hm", (CLOCK_CALL,), "tool_calls", usage=(5, 7, 12)), 1),
    "chat, an error after the end": (
        [*CHAT_EVENTS, "[DONE]", {"error": BROKE}],
        Want("Hello", "hm", (CLOCK_CALL,), "tool_calls", usage=(5, 7, 12)),
        1,
    ),
    "chat, cut": (CHAT_EVENTS[:2], e.StreamInterruptedError, 1),
    "chat, an error after text": ([CHAT_EVENTS[0], {"error": BROKE}], e.InternalServerError, 3),
}


def sse(events: list[Any]) -> str:
    """Return the events with their types as names, as the Responses route writes them."""
    names = [event.get("type") if isinstance(event, dict) else None for event in events]
    data = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(
        f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"
        for name, text in zip(names, data, strict=True)
    )


@pytest.mark.parametrize(("api", "media"), [("responses", "text/event-stream"), ("chat_completions", "text/plain")])
@pytest.mark.parametrize("name", EVENTS)
def test_an_event_stream_in_place_of_a_whole_answer_is_read(name: str, api: str, media: str, face: Any) -> None:
    events, want, tries = EVENTS[name]
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, headers={"content-type": media}, text=sse(events))

    one = face(answer)
    if isinstance(want, Want):
        reply = one.chat(MODEL, HI, api=api)
        assert disagreements(want, of_reply(reply)) == []
        stored = of_reply(read_chat(reply.raw, ReplyContext(MODEL)))  # as a ledger of answers does
        assert (stored.text, stored.reasoning, stored.calls) == (want.text, want.reasoning, want.calls)
    else:
        with pytest.raises(e.WorkersAIError) as caught:
            one.chat(MODEL, HI, api=api)
        assert type(caught.value) is want
    assert len(seen) == tries


@pytest.mark.parametrize("name", ["an error", "at capacity"])
def test_an_error_in_a_stream_of_another_media_type_is_retried(name: str, face: Any) -> None:
    replies = [EVENTS[name][0][-1:], CHAT_EVENTS]

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/plain"}, text=sse(replies.pop(0)))

    assert of_deltas(face(answer).stream(MODEL, HI)).text == "Hello"
    assert replies == []


def test_a_response_without_items_is_an_empty_answer(face: Any) -> None:
    assert face(lambda request: httpx.Response(200, json=response())).chat(MODEL, HI, api="responses").text == ""


def test_another_model_is_rejected_before_it_is_sent(face: Any) -> None:
    one = face(pytest.fail)
    with pytest.raises(
        e.ConfigurationError,
        match=r"api='responses' exists only for gpt-oss and third-party models.* use api='chat_comp",
    ):
        one.chat("@cf/meta/llama-3.1-8b-instruct-fast", HI, api="responses")
