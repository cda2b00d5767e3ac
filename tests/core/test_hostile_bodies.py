"""Hostile bodies: parsed in linear time, or rejected with a typed error; a 5xx stays retryable."""

from __future__ import annotations

import gzip
import json
import random
import time
from typing import Any

import httpx
import hypothesis
import pytest
from hypothesis import strategies as st
from tests.support import every_row

from workers_ai import RetryPolicy
from workers_ai import errors as e
from workers_ai._wire.json_parsing import parse_answer, parse_growing, parse_json
from workers_ai._wire.json_writing import plain_json
from workers_ai.errors import BadRequestError

HI = [{"role": "user", "content": "hi"}]
SIZE = 100_000
LONGEST_S = 2.0
LONGEST_MESSAGE = 3_000


def said(message: str) -> bytes:
    return json.dumps({"success": False, "errors": [{"message": message}]}).encode()


BODIES = {
    "brackets of tags": b"<" * SIZE,
    "titles that never end": b"<title>" * (SIZE // 7),
    "a page without tags": b" " * SIZE + b"x",
    "spaces in a message": said(" " * SIZE + "x"),
    "brackets in a message": said("(" * SIZE),
    "prefixes in a message": said("AiError: " * (SIZE // 9)),
    "digits in a message": said("input length " + "1" * SIZE),
    "JSON in a message": said('{"a":' * 15_000),
    "nesting": b"[" * SIZE,
    "nesting that Python reads": b"[" * 400 + b"]" * 400,
    "a long message": said("a" * SIZE),
    "a long code": b'{"errors":[{"code":' + b"9" * 3_000 + b',"message":"x"}]}',
    "a huge code": b'{"errors":[{"code":' + b"9" * 5_000 + b',"message":"x"}]}',
    "a huge code as text": json.dumps({"errors": [{"code": "9" * 5_000, "message": "x"}]}).encode(),
    "facts of other types": json.dumps({"errors": [{"code": [], "message": {"a": 1}, "httpCode": {}}]}).encode(),
    "numbers that JSON has not": b'{"errors":[{"code":NaN,"message":Infinity,"httpCode":1e999}]}',
}


@every_row("body", BODIES.values())
def test_hostile_bodies_are_read_in_linear_time_and_a_5xx_stays_retryable(body: bytes, face: Any) -> None:
    for status, call in ((200, "chat"), (200, "stream"), (400, "chat"), (503, "stream")):
        one = face(lambda request, status=status: httpx.Response(status, content=body), max_retries=0)
        began = time.process_time()
        with pytest.raises(e.WorkersAIError) as caught:
            getattr(one, call)("@cf/a", HI)
        assert time.process_time() - began < LONGEST_S
        assert len(str(caught.value)) < LONGEST_MESSAGE
        if status == 503:
            assert isinstance(caught.value, e.InternalServerError)
            assert caught.value.is_retryable


CHARSETS = ["hex", "zlib", "base64", "rot13", "idna", "undefined", "utf-7", "no-such", "utf-16", ""]


UNREADABLE = {
    200: e.APIResponseValidationError,
    400: e.BadRequestError,
    401: e.AuthenticationError,
    429: e.RateLimitError,
    503: e.InternalServerError,
}


@every_row(("status", "cls"), UNREADABLE.items())
@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_an_error_response_whose_body_cannot_be_read_has_the_class_of_its_status(
    coding: str, status: int, cls: type[e.WorkersAIError], face: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers_ai._transports.bodies.MAX_BODY_BYTES", 1_000)
    body = gzip.compress(b" " * 10_000)
    sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        stream = httpx.ByteStream(body)  # decoded by the client, not by the test
        return httpx.Response(status, headers={"content-encoding": coding}, stream=stream)

    one = face(answer, max_retries=1, retry=RetryPolicy(max_retries=1, base_s=0.001))
    with pytest.raises(cls) as caught:
        one.chat("@cf/a", HI)
    assert caught.value.is_retryable is (status in (429, 503))
    assert len(sent) == (2 if status in (429, 503) else 1)


@every_row("charset", CHARSETS)
def test_a_page_in_any_charset_is_a_typed_error(charset: str, face: Any) -> None:
    headers = {"content-type": f"text/html; charset={charset}"}
    page = b"<html><title>Bad gateway</title>\xff\xfe"
    with pytest.raises(e.InternalServerError) as caught:
        face(lambda request: httpx.Response(502, headers=headers, content=page), max_retries=0).chat("@cf/a", HI)
    assert caught.value.is_retryable


def test_an_error_in_utf_16_is_read(face: Any) -> None:
    body = json.dumps({"errors": [{"code": 3040, "message": "busy"}]}).encode("utf-16")
    with pytest.raises(e.CapacityError, match="busy"):
        face(lambda request: httpx.Response(429, content=body), max_retries=0).chat("@cf/a", HI)


ONE = {"name": "Ann", "tags": ["{", "[1]"], "at": {"n": 1}}
AROUND = {
    "words and a fence": "Sure! Here it is:\n```json\nJSON\n```\nLet me know.",
    "a fence and words": "```json\nJSON\n```\nDone.",
    "words after it": "JSON\n\nHope it helps [1].",
    "words before it": "As {you} asked, see [1] and [a]: JSON",
    "a thought": '<think>Is it {"name": 1}?</think>\nHere: JSON',
    "another thought": "[THINK]no {[/THINK]JSON",
    "twice": "JSON or, again, JSON",
}


@every_row("around", AROUND.values())
def test_a_value_is_found_in_surrounding_text(around: str) -> None:
    assert parse_answer(around.replace("JSON", json.dumps(ONE))) == ONE


@hypothesis.given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ).filter(lambda value: isinstance(value, dict)),
    st.integers(1, 10**6),
    st.sampled_from(["", "Here: ", "```json\n", "<think>x</think>"]),
)
def test_a_truncated_value_is_never_an_answer(value: Any, cut: int, before: str) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert parse_answer(before + text) == value
    with pytest.raises(ValueError, match=r"\S"):
        parse_answer(before + text[: cut % len(text)])


@pytest.mark.parametrize(
    "text", ["{" * SIZE, '{"a' * SIZE, '{"a":{},' * SIZE, "[" * SIZE, "```" * SIZE, '{"a":[]}' * 9_000]
)
def test_a_hostile_answer_is_parsed_in_linear_time(text: str) -> None:
    began = time.process_time()
    for parse in (parse_answer, parse_growing):
        try:
            parse(text)
        except ValueError:
            continue
    assert time.process_time() - began < LONGEST_S


@pytest.mark.parametrize("text", ['{"x": NaN}', '{"x": -Infinity}', '{"x": 1e999}', "[" * 300 + "]" * 300, "9" * 5_000])
def test_values_that_are_not_strict_json_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|large|limit|nested"):
        parse_json(text)


def test_any_value_is_written_as_strict_json() -> None:
    import datetime as dt

    value = {"at": dt.date(2026, 11, 30), "raw": b"\xff", "x": float("nan"), "y": [float("inf")], "z": {random}}
    assert parse_json(plain_json(value), strict=True)["at"] == "2026-11-30"
    circle: dict[str, Any] = {}
    circle["circle"] = circle
    with pytest.raises(BadRequestError, match="contains itself"):
        plain_json(circle)
