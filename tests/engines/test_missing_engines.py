"""Errors without the extra. These tests run with and without the engines."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "missing", "command"),
    [
        ("workers_ai.daft", "daft", r"pip install 'workers-ai\[daft\]'"),
        ("workers_ai.daft", "numpy", r"pip install 'workers-ai\[daft\]'"),
        ("workers_ai.ray", "numpy", r"pip install 'workers-ai\[ray\]'"),
    ],
)
def test_the_error_of_a_missing_engine_has_the_install_command(
    monkeypatch: pytest.MonkeyPatch, module: str, missing: str, command: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # importing it fails
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=command):
        importlib.import_module(module)
