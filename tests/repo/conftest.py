"""Make the helper modules beside the tests importable, and close LlamaIndex's event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def event_loop_of_llama_index() -> Iterator[None]:
    """Close the event loop that LlamaIndex runs sync calls in, and leaves open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
