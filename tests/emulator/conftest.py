"""An in-process emulator and an HTTP client; these tests do not use the package's own client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from workers_ai_emulator import Clock, Emulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BASE = "https://api.cloudflare.com/client/v4/accounts/acct"
LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
NATIVE = "@cf/ibm-granite/granite-4.0-h-micro"
GEMMA = "@cf/google/gemma-4-26b-a4b-it"
BGE = "@cf/baai/bge-base-en-v1.5"


class Api:
    """An HTTP client with a method per route."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        headers = {"authorization": "Bearer token"}
        self.http = httpx.Client(transport=emulator.transport(), base_url=BASE, headers=headers, timeout=None)

    def run(self, model: str, body: Any, query: str = "", **options: Any) -> httpx.Response:
        return self.http.post(f"/ai/run/{model}{query}", json=body, **options)

    def chat(self, model: str, messages: Any = "Hello", **body: Any) -> httpx.Response:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.http.post("/ai/v1/chat/completions", json={"model": model, "messages": messages, **body})

    def embed(self, texts: Any, model: str = BGE, **body: Any) -> httpx.Response:
        return self.run(model, {"text": texts, **body})

    def queue(self, model: str, body: Any) -> httpx.Response:
        return self.run(model, body, "?queueRequest=true")


def user(text: str) -> dict[str, Any]:
    """Return a native body with one user turn."""
    return {"messages": [{"role": "user", "content": text}]}


def code_of(reply: httpx.Response) -> tuple[int, int]:
    """Return the status and code of an error response."""
    return reply.status_code, reply.json()["errors"][0]["code"]


def message_of(reply: httpx.Response) -> str:
    """Return the text of an error response."""
    return str(reply.json()["errors"][0]["message"])


def events_of(reply: httpx.Response) -> list[Any]:
    """Return the events of a stream; the end mark is the text ``[DONE]``."""
    data = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line]
    return [item if item == "[DONE]" else json.loads(item) for item in data]


@pytest.fixture
def emulator() -> Emulator:
    return Emulator(clock=Clock("jump"))


@pytest.fixture
def api(emulator: Emulator) -> Iterator[Api]:
    client = Api(emulator)
    yield client
    client.http.close()


@pytest.fixture
def make_api() -> Iterator[Callable[..., Api]]:
    """Return a function that creates an Api with a new emulator."""
    clients: list[Api] = []

    def make(**settings: Any) -> Api:
        clients.append(Api(Emulator(**{"clock": Clock("jump"), **settings})))
        return clients[-1]

    yield make
    for one in clients:
        one.http.close()
