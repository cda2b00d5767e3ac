"""Run every notebook on the emulator; check that it is committed without outputs.

The cells run in this process, inside a running event loop, as in Jupyter. ``.ci/run notebooks`` runs the same notebooks
in real kernels.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

EXPECTED = {
    "agent": """
        ('ticket_price', {'place': 'Moss', 'passengers': 3})
        Ferries to Horten leave
        ['The', ' sea', ' is']
        Trip(destination='Moss', leaves_at='14:02', passengers=3)
        error: the weather service does not answer
    """,
    "capacity": """
        'on_busy="wait"': ['answered']
        12 answers
        requests sent: 1
        2 figures
    """,
    "bulk_generation": """
        inputs       120
        killed after 30 answers
        <th>failed</th><td>0</td>
        reused 120 of 120, 0 tokens, $0.00
        at most $0.
        120 rows
    """,
    "langchain_quickstart": """
        Sognefjord
        Mjosa
        ('timetable', 0.63)
        14:02
        The result of multiply is: 42
        destination='Moss'
        opens at ten
        >@cf/meta/llama-3.3-70b-instruct-fp8-fast</caption>
    """,
    "llama_index_quickstart": """
        Sognefjord
        Mjosa
        ('stop', 22)
        ('timetable', 0.62)
        destination='Moss'
        tool: departures {'place': 'Moss'}
        (250, 1024)
    """,
    "rag_over_the_queue": """
        nothing sent yet
        <th>reused</th><td>0</td>
        <th>embedded</th><td>1</td>
        A: statistics median: Return the median
        ('tempfile.mkdtemp',
        'urllib.parse.urlsplit',
        1 figures
    """,
    "testing": """
        14:02
        ['At two.', 'At four.']
        Try again in a moment
        QuotaExhaustedError: retryable False, attempts 1
        APIConnectionError: retryable True, attempts 3
        interrupted after: The ferry
        bad text
        (301, 0)
    """,
}
"""Texts that the outputs of a notebook contain, one a line."""

SHORTER = {"capacity": ("BUSY_S = 1.0", "BUSY_S = 0.15")}
"""The duration that a notebook emulates, and the shorter one of its test."""

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[Any]:
    """Return the code cells of a notebook."""
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_without_outputs(path: Path) -> None:
    cells = code_cells(path)
    assert cells
    assert [(cell.outputs, cell.execution_count) for cell in cells] == [([], None)] * len(cells)


async def run_cell(source: str, names: dict[str, Any]) -> str:
    """Run a cell as Jupyter does, and return what its last expression displays."""
    tree = ast.parse(source)
    shown = None
    if isinstance(tree.body[-1], ast.Expr):
        target = ast.Name("_shown", ast.Store(), lineno=1, col_offset=0)
        tree.body[-1] = ast.copy_location(ast.Assign([target], tree.body[-1].value), tree.body[-1])
    code = compile(ast.fix_missing_locations(tree), "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = types.FunctionType(code, names)()
    if inspect.iscoroutine(result):
        await result
    shown = names.pop("_shown", None)
    drawn = shown._repr_html_() if hasattr(shown, "_repr_html_") else repr(shown)
    return "" if shown is None else f"{drawn}\n"


async def run_notebook(path: Path, names: dict[str, Any]) -> str:
    """Run a notebook and return what its last expressions display."""
    long, short = SHORTER.get(path.stem, ("", ""))
    sources = [cell.source for cell in code_cells(path)]
    assert any(long in source for source in sources)
    return "".join([await run_cell(source.replace(long, short) if long else source, names) for source in sources])


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Return the namespace of a notebook; afterwards, stop its server and restore what it set."""
    for name in ("CLOUDFLARE_BASE_URL", "CLOUDFLARE_ACCOUNT_ID", "CLOUDFLARE_API_TOKEN"):
        monkeypatch.setenv(name, "restored afterwards")
        monkeypatch.delenv(name)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("BULK_DOCUMENTS", "120")
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    yield names
    if "server" in names:
        names["server"].stop()


# LlamaIndex imports LangChain if it is installed, and reads attributes that pydantic deprecates.
@pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_on_the_emulator(
    path: Path, names: dict[str, Any], request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if path.stem not in SHORTER:
        request.getfixturevalue("short_waits")
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib draws the figures")
    pyplot.switch_backend("agg")
    displayed = asyncio.run(run_notebook(path, names))
    figures = len(pyplot.get_fignums())
    pyplot.close("all")
    outputs = f"{capsys.readouterr().out}{displayed}{figures} figures"
    assert [line for line in EXPECTED[path.stem].strip().splitlines() if line.strip() not in outputs] == []
