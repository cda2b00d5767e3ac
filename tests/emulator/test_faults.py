"""Scripted faults: effect, matching requests, number of times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.emulator.conftest import BGE, GEMMA, LLAMA, NATIVE, events_of, user
from tests.emulator.test_chat import CLOCK_TOOL, GREETING
from tests.support import every_row

from workers_ai_emulator import Clock, Emulator, Fault
from workers_ai_emulator.shapes.quirks import WHOLE
from workers_ai_emulator.shapes.stream_quirks import STREAMED

if TYPE_CHECKING:
    from tests.emulator.conftest import Api


def test_a_fault_applies_to_one_request_by_default(api: Api) -> None:
    once = api.emulator.faults.add(Fault.busy())
    assert [api.embed("a").status_code for _ in range(2)] == [429, 200]

    api.emulator.faults.add(Fault.error(500, 3043, times=2, skip=1))
    assert [api.embed("a").status_code for _ in range(4)] == [200, 500, 500, 200]
    assert once.applied == 1


def test_a_fault_can_be_limited_to_model_route_and_stream(api: Api) -> None:
    api.emulator.faults.add(
        Fault.error(500, 1, times=None, model=GEMMA),
        Fault.error(501, 2, times=None, route="embeddings"),
        Fault.error(502, 3, times=None, stream=True),
    )

    assert api.chat(GEMMA).status_code == 500
    assert api.chat(LLAMA).status_code == 200
    assert api.chat(LLAMA, stream=True).status_code == 502
    assert api.http.post("/ai/v1/embeddings", json={"model": BGE, "input": "a"}).status_code == 501
    assert api.embed("a").status_code == 200


def test_probability_depends_only_on_the_seed() -> None:
    def run(seed: int) -> list[int]:
        emulator = Emulator(seed=seed, clock=Clock("jump"))
        emulator.faults.add(Fault.busy(times=None, probability=0.3))
        url = f"https://api.cloudflare.com/client/v4/accounts/acct/ai/run/{BGE}"
        with httpx.Client(transport=emulator.transport(), headers={"authorization": "Bearer t"}) as http:
            return [http.post(url, json={"text": "a"}).status_code for _ in range(60)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert 8 < run(1).count(429) < 30


def test_a_scripted_reply_is_sent_byte_for_byte(api: Api) -> None:
    api.emulator.faults.add(
        Fault.reply(b"\x00odd", status=418, headers={"x-odd": "1", "content-type": "text/odd"}),
        Fault.reply({"result": None, "success": False}),
        Fault.reply("", status=502, retry_after="7"),
    )
    odd, failed, empty = (api.embed("a") for _ in range(3))

    assert (
        odd.status_code,
        odd.content,
        odd.headers["x-odd"],
        odd.headers["content-type"],
    ) == (418, b"\x00odd", "1", "text/odd")
    assert (failed.status_code, failed.json()) == (200, {"result": None, "success": False})
    assert (empty.status_code, empty.content, empty.headers["retry-after"]) == (502, b"", "7")
    assert all(reply.headers["x-workers-ai-emulator"] == "1" for reply in (odd, failed, empty))


def test_a_scripted_stream_keeps_its_pieces(api: Api) -> None:
    pieces = [b'data: {"response":"\xe4\xbd', b'\xa0"}\n\n', b"data: [DONE]\n\n"]
    api.emulator.faults.add(Fault.sse(pieces))
    with api.http.stream("POST", f"/ai/run/{LLAMA}", json=user("hi")) as reply:
        assert reply.headers["content-type"] == "text/event-stream"
        assert pieces == list(reply.iter_raw())


def test_a_dropped_connection_is_logged_without_a_status(api: Api) -> None:
    api.emulator.faults.add(Fault.drop())
    with pytest.raises(httpx.RemoteProtocolError):
        api.embed("a")

    assert api.emulator.log.last.status is None
    assert api.emulator.log.running == 0


def test_an_edge_page_is_html(api: Api) -> None:
    api.emulator.faults.add(Fault.html(524))
    reply = api.embed("a")

    assert reply.status_code == 524
    assert reply.headers["content-type"].startswith("text/html")
    assert "A timeout occurred" in reply.text


@pytest.mark.parametrize(
    ("where", "body"),
    [
        ({"layer": "api"}, {"success": False, "errors": [{"code": 7, "message": "m"}], "messages": [], "result": None}),
        (
            {"layer": "gateway"},
            {"success": False, "result": [], "messages": [], "error": [{"code": 7, "message": "m"}]}
            | {"name": "AiGatewayError", "httpCode": 400, "internalCode": 7},
        ),
        (
            {"envelope": "binding"},
            {"internalCode": 7, "httpCode": 400, "name": "AiError", "message": "m", "description": "m"},
        ),
    ],
)
def test_an_error_has_the_envelope_of_its_layer(api: Api, where: dict[str, Any], body: dict[str, Any]) -> None:
    api.emulator.faults.add(Fault.error(400, 7, "m", **where))

    assert body == api.embed("a").json()


def test_errors_can_be_one_object(api: Api) -> None:
    api.emulator.faults.add(Fault.error(400, 5006, "m", envelope="object"))

    assert api.embed("a").json()["errors"]["code"] == 5006


def test_an_interrupted_stream_has_neither_finish_nor_end_mark(api: Api) -> None:
    api.emulator.faults.add(Fault.cut(after_events=3))
    whole = api.chat(GEMMA)
    events = events_of(api.chat(GEMMA, stream=True))

    assert whole.status_code == 200
    assert len(events) == 3
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * 3


def test_an_error_frame_ends_a_stream(api: Api) -> None:
    api.emulator.faults.add(Fault.error_frame(3040, "busy", after_events=2))
    *_, frame = events_of(api.chat(GEMMA, stream=True))

    assert frame == {"errors": [{"message": "AiError: busy", "code": 3040}]}


def test_slow_waits_before_each_piece(api: Api) -> None:
    api.emulator.faults.add(Fault.slow(2.0, times=2))
    before = api.emulator.clock.now()
    pieces = len(events_of(api.run(LLAMA, {**user("Hello"), "stream": True})))
    streamed = api.emulator.clock.now()
    api.embed("a")

    assert 2.0 * pieces == pytest.approx(streamed - before)
    assert pytest.approx(api.emulator.clock.now() - streamed) == 2.0


@pytest.mark.parametrize("stream", [False, True])
def test_bytes_can_be_sent_one_by_one(api: Api, stream: bool) -> None:
    api.emulator.faults.add(Fault("one_byte_chunks"))
    with api.http.stream("POST", f"/ai/run/{LLAMA}", json={**user("Hello"), "stream": stream}) as reply:
        pieces = list(reply.iter_raw())

    assert {1} == {len(piece) for piece in pieces}
    assert b"Hello" in b"".join(pieces)


def test_a_latency_fault_adds_to_the_latency(api: Api) -> None:
    api.emulator.faults.add(Fault.latency(3))
    before = api.emulator.clock.now()
    api.embed("a")

    assert pytest.approx(api.emulator.clock.now() - before) == 3.0


def whole_with(api: Api, shape: str, model: str, text: str, **body: Any) -> Any:
    api.emulator.faults.add(Fault.named_shape(shape, times=1))
    return api.run(model, {**user(text), **body}).json()


def stream_with(api: Api, shape: str, model: str, text: str, **body: Any) -> list[Any]:
    api.emulator.faults.add(Fault.named_shape(shape, times=1))
    return events_of(api.run(model, {**user(text), "stream": True, **body}))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("null_text", {"response": None}),
        ("no_text", {}),
        ("no_usage", {"response": GREETING}),
    ],
)
def test_shapes_of_a_native_text(api: Api, shape: str, expected: dict[str, Any]) -> None:
    result = whole_with(api, shape, NATIVE, "Hello")["result"]
    assert result.pop("tool_calls") == []

    assert expected == {key: value for key, value in result.items() if key != "usage"}
    assert (shape != "no_usage") == ("usage" in result)


def test_numeric_text_and_parsed_text(api: Api) -> None:
    prompt = "What is on line four?"
    context = {"messages": [{"role": "system", "content": "2026"}, {"role": "user", "content": "Say 2026"}]}
    api.emulator.faults.add(Fault.named_shape("numeric", times=1))
    assert api.run(LLAMA, context).json()["result"]["response"] == 2026

    wanted = {"response_format": {"type": "json_object"}}
    message = whole_with(api, "object_text", GEMMA, prompt, **wanted)["result"]["choices"][0]["message"]
    assert isinstance(message["content"], dict)
    native = whole_with(api, "json_as_text", LLAMA, prompt, **wanted)["result"]["response"]
    assert isinstance(json.loads(native), dict)


@pytest.mark.parametrize(
    ("shape", "call"),
    [
        ("empty_arguments", {"arguments": ""}),
        ("null_arguments", {"arguments": None}),
        ("object_arguments", {"arguments": {"city": "Oslo"}}),
    ],
)
def test_shapes_of_arguments(api: Api, shape: str, call: dict[str, Any]) -> None:
    choice = whole_with(api, shape, GEMMA, "Time in Oslo?", tools=[CLOCK_TOOL])["result"]["choices"][0]

    assert {"name": "clock", **call} == choice["message"]["tool_calls"][0]["function"]


def test_shapes_of_ids_and_finish(api: Api) -> None:
    def choice(shape: str) -> Any:
        return whole_with(api, shape, GEMMA, "Time in Oslo?", tools=[CLOCK_TOOL])["result"]["choices"][0]

    assert choice("same_ids")["message"]["tool_calls"][0]["id"] == "x1"
    assert "id" not in choice("no_ids")["message"]["tool_calls"][0]
    assert choice("counted_ids")["message"]["tool_calls"][0]["id"] == "functions.clock:0"
    assert choice("stop_with_calls")["finish_reason"] == "stop"
    assert choice("no_finish")["finish_reason"] is None
    leaked = choice("leaked_call")
    assert (
        leaked["finish_reason"],
        leaked["message"]["tool_calls"],
        leaked["message"]["content"],
    ) == ("stop", [], '{"city": "Oslo"}')
    flat = whole_with(api, "text_arguments", LLAMA, "Time in Oslo?", tools=[CLOCK_TOOL])["result"]["tool_calls"][0]
    assert flat["arguments"] == '{"city": "Oslo"}'


def test_shapes_of_the_envelope_and_of_reasoning(api: Api) -> None:
    assert {"response", "tool_calls", "usage"} == set(whole_with(api, "bare_result", NATIVE, "Hello"))
    assert {"result", "success"} == set(whole_with(api, "no_messages", LLAMA, "Hello"))
    assert whole_with(api, "internal_model", GEMMA, "Hello")["result"]["model"] == "gemma-4-26b-a4b-it-external"
    renamed = whole_with(api, "reasoning", GEMMA, "Hello")["result"]["choices"][0]["message"]
    both = whole_with(api, "both_reasoning", GEMMA, "Hello")["result"]["choices"][0]["message"]
    assert "reasoning_content" not in renamed
    assert renamed["reasoning"] == both["reasoning"] == both["reasoning_content"]


@pytest.mark.parametrize(
    ("shape", "raw"),
    [
        ("crlf", b"\r\n\r\n"),
        ("no_space", b'data:{"response"'),
        ("comments", b": ping\n\n"),
        ("two_data_lines", b'data: {\ndata: "response"'),
        ("bare_done", b"\n\n[DONE]\n"),
    ],
)
def test_shapes_of_framing(api: Api, shape: str, raw: bytes) -> None:
    api.emulator.faults.add(Fault.named_shape(shape, times=1))

    assert raw in api.run(LLAMA, {**user("Hello"), "stream": True}).content


def test_shapes_of_the_end_mark(api: Api) -> None:
    def tail(shape: str) -> bytes:
        api.emulator.faults.add(Fault.named_shape(shape, times=1))
        return api.run(LLAMA, {**user("Hello"), "stream": True}).content[-30:]

    assert not tail("no_done").endswith(b"[DONE]\n\n")
    assert tail("double_done").endswith(b"data: [DONE]\n\ndata: [DONE]\n\n")
    assert tail("open_last_line").endswith(b"data: [DONE]")


def test_a_stream_can_be_answered_with_json_or_with_nothing(api: Api) -> None:
    api.emulator.faults.add(Fault.named_shape("json_for_stream", times=1))
    reply = api.run(LLAMA, {**user("Hello"), "stream": True})

    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["result"]["response"] == GREETING
    assert stream_with(api, "empty_stream", LLAMA, "Hello") == ["[DONE]"]


def test_cumulative_usage_grows(api: Api) -> None:
    *events, last, done = stream_with(api, "cumulative_usage", GEMMA, "Hello")
    totals = [event["usage"]["total_tokens"] for event in [*events, last]]

    assert sorted(totals) == totals
    assert last["choices"] == []
    assert done == "[DONE]"


def test_legacy_chunks_have_nothing_but_content(api: Api) -> None:
    *events, _ = stream_with(api, "legacy_chunks", GEMMA, "Hello")

    assert "".join(event["choices"][0]["delta"]["content"] for event in events) == GREETING
    assert {"delta"} == {key for event in events for key in event["choices"][0]}


def tool_deltas(events: list[Any]) -> list[Any]:
    return [
        call
        for event in events[:-1]
        for choice in event.get("choices", [])
        for call in choice["delta"].get("tool_calls", [])
    ]


def test_shapes_of_streamed_calls(api: Api) -> None:
    def calls(shape: str) -> list[Any]:
        return tool_deltas(stream_with(api, shape, GEMMA, "Time in Oslo?", tools=[CLOCK_TOOL]))

    first, second, *_ = calls("arguments_first")
    assert "name" not in first["function"]
    assert second["function"]["name"] == "clock"
    assert [call["function"] for call in calls("object_arguments")] == [
        {"name": "clock", "arguments": {"city": "Oslo"}}
    ]
    assert calls("null_end")[-1]["function"] == {"name": None, "arguments": None}
    assert calls("same_ids")[0]["id"] == "x1"
    assert not any("id" in call for call in calls("no_ids"))
    assert calls("counted_ids")[0]["id"] == "functions.clock:0"


def test_shapes_of_streamed_finish_usage_and_text(api: Api) -> None:
    def reasons(shape: str, **body: Any) -> list[Any]:
        events = stream_with(api, shape, GEMMA, "Time in Oslo?", **body)[:-1]
        return [choice["finish_reason"] for event in events for choice in event.get("choices", [])]

    assert {None} == set(reasons("no_finish"))
    assert reasons("early_finish").count("stop") > 1
    assert reasons("stop_with_calls", tools=[CLOCK_TOOL])[-1] == "stop"
    assert not any("usage" in event for event in stream_with(api, "no_usage", LLAMA, "Hello")[:-1])
    nulls = stream_with(api, "null_pieces", NATIVE, "Hello")
    assert {"response": None, "p": ""} in nulls
    context = [{"role": "system", "content": "The year is 2026 now"}, {"role": "user", "content": "What year?"}]
    api.emulator.faults.add(Fault.named_shape("numeric", times=1))
    pieces = events_of(api.run(LLAMA, {"messages": context, "stream": True}))[:-3]
    assert 2026 in [piece["response"] for piece in pieces]


@pytest.mark.parametrize(("model", "compat"), [(LLAMA, False), (GEMMA, True)])
@every_row("shape", sorted(WHOLE | STREAMED))
def test_every_shape_works_on_every_route(api: Api, shape: str, model: str, compat: bool) -> None:
    api.emulator.reset()
    api.emulator.faults.add(Fault.named_shape(shape))
    for text in ("Hello", "Time in Oslo?"):
        for stream in (False, True):
            body = {**user(text), "tools": [CLOCK_TOOL], "stream": stream}
            reply = api.chat(model, text, tools=[CLOCK_TOOL], stream=stream) if compat else api.run(model, body)
            assert reply.status_code == 200


# --- scripts of answers ---


@pytest.mark.parametrize("model", [NATIVE, LLAMA, GEMMA])
@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_script_answers_in_the_shape_of_the_model(api: Api, model: str, compat: bool, stream: bool) -> None:
    def ask() -> str:
        tools = [CLOCK_TOOL]
        if compat:
            return api.chat(model, "Hello", tools=tools, stream=stream).text
        return api.run(model, {**user("Hello"), "tools": tools, "stream": stream}).text

    api.emulator.faults.add(
        Fault.call("clock", model="Moss").and_call("clock", times=2), Fault.say("scripted"), Fault.busy(skip=1)
    )
    api.embed("a")
    called, said, busy, own = ask(), ask(), ask(), ask()

    assert called.count("clock") >= 2
    assert stream or "Moss" in called
    assert "scripted" in said
    assert "3040" in busy
    assert "Hello!" in own


def test_a_scripted_answer_to_the_responses_route_and_to_a_schema(api: Api) -> None:
    api.emulator.faults.add(Fault.call("clock", city="Moss"), Fault.say('{"age": 7}').on(model=GEMMA, times=2))
    wanted = {"response_format": {"type": "json_object"}}
    body = {"model": "@cf/openai/gpt-oss-20b", "input": "Hello"}
    called = api.http.post("/ai/v1/responses", json=body).json()["output"]

    assert [(item["name"], item["arguments"]) for item in called] == [("clock", '{"city": "Moss"}')]
    for _ in range(2):
        assert api.chat(GEMMA, **wanted).json()["choices"][0]["message"]["content"] == '{"age": 7}'
    assert api.run(NATIVE, user("Hello")).json()["result"]["response"] == GREETING


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "eror"},
        {"kind": "shape", "shape": "crfl"},
        {"kind": "shape"},
        {"kind": "error", "route": "chat"},
        {"kind": "error", "model": "cf/baai/bge-m3"},
    ],
)
def test_an_unknown_fault_name_raises(api: Api, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="unknown"):
        Fault(**wrong)
    reply = api.http.post("https://api.cloudflare.com/__emulator__/faults", json=wrong)
    assert (reply.status_code, "unknown" in reply.text) == (400, True)


@pytest.mark.parametrize(
    ("token", "status"), [("wrong", 401), ("expired-token", 401), ("a_bad_one", 401), ("token", 200), ("badger", 200)]
)
def test_a_token_with_wrong_in_its_name_is_rejected(api: Api, token: str, status: int) -> None:
    headers = {"authorization": f"Bearer {token}"}
    assert api.http.post(f"/ai/run/{BGE}", json={"text": "a"}, headers=headers).status_code == status
    api.emulator.settings.tokens = [token]
    assert api.http.post(f"/ai/run/{BGE}", json={"text": "a"}, headers=headers).status_code == 200
