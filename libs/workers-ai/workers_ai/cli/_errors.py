"""Errors of commands: one line on stderr, and the exit status."""

from __future__ import annotations

import re
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

_OPTIONS: Final = (
    (r"queue='never' or mode='direct'", "--mode direct"),
    (r"\blimit_cost_usd\b", "--limit-cost"),
    (r"\btruncate_inputs\b", "--truncate"),
    (
        r"\b(prompt|system|schema|labels|max_tokens|requests_per_job|account_id|base_url|gateway|max_concurrency"
        r"|pooling|instruction|model|mode|ledger|empty_text)= ?",
        r"--\1 ",
    ),
    (r"(?<!-)\baccount_id\b", "--account-id"),
    (r"pass api_token= \(or api_key=\) or set", "set"),
)
"""Names of Python arguments in messages, and the options of the command."""


def _as_command(text: str) -> str:
    """Replace names of Python arguments in a message by options of the command."""
    for name, option in _OPTIONS:
        text = re.sub(name, option, text)
    return re.sub(r"(--[a-z_]+)( (?=[,;:.]))?", lambda found: found[1].replace("_", "-"), text)


def message_of(error: Exception) -> str:
    """Return an error as one line, with the options of the command instead of Python arguments."""
    return _as_command(" ".join(str(error).split()))


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
