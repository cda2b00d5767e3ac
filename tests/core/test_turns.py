"""Order of turns: each tool call is followed by one result, and images are in user turns."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import every_row

from workers_ai._wire.chat.messages import prepare_messages
from workers_ai.catalogue import lookup
from workers_ai.errors import BadRequestError

CARD = lookup("@cf/google/gemma-4-26b-a4b-it")
USER = {"role": "user", "content": "hold on"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SEE = {"type": "text", "text": "see"}


def calls(*ids: str, arguments: Any = "{}") -> dict[str, Any]:
    """Return an assistant turn that calls a tool once for each id."""
    entries = [{"id": call_id, "function": {"name": "f", "arguments": arguments}} for call_id in ids]
    return {"role": "assistant", "content": "", "tool_calls": entries}


def result(call_id: str, content: Any = "real") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def shape(messages: list[dict[str, Any]]) -> list[Any]:
    """Return the roles in order, with the content of results."""
    return [message["content"] if message["role"] == "tool" else message["role"] for message in messages]


@every_row(
    ("history", "sent"),
    [
        ([USER, calls("q"), USER, result("q"), USER], ["user", "assistant", "real", "user", "user"]),
        ([calls("q", "r"), result("r", "r"), USER, result("q")], ["assistant", "r", "real", "user"]),
        ([result("q"), calls("q")], ["assistant", "real"]),
        ([calls("q"), result("q", "1"), calls("q"), result("q", "2")], ["assistant", "1", "assistant", "2"]),
        ([calls("q", "q"), result("q", "1"), result("q", "2")], ["assistant", "1", "2"]),
        ([calls("q"), result("q", "wait"), USER, result("q"), result("q")], ["assistant", "wait\nreal", "user"]),
        ([result("gone"), USER], ["real", "user"]),
    ],
)
def test_each_call_is_followed_by_one_result(history: list[Any], sent: list[str]) -> None:
    assert shape(prepare_messages(history, CARD)) == sent


@pytest.mark.parametrize("parts", [[SEE, IMAGE], [IMAGE]], ids=["with text", "alone"])
def test_images_of_results_follow_all_results_in_a_user_turn(parts: list[Any]) -> None:
    history = [calls("q", "r"), result("q", parts), result("r"), {"role": "user", "content": [IMAGE, SEE]}]
    sent = prepare_messages(history, CARD)
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user", "user"]
    assert sent[1]["content"] == ("see" if SEE in parts else "The result is the image in the next user message.")
    assert [part for part in sent[3]["content"] if part["type"] != "text"] == [IMAGE]
    assert sent[4]["content"] == [IMAGE, SEE]


def test_for_mistral_an_assistant_message_separates_tool_result_and_user_message() -> None:
    history = [USER, calls("q"), result("q", [SEE, IMAGE]), USER, calls("r"), result("r"), USER]
    sent = prepare_messages(history, lookup("@cf/mistralai/mistral-small-3.1-24b-instruct"))
    roles = [message["role"] for message in sent]
    assert roles == [
        "user",
        *["assistant", "tool", "assistant", "user", "user"],
        *["assistant", "tool", "assistant", "user"],
    ]
    assert all(message["content"] or message.get("tool_calls") for message in sent)
    others = prepare_messages(history, CARD)
    assert [message["role"] for message in others].count("assistant") == 2


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_an_image_of_another_turn_moves_into_a_user_turn(role: str) -> None:
    sent = prepare_messages([{"role": role, "content": [SEE, IMAGE]}], CARD)
    assert [message["role"] for message in sent] == [role, "user"]
    assert (sent[0]["content"], sent[1]["content"][-1]) == ("see", IMAGE)


@every_row(
    ("arguments", "sent"),
    [
        ({"x": float("nan"), "y": float("inf")}, {"x": None, "y": None}),
        ('{"x": NaN}', {"invalid_arguments": '{"x": NaN}'}),
        ({"at": datetime.date(2026, 11, 30), "of": b"abc"}, {"at": "2026-11-30", "of": "abc"}),
        ({"of": b"\xff"}, {"of": "_w=="}),
        ('{"x": "\\ud83d"}', {"x": "\ufffd"}),
        ('{"x": "\ud83d"}', {"x": "\ufffd"}),
        ({"x": "\ud83d"}, {"x": "\ufffd"}),
        ("[1]", {"invalid_arguments": "[1]"}),
        (None, {}),
    ],
)
def test_arguments_are_sent_as_strict_json(arguments: Any, sent: Any) -> None:
    (turn, _) = prepare_messages([calls("q", arguments=arguments)], CARD)
    assert json.loads(turn["tool_calls"][0]["function"]["arguments"], parse_constant=pytest.fail) == sent


def test_arguments_that_contain_themselves_are_rejected() -> None:
    arguments: dict[str, Any] = {}
    arguments["x"] = arguments
    with pytest.raises(BadRequestError, match="cannot be written as JSON"):
        prepare_messages([calls("q", arguments=arguments)], CARD)


IDS = st.sampled_from(["a", "b", "c"])
TURN = st.one_of(
    st.builds(lambda ids: calls(*ids), st.lists(IDS, min_size=1, max_size=3)),
    st.builds(result, IDS, st.sampled_from(["1", "2", [SEE, IMAGE], [IMAGE]])),
    st.just(USER),
    st.just({"role": "assistant", "content": "hm"}),
)


@given(st.lists(TURN, min_size=1, max_size=12))
def test_calls_and_results_are_paired_in_any_order_of_turns(history: list[Any]) -> None:
    sent = prepare_messages(history, CARD)
    for place, message in enumerate(sent):
        wanted = [call["id"] for call in message.get("tool_calls", ())]
        behind = sent[place + 1 : place + 1 + len(wanted)]
        assert sorted(wanted) == sorted(found.get("tool_call_id", "") for found in behind)
        assert message["role"] == "user" or isinstance(message["content"], str)
    assert [m for m in sent if m == USER] == [m for m in history if m == USER]
