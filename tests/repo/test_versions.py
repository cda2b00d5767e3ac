"""One version everywhere: distributions, their requirements on each other, and the changelog."""

from __future__ import annotations

import importlib
import importlib.metadata
import re

from repository import PACKAGES, ROOT, project_of
from tests.support import every_row

VERSION: str = project_of(ROOT)["project"]["version"]


@every_row(("distribution", "name"), PACKAGES.items())
def test_every_distribution_has_the_version_of_the_workspace(distribution: str, name: str) -> None:
    assert importlib.import_module(name).__version__ == VERSION
    assert importlib.metadata.version(distribution) == VERSION


@every_row("distribution", PACKAGES)
def test_distributions_require_each_other_in_this_version(distribution: str) -> None:
    project = project_of(ROOT / "libs" / distribution)["project"]
    needed = [need for need in project["dependencies"] if re.split(r"[\[=<>]", need)[0] in PACKAGES]
    assert needed == ([] if distribution in ("workers-ai", "workers-ai-emulator") else [f"workers-ai=={VERSION}"])


def test_the_changelog_begins_with_this_version_and_lists_every_package() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\S+)", changelog, re.MULTILINE)
    assert headings[0] == VERSION
    assert [name for name in PACKAGES if f"`{name}`" not in changelog] == []


def test_every_distribution_is_part_of_the_workspace() -> None:
    project = project_of(ROOT)
    assert {re.split(r"\[", need)[0] for need in project["project"]["dependencies"]} == set(PACKAGES)
    assert set(project["tool"]["uv"]["sources"]) == set(PACKAGES)


def test_pins_have_a_name_and_a_version_only() -> None:
    pins = project_of(ROOT)["tool"]["uv"]["constraint-dependencies"]
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*==[0-9][0-9A-Za-z.]*", pin)] == []
    assert len({pin.partition("==")[0] for pin in pins}) == len(pins)


def test_the_python_versions_agree() -> None:
    wanted = {project_of(ROOT / "libs" / name)["project"]["requires-python"] for name in PACKAGES}
    assert wanted == {project_of(ROOT)["project"]["requires-python"]} == {">=3.11"}
