"""What the LlamaIndex classes cost, beside OpenAILike pointed at the same server.

uv run python tests/benchmarks/bench_llama_index.py
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

from canned import canned_server
from llama_index.core.base.llms.types import ChatMessage
from llama_index.embeddings.workers_ai import WorkersAIEmbedding
from llama_index.llms.openai_like import OpenAILike
from llama_index.llms.workers_ai import WorkersAI
from measure import ROUNDS, import_ms, interleaved, show

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EMBED_MODEL = "@cf/baai/bge-large-en-v1.5"
PROMPT = "What is the capital of Norway?"


def bench_chat(url: str) -> None:
    """CPU of one chat call, whole and streamed."""
    ours = WorkersAI(model=MODEL, account_id="account", api_token="token", base_url=url)
    theirs = OpenAILike(
        model=MODEL, api_key="token", api_base=f"{url}/accounts/account/ai/v1", is_chat_model=True, context_window=24000
    )
    messages = [ChatMessage(role="user", content=PROMPT)]
    works: dict[str, Callable[[], object]] = {
        "OpenAILike": lambda: theirs.chat(messages),
        "WorkersAI": lambda: ours.chat(messages),
        "OpenAILike, streamed": lambda: list(theirs.stream_chat(messages)),
        "WorkersAI, streamed": lambda: list(ours.stream_chat(messages)),
    }
    found = interleaved(works, 5)
    print("chat, CPU per call; the ratio is to OpenAILike")
    for name, value in found.items():
        show(name, value, "ms", value / found["OpenAILike, streamed" if "streamed" in name else "OpenAILike"])


def bench_embeddings(url: str) -> None:
    """Wall time of 2,000 texts of 1,024 dimensions at 100 ms a request; the ideal is 8 requests in flight."""
    texts = [f"text number {number}" for number in range(2000)]
    ideal = 0.1 * -(-len(texts) // 100 // 8)
    print("embed 2,000 texts, 100 ms a request, wall")
    show("ideal of 8 in flight (20 requests)", ideal, "s")

    def made() -> WorkersAIEmbedding:
        return WorkersAIEmbedding(model=EMBED_MODEL, account_id="account", api_token="token", base_url=url)

    def sync() -> float:
        model = made()
        model.get_query_embedding("warm")
        began = time.perf_counter()
        assert len(model.get_text_embedding_batch(texts)) == len(texts)
        return time.perf_counter() - began

    async def once() -> float:
        model = made()
        await model.aget_query_embedding("warm")
        began = time.perf_counter()
        assert len(await model.aget_text_embedding_batch(texts)) == len(texts)
        return time.perf_counter() - began

    works = {"get_text_embedding_batch": sync, "aget_text_embedding_batch": lambda: asyncio.run(once())}
    for name, work in works.items():
        value = statistics.median(work() for _ in range(ROUNDS))
        show(name, value, "s", value / ideal)


def bench_import() -> None:
    """Wall time of each import over ``llama_index.core``."""
    print("import over llama_index.core")
    for module in ("llms.workers_ai", "embeddings.workers_ai", "postprocessor.workers_ai_rerank"):
        value = import_ms(
            "import llama_index.core", f"import llama_index.{module} as m; [getattr(m, n) for n in m.__all__]"
        )
        show(f"llama_index.{module}", value, "ms")


def main() -> None:
    """Run all benchmarks."""
    with canned_server() as url:
        bench_chat(url)
    with canned_server(latency_s=0.1) as url:
        bench_embeddings(url)
    bench_import()


if __name__ == "__main__":
    main()
