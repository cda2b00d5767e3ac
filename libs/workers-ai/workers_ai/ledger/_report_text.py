"""Reports of runs as text and as HTML, for ingestion and generation."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai.ledger._records import Failure

__all__ = ["report_html", "report_text"]

_HTML_FAILURES: Final = 100
_NAME_WIDTH: Final = 9


def report_text(title: str, facts: Sequence[tuple[str, str]], listed: Sequence[Failure], failed: int) -> str:
    """Return a report as lines of text.

    Args:
        title: The first line.
        facts: Names and values.
        listed: Failures to list.
        failed: Number of all failures.
    """
    lines = [title, *(f"  {name:<{_NAME_WIDTH}} {value}" for name, value in facts)]
    for failure in listed:
        code = f" (code {failure.code})" if failure.code is not None else ""
        lines.append(f"  {'failed':<{_NAME_WIDTH}} {failure.id}: {failure.message}{code}")
    if failed > len(listed):
        lines.append(f"  {'failed':<{_NAME_WIDTH}} ... and {failed - len(listed):,} more")
    return "\n".join(lines)


def report_html(title: str, facts: Sequence[tuple[str, str]], failures: Sequence[Failure]) -> str:
    """Return a report as HTML tables, for notebooks. It lists the first 100 failures."""
    rows = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in facts)
    failed = "".join(
        f"<tr><td>{html.escape(str(one.id))}</td><td>{one.code if one.code is not None else ''}</td>"
        f"<td>{html.escape(one.message)}</td></tr>"
        for one in failures[:_HTML_FAILURES]
    )
    table = f"<table><caption>{html.escape(title)}</caption>{rows}</table>"
    if failed:
        table += f"<table><tr><th>failed id</th><th>code</th><th>message</th></tr>{failed}</table>"
    return table
