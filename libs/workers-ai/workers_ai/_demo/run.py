"""The run of the demonstration: a service, a corpus through the queue, then the parts of the framework packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workers_ai._demo import ENTRY_POINTS, Stage
from workers_ai._demo.corpus import standard_library
from workers_ai._settings.settings import Settings
from workers_ai.errors import ConfigurationError
from workers_ai.ingest import ingest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["run"]

CHAT_MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EMBED_MODEL = "@cf/baai/bge-small-en-v1.5"
RERANK_MODEL = "@cf/baai/bge-reranker-base"
QUESTIONS = (
    "How do I compute the median of numeric data?",
    "Which function creates a temporary directory?",
)
DOCUMENTS = 4000
"""Docstrings embedded at most; the library has about three thousand."""

_EMULATED = "This talks to the emulator of Workers AI on this machine: no account, no cost."
_LIVE = "This talks to Cloudflare Workers AI on your account, which is billed for it."
_NO_CAPACITY = "Capacity temporarily exceeded, please try again."
_PACKAGES = (
    "langchain-workers-ai llama-index-llms-workers-ai llama-index-embeddings-workers-ai "
    "llama-index-postprocessor-workers-ai-rerank workers-ai-emulator"
)
_EMULATOR = {"account_id": "emulated-account", "api_token": "emulated-token"}


def run(*, live: bool) -> None:
    """Run the demonstration.

    Args:
        live: Use a real account from the environment, in place of the emulator.

    Raises:
        ConfigurationError: A package that it needs is missing, or the account.
        WorkersAIError: A step failed; the text says what to do.
    """
    from rich.console import Console

    console = Console(highlight=False)
    began = time.monotonic()
    console.print(_LIVE if live else _EMULATED)
    with console.status("Importing the frameworks"):
        parts = _parts()
    with tempfile.TemporaryDirectory(prefix="workers-ai-demo-") as home, _service(live) as (settings, busy):
        ledger = Path(home) / "ledger.sqlite3"

        def title(text: str) -> None:
            console.print(f"\n[bold]{text}[/bold]")

        with console.status("Reading docstrings"):
            corpus = standard_library(DOCUMENTS)
        title(f"Embedding {len(corpus):,} docstrings of the Python standard library through the queue")
        report = ingest(
            ((doc.id, doc.text) for doc in corpus), ledger=ledger, model=EMBED_MODEL, total=len(corpus),
            progress=console.is_terminal, **settings,
        )  # fmt: skip
        console.print(str(report), markup=False)
        stage = Stage(
            settings=settings,
            corpus=corpus,
            ledger=ledger,
            questions=QUESTIONS,
            chat_model=CHAT_MODEL,
            embed_model=EMBED_MODEL,
            rerank_model=RERANK_MODEL,
            say=lambda text: console.print(_hanging(text, console.width), markup=False),
            title=title,
            make_busy=busy,
        )
        with _waits_shown(stage.say):
            for part in parts:
                part(stage)
    console.print(f"\nDone in {time.monotonic() - began:.0f} s.")


def _hanging(text: str, width: int) -> str:
    """Lines wrapped to the screen, each under its own indentation."""
    lines = [(line, len(line) - len(line.lstrip())) for line in text.splitlines()]
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent=" " * (indent + 3), break_on_hyphens=False)
        for line, indent in lines
    )


def _parts() -> list[Callable[[Stage], None]]:
    points = sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    try:
        parts = [point.load() for point in points]
    except ImportError as exc:
        raise ConfigurationError(f"the demonstration lacks a package ({exc}): pip install {_PACKAGES}") from exc
    if not parts:
        raise ConfigurationError(f"the demonstration has no framework to show: pip install {_PACKAGES}")
    return parts


@contextmanager
def _service(live: bool) -> Iterator[tuple[dict[str, Any], Callable[[int], None] | None]]:
    """Settings of a service to talk to, and a way to make it busy: a real account, or an emulator of our own."""
    if live:
        Settings.resolve()
        yield {}, None
        return
    with _emulator() as base_url:

        def make_busy(times: int) -> None:
            import httpx

            fault = {"kind": "error", "status": 429, "code": 3040, "message": _NO_CAPACITY, "times": times}
            httpx.post(f"{base_url.removesuffix('/client/v4')}/__emulator__/faults", json=fault).raise_for_status()

        yield {**_EMULATOR, "base_url": base_url}, make_busy


@contextmanager
def _emulator() -> Iterator[str]:
    """An emulator in a process of its own; gives its base URL."""
    if importlib.util.find_spec("workers_ai_emulator") is None:
        raise ConfigurationError(f"the demonstration needs the emulator: pip install {_PACKAGES}")
    command = [sys.executable, "-m", "workers_ai_emulator", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
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
