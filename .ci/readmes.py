"""Install the packages of a page into an empty environment, from wheels, and run the page's Python blocks there.

Pages with the same packages share one environment. The wheels come from ``.ci/run build``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *sorted(ROOT.glob("libs/*/README.md")),
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("index.md", "start/core.md", "start/langchain.md", "start/llama-index.md")),
]


def needed(page: Path) -> tuple[str, ...]:
    """Return the packages of a page: those of its first console block, and of ``# pip install`` after an import."""
    text = page.read_text(encoding="utf-8")
    console = re.search(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if console is None:
        sys.exit(f"{page} has no console block that installs")
    lines = re.findall(r"^pip install (.+)$", console[1], re.MULTILINE)
    lines += re.findall(r"^(?:from|import) .*# pip install (.+)$", text, re.MULTILINE)
    return tuple(sorted({_wheel(word) for line in lines for word in shlex.split(line)}))


def _wheel(word: str) -> str:
    """Return the wheel of a folder under libs, and any other requirement unchanged."""
    match = re.fullmatch(r"\./libs/([\w-]+)(\[.+\])?", word)
    if match is None:
        return word
    (wheel,) = (ROOT / "dist").glob(f"{match[1].replace('-', '_')}-*.whl")
    return f"{wheel}{match[2] or ''}"


def main() -> int:
    """Run every page. Return 1 if a block failed."""
    groups: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for page in PAGES:
        groups[needed(page)].append(page)
    failed = False
    for wheels, pages in groups.items():
        with tempfile.TemporaryDirectory() as home:
            subprocess.run(["uv", "venv", "--quiet", home], check=True)
            install = ["uv", "pip", "install", "--quiet", "--python", home, "--find-links", ROOT / "dist", *wheels]
            subprocess.run([*install, *sys.argv[1:]], check=True, cwd=home)
            python = Path(home) / ("Scripts" if os.name == "nt" else "bin") / "python"
            command = [python, "-W", "ignore", ROOT / "tests" / "repo" / "page_code.py", *pages]
            result = "failed" if subprocess.run(command, cwd=home, check=False).returncode else "runs alone"
            failed |= result == "failed"
        sys.stdout.write("".join(f"{result}: {page.relative_to(ROOT)}\n" for page in pages))
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
