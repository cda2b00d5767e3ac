"""Every reply of the table through ``ChatWorkersAI``, on both routes, whole and streamed, sync and async."""

from __future__ import annotations

import pytest
from langchain_rows import MAKERS, REPLIES, asked, judge
from shapes import Shape

OURS = MAKERS["langchain-workers-ai"]
ROWS = [
    pytest.param(shape, stream, id=f"{group}: {shape.name}")
    for group, shapes in REPLIES.items()
    for shape, stream in shapes
]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(("shape", "stream"), ROWS)
def test_replies_as_messages_of_langchain(shape: Shape, stream: bool, mode: str) -> None:
    got = {route: judge(shape.want, asked(OURS, shape, route, mode, stream=stream)) for route in OURS.routes}
    assert got == {"run": [], "chat_completions": []}
