"""Errors of commands: one line on stderr, and the exit status."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer

from workers_ai.errors import APIConnectionError, AuthenticationError, WorkersAIError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ERROR", "INTERRUPTED", "PARTIAL", "message_of", "note", "one_line_errors"]

ERROR: Final = 1
"""Exit status: the command or one of its checks failed."""
PARTIAL: Final = 3
"""Exit status: the command finished, but some documents failed, or some facts differ."""
INTERRUPTED: Final = 130

_OPTIONS: Final = {
    "account_id": "--account-id",
    "base_url": "--base-url",
    "empty_text": "--empty-text",
    "gateway": "--gateway",
    "instruction": "--instruction",
    "labels": "--labels",
    "ledger": "--ledger",
    "limit_cost_usd": "--limit-cost",
    "max_concurrency": "--max-concurrency",
    "max_tokens": "--max-tokens",
    "mode": "--mode",
    "model": "--model",
    "pooling": "--pooling",
    "prompt": "--prompt",
    "repair": "--repair",
    "requests_per_job": "--requests-per-job",
    "schema": "--schema",
    "system": "--system",
    "temperature": "--temperature",
    "truncate_inputs": "--truncate",
}
"""Command-line options, by the argument that an error reports."""


def message_of(error: Exception) -> str:
    """Return an error as one line, with the options that set its arguments."""
    line = " ".join(str(error).split())
    options = [_OPTIONS[name] for name in getattr(error, "arguments", ()) if name in _OPTIONS]
    return f"{line} (option{'s' * (len(options) > 1)} {', '.join(options)})" if options else line


def note(text: str) -> None:
    """Print one line on stderr."""
    typer.echo(f"workers-ai: {text}", err=True)
    sys.stderr.flush()


@contextmanager
def one_line_errors(interrupted: str = "interrupted") -> Iterator[None]:
    """Convert an error to one line on stderr and an exit status.

    Args:
        interrupted: Text to print after Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        note(interrupted)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise  # the reader of stdout, such as `head`, has ended: typer exits without a message
    except (WorkersAIError, OSError) as exc:
        left = len(getattr(exc, "request_ids", ()))
        hint = f"; submissions in the queue: {left} (`workers-ai jobs LEDGER` lists them)" if left else ""
        if isinstance(exc, (AuthenticationError, APIConnectionError)) and not left:
            hint = " Run `workers-ai doctor` to find the cause."
        note(message_of(exc) + hint)
        raise typer.Exit(ERROR) from None
