"""The report and the output files of an ingestion."""

from __future__ import annotations

import builtins
import json
from array import array
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support import read_html

from workers_ai.errors import ConfigurationError
from workers_ai.ingest import Estimate, Failure, IngestReport, Row, estimate
from workers_ai.ingest._parquet import write_parquet
from workers_ai.ledger._records import text_hash
from workers_ai_emulator import ItemFailure

MODEL = "@cf/baai/bge-small-en-v1.5"
REPORT = IngestReport(
    model=MODEL,
    embedded=12_000,
    reused=3,
    failed=2,
    failures=[Failure("a<b", 5004, "not <this> one", 3), Failure(7, None, "no", 9)],
    retries=1,
    tokens=40_000,
    neurons=72.7272,
    cost_usd=0.0008,
    seconds=6.0,
    ledger=Path("corpus.ledger"),
    run=1,
)


def test_a_report_is_lines_of_text_in_a_terminal() -> None:
    assert str(REPORT).splitlines() == [
        "Ingestion with @cf/baai/bge-small-en-v1.5",
        "  embedded  12,000",
        "  reused    3",
        "  failed    2",
        "  retries   1",
        "  tokens    40,000",
        "  neurons   72.73",
        "  cost      $0.000800",
        "  seconds   6.0 (2,000 texts/s)",
        "  failed    a<b: not <this> one (code 5004)",
        "  failed    7: no",
    ]


def test_a_report_lists_ten_failures_and_counts_the_others() -> None:
    failures = [Failure(number, None, "no", number) for number in range(30)]
    report = IngestReport(MODEL, 0, 0, 40, failures, 0, 0, None, None, 0.0, Path("ledger"), 1)
    lines = str(report).splitlines()
    assert lines[-2:] == ["  failed    9: no", "  failed    ... and 30 more"]
    assert not any("cost" in line for line in lines), "a price that is not known"
    assert report.summary(failures=30).splitlines()[-1] == "  failed    ... and 10 more"
    assert report.summary(failures=0).splitlines()[-1] == "  failed    ... and 40 more"


def test_a_report_is_a_table_in_a_notebook() -> None:
    assert read_html(REPORT) == [
        ["Ingestion with @cf/baai/bge-small-en-v1.5"],
        ["embedded", "12,000"],
        ["reused", "3"],
        ["failed", "2"],
        ["retries", "1"],
        ["tokens", "40,000"],
        ["neurons", "72.73"],
        ["cost", "$0.000800"],
        ["seconds", "6.0 (2,000 texts/s)"],
        ["failed id", "code", "message"],
        ["a<b", "5004", "not <this> one"],
        ["7", "", "no"],
    ]


def test_a_report_shows_no_path_and_no_run_in_its_repr() -> None:
    assert "corpus.ledger" not in repr(REPORT)


def test_the_report_of_a_run_adds_up(run: Any, emulator: Any) -> None:
    """Twenty texts of one word have 1.3 tokens each (2 for the service). One fails. The price is $0.02 per million."""
    emulator.queue.settings.failures = [ItemFailure(contains='"w7"', code=5004, message="no")]
    documents = [(number, f"w{number % 20}") for number in range(50)]
    report = run(documents, texts_per_job=100)
    assert (report.embedded, report.reused, report.failed) == (19, 28, 3)
    assert report.failures == [(7, 5004, "no", 7), (27, 5004, "no", 27), (47, 5004, "no", 47)]
    assert report.tokens == 19 * 2
    assert report.cost_usd == pytest.approx(19 * 2 * 0.02 / 1e6, rel=0.5), "the service rounds to hundredths"
    assert report.cost_usd == pytest.approx(report.neurons * 0.000011)
    assert [row.id for row in report.rows()] == list(range(50))
    assert len(list(report.vectors())) == 47
    assert {row.hash for row in report.rows()} == {text_hash(f"w{number}") for number in range(20)}


# Parquet


def rows(*ids: Any) -> list[tuple[Row, str | None]]:
    return [(Row(doc_id, text_hash(str(doc_id)), array("f", [number, 0.5])), None) for number, doc_id in enumerate(ids)]


def test_parquet_holds_fixed_size_float32_vectors(tmp_path: Path) -> None:
    documents = [*rows("a", 7), (Row("failed", b"", None), None)]
    documents[0] = (documents[0][0], '{"page": 1}')
    path = tmp_path / "vectors.parquet"
    assert write_parquet(documents, path) == 2
    table = pq.read_table(path)
    assert table.schema.field("vector").type.equals(pa.list_(pa.field("element", pa.float32(), nullable=False), 2))
    assert table.column_names == ["id", "text_hash", "vector", "metadata"]
    assert table.to_pylist() == [
        {"id": "a", "text_hash": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
         "vector": [0.0, 0.5], "metadata": '{"page": 1}'},
        {"id": "7", "text_hash": "7902699be42c8a8e46fbbb4501726517e86b22c56a189f7625a6da49081b2451",
         "vector": [1.0, 0.5], "metadata": None},
    ]  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 1999, 2000, 2001, 4000])
def test_parquet_of_any_length(tmp_path: Path, count: int) -> None:
    path = tmp_path / "vectors.parquet"
    assert write_parquet(rows(*range(count)), path) == count
    assert pq.read_table(path)["id"].to_pylist() == [str(number) for number in range(count)]


def test_an_existing_file_stays_until_the_new_file_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "vectors.parquet"
    write_parquet(rows("old"), path)

    def breaking() -> Any:
        yield from rows(*range(5000))
        raise LookupError("no more")

    with pytest.raises(LookupError):
        write_parquet(breaking(), path)
    assert pq.read_table(path)["id"].to_pylist() == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["vectors.parquet"]
    write_parquet(rows("new"), path)
    assert pq.read_table(path)["id"].to_pylist() == ["new"]


def test_without_pyarrow_the_error_has_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigurationError, match=r"pip install 'workers-ai\[cli\]'"):
        write_parquet(rows("a"), tmp_path / "vectors.parquet")
    assert list(tmp_path.iterdir()) == []


# Before anything is sent


def test_an_estimate_counts_new_inputs(run: Any, texts: Any, ledger: Path) -> None:
    """A token is four bytes of a text as JSON: "text number 0" has 15 bytes, which are 3 tokens."""
    documents = [("empty", ""), *texts(10), ("again", "text number 3")]
    assert estimate(documents, model=MODEL) == Estimate(
        model=MODEL, documents=12, texts=10, requests=1, submissions=1, tokens=30,
        neurons=pytest.approx(30 * 0.02 / 1e6 / 0.000011), cost_usd=pytest.approx(30 * 0.02 / 1e6), minutes=5.0,
    )  # fmt: skip
    run(texts(8))
    left = estimate(documents, model=MODEL, ledger=ledger)
    assert (left.documents, left.texts, left.tokens) == (12, 2, 6)
    assert estimate(documents, model=MODEL, empty_text="space").texts == 11


@pytest.mark.parametrize(
    ("mode", "requests", "submissions", "minutes"), [("queue", 95, 10, 5.0), ("direct", 95, 0, 95 / 3000)]
)
def test_an_estimate_counts_requests_and_minutes(
    texts: Any, mode: Any, requests: int, submissions: int, minutes: float
) -> None:
    """9,421 texts are ten concurrent submissions in five minutes, or 95 requests at 3,000 per minute."""
    found = estimate(texts(9421), model=MODEL, mode=mode)
    assert (found.requests, found.submissions) == (requests, submissions)
    assert found.minutes == pytest.approx(minutes)


def test_an_estimate_uses_the_options_of_the_run(run: Any, texts: Any, ledger: Path) -> None:
    run(texts(5), instruction="passage: ")
    assert estimate(texts(5), model=MODEL, ledger=ledger, instruction="passage: ").texts == 0
    with pytest.raises(ConfigurationError, match="instruction 'passage: ', not None"):
        estimate(texts(5), model=MODEL, ledger=ledger)


def test_an_estimate_of_a_model_without_a_price_has_no_cost(texts: Any) -> None:
    found = estimate(texts(5), model="@cf/someone/model")
    assert (found.neurons, found.cost_usd) == (None, None)
    assert "  cost         unknown" in str(found).splitlines()


def test_metadata_reads_back_as_json(tmp_path: Path) -> None:
    path = tmp_path / "vectors.parquet"
    metadata = {"ünï": ["\N{SNOWMAN}", None, 1.5]}
    write_parquet([(rows("a")[0][0], json.dumps(metadata, ensure_ascii=False))], path)
    assert json.loads(pq.read_table(path)["metadata"][0].as_py()) == metadata
