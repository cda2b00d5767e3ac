"""Select the calls for each row.

A call is a combination of sync or async, route, whole or streamed. Sync and async share their logic, and so do the
routes. So a few representative rows run on every combination; each other row runs on one, chosen by its position, so
that every combination has a share of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from operator import attrgetter
from typing import Any, Final

import pytest

__all__ = ["MODES", "ROUTES", "spread"]

MODES: Final = ("sync", "async")
ROUTES: Final = ("run", "chat_completions")


def spread(
    rows: Sequence[Any],
    *axes: Sequence[Any],
    representative: int = 4,
    name: Callable[[Any], str] = attrgetter("name"),
) -> list[Any]:
    """Return the parameters of a test: (row, one value of each axis).

    Args:
        rows: The rows of a table.
        axes: The values of each axis.
        representative: Number of rows that run on every combination, evenly spaced in the table.
        name: Returns the name of a row.
    """
    cells = list(product(*axes))
    step = max(1, len(rows) // representative)
    parameters = []
    for position, row in enumerate(rows):
        chosen = cells if position % step == 0 else [cells[position % len(cells)]]
        for cell in chosen:
            label = "-".join(str(value) for value in cell)
            parameters.append(pytest.param(row, *cell, id=f"{name(row)}-{label}"))
    return parameters
