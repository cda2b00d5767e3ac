"""Ray Data's ``map_batches`` with the callable class, on a local Ray with two CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="Ray is in the dependency group 'engines'")
pytest.importorskip("ray.data", reason="Ray Data is in the dependency group 'engines'")

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from workers_ai.errors import BadRequestError, ConfigurationError  # noqa: E402
from workers_ai.ray import WorkersAIEmbedder, WorkersAIGenerator  # noqa: E402
from workers_ai_emulator import Emulator, Fault, QueueSettings  # noqa: E402
from workers_ai_emulator.state.queue import ItemFailure  # noqa: E402

BGE = "@cf/baai/bge-small-en-v1.5"
ROWS = 10_000

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),  # Ray warns about its own settings
    pytest.mark.timeout(240),  # it starts slowly on a busy machine
]


@pytest.fixture(scope="module", autouse=True)
def local_ray() -> Iterator[Emulator]:
    """Start Ray. Its workers inherit the environment with the URL of the emulator. Return the emulator."""
    emulator = Emulator()
    with emulator.serve() as url, pytest.MonkeyPatch.context() as environment:
        environment.setenv("CLOUDFLARE_ACCOUNT_ID", "0123456789abcdef0123456789abcdef")
        environment.setenv("CLOUDFLARE_API_TOKEN", "token-of-the-tests")
        environment.setenv("CLOUDFLARE_BASE_URL", url)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield emulator
        ray.shutdown()


def embedded(rows: int, settings: dict[str, Any], **options: Any) -> Any:
    texts = ray.data.from_items([{"id": number, "text": f"row number {number}"} for number in range(rows)])
    return texts.map_batches(
        WorkersAIEmbedder,
        fn_constructor_kwargs={"model": BGE, **settings, **options},
        batch_size=800,
        compute=ray.data.ActorPoolStrategy(size=1),
    ).materialize()


def test_ten_thousand_rows_on_four_slots(
    emulator: Emulator, settings: dict[str, Any], vector_of: Callable[[str], list[float]]
) -> None:
    rows = embedded(ROWS, settings).take_all()
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    assert {row["vector"].shape for row in rows} == {(384,)}
    assert (emulator.log.texts_embedded, emulator.log.texts_repeated) == (ROWS, 0)
    assert emulator.log.requests <= 1.4 * ROWS / 100
    for row in (rows[0], rows[5_000], rows[-1]):
        assert row["vector"].tolist() == pytest.approx(vector_of(row["text"]))
    print(f"ray: {emulator.log.requests} requests, {emulator.log.rejected} rejected, for {ROWS} rows")  # noqa: T201


def test_a_permanent_error_ends_the_job_and_is_sent_once(emulator: Emulator, settings: dict[str, Any]) -> None:
    emulator.faults.add(Fault.error(429, 3036, "You have used up your daily free allocation", times=None))
    with pytest.raises(Exception, match="3036"):
        embedded(50, settings)
    assert emulator.log.requests == 1


def test_names_of_columns_can_be_set(emulator: Emulator, settings: dict[str, Any]) -> None:
    embedder = WorkersAIEmbedder(BGE, column="body", output="embedding", normalize=True, **settings)
    batch = embedder({"body": np.array(["a", "b"]), "id": np.array([1, 2])})
    assert set(batch) == {"body", "id", "embedding"}
    assert batch["embedding"].dtype == np.float32
    assert np.linalg.norm(batch["embedding"], axis=1) == pytest.approx([1.0, 1.0], abs=1e-5)


def test_an_invalid_text_is_reported_by_its_index(emulator: Emulator, settings: dict[str, Any]) -> None:
    embedder = WorkersAIEmbedder(BGE, **settings)
    for texts, message in ((["a", ""], "text 1 is empty"), (["a", "b", None], "text 2 is a NoneType")):
        with pytest.raises(BadRequestError, match=message):
            embedder({"text": np.array(texts, dtype=object)})
    assert emulator.log.requests == 0
    batch = WorkersAIEmbedder(BGE, empty_text="space", **settings)({"text": np.array(["a", ""], dtype=object)})
    assert batch["vector"].shape == (2, 384)


def test_settings_are_checked_when_the_object_is_created(settings: dict[str, Any]) -> None:
    for options, message in (({"model": None}, "model is missing"), ({"model": BGE, "onbusy": "x"}, "'on_busy'")):
        with pytest.raises(ConfigurationError, match=message):
            WorkersAIEmbedder(**settings, **options)


def test_the_guide(run_guide: Callable[[str], dict[str, Any]]) -> None:
    rows = run_guide("Ray")["rows"]
    assert sorted(row["id"] for row in rows) == list(range(300))
    assert {row["vector"].shape for row in rows} == {(768,)}


def test_the_guide_on_answers(
    run_guide: Callable[[str], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = run_guide("Answers in Ray")["rows"]
    assert sorted(row["id"] for row in rows) == list(range(300))
    assert all(row["answer"] and not row["error"] for row in rows)


def test_answers_of_two_thousand_rows_with_one_invalid_row(tmp_path: Path) -> None:
    emulator = Emulator(queue=QueueSettings("at_once", failures=[ItemFailure(contains="number 7.", times=99)]))
    with emulator.serve() as url:
        rows = ray.data.from_items([{"id": number, "text": f"Notice number {number}."} for number in range(2_000)])
        options = {"model": "@cf/qwen/qwen3-30b-a3b-fp8", "max_tokens": 50, "base_url": url}
        found = rows.map_batches(
            WorkersAIGenerator,
            fn_constructor_kwargs={**options, "ledger": str(tmp_path / "ledger")},
            batch_size=200,
            compute=ray.data.ActorPoolStrategy(size=1),
        ).take_all()
    assert sorted(row["id"] for row in found) == list(range(2_000))
    assert [row["id"] for row in found if row["error"]] == [7]
    assert [row["id"] for row in found if row["answer"] is None] == [7]
    submitted = [entry.json["requests"] for entry in emulator.log.entries if "requests" in (entry.json or {})]
    texts = [item["messages"][-1]["content"] for items in submitted for item in items]
    assert [text for text in set(texts) if texts.count(text) > 1] in ([], ["Notice number 7."])


@pytest.mark.timeout(900)  # two queries, each with its own actor and tasks, and a third for the checkpoint
def test_checkpoints_of_the_guide_leave_out_rows_that_were_written(
    local_ray: Emulator, run_guide: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        (tmp_path / "notices").mkdir(exist_ok=True)
        ids = list(range(number * 10, number * 10 + 10))
        table = pa.table({"id": ids, "text": [f"Checkpoint number {one}." for one in ids]})
        pq.write_table(table, tmp_path / "notices" / f"{number}.parquet")
        Path("notices.ledger").unlink(missing_ok=True)  # it already has answers for these rows
        local_ray.log.clear()
        run_guide("Answers in Ray", 1)
        sent = [item for entry in local_ray.log.entries for item in (entry.json or {}).get("requests", ())]
        assert len(sent) == 10
    answers = pq.read_table(tmp_path / "answers").to_pylist()
    assert sorted(row["id"] for row in answers) == list(range(20))
    assert all(row["answer"] for row in answers)
