"""Run the core in Pyodide, the runtime of Python Workers: ``python tests/transports/run_pyodide.py``.

Needs Node.js 20 with npm, and uv. Pyodide comes from npm and the wheels from the package index, both into a cache of
the user; the second run needs no network. Exit status 0 if all checks pass.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PYODIDE = "314.0.7"
PYTHON = "3.14"
PLATFORM = "pyemscripten_2026_0_wasm32"
NEEDED = ("httpx", "pydantic", "anyio")
"""What the core imports; the other dependencies of the distribution belong to its command."""

FETCH_S = 300
CHECKS_S = 180

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "libs" / "workers-ai"
EXAMPLES = HERE.parents[1] / "examples"


def main() -> int:
    """Download missing parts, then run the checks."""
    for tool in ("node", "npm", "uv"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: the Pyodide checks need Node.js 20 with npm, and uv")
    home = _fetched(_requirements())
    folders = [home, home / "wheels", SOURCE, EXAMPLES]
    command = ["node", HERE / "pyodide" / "run.mjs", *folders, HERE / "pyodide" / "checks.py"]
    return subprocess.run(command, check=False, timeout=CHECKS_S).returncode


def _requirements() -> list[str]:
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [line for line in project["dependencies"] if re.split(r"[^\w-]", line)[0] in NEEDED]


def _fetched(requirements: list[str]) -> Path:
    """Return the folder with Pyodide and the wheels. It is created only when complete."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workers-ai-tests"
    wanted = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:8]
    home = cache / f"pyodide-{PYODIDE}-{wanted}"
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as name:
        part = Path(name) / "home"
        part.mkdir()
        (part / "package.json").write_text("{}", encoding="utf-8")
        _run("npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", part, f"pyodide@{PYODIDE}")
        _run(
            "uv", "tool", "run", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version", PYTHON,
            "--platform", PLATFORM, "--dest", part / "wheels", *requirements,
        )  # fmt: skip
        part.rename(home)
    return home


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, timeout=FETCH_S)


if __name__ == "__main__":
    sys.exit(main())
