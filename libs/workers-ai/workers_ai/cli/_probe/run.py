"""Test the questions one after the other. Save each answer at once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from workers_ai.cli._probe.calls import OpenQuestionError
from workers_ai.cli._probe.cassettes import write_cassette
from workers_ai.cli._probe.report import Finding, Report
from workers_ai.cli._probe.session import ProbeStoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from workers_ai._settings.settings import Settings
    from workers_ai.cli._probe.question import Question
    from workers_ai.cli._probe.session import Session
    from workers_ai.cli._probe.state import State

__all__ = ["ask", "run"]


def run(
    questions: Sequence[Question],
    session: Session,
    state: State,
    *,
    settings: Settings,
    cassettes: Path | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """Run every question that has no answer in the state.

    After an interrupt or an error of the whole account, the remaining questions stay open. The answers found so far are
    saved in the state.

    Args:
        questions: The questions.
        session: The session that sends the calls.
        state: Answers of earlier runs; updated and saved after each answer.
        settings: Settings of the account, for the cassettes.
        cassettes: Folder of the cassettes; None to keep none.
        progress: Function to call with one line before each question.

    Raises:
        OSError: The state or a cassette cannot be written.
    """
    findings = {
        question.name: Finding(question, state.answers[question.name])
        for question in questions
        if question.name in state.answers
    }
    left = sorted((one for one in questions if one.name not in findings), key=lambda one: one.waits)
    reason = ""
    try:
        _submit(left, session)
        for number, question in enumerate(left, 1):
            progress(f"{number}/{len(left)} {question.name}")
            session.exchanges.clear()
            found = findings[question.name] = ask(question, session)
            if found.open_because is None:
                state.answers[question.name] = found.answer
                if cassettes is not None:
                    write_cassette(cassettes, question.name, session.exchanges, settings)
            state.save()
    except ProbeStoppedError as exc:
        reason = f"not tested: {exc}"
    except KeyboardInterrupt:
        reason = "not tested: interrupted"
    state.save()
    missing = {one.name: Finding(one, open_because=reason) for one in left if one.name not in findings}
    findings |= missing
    return Report([findings[question.name] for question in questions], session.sent)


def ask(question: Question, session: Session) -> Finding:
    """Test one question.

    Raises:
        ProbeStoppedError: No further question can be answered.
    """
    try:
        return Finding(question, question.read(session))
    except OpenQuestionError as exc:
        return Finding(question, open_because=str(exc))
    except (TypeError, KeyError, AttributeError, ValueError) as exc:
        return Finding(question, open_because=f"the reply has an unknown shape ({type(exc).__name__}: {exc})")


def _submit(questions: Sequence[Question], session: Session) -> None:
    """Submit the batches that have to be finished, so that they run while the other questions are tested."""
    for question in questions:
        if question.waits and question.batches[0].key not in session.jobs:
            with suppress(OpenQuestionError):  # reported by the question itself
                session.submit(question.batches[0])
