"""Write the list of public names. Run ``uv run python tests/repo/public_names.py`` after a deliberate change.

The list is read from the source, so that no extra (Daft, Ray, typer) has to be installed.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from repository import PACKAGES, leaf_of

__all__ = ["LIST", "private_modules", "public_names"]

LIST: Final = Path(__file__).with_name("public_names.txt")
_Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign
_ROOT_ONLY: Final = frozenset({"workers_ai_emulator"})
"""Packages whose submodules are private in spite of their names."""


@functools.cache
def _modules() -> dict[str, Path]:
    """Return the file of each module of all packages."""
    found: dict[str, Path] = {}
    for distribution, package in PACKAGES.items():
        leaf = leaf_of(distribution)
        for path in sorted(leaf.rglob("*.py")):
            parts = path.relative_to(leaf).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


def _is_public(module: str) -> bool:
    package = next(name for name in PACKAGES.values() if module == name or module.startswith(f"{name}."))
    return not (package in _ROOT_ONLY and module != package) and "._" not in module


def private_modules(package: str) -> set[str]:
    """Return the private modules directly inside ``package``."""
    prefix = f"{package}._"
    return {".".join(module.split(".")[:2]) for module in _modules() if module.startswith(prefix)} - {
        f"{package}._version"
    }


@functools.cache
def _statements(module: str) -> tuple[ast.stmt, ...]:
    """Return the statements of a module, those under ``if`` and ``try`` included."""
    left: list[ast.stmt] = list(ast.parse(_modules()[module].read_text(encoding="utf-8")).body)
    found: list[ast.stmt] = []
    while left:
        statement = left.pop(0)
        found.append(statement)
        if isinstance(statement, ast.If | ast.Try):
            left = [*statement.body, *statement.orelse, *left]
    return tuple(found)


def _exported(module: str) -> list[str]:
    """Return ``__all__`` of a module, names that are added under a condition included."""
    names: list[str] = []
    for statement in _statements(module):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if isinstance(statement, ast.Assign | ast.AugAssign) and target and ast.unparse(target) == "__all__":
            names += ast.literal_eval(statement.value)
    return names


def _find(module: str, name: str) -> _Definition | str | None:
    """Return the definition of ``name``, or the public name that it is an alias of; follow imports."""
    for statement in _statements(module):
        if isinstance(statement, ast.ImportFrom) and statement.module in _modules():
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    if _is_public(statement.module) and alias.name in _exported(statement.module):
                        return f"{statement.module}.{alias.name}"
                    return _find(statement.module, alias.name)
        elif (
            (isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name)
            or (isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name)
            or (isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == name)
        ):
            return statement
    return None


def _lines(path: str, definition: ast.stmt | None) -> Iterator[str]:
    """Yield one line for a definition, and one for each public member of a class."""
    if isinstance(definition, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in definition.bases)
        yield f"class {path}({bases})"
        for member in definition.body:
            name = _name_of(member)
            if name and (name == "__init__" or not name.startswith("_")):
                yield from _lines(f"{path}.{name}", member)
    elif isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = {ast.unparse(decorator) for decorator in definition.decorator_list}
        returns = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
        if decorators & {"property", "cached_property", "functools.cached_property"}:
            yield f"property {path}{returns}"
        else:
            kind = "async def" if isinstance(definition, ast.AsyncFunctionDef) else "def"
            yield f"{kind} {path}({ast.unparse(definition.args)}){returns}"
    elif isinstance(definition, ast.AnnAssign):
        default = " = ..." if definition.value is not None else ""
        yield f"value {path}: {ast.unparse(definition.annotation)}{default}"
    else:
        yield f"value {path}"


def _name_of(member: ast.stmt) -> str | None:
    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return member.name
    if isinstance(member, ast.AnnAssign):
        return ast.unparse(member.target)
    return ast.unparse(member.targets[0]) if isinstance(member, ast.Assign) else None


def public_names() -> list[str]:
    """Return one line per public name: its kind, dotted name and signature. Members follow their class."""
    lines: list[str] = []
    for module in sorted(filter(_is_public, _modules())):
        for name in sorted(_exported(module)):
            found = _find(module, name)
            if isinstance(found, str):
                lines.append(f"alias {module}.{name} = {found}")
            else:
                lines += _lines(f"{module}.{name}", found)
    return lines


if __name__ == "__main__":
    LIST.write_text("".join(f"{line}\n" for line in public_names()), encoding="utf-8")
