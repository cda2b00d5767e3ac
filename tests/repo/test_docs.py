"""The documentation site: every error code has a page, and pages agree with the code."""

from __future__ import annotations

import gc
import json
import re
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from page_code import blocks, run_block
from repository import ROOT
from tests.support import every_row

from workers_ai import errors
from workers_ai._wire.error_mapping import CODES, ErrorDetails, classify
from workers_ai_emulator import Emulator, Fault

DOCS = ROOT / "docs"
ENTRIES: dict[str, dict[str, Any]] = tomllib.loads((DOCS / "errors" / "errors.toml").read_text(encoding="utf-8"))


def test_every_code_and_every_error_without_a_code_has_a_page() -> None:
    named = {name for name in ENTRIES if not name.isdecimal()}
    assert {int(name) for name in ENTRIES if name.isdecimal()} == set(CODES)
    by_code = {cls.__name__ for cls, _ in CODES.values()}
    bases = {"APIStatusError", "ErrorResponse", "WorkersAIError"}
    assert named - {"LedgerError"} | by_code | bases == set(errors.__all__)


@every_row("name", ENTRIES)
def test_an_entry_is_complete(name: str) -> None:
    entry = ENTRIES[name]
    assert set(entry) - {"source"} == {"title", "message", "why", "do"} | ({"evidence"} if name.isdecimal() else set())
    assert entry.get("evidence", "documented") in {"documented", "recorded", "assumed"}
    assert all([entry["title"], entry["why"], *entry["do"]])


def test_the_table_of_statuses_matches_the_mapping() -> None:
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


def test_twenty_tasks_are_two_clicks_from_the_front_page() -> None:
    tasks = (DOCS / "index.md").read_text(encoding="utf-8").partition("## Find your task")[2].partition("\n## ")[0]
    links = re.findall(r"\]\(([^)]+)\)", tasks)
    assert len(set(links)) == len(links) >= 20


@pytest.mark.parametrize(
    ("fault", "status", "retry_after"),
    [
        (None, 200, None),
        (Fault.busy(times=None), 503, "5"),
        (Fault.error(429, 4006, "used up", times=None), 503, r"\d{1,5}"),
        (Fault.error(413, 5021, "too long"), 422, None),
        (Fault.error(401, 10000, "Authentication error"), 502, None),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_the_guide_on_a_web_endpoint(
    workers_ai_emulator_env: Emulator, fault: Fault | None, status: int, retry_after: str | None
) -> None:
    ((_, code),) = blocks(DOCS / "guides" / "web.md")
    names: dict[str, Any] = {"__name__": "web"}
    exec(compile(code, "web.md", "exec"), names)
    if fault:
        workers_ai_emulator_env.faults.add(fault)
    with TestClient(names["app"], raise_server_exceptions=False) as client:
        reply = client.get("/answer", params={"question": "Why is the sky blue?"})
    assert reply.status_code == status
    assert re.fullmatch(retry_after or "", reply.headers.get("retry-after", ""))


UPSTREAM = sorted(path for path in (DOCS / "upstream").rglob("*") if path.suffix in {".mdx", ".ipynb"})


def parts(path: Path) -> list[str]:
    """Return the Python code of a page or notebook, part by part."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".mdx":
        return [
            textwrap.dedent(code)
            for code in re.findall(r"^ *```python[^\n]*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
        ]
    cells = json.loads(text)["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning")
@pytest.mark.usefixtures("workers_ai_emulator_env", "event_loop_of_llama_index", "short_waits", "young_garbage")
@pytest.mark.parametrize("path", UPSTREAM, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_pages_for_other_sites_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the parts of a page one after another, as in a notebook."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(part for part in parts(path) if not part.startswith("%pip"))
    run_block(path, 1, code)
    gc.collect()
