"""A substitute for ``env.AI`` according to its documentation. The emulator answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from workers_ai_emulator import Clock, Emulator

ROOT = "https://api.cloudflare.com/client/v4/accounts/0123456789abcdef0123456789abcdef/ai"


class InferenceUpstreamError(Exception):
    """The error that ``run`` throws. It has only a text."""


class Reader:
    """The reader of ``ReadableStream.getReader()``."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._error: Exception | None = None
        self.cancelled = False

    async def read(self) -> SimpleNamespace:
        try:
            async for chunk in self._chunks:
                return SimpleNamespace(done=False, value=chunk)
        except Exception as exc:
            self._error = exc
            raise
        return SimpleNamespace(done=True, value=None)

    async def cancel(self) -> None:
        """Cancel the stream. A failed stream raises its error again."""
        if self._error:
            raise self._error
        self.cancelled = True


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 7):
        yield content[start : start + 7]


class FakeAI:
    """``env.AI``: asynchronous, options in the third argument, errors thrown as text.

    With ``stream`` the answer is a stream, also for a model without streams. With ``returnRawResponse`` it is a
    ``Response``, also for errors.

    Args:
        emulator: Answers the calls.
    """

    def __init__(self, emulator: Emulator) -> None:
        self.calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.readers: list[Reader] = []
        self._http = httpx.AsyncClient(transport=emulator.transport(), headers={"authorization": "Bearer worker"})

    async def run(self, model: str, inputs: dict[str, Any], options: dict[str, Any] | None = None) -> Any:
        """Run one call. ``options`` among the inputs have no effect, as documented."""
        inputs, options = json.loads(json.dumps(inputs)), json.loads(json.dumps(options or {}))
        self.calls.append((model, inputs, options))
        body = {name: value for name, value in inputs.items() if name != "options"}
        if "rejectIfBusy" in options:
            body["options"] = {"rejectIfBusy": options["rejectIfBusy"]}
        queued = "request_id" in inputs or options.get("queueRequest")
        request = self._http.build_request(
            "POST",
            f"{ROOT}/run/{model}{'?queueRequest=true' if queued else ''}",
            json=body,
            headers=options.get("extraHeaders"),
        )
        response = await self._http.send(request, stream=True)
        if response.is_success and "event-stream" in response.headers["content-type"]:
            return self._streamed(response, response.aiter_bytes(), options)
        envelope = json.loads(await response.aread())
        if response.is_success and not inputs.get("stream") and not options.get("returnRawResponse"):
            return envelope["result"]
        refusal = envelope["errors"][0] if response.is_error else {}
        if refusal and not options.get("returnRawResponse"):
            raise InferenceUpstreamError(f"{refusal['code']}: {refusal['message']}")
        inner = {"internalCode": refusal["code"], "message": refusal["message"]} if refusal else envelope["result"]
        return self._streamed(response, _pieces(json.dumps(inner).encode()), options)

    def raw(self) -> SimpleNamespace:
        """Return the same binding with ``Response`` objects as results."""
        return SimpleNamespace(
            run=lambda model, inputs, options: self.run(model, inputs, {**options, "returnRawResponse": True})
        )

    def _streamed(self, response: httpx.Response, chunks: AsyncIterator[bytes], options: dict[str, Any]) -> Any:
        reader = Reader(chunks)
        self.readers.append(reader)
        body = SimpleNamespace(getReader=lambda: reader)
        if not options.get("returnRawResponse"):
            return body
        headers = SimpleNamespace(entries=lambda: list(response.headers.items()))
        return SimpleNamespace(status=response.status_code, headers=headers, body=body, arrayBuffer=None)

    async def models(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the list of models, without an envelope."""
        response = await self._http.get(f"{ROOT}/models/search", params=params)
        return response.json()["result"]


@pytest.fixture
def emulator() -> Emulator:
    """Return a service that never sleeps."""
    return Emulator(clock=Clock("jump"))


@pytest.fixture
def env_ai(emulator: Emulator) -> FakeAI:
    """Return the binding of a Worker to this service."""
    return FakeAI(emulator)


class Scripted:
    """A binding with scripted answers and errors.

    Args:
        answer: Called with the three arguments; may be a coroutine function.
    """

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer

    async def run(self, *arguments: Any) -> Any:
        """Return the result of one call."""
        outcome = self._answer(*arguments)
        return await outcome if hasattr(outcome, "__await__") else outcome


@pytest.fixture
def scripted() -> Callable[[Callable[..., Any]], Scripted]:
    """Return a function that creates a binding from a function."""
    return Scripted


@pytest.fixture
def thrown() -> type[Exception]:
    """Return the class of errors that ``run`` throws."""
    return InferenceUpstreamError


@pytest.fixture
def reader() -> type[Reader]:
    """Return the class that reads streams."""
    return Reader
