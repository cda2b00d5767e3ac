"""Mutated replies, created from the shapes of real ones: a service, a proxy or a broken connection may send them.

One random source decides everything, so that hypothesis can shrink a failure and a seed can repeat it.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any, Final, NamedTuple

__all__ = ["MODELS", "Reply", "mutated_reply"]

MODELS: Final = ("@cf/meta/llama-3.3-70b-instruct-fp8-fast", "@cf/zai-org/glm-5.2", "@cf/unknown/model")

CALL: Final = {
    "index": 0,
    "id": "chatcmpl-tool-1",
    "type": "function",
    "function": {"name": "clock", "arguments": '{"city": "Oslo", "hours": [1, 2.5]}'},
}
USAGE: Final = {
    "prompt_tokens": 48,
    "completion_tokens": 13,
    "total_tokens": 61,
    "prompt_tokens_details": {"cached_tokens": 0},
    "neurons": 3.94,
}
MESSAGE: Final = {"role": "assistant", "content": '{"city": "Oslo"}', "refusal": None, "reasoning": "hm"}


def _chunk(finish: Any = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return {"id": "chatcmpl-1", "model": "m", "choices": [choice], "p": "abc"}


WHOLE: Final[list[Any]] = [
    {"result": {"response": "Hello", "tool_calls": [], "usage": USAGE}, "success": True, "errors": [], "messages": []},
    {"result": {"response": None, "tool_calls": [{"name": "clock", "arguments": {"city": "Oslo"}}], "usage": USAGE}},
    {
        "result": {
            "id": "chatcmpl-1",
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": MESSAGE}],
            "response": {"city": "Oslo"},
            "tool_calls": [],
            "usage": USAGE,
        },
        "success": True,
    },
    {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"content": None, "tool_calls": [CALL]}}]},
    {"choices": [{"finish_reason": "length", "message": {"content": [{"type": "text", "text": "a"}]}}], "usage": USAGE},
    {
        "object": "response",
        "status": "completed",
        "output": [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]},
            {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    },
    {"result": None, "success": False, "errors": [{"code": 3040, "message": "AiError: busy (0a-b)"}], "messages": []},
    {"error": {"code": "invalid_prompt", "message": "AiError: AiError: Capacity temporarily exceeded"}},
    {"result": {"shape": [2, 2], "data": [[0.5, 0.25], [0.25, 0.5]], "pooling": "mean", "usage": USAGE}},
    {"data": [{"index": 1, "embedding": [0.5, 0.25]}, {"index": 0, "embedding": [0.25, 0.5]}], "usage": USAGE},
    {"data": [{"index": 0, "embedding": "AAAAPwAAgD4="}, {"index": 1, "embedding": "AACAPgAAAD8="}]},
    {"result": {"response": [{"id": 1, "score": 0.75}, {"id": 0, "score": 0.25}], "usage": USAGE}, "success": True},
    {"name": "AiError", "internalCode": 4006, "httpCode": 429, "message": "daily free allocation", "description": ""},
]
STREAMS: Final[list[list[Any]]] = [
    [{"response": "Hel", "p": "ab"}, {"response": "lo"}, {"response": "", "usage": USAGE}],
    [_chunk(role="assistant", content=""), _chunk(content="Hel"), _chunk(reasoning="hm"), _chunk("stop")],
    [
        _chunk(tool_calls=[{**CALL, "function": {"name": "clock", "arguments": ""}}]),
        _chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"city": '}}]),
        _chunk(tool_calls=[{"index": 0, "function": {"arguments": '"Oslo"}'}}]),
        {**_chunk("tool_calls"), "usage": USAGE},
    ],
    [{**_chunk(content="Hi"), "response": "Hi", "tool_calls": []}, {"choices": [], "usage": USAGE}, _chunk("stop")],
    [
        _chunk(tool_calls=[{"index": [0], "function": {"name": "clo", "arguments": ""}}]),
        _chunk(tool_calls=[{"index": [0], "function": {"name": "ck"}}, {"index": True, "function": {"name": "clock"}}]),
        _chunk("tool_calls", tool_calls=[{"index": [0], "function": {"arguments": "{}"}}]),
    ],
    [
        _chunk(content=[{"type": "text", "text": "a"}, {"type": "tool_use", "name": "clock", "input": {}}]),
        _chunk("stop"),
    ],
    [_chunk(content="a"), {"errors": [{"code": 3043, "message": "Internal server error"}]}],
]


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if depth % 2 else {"a": value}
    return value


ODD: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 7.5, 1e308, 10**400, "", "x", "null", "{}", "[]", "7", "0", "[DONE]", "\ud83d", "\x00",
    '{"a": NaN}', '{"a": 1e999}', '{"a":', "3040: busy", "<html>", " " * 50, [], {}, [[]], [None], [{}], {"": None},
    [{"type": "text"}], [{"type": "thinking", "thinking": [{"text": 1}]}], [{"type": []}], {"type": "text", "text": {}},
    [{"type": "tool_use", "id": "t", "name": "clock", "input": {}}], [{"toolUse": []}, {"functionCall": {"name": 1}}],
    [{"type": "function_call", "function_call": None}, {"text": "a", "thought": True}, {}], "clo", "ck",
    {"name": "clock"}, {"function": None}, {"function": {"name": [], "arguments": 5}}, CALL, [CALL, CALL], USAGE,
    "length", "content_filter", "error", "other", _deep(30), _deep(150), "(" * 50, "AiError: " * 20,
)  # fmt: skip
RAW: Final[tuple[bytes, ...]] = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 300 + b"]" * 300, b"[" * 3000, b"\\ud83d", b"\xff",
    b'"', b"{", b"}", b",", b"\n\n", b"\r", b"data: ", b"[DONE]", b"event: error\n", b"\x00", b"\xef\xbb\xbf",
)  # fmt: skip
STATUSES: Final = (200, 200, 200, 200, 202, 400, 401, 404, 408, 413, 422, 429, 500, 503, 522)
TYPES: Final = (
    "application/json", "text/event-stream", "text/event-stream", "text/html; charset=utf-16", "text/plain",
    "application/json; charset=hex", "text/html; charset=undefined", "", "application/json; charset=latin-1",
)  # fmt: skip


class Reply(NamedTuple):
    """One reply of the service."""

    status: int
    headers: dict[str, str]
    body: bytes


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(one for key, item in items if len(path) < 12 for one in _paths(item, (*path, key)))]


def _mutated(value: Any, rng: random.Random) -> Any:
    """Replace, remove, repeat or wrap one node of the value, and return the value."""
    path = rng.choice(_paths(value))
    if not path:
        return rng.choice([value, [value], {"result": value}, rng.choice(ODD)])
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    key = path[-1]
    kind = rng.randrange(5)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(0, copy.deepcopy(parent[key]))
    elif kind == 2:
        parent[key] = [parent[key]]
    elif kind == 3 and isinstance(parent, dict):
        parent[rng.choice(["error", "errors", "tool_calls", "response", "usage", "refusal", "content", "id"])] = (
            copy.deepcopy(rng.choice(ODD))
        )
    else:
        parent[key] = copy.deepcopy(rng.choice(ODD))
    return value


def _dumped(value: Any, rng: random.Random) -> bytes:
    for _ in range(rng.randrange(4)):
        value = _mutated(value, rng)
    text = json.dumps(value, ensure_ascii=rng.randrange(2) == 0)
    return text.encode(errors="surrogatepass")


def _damaged(body: bytes, rng: random.Random) -> bytes:
    """Return the bytes truncated, with bytes removed or inserted, or in another encoding."""
    at = rng.randrange(len(body) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        return body[:at]
    if kind == 1:
        return body[:at] + body[at + rng.randrange(1, 9) :]
    if kind == 2:
        return body.decode(errors="replace").encode("utf-16")
    return body[:at] + rng.choice(RAW) + body[at:]


def mutated_reply(rng: random.Random) -> Reply:
    """Return one reply, often a broken one."""
    if rng.randrange(2):
        body = _dumped(copy.deepcopy(rng.choice(WHOLE)), rng)
        kind = rng.choice(TYPES) if rng.randrange(3) == 0 else "application/json"
    else:
        events = [_dumped(event, rng) for event in copy.deepcopy(rng.choice(STREAMS))]
        if rng.randrange(4) == 0:
            rng.shuffle(events)
        events += [b"[DONE]"] if rng.randrange(5) else []
        body = b"".join(b"data: " + event + b"\n\n" for event in events)
        kind = rng.choice(TYPES) if rng.randrange(6) == 0 else "text/event-stream"
    if rng.randrange(3) == 0:
        body = _damaged(body, rng)
    return Reply(rng.choice(STATUSES), {"content-type": kind, "cf-ai-neurons": rng.choice(["1.5", "nan", "x"])}, body)
