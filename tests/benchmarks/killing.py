"""Runs in separate processes that are killed at random times and restarted until they finish."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workers_ai.ledger._ledger import Ledger
from workers_ai_emulator import Emulator, Fault, QueueSettings

MODEL = "@cf/baai/bge-small-en-v1.5"

CHILD = """
import sys
from workers_ai.ingest import ingest
url, ledger, model, texts, per_job, concurrency = sys.argv[1:]
report = ingest(
    ((n, f"text number {n}") for n in range(int(texts))), ledger=ledger, model=model, base_url=url,
    account_id="account", api_token="token", max_concurrency=int(concurrency), texts_per_job=int(per_job),
    progress=False, raise_on_failure=True,
)
print(report.embedded, report.reused, sum(1 for _ in report.vectors()))
"""

GENERATE = """
import sys
from workers_ai.generation import generate
url, ledger, model, inputs, per_job, concurrency, mode = sys.argv[1:]
report = generate(
    ((n, f"question number {n}") for n in range(int(inputs))), ledger=ledger, model=model, base_url=url,
    account_id="account", api_token="token", max_concurrency=int(concurrency), requests_per_job=int(per_job),
    mode=mode, max_tokens=64, progress=False, raise_on_failure=True,
)
print(report.answered, report.reused, sum(answer.text is not None for answer in report.answers()))
"""

CHAT_MODEL = "@cf/qwen/qwen3-30b-a3b-fp8"


VIRTUAL = """
import os, threading, time
from workers_ai.ledger._store import schema
real, sleep, began = time.monotonic, time.sleep, time.monotonic()
speed = float(os.environ["SPEED"])
wall = time.time
def jumped():
    with open(os.environ["JUMP"]) as file:
        return float(file.read() or 0)
time.monotonic = lambda: began + (real() - began) * speed
time.sleep = lambda seconds: sleep(seconds / speed)
time.time = lambda: wall() + jumped()
wait = threading.Event.wait
threading.Event.wait = lambda self, timeout=None: wait(self, None if timeout is None else timeout / speed)
schema._BUSY_S *= speed
"""
"""Code before CHILD. Time passes ``SPEED`` times as fast, and the clock is shifted by the seconds in the file ``JUMP``.

The wait for a ledger that another process creates stays as long as it is: that process works in real time.
"""


@dataclass
class Outcome:
    """The outcome of a run with kills.

    Attributes:
        kills: Kills of a running process.
        vectors: Inputs with a result at the end.
        held: Number of results in the ledger.
        submissions: Submissions that the queue accepted.
        repeated: Inputs that were accepted again.
    """

    kills: int
    vectors: int
    held: int
    submissions: int
    repeated: int


@dataclass
class FaultOutcome(Outcome):
    """The outcome of a run with several processes, a jumping clock and an outage.

    Attributes:
        ended: Distinct errors of processes that ended without a kill.
        seconds: Duration of the run.
    """

    ended: set[str]
    seconds: float


def child(url: str, ledger: Path, texts: int, per_job: int, concurrency: int) -> subprocess.Popen[str]:
    """Start or continue an ingestion. It prints the numbers of embedded texts, reused texts and vectors."""
    arguments = [url, ledger, MODEL, texts, per_job, concurrency]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _run_and_kill(
    start: Callable[[], subprocess.Popen[str]], emulator: Emulator, kills: int, requests: int, seed: int
) -> tuple[int, str]:
    """Start a process repeatedly and kill it ``kills`` times. Return the number of kills and the last output.

    Args:
        start: Starts the process, which continues the work.
        emulator: The emulator that the process calls.
        kills: Maximum number of kills.
        requests: Requests of the whole work. A kill follows after a random share of them.
        seed: Seed of the random numbers.
    """
    chance, done = random.Random(seed), 0
    while True:
        process = start()
        if done < kills:
            until = emulator.log.requests + chance.randint(1, max(1, requests // (2 * kills)))
            while process.poll() is None and emulator.log.requests < until:
                threading.Event().wait(0.001)
            threading.Event().wait(chance.random() * 0.02)
            done += process.poll() is None
            process.kill()
        out, err = process.communicate()
        if process.returncode == 0:
            return done, out
        if process.returncode > 0:
            raise RuntimeError(err)


def killed(home: Path, *, kills: int, texts: int, per_job: int, concurrency: int, polls: int, seed: int) -> Outcome:
    """Ingest ``texts`` texts with ``kills`` kills. Each kill follows the last one after a random number of requests."""
    emulator, ledger = Emulator(queue=QueueSettings(polls=polls)), home / "killed.ledger"
    requests = (2 + polls) * texts // per_job
    with emulator.serve() as url:
        done, out = _run_and_kill(
            lambda: child(url, ledger, texts, per_job, concurrency), emulator, kills, requests, seed
        )
    with contextlib.closing(Ledger(ledger)) as held:
        vectors = held.counts()["vectors"]
    log = emulator.log
    return Outcome(done, int(out.split()[2]), vectors, emulator.queue.submitted, log.texts_repeated)


def generating(
    url: str, ledger: Path, inputs: int, per_job: int, concurrency: int, mode: str = "queue"
) -> subprocess.Popen[str]:
    """Start or continue a generation. It prints the numbers of answered inputs, reused inputs and answers."""
    arguments = [url, ledger, CHAT_MODEL, inputs, per_job, concurrency, mode]
    return subprocess.Popen(
        [sys.executable, "-c", GENERATE, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed_generation(
    home: Path, *, kills: int, inputs: int, per_job: int, mode: str = "queue", concurrency: int = 8, seed: int = 1
) -> Outcome:
    """Generate answers with ``kills`` kills. Count repeated inputs at the emulator."""
    emulator, ledger = Emulator(queue=QueueSettings(polls=1)), home / "answers.ledger"
    requests = 3 * inputs // per_job if mode == "queue" else inputs
    with emulator.serve() as url:
        done, out = _run_and_kill(
            lambda: generating(url, ledger, inputs, per_job, concurrency, mode), emulator, kills, requests, seed
        )
    with contextlib.closing(Ledger(ledger)) as held:
        answers = held.counts()["answers"]
    if mode == "direct":
        repeated = emulator.log.requests - inputs
    else:
        sent = [request["messages"][-1]["content"] for job in emulator.queue.jobs for request in job.requests]
        repeated = len(sent) - len(set(sent))
    return Outcome(done, int(out.split()[2]), answers, emulator.queue.submitted, repeated)


def ingest_with_faults(
    home: Path, *, kills: int, texts: int, per_job: int, processes: int, seed: int, speed: float = 200.0,
    outage_s: float = 600.0,
) -> FaultOutcome:  # fmt: skip
    """Ingest with several processes, kills, a clock that jumps by a day, and an outage of ten minutes."""
    emulator, chance, ledger = (
        Emulator(queue=QueueSettings(polls=2)),
        random.Random(seed),
        home / "ingest_with_faults.ledger",
    )
    jump = home / "jump"
    jump.write_text("0")
    environment = {**os.environ, "SPEED": str(speed), "JUMP": str(jump)}
    done, out, ended, began = 0, "", set(), time.monotonic()

    with emulator.serve() as url:

        def begin() -> subprocess.Popen[str]:
            arguments = map(str, (url, ledger, MODEL, texts, per_job, 3))
            return subprocess.Popen(
                [sys.executable, "-c", VIRTUAL + CHILD, *arguments], env=environment, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip

        was_down = False
        running = [begin() for _ in range(processes)]
        while running:
            if done < kills:
                until = emulator.log.requests + chance.randint(1, max(1, 3 * texts // per_job // (2 * kills)))
                stop = time.monotonic() + 5
                while emulator.log.requests < until and time.monotonic() < stop:
                    threading.Event().wait(0.002)
                victim = running[chance.randrange(len(running))]
                done += victim.poll() is None
                victim.kill()
                if done == kills // 2:
                    jump.write_text("86400")
                if done == kills // 2 + 1 and not was_down:
                    was_down = True
                    emulator.faults.add(Fault.html(502, times=None))
                    threading.Event().wait(outage_s / speed)
                    emulator.faults.clear()
            for place, process in enumerate(running):
                if done < kills and process.poll() is None:
                    continue
                out, err = process.communicate()
                if process.returncode > 0:
                    ended.add(err.strip().splitlines()[-1])
                running[place] = begin() if process.returncode or done < kills else process
            running = [process for process in running if process.returncode != 0 or done < kills]
    with contextlib.closing(Ledger(ledger)) as held:
        vectors = held.counts()["vectors"]
    log = emulator.log
    return FaultOutcome(
        done, int(out.split()[2]), vectors, emulator.queue.submitted, log.texts_repeated, ended,
        time.monotonic() - began,
    )  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(
            ingest_with_faults(
                Path(folder),
                kills=20,
                texts=50_000,
                per_job=500,
                processes=3,
                seed=int(sys.argv[1]) if sys.argv[1:] else 1,
            )
        )
