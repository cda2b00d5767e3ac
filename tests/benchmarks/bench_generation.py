"""Answering a corpus through the queue, beside raw httpx with the same submissions; read again; and killed.

    uv run python tests/benchmarks/bench_generation.py                 # 5,000 inputs; 50,000 answered ones; 5 kills
    uv run python tests/benchmarks/bench_generation.py 20000           # so many inputs
    uv run python tests/benchmarks/bench_generation.py --whole         # 100,000; 1,000,000; 20 kills on 20,000

To be reached: at most 1.5 times the time of raw httpx and 120 us of CPU for an input, and 400 us more for one of
``ChatWorkersAI.batch()``; no request, 60 s and 250 MB for a second run on 1,000,000 answered inputs; and with kills
every input answered once, with no more than one submission (or ``max_concurrency`` direct requests) sent again for each
kill.

Each side runs in a process of its own against a server of canned answers in another one. Memory is the peak over that
of the imports.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from killing import killed_generation
from measure import section, show

MODEL = "@cf/qwen/qwen3-30b-a3b-fp8"
PER_JOB = 200
KILLED_PER_JOB, CONCURRENCY = 100, 8
RAW_CPU, OUR_CPU = "raw httpx: CPU per input", "generate: CPU per input"
OUR_MEMORY = "generate: peak memory over the imports"
TEXT = "The harbour was quiet in winter, and the market stood empty. " * 8


def corpus(count: int) -> Iterator[tuple[int, str]]:
    """Inputs of about 500 characters, all different."""
    return ((number, f"{number} {TEXT}") for number in range(count))


async def serve() -> None:
    """Answer submissions and polls with canned results."""
    message = {"role": "assistant", "content": "A quiet harbour in winter. " * 16}
    usage = {"prompt_tokens": 125, "completion_tokens": 100, "total_tokens": 225}
    result = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    item = json.dumps({"success": True, "result": {**result, "usage": usage}})
    sizes: dict[str, int] = {}

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            if "requests" in body:
                request_id = f"r{len(sizes)}"
                sizes[request_id] = len(body["requests"])
                text = json.dumps({"result": {"status": "queued", "request_id": request_id}})
            else:
                items = [f'{{"index": {index}, {item[1:]}' for index in range(sizes[body["request_id"]])]
                text = f'{{"result": {{"results": [{", ".join(items)}]}}}}'
            data = text.encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(data))
            writer.write(data)
            await writer.drain()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


@contextmanager
def canned() -> Iterator[str]:
    """Run the server in a process of its own; yield its base URL."""
    command = [sys.executable, __file__, "--part", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def peak_mb() -> float:
    """Peak resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def floor(url: str, count: int, home: str) -> dict[str, float]:
    """Submit, poll and parse with raw httpx, one submission after the other."""
    import httpx

    base, began, cpu = peak_mb(), time.perf_counter(), time.process_time()
    with httpx.Client(headers={"authorization": "Bearer token"}, timeout=300) as client:
        target = f"{url}/accounts/account/ai/run/{MODEL}?queueRequest=true"
        texts = [text for _, text in corpus(count)]
        for first in range(0, count, PER_JOB):
            requests = [
                {"messages": [{"role": "user", "content": text}], "max_tokens": 512, "external_reference": "0" * 16}
                for text in texts[first : first + PER_JOB]
            ]
            accepted = client.post(target, json={"requests": requests}).json()
            reply = client.post(target, json={"request_id": accepted["result"]["request_id"]}).json()
            assert len(reply["result"]["results"]) == len(requests)
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "mb": peak_mb() - base}


def ours(url: str, count: int, home: str) -> dict[str, float]:
    """Run generate() on a ledger."""
    from workers_ai.generation import generate

    base, began, cpu = peak_mb(), time.perf_counter(), time.process_time()
    report = generate(
        corpus(count), ledger=Path(home, "ledger"), model=MODEL, account_id="account", api_token="token", base_url=url,
        max_tokens=512, progress=False, requests_per_job=PER_JOB, raise_on_failure=True, allow_insecure_http=True,
    )  # fmt: skip
    result = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "mb": peak_mb() - base}
    began = time.perf_counter()
    assert sum(answer.text is not None for answer in report.answers()) == count == report.answered + report.reused
    return {**result, "read": time.perf_counter() - began, "answered": report.answered}


def batch(url: str, count: int, home: str) -> dict[str, float]:
    """Answer the same inputs with ``ChatWorkersAI.batch()`` through the queue."""
    from langchain_workers_ai import ChatWorkersAI

    model = ChatWorkersAI(
        model=MODEL, account_id="account", api_token="token", base_url=url, queue="always", max_tokens=512,
        ledger=Path(home, "batch"),
    )  # fmt: skip
    inputs = [text for _, text in corpus(count)]
    base, began, cpu = peak_mb(), time.perf_counter(), time.process_time()
    assert len(model.batch(inputs)) == count
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "mb": peak_mb() - base}


PARTS = {"floor": floor, "ours": ours, "batch": batch}


def measured(what: str, url: str, count: int, home: str) -> dict[str, float]:
    """Run one side in a process of its own."""
    command = [sys.executable, __file__, "--part", what, "--url", url, "--home", home, str(count)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def sizes(count: int) -> None:
    """Show the time, CPU and memory of one run."""
    section(f"Generation: {count:,} inputs through the queue, {PER_JOB} in a submission")
    with tempfile.TemporaryDirectory() as home, canned() as url:
        raw, mine = measured("floor", url, count, home), measured("ours", url, count, home)
        show("raw httpx: rate", count / raw["seconds"], "inputs/s", kind="floor")
        show("generate: rate", count / mine["seconds"], "inputs/s", mine["seconds"] / raw["seconds"])
        show(RAW_CPU, raw["cpu"] / count * 1e6, "us", kind="floor", size=count)
        show(OUR_CPU, mine["cpu"] / count * 1e6, "us", mine["cpu"] / raw["cpu"], size=count)
        show(OUR_MEMORY, mine["mb"], "MB", size=count)
        show("generate: reading an answer", mine["read"] / count * 1e6, "us")


def langchain_batch(count: int) -> None:
    """Show what ``ChatWorkersAI.batch()`` adds to ``generate()``."""
    section(f"Generation: ChatWorkersAI.batch() of {count:,} inputs through the queue")
    with tempfile.TemporaryDirectory() as home, canned() as url:
        core, mine = measured("ours", url, count, home), measured("batch", url, count, home)
        show("generate: CPU per input", core["cpu"] / count * 1e6, "us", kind="floor")
        show("batch: CPU per input", mine["cpu"] / count * 1e6, "us", mine["cpu"] / core["cpu"])
        show("batch: CPU per input over generate", (mine["cpu"] - core["cpu"]) / count * 1e6, "us")


def second_run(count: int) -> None:
    """Show the time and memory of a run on answered inputs."""
    section(f"Generation: a second run on {count:,} answered inputs")
    with tempfile.TemporaryDirectory() as home:
        with canned() as url:
            measured("ours", url, count, home)
        again = measured("ours", "http://127.0.0.1:9", count, home)  # nothing listens: a request would fail
        assert again["answered"] == 0
        show("second run", again["seconds"], "s")
        show("second run: peak memory over the imports", again["mb"], "MB")


def kills(count: int, inputs: int) -> None:
    """Show what kills cost in both modes."""
    for mode, window in (("queue", KILLED_PER_JOB), ("direct", CONCURRENCY)):
        section(f"Generation: {inputs:,} inputs, killed {count} times, mode {mode}")
        with tempfile.TemporaryDirectory() as home:
            outcome = killed_generation(
                Path(home), kills=count, inputs=inputs, per_job=KILLED_PER_JOB, mode=mode, concurrency=CONCURRENCY
            )
        show("killed while at work", outcome.kills, "times")
        show("inputs answered", outcome.held, "inputs", outcome.held / inputs)
        show("inputs sent again", outcome.repeated, "inputs", outcome.repeated / (window * count))


def main() -> None:
    """Run the selected measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", type=int, default=5_000, help="number of inputs")
    parser.add_argument("--whole", action="store_true", help="every figure at its full size; takes half an hour")
    parser.add_argument("--part", choices=[*PARTS, "serve"], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--home", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "serve":
        asyncio.run(serve())
    elif options.part:
        print(json.dumps(PARTS[options.part](options.url, options.size, options.home)))
    else:
        sizes(100_000 if options.whole else options.size)
        langchain_batch(10_000 if options.whole else options.size)
        second_run(1_000_000 if options.whole else 10 * options.size)
        kills(20 if options.whole else 5, 20_000 if options.whole else 1_000)


if __name__ == "__main__":
    main()
