"""Run every notebook on the emulator; check that it is committed without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXPECTED = {
    "bulk_generation": [
        "inputs       120",
        "killed after 30 answers\n -9",
        "failed    0",
        "reused 120 of 120, 0 tokens, $0.00",
        "at most $0.",
        "120 rows",
    ],
    "langchain_quickstart": [
        "Sognefjord",
        "Mjosa",
        "'timetable'",
        "14:02",
        "['42']",
        "destination='Moss'",
        "opens at ten",
    ],
}
NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_without_outputs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert code
    assert [cell.outputs for cell in code] == [[] for _ in code]
    assert [cell.execution_count for cell in code] == [None for _ in code]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_on_the_emulator(path: Path, workers_ai_emulator_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFLARE_BASE_URL", workers_ai_emulator_url)
    monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", "account")
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "token")
    monkeypatch.setenv("BULK_DOCUMENTS", "120")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    shown = "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain", output.output_type)
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert [text for text in EXPECTED[path.stem] if text not in shown] == []
