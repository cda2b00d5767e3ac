"""Every reply of the table, on both routes, sync and async, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from axes import MODES, ROUTES, spread
from odd_streams import ODD_STREAMS
from readers import disagreements, of_deltas, of_error, of_reply
from shapes import HI, Shape, Want, sse
from streamed_replies import STREAMS
from whole_replies import WHOLE

from workers_ai import Client
from workers_ai.errors import APIResponseValidationError, CapacityError, WorkersAIError


class Script(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body in pieces."""

    def __init__(self, body: bytes, size: int | None) -> None:
        size = size or max(len(body), 1)
        self.pieces = [body[i : i + size] for i in range(0, len(body), size)]

    def __iter__(self) -> Any:
        return iter(self.pieces)

    async def __aiter__(self) -> Any:
        for piece in self.pieces:
            yield piece


class Answering:
    """Answer every request with the shape, and count requests."""

    def __init__(self, shape: Shape, route: str, size: int | None = None) -> None:
        self.shape, self.route, self.size, self.requests = shape, route, size, 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.shape.streamed:
            headers = {"content-type": "text/event-stream; charset=utf-8", **self.shape.headers}
            return httpx.Response(200, headers=headers, stream=Script(self.shape.stream_bytes(), self.size))
        headers = {"content-type": "application/json", **self.shape.headers}
        return httpx.Response(200, headers=headers, content=self.shape.whole_body(self.route))


def names(shapes: list[Shape]) -> list[str]:
    return [shape.name for shape in shapes]


def ask(face: Any, shape: Shape, route: str, *, stream: bool, size: int | None = None) -> tuple[Want, int]:
    """Return the value that the core client reads from the shape, and the number of requests."""
    answering = Answering(shape, route, size)
    one = face(answering)
    options = {"api": route, **shape.params}
    try:
        if stream:
            got = of_deltas(one.stream(shape.model, HI, **options))
        else:
            got = of_reply(one.chat(shape.model, HI, **options))
    except WorkersAIError as exc:
        got = of_error(exc)
    return got, answering.requests


def test_names_are_unique() -> None:
    for shapes in (WHOLE, STREAMS + ODD_STREAMS):
        assert len(set(names(shapes))) == len(shapes)


@pytest.mark.parametrize(
    ("shape", "face", "route", "stream"), spread(WHOLE, MODES, ROUTES, (False, True)), indirect=["face"]
)
def test_whole_replies(shape: Shape, face: Any, route: str, stream: bool) -> None:
    got, requests = ask(face, shape, route, stream=stream)
    assert disagreements(shape.want, got) == []
    assert requests == 1


@pytest.mark.parametrize(
    ("shape", "face", "route", "size"), spread(STREAMS + ODD_STREAMS, MODES, ROUTES, (None, 1)), indirect=["face"]
)
def test_streamed_replies(shape: Shape, face: Any, route: str, size: int | None) -> None:
    got, requests = ask(face, shape, route, stream=True, size=size)
    assert disagreements(shape.want, got) == []
    assert requests == shape.requests


@pytest.mark.parametrize("route", ROUTES)
def test_the_last_piece_has_the_ids_of_completion_and_model(route: str, face: Any) -> None:
    """The ids come from the first event that contains them, together with the headers of the reply."""
    events = [
        {"id": "chatcmpl-1", "model": "first", "choices": [{"index": 0, "delta": {"content": "a"}}]},
        {"id": "chatcmpl-2", "model": "second", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    headers = {"content-type": "text/event-stream", "cf-ray": "8a1-AMS", "server": "cloudflare"}
    pieces = face(lambda request: httpx.Response(200, headers=headers, content=sse(events))).stream(
        "@cf/a", HI, api=route
    )
    last = pieces[-1]
    assert (last.id, last.model, last.headers.get("cf-ray")) == ("chatcmpl-1", "first", "8a1-AMS")
    assert "server" not in last.headers
    assert [(piece.id, piece.model, dict(piece.headers)) for piece in pieces[:-1]] == [(None, None, {})]


NO_ANSWERS = {
    "queued": ({"status": "queued", "request_id": "r-1"}, "queued as r-1.*collect it with Client.batch"),
    "a list": ({"object": "list", "data": []}, "a list instead of an answer"),
    "nothing": ({}, "has no answer"),
}


@pytest.mark.parametrize(("result", "says"), NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_an_invalid_answer_raises_with_its_content(result: Any, says: str, face: Any) -> None:
    one = face(lambda request: httpx.Response(200, json={"result": result, "success": True}))
    with pytest.raises(APIResponseValidationError, match=says) as caught:
        one.chat("@cf/a", HI)
    assert (caught.value.status_code, caught.value.model) == (200, "@cf/a")


@pytest.mark.parametrize("size", [10, 1980, 9000])
def test_an_invalid_body_is_shortened_in_the_error(size: int, face: Any) -> None:
    body = {"result": {"other": "x" * size}}
    text = json.dumps(body)
    with pytest.raises(APIResponseValidationError) as caught:
        face(lambda request: httpx.Response(200, json=body)).chat("@cf/a", HI)
    wanted = text if len(text) <= 2000 else f"{text[:2000]}... ({len(text)} characters)"
    assert caught.value.body == wanted


@pytest.mark.parametrize("size", [None, 1], ids=["at once", "by bytes"])
def test_deltas_before_an_error_are_yielded_first(size: int | None) -> None:
    """The result does not depend on how the network splits the bytes."""
    body = sse([{"response": "a"}, {"response": "b"}, {"errors": [{"code": 3040, "message": "busy"}]}])
    headers = {"content-type": "text/event-stream"}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, headers=headers, stream=Script(body, size)))
    pieces = Client(account_id="a", api_token="t", http_client=httpx.Client(transport=transport)).stream_chat(
        "@cf/a", HI
    )
    assert [next(pieces).text, next(pieces).text] == ["a", "b"]
    with pytest.raises(CapacityError) as caught:
        next(pieces)
    assert caught.value.partial == "ab"


def test_a_stream_closed_before_its_first_event_releases_its_slot() -> None:
    class Stopping(httpx.SyncByteStream):
        def __iter__(self) -> Any:
            raise KeyboardInterrupt

    replies = iter([httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Stopping()),
                    httpx.Response(200, json={"response": "a"})])  # fmt: skip
    own = httpx.Client(transport=httpx.MockTransport(lambda request: next(replies)))
    client = Client(account_id="a", api_token="t", max_concurrency=1, http_client=own)
    with pytest.raises(KeyboardInterrupt):
        next(client.stream_chat("@cf/a", HI))
    assert client.chat("@cf/a", HI).text == "a"
