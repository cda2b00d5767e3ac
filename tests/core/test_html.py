"""Values with an HTML form for notebooks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import read_html

from workers_ai.batch import BatchItem, BatchJob, BatchStatus
from workers_ai.catalogue import lookup
from workers_ai.errors import BatchItemError
from workers_ai.generation import GenerateReport
from workers_ai.generation import estimate as estimate_generation
from workers_ai.ingest import Failure, IngestReport
from workers_ai.ingest import estimate as estimate_ingestion
from workers_ai.types import Usage

HOSTILE = "<script>alert('&')</script>"
"""A text that a document, a model or the service could contain."""


def test_a_report_lists_a_hundred_failures_and_counts_the_others() -> None:
    failures = [Failure(HOSTILE, None, HOSTILE, number) for number in range(150)]
    ingestion = IngestReport("model", 0, 0, 200, failures, 0, 0, None, None, 0.0, Path("private.ledger"), 1)
    generation = GenerateReport(
        "model", 0, 0, 200, failures, 0, 0, 0, 0, 0, None, None, 0.0, 0, (), Path("private.ledger"), 1
    )
    for report in (ingestion, generation):
        rows = read_html(report)
        assert rows[-3:] == [[HOSTILE, "", HOSTILE]] * 2 + [["... and 100 more"]]
        assert rows.count([HOSTILE, "", HOSTILE]) == 100
        assert "private" not in report._repr_html_()


def test_estimates() -> None:
    model = "@cf/baai/bge-small-en-v1.5"
    shown = estimate_ingestion([(1, "text"), (1, "word " * 900)], model=model)
    assert read_html(shown) == [[f"With {model}, nothing sent yet"], *(line.split(None, 1) for line in lines(shown))]
    assert "<b>" not in estimate_ingestion([], model="@cf/<b>/model")._repr_html_()
    shown = estimate_generation([(1, "text"), (2, "")], model="@cf/openai/gpt-oss-20b")
    assert [row[1] for row in read_html(shown)[1:3]] == ["2", "1"]
    assert read_html(shown)[-1] == ["unsendable", "1 inputs are empty or too long"]


def lines(shown: object) -> list[str]:
    """Return the lines of a text below its title."""
    return str(shown).splitlines()[1:]


@pytest.mark.parametrize(
    ("job", "rows"),
    [
        (BatchJob(HOSTILE, "m", 1200), [["request_id", HOSTILE], ["model", "m"], ["requests", "1,200"]]),
        (
            BatchJob("", "m"),
            [["request_id", "none: the model answered at once"], ["model", "m"], ["requests", "unknown"]],
        ),
    ],
)
def test_a_submission(job: BatchJob, rows: list[list[str]]) -> None:
    assert read_html(job) == [["Submission"], *rows]


def test_the_status_of_a_job() -> None:
    error = BatchItemError(HOSTILE, index=1, code=5004)
    items = [BatchItem(0, None, True, {}, None), BatchItem(1, "page 1", False, None, error)]
    assert read_html(BatchStatus("queued")) == [["Job"], ["state", "queued"]]
    assert read_html(BatchStatus("done", items, Usage(10, 2, 12))) == [
        ["Job"],
        ["state", "done"],
        ["succeeded", "1"],
        ["failed", "1"],
        ["tokens", "12"],
        ["index", "reference", "error"],
        ["1", "page 1", str(error)],
    ]


def test_a_model_card_shows_known_facts_only() -> None:
    rows = read_html(lookup("@cf/openai/gpt-oss-120b"))
    assert rows[0] == ["@cf/openai/gpt-oss-120b"]
    assert ["context_window", "128,000"] in rows
    assert ["reasoning_efforts", "low, medium, high"] in rows
    assert ["tools", "yes"] in rows
    assert ["usd_per_m_in", "0.35"] in rows
    assert all(value != "None" for _, value in rows[1:])
    assert read_html(lookup("@cf/<b>/model")) == [["@cf/<b>/model"]]
