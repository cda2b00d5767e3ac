"""The command ``workers-ai``. It requires the extra ``cli``."""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["main"]

_EXTRA: Final = ("typer", "rich", "tqdm")


def main() -> None:
    """Run the command line; exit with status 1 and one line on stderr if the extra ``cli`` is not installed."""
    try:
        from workers_ai.cli._app import run
    except ModuleNotFoundError as exc:
        if exc.name not in _EXTRA:
            raise
        sys.exit(f"workers-ai: {exc.name} is not installed: pip install 'workers-ai[cli]'")
    run()
