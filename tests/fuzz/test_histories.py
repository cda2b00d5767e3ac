"""Run a few random histories and tools. ``tests/fuzz/run.py`` runs more."""

from __future__ import annotations

import os

from tests.fuzz import langchain_histories

EXAMPLES = int(os.environ.get("WORKERS_AI_FUZZ_EXAMPLES", "10"))


def test_random_histories_are_sent_as_strict_json_or_rejected() -> None:
    langchain_histories.fuzz_histories(4 * EXAMPLES)


def test_random_tools_are_sent_as_strict_json_or_rejected() -> None:
    langchain_histories.fuzz_tools(3 * EXAMPLES)
