"""Documents for the demo: the docstrings of Python's standard library."""

from __future__ import annotations

import ast
import re
import sysconfig
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Docstring", "standard_library"]

_SKIPPED = re.compile(r"tests?|idlelib|lib2to3|site-packages|__pycache__|turtledemo|ensurepip|pydoc_data")
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SHORTEST = 60
_LONGEST = 1200


class Docstring(NamedTuple):
    """The docstring of a function or class.

    Attributes:
        id: Dotted name, such as ``"json.dumps"``.
        text: Kind, name and docstring, at most 1,200 characters.
        source: File and line, relative to the library.
    """

    id: str
    text: str
    source: str


def standard_library(limit: int) -> list[Docstring]:
    """Return at most ``limit`` docstrings of the standard library in the order of its files, each name once."""
    home = Path(sysconfig.get_path("stdlib"))
    found: dict[str, Docstring] = {}
    for path in sorted(home.rglob("*.py")):
        parts = path.relative_to(home).with_suffix("").parts
        if any(map(_SKIPPED.fullmatch, parts)) or any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        for doc in _docstrings(path, ".".join(part for part in parts if part != "__init__"), home):
            found.setdefault(doc.id, doc)
            if len(found) >= limit:
                return list(found.values())
    return list(found.values())


def _docstrings(path: Path, module: str, home: Path) -> Iterator[Docstring]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    where = path.relative_to(home).as_posix()
    pending: list[tuple[str, ast.Module | ast.ClassDef]] = [(module, tree)]
    while pending:
        prefix, node = pending.pop()
        for child in node.body:
            if not isinstance(child, _DOCUMENTED) or child.name.startswith("_"):
                continue
            name = f"{prefix}.{child.name}"
            if isinstance(child, ast.ClassDef):
                pending.append((name, child))
            text = ast.get_docstring(child)
            if text and len(text) >= _SHORTEST:
                kind = "class" if isinstance(child, ast.ClassDef) else "function"
                yield Docstring(name, f"{kind} {name}: {text}"[:_LONGEST], f"{where}:{child.lineno}")
