"""AsyncClient.queued: single awaits share submissions of the asynchronous queue."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.extractors import KeywordExtractor, QuestionsAnsweredExtractor, SummaryExtractor
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.rate_limiter import TokenBucketRateLimiter
from llama_index.core.schema import TextNode
from llama_index.llms.workers_ai import WorkersAI
from tests.support import wired

from workers_ai import AsyncClient
from workers_ai.errors import BatchItemError, ConfigurationError, QuotaExhaustedError
from workers_ai_emulator import Emulator, Fault, QueueSettings
from workers_ai_emulator.state.queue import ItemFailure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from workers_ai.generation import QueuedClient

MODEL = "@cf/qwen/qwen3-30b-a3b-fp8"


@pytest.fixture
def emulator() -> Emulator:
    """Return a service whose batches are complete at the first poll."""
    return Emulator(queue=QueueSettings("at_once"))


@pytest.fixture
def queued(emulator: Emulator, tmp_path: Path) -> Callable[..., QueuedClient]:
    """Return a function that creates queued clients with one shared ledger."""
    client = AsyncClient(**wired(emulator))
    return lambda **options: client.queued(MODEL, **{"ledger": tmp_path / "ledger", "window_s": 0.05, **options})


def sizes(emulator: Emulator) -> list[int]:
    """Return the number of requests of each submission."""
    bodies = [entry.json for entry in emulator.log.entries if isinstance(entry.json, dict)]
    return [len(body["requests"]) for body in bodies if "requests" in body]


async def ask(client: QueuedClient, number: int, **options: Any) -> str:
    return (await client.chat(MODEL, [{"role": "user", "content": f"Number {number}."}], **options)).text


def ask_all(client: QueuedClient, count: int, **options: Any) -> list[Any]:
    async def main() -> list[Any]:
        return await asyncio.gather(
            *(ask(client, number, **options) for number in range(count)), return_exceptions=True
        )

    return asyncio.run(main())


def test_concurrent_chats_share_submissions(queued: Callable[..., QueuedClient], emulator: Emulator) -> None:
    answers = ask_all(queued(max_items=40), 100, max_tokens=64)
    assert sorted(sizes(emulator)) == [20, 40, 40]
    assert all(isinstance(answer, str) and answer for answer in answers)


def test_a_slow_submission_does_not_delay_the_others(queued: Callable[..., QueuedClient], emulator: Emulator) -> None:
    emulator.queue.settings.slow = 1

    async def main() -> int:
        client = queued(max_items=10)
        tasks = [asyncio.create_task(ask(client, number)) for number in range(20)]
        waiting = set(tasks)
        while len(waiting) > 10:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return len(waiting)

    assert asyncio.run(main()) == 10
    assert sizes(emulator) == [10, 10]


def test_equal_chats_are_answered_from_the_ledger(queued: Callable[..., QueuedClient], emulator: Emulator) -> None:
    first = ask_all(queued(), 20)
    sent = emulator.log.requests
    assert ask_all(pickle.loads(pickle.dumps(queued())), 20) == first
    assert emulator.log.requests == sent
    ask_all(queued(), 20, temperature=0.5)
    assert sizes(emulator) == [20, 20]


def test_failed_chat_does_not_affect_the_others(queued: Callable[..., QueuedClient], emulator: Emulator) -> None:
    emulator.queue.settings.failures.append(ItemFailure(contains="Number 3.", message="broken", times=9))
    answers = ask_all(queued(), 12)
    assert [number for number, answer in enumerate(answers) if isinstance(answer, BatchItemError)] == [3]
    assert "broken" in str(answers[3])


def test_error_of_the_run_is_raised_by_each_chat(queued: Callable[..., QueuedClient], emulator: Emulator) -> None:
    emulator.faults.add(Fault.error(429, 4006, "you have used up your daily free allocation", times=1))
    assert {type(answer) for answer in ask_all(queued(), 12)} == {QuotaExhaustedError}
    assert all(isinstance(answer, str) for answer in ask_all(queued(), 12))


def test_close_submits_the_waiting_chats(queued: Callable[..., QueuedClient], emulator: Emulator) -> None:
    async def main() -> list[str]:
        async with queued(window_s=600) as client:
            tasks = [asyncio.create_task(ask(client, number)) for number in range(12)]
            await asyncio.sleep(0)
        return [task.result() for task in tasks]

    assert len(asyncio.run(main())) == 12
    assert sizes(emulator) == [12]


def test_cancelled_chat_is_not_sent_and_does_not_affect_the_others(
    queued: Callable[..., QueuedClient], emulator: Emulator
) -> None:
    async def main() -> list[str]:
        client = queued()
        tasks = [asyncio.create_task(ask(client, number)) for number in range(12)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        return await asyncio.gather(*tasks[1:])

    assert len(asyncio.run(main())) == 11
    assert sizes(emulator) == [11]


def test_small_submissions_warn_once(queued: Callable[..., QueuedClient]) -> None:
    async def main() -> None:
        client = queued(window_s=0)
        for number in range(12):
            await ask(client, number)

    with pytest.warns(UserWarning, match="fewer than 10 requests") as caught:
        asyncio.run(main())
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "@cf/other/model"}, "not to @cf/other/model"),
        ({"extra_body": {"n": 2}}, "must not have n: "),
        ({"temprature": 1}, "temperature"),
    ],
)
def test_invalid_arguments_raise_at_once(
    queued: Callable[..., QueuedClient], emulator: Emulator, options: dict[str, Any], message: str
) -> None:
    given = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], **options}
    with pytest.raises(ConfigurationError, match=message):
        asyncio.run(queued().chat(**given))
    for name, bad in (("max_items", 0), ("window_s", float("nan")), ("deadline_s", -1)):
        with pytest.raises(ConfigurationError, match=f"{name} must be"):
            queued(**{name: bad})
    assert emulator.log.requests == 0


def test_stock_extractors_of_llama_index(emulator: Emulator, tmp_path: Path) -> None:
    limiter = TokenBucketRateLimiter(requests_per_minute=6)
    llm = WorkersAI(**wired(emulator, model=MODEL, rate_limiter=limiter)).queued(
        ledger=tmp_path / "ledger", window_s=0.05
    )
    extractors = [
        kind(llm=llm, num_workers=100, show_progress=False)
        for kind in (SummaryExtractor, KeywordExtractor, QuestionsAnsweredExtractor)
    ]
    nodes = [TextNode(text=f"The ferry number {number} leaves.") for number in range(60)]
    found = IngestionPipeline(transformations=extractors, disable_cache=True).run(nodes=nodes)
    names = {"section_summary", "excerpt_keywords", "questions_this_excerpt_can_answer"}
    assert all(node.metadata.keys() >= names for node in found)
    assert sizes(emulator) == [60, 60, 60]
    assert llm.model_copy()._queued is llm._queued
