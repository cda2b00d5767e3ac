"""The asynchronous queue through ``env.AI``: ``queueRequest`` in the third argument, polls by ``request_id``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from workers_ai import AsyncClient, errors
from workers_ai.batch import BatchJob, chat_inputs, rerank_inputs
from workers_ai.ingest import aingest
from workers_ai_emulator import Fault, ItemFailure

LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
BGE = "@cf/baai/bge-base-en-v1.5"
TEXTS = [f"text number {number}" for number in range(130)]


@pytest.fixture(autouse=True)
def _no_pending_polls(emulator: Any) -> None:
    emulator.queue.settings.progress = "at_once"


def test_a_job_is_submitted_polled_and_collected(env_ai: Any, emulator: Any) -> None:
    async def queue() -> Any:
        batch = AsyncClient(binding=env_ai).batch
        job = await batch.submit(BGE, [{"text": ["a", "b"], "external_reference": "first"}, {"text": ["c"]}])
        return job, await batch.poll(job), await batch.collect(BatchJob(job.request_id, BGE))

    job, status, items = asyncio.run(queue())
    assert env_ai.calls[0] == (
        BGE,
        {"requests": [{"text": ["a", "b"], "external_reference": "first"}, {"text": ["c"]}]},
        {"queueRequest": True},
    )
    assert env_ai.calls[1] == (BGE, {"request_id": job.request_id}, {})
    assert status.state == "done"
    assert [(item.index, item.external_reference, len(item.result["data"])) for item in items] == [
        (0, "first", 2),
        (1, None, 1),
    ]


def test_chat_and_reranking_use_the_queue(env_ai: Any) -> None:
    async def queue() -> list[Any]:
        batch = AsyncClient(binding=env_ai).batch
        answers = await batch.run(LLAMA, [chat_inputs(LLAMA, [{"role": "user", "content": "Hello"}], max_tokens=9)])
        return answers + await batch.run("@cf/baai/bge-m3", [rerank_inputs("orange cloud", ["llama", "a cloud"])])

    answer, ranking = asyncio.run(queue())
    assert answer.result["response"]
    assert len(ranking.result["response"]) == 2


@pytest.mark.parametrize("queue", ["always", "overflow"])
def test_queued_vectors_equal_direct_vectors(env_ai: Any, emulator: Any, queue: Any) -> None:
    client = AsyncClient(binding=env_ai, max_concurrency=1)
    if queue == "overflow":
        emulator.faults.add(Fault.busy(times=1, route="run"))
    queued = asyncio.run(client.embed(BGE, TEXTS, queue=queue)).vectors
    options = [options for _, _, options in env_ai.calls]
    assert {"queueRequest": True} in options
    assert ({"rejectIfBusy": True} in options) == (queue == "overflow")
    assert queued == asyncio.run(client.embed(BGE, TEXTS)).vectors


def test_a_rejected_submission_raises_and_is_not_repeated(scripted: Any, thrown: Any) -> None:
    calls: list[Any] = []

    def lost(*call: Any) -> None:
        calls.append(call)
        raise thrown("Network connection lost.")

    client = AsyncClient(binding=scripted(lost))
    with pytest.raises(errors.InternalServerError, match="Network connection lost"):
        asyncio.run(client.batch.submit(BGE, [{"text": ["a"]}]))
    assert len(calls) == 1  # the submission may have been accepted, so it is not repeated


def test_an_id_that_is_unknown_to_the_queue(env_ai: Any, emulator: Any) -> None:
    emulator.queue.settings.unknown_code = 5004
    with pytest.raises(errors.BatchError, match="is unknown to the asynchronous queue") as caught:
        asyncio.run(AsyncClient(binding=env_ai).batch.collect(BatchJob("00000000-0000-4000-8000-000000000000", BGE)))
    assert caught.value.request_ids == ("00000000-0000-4000-8000-000000000000",)


def test_a_corpus_is_ingested_inside_a_worker(env_ai: Any, emulator: Any, tmp_path: Path) -> None:
    emulator.queue.settings.failures.append(ItemFailure(contains="number 77"))
    client = AsyncClient(binding=env_ai)
    report = asyncio.run(
        aingest(list(enumerate(TEXTS)), client=client, model=BGE, ledger=tmp_path / "ledger", progress=False)
    )
    assert (report.embedded, [failure.id for failure in report.failures]) == (129, [77])
    assert {"rejectIfBusy"} & {name for _, _, options in env_ai.calls for name in options} == set()
