"""Requests and replies of the tables through ``ChatWorkersAI``, on both routes, whole and streamed, sync and async."""

from __future__ import annotations

import pytest
from langchain_rows import MAKERS, REPLIES, asked, expressible, judge, sent
from odd_streams import ODD_STREAMS
from sent import SENT
from shapes import Sent, Shape

OURS = MAKERS["langchain-workers-ai"]
ROWS = [
    pytest.param(shape, stream, id=f"{group}: {shape.name}")
    for group, shapes in REPLIES.items()
    for shape, stream in shapes
] + [pytest.param(shape, True, id=f"odd stream: {shape.name}") for shape in ODD_STREAMS]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(("shape", "stream"), ROWS)
def test_replies_as_messages_of_langchain(shape: Shape, stream: bool, mode: str) -> None:
    for route in OURS.routes:
        got = asked(OURS, shape, route, mode, stream=stream)
        assert judge(shape.want, got) == []
        assert got.error == shape.want.error


def test_most_of_what_is_sent_can_be_said_in_langchain() -> None:
    assert sum(expressible(row) for row in SENT) >= 0.7 * len(SENT)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("row", [row for row in SENT if expressible(row)], ids=lambda row: row.name)
def test_what_langchain_sends(row: Sent, mode: str) -> None:
    got = {route: sent(OURS, row, route, mode) for route in row.api}
    assert got == {route: [] for route in row.api}
