"""The bulk part of ``workers-ai demo``: labels for documents, through the queue."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from workers_ai.generation import generate

if TYPE_CHECKING:
    from workers_ai._demo import Stage
    from workers_ai.generation import GenerateReport

__all__ = ["show"]

DOCUMENTS: Final = 100
TOPICS: Final = ("data", "files", "network", "text", "other")


def show(stage: Stage) -> None:
    """Label documents through the queue, then again from the ledger."""
    stage.title(f"Bulk answers: a topic for {DOCUMENTS} docstrings, through the queue")
    report = _label(stage)
    stage.say(str(report))
    topics = Counter(answer.data for answer in report.answers() if answer.data is not None)
    stage.say("  " + ", ".join(f"{topic} {count}" for topic, count in topics.most_common()))
    for doc, answer in zip(stage.corpus[:3], report.answers(), strict=False):
        stage.say(f"  {doc.id}: {answer.data}")
    again = _label(stage)
    stage.say(f"  The same call again: {again.reused} answers from the ledger, {again.answered} new")


def _label(stage: Stage) -> GenerateReport:
    return generate(
        ((doc.id, {"text": doc.text}) for doc in stage.corpus[:DOCUMENTS]),
        ledger=stage.ledger.with_name("topics.sqlite3"),
        model=stage.chat_model,
        prompt="What is this part of Python's standard library about?\n\n{text}",
        labels=TOPICS,
        max_tokens=100,
        progress=False,
        **stage.settings,
    )
