"""What failures mean: for a text, and for the run. Pure rules."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from workers_ai.errors import RateLimitError
from workers_ai.refusals import CODES
from workers_ai.retry import MAX_RETRY_AFTER_S, MINUTE_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from workers_ai.errors import BatchError, WorkersAIError

__all__ = ["Health", "Retry", "Verdict", "judge", "judge_lost"]

ALONE_TRIES: Final = 2
"""Times a text is tried alone before it counts as failed."""

LOST_TRIES: Final = 3
"""Submissions of a text that the queue may lose before it counts as failed."""

REFUSALS: Final = 20
"""Refusals of the input, with nothing taken before them, after which it is not the texts that are at fault."""

STRIKES: Final = 8
"""Failures in a row, none of them of a text's making, after which the run ends: about three minutes of them."""


class Retry(NamedTuple):
    """A text to try again, in a request of at most ``part`` texts, after ``tries`` tries."""

    part: int
    tries: int
    text_id: int


class Verdict(NamedTuple):
    """What to do with texts that have failed: try them again, or give them up as (text id, code, message)."""

    again: list[Retry]
    failures: list[tuple[int, int | None, str]]


def judge(failed: Iterable[tuple[Sequence[int], BatchError]], tries: Mapping[int, tuple[int, int]]) -> Verdict:
    """Judge requests that failed: one of several texts is halved, a single text is tried once more.

    Args:
        failed: Text ids of each request, and its error.
        tries: Texts per request at most, and tries so far, of each text.
    """
    verdict = Verdict([], [])
    for group, error in failed:
        if len(group) > 1:
            part = (min(len(group), *(tries[text_id][0] for text_id in group)) + 1) // 2
            verdict.again.extend(Retry(part, tries[text_id][1], text_id) for text_id in group)
            continue
        text_id, count = group[0], tries[group[0]][1] + 1
        hopeless = error.code in CODES and not CODES[error.code][0].is_retryable
        if hopeless or count >= ALONE_TRIES:
            verdict.failures.append((text_id, error.code, error.message))
        else:
            verdict.again.append(Retry(1, count, text_id))
    return verdict


def judge_lost(error: BatchError, tries: Mapping[int, tuple[int, int]]) -> Verdict:
    """Judge the texts of a submission that the queue has lost or failed as a whole."""
    verdict = Verdict([], [])
    for text_id, (part, count) in tries.items():
        if count + 1 < LOST_TRIES:
            verdict.again.append(Retry(part, count + 1, text_id))
        else:
            verdict.failures.append((text_id, error.code, error.message))
    return verdict


class Health:
    """Failures in a row that say nothing of the texts, over all workers of a run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._strikes = 0
        self._until = 0.0
        self._unanswered = False
        self._refusals: int | None = 0

    def well(self) -> None:
        """Something succeeded."""
        with self._lock:
            self._strikes, self._unanswered, self._refusals = 0, False, None

    def refused(self, error: WorkersAIError) -> None:
        """The input of a request was refused, which may be the fault of its texts, or of what all requests share.

        Raises:
            WorkersAIError: Nothing has succeeded yet, and this is one refusal too many.
        """
        with self._lock:
            if self._refusals is not None:
                self._refusals += 1
                if self._refusals > REFUSALS:
                    raise error

    def unanswered(self, error: WorkersAIError) -> None:
        """The reply to a submission was lost: it may have been taken. It is sent again once.

        Raises:
            WorkersAIError: It is the second one in a row.
        """
        with self._lock:
            if self._unanswered:
                raise error
            self._unanswered = True

    def strike(self, error: WorkersAIError, now: float) -> float:
        """Count a failure; seconds to wait before the next try. Failures of one outage count once for all workers.

        Raises:
            WorkersAIError: It is one too many.
        """
        with self._lock:
            if now >= self._until:
                self._strikes += 1
                if self._strikes > STRIKES:
                    raise error
                self._until = now + self._wait_s(error)
            return max(0.0, self._until - now)

    def _wait_s(self, error: WorkersAIError) -> float:
        if error.retry_after is not None:
            return min(error.retry_after, MAX_RETRY_AFTER_S)
        if isinstance(error, RateLimitError) and error.code == 3021:
            return MINUTE_S
        return float(min(0.5 * 2.0**self._strikes, MINUTE_S))
