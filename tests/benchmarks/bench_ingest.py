"""Measure ingestion through the queue into Parquet, compared with raw httpx and the same payloads, and with kills.

    uv run python tests/benchmarks/bench_ingest.py                 # 20,000 texts; 5 kills on 2,000 texts
    uv run python tests/benchmarks/bench_ingest.py 100000          # number of texts
    uv run python tests/benchmarks/bench_ingest.py --whole         # 100,000 and 1,000,000; 20 kills on 20,000

Targets: 0.9 of the rate of raw httpx; less than 250 MB above the imports for any number of texts; 1.1 of the time per
text at ten times the texts. With kills, every text has its vector, and texts sent twice are at most one
submission per kill.

The floor submits, polls and parses the same submissions (at most 100,000 texts) one after another with httpx, and
stores nothing. Both run in their own process, against an emulator in another process. Memory is the peak above that of
the imports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from killing import killed
from measure import ENVIRONMENT, peak_mb, section, show
from queue_floor import emulator, run_job

MODEL = "@cf/baai/bge-base-en-v1.5"
TEXTS_PER_JOB, TEXTS_PER_REQUEST = 1000, 100
FLOOR_TEXTS = 100_000
KILLED_PER_JOB, CONCURRENCY = 100, 8
RAW_CPU, OUR_CPU = "raw httpx: CPU per text", "ingest: CPU per text"
OUR_MEMORY = "ingest: peak memory over the imports"
WORDS = (
    "river", "stone", "light", "garden", "winter", "paper", "engine", "silver", "market", "bridge", "island", "copper",
    "violin", "desert", "harbour",
)  # fmt: skip


def corpus(count: int) -> Iterator[tuple[str, str]]:
    """Return different texts of about 300 characters."""
    for number in range(count):
        words = [WORDS[(number >> shift) % len(WORDS)] for shift in range(40)]
        yield f"doc-{number}", f"{number} {' '.join(words)}"


def floor(url: str, count: int) -> dict[str, float]:
    """Submit, poll and parse with raw httpx, one submission after another."""
    import httpx

    base, began, cpu = peak_mb(), time.perf_counter(), time.process_time()
    with httpx.Client(headers={"authorization": "Bearer token"}, timeout=300) as client:
        target = f"{url}/accounts/account/ai/run/{MODEL}?queueRequest=true"
        texts: list[str] = []

        def job() -> None:
            groups = [texts[i : i + TEXTS_PER_REQUEST] for i in range(0, len(texts), TEXTS_PER_REQUEST)]
            run_job(client, target, [{"text": group} for group in groups])
            texts.clear()

        for _, text in corpus(count):
            texts.append(text)
            if len(texts) == TEXTS_PER_JOB:
                job()
        if texts:
            job()
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "mb": peak_mb() - base}


def ours(url: str, count: int) -> dict[str, float]:
    """Ingest into a ledger, then write Parquet."""
    import pyarrow.parquet as pq

    from workers_ai.ingest import ingest
    from workers_ai.ingest._parquet import write_parquet

    with tempfile.TemporaryDirectory() as home:
        base, began, cpu = peak_mb(), time.perf_counter(), time.process_time()
        report = ingest(
            corpus(count), ledger=Path(home, "ledger"), model=MODEL, account_id="account", api_token="token",
            base_url=url, progress=False, texts_per_job=TEXTS_PER_JOB, raise_on_failure=True,
        )  # fmt: skip
        embedded = time.perf_counter() - began
        write_parquet(((row, None) for row in report.rows()), Path(home, "vectors.parquet"))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        result = {"seconds": seconds, "embed": embedded, "cpu": cpu, "mb": peak_mb() - base}
        assert pq.read_metadata(Path(home, "vectors.parquet")).num_rows == count == report.embedded
    return result


def measured(what: str, count: int, polls: int) -> dict[str, float]:
    """Run one side in its own process, against its own emulator."""
    with emulator(polls) as url:
        command = [sys.executable, __file__, "--part", what, "--url", url, str(count)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        return dict(json.loads(done.stdout))


def sizes(counts: list[int], polls: int) -> None:
    """Show rate, memory and time per text of each size."""
    per_text: dict[int, float] = {}
    for count in counts:
        section(f"Ingestion: {count:,} texts through the queue into Parquet, {TEXTS_PER_JOB:,} in a submission")
        floored = min(count, FLOOR_TEXTS)
        raw, mine = measured("floor", floored, polls), measured("ours", count, polls)
        per_text[count] = mine["seconds"] / count
        raw_rate, rate, embedding = floored / raw["seconds"], count / mine["seconds"], count / mine["embed"]
        show("raw httpx: rate", raw_rate, "texts/s", kind="floor")
        show("ingest: rate", rate, "texts/s", rate / raw_rate)
        show("ingest: rate without writing Parquet", embedding, "texts/s", embedding / raw_rate)
        show("ingest: time per text", per_text[count] * 1e6, "us", per_text[count] / per_text[counts[0]])
        raw_cpu, cpu = raw["cpu"] / floored * 1e6, mine["cpu"] / count * 1e6
        show(RAW_CPU, raw_cpu, "us", kind="floor", size=count)
        show(OUR_CPU, cpu, "us", cpu / raw_cpu, size=count)
        show("raw httpx: peak memory over the imports", raw["mb"], "MB", kind="floor")
        show(OUR_MEMORY, mine["mb"], "MB", size=count)


def kills(count: int, texts: int) -> None:
    """Show an ingestion that is killed several times."""
    section(
        f"Ingestion: {texts:,} texts, killed {count} times, "
        f"{KILLED_PER_JOB} in a submission, {CONCURRENCY} requests at once"
    )
    with tempfile.TemporaryDirectory() as home:
        outcome = killed(
            Path(home), kills=count, texts=texts, per_job=KILLED_PER_JOB, concurrency=CONCURRENCY, polls=1, seed=1
        )
    show("killed while at work", outcome.kills, "times")
    show("texts with a vector", outcome.vectors, "texts", outcome.vectors / texts)
    show("submissions", outcome.submissions, "", outcome.submissions * KILLED_PER_JOB / texts)
    show(
        "texts sent twice, in submissions",
        outcome.repeated / KILLED_PER_JOB,
        "",
        outcome.repeated / KILLED_PER_JOB / count,
    )


def main() -> None:
    """Run the selected measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, help="numbers of texts")
    parser.add_argument(
        "--whole", action="store_true", help="every figure at its full size; takes a quarter of an hour"
    )
    parser.add_argument("--polls", type=int, default=1, help="pending answers before a submission is done")
    parser.add_argument("--part", choices=["floor", "ours"], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps({"floor": floor, "ours": ours}[options.part](options.url, options.sizes[0])))
    elif options.whole:
        sizes([100_000, 1_000_000], options.polls)
        kills(20, 20_000)
    else:
        sizes(options.sizes or [20_000], options.polls)
        kills(5, 2_000)


if __name__ == "__main__":
    main()
