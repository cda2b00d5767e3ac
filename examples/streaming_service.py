"""Serve a streaming agent over HTTP with server-sent events.

    uvicorn streaming_service:app
    curl -N localhost:8000/chat -H 'content-type: application/json' \
        -d '{"messages": [{"role": "user", "content": "Where is order 17?"}]}'

The events are ``text``, ``tool``, ``done`` and ``error``. If the service is at capacity before the
first event, the reply is 503 with ``Retry-After``. If the client disconnects, the request to the model is cancelled.
"""

from __future__ import annotations

import logging
import os
from asyncio import create_task
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from math import ceil
from typing import Annotated, Literal

from anyio import create_memory_object_stream, move_on_after
from anyio.abc import ObjectReceiveStream
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from langchain_workers_ai import (
    APITimeoutError,
    BadRequestError,
    ChatWorkersAI,
    QuotaExhaustedError,
    RateLimitError,
    WorkersAIError,
)

MODEL = os.environ.get("MODEL", "@cf/meta/llama-3.3-70b-instruct-fp8-fast")
RETRY_AFTER_S = 5

log = logging.getLogger("streaming_service")


class Message(BaseModel):
    """One turn of the conversation."""

    role: Literal["user", "assistant"]
    content: str = Field(min_length=1, max_length=8_000)


class Conversation(BaseModel):
    """The conversation so far. The service stores nothing."""

    messages: list[Message] = Field(min_length=1, max_length=50)


@tool
def order_status(order: int) -> str:
    """Look up where an order is."""
    return f"Order {order} left the warehouse in Moss at 14:02."


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Create one agent for all requests, so that they share HTTP connections."""
    model = ChatWorkersAI(model=MODEL, on_busy="raise", total_timeout=60)
    app.state.agent = create_agent(model, [order_status], system_prompt="Answer questions about orders.")
    yield


app = FastAPI(title="Streaming agent", lifespan=lifespan)


async def open_stream(conversation: Conversation, request: Request) -> AsyncIterator[AsyncIterator[BaseMessage]]:
    """Start the agent and wait for its first message, so that an early error has its own status code.

    The agent runs in a task, which is cancelled once. The server cancels its own scope repeatedly until it ends, and
    LangGraph would leave the nodes of the graph running.
    """
    sender, receiver = create_memory_object_stream[BaseMessage]()
    messages = {"messages": [message.model_dump() for message in conversation.messages]}

    async def run_agent() -> None:
        with sender:
            async for message, _ in request.app.state.agent.astream(messages, stream_mode="messages"):
                await sender.send(message)

    async def received(first: BaseMessage) -> AsyncIterator[BaseMessage]:
        yield first
        async for message in receiver:
            yield message
        await task  # raises the error of the agent

    task = create_task(run_agent())
    with sender, receiver:
        try:
            if (first := await first_message(receiver, request)) is None:
                await task  # raises the error of the agent
                raise RuntimeError("the agent sent no message")
            yield received(first)
        finally:
            task.cancel()


async def first_message(receiver: ObjectReceiveStream[BaseMessage], request: Request) -> BaseMessage | None:
    """Return the first message, or None if there is none. Check every second whether the caller is connected."""
    while not await request.is_disconnected():
        with move_on_after(1):
            return await anext(receiver, None)
    raise HTTPException(499, "the client left")


@app.post("/chat", response_class=EventSourceResponse)
async def chat(stream: Annotated[AsyncIterator[BaseMessage], Depends(open_stream)]) -> AsyncIterator[ServerSentEvent]:
    """Stream the answer of the agent."""
    tokens = 0
    try:
        async for message in stream:
            if isinstance(message, ToolMessage):
                yield ServerSentEvent(event="tool", data={"name": message.name, "result": message.text})
            elif isinstance(message, AIMessageChunk):
                tokens += message.usage_metadata["total_tokens"] if message.usage_metadata else 0
                if message.text:
                    yield ServerSentEvent(event="text", data=message.text)
    except WorkersAIError as error:  # the status has been sent: report the error in the stream
        log.warning("%s", error)
        yield ServerSentEvent(event="error", data={"error": type(error).__name__, "retryable": error.is_retryable})
    else:
        yield ServerSentEvent(event="done", data={"tokens": tokens})


@app.exception_handler(WorkersAIError)
async def failed(_: Request, error: WorkersAIError) -> JSONResponse:
    """Reply with a status. The text of the error is logged. It has the model, the code and the request id."""
    log.warning("%s", error)
    content = {"error": type(error).__name__}
    if isinstance(error, RateLimitError):  # at capacity, too many requests, or the daily allocation is used up
        wait_s = error.retry_after or RETRY_AFTER_S
        if isinstance(error, QuotaExhaustedError) and error.resets_at:
            wait_s = (error.resets_at - datetime.now(UTC)).total_seconds()
        return JSONResponse(content, status_code=503, headers={"Retry-After": str(max(1, ceil(wait_s)))})
    if isinstance(error, BadRequestError):  # too long, or rejected by the model
        return JSONResponse(content, status_code=422)
    return JSONResponse(content, status_code=504 if isinstance(error, APITimeoutError) else 502)
