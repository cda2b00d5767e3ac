"""What a type checker knows of the core's public names. Checked by mypy and pyright; never run."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Generator
from datetime import datetime
from typing import Any, assert_type

import httpx

import workers_ai
from workers_ai import AsyncClient, Client, GatewayOptions, RetryEvent, RetryPolicy, errors
from workers_ai.batch import AsyncBatch, Batch
from workers_ai.ingest import IngestReport, Row, aingest, ingest
from workers_ai.types import (
    BatchItem,
    BatchJob,
    BatchStatus,
    ChatDelta,
    ChatReply,
    EmbedReply,
    FinishReason,
    RerankScore,
    ToolCall,
    Usage,
)

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
BGE = "@cf/baai/bge-m3"
MESSAGES = [{"role": "user", "content": "hi"}]


def told(event: RetryEvent) -> None:
    assert_type(event.wait_s, float)


def made() -> None:
    client = Client(
        account_id="a",
        api_token="t",
        gateway=GatewayOptions(id="g", cache_ttl_s=60),
        retry=RetryPolicy(max_retries=0),
        on_retry=told,
        http_client=httpx.Client(),
    )
    assert_type(workers_ai.__version__, str)
    with client as entered:
        assert_type(entered, Client)


def chat(client: Client) -> None:
    reply = client.chat(MODEL, MESSAGES, temperature=0)
    assert_type(reply, ChatReply)
    assert_type(reply.text, str)
    assert_type(reply.tool_calls, tuple[ToolCall, ...])
    assert_type(reply.finish_reason, FinishReason)
    assert_type(reply.usage, Usage | None)
    pieces = client.stream_chat(MODEL, MESSAGES)
    assert_type(pieces, Generator[ChatDelta, None, None])
    for piece in pieces:
        assert_type(piece.text, str)
        assert_type(piece.last, bool)


async def achat(client: AsyncClient) -> None:
    assert_type(await client.chat(MODEL, MESSAGES), ChatReply)
    pieces = client.stream_chat(MODEL, MESSAGES)
    assert_type(pieces, AsyncGenerator[ChatDelta, None])
    async for piece in pieces:
        assert_type(piece.usage, Usage | None)
    async with client as entered:
        assert_type(entered, AsyncClient)


def vectors(client: Client) -> None:
    assert_type(client.embed(BGE, ["a"], kind="query"), EmbedReply)
    assert_type(client.embed(BGE, ("a",)).vectors, list[list[float]])
    scores = client.rerank("@cf/baai/bge-reranker-base", "q", ["a"], top_n=1)
    assert_type(scores, list[RerankScore])
    assert_type(scores[0].score, float)
    assert_type(client.models(), list[dict[str, Any]])


async def avectors(client: AsyncClient) -> None:
    assert_type(await client.embed(BGE, ["a"]), EmbedReply)
    assert_type(await client.rerank("@cf/baai/bge-reranker-base", "q", ["a"]), list[RerankScore])
    assert_type(await client.models(task="Text Embeddings"), list[dict[str, Any]])


def queue(client: Client) -> None:
    assert_type(client.batch, Batch)
    job = client.batch.submit(BGE, [{"text": ["a"]}])
    assert_type(job, BatchJob)
    assert_type(job.request_id, str)
    assert_type(client.batch.poll(job), BatchStatus)
    assert_type(client.batch.collect(job, deadline_s=60), list[BatchItem])
    assert_type(client.batch.run(BGE, [{"text": ["a"]}], deadline_s=60), list[BatchItem])


async def aqueue(client: AsyncClient) -> None:
    assert_type(client.batch, AsyncBatch)
    job = await client.batch.submit(BGE, [{"text": ["a"]}])
    assert_type(await client.batch.poll(job), BatchStatus)
    assert_type(await client.batch.collect(job), list[BatchItem])
    assert_type(await client.batch.run(BGE, [{"text": ["a"]}]), list[BatchItem])


def corpus() -> None:
    report = ingest((("1", "one"), ("2", "two")), ledger="l.sqlite3", model=BGE, raise_on_failure=True)
    assert_type(report, IngestReport)
    assert_type(report.embedded, int)
    assert_type(report.cost_usd, float | None)
    for row in report.rows():
        assert_type(row, Row)
    for _, vector in report.vectors():
        assert_type(vector, array[float])


async def acorpus() -> None:
    assert_type(await aingest([("1", "one")], ledger="l.sqlite3", model=BGE), IngestReport)


def caught(client: Client) -> float | None:
    try:
        client.chat(MODEL, MESSAGES)
    except errors.QuotaExhaustedError as exc:
        assert_type(exc.resets_at, datetime | None)
    except errors.BatchTimeoutError as exc:
        assert_type(exc.request_ids, tuple[str, ...])
    except errors.APIStatusError as exc:
        assert_type(exc.code, int | None)
        assert_type(exc.response, errors.ErrorResponse | None)
    except errors.WorkersAIError as exc:
        assert_type(exc.is_retryable, bool)
        return exc.retry_after
    return None
