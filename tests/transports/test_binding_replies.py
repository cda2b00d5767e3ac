"""All possible results of ``env.AI.run``: streams with every kind of end, ``Response`` objects, nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from workers_ai import AsyncClient, RetryPolicy, errors
from workers_ai_emulator import Fault

LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
BGE = "@cf/baai/bge-base-en-v1.5"
HELLO = [{"role": "user", "content": "Hello"}]
AT_ONCE = RetryPolicy(max_retries=2, base_s=0.0)


async def _all(pieces: Any) -> list[Any]:
    return [piece async for piece in pieces]


class Streams:
    """A binding that answers with streams. Each stream comes from the next function. The last function is repeated."""

    def __init__(self, reader: Any, *makers: Callable[[], AsyncIterator[bytes]]) -> None:
        self.readers: list[Any] = []
        self._reader = reader
        self._makers = list(makers)

    async def run(self, *arguments: Any) -> Any:
        maker = self._makers.pop(0) if len(self._makers) > 1 else self._makers[0]
        self.readers.append(self._reader(maker()))
        return SimpleNamespace(getReader=lambda: self.readers[-1])


@pytest.fixture
def streams(reader: Any) -> Callable[..., Streams]:
    return lambda *makers: Streams(reader, *makers)


async def _never() -> AsyncIterator[bytes]:
    await asyncio.sleep(3600)
    yield b""


async def _hangs() -> AsyncIterator[bytes]:
    yield b'data: {"response":"Half"}\n\n'
    await asyncio.sleep(3600)


async def _whole() -> AsyncIterator[bytes]:
    yield b"\n"
    yield b'data: {"response":"Wh'
    yield b'ole"}\n\ndata: [DONE]\n\n'


async def _json() -> AsyncIterator[bytes]:
    yield b" \n"
    yield b'{"response":"All at once",'
    yield b'"usage":{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4}}'


def test_pieces_are_yielded_as_they_arrive(streams: Any) -> None:
    async def first() -> str:
        pieces = AsyncClient(binding=streams(_hangs)).stream_chat(LLAMA, HELLO)
        piece = await asyncio.wait_for(anext(pieces), 60)
        await pieces.aclose()
        return piece.text

    assert asyncio.run(first()) == "Half"


def test_a_json_answer_to_a_stream_request_is_one_complete_answer(streams: Any) -> None:
    pieces = asyncio.run(_all(AsyncClient(binding=streams(_json)).stream_chat(LLAMA, HELLO)))
    assert [piece.text for piece in pieces] == ["All at once", ""]
    assert pieces[-1].usage.output_tokens == 3


def test_an_unrequested_stream_is_read_to_its_end(streams: Any) -> None:
    binding = streams(_json)
    reply = asyncio.run(AsyncClient(binding=binding).chat(LLAMA, HELLO))
    assert reply.text == "All at once"
    assert not binding.readers[0].cancelled


def test_a_model_that_does_not_stream(env_ai: Any, emulator: Any) -> None:
    emulator.faults.add(Fault.reply({"result": {"response": "No stream"}, "success": True}))
    pieces = asyncio.run(_all(AsyncClient(binding=env_ai).stream_chat(LLAMA, HELLO)))
    assert "".join(piece.text for piece in pieces) == "No stream"


def test_a_stream_that_fails_before_its_first_piece_is_retried(streams: Any, thrown: Any) -> None:
    async def fails() -> AsyncIterator[bytes]:
        raise thrown("Network connection lost.")
        yield b""

    binding = streams(fails, _whole)
    pieces = asyncio.run(_all(AsyncClient(binding=binding, retry=AT_ONCE).stream_chat(LLAMA, HELLO)))
    assert "".join(piece.text for piece in pieces) == "Whole"
    assert len(binding.readers) == 2


def test_a_stream_without_a_piece_in_time_is_cancelled(streams: Any) -> None:
    binding = streams(_never)
    client = AsyncClient(binding=binding, timeout=0.02, max_retries=0)
    with pytest.raises(errors.APITimeoutError):
        asyncio.run(_all(client.stream_chat(LLAMA, HELLO)))
    assert [reader.cancelled for reader in binding.readers] == [True]


def test_a_truncated_stream_keeps_the_received_text(streams: Any) -> None:
    binding = streams(_hangs)
    with pytest.raises(errors.APITimeoutError) as caught:
        asyncio.run(_all(AsyncClient(binding=binding, timeout=0.02).stream_chat(LLAMA, HELLO)))
    assert caught.value.partial == "Half"
    assert [reader.cancelled for reader in binding.readers] == [True]


@pytest.mark.parametrize("maker", [_never, _hangs])
def test_a_cancelled_task_cancels_the_stream_and_releases_its_slot(streams: Any, maker: Any) -> None:
    async def cancelled() -> tuple[bool, str]:
        binding = streams(maker, _whole)
        client = AsyncClient(binding=binding, max_concurrency=1)
        task = asyncio.create_task(_all(client.stream_chat(LLAMA, HELLO)))
        while not binding.readers:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        pieces = await asyncio.wait_for(_all(client.stream_chat(LLAMA, HELLO)), 60)
        return binding.readers[0].cancelled, "".join(piece.text for piece in pieces)

    assert asyncio.run(cancelled()) == (True, "Whole")


@pytest.mark.parametrize(
    ("frame", "cls", "code"),
    [
        (b'{"errors":[{"code":3040,"message":"Capacity temporarily exceeded"}]}', errors.CapacityError, 3040),
        (b'{"error":"3036: You have used up your daily free allocation"}', errors.QuotaExhaustedError, 3036),
        (b'{"internalCode":3043,"httpCode":500,"message":"x"}', errors.InternalServerError, 3043),
    ],
)
def test_an_error_in_the_midst_of_a_stream_is_typed(streams: Any, frame: bytes, cls: Any, code: int) -> None:
    async def fails() -> AsyncIterator[bytes]:
        yield b'data: {"response":"Half"}\n\n'
        yield b"data: " + frame + b"\n\n"

    binding = streams(fails)
    with pytest.raises(cls) as caught:
        asyncio.run(_all(AsyncClient(binding=binding).stream_chat(LLAMA, HELLO)))
    assert (type(caught.value), caught.value.code, caught.value.partial) == (cls, code, "Half")
    assert [reader.cancelled for reader in binding.readers] == [True]


def test_a_stream_without_an_end_is_interrupted(streams: Any) -> None:
    async def cut() -> AsyncIterator[bytes]:
        yield b'data: {"response":"Half"}\n\n'

    with pytest.raises(errors.StreamInterruptedError) as caught:
        asyncio.run(_all(AsyncClient(binding=streams(cut)).stream_chat(LLAMA, HELLO)))
    assert caught.value.partial == "Half"


def test_bytes_arrive_as_typed_arrays(scripted: Any) -> None:
    class Uint8Array:
        def to_bytes(self) -> bytes:
            return b'data: {"response":"typed"}\n\ndata: [DONE]\n\n'

    left = [SimpleNamespace(done=False, value=Uint8Array()), SimpleNamespace(done=True, value=None)]

    async def read() -> Any:
        return left.pop(0)

    binding = scripted(lambda *_: SimpleNamespace(getReader=lambda: SimpleNamespace(read=read)))
    pieces = asyncio.run(_all(AsyncClient(binding=binding).stream_chat(LLAMA, HELLO)))
    assert "".join(piece.text for piece in pieces) == "typed"


@pytest.mark.parametrize("result", [None, {}, []])
def test_an_empty_result_is_not_an_answer(scripted: Any, result: Any) -> None:
    client = AsyncClient(binding=scripted(lambda *_: result))
    for call in (
        lambda: client.embed(BGE, ["a"]),
        lambda: client.rerank("@cf/baai/bge-reranker-base", "a", ["b"]),
        lambda: client.chat(LLAMA, HELLO),
    ):
        with pytest.raises(errors.APIResponseValidationError):
            asyncio.run(call())


def test_whole_responses_are_read_with_their_headers(env_ai: Any) -> None:
    client = AsyncClient(binding=env_ai.raw())
    reply = asyncio.run(client.chat(LLAMA, HELLO))
    pieces = asyncio.run(_all(client.stream_chat(LLAMA, HELLO)))
    assert "".join(piece.text for piece in pieces) == reply.text
    assert float(reply.headers["cf-ai-neurons"]) > 0
    assert pieces[-1].headers["cf-ray"]
    assert len(asyncio.run(client.embed(BGE, ["a", "b"])).vectors) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_response_object_has_its_status_and_delay(env_ai: Any, emulator: Any, stream: bool) -> None:
    emulator.faults.add(Fault.error(429, 3021, "Too many requests", retry_after="7"))
    client = AsyncClient(binding=env_ai.raw(), max_retries=0)
    with pytest.raises(errors.RateLimitError) as caught:
        asyncio.run(_all(client.stream_chat(LLAMA, HELLO)) if stream else client.chat(LLAMA, HELLO))
    assert (caught.value.status_code, caught.value.code, caught.value.retry_after) == (429, 3021, 7.0)


def test_a_rejected_stream_is_retried(env_ai: Any, emulator: Any) -> None:
    emulator.faults.add(Fault.busy(times=2))
    client = AsyncClient(binding=env_ai, on_busy="retry", retry=AT_ONCE)
    assert asyncio.run(_all(client.stream_chat(LLAMA, HELLO)))[-1].last
    assert len(env_ai.calls) == 3


def test_values_outside_json_are_rejected_before_sending(env_ai: Any) -> None:
    client = AsyncClient(binding=env_ai)
    for value in (float("nan"), object()):
        with pytest.raises(errors.BadRequestError, match="cannot be written as JSON"):
            asyncio.run(client.chat(LLAMA, HELLO, extra_body={"x": value}))
    assert env_ai.calls == []


def test_options_of_a_call_join_those_of_the_client(env_ai: Any) -> None:
    client = AsyncClient(binding=env_ai, on_busy="raise")
    asyncio.run(client.chat(LLAMA, HELLO, extra_body={"options": {"tags": ["nightly"]}, "top_k": 3}))
    _, inputs, options = env_ai.calls[0]
    assert inputs["top_k"] == 3
    assert options == {"rejectIfBusy": True, "tags": ["nightly"]}
