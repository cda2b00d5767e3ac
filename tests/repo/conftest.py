"""Fixtures of the checks of the repository."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def event_loop_of_llama_index() -> Iterator[None]:
    """Close the event loop that LlamaIndex runs sync calls in, and leaves open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def young_garbage() -> None:
    """Keep objects older than the test out of its garbage collections, which then take milliseconds."""
    gc.freeze()
