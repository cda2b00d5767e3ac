"""What ChatWorkersAI and WorkersAIEmbeddings cost, as ratios to a floor measured in the same run.

    uv run python tests/benchmarks/bench_langchain.py
    uv run --group rivals python tests/benchmarks/bench_langchain.py     # with the other integrations beside it

The floor of a call is raw httpx with a JSON parse, plus LangChain's own machinery around a model that does nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
from canned import CHUNKS, canned_server
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from measure import ROUNDS, acpu_ms, import_ms, interleaved, show

from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EMBED_MODEL = "@cf/baai/bge-large-en-v1.5"
PROMPT = "What is the capital of Norway?"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}]}


class WordsModel(BaseChatModel):
    """A model that yields the chunks it was given, and does nothing else."""

    words: list[str]

    @property
    def _llm_type(self) -> str:
        return "words"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(self, messages: list[BaseMessage], stop: Any = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for word in self.words:
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for word in self.words:
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))


def ours(url: str, **settings: Any) -> ChatWorkersAI:
    """Our chat model on the canned server."""
    return ChatWorkersAI(model=MODEL, account_id="account", api_token="token", base_url=url, **settings)


def rivals(url: str) -> dict[str, BaseChatModel]:
    """The other integrations that are installed."""
    found: dict[str, BaseChatModel] = {}
    try:
        from langchain_cloudflare import ChatCloudflareWorkersAI
    except ImportError:
        pass
    else:
        os.environ["BASE_URL"] = url.removesuffix("/client/v4")
        found["langchain-cloudflare"] = ChatCloudflareWorkersAI(
            model=MODEL, account_id="account", api_token="token", endpoint_format="openai_compatible",
            base_url=f"{url}/accounts",
        )  # fmt: skip
    try:
        from langchain_openai import ChatOpenAI
    except ImportError:
        pass
    else:
        found["langchain-openai"] = ChatOpenAI(
            model=MODEL, api_key="token", base_url=f"{url}/accounts/account/ai/v1"
        )  # fmt: skip
    return found


def bench_invoke(url: str) -> None:
    """CPU of one whole answer."""
    http = httpx.Client()
    target = f"{url}/accounts/account/ai/v1/chat/completions"
    headers = {"authorization": "Bearer token"}
    fake = FakeListChatModel(responses=["x"])

    def raw() -> None:
        json.loads(http.post(target, json=BODY, headers=headers).content)

    def both() -> None:  # one after the other: alone, each would run with warmer caches than any real call
        raw()
        fake.invoke(PROMPT)

    works: dict[str, Callable[[], object]] = {"floor": both}
    for name, model in {"ChatWorkersAI": ours(url), **rivals(url)}.items():
        works[name] = lambda model=model: model.invoke(PROMPT)
    found = interleaved(works, 300)
    floor = found.pop("floor")
    print("invoke, CPU per call")
    show("floor: httpx + FakeListChatModel", floor, "ms")
    for name, value in found.items():
        show(name, value, "ms", value / floor)


def bench_stream(url: str) -> None:
    """CPU of one streamed piece."""
    target = f"{url}/accounts/account/ai/v1/chat/completions"
    headers = {"authorization": "Bearer token"}
    http = httpx.Client()
    words = WordsModel(words=[f"word{number} " for number in range(CHUNKS)])

    def raw() -> None:
        with http.stream("POST", target, json={**BODY, "stream": True}, headers=headers) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    json.loads(line[6:])

    def drain(model: BaseChatModel) -> Callable[[], object]:
        return lambda: sum(1 for _ in model.stream(PROMPT))

    works = {"httpx": raw, "words": drain(words), "ChatWorkersAI": drain(ours(url))}
    works |= {name: drain(model) for name, model in rivals(url).items()}
    found = interleaved(works, 3)
    floor = found.pop("httpx") + found.pop("words")
    print("stream, CPU per piece")
    show("floor: httpx lines + a trivial model", floor * 1000 / CHUNKS, "us")
    for name, value in found.items():
        show(name, value * 1000 / CHUNKS, "us", value / floor)


def bench_astream(url: str) -> None:
    """CPU of one streamed piece, async."""
    target = f"{url}/accounts/account/ai/v1/chat/completions"
    headers = {"authorization": "Bearer token"}
    words = WordsModel(words=[f"word{number} " for number in range(CHUNKS)])

    async def raw(http: httpx.AsyncClient) -> None:
        async with http.stream("POST", target, json={**BODY, "stream": True}, headers=headers) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    json.loads(line[6:])

    async def drain(model: BaseChatModel) -> None:
        async for _ in model.astream(PROMPT):
            pass

    async def measure() -> dict[str, float]:
        models = {"words": words, "ChatWorkersAI": ours(url), **rivals(url)}
        async with httpx.AsyncClient() as http:
            works: dict[str, Callable[[], Any]] = {"httpx": lambda: raw(http)}
            works |= {name: lambda model=model: drain(model) for name, model in models.items()}
            samples = [{name: await acpu_ms(work, 3) for name, work in works.items()} for _ in range(ROUNDS + 1)]
        return {name: statistics.median(sample[name] for sample in samples[1:]) for name in works}

    found = asyncio.run(measure())
    floor = found.pop("httpx") + found.pop("words")
    print("astream, CPU per piece")
    show("floor: httpx lines + a trivial model", floor * 1000 / CHUNKS, "us")
    for name, value in found.items():
        show(name, value * 1000 / CHUNKS, "us", value / floor)


def bench_embeddings(url: str) -> None:
    """Wall time of 2,000 texts of 1,024 dimensions at 100 ms a request; the ideal is 8 requests in flight."""
    texts = [f"text number {number}" for number in range(2000)]
    ideal = 0.1 * -(-len(texts) // 100 // 8)
    print("embed 2,000 texts, 100 ms a request, wall")
    show("ideal of 8 in flight (20 requests)", ideal, "s")
    fields = {"model": EMBED_MODEL, "account_id": "account", "api_token": "token", "base_url": url}

    def sync() -> float:
        model = WorkersAIEmbeddings(**fields)
        model.embed_query("warm")
        began = time.perf_counter()
        assert len(model.embed_documents(texts)) == len(texts)
        return time.perf_counter() - began

    async def once() -> float:
        model = WorkersAIEmbeddings(**fields)
        await model.aembed_query("warm")
        began = time.perf_counter()
        assert len(await model.aembed_documents(texts)) == len(texts)
        return time.perf_counter() - began

    async def raw() -> float:
        gate, target = asyncio.Semaphore(8), f"{url}/accounts/account/ai/run/{EMBED_MODEL}"
        async with httpx.AsyncClient(headers={"authorization": "Bearer token"}) as http:

            async def one(part: list[str]) -> None:
                async with gate:
                    json.loads((await http.post(target, json={"text": part})).content)

            await one(["warm"])
            began = time.perf_counter()
            await asyncio.gather(*(one(texts[first : first + 100]) for first in range(0, len(texts), 100)))
            return time.perf_counter() - began

    works: dict[str, Callable[[], float]] = {
        "raw httpx, 8 in flight": lambda: asyncio.run(raw()),
        "embed_documents": sync,
        "aembed_documents": lambda: asyncio.run(once()),
    }
    for name, work in works.items():
        value = statistics.median(work() for _ in range(ROUNDS))
        show(name, value, "s", value / ideal)


def bench_abatch(url: str) -> None:
    """Wall time of 400 prompts, 100 at a time, 100 ms each."""
    prompts = [PROMPT] * 400
    target = f"{url}/accounts/account/ai/v1/chat/completions"
    headers = {"authorization": "Bearer token"}

    async def raw() -> float:
        gate = asyncio.Semaphore(100)
        async with httpx.AsyncClient() as http:

            async def one() -> None:
                async with gate:
                    json.loads((await http.post(target, json=BODY, headers=headers)).content)

            await one()
            began = time.perf_counter()
            await asyncio.gather(*(one() for _ in prompts))
            return time.perf_counter() - began

    async def batch(model: BaseChatModel) -> float:
        await model.ainvoke(PROMPT)
        began = time.perf_counter()
        await model.abatch(prompts, config={"max_concurrency": 100})
        return time.perf_counter() - began

    samples: dict[str, list[float]] = {"raw httpx": [], "ChatWorkersAI": []}
    for _ in range(ROUNDS):
        samples["raw httpx"].append(asyncio.run(raw()))
        samples["ChatWorkersAI"].append(asyncio.run(batch(ours(url))))
    floor = statistics.median(samples["raw httpx"])
    print("abatch of 400 prompts, 100 at a time, 100 ms each, wall")
    show("floor: raw httpx", floor, "s")
    value = statistics.median(samples["ChatWorkersAI"])
    show("ChatWorkersAI", value, "s", value / floor)


def bench_import() -> None:
    """Wall time of the import over that of the parts of langchain-core it needs."""
    base = "import langchain_core.language_models.chat_models, langchain_core.embeddings"
    print("import of ChatWorkersAI over langchain-core's chat models and embeddings")
    show("langchain_workers_ai", import_ms(base, "from langchain_workers_ai import ChatWorkersAI"), "ms")


def bench_construction(url: str) -> None:
    """Wall time of a second object and its first use of the clients."""
    ours(url).invoke(PROMPT)
    began = time.perf_counter()
    for _ in range(100):
        ours(url)
    print("construction")
    show("a further ChatWorkersAI object", (time.perf_counter() - began) * 10, "ms")


def main() -> None:
    """Run all benchmarks."""
    with canned_server() as url:
        bench_invoke(url)
        bench_stream(url)
        bench_astream(url)
        bench_construction(url)
    with canned_server(latency_s=0.1) as url:
        bench_embeddings(url)
        bench_abatch(url)
    bench_import()


if __name__ == "__main__":
    main()
