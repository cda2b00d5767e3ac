"""The run of the demonstration: a service, a corpus through the queue, then the parts of the framework packages."""

from __future__ import annotations

import importlib.metadata
import logging
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers_ai.demo import ENTRY_POINTS, Stage
from workers_ai.demo.corpus import standard_library
from workers_ai.errors import ConfigurationError
from workers_ai.ingest import ingest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["run"]

CHAT_MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EMBED_MODEL = "@cf/baai/bge-small-en-v1.5"
RERANK_MODEL = "@cf/baai/bge-reranker-base"
QUESTIONS = (
    "How do I serialize an object to a JSON formatted string?",
    "Which function creates a temporary directory?",
)
DOCUMENTS = 4000
"""Docstrings embedded at most; the library has about three thousand."""

_EMULATOR = {"account_id": "emulated-account", "api_token": "emulated-token"}


def run(*, live: bool, documents: int = DOCUMENTS) -> int:
    """Run the demonstration; returns the exit status.

    Args:
        live: Use a real account from the environment, in place of the emulator.
        documents: Docstrings to embed at most.

    Raises:
        WorkersAIError: A step failed; the text says what to do.
    """
    from rich.console import Console

    console = Console(highlight=False)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="workers-ai-demo-") as home, _service(live, console.print) as (settings, busy):
        ledger = Path(home) / "ledger.sqlite3"

        def title(text: str) -> None:
            console.print(f"\n[bold]{text}[/bold]")

        corpus = standard_library(documents)
        title(f"Embedding {len(corpus):,} docstrings of the Python standard library through the queue")
        report = ingest(
            ((doc.id, doc.text) for doc in corpus), ledger=ledger, model=EMBED_MODEL, total=len(corpus), **settings
        )
        console.print(str(report), markup=False)
        stage = Stage(
            settings=settings,
            corpus=corpus,
            ledger=ledger,
            questions=QUESTIONS,
            chat_model=CHAT_MODEL,
            embed_model=EMBED_MODEL,
            rerank_model=RERANK_MODEL,
            say=lambda text: console.print(text, markup=False),
            title=title,
            make_busy=busy,
        )
        with _waits_shown(stage.say):
            for part in _parts():
                part(stage)
    console.print(f"\nDone in {time.monotonic() - began:.0f} s.")
    return 0


def _parts() -> list[Callable[[Stage], None]]:
    points = sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    return [point.load() for point in points]


@contextmanager
def _service(live: bool, say: Callable[[str], None]) -> Iterator[tuple[dict[str, Any], Callable[[int], None] | None]]:
    """Settings of a service to talk to, and a way to make it busy: a real account, or an emulator of our own."""
    if live:
        say("This talks to Cloudflare Workers AI on your account; what it uses is billed to it.")
        yield {}, None
        return
    say("This talks to the emulator of Workers AI on this machine: no account, no cost, no language model.")
    with _emulator() as base_url:

        def make_busy(times: int) -> None:
            import httpx

            fault = {"kind": "error", "status": 429, "code": 3040, "times": times}
            httpx.post(f"{base_url.removesuffix('/client/v4')}/__emulator__/faults", json=fault).raise_for_status()

        yield {**_EMULATOR, "base_url": base_url}, make_busy


@contextmanager
def _emulator() -> Iterator[str]:
    """An emulator in a process of its own; gives its base URL."""
    command = [sys.executable, "-m", "workers_ai_emulator", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if line.startswith("export CLOUDFLARE_BASE_URL="):
                yield line.partition("=")[2].strip()
                return
        raise ConfigurationError(f"the emulator did not start: {process.stderr.read().strip()[-300:]}")
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def _waits_shown(say: Callable[[str], None]) -> Iterator[None]:
    """Show the log records of waits, as an application would that listens to the logger."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"  log: {record.getMessage()}")

    log, handler = logging.getLogger("workers_ai"), Handler()
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
