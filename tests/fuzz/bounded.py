"""Run a hypothesis check for a number of examples, from a seed, without a database of earlier failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy, tuples

__all__ = ["run_bounded"]


def run_bounded(check: Callable[..., None], examples: int, first_seed: int, *strategies: SearchStrategy[Any]) -> None:
    """Run ``check`` on ``examples`` values of the strategies."""

    def run(values: tuple[Any, ...]) -> None:
        check(*values)

    bounded = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    bounded(seed(first_seed)(given(tuples(*strategies))(run)))()
