"""Check the layout: top level, namespaces, type markers, wheels, exported names, names of test files."""

from __future__ import annotations

import importlib
import re
from collections import Counter

from repository import PACKAGES, ROOT, leaf_of, project_of, tracked
from tests.support import every_row

TOP_LEVEL = {
    ".ci",
    ".github",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "cassettes",
    "docs",
    "examples",
    "libs",
    "mkdocs.yml",
    "notebooks",
    "pyproject.toml",
    "tests",
}
MODULES = [path for path in tracked() if path.suffix == ".py" and path.is_relative_to(ROOT / "libs")]


def test_the_top_level_is_the_agreed_list() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} == TOP_LEVEL


def test_every_folder_of_libs_is_a_package() -> None:
    assert {path.relative_to(ROOT / "libs").parts[0] for path in MODULES} == set(PACKAGES)


@every_row("distribution", PACKAGES)
def test_a_package_has_its_types_license_and_readme(distribution: str) -> None:
    folder = ROOT / "libs" / distribution
    assert (leaf_of(distribution) / "py.typed").read_bytes() == b""
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (folder / "README.md").read_text(encoding="utf-8").startswith(f"# {distribution}\n")


@every_row("distribution", PACKAGES)
def test_nothing_above_the_leaf_is_a_package(distribution: str) -> None:
    """``llama_index`` and its categories are namespaces, shared with other distributions."""
    folder, leaf = ROOT / "libs" / distribution, leaf_of(distribution)
    above = [path for path in leaf.parents if path.is_relative_to(folder)]
    assert [path for path in above if list(path.glob("*.py"))] == []
    assert (leaf / "__init__.py").is_file()


@every_row("distribution", PACKAGES)
def test_a_wheel_contains_the_package_only(distribution: str) -> None:
    folder = ROOT / "libs" / distribution
    targets = project_of(folder)["tool"]["hatch"]["build"]["targets"]
    root = f"{PACKAGES[distribution].partition('.')[0]}/"
    assert targets["wheel"]["include"] == targets["sdist"]["include"] == [root]
    inside = [path for path in tracked() if path.is_relative_to(folder / root)]
    assert [path for path in inside if not path.is_relative_to(leaf_of(distribution))] == []
    assert {path.suffix for path in inside} <= {".py", ".json", ".typed"}
    beside = {path.name for path in tracked() if path.parent == folder}
    assert beside == {"LICENSE", "README.md", "pyproject.toml"}


@every_row("name", PACKAGES.values())
def test_every_exported_name_exists_and_is_in_order(name: str) -> None:
    module = importlib.import_module(name)
    optional = {"WorkersAIDecisions"}  # appended if langchain-core is new enough
    names = [one for one in module.__all__ if one != "__version__" and one not in optional]
    assert names == sorted(names, key=lambda one: (one.upper() != one, one))
    assert len(set(module.__all__)) == len(module.__all__)
    assert [one for one in module.__all__ if not hasattr(module, one)] == []


def test_names_of_test_files_are_unique() -> None:
    names = Counter(path.name for path in tracked() if path.name.startswith("test_") and path.suffix == ".py")
    assert [name for name, count in names.items() if count > 1] == []


@every_row(("folder", "suffix"), [("examples", ".py"), ("notebooks", ".ipynb")])
def test_every_example_is_listed_and_has_a_test(folder: str, suffix: str) -> None:
    names = {path.name for path in tracked() if path.parent == ROOT / folder and path.suffix == suffix}
    readme = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    assert sorted(names) == sorted(re.findall(r"^\| \[`(.+?)`\]\(\1\)", readme, re.MULTILINE))
    tests = {path.name for path in tracked() if path.is_relative_to(ROOT / "tests" / folder)}
    needed = {name for name in names if not name.startswith("test_")} if suffix == ".py" else set()
    assert {f"test_{name}" for name in needed} <= tests
