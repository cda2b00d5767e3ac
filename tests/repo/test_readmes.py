"""READMEs and pages of the site: code runs, cited files, commands and tests exist, tables agree with the code."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest
from page_code import ELSEWHERE, blocks, run_block
from repository import PACKAGES, READMES, ROOT, named, project_of
from tests.support import every_row

from workers_ai import Settings, errors

DOCUMENTS = [
    *READMES,
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "cassettes").rglob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
    *(ROOT / "notebooks").rglob("*.md"),
    *(ROOT / "tests").rglob("*.md"),
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


CODE = [path for path in (*READMES, *sorted((ROOT / "docs").rglob("*.md"))) if any(blocks(path))]


# LlamaIndex imports LangChain if it is installed, and reads attributes that pydantic deprecates.
@pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.usefixtures("event_loop_of_llama_index", "short_waits", "young_garbage")
@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_code_runs_on_the_emulator(
    path: Path, workers_ai_emulator_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run each block of a page separately, like a reader who pastes one block into a script."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLOUDFLARE_BASE_URL", workers_ai_emulator_url)
    monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", "account")
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "token")
    for line, code in blocks(path):
        if not any(sign in code for sign in ELSEWHERE):
            run_block(path, line, code)
    gc.collect()


@every_row(("sign", "place"), ELSEWHERE.items())
def test_blocks_that_run_elsewhere_have_a_test(sign: str, place: str) -> None:
    assert (ROOT / place).exists()
    assert any(sign in code for path in CODE for _, code in blocks(path))


# The packages are not published, so pip finds `workers-ai` only if a line names its folder.
@every_row("path", DOCUMENTS)
def test_a_clone_is_installed_with_the_core_first(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for console in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        line = re.search(r"^pip install .*\./libs/.*$", console, re.MULTILINE)
        assert line is None or re.search(r"\./libs/workers-ai[ '\[]", line[0]), line


@every_row("path", DOCUMENTS)
def test_links_resolve(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []


@every_row("path", DOCUMENTS)
def test_files_in_backticks_exist(path: Path) -> None:
    """Each path in backticks is the end of a path in the repository."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    cited = re.findall(r"`([\w./-]+\.(?:py|md|toml|ipynb|json|mjs))(?:::[\w.*:\[\]-]+)?`", text)
    assert [name for name in cited if not named(name.lstrip("./"))] == []


@every_row("path", DOCUMENTS)
def test_cited_tests_exist(path: Path) -> None:
    cited = re.findall(r"([\w/]+\.py)::((?:\w+::)*\w+)", path.read_text(encoding="utf-8"))
    missing = []
    for file, test in cited:
        sources = [one.read_text(encoding="utf-8") for one in named(file)]
        patterns = [rf"(?:def|class) {part}\w*\b" for part in test.split("::")]
        if not all(any(re.search(pattern, source) for source in sources) for pattern in patterns):
            missing.append(f"{file}::{test}")
    assert missing == []


def scripts() -> set[str]:
    """Return the commands that the packages install."""
    return {script for name in PACKAGES for script in project_of(ROOT / "libs" / name)["project"].get("scripts", {})}


@every_row("path", DOCUMENTS)
def test_cited_commands_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    verbs = re.findall(r"^(\w+)\(\) [({]", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    wrong = []
    for command in re.findall(r"uv run (?:--(?:group|with) [\w-]+ )*((?:python )?[\w./<>-]+)", text):
        name = command.removeprefix("python ")
        known = name in scripts() | {
            "pytest",
            "pyright",
            "mypy",
            "ruff",
            "lint-imports",
            "uvicorn",
            "pywrangler",
            "jupyter",
        }
        if not known and "<" not in name and not (ROOT / name).is_file():
            wrong.append(command)
    for line in re.findall(r"bash \.ci/run((?: [a-z]+)*)", text):
        wrong += [verb for verb in line.split() if verb not in verbs]
    assert wrong == []


def test_contributing_lists_the_verbs() -> None:
    source = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (default,) = re.findall(r"^    set -- (.+)$", source, re.MULTILINE)
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == default.split()


def table(path: Path, first: str) -> list[list[str]]:
    """Return the rows of the table whose first column has this heading."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


CORE = ROOT / "libs" / "workers-ai" / "README.md"


def test_the_error_table_matches_the_error_tree() -> None:
    listed = {
        name: row[2].split()[0] == "yes" for row in table(CORE, "error") for name in re.findall(r"`(\w+Error)`", row[0])
    }
    tree = {
        name: getattr(errors, name).is_retryable
        for name in errors.__all__
        if isinstance(getattr(errors, name), type) and issubclass(getattr(errors, name), errors.WorkersAIError)
    }
    bases = {"WorkersAIError", "APIStatusError"}
    assert listed == {name: value for name, value in tree.items() if name not in bases}


def test_the_settings_table_has_every_setting() -> None:
    rows = table(CORE, "setting")
    first = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    anywhere = {name for row in rows for cell in row for name in re.findall(r"`(\w+)", cell)}
    settings = set(Settings.__dataclass_fields__) - {"token_from_env"}
    assert settings - anywhere == set()
    assert first - settings == {"api_key", "http_client", "http_async_client"}


@every_row("path", [*READMES, ROOT / "docs" / "index.md"])
def test_the_table_of_versions_matches_the_requirements(path: Path) -> None:
    projects = [project_of(ROOT / "libs" / name)["project"] for name in PACKAGES]
    required = {line for project in projects for line in project["dependencies"]}
    versions = {line.removeprefix("Programming Language :: Python :: 3.") for line in projects[0]["classifiers"]}
    minors = sorted(int(version) for version in versions if version.isdecimal())
    rows = table(path, "package")
    assert rows[0] == ["Python", f"3.{minors[0]} to 3.{minors[-1]}"]
    for names, supported in rows[1:]:
        for name, version in zip(names.split(", "), supported.replace(", below", " below").split(", "), strict=True):
            low, high = re.fullmatch(r"([\d.]+)(?: and newer(?: below ([\d.]+))?)?", version).groups()  # type: ignore[union-attr]
            prefix = f"{name.strip('`')}>={low}" + (f",<{high}" if high else "")
            assert [line for line in required if line.startswith(prefix)], prefix


def test_the_packages_table_lists_the_workspace() -> None:
    rows = table(ROOT / "README.md", "distribution")
    assert {re.findall(r"`([\w-]+)`", row[0])[0]: row[1].strip("`") for row in rows} == PACKAGES
