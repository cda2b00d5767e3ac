"""Settings of one call in place of the client's own, on every kind of call."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.conftest import Face
from tests.support import every_row

from workers_ai import Client, GatewayOptions
from workers_ai import errors as e
from workers_ai._calls.per_call import Overrides
from workers_ai._wire.request import Request

CHAT = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
HI = [{"role": "user", "content": "hi"}]
REPLIES = {
    "chat": {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]},
    "embed": {"result": {"data": [[1.0, 2.0]]}, "success": True},
    "rerank": {"result": {"response": [{"id": 0, "score": 0.5}]}, "success": True},
}
CALLS: dict[str, Callable[..., Any]] = {
    "chat": lambda face, **options: face.chat(CHAT, HI, **options),
    "stream": lambda face, **options: face.stream(CHAT, HI, **options),
    "embed": lambda face, **options: face.embed("@cf/baai/bge-m3", ["a"], **options),
    "rerank": lambda face, **options: face.rerank("@cf/baai/bge-reranker-base", "q", ["a"], **options),
}


@pytest.fixture(params=CALLS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _reply(kind: str) -> httpx.Response:
    if kind == "stream":
        content = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        return httpx.Response(200, content=content, headers={"content-type": "text/event-stream"})
    return httpx.Response(200, json=REPLIES[kind])


def test_settings_of_a_call_replace_those_of_the_client(face: Callable[..., Face], kind: str) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return _reply(kind)

    one = face(answer, gateway=GatewayOptions("gw", collect_log=True), default_headers={"x-team": "search"})
    CALLS[kind](
        one,
        timeout=(5, 60),
        extra_headers={"x-trace": "trace-of-this-call"},
        extra_body={"cf_field": 1},
        gateway={"metadata": {"user": "u"}, "event_id": "e"},
        session_id="s",
        on_busy=None,
    )
    CALLS[kind](one)
    first, second = sent
    assert first.extensions["timeout"] == {"connect": 5, "read": 60, "write": 60, "pool": 60}
    assert second.extensions["timeout"]["read"] == 300
    assert json.loads(first.content)["cf_field"] == 1
    assert (first.headers["x-trace"], first.headers["x-team"]) == ("trace-of-this-call", "search")
    assert (first.headers["cf-aig-gateway-id"], first.headers["cf-aig-collect-log"]) == ("gw", "true")
    assert (first.headers["cf-aig-metadata"], first.headers["cf-aig-event-id"]) == ('{"user": "u"}', "e")
    assert first.headers["x-session-affinity"] == "s"
    left = {"x-trace", "cf-aig-metadata", "cf-aig-event-id", "x-session-affinity"} & second.headers.keys()
    assert not left
    assert "cf_field" not in json.loads(second.content)


def test_another_gateway_of_a_call_inherits_nothing_from_the_first(face: Callable[..., Face], kind: str) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return _reply(kind)

    CALLS[kind](face(answer, gateway=GatewayOptions("gw", token="gateway-token")), gateway="other")
    aig = {name: value for name, value in sent[0].headers.items() if name.startswith("cf-aig-")}
    assert aig == {"cf-aig-gateway-id": "other"}


@pytest.mark.parametrize(("given", "sends"), [({"max_retries": 0}, 1), ({"max_retries": 1}, 2), ({}, 3)])
def test_retries_of_a_call(
    face: Callable[..., Face], kind: str, given: dict[str, Any], sends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers_ai.retry.RetryPolicy.delay_s", lambda *_: 0.0)
    seen: list[None] = []

    def fail(request: httpx.Request) -> httpx.Response:
        seen.append(None)
        return httpx.Response(500, json={"errors": [{"message": "no"}]})

    settings = {} if given else {"max_retries": None}
    with pytest.raises(e.InternalServerError):
        CALLS[kind](face(fail, retry=None, **settings), **given)
    assert len(seen) == sends


def test_a_header_of_a_call_shows_in_no_error(face: Callable[..., Face], kind: str) -> None:
    def echo(request: httpx.Request) -> httpx.Response:
        return httpx.Response(400, json={"errors": [{"message": f"bad header {request.headers['x-key']}"}]})

    with pytest.raises(e.BadRequestError) as caught:
        CALLS[kind](face(echo), extra_headers={"x-key": "per-call-secret"})
    assert "per-call-secret" not in f"{caught.value} {caught.value.body} {caught.value.response}"


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "timeout": ({"timeout": "long"}, "timeout must be seconds"),
    "a part of a timeout": ({"timeout": (5, -1)}, "timeout read must be more than 0"),
    "timeout twice": ({"timeout": 1, "request_timeout": 2}, "timeout was passed twice"),
    "total": ({"total_timeout": 0}, "total_timeout must be more than 0"),
    "retries": ({"max_retries": -1}, "max_retries must be a whole number"),
    "busy": ({"on_busy": "never"}, "on_busy 'never' is not one of"),
    "headers": ({"extra_headers": {"x": "a\n"}}, "header x"),
    "body": ({"extra_body": [1]}, "extra_body must be"),
    "gateway": ({"gateway": {"id": "g", "ttl": 1}}, "gateway has no option 'ttl'"),
    "unknown": ({"extra_heders": {}}, "did you mean 'extra_headers'"),
}


@every_row(("given", "text"), MALFORMED.values())
def test_a_malformed_setting_of_a_call_is_reported(
    account: dict[str, Any], kind: str, given: dict[str, Any], text: str
) -> None:
    client = Client(**account)
    calls = {"chat": client.chat, "stream": client.stream_chat, "embed": client.embed}
    args = {"chat": (CHAT, HI), "stream": (CHAT, HI), "embed": (CHAT, ["a"]), "rerank": (CHAT, "q", ["a"])}[kind]
    with pytest.raises(e.ConfigurationError, match=text):
        calls.get(kind, client.rerank)(*args, **given)


def test_added_fields_are_in_each_request_of_a_batch_and_in_no_poll() -> None:
    added = Overrides(body={"x": 1})
    submission = Request("run/m", {"requests": [{"text": ["a"]}, {"text": ["b"]}]}, "m", "queue")
    assert added.apply(submission).body == {"requests": [{"text": ["a"], "x": 1}, {"text": ["b"], "x": 1}]}
    poll = Request("run/m", {"request_id": "1"}, "m", "queue")
    assert added.apply(poll).body == {"request_id": "1"}


def test_settings_of_a_call_are_added_to_those_of_its_client() -> None:
    own = Overrides({"a": "1", "b": "1"}, {"x": 1, "y": 1}, 5, GatewayOptions("own"))
    assert Overrides({"b": "2"}, {"y": 2}).over(own) == Overrides(
        {"a": "1", "b": "2"}, {"x": 1, "y": 2}, 5, GatewayOptions("own")
    )
    assert Overrides(timeout=7).over(None) == Overrides(timeout=7)
