"""The report of the probe: assumed answer, answer of the service, and necessary change of each question."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workers_ai._version import __version__
from workers_ai.cli._probe.questions import NOT_ASKED, max_requests, total_cost_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from workers_ai.cli._probe.question import Question, Value

__all__ = ["Finding", "Report", "plan_table"]

_STYLES = {"agrees": "green", "differs": "bold red", "open": "yellow"}


@dataclass(frozen=True)
class Finding:
    """Outcome of one question.

    Attributes:
        question: The question.
        answer: Answer of the service; undefined if ``open_because`` is set.
        open_because: Reason why there is no answer; None if there is one.
    """

    question: Question
    answer: Value = None
    open_because: str | None = None

    @property
    def status(self) -> Literal["agrees", "differs", "open"]:
        """Whether the service agrees with the assumption of this project."""
        if self.open_because is not None:
            return "open"
        same = self.answer == self.question.choice and type(self.answer) is type(self.question.choice)
        return "agrees" if same else "differs"

    @property
    def change(self) -> str:
        """Necessary change if the service differs."""
        if self.question.where:
            return f"{self.question.where} assumes {self.question.choice!r}; the service: {self.answer!r}"
        known = "" if self.answer in self.question.positions else ", a new position"
        return (
            f"emulator switch `{self.question.name}`: set {self.answer!r}{known} in place of {self.question.choice!r}"
        )

    @property
    def answer_text(self) -> str:
        """The answer, or the reason why the question is open."""
        return repr(self.answer) if self.open_because is None else self.open_because


@dataclass(frozen=True)
class Report:
    """All findings of a probe."""

    findings: Sequence[Finding]
    sent: int

    def of_status(self, status: Literal["agrees", "differs", "open"]) -> list[Finding]:
        """Return the findings with this status."""
        return [finding for finding in self.findings if finding.status == status]

    @property
    def summary(self) -> str:
        """Counts, in one line."""
        counts = ", ".join(f"{len(self.of_status(status))} {status}" for status in ("agrees", "differs", "open"))
        return f"{len(self.findings)} questions: {counts}. {self.sent} requests sent."

    @property
    def changes(self) -> list[str]:
        """The changes to make, one line each."""
        return [finding.change for finding in self.of_status("differs")]

    def table(self) -> RenderableType:
        """Return the findings as a table for a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table("question", "name", "here", "service", "", title="workers-ai probe", show_lines=False)
        for finding in self.findings:
            question, style = finding.question, _STYLES[finding.status]
            table.add_row(
                Text(question.text.replace("`", "")),
                Text(question.name),
                Text(repr(question.choice)),
                Text(finding.answer_text),
                Text(finding.status, style=style),
            )
        return table

    def markdown(self) -> str:
        """Return the report as Markdown."""
        lines = [
            "# What the service answered",
            "",
            f"`workers-ai probe` {__version__}, {dt.datetime.now(dt.UTC):%Y-%m-%d}. {self.summary}",
            "",
            "| question | name | choice here | service | |",
            "|---|---|---|---|---|",
        ]
        for finding in self.findings:
            question = finding.question
            cells = (question.text, f"`{question.name}`", f"`{question.choice!r}`", _cell(finding), finding.status)
            lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
        lines += ["", "## To change", ""]
        lines += [f"- {change}" for change in self.changes] or ["Nothing: no answer differs."]
        lines += ["", "## Not tested", "", *(f"- {what}: {why}" for what, why in NOT_ASKED)]
        return "\n".join(lines) + "\n"


def _cell(finding: Finding) -> str:
    return f"`{finding.answer!r}`" if finding.open_because is None else finding.open_because


def plan_table(questions: Sequence[Question]) -> RenderableType:
    """Return the plan of a run: each question, its calls and their estimated cost."""
    from rich.table import Table
    from rich.text import Text

    table = Table("question", "name", "calls", "USD", title="workers-ai probe --dry-run", show_lines=True)
    for question in questions:
        calls = [*map(str, question.calls), *(f"{batch}, then polls" for batch in question.batches)]
        table.add_row(
            Text(question.text.replace("`", "")),
            Text(question.name),
            Text("\n".join(calls)),
            Text(f"{question.cost_usd:.6f}"),
        )
    table.caption = (
        f"{len(questions)} questions, at most {max_requests(questions)} requests, "
        f"about ${total_cost_usd(questions):.4f} by list price; a call that several questions share is sent once"
    )
    return table
