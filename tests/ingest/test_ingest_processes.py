"""Real processes with one ledger: killed, concurrent, interrupted, and on a full disk."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.benchmarks import killing
from typer.testing import CliRunner, Result

from workers_ai.cli._app import app
from workers_ai.ledger._ledger import Ledger
from workers_ai_emulator import Emulator

MODEL = "@cf/baai/bge-small-en-v1.5"
COMMAND = [sys.executable, "-c", "from workers_ai.cli import main; main()"]


def test_a_kill_at_a_random_moment_loses_nothing_and_repeats_little(tmp_path: Path) -> None:
    """Only the submission that was being sent during the kill can be repeated."""
    outcome = killing.killed(tmp_path, kills=1, texts=200, per_job=25, concurrency=8, polls=1, seed=7)
    assert outcome.kills == 1
    assert (outcome.vectors, outcome.held) == (200, 200)
    assert outcome.repeated <= 25
    assert outcome.submissions <= 8 + 1


def test_two_processes_with_kills_a_jumping_clock_and_an_outage_lose_nothing(tmp_path: Path) -> None:
    """The short form of ``python tests/benchmarks/killing.py``, in virtual time that is 100 times as fast."""
    outcome = killing.ingest_with_faults(
        tmp_path, kills=3, texts=500, per_job=50, processes=2, seed=3, speed=100.0, outage_s=150.0
    )
    assert outcome.kills == 3
    assert (outcome.vectors, outcome.held) == (500, 500)
    assert outcome.repeated <= 3 * 50
    assert all(error.startswith("workers_ai.errors.") for error in outcome.ended)


def test_two_processes_share_the_work_of_one_ledger(emulator: Emulator, ledger: Path) -> None:
    """One process has at most 64 submissions in the queue. They do not finish until the other process sends, too."""
    emulator.queue.settings.progress = "never"
    with emulator.serve() as url:
        both = [killing.child(url, ledger, 140, 2, 2) for _ in range(2)]
        while emulator.queue.submitted <= 64 and not any(process.poll() for process in both):
            threading.Event().wait(0.01)
        emulator.queue.settings.progress = "at_once"
        results = [process.communicate() for process in both]
    assert [(process.returncode, err) for process, (_, err) in zip(both, results, strict=True)] == [(0, "")] * 2
    counts = [[int(part) for part in out.split()] for out, _ in results]
    assert sum(embedded for embedded, _, _ in counts) == 140
    assert all(embedded + reused == vectors == 140 for embedded, reused, vectors in counts)
    assert min(embedded for embedded, _, _ in counts) > 0
    assert (emulator.log.texts_embedded, emulator.log.texts_repeated) == (140, 0)


@pytest.fixture
def environment(account: dict[str, Any]) -> dict[str, str]:
    return {"CLOUDFLARE_ACCOUNT_ID": account["account_id"], "CLOUDFLARE_API_TOKEN": account["api_token"]}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_text("\n".join(json.dumps({"id": n, "text": f"text {n}"}) for n in range(2500)))
    return path


def run_here(command: list[str], environment: dict[str, str]) -> Result:
    """Run a command of ``ingesting`` in this process."""
    return CliRunner().invoke(app, command[len(COMMAND) :], env=environment)


def ingesting(docs: Path, url: str, *more: str) -> list[str]:
    output = docs.with_name("v.parquet")
    return [*COMMAND, "ingest", str(docs), str(output), "--model", MODEL, "--base-url", url, *more]


def test_two_processes_with_one_command_both_write_a_complete_file(
    emulator: Emulator, docs: Path, environment: dict[str, str]
) -> None:
    with emulator.serve() as url:
        both = [
            subprocess.Popen(ingesting(docs, url), env=environment, stderr=subprocess.PIPE, text=True, stdout=-3)
            for _ in range(2)
        ]
        ends = [(process.communicate(timeout=110)[1], process.returncode) for process in both]
    assert ends == [("", 0), ("", 0)]
    assert pq.read_table(docs.with_name("v.parquet")).num_rows == 2500
    assert emulator.log.texts_repeated == 0
    assert list(docs.parent.glob("*.part")) == []


def test_ctrl_c_leaves_a_usable_ledger(emulator: Emulator, docs: Path, environment: dict[str, str]) -> None:
    emulator.queue.settings.progress = "never"
    with emulator.serve() as url:
        command = ingesting(docs, url)
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while emulator.queue.submitted < 3 and process.poll() is None:
            threading.Event().wait(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=110)
        assert (process.returncode, out) == (130, "")
        assert err == "workers-ai: interrupted: the same command continues\n"
        with Ledger(docs.with_name("v.parquet.ledger")) as held:
            assert len(held.in_flight()) == 3
        emulator.queue.settings.progress = "at_once"
        again = run_here(command, environment)
    assert (again.exit_code, again.stderr) == (0, "")
    assert pq.read_table(docs.with_name("v.parquet")).num_rows == 2500
    assert (emulator.queue.submitted, emulator.log.texts_repeated) == (3, 0)


def test_ctrl_c_does_not_wait_for_a_hanging_service(
    emulator: Emulator, docs: Path, environment: dict[str, str]
) -> None:
    emulator.settings.latency_s = 600
    with emulator.serve() as url:
        process = subprocess.Popen(ingesting(docs, url), env=environment, stderr=subprocess.PIPE, text=True)
        while not emulator.log.requests and process.poll() is None:
            threading.Event().wait(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=110)
    assert (process.returncode, err) == (130, "workers-ai: interrupted: the same command continues\n")


def test_a_full_disk_prints_one_line_and_loses_nothing(
    emulator: Emulator, docs: Path, environment: dict[str, str]
) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))

    with emulator.serve() as url:
        command = ingesting(docs, url, "--max-concurrency", "1")
        full = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, preexec_fn=small_files
        )
        assert (full.returncode, full.stdout) == (1, "")
        assert full.stderr.startswith("workers-ai: the ledger ")
        assert "run the same call again; what was recorded is kept" in full.stderr
        assert len(full.stderr.splitlines()) == 1
        with Ledger(docs.with_name("v.parquet.ledger")) as held:
            kept = held.counts()["vectors"]
        again = run_here(command, environment)
    assert (again.exit_code, again.stderr) == (0, "")
    assert f"  reused    {kept:,}\n" in again.stdout
    assert emulator.log.texts_repeated <= 1000, "more than the one submission that could not be recorded"
