"""Set the version of every distribution: `bash .ci/run version 0.2.0`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(version: str) -> None:
    """Write `version` into all files with a version, and add a section to the changelog."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", version):
        raise SystemExit(f"{version!r} is not a version such as 0.2.0 or 0.2.0rc1")
    root = ROOT / "pyproject.toml"
    old = re.search(r'^version = "(.+)"$', root.read_text(encoding="utf-8"), re.MULTILINE)
    if old is None:
        raise SystemExit("pyproject.toml states no version")
    _replace(root, f'version = "{old[1]}"', f'version = "{version}"')
    for path in sorted(ROOT.glob("libs/*/pyproject.toml")):
        _replace(path, f"workers-ai=={old[1]}", f"workers-ai=={version}")
    for path in sorted(ROOT.glob("libs/**/_version.py")):
        if ".venv" not in path.parts:
            _replace(path, f'"{old[1]}"', f'"{version}"')
    changelog = ROOT / "CHANGELOG.md"
    if f"\n## {version}" not in changelog.read_text(encoding="utf-8"):
        _replace(changelog, "\n## ", f"\n## {version} - unreleased\n\n## ", count=1)


def _replace(path: Path, old: str, new: str, count: int = -1) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new, count), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else "")
