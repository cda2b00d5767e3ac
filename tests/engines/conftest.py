"""Real engines on this machine. The service is the emulator on a socket, with few slots."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from workers_ai_emulator import Emulator

os.environ |= {
    "DO_NOT_TRACK": "true",
    "DAFT_ANALYTICS_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",  # otherwise it writes a token into the user's home
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # otherwise its workers create another environment under ``uv run``
}

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "engines.md"


@pytest.fixture
def emulator() -> Emulator:
    """Return an emulator with four slots that rejects further requests; a request takes 30 ms."""
    return Emulator(slots=4, max_wait_s=0.0, latency_s=0.03)


@pytest.fixture
def settings(emulator: Emulator) -> Iterator[dict[str, Any]]:
    """Return settings for this emulator."""
    with emulator.serve() as url:
        yield {"account_id": "0123456789abcdef0123456789abcdef", "api_token": "token-of-the-tests", "base_url": url}


@pytest.fixture
def vector_of(emulator: Emulator, settings: dict[str, Any]) -> Callable[[str], list[float]]:
    """Return the vector of one text, read from the emulator without the client."""
    url = f"{settings['base_url']}/accounts/{settings['account_id']}/ai/run/@cf/baai/bge-small-en-v1.5"
    headers = {"authorization": f"Bearer {settings['api_token']}"}
    return lambda text: httpx.post(url, json={"text": [text]}, headers=headers).json()["result"]["data"][0]


@pytest.fixture
def run_guide(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Return a function that runs one block of code of a section of the guide and returns its variables."""
    for name in ("account_id", "api_token", "base_url"):
        monkeypatch.setenv(f"CLOUDFLARE_{name.upper()}", settings[name])

    def run(section: str, block: int = 0) -> dict[str, Any]:
        text = GUIDE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[block]
        namespace: dict[str, Any] = {}
        exec(compile(code, str(GUIDE), "exec"), namespace)
        return namespace

    return run
