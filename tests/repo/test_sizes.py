"""Functions are short, and a folder has about a dozen modules."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from repository import ROOT, tracked

SOURCES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in tracked()
    if path.suffix == ".py" and path.is_relative_to(ROOT / "libs")
}
MAX_FUNCTION_LINES, MAX_MODULES = 50, 14
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a module, including those in classes, functions and blocks."""
    for statement in (one for name in BLOCKS for one in getattr(node, name, ())):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement
        yield from functions(statement)


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function after its docstring."""
    first = function.body[1:] if ast.get_docstring(function, clean=False) else function.body
    return (function.end_lineno or 0) - first[0].lineno + 1 if first else 0


def test_folders_hold_about_a_dozen_modules() -> None:
    folders = Counter(str(Path(name).parent) for name in SOURCES if not name.endswith("__init__.py"))
    assert {name: count for name, count in folders.items() if count > MAX_MODULES} == {}


def test_functions_are_short() -> None:
    found = {
        f"{name}: {node.name}": body_lines(node)
        for name, source in SOURCES.items()
        for node in functions(ast.parse(source))
    }
    assert {name: count for name, count in found.items() if count > MAX_FUNCTION_LINES} == {}
