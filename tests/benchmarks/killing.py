"""An ingestion in a process of its own that is killed at random moments and begun again, until it is through."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from workers_ai.ingest import Ledger
from workers_ai_emulator import Emulator, QueueSettings

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


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        kills: How often the process was killed while it was at work.
        vectors: Documents that had their vector at the end.
        held: Vectors in the ledger.
        submissions: Submissions that the queue took.
        repeated: Texts that were taken for embedding again.
    """

    kills: int
    vectors: int
    held: int
    submissions: int
    repeated: int


def child(url: str, ledger: Path, texts: int, per_job: int, concurrency: int) -> subprocess.Popen[str]:
    """Begin, or go on with, an ingestion; prints embedded, reused, and the number of vectors."""
    arguments = [url, ledger, MODEL, texts, per_job, concurrency]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def killed(home: Path, *, kills: int, texts: int, per_job: int, concurrency: int, polls: int, seed: int) -> Outcome:
    """Ingest ``texts`` texts with so many kills in between, each some random number of requests after the last one."""
    emulator, chance, ledger = Emulator(queue=QueueSettings(polls=polls)), random.Random(seed), home / "killed.ledger"
    requests = (2 + polls) * texts // per_job
    done = 0
    with emulator.serve() as url:
        while True:
            process = child(url, ledger, texts, per_job, concurrency)
            if done < kills:
                until = emulator.log.requests + chance.randint(1, max(1, requests // (2 * kills)))
                while process.poll() is None and emulator.log.requests < until:
                    threading.Event().wait(0.001)
                threading.Event().wait(chance.random() * 0.02)
                done += process.poll() is None
                process.kill()
            out, err = process.communicate()
            if process.returncode == 0:
                break
            if process.returncode > 0:
                raise RuntimeError(err)
    with contextlib.closing(Ledger(ledger)) as held:
        vectors = held.counts()["vectors"]
    log = emulator.log
    return Outcome(done, int(out.split()[2]), vectors, emulator.queue.submitted, log.texts_repeated)
