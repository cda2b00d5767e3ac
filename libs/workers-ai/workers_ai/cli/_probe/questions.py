"""All questions of the probe, and the questions that it cannot answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workers_ai.cli._probe.chat_questions import CHAT_QUESTIONS
from workers_ai.cli._probe.queue_questions import QUEUE_QUESTIONS
from workers_ai.cli._probe.session import polls_per_batch
from workers_ai.cli._probe.vector_questions import VECTOR_QUESTIONS
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai.cli._probe.question import Question

__all__ = ["NOT_ASKED", "QUESTIONS", "max_requests", "select", "total_cost_usd"]

QUESTIONS: Final = (*QUEUE_QUESTIONS, *CHAT_QUESTIONS, *VECTOR_QUESTIONS)

NOT_ASKED: Final = (
    ("how long the queue keeps results", "takes days"),
    ("status of a batch that fails as a whole", "cannot be caused on purpose"),
    ("error event inside a stream", "cannot be caused on purpose; every likely form is read"),
    ("codes and headers at capacity (3040), at the rate limit (3021) and without quota", "would block the account"),
    ("whether `rejectIfBusy` works on `/ai/v1`", "shows only while the model is at capacity"),
    ("role `developer`, ids of tool calls, reasoning of earlier turns", "sent in a form that every model accepts"),
)
"""Pairs of an open question and the reason why the probe does not test it."""


def select(names: Sequence[str]) -> list[Question]:
    """Return the questions with these names, in their usual order; all questions for no name.

    Raises:
        ConfigurationError: A name is unknown.
    """
    known = {question.name for question in QUESTIONS}
    if unknown := [name for name in names if name not in known]:
        raise ConfigurationError(f"unknown question {', '.join(unknown)}: use {', '.join(sorted(known))}")
    return [question for question in QUESTIONS if not names or question.name in names]


def max_requests(questions: Sequence[Question]) -> int:
    """Return the maximum number of requests of these questions; a shared call counts once."""
    calls = {call.key for question in questions for call in (*question.calls, *question.batches)}
    collected = {batch.key for question in questions if question.waits for batch in question.batches}
    polled_once = sum(question.name in ("pending_status", "collected_twice") for question in questions)
    return len(calls) + len(collected) * polls_per_batch() + polled_once


def total_cost_usd(questions: Sequence[Question]) -> float:
    """Return the estimated cost of these questions; a shared call counts once."""
    calls = {call.key: call for question in questions for call in (*question.calls, *question.batches)}
    return sum(call.cost_usd for call in calls.values())
