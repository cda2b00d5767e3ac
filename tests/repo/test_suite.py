"""What the tests themselves keep to: no network, no silent warning, nothing left out without a reason."""

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
LEAVES_OUT = {"skip", "skipif", "xfail", "importorskip"}


@pytest.mark.filterwarnings("ignore:A test tried to use socket")
def test_the_network_is_closed_but_for_this_machine() -> None:
    with pytest.raises(SocketConnectBlockedError):
        socket.create_connection(("192.0.2.1", 443), timeout=1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), timeout=5):
        pass


def test_a_warning_is_an_error() -> None:
    with pytest.raises(UserWarning, match="told"):
        warnings.warn("told", UserWarning, stacklevel=1)


def test_an_expected_failure_that_passes_fails() -> None:
    options = project_of(ROOT)["tool"]["pytest"]["ini_options"]
    assert options["xfail_strict"] is True
    assert {"--strict-markers", "--strict-config", "--import-mode=importlib"} <= set(options["addopts"])


def leaving_out(path: Path) -> Iterator[ast.Call]:
    """Calls that leave a test out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEAVES_OUT:
            yield node


def test_whoever_leaves_a_test_out_says_why() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in TESTS
        for call in leaving_out(path)
        if not any(keyword.arg == "reason" for keyword in call.keywords)
        and not (call.func.attr == "skip" and call.args)  # type: ignore[attr-defined]
    ]
    assert silent == []
