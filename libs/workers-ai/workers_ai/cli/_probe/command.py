"""Run ``workers-ai probe`` and print its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rich.console import Console

from workers_ai._settings.settings import Settings
from workers_ai.cli._probe.questions import select
from workers_ai.cli._probe.report import plan_table
from workers_ai.cli._probe.run import run
from workers_ai.cli._probe.session import Session
from workers_ai.cli._probe.state import read_state
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from workers_ai.cli._probe.question import Question
    from workers_ai.cli._probe.report import Report

__all__ = ["probe", "select", "show_plan"]


def show_plan(questions: Sequence[Question]) -> None:
    """Print the questions, their calls and their cost; send nothing."""
    Console(highlight=False).print(plan_table(questions))


def probe(
    questions: Sequence[Question],
    *,
    markdown: Path | None,
    cassettes: Path | None,
    state_file: Path,
    anew: bool,
    account_id: str | None,
    base_url: str | None,
) -> Literal["agrees", "differs", "open"]:
    """Test the questions and print the report.

    Returns:
        ``"differs"`` if an answer differs, else ``"open"`` if a question is open, else ``"agrees"``.

    Raises:
        ConfigurationError: There is no account; the state is another account's; the emulator replied while recording.
        OSError: A file cannot be read or written.
    """
    try:
        settings = Settings.resolve(account_id=account_id, base_url=base_url)
    except ConfigurationError as exc:
        names = ", ".join(question.name for question in questions)
        raise ConfigurationError(f"{exc.message}; {len(questions)} questions are open: {names}") from exc
    state = read_state(state_file, settings, anew=anew)
    session = Session(settings, state.jobs, live_only=cassettes is not None)
    screen = Console(stderr=True)
    try:
        with screen.status("Sending requests") as status:
            report = run(
                questions, session, state, settings=settings, cassettes=cassettes,
                progress=lambda line: status.update(f"Sending requests: {line}"),
            )  # fmt: skip
    finally:
        session.close()
    if markdown is not None:
        markdown.write_text(report.markdown(), encoding="utf-8")
    _show(report, Console(highlight=False), state_file)
    return "differs" if report.changes else "open" if report.of_status("open") else "agrees"


def _show(report: Report, console: Console, state_file: Path) -> None:
    console.print(report.table())
    console.print(report.summary, markup=False)
    for change in report.changes:
        console.print(f"change: {change}", markup=False, soft_wrap=True)
    if still_open := report.of_status("open"):
        names = ", ".join(finding.question.name for finding in still_open)
        console.print(f"open: {names}", markup=False, soft_wrap=True)
        console.print(
            f"The answers are saved in {state_file}; the same command continues with the open questions.", markup=False
        )
