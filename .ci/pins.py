"""Refresh the tested versions in the root pyproject.toml: names and versions only, without hosts or hashes."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"constraint-dependencies = \[.*?\]\n", re.DOTALL)


def main() -> None:
    """Lock the newest versions without pins, then write them as pins."""
    pyproject = ROOT / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    pyproject.write_text(BLOCK.sub("constraint-dependencies = []\n", text), encoding="utf-8")
    (ROOT / "uv.lock").unlink(missing_ok=True)
    subprocess.run(["uv", "lock", "--upgrade", "--quiet"], cwd=ROOT, check=True)
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    versions: dict[str, list[str]] = {}
    for package in packages:
        if "registry" in package["source"]:
            versions.setdefault(package["name"], []).append(package["version"])
    # A package that is locked twice differs by platform or Python version. It gets no pin.
    pins = [f'    "{name}=={found[0]}",\n' for name, found in sorted(versions.items()) if len(found) == 1]
    pyproject.write_text(BLOCK.sub(f"constraint-dependencies = [\n{''.join(pins)}]\n", text), encoding="utf-8")


if __name__ == "__main__":
    main()
