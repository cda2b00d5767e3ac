"""Recorded replies of the service with one field of another type: the correct answer or a typed error."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers_ai import Client, errors
from workers_ai.batch import BatchJob
from workers_ai.types import BatchItem, BatchStatus

LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
KIMI = "@cf/moonshotai/kimi-k2.6"
BGE = "@cf/baai/bge-m3"
UUID = "5f0c3a52-6d5b-4b0e-9f50-1f2f3f4f5f6f"
USAGE = {"prompt_tokens": 48, "completion_tokens": 13, "total_tokens": 61, "neurons": 3.94,
         "prompt_tokens_details": {"cached_tokens": 0}}  # fmt: skip
MESSAGE = {"role": "assistant", "content": '{"animal": "cat"}', "refusal": None, "annotations": None, "audio": None,
           "function_call": None, "reasoning": None, "tool_calls": None}  # fmt: skip
HYBRID = {"id": f"chatcmpl-{UUID}", "object": "chat.completion", "created": 1790000000, "model": f"{LLAMA}-sd",
          "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "stop_reason": None, "message": MESSAGE}],
          "response": {"animal": "cat"}, "tool_calls": [], "usage": USAGE, "service_tier": None}  # fmt: skip
CALL = {"response": None, "tool_calls": [{"name": "get", "arguments": {"n": "7"}}], "usage": USAGE}
ITEM = {"index": 0, "result": {**HYBRID, "metadata": {"weight_version": "default"}}, "success": True}
ERROR = {"message": f"AiError: AiError: Request not found in queue ({UUID})", "code": 5504}
RESPONSES = {"id": "resp_1", "object": "response", "status": "completed", "model": "@cf/openai/gpt-oss-120b",
             "output": [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}], "summary": []},
                        {"type": "message", "content": [{"type": "output_text", "text": "ok"}]},
                        {"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"}],
             "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, "error": None}  # fmt: skip


def whole(result: Any) -> dict[str, Any]:
    """Return the envelope of the service."""
    return {"result": result, "success": True, "errors": [], "messages": []}


HI = [{"role": "user", "content": "hi"}]
CAPTURES: dict[str, tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = {
    # name: method, reply, arguments, keywords
    "hybrid": ("chat", whole(HYBRID), (LLAMA, HI), {"api": "run"}),
    "native call": ("chat", whole(CALL), (LLAMA, HI), {"api": "run"}),
    "chat completions": ("chat", HYBRID, (LLAMA, HI), {}),
    "responses": ("chat", RESPONSES, ("@cf/openai/gpt-oss-120b", HI), {"api": "responses"}),
    "vectors": ("embed", whole({"data": [[1.0, 2.0]], "shape": [1, 2], "pooling": "cls"}), (BGE, ["a"]), {}),
    "contexts": ("embed", whole({"response": [[1.0, 2.0]], "shape": [1, 2], "pooling": "cls"}), (BGE, ["a"]), {}),
    "list": ("embed", {"object": "list", "data": [{"index": 0, "embedding": [1.0]}], "usage": USAGE}, (BGE, ["a"]), {}),
    "scores": ("rerank", whole({"response": [{"id": 0, "score": 0.5}]}), (BGE, "q", ["a"]), {}),
    "newer batch": ("poll", whole({"results": [ITEM], "usage": USAGE}), (BatchJob(UUID, KIMI, 1),), {}),
    "older batch": (
        "poll",
        whole({"responses": [{"id": 0, "result": CALL, "success": True, "external_reference": None}], "usage": USAGE}),
        (BatchJob(UUID, LLAMA, 1),),
        {},
    ),
    "pending": ("poll", whole({"status": "queued", "request_id": UUID, "model": KIMI}), (BatchJob(UUID, KIMI, 1),), {}),
    "submission": (
        "submit", whole({"status": "queued", "request_id": UUID, "model": KIMI}), (KIMI, [{"messages": HI}]), {},
    ),
    "refusal": ("poll", {"errors": [ERROR], "success": False, "result": {}}, (BatchJob(UUID, KIMI, 1),), {}),
}  # fmt: skip


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every path in a JSON value."""
    if at:
        yield at
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(item, (*at, key))


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """Return a copy of a value with another value at ``path``."""
    out = copy.deepcopy(value)
    inner = out
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = by
    return out


ODD = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        7,
        1.5,
        1e400,
        10**400,
        "",
        "0",
        "x",
        "\ud800",
        [],
        [None],
        ["x"],
        [[]],
        {},
        {"x": 1},
        [{}],
    ]
)


def client_of(reply: httpx.Response) -> Client:
    """Return a client whose service answers with one reply."""
    http = httpx.Client(transport=httpx.MockTransport(lambda _: reply))
    return Client(account_id="0" * 32, api_token="token", http_client=http, max_retries=0)


def call(name: str, body: Any) -> Any:
    """Send the call of the capture. The reply is ``body``."""
    method, _, args, keywords = CAPTURES[name]
    client = client_of(httpx.Response(200, content=json.dumps(body)))
    return getattr(client.batch if method in ("poll", "submit") else client, method)(*args, **keywords)


@pytest.mark.parametrize("name", [name for name in CAPTURES if name != "refusal"])
def test_a_captured_reply_is_read(name: str) -> None:
    assert call(name, CAPTURES[name][1])


@given(data=st.data())
def test_a_field_of_another_type_is_read_or_raises_a_typed_error(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(CAPTURES)))
    reply = CAPTURES[name][1]
    for _ in range(data.draw(st.integers(1, 2))):
        reply = replaced(reply, data.draw(st.sampled_from(list(paths(reply)))), data.draw(ODD))
    with contextlib.suppress(errors.WorkersAIError):
        got = call(name, reply)
        if isinstance(got, BatchStatus):
            assert all(isinstance(item, BatchItem) and item.success == (item.error is None) for item in got.items)


@given(data=st.data())
def test_a_frame_with_a_field_of_another_type_is_read_or_raises_a_typed_error(data: st.DataObject) -> None:
    choice = {"index": 0, "delta": {"content": "a", "reasoning": "b", "tool_calls": []}, "finish_reason": None}
    frames: list[Any] = [
        {"id": "1", "choices": [choice], "response": "a", "tool_calls": [], "p": "xyz"},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "get"}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}}]},
        {"choices": [], "usage": USAGE},
        {"response": "", "usage": USAGE},
    ]
    frames = replaced(frames, data.draw(st.sampled_from(list(paths(frames)))), data.draw(ODD))
    content = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
    reply = httpx.Response(200, headers={"content-type": "text/event-stream"}, text=content)
    with contextlib.suppress(errors.WorkersAIError):
        assert list(client_of(reply).stream_chat(LLAMA, HI))
