"""Send hundreds of calls to a service that fails in every way, at random from a seed.

Every call ends with the correct value or a typed error. No call waits for an exhausted allocation.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
from tests.core.virtual_time import EmulatorClock, VirtualTime

from workers_ai import AsyncClient, Client, RetryEvent
from workers_ai import errors as e
from workers_ai_emulator import Emulator, Fault

LLAMA, GEMMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast", "@cf/google/gemma-4-26b-a4b-it"
BGE, RERANKER = "@cf/baai/bge-small-en-v1.5", "@cf/baai/bge-reranker-base"
KINDS = ("chat", "stream", "embed", "rerank")
CALLS, THREADS, LOOPS = 400, 20, 4
TIMEOUT_S = 30.0

TEMPORARY = (e.CapacityError, e.RateLimitError, e.InternalServerError, e.APIConnectionError, e.RequestTimeoutError)
FAULTS = [
    ("busy", 0.05, Fault.busy),
    ("minute", 0.02, lambda **where: Fault.error(429, 3021, "per min rate reached", **where)),
    ("broken", 0.04, lambda **where: Fault.error(500, 3043, "Internal server error", **where)),
    ("edge", 0.02, lambda **where: Fault.html(522, **where)),
    ("dropped", 0.04, Fault.drop),
    ("timeout", 0.02, lambda **where: Fault.error(408, 3007, "Request timeout", **where)),
    ("slow", 0.05, lambda **where: Fault.slow(0.2, **where)),
    ("too slow", 0.02, lambda **where: Fault.slow(2 * TIMEOUT_S, **where)),
    ("bytes", 0.09, lambda **where: Fault("one_byte_chunks", stream=True, **where)),
    ("cut", 0.09, lambda **where: Fault.cut(2, **where)),
    ("torn", 0.09, lambda **where: Fault.cut(2, abrupt=True, **where)),
    ("frame", 0.09, lambda **where: Fault.error_frame(3043, "Internal server error", 2, **where)),
    ("quota", 0.02, lambda **where: Fault.error(429, 4006, "daily free allocation used up", **where)),
]


class RandomCall(NamedTuple):
    """A call. Its number determines all of its properties."""

    number: int

    @property
    def kind(self) -> str:
        return KINDS[self.number % len(KINDS)]

    @property
    def sentence(self) -> str:
        """Return the correct answer."""
        return f"The code of parcel {self.number} is K{self.number:04}X."

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the client's method."""
        if self.kind == "embed":
            return BGE, [self.sentence, f"Something else about {self.number}."]
        if self.kind == "rerank":
            return RERANKER, f"parcel K{self.number:04}X", ["nothing at all", self.sentence]
        question = f"Context:\n{self.sentence}\n\nQuestion: What is the code of parcel {self.number}?"
        return (LLAMA, GEMMA)[self.number % 3 == 0], [{"role": "user", "content": question}]


def right(call: RandomCall, value: Any, vectors: Callable[[list[str]], list[list[float]]]) -> bool:
    """Return whether a value is correct."""
    if call.kind == "embed":
        return value == vectors(call.arguments()[1])
    return value == ([1, 0] if call.kind == "rerank" else call.sentence)


def ask(client: Client, call: RandomCall) -> Any:
    try:
        if call.kind == "stream":
            return "".join(piece.text for piece in client.stream_chat(*call.arguments()))
        return reduced(call, getattr(client, call.kind)(*call.arguments()))
    except Exception as exc:  # noqa: BLE001 - checked below
        return exc


async def aask(client: AsyncClient, call: RandomCall) -> Any:
    try:
        if call.kind == "stream":
            return "".join([piece.text async for piece in client.stream_chat(*call.arguments())])
        return reduced(call, await getattr(client, call.kind)(*call.arguments()))
    except Exception as exc:  # noqa: BLE001 - checked below
        return exc


def reduced(call: RandomCall, reply: Any) -> Any:
    """Return the value of a reply."""
    if call.kind == "embed":
        return reply.vectors
    return [one.index for one in reply] if call.kind == "rerank" else reply.text


def expected_vectors() -> Callable[[list[str]], list[list[float]]]:
    """Return vectors from an emulator that never fails, without the client."""
    plain = httpx.Client(transport=Emulator().transport(), headers={"authorization": "Bearer any"})
    url = f"https://api.cloudflare.com/client/v4/accounts/acct/ai/run/{BGE}"
    return lambda texts: plain.post(url, json={"text": texts}).json()["result"]["data"]


class Run:
    """The calls, in threads and on event loops, and all waits."""

    def __init__(self, virtual: VirtualTime, seed: int, account: dict[str, Any]) -> None:
        self.virtual = virtual
        self.emulator = Emulator(clock=EmulatorClock(virtual), seed=seed, latency_s=0.05)
        self.faults = {
            name: self.emulator.faults.add(make(probability=chance, times=None)) for name, chance, make in FAULTS
        }
        self.waits: list[RetryEvent] = []
        self.answers: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._settings = {**account, "timeout": TIMEOUT_S, "on_retry": self.waits.append}

    def go(self) -> None:
        half = CALLS // 2
        jobs = [lambda first=first: self._blocking(range(first, half, THREADS)) for first in range(THREADS)]
        jobs += [
            self.virtual.awaiting(lambda first=first: self._awaiting(range(half + first, CALLS, LOOPS)))
            for first in range(LOOPS)
        ]
        assert [result for result in self.virtual.run(jobs) if result is not None] == []

    def _blocking(self, numbers: range) -> None:
        client = Client(**self._settings, http_client=httpx.Client(transport=self.emulator.transport()))
        client._connection.calls.clock = self.virtual.now
        for number in numbers:
            self.answers[number] = ask(client, RandomCall(number))

    async def _awaiting(self, numbers: range) -> None:
        client = AsyncClient(**self._settings, http_async_client=httpx.AsyncClient(transport=self.emulator.transport()))
        client._connection.calls.clock = self.virtual.now
        answers = await asyncio.gather(*(aask(client, RandomCall(number)) for number in numbers))
        self.answers.update(zip(numbers, answers, strict=True))


def test_each_of_many_calls_returns_the_right_value_or_raises_a_typed_error(
    virtual: VirtualTime, account: dict[str, Any]
) -> None:
    run, vectors = Run(virtual, 1, account), expected_vectors()
    run.go()

    assert {name: fault.applied > 0 for name, fault in run.faults.items()} == dict.fromkeys(run.faults, True)
    assert sorted(run.answers) == list(range(CALLS))
    outcomes = Counter[str]()
    for number, answer in run.answers.items():
        call = RandomCall(number)
        if not isinstance(answer, Exception):
            assert right(call, answer, vectors), f"{call}: {answer}"
            outcomes["right"] += 1
            continue
        assert isinstance(answer, e.WorkersAIError), repr(answer)
        assert answer.model == call.arguments()[0]
        outcomes[type(answer).__name__] += 1
        assert call.sentence.startswith(answer.partial)
        if isinstance(answer, e.QuotaExhaustedError):
            assert answer.resets_at is not None
        elif call.kind != "stream":  # a started stream is not retried
            assert isinstance(answer, TEMPORARY), repr(answer)
            assert answer.attempts == 3
    assert outcomes["right"] >= 0.85 * CALLS, outcomes
    assert [event for event in run.waits if isinstance(event.error, e.QuotaExhaustedError)] == []
    assert [event for event in run.waits if not event.error.is_retryable] == []
    assert max(event.wait_s for event in run.waits) <= 60.0
