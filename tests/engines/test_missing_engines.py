"""What a user sees without the extra; runs wherever the engines are or are not."""

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
def test_a_missing_engine_names_the_command(
    monkeypatch: pytest.MonkeyPatch, module: str, missing: str, command: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # any import of it fails
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=command):
        importlib.import_module(module)
