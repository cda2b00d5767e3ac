"""Every error response of the table: class, message, and number of requests."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from axes import MODES, spread
from refusals import REFUSED
from shapes import NATIVE, Refused

from workers_ai import errors

HI = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("row", "face", "call"), spread(REFUSED, MODES, ("chat", "stream", "embed", "rerank")), indirect=["face"]
)
def test_refusals(row: Refused, face: Any, call: str) -> None:
    sent: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        content = row.body if isinstance(row.body, str) else json.dumps(row.body)
        return httpx.Response(row.status, headers={"cf-ray": "8a1-AMS", **row.headers}, content=content)

    one = face(refuse)
    arguments = {"chat": (NATIVE, HI), "stream": (NATIVE, HI), "embed": (NATIVE, ["a"]), "rerank": (NATIVE, "q", ["a"])}
    with pytest.raises(getattr(errors, row.error)) as caught:
        getattr(one, call)(*arguments[call])
    error = caught.value
    assert type(error).__name__ == row.error
    assert (len(sent), error.attempts, error.model) == (row.requests, row.requests, NATIVE)
    text = str(error)
    assert row.says in text
    assert "\n" not in text
    assert "token-of-the-tests" not in text + repr(error.__dict__)
