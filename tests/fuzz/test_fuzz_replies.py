"""A broken reply never raises an untyped exception. ``tests/fuzz/run.py`` runs more replies."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import strategies as st
from tests.fuzz.readers import READERS, Readers
from tests.fuzz.replies import mutated_reply

EXAMPLES = int(os.environ.get("WORKERS_AI_FUZZ_EXAMPLES", "10"))
"""Replies for each reader."""


@pytest.fixture(scope="module")
def readers() -> Iterator[Readers]:
    made = Readers()
    yield made
    made.runner.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(len(READERS)), ids=READERS)
@hypothesis.settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(rng=st.randoms(note_method_calls=False), model=st.integers(0, 2))
def test_a_mutated_reply_is_read_or_raises_a_typed_error(
    rng: random.Random, model: int, number: int, readers: Readers
) -> None:
    readers.put(mutated_reply(rng), number + model * len(READERS))
