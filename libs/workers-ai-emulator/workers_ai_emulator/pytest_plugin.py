"""Fixtures: ``workers_ai_emulator`` in the process and ``workers_ai_emulator_url`` on a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai_emulator.emulator import Emulator


@pytest.fixture
def workers_ai_emulator() -> Emulator:
    """A fresh emulator; give ``workers_ai_emulator.transport()`` to ``httpx.Client`` or ``httpx.AsyncClient``."""
    from workers_ai_emulator.emulator import Emulator

    return Emulator()


@pytest.fixture
def workers_ai_emulator_url(workers_ai_emulator: Emulator) -> Iterator[str]:
    """Base URL, up to ``/client/v4``, of the same emulator on a socket."""
    with workers_ai_emulator.serve() as url:
        yield url
