"""Types of the core's public names. mypy and pyright check this file; it never runs."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Generator
from datetime import datetime
from typing import Unpack, assert_type

import httpx
from pydantic import SecretStr

import workers_ai
from workers_ai import (
    AsyncClient,
    BatchWorker,
    ChatKeywords,
    Client,
    ClientKeywords,
    GatewayOptions,
    Limiter,
    RetryEvent,
    RetryPolicy,
    Settings,
    errors,
)
from workers_ai.batch import AsyncBatch, Batch
from workers_ai.generation import generate
from workers_ai.ingest import IngestReport, Row, aingest, estimate, ingest
from workers_ai.types import (
    JSON,
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


def log_retry(event: RetryEvent) -> None:
    assert_type(event.wait_s, float)


def construct() -> None:
    client = Client(
        account_id="a",
        api_token="t",
        gateway=GatewayOptions(id="g", cache_ttl_s=60),
        retry=RetryPolicy(max_retries=0),
        on_retry=log_retry,
        limiter=Limiter(),
        http_client=httpx.Client(),
    )
    assert_type(workers_ai.__version__, str)
    with client as entered:
        assert_type(entered, Client)


def construct_with_documented_forms() -> None:
    Client(account_id="a", api_key="t", request_timeout=30)
    Client(auth_token=SecretStr("t"), api_base="https://api.cloudflare.com/client/v4/accounts/a/ai/v1")
    Client(gateway="gw", timeout=(5, 60), total_timeout=60, max_retries=0, on_busy="retry")
    Client(gateway={"id": "gw", "cache_ttl_s": 60}, timeout=httpx.Timeout(5), reject_if_busy=True)
    AsyncClient(default_headers={"x-team": "search"}, requests_per_minute="documented", max_concurrency=4)
    AsyncClient(batch_worker="https://batch.example.workers.dev", requests_per_minute=100, session_id="s")
    AsyncClient(batch_worker=BatchWorker("https://batch.example.workers.dev"), allow_insecure_http=True)
    Client(max_retry=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(Settings.resolve(api_token="t", account_id="a"), Settings)


def wrap(client: Client, **options: Unpack[ChatKeywords]) -> ChatReply:
    return client.chat(MODEL, MESSAGES, **options)


def build(**settings: Unpack[ClientKeywords]) -> Client:
    return Client(**settings)


def call_with_documented_options(client: Client) -> None:
    client.chat(MODEL, MESSAGES, max_tokens=5, tools=[{"type": "function"}], tool_choice="auto", reasoning_effort=None)
    client.chat(MODEL, MESSAGES, api="run", lora="adapter", timeout=5, max_retries=0, extra_headers={"x": "1"})
    client.chat(MODEL, MESSAGES, gateway={"cache_ttl_s": 60}, extra_body={"field": 1}, request_timeout=5)
    client.stream_chat(MODEL, MESSAGES, stream_options={"include_usage": False}, on_busy="raise")
    client.embed(BGE, ["a"], pooling="cls", batch_size=10, queue="overflow", deadline_s=None, empty_text="space")
    client.embed(BGE, ["a"], api="embeddings", dimensions=256, normalize=True, total_timeout=9)
    client.rerank("@cf/baai/bge-reranker-base", "q", ["a"], session_id="s", on_busy=None)
    client.chat(MODEL, MESSAGES, temprature=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.embed(BGE, ["a"], pooling="max")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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
    assert_type(client.models(), list[dict[str, JSON]])


async def avectors(client: AsyncClient) -> None:
    assert_type(await client.embed(BGE, ["a"]), EmbedReply)
    assert_type(await client.rerank("@cf/baai/bge-reranker-base", "q", ["a"]), list[RerankScore])
    assert_type(await client.models(task="Text Embeddings"), list[dict[str, JSON]])


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
    ingest([], ledger="l", model=BGE, texts_per_job=5, api_key="t", retry=RetryPolicy())
    ingest([], ledger="l", model=BGE, poling="cls")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    estimate([], model=BGE, deadline_s=5.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    generate([], ledger="l", model=MODEL, labels=["a", "b"], wait=False, account_id="a", on_answer=print)
    generate([], ledger="l", model=MODEL, mode="later")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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
