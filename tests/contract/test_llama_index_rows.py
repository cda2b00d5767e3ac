"""Replies of the tables through LlamaIndex's ``WorkersAI``, sync and async."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from axes import spread
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, ThinkingBlock, ToolCallBlock
from llama_index.llms.workers_ai import WorkersAI
from odd_streams import ODD_STREAMS
from readers import disagreements, of_error
from shapes import Call, Shape, Want
from streamed_replies import STREAMS
from whole_replies import WHOLE

from workers_ai.errors import WorkersAIError

FIELDS = ("text", "reasoning", "calls", "finish", "refusal", "error", "code", "partial")
NOT_SENT = {"raw", "prompt"}
ROWS = spread(
    [shape for shape in (*WHOLE, *STREAMS, *ODD_STREAMS) if not NOT_SENT & shape.params.keys()], ("sync", "async")
)


def of_response(response: ChatResponse) -> Want:
    """Convert a response of LlamaIndex, complete or the last of a stream."""
    blocks = response.message.blocks
    return Want(
        text=response.message.content or "",
        reasoning="".join(block.content or "" for block in blocks if isinstance(block, ThinkingBlock)),
        calls=tuple(
            Call(block.tool_name, block.tool_kwargs, block.tool_call_id)
            for block in blocks
            if isinstance(block, ToolCallBlock)
        ),
        finish=response.additional_kwargs["finish_reason"],
        refusal=response.message.additional_kwargs.get("refusal"),
    )


def ask(llm: WorkersAI, messages: list[ChatMessage], mode: str, *, stream: bool, **options: Any) -> ChatResponse:
    if mode == "sync":
        return list(llm.stream_chat(messages, **options))[-1] if stream else llm.chat(messages, **options)

    async def answer() -> ChatResponse:
        if not stream:
            return await llm.achat(messages, **options)
        return [piece async for piece in await llm.astream_chat(messages, **options)][-1]

    return asyncio.run(answer())


@pytest.mark.parametrize(("shape", "mode"), ROWS)
def test_replies_as_responses_of_llama_index(shape: Shape, mode: str) -> None:
    stream = shape.streamed

    def answer(request: httpx.Request) -> httpx.Response:
        media_type = "text/event-stream" if stream else "application/json"
        content = shape.stream_bytes() if stream else shape.whole_body("chat_completions")
        return httpx.Response(200, headers={"content-type": media_type, **shape.headers}, content=content)

    transport = httpx.MockTransport(answer)
    llm = WorkersAI(
        model=shape.model,
        account_id="a" * 32,
        api_token="token-of-the-tests",
        max_retries=0,
        http_client=httpx.Client(transport=transport),
        http_async_client=httpx.AsyncClient(transport=transport),
    )
    try:
        got = of_response(ask(llm, [ChatMessage("hi")], mode, stream=stream, **shape.params))
    except WorkersAIError as exc:
        got = of_error(exc)
    assert disagreements(shape.want, got, FIELDS) == []
