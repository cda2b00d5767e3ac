"""Measure the LlamaIndex classes and those of other packages on the same server.

uv run python tests/benchmarks/bench_llama_index.py
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable

import httpx
from canned import CHUNKS, canned_server
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage
from llama_index.embeddings.cloudflare_workersai import base as cloudflare_workersai
from llama_index.embeddings.workers_ai import WorkersAIEmbedding
from llama_index.llms.openai_like import OpenAILike
from llama_index.llms.workers_ai import WorkersAI
from measure import ROUNDS, Kind, import_ms, interleaved, section, show, show_against

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EMBED_MODEL = "@cf/baai/bge-large-en-v1.5"
MESSAGES = [{"role": "user", "content": "What is the capital of Norway?"}]
TEXTS = 2000


def bench_chat(url: str) -> None:
    """Measure the CPU time of one chat call, complete and streamed."""
    ours = WorkersAI(model=MODEL, account_id="account", api_token="token", base_url=url)
    theirs = OpenAILike(
        model=MODEL, api_key="token", api_base=f"{url}/accounts/account/ai/v1", is_chat_model=True, context_window=24000
    )
    messages = [ChatMessage(**message) for message in MESSAGES]
    http = httpx.Client(headers={"authorization": "Bearer token"})
    target, body = f"{url}/accounts/account/ai/v1/chat/completions", {"model": MODEL, "messages": MESSAGES}

    def raw_stream() -> None:
        with http.stream("POST", target, json={**body, "stream": True}) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    json.loads(line[6:])

    whole: dict[str, Callable[[], object]] = {
        "floor": lambda: json.loads(http.post(target, json=body).content),
        "WorkersAI": lambda: ours.chat(messages),
        "OpenAILike": lambda: theirs.chat(messages),
    }
    streamed: dict[str, Callable[[], object]] = {
        "floor": raw_stream,
        "WorkersAI": lambda: list(ours.stream_chat(messages)),
        "OpenAILike": lambda: list(theirs.stream_chat(messages)),
    }
    for title, works, times in (("chat", whole, 50), (f"stream_chat of {CHUNKS} pieces", streamed, 3)):
        found = interleaved(works, times)
        floor = found.pop("floor")
        section(f"LlamaIndex: {title}, CPU per call")
        show("floor: raw httpx", floor, "ms", kind="floor")
        show_against(found, "ms", floor=floor)


def bench_embeddings(url: str) -> None:
    """Measure the wall time of 2,000 texts of 1,024 dimensions at 100 ms per request; ideal: 8 at a time."""
    texts = [f"text number {number}" for number in range(TEXTS)]
    ideal = 0.1 * -(-len(texts) // 100 // 8)
    section(f"LlamaIndex: embed {TEXTS:,} texts, 100 ms a request, wall time")
    show("ideal of 8 in flight (20 requests)", ideal, "s", kind="floor")
    cloudflare_workersai.API_URL_TEMPLATE = f"{url}/accounts/{{}}/ai/run/{{}}"

    def ours() -> BaseEmbedding:
        return WorkersAIEmbedding(model=EMBED_MODEL, account_id="account", api_token="token", base_url=url)

    def theirs() -> BaseEmbedding:
        return cloudflare_workersai.CloudflareEmbedding(
            account_id="account", auth_token="token", model=EMBED_MODEL, embed_batch_size=100
        )

    def sync(model: BaseEmbedding) -> float:
        model.get_query_embedding("warm")
        began = time.perf_counter()
        assert len(model.get_text_embedding_batch(texts)) == len(texts)
        return time.perf_counter() - began

    async def once(make: Callable[[], BaseEmbedding]) -> float:
        model = make()
        await model.aget_query_embedding("warm")
        began = time.perf_counter()
        assert len(await model.aget_text_embedding_batch(texts)) == len(texts)
        return time.perf_counter() - began

    for name, make in {"WorkersAIEmbedding": ours, "CloudflareEmbedding": theirs}.items():
        kind: Kind = "ours" if make is ours else "other"
        rounds = ROUNDS if make is ours else 1
        value = statistics.median(sync(make()) for _ in range(rounds))
        show(f"{name}: get_text_embedding_batch", value, "s", value / ideal, kind=kind)
        value = statistics.median(asyncio.run(once(make)) for _ in range(rounds))
        show(f"{name}: aget_text_embedding_batch", value, "s", value / ideal, kind=kind)


def bench_import() -> None:
    """Measure the CPU time of each import above ``llama_index.core``."""
    modules = {
        "LLMs": {"WorkersAI": "llms.workers_ai", "OpenAILike": "llms.openai_like"},
        "embeddings": {
            "WorkersAIEmbedding": "embeddings.workers_ai",
            "CloudflareEmbedding": "embeddings.cloudflare_workersai",
        },
        "reranker": {"WorkersAIRerank": "postprocessor.workers_ai_rerank"},
    }
    for title, of_kind in modules.items():
        section(f"LlamaIndex: import of {title} over llama_index.core, CPU")
        for name, module in of_kind.items():
            load = f"from llama_index.{module} import {name}"
            show_against({name: import_ms("import llama_index.core", load)}, "ms", floor=None)


def main() -> None:
    """Run all benchmarks."""
    with canned_server() as url:
        bench_chat(url)
    with canned_server(latency_s=0.1) as url:
        bench_embeddings(url)
    bench_import()


if __name__ == "__main__":
    main()
