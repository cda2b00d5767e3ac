"""Streams of every shape: the sum of the chunks, and the end."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.output_parsers import StrOutputParser
from tests.support import every_row

import langchain_workers_ai as ours
from langchain_workers_ai import ChatWorkersAI
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from workers_ai_emulator import Emulator

ACCOUNT = "0123456789abcdef0123456789abcdef"
MODEL = "@cf/zai-org/glm-5.2"
USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}


def piece(content: Any = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    delta = {**({} if content is None else {"content": content}), **fields}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def part(name: Any, arguments: Any, index: int = 0, call_id: Any = None) -> dict[str, Any]:
    call = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return piece(tool_calls=[call])


def sse(*events: Any, done: bool = True) -> bytes:
    lines = b"".join(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n" for event in events)
    return lines + (b"data: [DONE]\n\n" if done else b"")


END = piece(finish="stop")
CLOCK = [("clock", {"city": "Oslo"})]
TEXTS: dict[str, tuple[bytes, str]] = {
    "native, a number": (sse({"response": "Year "}, {"response": 2026}), "Year 2026"),
    "native, zero": (sse({"response": 0}, {"response": ".5"}), "0.5"),
    "a number": (sse(piece("Year "), piece(2026), piece(finish="stop")), "Year 2026"),
    "native, fields missing or null": (
        sse({"response": "a"}, {"tool_calls": []}, {"response": None, "usage": USAGE}),
        "a",
    ),
    "null at the end": (sse(piece("a"), {"choices": [{"delta": {"content": None}, "finish_reason": "stop"}]}), "a"),
    "no end mark after a finish reason": (sse(piece("a"), piece(finish="stop"), done=False), "a"),
    "end mark twice": (sse(piece("a"), piece(finish="stop")) + b"data: [DONE]\n\n", "a"),
    "usage null": (sse({**piece("a"), "usage": None}, piece(finish="stop")), "a"),
    "choices empty": (sse({"choices": []}, piece("a"), piece(finish="stop")), "a"),
    "no space, pings, two data lines, CRLF": (
        b': ping\r\ndata:{"response":"a"}\r\n\r\nevent: message\ndata: {"response":\ndata: "b"}\n\ndata:[DONE]\n\n',
        "ab",
    ),
    "letters of several bytes": (sse({"response": "你好 "}, {"response": "🌍 Tromsø"}), "你好 🌍 Tromsø"),
    "other choices": (sse(piece("a"), {"choices": [{"index": 1, "delta": {"content": "b"}}]}, END), "a"),
    "a comment that is not JSON": (b"data: hello\n\n" + sse(piece("a"), piece(finish="stop")), "a"),
    "nothing": (b"data: [DONE]\n\n", ""),
}  # fmt: skip


@pytest.fixture
def streaming(emulator: Emulator, chat: Callable[..., ChatWorkersAI]) -> Callable[..., ChatWorkersAI]:
    """Return a model that answers with these bytes, in pieces of ``size``."""

    def make(body: bytes, size: int = 0, **settings: Any) -> ChatWorkersAI:
        cuts = [body[i : i + size] for i in range(0, len(body), size)] if size else [body]
        emulator.faults.add(Fault.sse(cuts, times=None))
        return chat(model=MODEL, **settings)

    return make


@pytest.mark.parametrize("shape", TEXTS)
@every_row("size", [0, 1])
def test_text(shape: str, size: int, streaming: Any, emulator: Emulator, call: Any) -> None:
    """The bytes arrive at once, and one by one."""
    emulator.reset()
    body, text = TEXTS[shape]
    chunks = call(streaming(body, size), "stream", "hi")
    assert "".join(chunk.text for chunk in chunks) == text
    assert all(isinstance(chunk.content, str) for chunk in chunks)
    assert [chunk.chunk_position for chunk in chunks].count("last") == 1
    assert chunks[-1].chunk_position == "last"
    total = call.collect(streaming(body, size), "hi")
    facts = [total.response_metadata[name] for name in ("finish_reason", "model_name", "model_provider")]
    assert facts == ["stop", MODEL, "workers-ai"]


CALLS: dict[str, tuple[bytes, list[tuple[str, Any]]]] = {
    "in pieces": (
        sse(
            piece(role="assistant", content=""),
            part("clock", "", call_id="c1"),
            part(None, '{"city":'),
            part(None, '"Oslo"}'),
            piece(finish="tool_calls"),
        ),
        CLOCK,
    ),
    "arguments before the name": (
        sse(part(None, '{"city":'), part("clock", '"Oslo"}', call_id="c1"), piece(finish="tool_calls")),
        CLOCK,
    ),
    "a closing piece full of nulls": (
        sse(part("clock", '{"city":"Oslo"}', call_id="c1"), part(None, None), piece(finish="tool_calls")),
        CLOCK,
    ),
    "finish reason stop": (sse(part("clock", '{"city":"Oslo"}', call_id="c1"), piece(finish="stop")), CLOCK),
    "arguments empty": (sse(part("now", "", call_id="c1"), piece(finish="tool_calls")), [("now", {})]),
    "arguments null": (sse(part("now", None, call_id="c1"), piece(finish="tool_calls")), [("now", {})]),
    "arguments an object": (sse(part("clock", {"city": "Oslo"}, call_id="c1"), piece(finish="tool_calls")), CLOCK),
    "no ids": (
        sse(part("a", "{}", 0), part("b", "{}", 1), piece(finish="tool_calls")),
        [("a", {}), ("b", {})],
    ),
    "two share an id": (
        sse(part("a", "{}", 0, "x1"), part("b", "{}", 1, "x1"), piece(finish="tool_calls")),
        [("a", {}), ("b", {})],
    ),
    "two in one piece": (
        sse(
            piece(tool_calls=[*part("a", "{}", 0, "1")["choices"][0]["delta"]["tool_calls"],
                              *part("b", "{}", 1, "2")["choices"][0]["delta"]["tool_calls"]]),
            piece(finish="tool_calls"),
        ),
        [("a", {}), ("b", {})],
    ),
    "native": (
        sse({"response": ""}, {"tool_calls": [{"name": "clock", "arguments": {"city": "Oslo"}}]}, {"usage": USAGE}),
        CLOCK,
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", CALLS)
def test_calls(shape: str, streaming: Any, call: Any) -> None:
    """langchain-cloudflare loses calls in streams of every form."""
    body, wanted = CALLS[shape]
    total = call.collect(streaming(body), "hi")
    assert [(one["name"], one["args"]) for one in total.tool_calls] == wanted
    ids = [one["id"] for one in total.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert total.invalid_tool_calls == []
    assert total.response_metadata["finish_reason"] == "tool_calls"
    assert total.text == ""


def test_tool_calls_are_yielded_as_they_arrive(streaming: Any, call: Any) -> None:
    """Each piece is yielded at once and in order (https://github.com/vercel/ai/issues/6861, cloudflare/ai#494)."""
    body = sse(
        piece("Let me see."),
        part("a", "{", 0, "1"),
        part(None, "}", 0),
        part("b", '{"x":1}', 1, "2"),
        piece(finish="tool_calls"),
    )
    chunks = call(streaming(body), "stream", "hi")
    seen = [(one["index"], one["name"], one["args"]) for chunk in chunks for one in chunk.tool_call_chunks]
    assert seen == [(0, "a", "{"), (0, None, "}"), (1, "b", '{"x":1}')]
    assert chunks[0].text == "Let me see."


def test_the_body_requests_a_stream_with_tools_too(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, call: Any
) -> None:
    tool = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
    call(chat(model=MODEL, api=route).bind_tools([tool]), "stream", "hi")
    body = emulator.log.last.json
    assert body["stream"] is True
    assert body.get("stream_options") == ({"include_usage": True} if route == "chat_completions" else None)


CUT: dict[str, tuple[bytes, str, str]] = {
    "no end": (sse(piece("The answer is"), done=False), "The answer is", "neither an end mark nor a finish reason"),
    "native, no end": (sse({"response": "The answer is"}, done=False), "The answer is", "neither an end mark"),
    "inside an event": (sse(piece("a"), done=False) + b'data: {"choices": [{"del', "a", "neither an end mark"),
    "nothing at all": (b"", "", "neither an end mark nor a finish reason"),
    "unknown error": (sse(piece("a"), {"error": {"message": "engine died"}}), "a", "engine died"),
}


@pytest.mark.parametrize("shape", CUT)
@pytest.mark.parametrize("method", ["stream", "invoke"])
def test_an_interrupted_stream_is_not_an_answer(shape: str, method: str, streaming: Any, call: Any) -> None:
    """https://github.com/cloudflare/ai/pull/393"""
    body, partial, says = CUT[shape]
    with pytest.raises(ours.StreamInterruptedError, match=says) as caught:
        call(streaming(body, **({"streaming": True} if method == "invoke" else {})), method, "hi")
    assert caught.value.partial == partial
    assert caught.value.is_retryable is (not partial)


CODES = [(3040, ours.CapacityError), (3036, ours.QuotaExhaustedError), (5021, ours.ContextWindowExceededError)]


@pytest.mark.parametrize(("code", "cls"), CODES)
def test_an_error_inside_a_stream_has_its_own_class(code: int, cls: type[Any], streaming: Any, call: Any) -> None:
    body = sse(piece("par"), {"errors": [{"code": code, "message": "no"}], "success": False})
    with pytest.raises(cls) as caught:
        call(streaming(body), "stream", "hi")
    assert (caught.value.partial, caught.value.code) == ("par", code)


def test_a_connection_that_breaks(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.cut(after_events=2, abrupt=True))
    with pytest.raises(ours.StreamInterruptedError, match="was interrupted"):
        call(chat(), "stream", "hi")
    assert len(emulator.log.entries) == 1  # a started stream is not sent again


@pytest.mark.parametrize("whole", [{"response": "full answer"}, {"choices": [{"message": {"content": "full answer"}}]}])
def test_a_complete_answer_to_a_stream_request(
    whole: Any, chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, call: Any
) -> None:
    """https://github.com/cloudflare/ai/pull/396"""
    emulator.faults.add(Fault.reply({"result": {**whole, "usage": USAGE}, "success": True}))
    total = call.collect(chat(api=route), "hi")
    assert (total.text, total.usage_metadata["total_tokens"]) == ("full answer", 12)
    assert len(emulator.log.entries) == 1


@pytest.mark.parametrize("method", ["stream", "astream_events"])
def test_the_status_is_checked_before_anything_is_yielded(
    method: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator
) -> None:
    """Fallbacks of a stream look at the first chunk only (https://github.com/langchain-ai/langchain/pull/16055)."""
    emulator.faults.add(Fault.error(429, 3040, "no capacity", times=1))
    one = chat(max_retries=0)
    if method == "stream":
        with pytest.raises(ours.CapacityError):
            next(one.stream("hi"))
        return

    async def read() -> list[str]:
        return [event["event"] async for event in one.astream_events("hi", version="v2")]

    with pytest.raises(ours.CapacityError):
        asyncio.run(read())


def test_a_stream_is_retried_until_it_begins(chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.busy(times=2))
    total = call.collect(chat(max_retries=2), "hi")
    assert total.text
    assert len(emulator.log.entries) == 3


@pytest.mark.parametrize("frame", [{"errors": [{"code": 3040, "message": "no capacity"}]}, {"error": {"code": 3043}}])
def test_an_error_before_the_first_piece_is_retried(
    frame: Any, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    emulator.faults.add(Fault.sse([sse(piece(role="assistant"), frame)]))
    assert call.collect(chat(max_retries=1), "hi").text
    assert len(emulator.log.entries) == 2
    emulator.faults.add(Fault.sse([sse(frame)]))
    other = chat(model="@cf/zai-org/glm-5.3")
    total = call.collect(chat(max_retries=0).with_fallbacks([other]), "hi")
    assert total.response_metadata["model_name"] == "@cf/zai-org/glm-5.3"


# --- closing a stream early ---


class Watched(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream without end that records whether it was closed."""

    closed = False

    def __iter__(self) -> Iterator[bytes]:
        while not self.closed:
            yield sse(piece("a"), done=False)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            await asyncio.sleep(0)
            yield chunk

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def endless() -> tuple[ChatWorkersAI, Watched]:
    body = Watched()
    transport = httpx.MockTransport(
        lambda request: httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=body)
    )
    settings: dict[str, Any] = {"http_client": httpx.Client(transport=transport)}
    settings["http_async_client"] = httpx.AsyncClient(transport=transport)
    return ChatWorkersAI(model=MODEL, account_id=ACCOUNT, api_token="token", **settings), body


def test_leaving_the_loop_closes_the_stream(endless: Any) -> None:
    """https://github.com/cloudflare/ai/pull/457"""
    one, body = endless
    for chunk in one.stream("hi"):
        assert chunk.text == "a"
        break
    assert body.closed


def test_leaving_the_loop_closes_the_async_stream(endless: Any) -> None:
    one, body = endless

    async def first() -> None:
        stream = one.astream("hi")
        async for chunk in stream:
            assert chunk.text == "a"
            break
        await stream.aclose()

    asyncio.run(first())
    assert body.closed


def test_a_cancelled_task_closes_its_stream(endless: Any) -> None:
    one, body = endless

    async def cancelled() -> None:
        started = asyncio.Event()

        async def read() -> None:
            async for _ in one.astream("hi"):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert body.closed


# --- streams in LangChain's components ---


class Listener(BaseCallbackHandler):
    def __init__(self) -> None:
        self.tokens: list[str] = []

    def on_llm_new_token(self, token: str, **_: Any) -> None:
        self.tokens.append(token)


def test_callbacks_receive_each_token_once(streaming: Any, call: Any) -> None:
    body = sse(piece("Hel"), piece("lo"), piece(finish="stop"))
    for method, settings in (("stream", {}), ("invoke", {"streaming": True})):
        listener = Listener()
        call(streaming(body, **settings), method, "hi", config={"callbacks": [listener]})
        assert [token for token in listener.tokens if token] == ["Hel", "lo"]


def test_an_invoke_that_streams_is_the_same_answer(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    prompt = "Why is the sky blue?"
    streamed = call(chat(streaming=True), "invoke", prompt)
    assert emulator.log.last.json["stream"] is True
    whole = call(chat(), "invoke", prompt)
    assert "stream" not in emulator.log.last.json
    assert (streamed.content, streamed.usage_metadata) == (whole.content, whole.usage_metadata)
    for name in ("finish_reason", "model_name", "model_provider"):
        assert streamed.response_metadata[name] == whole.response_metadata[name]
    assert streamed.response_metadata["neurons"] == pytest.approx(whole.response_metadata["neurons"])


@pytest.mark.parametrize("setting", [True, "tool_calling"])
def test_streaming_can_be_disabled(
    setting: Any, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    tool = {"name": "clock", "description": "Tell the time.", "parameters": {"type": "object", "properties": {}}}
    one = chat(disable_streaming=setting)
    total = call.collect(one.bind_tools([tool]) if setting == "tool_calling" else one, "hi")
    assert total.text
    assert "stream" not in emulator.log.last.json


@pytest.mark.parametrize("given", [True, False])
def test_stream_of_one_call(given: bool, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any) -> None:
    call(chat(**({} if given else {"streaming": True})), "invoke", "hi", stream=given)
    assert emulator.log.last.json.get("stream", False) is given


def test_a_string_parser_reads_the_stream(streaming: Any, call: Any) -> None:
    """Content is text, also with reasoning (CHANGELOG of langchain-cloudflare 0.3.0)."""
    body = sse(piece(reasoning_content="hm"), piece("Hel"), piece("lo"), piece(finish="stop"))
    assert "".join(call(streaming(body) | StrOutputParser(), "stream", "hi")) == "Hello"


def test_standard_blocks(streaming: Any, call: Any) -> None:
    """With ``output_version="v1"``, every block has its own index, so that the sum of chunks does not merge them."""
    body = sse(
        piece(reasoning_content="h"),
        piece(reasoning_content="m"),
        piece("a"),
        piece("b"),
        part("clock", "{", 0, "c1"),
        part(None, "}", 0),
        part("search", "{}", 1, "c2"),
        piece(finish="tool_calls"),
    )
    total = call.collect(streaming(body, output_version="v1"), "hi")
    blocks = [{key: value for key, value in block.items() if key != "index"} for block in total.content]
    assert blocks == [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "text", "text": "ab"},
        {"type": "tool_call", "name": "clock", "args": {}, "id": "c1"},
        {"type": "tool_call", "name": "search", "args": {}, "id": "c2"},
    ]
    assert total.text == "ab"


def test_an_event_that_is_skipped_is_logged(streaming: Any, call: Any, caplog: pytest.LogCaptureFixture) -> None:
    body, _ = TEXTS["a comment that is not JSON"]
    with caplog.at_level(logging.WARNING, "workers_ai"):
        call(streaming(body), "stream", "hi")
    assert "not JSON" in caplog.text
    assert "hello" not in caplog.text
