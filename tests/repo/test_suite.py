"""Rules of the test suite: no network, warnings are errors, a skipped test has a reason."""

from __future__ import annotations

import ast
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_socket import SocketConnectBlockedError
from repository import ROOT, project_of, tracked

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
