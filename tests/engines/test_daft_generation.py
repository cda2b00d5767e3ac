"""Daft's ``prompt`` and ``classify_text`` through the provider, on Daft's own runner."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import pytest

daft = pytest.importorskip("daft", reason="Daft is in the dependency group 'engines'")

from daft.functions import classify_text, prompt  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from workers_ai.daft import WorkersAIProvider  # noqa: E402
from workers_ai.errors import ConfigurationError  # noqa: E402
from workers_ai_emulator import Emulator, Fault  # noqa: E402
from workers_ai_emulator.state.queue import ItemFailure, QueueSettings  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "@cf/qwen/qwen3-30b-a3b-fp8"


class Notice(BaseModel):
    """A notice."""

    place: str
    number: int


class Labelled(BaseModel):
    """A notice with a kind. Daft creates a String column for this class."""

    kind: Literal["ferry", "museum"]


@pytest.fixture
def emulator() -> Emulator:
    """Return an emulator whose batches are complete at the first poll."""
    return Emulator(queue=QueueSettings("at_once"))


@pytest.fixture
def provider(settings: dict[str, Any]) -> WorkersAIProvider:
    """Return a provider for this emulator."""
    return WorkersAIProvider(**settings)


def texts(count: int) -> list[str | None]:
    return [f"Notice number {number}." for number in range(count)]


def answered(provider: Any, given: list[str | None], **options: Any) -> dict[str | None, Any]:
    """Return the answer of each text."""
    frame = daft.from_pydict({"text": given})
    answers = prompt(daft.col("text"), provider=provider, model=MODEL, max_tokens=200, **options)
    columns = frame.with_column("answer", answers).to_pydict()
    return dict(zip(columns["text"], columns["answer"], strict=True))


def sizes(emulator: Emulator) -> list[int]:
    bodies = [entry.json for entry in emulator.log.entries if isinstance(entry.json, dict)]
    return [len(body["requests"]) for body in bodies if "requests" in body]


def test_direct_answers_and_nulls(provider: Any, emulator: Emulator) -> None:
    found = answered(provider, [*texts(50), None], system_message="Be brief.")
    assert found.pop(None) is None
    assert all(found.values())
    assert len(found) == emulator.log.requests == 50
    assert emulator.log.last.json["messages"][0] == {"role": "system", "content": "Be brief."}


def test_queue_gathers_rows_and_a_rerun_sends_nothing(provider: Any, emulator: Emulator, tmp_path: Path) -> None:
    options = {"queue": True, "ledger": tmp_path / "ledger"}
    first = answered(provider, texts(450), **options)
    assert sum(sizes(emulator)) == 450
    assert len(sizes(emulator)) <= 4
    assert answered(provider, texts(450), **options) == first
    assert sum(sizes(emulator)) == 450


def test_failed_rows_are_null_and_do_not_affect_other_rows(provider: Any, emulator: Emulator, tmp_path: Path) -> None:
    emulator.queue.settings.failures.append(ItemFailure(contains="number 7.", message="broken", times=9))
    found = answered(provider, texts(40), queue=True, ledger=tmp_path / "ledger")
    assert [text for text, answer in found.items() if answer is None] == ["Notice number 7."]
    with pytest.raises(Exception, match="broken"):
        answered(provider, texts(40), queue=True, ledger=tmp_path / "ledger", on_error="raise")


def test_objects_of_a_class(provider: Any) -> None:
    assert all(
        set(answer) == {"place", "number"} for answer in answered(provider, texts(5), return_format=Notice).values()
    )


def test_class_with_a_literal_is_json_text(provider: Any) -> None:
    found = answered(provider, texts(5), return_format=Labelled)
    assert {json.loads(answer)["kind"] for answer in found.values()} <= {"ferry", "museum"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Daft drops the other rows unawaited
def test_exhausted_quota_ends_the_query(provider: Any, emulator: Emulator) -> None:
    emulator.faults.add(Fault.error(429, 4006, "you have used up your daily free allocation"))
    with pytest.raises(Exception, match="4006"):
        answered(provider, texts(20))


@pytest.mark.parametrize("queue", [False, True])
def test_labels(provider: Any, emulator: Emulator, tmp_path: Path, queue: bool) -> None:
    frame = daft.from_pydict({"text": [*texts(20), None]})
    labels = classify_text(
        daft.col("text"), ["ferry", "museum"], provider=provider, model=MODEL, max_tokens=50, queue=queue,
        ledger=tmp_path / "ledger",
    )  # fmt: skip
    found = frame.with_column("label", labels).to_pydict()["label"]
    assert found[-1] is None
    assert set(found[:-1]) <= {"ferry", "museum"}
    assert bool(sizes(emulator)) == queue


def test_columns_that_are_not_text_raise(provider: Any, emulator: Emulator) -> None:
    frame = daft.from_pydict({"text": ["What is this?"], "image": [b"pixels"]})
    answers = prompt([daft.col("text"), daft.col("image")], provider=provider, model=MODEL)
    with pytest.raises(Exception, match=r"accepts columns of text, not bytes.*data URLs"):
        frame.with_column("answer", answers).collect()
    assert emulator.log.requests == 0


def test_the_guide(run_guide: Any, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    rows = run_guide("Answers in Daft")["rows"]
    assert all(rows["answer"])
    assert set(rows["kind"]) <= {"bug", "question"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Daft drops the other rows unawaited
def test_slices_of_the_guide_continue_without_a_ledger(
    run_guide: Any, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    emulator.faults.add(Fault.error(429, 4006, "you have used up your daily free allocation", times=None, skip=90))
    with pytest.raises(Exception, match="4006"):
        run_guide("Answers in Daft", 1)
    written = daft.read_parquet("answers/*.parquet").count_rows()
    assert written >= 50
    emulator.faults.clear()
    for missing in (200 - written, 0):
        emulator.log.clear()
        run_guide("Answers in Daft", 1)
        assert emulator.log.requests - emulator.log.rejected == missing
    assert set(daft.read_parquet("answers/*.parquet").to_pydict()["id"]) == set(range(200))


def test_parameters_are_sent(provider: Any, emulator: Emulator) -> None:
    answered(provider, texts(1), stop="zzz", seed=5, extra_body={"top_p": 0.5})
    sent = emulator.log.last.json
    assert (sent["stop"], sent["seed"], sent["top_p"], sent["max_tokens"]) == (["zzz"], 5, 0.5, 200)


def test_invalid_options_raise(provider: Any) -> None:
    with pytest.raises(ConfigurationError, match="must not have n"):
        answered(provider, texts(1), extra_body={"n": 2})
    with pytest.raises(ConfigurationError, match="stop must be a text"):
        answered(provider, texts(1), stop=5)
    with pytest.raises(ConfigurationError, match="ledger="):
        answered(provider, texts(1), queue=True)
    with pytest.raises(ConfigurationError, match="temperature"):
        answered(provider, texts(1), temprature=1)
    with pytest.raises(ConfigurationError, match="model is missing"):
        provider.get_prompter()
