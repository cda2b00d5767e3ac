"""Translate the reStructuredText of docstrings to Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(~?)([\w.]+)`")


class Docstrings(griffe.Extension):
    """Convert roles such as ``:class:`` to code, with a link if the name is public, and ``::`` to a code block."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Translate the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = _to_markdown(obj.docstring.value)


def _to_markdown(text: str) -> str:
    text = ROLE.sub(_reference, text)
    text = re.sub(r"^(\s*)::\n", r"\1\n", text, flags=re.MULTILINE)
    return re.sub(r"::$", ":", text, flags=re.MULTILINE)


def _reference(match: re.Match[str]) -> str:
    shortened, name = match.groups()
    label = name.rpartition(".")[2] if shortened else name
    if "." not in name or "._" in name:
        return f"`{label}`"
    return f'<autoref identifier="{name}" optional>`{label}`</autoref>'
