"""Reports and estimates of runs as text and as HTML, for ingestion and generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workers_ai._html import fact_table, list_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai.ledger._records import Failure

__all__ = ["estimate_html", "estimate_text", "report_html", "report_text"]

_ESTIMATE: Final = "With {}, nothing sent yet:"
_NAME_WIDTH: Final = 9
_ESTIMATE_WIDTH: Final = 12


def report_text(title: str, facts: Sequence[tuple[str, str]], listed: Sequence[Failure], failed: int) -> str:
    """Return a report as lines of text.

    Args:
        title: The first line.
        facts: Names and values.
        listed: Failures to list.
        failed: Number of all failures.
    """
    rows = list(facts)
    for failure in listed:
        code = f" (code {failure.code})" if failure.code is not None else ""
        rows.append(("failed", f"{failure.id}: {failure.message}{code}"))
    if failed > len(listed):
        rows.append(("failed", f"... and {failed - len(listed):,} more"))
    width = max(_NAME_WIDTH, *(len(name) for name, _ in rows))
    return "\n".join([title, *(f"  {name:<{width}} {value}" for name, value in rows)])


def estimate_text(model: str, facts: Sequence[tuple[str, str]]) -> str:
    """Return an estimate as lines of text."""
    return "\n".join([_ESTIMATE.format(model), *(f"  {name:<{_ESTIMATE_WIDTH}} {value}" for name, value in facts)])


def estimate_html(model: str, facts: Sequence[tuple[str, str]]) -> str:
    """Return an estimate as an HTML table, for notebooks."""
    return fact_table(_ESTIMATE.format(model).rstrip(":"), facts)


def report_html(title: str, facts: Sequence[tuple[str, str]], listed: Sequence[Failure], failed: int) -> str:
    """Return a report as HTML tables, for notebooks. Arguments are those of :func:`report_text`."""
    rows = [(failure.id, failure.code, failure.message) for failure in listed]
    return fact_table(title, facts) + list_table(("failed id", "code", "message"), rows, failed)
