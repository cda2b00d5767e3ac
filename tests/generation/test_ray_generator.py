"""The callable class for Ray Data, called with batches as Ray passes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

np = pytest.importorskip("numpy", reason="numpy comes with the extra ray")

from pydantic import BaseModel  # noqa: E402

from workers_ai import RetryPolicy  # noqa: E402
from workers_ai.errors import ConfigurationError, QuotaExhaustedError  # noqa: E402
from workers_ai.ray import WorkersAIGenerator  # noqa: E402
from workers_ai_emulator import Emulator, Fault, QueueSettings  # noqa: E402
from workers_ai_emulator.state.queue import ItemFailure  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Make = Callable[..., WorkersAIGenerator]

MODEL = "@cf/qwen/qwen3-30b-a3b-fp8"


class Notice(BaseModel):
    """A notice."""

    place: str


@pytest.fixture
def emulator() -> Emulator:
    """Return an emulator whose batches are complete at the first poll."""
    return Emulator(queue=QueueSettings("at_once"))


@pytest.fixture
def make(emulator: Emulator, tmp_path: Path) -> Iterator[Make]:
    """Yield a function that creates generators that share one ledger."""
    with emulator.serve() as url:
        settings = {"account_id": "0123456789abcdef0123456789abcdef", "api_token": "token-of-the-tests"}
        fields = {"base_url": url, "ledger": tmp_path / "ledger", "max_tokens": 200, **settings}
        yield lambda **options: WorkersAIGenerator(MODEL, **{**fields, **options})


def batch(count: int, **columns: Any) -> dict[str, Any]:
    texts = [f"Notice number {number}." for number in range(count)]
    return {"id": np.arange(count), "text": np.asarray(texts, dtype=object), **columns}


def items(emulator: Emulator) -> list[dict[str, Any]]:
    bodies = [entry.json for entry in emulator.log.entries if isinstance(entry.json, dict)]
    return [item for body in bodies for item in body.get("requests", ())]


def test_parameters_are_part_of_each_item(make: Make, emulator: Emulator) -> None:
    make(stop=["zzz"], seed=5, extra_body={"top_p": 0.5})(batch(1))
    (item,) = items(emulator)
    assert (item["stop"], item["seed"], item["top_p"], item["max_tokens"]) == (["zzz"], 5, 0.5, 200)


def test_one_batch_is_one_submission_and_a_rerun_sends_nothing(make: Make, emulator: Emulator) -> None:
    found = make()(batch(300))
    assert found["id"].tolist() == list(range(300))
    assert all(found["answer"])
    assert set(found["error"]) == {""}
    assert len(items(emulator)) == 300
    sent = emulator.log.requests
    assert make()(batch(300))["answer"].tolist() == found["answer"].tolist()
    assert emulator.log.requests == sent


def test_failed_and_null_rows_have_an_error(make: Make, emulator: Emulator) -> None:
    emulator.queue.settings.failures.append(ItemFailure(contains="number 2.", message="broken", times=9))
    given = batch(5)
    given["text"][4] = None
    found = make()(given)
    assert [answer is None for answer in found["answer"]] == [False, False, True, False, True]
    assert found["error"].tolist() == ["", "", "broken", "", "the input is null"]


def test_placeholders_are_columns(make: Make, emulator: Emulator) -> None:
    make(prompt="{id}: {text}", output="a", error="e")(batch(2))
    assert [item["messages"][-1]["content"] for item in items(emulator)] == [
        "0: Notice number 0.",
        "1: Notice number 1.",
    ]


def test_messages_of_a_column(make: Make, emulator: Emulator) -> None:
    messages = np.empty(1, dtype=object)
    messages[0] = np.asarray([{"role": "user", "content": "Hello", "tool_calls": None}], dtype=object)
    assert all(make(messages_column="chat")(batch(1, chat=messages))["answer"])
    assert items(emulator)[0]["messages"] == [{"role": "user", "content": "Hello"}]


def test_objects_are_json_text_and_labels_are_text(make: Make, tmp_path: Path) -> None:
    assert set(json.loads(make(schema=Notice)(batch(1))["answer"][0])) == {"place"}
    labelled = make(labels=["ferry", "museum"], ledger=tmp_path / "labels")(batch(3))
    assert set(labelled["answer"]) <= {"ferry", "museum"}


def test_temporary_ledger_and_direct_requests(make: Make, emulator: Emulator) -> None:
    assert all(make(ledger=None, mode="direct")(batch(3))["answer"])
    assert items(emulator) == []


def test_exhausted_quota_stops_the_run(make: Make, emulator: Emulator) -> None:
    emulator.faults.add(Fault.error(429, 4006, "you have used up your daily free allocation", times=1))
    with pytest.raises(QuotaExhaustedError):
        make()(batch(3))


def test_retry_policy_is_passed_to_the_client(make: Make) -> None:
    own = RetryPolicy(max_retries=1, base_s=0.0)
    for given, expected in ((own, own), (None, RetryPolicy(max_retries=10))):
        assert make(retry=given)._client._connection.calls.policy == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": "{text}", "messages_column": "chat"}, "not both"),
        ({"prompt": "no placeholder"}, "no placeholder"),
        ({"output": "error"}, "use two different columns"),
        ({"labels": ["a"]}, "label"),
        ({"max_token": 3}, "max_token"),
        ({"retry": 3}, "retry must be a workers_ai.RetryPolicy"),
    ],
)
def test_invalid_arguments_raise(make: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(**options)


def test_missing_column_raises(make: Make) -> None:
    with pytest.raises(ConfigurationError, match="no column 'body'"):
        make(column="body")(batch(1))
