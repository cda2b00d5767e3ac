"""Generation in processes that are killed, and in two processes at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.benchmarks import killing

from workers_ai.generation import Answers
from workers_ai_emulator import Emulator, QueueSettings


@pytest.mark.parametrize(("mode", "window"), [("queue", 10), ("direct", 4)])
def test_a_killed_run_continues_and_repeats_at_most_one_submission(tmp_path: Path, mode: str, window: int) -> None:
    outcome = killing.killed_generation(tmp_path, kills=1, inputs=80, per_job=10, mode=mode, concurrency=4, seed=5)
    assert (outcome.kills, outcome.vectors, outcome.held) == (1, 80, 80)
    assert 0 <= outcome.repeated <= window


def test_two_processes_send_no_input_twice(tmp_path: Path) -> None:
    emulator, ledger = Emulator(queue=QueueSettings("never")), tmp_path / "shared.ledger"
    with emulator.serve() as url:
        both = [killing.generating(url, ledger, 140, 2, 2) for _ in range(2)]
        while emulator.queue.submitted <= 64 and not any(process.poll() for process in both):
            threading.Event().wait(0.01)
        emulator.queue.settings.progress = "at_once"
        results = [process.communicate() for process in both]
    assert [(process.returncode, err) for process, (_, err) in zip(both, results, strict=True)] == [(0, "")] * 2
    counts = [[int(part) for part in out.split()] for out, _ in results]
    assert sum(answered for answered, _, _ in counts) == 140
    assert all(answered + reused == answers == 140 for answered, reused, answers in counts)
    sent = [request["messages"][-1]["content"] for job in emulator.queue.jobs for request in job.requests]
    assert len(sent) == len(set(sent)) == 140
    Answers(ledger).close()
