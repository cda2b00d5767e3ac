"""Run the demo: start the emulator, embed a corpus through the queue, then run the part of each framework."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from workers_ai._demo import Stage, generation_part
from workers_ai._demo.corpus import standard_library
from workers_ai._settings.settings import Settings
from workers_ai.errors import ConfigurationError
from workers_ai.ingest import ingest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from workers_ai import SettingKeywords

__all__ = ["run"]

CHAT_MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EMBED_MODEL = "@cf/baai/bge-small-en-v1.5"
RERANK_MODEL = "@cf/baai/bge-reranker-base"
QUESTIONS = (
    "How do I compute the median of numeric data?",
    "Which function creates a temporary directory?",
)
DOCUMENTS = 4000
"""Maximum number of docstrings; the library has about three thousand."""

_PARTS = ("langchain_part", "llama_index_part")
_EMULATED = "Service: the emulator of Workers AI on this machine. No account, no cost."
_LIVE = "Service: Cloudflare Workers AI on your account. Cloudflare bills the account."
_NO_CAPACITY = "Capacity temporarily exceeded, please try again."
_PACKAGES = (
    "langchain-workers-ai llama-index-llms-workers-ai llama-index-embeddings-workers-ai "
    "llama-index-postprocessor-workers-ai-rerank workers-ai-emulator"
)


def run(*, live: bool, console: Console | None = None) -> None:
    """Run the demo.

    Args:
        live: Use the account of the environment instead of the emulator.
        console: Console to print to; the terminal by default.

    Raises:
        ConfigurationError: A package, the account or the token is missing.
        WorkersAIError: A step failed.
    """
    console = console or _terminal()
    began = time.monotonic()
    console.print(_LIVE if live else _EMULATED)
    with console.status("Importing the frameworks"):
        parts = _parts(console.print)
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
            say=lambda text: console.print(_wrapped(text, console.width), markup=False),
            title=title,
            make_busy=busy,
        )
        with _printed_waits(stage.say):
            for part in (generation_part.show, *parts):
                part(stage)
    console.print(f"\nDone in {time.monotonic() - began:.0f} s.")


def _terminal() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _wrapped(text: str, width: int) -> str:
    """Wrap lines to the width of the screen, and indent continuation lines."""
    lines = [(line, len(line) - len(line.lstrip())) for line in text.splitlines()]
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent=" " * (indent + 3), break_on_hyphens=False)
        for line, indent in lines
    )


def _parts(say: Callable[[str], None]) -> list[Callable[[Stage], None]]:
    """Return the parts whose packages are installed; report the others.

    Raises:
        ConfigurationError: No framework is installed.
    """
    parts, missing = [], []
    for name in _PARTS:
        try:
            parts.append(importlib.import_module(f"workers_ai._demo.{name}").show)
        except ImportError as exc:
            missing.append(str(exc))
    if not parts:
        raise ConfigurationError(f"the demo requires a framework ({missing[0]}): pip install {_PACKAGES}")
    for reason in missing:
        say(f"Skipped, because a package is missing: {reason}")
    return parts


@contextmanager
def _service(live: bool) -> Iterator[tuple[SettingKeywords, Callable[[int], None] | None]]:
    """Yield connection settings, and a function that causes 3040 errors (None on a real account)."""
    if live:
        Settings.resolve()
        yield {}, None
        return
    with _emulator() as base_url:

        def make_busy(times: int) -> None:
            import httpx

            fault = {"kind": "error", "status": 429, "code": 3040, "message": _NO_CAPACITY, "times": times}
            httpx.post(f"{base_url.removesuffix('/client/v4')}/__emulator__/faults", json=fault).raise_for_status()

        yield {"account_id": "emulated-account", "api_token": "emulated-token", "base_url": base_url}, make_busy


@contextmanager
def _emulator() -> Iterator[str]:
    """Start the emulator as a process and yield its base URL."""
    if importlib.util.find_spec("workers_ai_emulator") is None:
        raise ConfigurationError(f"the demo requires the emulator: pip install {_PACKAGES}")
    command = [sys.executable, "-m", "workers_ai_emulator", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith("export CLOUDFLARE_BASE_URL="):
                yield line.partition("=")[2].strip()
                return
        raise ConfigurationError(
            f"the emulator did not start: {process.stderr.read().strip()[-300:]}. "
            "Run `workers-ai-emulator` to see all output"
        )
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def _printed_waits(say: Callable[[str], None]) -> Iterator[None]:
    """Print the log records of retries and waits."""

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
