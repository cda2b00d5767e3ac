"""Daft's ``embed_text`` through the provider, on Daft's own runner."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import pytest

daft = pytest.importorskip("daft", reason="Daft is in the dependency group 'engines'")

from daft.errors import RetryAfterError  # noqa: E402
from daft.functions import embed_text  # noqa: E402

from workers_ai import RetryPolicy  # noqa: E402
from workers_ai.daft import WorkersAIProvider  # noqa: E402
from workers_ai.errors import CapacityError, ConfigurationError  # noqa: E402
from workers_ai_emulator import Emulator, Fault  # noqa: E402

BGE = "@cf/baai/bge-small-en-v1.5"
ROWS = 10_000
SAMPLE = (0, 99, 100, 5_000, 9_999)


def embedded(texts: list[str | None], provider: Any, **options: Any) -> list[tuple[str | None, Any]]:
    """Return text and vector of each row, in any order."""
    frame = daft.from_pydict({"text": texts})
    vectors = embed_text(daft.col("text"), provider=provider, **{"model": BGE, **options})
    columns = frame.with_column("vector", vectors).to_pydict()
    return list(zip(columns["text"], columns["vector"], strict=True))


def test_ten_thousand_rows_on_four_slots(
    emulator: Emulator, settings: dict[str, Any], vector_of: Callable[[str], list[float]]
) -> None:
    texts = [f"row number {number}" for number in range(ROWS)]
    rows = embedded(texts, WorkersAIProvider(**settings))
    assert sorted(text for text, _ in rows) == sorted(texts)
    assert {len(vector) for _, vector in rows} == {384}
    assert (emulator.log.texts_embedded, emulator.log.texts_repeated) == (ROWS, 0)
    assert emulator.log.requests <= 1.4 * ROWS / 100
    for text, vector in (rows[place] for place in SAMPLE):
        assert vector.tolist() == pytest.approx(vector_of(text))
    print(f"daft: {emulator.log.requests} requests, {emulator.log.rejected} rejected, for {ROWS} rows")  # noqa: T201


def test_an_attached_provider_has_a_name(settings: dict[str, Any]) -> None:
    daft.attach_provider(WorkersAIProvider("mine", **settings))
    try:
        assert len(embedded(["a"], "mine")[0][1]) == 384
    finally:
        daft.detach_provider("mine")


def test_a_null_stays_a_null(settings: dict[str, Any]) -> None:
    vectors = dict(embedded(["a", None, "b"], WorkersAIProvider(**settings)))
    assert vectors[None] is None
    assert vectors["a"].tolist() != vectors["b"].tolist()


def test_rows_in_any_number_and_batches_of_any_size(emulator: Emulator, settings: dict[str, Any]) -> None:
    texts = [f"row number {number}" for number in range(70)]
    rows = embedded(texts, WorkersAIProvider(**settings), batch_size=30, pooling="cls", normalize=True)
    assert sorted(text for text, _ in rows) == sorted(texts)
    bodies = [entry.json for entry in emulator.log.entries]
    assert sorted(len(body["text"]) for body in bodies) == [10, 30, 30]
    assert {body["pooling"] for body in bodies} == {"cls"}
    assert [sum(vector**2) for _, vector in rows] == pytest.approx([1.0] * 70, abs=1e-5)


@pytest.mark.parametrize("texts", [[], [None, None]])
def test_nothing_to_embed_sends_nothing(emulator: Emulator, settings: dict[str, Any], texts: list[None]) -> None:
    frame = daft.from_pydict({"text": daft.Series.from_pylist(texts, dtype=daft.DataType.string())})
    vectors = embed_text(daft.col("text"), provider=WorkersAIProvider(**settings), model=BGE)
    assert frame.with_column("vector", vectors).to_pydict()["vector"] == texts
    assert emulator.log.requests == 0


def test_an_empty_text_is_reported_by_its_index(emulator: Emulator, settings: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="text 1 is empty"):
        embedded(["a", "", "b"], WorkersAIProvider(**settings))
    assert emulator.log.requests == 0
    assert len(embedded(["a", "", "b"], WorkersAIProvider(**settings), empty_text="space")) == 3


def test_on_error_ignore_drops_the_failed_batch_only(emulator: Emulator, settings: dict[str, Any]) -> None:
    texts: list[str | None] = [f"row number {number}" for number in range(250)]
    texts[120] = ""
    vectors = dict(embedded(texts, WorkersAIProvider(**settings), on_error="ignore"))
    assert [text for text in texts if vectors[text] is None] == texts[100:200]
    assert emulator.log.texts_embedded == 150


def test_daft_receives_the_delay_of_the_service(emulator: Emulator, settings: dict[str, Any]) -> None:
    never: list[dict[str, Any]] = [{"max_retries": 0}, {"retry": RetryPolicy(max_retries=0)}]
    for told, expected, policy in (("7", 7.0, never[0]), (None, 5.0, never[1])):
        emulator.faults.add(Fault.busy(times=1, retry_after=told))
        embedder = pickle.loads(
            pickle.dumps(WorkersAIProvider(**settings, **policy).get_text_embedder(BGE))
        ).instantiate()
        with pytest.raises(RetryAfterError) as caught:
            asyncio.run(embedder.embed_text(["a"]))
        assert caught.value.retry_after == expected
        assert isinstance(caught.value.__cause__, CapacityError)


def test_the_pickled_embedder_shows_no_token(settings: dict[str, Any]) -> None:
    provider = WorkersAIProvider(**settings)
    embedder = pickle.loads(pickle.dumps(provider.get_text_embedder(BGE)))
    assert settings["api_token"] not in f"{provider!r} {embedder!r} {embedder.get_options()}"
    assert len(asyncio.run(embedder.instantiate().embed_text(["a"]))[0]) == 384


def test_daft_retries_after_the_last_retry_of_the_client(emulator: Emulator, settings: dict[str, Any]) -> None:
    emulator.faults.add(Fault.busy(times=2, retry_after="0.01"))
    assert len(embedded(["a"], WorkersAIProvider(**settings, max_retries=0), max_retries=2)) == 1
    assert emulator.log.requests == 3


def test_a_permanent_error_is_sent_once(emulator: Emulator, settings: dict[str, Any]) -> None:
    emulator.faults.add(Fault.error(429, 3036, "You have used up your daily free allocation", times=None))
    with pytest.raises(Exception, match="3036"):
        embedded(["a"], WorkersAIProvider(**settings), max_retries=3)
    assert emulator.log.requests == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": None}, "model is missing"),
        ({"model": "@cf/someone/new"}, "pass dimensions="),
        ({"dimensions": 100}, "384 dimensions"),
        ({"poolin": "cls"}, "did you mean 'pooling'"),
        ({"batch_size": 0}, "batch_size must be a whole number 1 or more"),
    ],
)
def test_options_are_checked_before_anything_runs(
    emulator: Emulator, settings: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        embedded(["a"], WorkersAIProvider(**settings), **options)
    assert emulator.log.requests == 0


def test_settings_are_checked_when_the_provider_is_created(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'on_busy'"):
        WorkersAIProvider(**settings, onbusy="raise")


def test_the_guide(run_guide: Callable[[str], dict[str, Any]]) -> None:
    try:
        rows = run_guide("Daft")["rows"]
    finally:
        daft.detach_provider("workers-ai")
    vectors = dict(zip(rows["id"], rows["vector"], strict=True))
    assert [vectors[number] is None for number in (1, 2, 3)] == [False, True, False]
    assert len(vectors[1]) == 768
