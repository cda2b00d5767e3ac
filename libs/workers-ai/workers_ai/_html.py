"""HTML tables for notebooks. They set no colours, so that they follow a light or a dark theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["MAX_ROWS", "fact_table", "list_table"]

MAX_ROWS: Final = 100
"""Maximum number of rows of a list. A last line reports the number of omitted rows."""

_LEFT: Final = ' style="text-align: left"'
_TITLE: Final = ' style="text-align: left; white-space: nowrap"'


def fact_table(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a table of two columns, escaped."""
    rows = "".join(f"<tr><th>{_escape(name)}</th><td>{_escape(value)}</td></tr>" for name, value in facts)
    return f"<table><caption{_TITLE}>{_escape(title)}</caption>{rows}</table>"


def list_table(headings: Sequence[str], rows: Sequence[Sequence[object]], total: int | None = None) -> str:
    """Return the first 100 rows as a table, escaped; "" without rows.

    Args:
        headings: Names of the columns.
        rows: Values of each row; None leaves a cell empty.
        total: Number of all rows; the number of ``rows`` if None.
    """
    if not rows:
        return ""
    lines = [_line("th", headings), *(_line("td", row) for row in rows[:MAX_ROWS])]
    hidden = (len(rows) if total is None else total) - len(lines) + 1
    if hidden:
        lines.append(f'<tr><td colspan="{len(headings)}"{_LEFT}>... and {hidden:,} more</td></tr>')
    return f"<table>{''.join(lines)}</table>"


def _line(tag: str, cells: Sequence[object]) -> str:
    shown = ("" if cell is None else _escape(str(cell)) for cell in cells)
    return f"<tr>{''.join(f'<{tag}{_LEFT}>{cell}</{tag}>' for cell in shown)}</tr>"


def _escape(text: str) -> str:
    import html  # only notebooks need it

    return html.escape(text)
