"""The documentation site: every error code has a page, and pages agree with the code."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from repository import ROOT

from workers_ai import errors
from workers_ai._wire.error_mapping import CODES, ErrorDetails, classify

DOCS = ROOT / "docs"
ENTRIES: dict[str, dict[str, Any]] = tomllib.loads((DOCS / "errors" / "errors.toml").read_text(encoding="utf-8"))


def test_every_code_and_every_error_without_a_code_has_a_page() -> None:
    named = {name for name in ENTRIES if not name.isdecimal()}
    assert {int(name) for name in ENTRIES if name.isdecimal()} == set(CODES)
    by_code = {cls.__name__ for cls, _ in CODES.values()}
    bases = {"APIStatusError", "ErrorResponse", "WorkersAIError"}
    assert named - {"LedgerError"} | by_code | bases == set(errors.__all__)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_complete(name: str) -> None:
    entry = ENTRIES[name]
    assert set(entry) == {"title", "message", "why", "do"} | ({"evidence"} if name.isdecimal() else set())
    assert entry.get("evidence", "documented") in {"documented", "recorded", "assumed"}
    assert all([entry["title"], entry["why"], *entry["do"]])


def test_the_table_of_statuses_is_the_mapping() -> None:
    text = (DOCS / "errors" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([\w ,]+?) \| `(\w+)` \| (yes|no) \|$", text.partition("## Errors by status")[2], re.MULTILINE
    )
    statuses = {"other 4xx": [400, 405, 422], "5xx, pages 520 to 527": [500, 503, 522]}
    assert len(rows) == 10
    for row, name, retried in rows:
        for status in statuses.get(row) or map(int, row.split(", ")):
            cls = classify(ErrorDetails(""), status)
            assert cls is not None
            assert (cls.__name__, cls.is_retryable or status == 409) == (name, retried == "yes")
