"""Files and packages of the repository, for its checks."""

from __future__ import annotations

import fnmatch
import functools
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

__all__ = ["PACKAGES", "READMES", "ROOT", "leaf_of", "named", "project_of", "tracked"]

ROOT: Final = Path(__file__).parents[2]

PACKAGES: Final = {
    "workers-ai": "workers_ai",
    "langchain-workers-ai": "langchain_workers_ai",
    "llama-index-llms-workers-ai": "llama_index.llms.workers_ai",
    "llama-index-embeddings-workers-ai": "llama_index.embeddings.workers_ai",
    "llama-index-postprocessor-workers-ai-rerank": "llama_index.postprocessor.workers_ai_rerank",
    "workers-ai-emulator": "workers_ai_emulator",
}
"""Import name by distribution, which is also the folder under ``libs``."""

READMES: Final = sorted(path for path in (ROOT / "README.md", *(ROOT / "libs").glob("*/README.md")))


@functools.cache
def tracked() -> tuple[Path, ...]:
    """Return every tracked and every new file; without a git folder, every file that is not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if not (ROOT / ".git").exists():
        return tuple(path for path in sorted(ROOT.rglob("*")) if path.is_file() and not _is_ignored(path))
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return tuple(path for name in sorted(set(names)) if name and (path := ROOT / name).is_file())


def named(end: str) -> list[Path]:
    """Return the tracked files whose path ends with a path."""
    return [path for path, whole in _whole_paths() if whole.endswith(f"/{end}")]


@functools.cache
def _whole_paths() -> tuple[tuple[Path, str], ...]:
    return tuple((path, f"/{path.relative_to(ROOT)}") for path in tracked())


def _is_ignored(path: Path) -> bool:
    patterns = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    parts = path.relative_to(ROOT).parts
    return any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in patterns)


def leaf_of(distribution: str) -> Path:
    """Return the folder that contains the modules of a package."""
    return ROOT / "libs" / distribution / PACKAGES[distribution].replace(".", "/")


def project_of(folder: Path) -> dict[str, Any]:
    """Return the parsed ``pyproject.toml`` of a folder."""
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
