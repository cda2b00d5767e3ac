"""Streamed tool calls whose names, arguments and indexes arrive in pieces of any form."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import every_row

from workers_ai._wire.chat.stream import ChatStreamReader
from workers_ai._wire.request import ReplyContext

TOOLS = ("get_weather", "get", "clock", "get_weather_of_the_week")
INDEXES: st.SearchStrategy[list[Any]] = st.sampled_from([
    [0, 1, 2], ["0", "1", "2"], [0.0, 1.0, 2.0], [0.5, 1.5, 2.5], [[0], [1], [2]], [{"i": 0}, {"i": 1}, {"i": 2}],
    [-1, -2, -3], ["a", "b", "c"],
])  # fmt: skip


def read(pieces: list[dict[str, Any]], tools: tuple[str, ...] = TOOLS) -> list[tuple[str, Any, str]]:
    """Return name, arguments and error of the calls in a stream of these pieces."""
    reader = ChatStreamReader(ReplyContext("m", tools=frozenset(tools)))
    events = [{"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in pieces]
    deltas = [
        delta for event in (*events, {"choices": [{"finish_reason": "tool_calls"}]})
        if (delta := reader.read(json.dumps(event).encode()))
    ]  # fmt: skip
    calls: dict[int, list[str]] = {}
    for delta in [*deltas, reader.finish()]:
        for call in delta.tool_calls:
            assert (call.name is None) == (call.index in calls)
            known = calls.setdefault(call.index, [call.name or "", "", ""])
            known[1] += call.arguments
            known[2] += call.error
    return [(name, json.loads(arguments), error) for _, (name, arguments, error) in sorted(calls.items())]


def cut(draw: st.DrawFn, text: str) -> list[str]:
    """Cut a text into one to four fragments."""
    places = sorted(draw(st.sets(st.integers(1, max(len(text) - 1, 1)), max_size=3)))
    return [piece for start, end in zip([0, *places], [*places, len(text)], strict=True) if (piece := text[start:end])]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[tuple[str, Any, str]]]:
    """Return the alternating pieces of several calls, and the calls."""
    names = draw(st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3))
    indexes = draw(INDEXES)
    has_ids = draw(st.booleans())
    queues, wanted = [], []
    for place, name in enumerate(names):
        arguments = {"city": draw(st.text(max_size=5)), "n": place}
        wanted.append((name, arguments, ""))
        pieces: list[dict[str, Any]] = [
            {"index": indexes[place], "function": {"name": part, "arguments": ""}} for part in cut(draw, name)
        ]
        pieces += [
            {"index": indexes[place], "function": {"arguments": part}} for part in cut(draw, json.dumps(arguments))
        ]
        if has_ids:
            pieces[0]["id"] = f"call-{place}"
        queues.append(pieces)
    turns = draw(st.permutations([place for place, pieces in enumerate(queues) for _ in pieces[1:]]))
    return [*(pieces.pop(0) for pieces in queues), *(queues[place].pop(0) for place in turns)], wanted


@settings(deadline=None)
@given(streams())
def test_interleaved_pieces_make_whole_calls(case: tuple[list[dict[str, Any]], list[tuple[str, Any, str]]]) -> None:
    pieces, wanted = case
    assert read(pieces) == wanted


@settings(deadline=None)
@given(st.data(), st.sampled_from([0, [0], True, None, "x", 1.5]), st.booleans())
def test_one_call_after_the_other_needs_no_usable_index(data: st.DataObject, index: Any, has_ids: bool) -> None:
    """All pieces have the same index, or each has another one. Only names and ids separate the calls."""
    pieces: list[dict[str, Any]] = []
    wanted = []
    for place, name in enumerate(["clock", "get_weather"]):
        arguments = {"city": "Oslo", "n": place}
        wanted.append((name, arguments, ""))
        pieces.append({"index": index, "function": {"name": name}} | ({"id": f"c{place}"} if has_ids else {}))
        pieces += [
            {"index": index, "function": {"arguments": part}}
            for part in data.draw(st.composite(cut)(json.dumps(arguments)))
        ]
    if data.draw(st.booleans()):
        pieces = [piece | {"index": f"own-{number}"} for number, piece in enumerate(pieces)]
    assert read(pieces) == wanted


@every_row(
    ("tools", "names", "wanted"),
    [
        ((), ("get_", "weather"), ["get_weather"]),
        ((), ("get_", "get_weather"), ["get_weather"]),
        ((), ("clock", "clock"), ["clock"]),
        (("go", "gogo_home"), ("go", "go_home"), ["gogo_home"]),
        (("clock", "search"), ("clock", "search"), ["clock", "search"]),
        (("get", "get_all"), ("get", "get_all"), ["get", "get_all"]),
        (("clock",), ("other_", "tool"), ["other_tool"]),
        (("clock",), ("clock", "other"), ["clock", "other"]),
    ],
)
def test_fragments_of_a_name_are_joined_by_the_tools_of_the_request(
    tools: tuple[str, ...], names: tuple[str, ...], wanted: list[str]
) -> None:
    pieces = [{"index": 0, "function": {"name": name, "arguments": ""}} for name in names]
    assert read(pieces, tools) == [(name, {}, "") for name in wanted]
