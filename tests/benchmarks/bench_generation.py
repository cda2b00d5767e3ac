"""Measure generation through the queue, compared with raw httpx: new runs, second runs, kills, frameworks.

    uv run python tests/benchmarks/bench_generation.py                 # 5,000 inputs; 50,000 answered ones; 5 kills
    uv run python tests/benchmarks/bench_generation.py 20000           # number of inputs
    uv run python tests/benchmarks/bench_generation.py --whole         # 100,000; 1,000,000; 20 kills on 20,000
    uv run python tests/benchmarks/bench_generation.py --only limits   # one measurement

Targets: at most 1.5 times the time of raw httpx with the emulator, and 120 us of CPU per input; no request, 60 s and
250 MB for a second run on 1,000,000 answered inputs; with kills, every input is answered once, and at most one
submission (or ``max_concurrency`` direct requests) is sent again per kill; cost limits are not exceeded; two processes
send nothing twice; at most 400 us of CPU per input for LangChain's ``batch`` over the core; 100 submissions for 20,000
rows of Daft, and a kill at half repeats at most one of them. Daft is measured with ``uv run --group engines``.

Each side runs in its own process, against a server in another process. The emulator answers at the first poll. It needs
more time for an answer than a client for an input. Canned answers take the server almost no time, so that their rate
shows only the cost of the client. All other figures are measured with canned answers. Memory is the peak above that of
the imports.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

from measure import ENVIRONMENT, peak_mb, section, show
from queue_floor import emulator, run_job

MODEL = "@cf/qwen/qwen3-30b-a3b-fp8"
PER_JOB = 200
KILLED_PER_JOB, CONCURRENCY = 100, 8
TOKENS_IN, TOKENS_OUT = 125, 100
RAW_CPU, OUR_CPU = "raw httpx: CPU per input", "generate: CPU per input"
OUR_MEMORY = "generate: peak memory over the imports"
TEXT = "The harbour was quiet in winter, and the market stood empty. " * 8


def corpus(count: int) -> Iterator[tuple[int, str]]:
    """Return different inputs of about 500 characters."""
    return ((number, f"{number} {TEXT}") for number in range(count))


async def serve() -> None:
    """Answer submissions and polls with canned results. A GET returns the numbers of submissions and of items."""
    message = {"role": "assistant", "content": "A quiet harbour in winter. " * 16}
    usage = {"prompt_tokens": TOKENS_IN, "completion_tokens": TOKENS_OUT, "total_tokens": TOKENS_IN + TOKENS_OUT}
    result = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    item = json.dumps({"success": True, "result": {**result, "usage": usage}})
    sizes: dict[str, int] = {}

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"GET"):
                await reply(writer, json.dumps([len(sizes), sum(sizes.values())]))
                continue
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            if "requests" in body:
                request_id = f"r{len(sizes)}"
                sizes[request_id] = len(body["requests"])
                text = json.dumps({"result": {"status": "queued", "request_id": request_id}})
            else:
                items = [f'{{"index": {index}, {item[1:]}' for index in range(sizes[body["request_id"]])]
                text = f'{{"result": {{"results": [{", ".join(items)}]}}}}'
            await reply(writer, text)

    async def reply(writer: asyncio.StreamWriter, text: str) -> None:
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
    """Run the server in its own process. Yield its base URL."""
    command = [sys.executable, __file__, "--part", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def floor(url: str, count: int, home: str) -> dict[str, float]:
    """Submit, poll and parse with raw httpx, one submission after another."""
    import httpx

    base, began, cpu = peak_mb(), time.perf_counter(), time.process_time()
    with httpx.Client(headers={"authorization": "Bearer token"}, timeout=300) as client:
        target = f"{url}/accounts/account/ai/run/{MODEL}?queueRequest=true"
        texts = [text for _, text in corpus(count)]
        for first in range(0, count, PER_JOB):
            requests: list[dict[str, object]] = [
                {"messages": [{"role": "user", "content": text}], "max_tokens": 512, "external_reference": "0" * 16}
                for text in texts[first : first + PER_JOB]
            ]
            run_job(client, target, requests)
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "mb": peak_mb() - base}


def ours(url: str, count: int, home: str) -> dict[str, float]:
    """Run generate() on a ledger."""
    import httpx  # noqa: F401 - the floor imports it, too, before it is timed

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
    """Run ``batch`` of LangChain's model."""
    from langchain_workers_ai import ChatWorkersAI

    model = ChatWorkersAI(model=MODEL, queue="always", ledger=Path(home, "batch"), max_tokens=512, **settings(url))
    cpu = time.process_time()
    answers = model.batch([text for _, text in corpus(count)])
    return {"cpu": time.process_time() - cpu, "answered": sum(bool(answer.text) for answer in answers)}


def rows(url: str, count: int, home: str) -> dict[str, float]:
    """Run ``prompt`` of Daft."""
    import daft
    from daft.functions import prompt

    from workers_ai.daft import WorkersAIProvider

    frame = daft.from_pydict({"text": [text for _, text in corpus(count)]})
    answers = prompt(
        daft.col("text"), provider=WorkersAIProvider(**settings(url)), model=MODEL, queue=True, max_tokens=512,
        ledger=str(Path(home, "daft")),
    )  # fmt: skip
    return {"answered": frame.with_column("answer", answers).where(daft.col("answer").not_null()).count_rows()}


def settings(url: str) -> dict[str, str]:
    """Return connection settings for the server."""
    return {"account_id": "account", "api_token": "token", "base_url": url}


def started(what: str, url: str, count: int, home: str) -> subprocess.Popen[str]:
    """Start one side in its own process."""
    command = [sys.executable, __file__, "--part", what, "--url", url, "--home", home, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)


def taken(url: str) -> tuple[int, int]:
    """Return the number of accepted submissions and items."""
    import httpx

    submissions, items = httpx.get(url).json()
    return submissions, items


def measured(what: str, url: str, count: int, home: str) -> dict[str, float]:
    """Run one side in its own process. Return its measurements."""
    process = started(what, url, count, home)
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{what} ended with status {process.returncode}")
    return dict(json.loads(out.splitlines()[-1]))


def served(serve_there: Callable[[], AbstractContextManager[str]], what: str, count: int) -> dict[str, float]:
    """Run one side against its own server."""
    with tempfile.TemporaryDirectory() as home, serve_there() as url:
        return measured(what, url, count, home)


def sizes(count: int) -> None:
    """Show the time, CPU and memory of one run."""
    section(f"Generation: {count:,} inputs through the queue, {PER_JOB} in a submission")
    for server, serve_there in (("the emulator", partial(emulator, polls=0)), ("canned answers", canned)):
        raw, mine = (served(serve_there, side, count) for side in ("floor", "ours"))
        show(f"raw httpx, {server}: rate", count / raw["seconds"], "inputs/s", kind="floor")
        show(f"generate, {server}: rate", count / mine["seconds"], "inputs/s", mine["seconds"] / raw["seconds"])
    show(RAW_CPU, raw["cpu"] / count * 1e6, "us", kind="floor", size=count)
    show(OUR_CPU, mine["cpu"] / count * 1e6, "us", mine["cpu"] / raw["cpu"], size=count)
    show(OUR_MEMORY, mine["mb"], "MB", size=count)
    show("generate: reading an answer", mine["read"] / count * 1e6, "us")


def second_run(count: int) -> None:
    """Show the time and memory of a run on answered inputs."""
    section(f"Generation: a second run on {count:,} answered inputs")
    with tempfile.TemporaryDirectory() as home:
        with canned() as url:
            measured("ours", url, count, home)
        again = measured("ours", "http://127.0.0.1:9", count, home)  # no server: a request would fail
        assert again["answered"] == 0
        show("second run", again["seconds"], "s")
        show("second run: CPU", again["cpu"], "s")
        show("second run: peak memory over the imports", again["mb"], "MB")


def kills(count: int, inputs: int) -> None:
    """Show the cost of kills in both modes."""
    from killing import killed_generation

    for mode, window in (("queue", KILLED_PER_JOB), ("direct", CONCURRENCY)):
        section(f"Generation: {inputs:,} inputs, killed {count} times, mode {mode}")
        with tempfile.TemporaryDirectory() as home:
            outcome = killed_generation(
                Path(home), kills=count, inputs=inputs, per_job=KILLED_PER_JOB, mode=mode, concurrency=CONCURRENCY
            )
        show("killed while at work", outcome.kills, "times")
        show("inputs answered", outcome.held, "inputs", outcome.held / inputs)
        show("inputs sent again", outcome.repeated, "inputs", outcome.repeated / (window * count))


def limits(count: int) -> None:
    """Show the spent cost with limits below the cost of a corpus."""
    from workers_ai.catalogue import lookup
    from workers_ai.errors import BatchError
    from workers_ai.generation import generate

    section(f"Generation: cost limits, {count:,} inputs")
    each = lookup(MODEL).cost_usd(TOKENS_IN, TOKENS_OUT) or 0.0
    for percent in (10, 50, 99):
        limit = each * count * percent / 100
        with tempfile.TemporaryDirectory() as home, canned() as url:
            with suppress(BatchError):
                generate(
                    corpus(count), ledger=Path(home, "ledger"), model=MODEL, max_tokens=512, limit_cost_usd=limit,
                    progress=False, **settings(url),
                )  # fmt: skip
            show(
                f"spent of a limit at {percent} % of the cost",
                taken(url)[1] * each,
                "USD",
                taken(url)[1] * each / limit,
            )


def two_processes(count: int) -> None:
    """Show the requests of two processes on one ledger."""
    section(f"Generation: two processes on one ledger, {count:,} inputs")
    with tempfile.TemporaryDirectory() as home, canned() as url:
        both = [started("ours", url, count, home) for _ in range(2)]
        if [process.wait() for process in both] != [0, 0]:
            raise SystemExit("a process failed")
        show("items sent", taken(url)[1], "items", taken(url)[1] / count)


def langchain(count: int) -> None:
    """Show the CPU time of LangChain's ``batch`` and of the core."""
    section(f"Generation: ChatWorkersAI.batch() of {count:,} inputs through the queue")
    with tempfile.TemporaryDirectory() as home, canned() as url:
        core, ours_ = measured("ours", url, count, home), measured("batch", url, count, home)
        assert ours_["answered"] == count
        show("generate: CPU per input", core["cpu"] / count * 1e6, "us", kind="floor")
        show("batch: CPU per input over generate", (ours_["cpu"] - core["cpu"]) / count * 1e6, "us")


def engine(count: int) -> None:
    """Show the submissions of a Daft query, and the repeated ones after a kill at half."""
    if importlib.util.find_spec("daft") is None:
        print("Daft is not installed: uv run --group engines python tests/benchmarks/bench_generation.py --only engine")
        return
    section(f"Generation: prompt() of Daft, {count:,} rows")
    with tempfile.TemporaryDirectory() as home, canned() as url:
        assert measured("rows", url, count, home)["answered"] == count
        show("submissions", taken(url)[0], "submissions", taken(url)[0] / (count / PER_JOB))
    with tempfile.TemporaryDirectory() as home, canned() as url:
        process = started("rows", url, count, home)
        while taken(url)[1] < count // 2 and process.poll() is None:
            threading.Event().wait(0.005)
        process.kill()
        process.communicate()
        assert measured("rows", url, count, home)["answered"] == count
        show("items sent with a kill at half", taken(url)[1], "items", taken(url)[1] / count)


def main() -> None:
    """Run the selected measurements."""
    parts = {"floor": floor, "ours": ours, "batch": batch, "rows": rows}
    names = ("sizes", "second_run", "kills", "limits", "two_processes", "langchain", "engine")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", nargs="?", type=int, default=5_000, help="number of inputs")
    parser.add_argument("--whole", action="store_true", help="every figure at its full size; takes half an hour")
    parser.add_argument("--only", choices=names, help="one measurement")
    parser.add_argument("--part", choices=["serve", *parts], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--home", help=argparse.SUPPRESS)
    options = parser.parse_args()
    size, whole = options.size, options.whole
    if options.part == "serve":
        asyncio.run(serve())
        return
    if options.part:
        print(json.dumps(parts[options.part](options.url, size, options.home)))
        return
    measurements = {
        "sizes": partial(sizes, 100_000 if whole else size),
        "second_run": partial(second_run, 1_000_000 if whole else 10 * size),
        "kills": partial(kills, 20 if whole else 5, 20_000 if whole else 1_000),
        "limits": partial(limits, 20_000 if whole else size),
        "two_processes": partial(two_processes, 20_000 if whole else size),
        "langchain": partial(langchain, 10_000 if whole else size),
        "engine": partial(engine, 20_000 if whole else size),
    }
    for name, measure in measurements.items():
        if options.only in (None, name):
            measure()


if __name__ == "__main__":
    main()
