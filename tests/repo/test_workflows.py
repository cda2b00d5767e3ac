"""GitHub workflows run the verbs of ``.ci/run``, and one command sets the version everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from repository import PACKAGES, ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
VERBS = set(re.findall(r"^(\w+)\(\) [({]", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE))


def test_each_step_is_a_verb_of_the_script() -> None:
    assert WORKFLOWS
    for path in WORKFLOWS:
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        assert [command for command in commands if not command.startswith("bash .ci/run ")] == []
        assert {verb for command in commands for verb in command.split()[2:]} <= VERBS


def test_each_default_verb_runs_in_a_workflow() -> None:
    default = re.search(r"set -- (.+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    run = {verb for line in re.findall(r"bash \.ci/run (.+)", text) for verb in line.split()}
    assert default
    assert set(default[1].split()) <= run


def test_one_command_sets_the_version_everywhere(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md", ".ci/set_version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for path in (*ROOT.glob("libs/*/pyproject.toml"), *ROOT.glob("libs/**/_version.py")):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    subprocess.run([sys.executable, ".ci/set_version.py", "9.8.7"], cwd=tmp_path, check=True)
    assert 'version = "9.8.7"' in (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0] == "9.8.7"
    versions = [path.read_text(encoding="utf-8") for path in tmp_path.glob("libs/**/_version.py")]
    assert len(versions) == len(PACKAGES)
    assert all('"9.8.7"' in text for text in versions)
    needed = "".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("libs/*/pyproject.toml"))
    assert set(re.findall(r"workers-ai==([\d.]+)", needed)) == {"9.8.7"}


def test_published_readmes_have_absolute_links(tmp_path: Path) -> None:
    sources = [ROOT / ".ci" / "set_links.py", *ROOT.glob("libs/*/README.md"), *ROOT.glob("libs/*/pyproject.toml")]
    for path in sources:
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    url = "https://github.com/owner/repository"
    subprocess.run([sys.executable, ".ci/set_links.py", url, "v9.8.7"], cwd=tmp_path, check=True)
    readmes = [path.read_text(encoding="utf-8") for path in tmp_path.glob("libs/*/README.md")]
    assert len(readmes) == len(PACKAGES)
    assert [link for text in readmes for link in re.findall(r"\]\((?!https?:|#)[^)]+\)", text)] == []
    linked = {link for text in readmes for link in re.findall(rf"\]\({url}/blob/v9\.8\.7/([^)#]+)", text)}
    assert [link for link in linked if not (ROOT / link).exists()] == []
    assert "libs/workers-ai/README.md" in linked
    projects = [tomllib.loads(path.read_text(encoding="utf-8")) for path in tmp_path.glob("libs/*/pyproject.toml")]
    assert {project["project"]["urls"]["Source"] for project in projects} == {url}
