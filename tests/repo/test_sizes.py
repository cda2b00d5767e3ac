"""No module of the packages is long, and no function."""

from __future__ import annotations

import ast

from repository import ROOT, tracked

SOURCES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in tracked()
    if path.suffix == ".py" and path.is_relative_to(ROOT / "libs")
}
MAX_MODULE_LINES, MAX_FUNCTION_LINES = 400, 50


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function after its docstring."""
    first = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - first[0].lineno + 1 if first else 0


def test_modules_are_short() -> None:
    lines = {name: len(source.splitlines()) for name, source in SOURCES.items()}
    assert {name: count for name, count in lines.items() if count > MAX_MODULE_LINES} == {}


def test_functions_are_short() -> None:
    found = {
        f"{name}: {node.name}": body_lines(node)
        for name, source in SOURCES.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: count for name, count in found.items() if count > MAX_FUNCTION_LINES} == {}
