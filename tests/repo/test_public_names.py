"""The public line: the list of public names, and the private modules that no framework package may import."""

from __future__ import annotations

import importlib

from public_names import LIST, private_modules, public_names
from repository import ROOT, project_of
from tests.support import every_row


def test_public_names_change_only_on_purpose() -> None:
    listed = LIST.read_text(encoding="utf-8").splitlines()
    current = public_names()
    changes = [f"- {line}" for line in sorted({*listed} - {*current})]
    changes += [f"+ {line}" for line in sorted({*current} - {*listed})]
    assert listed == current, (
        "Public names changed. If that is intended, run `uv run python tests/repo/public_names.py`, note the change in "
        "CHANGELOG.md and follow docs/stability.md:\n" + "\n".join(changes)
    )


def test_the_import_contract_lists_every_private_module_of_the_core() -> None:
    contracts = project_of(ROOT)["tool"]["importlinter"]["contracts"]
    public = next(contract for contract in contracts if contract["id"] == "public")
    assert set(public["forbidden_modules"]) == private_modules("workers_ai")


@every_row("name", ["workers_ai", "workers_ai.integration"])
def test_every_lazy_name_is_importable(name: str) -> None:
    module = importlib.import_module(name)
    assert [one for one in module.__all__ if not hasattr(module, one)] == []
    assert set(module.__all__) <= set(dir(module))
