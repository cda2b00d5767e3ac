"""Requests on both routes, sync and async, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from axes import MODES, spread
from sent import SENT
from shapes import ABSENT, Sent, at

from workers_ai.errors import WorkersAIError

CASES = [
    pytest.param(
        row,
        mode,
        stream,
        api or None,
        id=f"{row.name}-{mode}-{'stream' if stream else 'whole'}-{api or 'default route'}",
    )
    for row, mode, stream in (case.values for case in spread(SENT, MODES, (False, True)))
    for api in row.api
]


class Recorder:
    """Record and answer requests."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(200, json={"result": {"response": "{}"}, "success": True, "errors": [], "messages": []})


def test_names_are_unique() -> None:
    assert len({row.name for row in SENT}) == len(SENT)


@pytest.mark.parametrize(("row", "face", "stream", "api"), CASES, indirect=["face"])
def test_sent_request(row: Sent, face: Any, stream: bool, api: str | None) -> None:
    recorder = Recorder()
    one = face(recorder, **row.settings)
    given = json.dumps([row.messages, dict(row.params)], sort_keys=True)
    ask = one.stream if stream else one.chat
    if row.error:
        with pytest.raises(WorkersAIError) as caught:
            ask(row.model, row.messages, api=api, **row.params)
        assert (type(caught.value).__name__, recorder.requests) == (row.error, [])
        assert row.says in str(caught.value)
        return
    ask(row.model, row.messages, api=api, **row.params)
    (request,) = recorder.requests
    body = json.loads(request.content)
    inputs = body.get("input", body)
    assert inputs.pop("stream", False) is (stream and "response_format" not in body)
    inputs.pop("stream_options", None)
    wanted = {**row.has, **(row.chat if api == "chat_completions" else row.run)}
    assert {path: at(body, path) for path in wanted} == wanted
    assert [path for path in row.lacks if at(body, path) is not ABSENT] == []
    assert request.url.query == b""
    assert row.path.get(api or "", "") in request.url.raw_path.decode()
    assert request.url.raw_path.decode().endswith(row.path.get(api or "", ""))
    assert {name: request.headers.get(name) for name in row.sends_headers} == row.sends_headers
    assert json.dumps([row.messages, dict(row.params)], sort_keys=True) == given, "the caller's own values were changed"


@pytest.mark.parametrize(
    ("api", "options"), [("chat_completions", {"include_usage": True}), ("run", None)], ids=["chat completions", "run"]
)
def test_a_stream_requests_its_usage_on_routes_with_stream_options(api: str, options: Any, face: Any) -> None:
    recorder = Recorder()
    face(recorder).stream("@cf/a", [{"role": "user", "content": "hi"}], api=api)
    body = json.loads(recorder.requests[0].content)
    assert (body["stream"], body.get("stream_options")) == (True, options)


@pytest.mark.parametrize("by_extra_body", [False, True])
def test_a_structured_answer_is_requested_whole_and_streamed_to_the_caller(face: Any, by_extra_body: bool) -> None:
    # The service rejects a schema together with a stream (5023).
    recorder = Recorder()
    schema = {"response_format": {"type": "json_schema", "json_schema": {"type": "object"}}}
    options = {"extra_body": schema} if by_extra_body else schema
    pieces = face(recorder).stream("@cf/a", [{"role": "user", "content": "hi"}], **options)
    assert "stream" not in json.loads(recorder.requests[0].content)
    assert "".join(piece.text for piece in pieces) == "{}"
    assert len(recorder.requests) == 1


def test_ids_stay_unique_over_turns_and_are_sent_back_unchanged(face: Any) -> None:
    """Kimi counts its calls from zero on every turn (https://github.com/cloudflare/ai/issues/526)."""
    seen: list[Any] = []

    def model(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        call = {"id": "functions.search:0", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        choice = {
            "message": {"role": "assistant", "content": None, "tool_calls": [call]},
            "finish_reason": "tool_calls",
        }
        return httpx.Response(200, json={"choices": [choice]})

    one = face(model)
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    ids = []
    for _ in range(3):
        (call,) = one.chat("@cf/moonshotai/kimi-k2.6", messages).tool_calls
        ids.append(call.id)
        function = {"name": call.name, "arguments": call.arguments}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [{"id": call.id, "function": function}]},
            {"role": "tool", "tool_call_id": call.id, "content": "found"},
        ]
    assert ids[0] == "functions.search:0"
    assert len(set(ids)) == 3
    wire_ids = [message.get("tool_call_id") for message in seen[-1]["messages"] if message["role"] == "tool"]
    assert wire_ids == ["functions.search:0", "functions.search:0"]
