"""Replies have a maximum decoded size in every content coding; bodies that cannot be sent raise a typed error."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.conftest import Face
from tests.support import every_row

from workers_ai import Client
from workers_ai import errors as e
from workers_ai._transports import bodies

CHAT = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
HI = [{"role": "user", "content": "hi"}]
WHOLE = json.dumps({"choices": [{"message": {"content": "ok" * 500}, "finish_reason": "stop"}]}).encode()
EVENTS = b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The pieces of a body, as read from a socket, with a count."""

    def __init__(self, data: bytes, size: int = 7) -> None:
        self._pieces = [data[at : at + size] for at in range(0, len(data), size)]
        self.read = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.read += len(piece)
            yield piece

    async def __aiter__(self) -> Any:
        for piece in self:
            yield piece


def raw_deflate(data: bytes) -> bytes:
    made = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return made.compress(data) + made.flush()


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "identity": bytes,
    "": bytes,
}


def answering(body: bytes, coding: str, media: str, status: int = 200, size: int = 7) -> Any:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "gzip, deflate"
        headers = {"content-type": media} | ({"content-encoding": coding} if coding else {})
        return httpx.Response(status, headers=headers, stream=Pieces(body, size))

    return answer


@every_row("coding", CODINGS)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_every_requested_content_coding_is_decoded(face: Callable[..., Face], coding: str, size: int) -> None:
    encoded = CODINGS[coding]
    assert face(answering(encoded(WHOLE), coding, "application/json", size=size)).chat(CHAT, HI).text == "ok" * 500
    pieces = face(answering(encoded(EVENTS), coding, "text/event-stream", size=size)).stream(CHAT, HI)
    assert "".join(piece.text for piece in pieces) == "ok"


@pytest.mark.parametrize(("media", "status"), [("application/json", 500), ("text/event-stream", 200)])
def test_a_body_that_grows_beyond_the_bound_is_a_typed_error(
    face: Callable[..., Face], media: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 3_000_000)
    bomb = gzip.compress(b": " + b" " * 10_000_000)
    sent: list[None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(None)
        return answering(bomb, "gzip", media, status)(request)

    for call in (face(answer).chat, face(answer).stream):
        sent.clear()
        error = e.APIResponseValidationError if status < 400 else e.InternalServerError
        with pytest.raises(error, match="a body of more than 3,000,000 bytes"):
            call(CHAT, HI)
        assert len(sent) == (1 if status < 400 else 3)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "\x7f"])
def test_a_content_coding_that_was_not_requested_raises(face: Callable[..., Face], coding: str) -> None:
    one = face(answering(gzip.compress(gzip.compress(WHOLE)), coding, "application/json"))
    with pytest.raises(e.APIResponseValidationError, match="was not requested"):
        one.chat(CHAT, HI)


def test_bytes_that_do_not_fit_their_coding_are_a_typed_error(face: Callable[..., Face]) -> None:
    with pytest.raises(e.APIConnectionError):
        face(answering(b"not gzip at all", "gzip", "application/json")).chat(CHAT, HI)


@every_row("charset", ["idna", "base64", "undefined", "rot13", "unicode_escape", "\x7f", "utf-7"])
def test_any_charset_of_an_error_page_is_a_typed_error(face: Callable[..., Face], charset: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"content-type": f"text/html; charset={charset}"}
        return httpx.Response(503, headers=headers, stream=Pieces(b"<title>away \xff\\x</title>" * 3))

    with pytest.raises(e.InternalServerError):
        face(answer).chat(CHAT, HI)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def circle() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    schema["properties"]["again"] = schema
    return schema


ODD: dict[str, Callable[[Client], Any]] = {
    "a deep schema": lambda c: c.chat(
        CHAT, HI, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": nested(50_000)}}
    ),
    "a deep tool": lambda c: c.chat(
        CHAT, HI, tools=[{"type": "function", "function": {"name": "f", "parameters": nested(50_000)}}]
    ),
    "a tool that holds itself": lambda c: c.chat(
        CHAT, HI, tools=[{"type": "function", "function": {"name": "f", "parameters": circle()}}]
    ),
    "a deep message": lambda c: c.chat(CHAT, [{"role": "user", "content": [nested(50_000)]}]),
    "a deep body": lambda c: c.chat(CHAT, HI, extra_body={"a": nested(50_000)}),
    "a long model": lambda c: c.chat("@cf/" + "a" * 100_000, HI),
    "a long search": lambda c: c.models(search="a" * 100_000),
    "a header of the connection": lambda c: c.chat(CHAT, HI, extra_headers={"Content-Length": "3"}),
    "a header that is not text": lambda c: c.chat(CHAT, HI, extra_headers={"x": "ø"}),
}


@every_row("call", ODD.values())
def test_an_input_that_cannot_be_serialized_raises(account: dict[str, Any], call: Callable[[Client], Any]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        pytest.fail("sent")

    client = Client(**account, http_client=httpx.Client(transport=httpx.MockTransport(answer)))
    with pytest.raises((e.BadRequestError, e.ConfigurationError)):
        call(client)
