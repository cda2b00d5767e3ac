"""Requests and replies of the tables through ``ChatWorkersAI``, on both routes, whole and streamed, sync and async."""

from __future__ import annotations

import pytest
from axes import MODES, spread
from langchain_rows import MAKERS, expressible, find_differences, read_with, sent
from odd_streams import ODD_STREAMS
from sent import SENT
from shapes import Sent, Shape
from streamed_replies import STREAMS
from whole_replies import WHOLE

OURS = MAKERS["langchain-workers-ai"]
REQUESTED = {"whole": [False, True], "streamed": [True]}
SHAPES = {"whole": WHOLE, "streamed": [*STREAMS, *ODD_STREAMS]}
ROWS = [
    pytest.param(*case.values, id=f"{group}: {case.id}")
    for group, shapes in SHAPES.items()
    for case in spread(shapes, REQUESTED[group], OURS.routes, MODES)
]


@pytest.mark.parametrize(("shape", "stream", "route", "mode"), ROWS)
def test_replies_as_messages_of_langchain(shape: Shape, stream: bool, route: str, mode: str) -> None:
    got = read_with(OURS, shape, route, mode, stream=stream)
    assert find_differences(shape.want, got) == []
    assert got.error == shape.want.error


def test_most_requests_can_be_expressed_in_langchain() -> None:
    assert sum(expressible(row) for row in SENT) >= 0.7 * len(SENT)


@pytest.mark.parametrize(("row", "mode"), spread([row for row in SENT if expressible(row)], MODES))
def test_requests_through_langchain(row: Sent, mode: str) -> None:
    got = {route: sent(OURS, row, route, mode) for route in row.api}
    assert got == {route: [] for route in row.api}
