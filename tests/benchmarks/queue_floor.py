"""Run the emulator in another process, and one job of its queue with raw httpx: the floor of bulk work."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

__all__ = ["emulator", "run_job"]


@contextmanager
def emulator(polls: int) -> Iterator[str]:
    """Run an emulator in another process. Yield its base URL.

    Args:
        polls: Pending answers before a job is done.
    """
    command = [sys.executable, "-m", "workers_ai_emulator", "--port", "0", "--batch-polls", str(polls)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("export CLOUDFLARE_BASE_URL="):
                    yield line.partition("=")[2].strip()
                    return
        finally:
            process.terminate()


def run_job(client: httpx.Client, url: str, requests: list[dict[str, object]]) -> None:
    """Submit requests, poll without waiting until they are done, and parse the results. Store nothing."""
    accepted = client.post(url, json={"requests": requests}).json()
    poll = {"request_id": accepted["result"]["request_id"]}
    while (found := _results(client.post(url, json=poll).json()["result"])) is None:
        pass
    assert len(found) == len(requests)


def _results(result: dict[str, list[object]]) -> list[object] | None:
    return result.get("responses") or result.get("results")
