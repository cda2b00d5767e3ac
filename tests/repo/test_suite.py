"""Rules of the test suite: no network, warnings are errors, a skipped test has a reason."""

from __future__ import annotations

import ast
import socket
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_socket import SocketConnectBlockedError
from repository import ROOT, project_of, tracked
from tests.support import thin_out

TESTS = [path for path in tracked() if path.suffix == ".py" and path.is_relative_to(ROOT / "tests")]
SKIPS = {"skip", "skipif", "xfail", "importorskip"}


@pytest.mark.filterwarnings("ignore:A test tried to use socket")
def test_only_loopback_connections_are_allowed() -> None:
    with pytest.raises(SocketConnectBlockedError):
        socket.create_connection(("192.0.2.1", 443), timeout=1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
        pass


def test_a_warning_is_an_error() -> None:
    with pytest.raises(UserWarning, match="example"):
        warnings.warn("example", UserWarning, stacklevel=1)


def test_an_expected_failure_that_passes_fails() -> None:
    options = project_of(ROOT)["tool"]["pytest"]["ini_options"]
    assert options["xfail_strict"] is True
    assert {"--strict-markers", "--strict-config", "--import-mode=importlib"} <= set(options["addopts"])


def skips(path: Path) -> Iterator[ast.Call]:
    """Yield the calls that skip a test or expect its failure."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source if any(f".{name}(" in source for name in SKIPS) else "")):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SKIPS:
            yield node


def test_every_skip_has_a_reason() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in TESTS
        for call in skips(path)
        if not any(keyword.arg == "reason" for keyword in call.keywords)
        and not (call.func.attr == "skip" and call.args)  # type: ignore[attr-defined]
    ]
    assert silent == []


def items_of(name: str, fixtures: dict[str, list[str]], rows: list[str]) -> list[Any]:
    """Return the items of a test with parametrized fixtures, and with rows of the argument ``row``."""
    marks = [pytest.mark.parametrize("row", rows).mark] if rows else []
    names = [*fixtures, "row"] if rows else [*fixtures]
    return [
        SimpleNamespace(
            nodeid=f"{name}[{'-'.join(values)}]",
            callspec=SimpleNamespace(params=dict(zip(names, values, strict=True))),
            iter_markers=lambda _: iter(marks),
        )
        for values in product(*fixtures.values(), *([rows] if rows else []))
    ]


@pytest.mark.parametrize("name", [f"test_{number}" for number in range(3)])
def test_each_row_runs_on_one_combination_of_the_axes(name: str) -> None:
    rows = [f"row {number}" for number in range(8)]
    fixtures = {"face": ["sync", "async"], "route": ["run", "chat_completions"]}
    kept = [item.callspec.params for item in thin_out(items_of(name, fixtures, rows))]
    assert sorted(params["row"] for params in kept) == rows
    assert len({(params["face"], params["route"]) for params in kept}) == 4


def test_a_test_without_rows_keeps_every_value_of_other_fixtures() -> None:
    stores = {"store": ["chroma", "faiss"], "face": ["sync", "async"]}
    kept = [item.callspec.params["store"] for item in thin_out(items_of("test_store", stores, []))]
    assert sorted(kept) == ["chroma", "faiss"]


def test_every_eighth_test_without_rows_runs_on_all_combinations() -> None:
    fixtures = {"face": ["sync", "async"]}
    counts = Counter(len(thin_out(items_of(f"test_{number}", fixtures, []))) for number in range(400))
    assert counts.keys() == {1, 2}
    assert 25 <= counts[2] <= 75
