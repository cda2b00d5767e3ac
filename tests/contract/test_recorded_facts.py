"""Check that the exchanges and tests of every recorded fact exist, and that every exchange has a fact."""

from __future__ import annotations

from pathlib import Path

from captured import CAPTURED
from recorded_facts import FACTS, missing


def test_named_exchanges_and_tests_exist() -> None:
    assert missing(Path(__file__).parents[1]) == []


def test_every_captured_exchange_holds_a_fact() -> None:
    named = {name.removeprefix("exchange: ") for names in FACTS.values() for name in names}
    assert set(CAPTURED) - named == set()
