"""Measure the LangChain classes, as ratios to a floor measured in the same run.

    uv run python tests/benchmarks/bench_langchain.py
    uv run --group rivals python tests/benchmarks/bench_langchain.py     # with the other integrations

The floor of a call is raw httpx with a JSON parse, plus LangChain's overhead for a model that does nothing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from subprocess import CalledProcessError
from typing import Any

import httpx
from canned import CHUNKS, canned_server
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from measure import ROUNDS, Kind, acpu_ms, import_ms, interleaved, section, show, show_against

from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings, WorkersAIRerank

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EMBED_MODEL = "@cf/baai/bge-large-en-v1.5"
RERANK_MODEL = "@cf/baai/bge-reranker-base"
TEXTS = 2000
PROMPT = "What is the capital of Norway?"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}]}


class WordsModel(BaseChatModel):
    """A model that only yields given chunks."""

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
    """Return this project's chat model on the canned server."""
    return ChatWorkersAI(model=MODEL, account_id="account", api_token="token", base_url=url, **settings)


def rivals(url: str) -> dict[str, BaseChatModel]:
    """Return the chat models of other installed packages."""
    found: dict[str, BaseChatModel] = {}
    with suppress(ImportError):
        from langchain_cloudflare import ChatCloudflareWorkersAI

        os.environ["BASE_URL"] = url.removesuffix("/client/v4")
        found["langchain-cloudflare"] = ChatCloudflareWorkersAI(
            model=MODEL, account_id="account", api_token="token", endpoint_format="openai_compatible",
            base_url=f"{url}/accounts",
        )  # fmt: skip
    with suppress(ImportError):
        from langchain_openai import ChatOpenAI

        found["langchain-openai"] = ChatOpenAI(model=MODEL, api_key="token", base_url=f"{url}/accounts/account/ai/v1")
    return found


def rival_embeddings(url: str) -> dict[str, Embeddings]:
    """Return the embedding models of other installed packages, with requests of 100 texts."""
    found: dict[str, Embeddings] = {}
    with suppress(ImportError):
        from langchain_cloudflare import CloudflareWorkersAIEmbeddings

        found["langchain-cloudflare"] = CloudflareWorkersAIEmbeddings(
            model_name=EMBED_MODEL, account_id="account", api_token="token", api_base_url=f"{url}/accounts",
            batch_size=100,
        )  # fmt: skip
    with suppress(ImportError):
        from langchain_openai import OpenAIEmbeddings

        found["langchain-openai"] = OpenAIEmbeddings(
            model=EMBED_MODEL, api_key="token", base_url=f"{url}/accounts/account/ai/v1", chunk_size=100,
            check_embedding_ctx_length=False,
        )  # fmt: skip
    return found


def bench_invoke(url: str) -> None:
    """Measure the CPU time of one complete answer."""
    http = httpx.Client()
    target = f"{url}/accounts/account/ai/v1/chat/completions"
    headers = {"authorization": "Bearer token"}
    fake = FakeListChatModel(responses=["x"])

    def raw() -> None:
        json.loads(http.post(target, json=BODY, headers=headers).content)

    def both() -> None:  # alternate, because repetitions of one call would have warmer caches than a real call
        raw()
        fake.invoke(PROMPT)

    works: dict[str, Callable[[], object]] = {"floor": both}
    for name, model in {"ChatWorkersAI": ours(url), **rivals(url)}.items():
        works[name] = lambda model=model: model.invoke(PROMPT)
    found = interleaved(works, 300)
    floor = found.pop("floor")
    section("LangChain: invoke, CPU per call")
    show("floor: httpx + FakeListChatModel", floor, "ms", kind="floor")
    show_against(found, "ms", floor=floor)


def bench_stream(url: str) -> None:
    """Measure the CPU time of one streamed piece."""
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
    section("LangChain: stream, CPU per piece")
    show("floor: httpx lines + a trivial model", floor * 1000 / CHUNKS, "us", kind="floor")
    show_against(found, "us", floor=floor, scale=1000 / CHUNKS)


def bench_astream(url: str) -> None:
    """Measure the CPU time of one streamed piece, async."""
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
    section("LangChain: astream, CPU per piece")
    show("floor: httpx lines + a trivial model", floor * 1000 / CHUNKS, "us", kind="floor")
    show_against(found, "us", floor=floor, scale=1000 / CHUNKS)


def bench_embeddings(url: str) -> None:
    """Measure the wall time of 2,000 texts of 1,024 dimensions at 100 ms per request; ideal: 8 at a time."""
    texts = [f"text number {number}" for number in range(TEXTS)]
    ideal = 0.1 * -(-len(texts) // 100 // 8)
    section(f"LangChain: embed {TEXTS:,} texts, 100 ms a request, wall time")
    show("ideal of 8 in flight (20 requests)", ideal, "s", kind="floor")

    def made() -> dict[str, Embeddings]:
        own = WorkersAIEmbeddings(model=EMBED_MODEL, account_id="account", api_token="token", base_url=url)
        return {"WorkersAIEmbeddings": own, **rival_embeddings(url)}

    def sync(model: Embeddings) -> float:
        model.embed_query("warm")
        began = time.perf_counter()
        assert len(model.embed_documents(texts)) == len(texts)
        return time.perf_counter() - began

    async def once(name: str) -> float:
        model = made()[name]
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

    value = statistics.median(asyncio.run(raw()) for _ in range(ROUNDS))
    show("raw httpx, 8 in flight", value, "s", value / ideal, kind="floor")
    for name in made():
        rounds = ROUNDS if name == "WorkersAIEmbeddings" else 1
        kind: Kind = "ours" if name == "WorkersAIEmbeddings" else "other"
        value = statistics.median(sync(made()[name]) for _ in range(rounds))
        show(f"{name}: embed_documents", value, "s", value / ideal, kind=kind)
        value = statistics.median(asyncio.run(once(name)) for _ in range(rounds))
        show(f"{name}: aembed_documents", value, "s", value / ideal, kind=kind)


def bench_rerank(url: str) -> None:
    """Measure the CPU time of scoring 100 texts."""
    documents = [Document(f"text number {number}") for number in range(100)]
    http, target = httpx.Client(), f"{url}/accounts/account/ai/run/{RERANK_MODEL}"
    body = {"query": PROMPT, "contexts": [{"text": document.page_content} for document in documents], "top_k": 100}
    ours = WorkersAIRerank(account_id="account", api_token="token", base_url=url, top_n=100)
    works: dict[str, Callable[[], object]] = {
        "floor": lambda: json.loads(http.post(target, json=body).content),
        "WorkersAIRerank": lambda: ours.compress_documents(documents, PROMPT),
    }
    with suppress(ImportError):
        from langchain_cloudflare import CloudflareWorkersAIReranker

        theirs = CloudflareWorkersAIReranker(
            model_name=RERANK_MODEL, account_id="account", api_token="token", api_base_url=f"{url}/accounts"
        )
        works["langchain-cloudflare"] = lambda: theirs.compress_documents(documents, PROMPT)
    found = interleaved(works, 20)
    floor = found.pop("floor")
    section("LangChain: rerank 100 texts, CPU per call")
    show("floor: raw httpx", floor, "ms", kind="floor")
    show_against(found, "ms", floor=floor)


def bench_abatch(url: str) -> None:
    """Measure the wall time of 400 prompts, 100 at a time, 100 ms each."""
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

    async def batch(name: str) -> float:
        model = {"ChatWorkersAI": ours(url), **rivals(url)}[name]
        await model.ainvoke(PROMPT)
        began = time.perf_counter()
        await model.abatch(prompts, config={"max_concurrency": 100})
        return time.perf_counter() - began

    names = ["ChatWorkersAI", *rivals(url)]
    samples: dict[str, list[float]] = {name: [] for name in ("floor", *names)}
    gc.collect()
    gc.freeze()  # a program has no objects of earlier measurements, which a collection would scan

    async def rounds() -> None:  # on one event loop, because langchain-openai reuses a client in the next loop
        for _ in range(ROUNDS):
            samples["floor"].append(await raw())
            for name in names:
                samples[name].append(await batch(name))

    asyncio.run(rounds())
    found = {name: statistics.median(values) for name, values in samples.items()}
    floor = found.pop("floor")
    section("LangChain: abatch of 400 prompts, 100 at a time, 100 ms each, wall time")
    show("floor: raw httpx", floor, "s", kind="floor")
    show_against(found, "s", floor=floor)


def bench_conversation(url: str) -> None:
    """Measure the CPU time of one call by the length of the conversation."""
    http, target = httpx.Client(), f"{url}/accounts/account/ai/v1/chat/completions"
    model = ours(url)
    section("Growth: invoke, CPU per call by messages in the conversation")
    for size in (1, 10, 100, 1000):
        sent = [{"role": ("user", "assistant")[index % 2], "content": f"{index} {PROMPT}"} for index in range(size)]
        messages = [(HumanMessage, AIMessage)[index % 2](f"{index} {PROMPT}") for index in range(size)]
        works: dict[str, Callable[[], object]] = {
            "raw httpx": lambda sent=sent: json.loads(http.post(target, json={**BODY, "messages": sent}).content),
            "ChatWorkersAI": lambda messages=messages: model.invoke(messages),
        }
        found = interleaved(works, max(5, 200 // size))
        for name, value in found.items():
            kind: Kind = "ours" if name == "ChatWorkersAI" else "floor"
            show(name, value, "ms", value / found["raw httpx"], kind=kind, size=size)


def bench_import() -> None:
    """Measure the CPU time of the import above that of the required parts of langchain-core."""
    base = "import langchain_core.language_models.chat_models, langchain_core.embeddings"
    section("LangChain: import over langchain-core's chat models and embeddings, CPU")
    for name, statement in {
        "ChatWorkersAI": "from langchain_workers_ai import ChatWorkersAI",
        "langchain-cloudflare": "from langchain_cloudflare import ChatCloudflareWorkersAI",
        "langchain-openai": "from langchain_openai import ChatOpenAI",
    }.items():
        with suppress(CalledProcessError):  # not installed
            show_against({name: import_ms(base, statement)}, "ms", floor=None)


def bench_construction(url: str) -> None:
    """Measure the wall time of a second object."""
    models = {"ChatWorkersAI": lambda: ours(url)}
    section("LangChain: a further chat model object, CPU")
    show_against(interleaved(models, 50), "ms", floor=None)


def main() -> None:
    """Run all benchmarks."""
    with canned_server() as url:
        bench_invoke(url)
        bench_stream(url)
        bench_astream(url)
        bench_rerank(url)
        bench_conversation(url)
        bench_construction(url)
    with canned_server(latency_s=0.1) as url:
        bench_embeddings(url)
        bench_abatch(url)
    bench_import()


if __name__ == "__main__":
    main()
