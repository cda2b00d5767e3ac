"""Measure the core client and the official SDKs on the same server.

uv run python tests/benchmarks/bench_clients.py
"""

from __future__ import annotations

import json
from collections.abc import Callable

import cloudflare
import httpx
import openai
from canned import CHUNKS, canned_server
from measure import import_ms, interleaved, section, show, show_against

from workers_ai import Client

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EMBED_MODEL = "@cf/baai/bge-large-en-v1.5"
RERANK_MODEL = "@cf/baai/bge-reranker-base"
QUESTION = "What is the capital of Norway?"
MESSAGES = [{"role": "user", "content": QUESTION}]
TEXTS = [f"text number {number}" for number in range(100)]


class Clients:
    """The clients of all packages on one server."""

    def __init__(self, url: str) -> None:
        self.root = f"{url}/accounts/account/ai"
        self.http = httpx.Client(headers={"authorization": "Bearer token"})
        self.ours = Client(account_id="account", api_token="token", base_url=url)
        self.openai = openai.OpenAI(api_key="token", base_url=f"{self.root}/v1")
        self.cloudflare = cloudflare.Cloudflare(api_token="token", base_url=url)

    def post(self, path: str, body: object) -> object:
        """Send a request with raw httpx."""
        return json.loads(self.http.post(f"{self.root}/{path}", json=body).content)

    def raw_stream(self) -> None:
        """Read a stream with raw httpx."""
        body = {"model": MODEL, "messages": MESSAGES, "stream": True}
        with self.http.stream("POST", f"{self.root}/v1/chat/completions", json=body) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    json.loads(line[6:])


def compare(title: str, works: dict[str, Callable[[], object]], times: int) -> None:
    """Show the CPU of one call of each package."""
    found = interleaved(works, times)
    floor = found.pop("raw httpx")
    section(f"Clients: {title}, CPU per call")
    show("floor: raw httpx", floor, "ms", kind="floor")
    show_against(found, "ms", floor=floor)


def bench_calls(url: str) -> None:
    """Compare chat, streams, embeddings and reranking."""
    on = Clients(url)
    compare(
        "chat",
        {
            "raw httpx": lambda: on.post("v1/chat/completions", {"model": MODEL, "messages": MESSAGES}),
            "Client": lambda: on.ours.chat(MODEL, MESSAGES),
            "openai": lambda: on.openai.chat.completions.create(model=MODEL, messages=MESSAGES),
            "cloudflare": lambda: on.cloudflare.ai.run(MODEL, account_id="account", messages=MESSAGES),
        },
        50,
    )
    compare(
        f"stream of {CHUNKS} pieces",
        {
            "raw httpx": on.raw_stream,
            "Client": lambda: list(on.ours.stream_chat(MODEL, MESSAGES)),
            "openai": lambda: list(on.openai.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)),
        },
        3,
    )
    compare(
        "embed 100 texts",
        {
            "raw httpx": lambda: on.post(f"run/{EMBED_MODEL}", {"text": TEXTS}),
            "Client": lambda: on.ours.embed(EMBED_MODEL, TEXTS),
            "openai": lambda: on.openai.embeddings.create(model=EMBED_MODEL, input=TEXTS, encoding_format="float"),
            "cloudflare": lambda: on.cloudflare.ai.run(EMBED_MODEL, account_id="account", text=TEXTS),
        },
        3,
    )
    contexts = [{"text": text} for text in TEXTS]
    compare(
        "rerank 100 texts",
        {
            "raw httpx": lambda: on.post(f"run/{RERANK_MODEL}", {"query": QUESTION, "contexts": contexts}),
            "Client": lambda: on.ours.rerank(RERANK_MODEL, QUESTION, TEXTS),
            "cloudflare": lambda: on.cloudflare.ai.run(
                RERANK_MODEL, account_id="account", extra_body={"query": QUESTION, "contexts": contexts}
            ),
        },
        20,
    )


def bench_import() -> None:
    """Measure the CPU time of the imports."""
    section("Clients: import, CPU")
    show_against(
        {
            "Client": import_ms("pass", "from workers_ai import Client"),
            "openai": import_ms("pass", "from openai import OpenAI"),
            "cloudflare": import_ms("pass", "from cloudflare import Cloudflare"),
        },
        "ms",
        floor=None,
    )


def main() -> None:
    """Run all benchmarks."""
    with canned_server() as url:
        bench_calls(url)
    bench_import()


if __name__ == "__main__":
    main()
