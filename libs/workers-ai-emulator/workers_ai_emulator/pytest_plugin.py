"""pytest fixtures: an emulator in the process, on a socket, and on a socket with environment variables set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai_emulator.emulator import Emulator


@pytest.fixture
def workers_ai_emulator() -> Emulator:
    """Return a new emulator. Pass its ``transport()`` to ``httpx.Client`` or ``httpx.AsyncClient``."""
    from workers_ai_emulator.emulator import Emulator

    return Emulator()


@pytest.fixture
def workers_ai_emulator_url(workers_ai_emulator: Emulator) -> Iterator[str]:
    """Return the base URL of the same emulator on a socket, up to ``/client/v4``."""
    with workers_ai_emulator.serve() as url:
        yield url


@pytest.fixture
def workers_ai_emulator_env(
    workers_ai_emulator: Emulator, workers_ai_emulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> Emulator:
    """Return the same emulator on a socket, with ``CLOUDFLARE_*`` set. Clients need no arguments."""
    monkeypatch.setenv("CLOUDFLARE_BASE_URL", workers_ai_emulator_url)
    monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", "emulated-account")
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "emulated-token")
    return workers_ai_emulator
