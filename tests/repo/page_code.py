"""Run the Python blocks of pages separately. ``python tests/repo/page_code.py README.md`` needs only the emulator."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from workers_ai_emulator import Emulator

__all__ = ["ELSEWHERE", "blocks", "run_block"]

ELSEWHERE: Final = {
    "import daft": "tests/engines/test_daft.py",
    "import ray": "tests/engines/test_ray.py",
    "from workers import": "tests/transports/test_binding.py",
    "https://batch.example.workers.dev": "tests/transports",
}
"""Blocks that need more than the emulator, by a line in them, and the test that runs the same code."""


def blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line number and code of every Python block."""
    text = path.read_text(encoding="utf-8")
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text[: match.start()].count("\n") + 2, match.group(1)


def run_block(path: Path, line: int, code: str) -> None:
    """Run a block, and the tests that it defines. Top-level ``await`` is allowed."""
    names: dict[str, Any] = {"__name__": "block"}
    compiled = compile("\n" * (line - 1) + code, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = types.FunctionType(compiled, names)()
    if inspect.iscoroutine(result):
        asyncio.run(result)
    for test in [value for name, value in names.items() if name.startswith("test_")]:
        _run_test(test)
    names.clear()


def _run_test(test: Any) -> None:
    """Run a test with a new emulator, as the emulator's fixture does."""
    emulator = Emulator()
    before = os.environ["CLOUDFLARE_BASE_URL"]
    with emulator.serve() as url:
        os.environ["CLOUDFLARE_BASE_URL"] = url
        try:
            test(emulator)
        finally:
            os.environ["CLOUDFLARE_BASE_URL"] = before


def main(pages: list[Path]) -> int:
    """Run the blocks of pages in an empty folder; return 1 if one failed."""
    failed = 0
    os.environ |= {"CLOUDFLARE_ACCOUNT_ID": "account", "CLOUDFLARE_API_TOKEN": "token"}
    with tempfile.TemporaryDirectory() as folder, Emulator().serve() as url:
        os.chdir(folder)
        os.environ["CLOUDFLARE_BASE_URL"] = url
        for page in pages:
            for line, code in blocks(page):
                if any(sign in code for sign in ELSEWHERE):
                    continue
                try:
                    with contextlib.redirect_stdout(io.StringIO()):
                        run_block(page, line, code)
                except Exception as exc:  # noqa: BLE001 - every failure is reported
                    failed += 1
                    sys.stderr.write(f"{page}:{line}: {type(exc).__name__}: {exc}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main([Path(name).resolve() for name in sys.argv[1:]]))
