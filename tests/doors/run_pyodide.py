"""Run the core in Pyodide, the runtime of Python Workers: ``python tests/doors/run_pyodide.py``.

Needs Node.js 20 with npm, and uv. Pyodide comes from npm and the wheels from the package index, both into a cache of
the user; the second run needs no network. Exit status 0 when all checks hold.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

PYODIDE = "314.0.7"
PYTHON = "3.14"
PLATFORM = "pyemscripten_2026_0_wasm32"
NEEDED = ("httpx", "pydantic", "anyio")
"""What the core imports; the other dependencies of the distribution belong to its command."""

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "libs" / "workers-ai"


def main() -> int:
    """Fetch what is missing, then run the checks."""
    for tool in ("node", "npm", "uv"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: the Pyodide checks need Node.js 20 with npm, and uv")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workers-ai-tests"
    home = cache / f"pyodide-{PYODIDE}"
    wheels = home / "wheels"
    if not (home / "node_modules" / "pyodide").is_dir():
        home.mkdir(parents=True, exist_ok=True)
        (home / "package.json").write_text("{}", encoding="utf-8")
        _run("npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", home, f"pyodide@{PYODIDE}")
    if not any(wheels.glob("pydantic_core-*.whl")):
        _run(
            "uv", "tool", "run", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version", PYTHON,
            "--platform", PLATFORM, "--dest", wheels, *_requirements(),
        )  # fmt: skip
    return subprocess.run(
        ["node", HERE / "pyodide" / "run.mjs", home, wheels, SOURCE, HERE / "pyodide" / "checks.py"], check=False
    ).returncode


def _requirements() -> list[str]:
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [line for line in project["dependencies"] if re.match(r"[\w-]+", line)[0] in NEEDED]  # type: ignore[index]


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
