"""Serve canned replies from another process, so that only the client is measured."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNKS = 400
"""Pieces of a streamed answer."""

DIMENSIONS = 1024


def _reply(body: bytes, content_type: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (content_type, len(body))
    return head + body


def _chat() -> bytes:
    return _reply(
        json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "@cf/meta/llama-3.3-70b-instruct-fp8-fast",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "The capital of Norway is Oslo. " * 8},
                        "finish_reason": "stop",
                    }
                ],
                "usage": {"prompt_tokens": 20, "completion_tokens": 60, "total_tokens": 80, "neurons": 1.5},
            }
        ).encode()
    )


def _stream() -> bytes:
    events = []
    for number in range(CHUNKS):
        usage = {"prompt_tokens": 20 if number == 0 else 0, "completion_tokens": 1, "total_tokens": 1, "neurons": 0.2}
        choice = {"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None, "logprobs": None}
        events.append(
            {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "p": "abcdefgh"}
            | {"choices": [choice], "usage": usage}
        )
    events.append({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return _reply(data + b"data: [DONE]\n\n", b"text/event-stream")


def _vectors(count: int, *, compat: bool) -> bytes:
    vector = [round(((i * 7919) % 1000 - 500) / 5000 + 1e-7, 8) for i in range(DIMENSIONS)]
    if compat:
        rows = [{"object": "embedding", "index": i, "embedding": vector} for i in range(count)]
        return _reply(json.dumps({"object": "list", "data": rows, "usage": {"prompt_tokens": 1}}).encode())
    result = {"shape": [count, DIMENSIONS], "data": [vector] * count, "pooling": "mean"}
    return _reply(json.dumps({"result": result, "success": True, "errors": [], "messages": []}).encode())


def _scores(count: int) -> bytes:
    scores = [{"id": index, "score": round(1 / (index + 1), 6)} for index in range(count)]
    return _reply(json.dumps({"result": {"response": scores}, "success": True, "errors": [], "messages": []}).encode())


async def _serve(latency_s: float) -> None:
    chat, stream = _chat(), _stream()
    vectors: dict[tuple[int, bool], bytes] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
                )
                body = json.loads(await reader.readexactly(length)) if length else {}
                if latency_s:
                    await asyncio.sleep(latency_s)
                texts = body.get("text") or body.get("input")
                if texts is not None:
                    key = (len(texts), "input" in body)
                    if key not in vectors:
                        vectors[key] = _vectors(len(texts), compat=key[1])
                    writer.write(vectors[key])
                elif "contexts" in body:
                    writer.write(_scores(len(body["contexts"])))
                else:
                    writer.write(stream if body.get("stream") else chat)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextmanager
def canned_server(latency_s: float = 0.0) -> Iterator[str]:
    """Serve canned replies, each after ``latency_s`` seconds. Yield the base URL up to ``/client/v4``."""
    process = subprocess.Popen([sys.executable, __file__, str(latency_s)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/client/v4"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
