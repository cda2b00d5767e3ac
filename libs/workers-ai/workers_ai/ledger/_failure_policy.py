"""What failures mean: for a text, and for the run. Pure rules."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from workers_ai._calls.polling import EXECUTION, is_unknown
from workers_ai._wire.error_mapping import CODES, Refusal, classify
from workers_ai.errors import APIConnectionError, CapacityError, QuotaExhaustedError
from workers_ai.retry import MINUTE_S, required_wait_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from workers_ai.errors import BatchError, WorkersAIError

__all__ = ["EXECUTION", "Health", "Retry", "Verdict", "error_class", "judge", "judge_lost", "unreachable"]

ALONE_TRIES: Final = 2
"""Times a text is tried alone before it counts as failed."""

LOST_TRIES: Final = 3
"""Submissions of a text that the queue may lose before it counts as failed."""

REFUSALS: Final = 20
"""Refusals of the input, with nothing taken before them, after which it is not the texts that are at fault."""

_FULL: Final = 5
_SINGLE: Final = 3
"""So many full requests and single texts of them that fail, with no success at all, end the run, too."""

STRIKES: Final = 8
"""Failures in a row, none of them of a text's making, after which the run ends: about three minutes of them."""


class Retry(NamedTuple):
    """A text to try again, in a request of at most ``part`` texts, after ``tries`` tries.

    A negative ``part`` asks for a request of at most ``-part`` texts that is the only one of its submission.
    """

    part: int
    tries: int
    text_id: int


class Verdict(NamedTuple):
    """What to do with texts that failed.

    Attributes:
        again: Texts to try again.
        failures: Texts to give up, as (text id, code, message).
        waits: An error of the service (capacity, 5xx) that is waited out, or None.
        stops: An error that ends the run (quota), or None.
        blamed: Errors of full requests and of single texts, which count against the run if nothing ever succeeds, each
            with whether it is a full request's.
    """

    again: list[Retry]
    failures: list[tuple[int, int | None, str]]
    waits: BatchError | None = None
    stops: BatchError | None = None
    blamed: tuple[tuple[BatchError, bool], ...] = ()


def error_class(error: WorkersAIError) -> type[WorkersAIError] | None:
    """Return the class that the code or the text of an item's error stands for; None if neither is known."""
    refusal = Refusal(error.message, error.code)
    if error.code in CODES:
        return classify(refusal, 0)
    known = classify(refusal, 429)
    return known if known in (QuotaExhaustedError, CapacityError) else None


def judge(
    failed: Iterable[tuple[Sequence[int], BatchError]],
    tries: Mapping[int, tuple[int, int]],
    *,
    size: int = 0,
    alone: bool = False,
    outage: bool = False,
) -> Verdict:
    """Decide about failed requests: halve one of several texts, try a single text once more.

    Quota, capacity and errors of the service say nothing of the texts: those go again as they were, up to
    ``STRIKES`` times.

    Args:
        failed: Text ids of each request, and its error.
        tries: Texts per request at most, and tries so far, of each text.
        size: Texts of a full request; a full request that fails counts against the run.
        alone: Whether each half is to be the only request of its submission.
        outage: Whether every request of a larger submission failed.
    """
    again: list[Retry] = []
    failures: list[tuple[int, int | None, str]] = []
    blamed: list[tuple[BatchError, bool]] = []
    waits = stops = None
    for group, error in failed:
        kind = error_class(error)
        count = max(tries[text_id][1] for text_id in group) + 1
        if kind is not None and issubclass(kind, QuotaExhaustedError):
            stops = error
            again += [Retry(*tries[text_id], text_id) for text_id in group]
        elif _passes(kind, error.code, outage) and count < STRIKES:
            waits = error
            again += [Retry(tries[text_id][0], count, text_id) for text_id in group]
        elif len(group) > 1:
            part = (min(len(group), *(abs(tries[text_id][0]) for text_id in group)) + 1) // 2
            again += [Retry(-part if alone else part, tries[text_id][1], text_id) for text_id in group]
            blamed += [(error, True)] if len(group) >= size else []
        elif (kind is not None and not kind.is_retryable) or count >= ALONE_TRIES:
            failures.append((group[0], error.code, error.message))
            blamed.append((error, False))
        else:
            again.append(Retry(-1 if alone else 1, count, group[0]))
    return Verdict(again, failures, waits, stops, tuple(blamed))


def _passes(kind: type[WorkersAIError] | None, code: int | None, outage: bool) -> bool:
    """Whether an error passes by itself. A failed execution may be the fault of a text, unless everything fails."""
    return kind is not None and kind.is_retryable and (outage or code not in EXECUTION)


def judge_lost(error: BatchError, tries: Mapping[int, tuple[int, int]]) -> Verdict:
    """Decide about the texts of a submission that the queue lost, or failed as a whole.

    One that failed twice as a whole is cut into submissions of one request, so that a text that fails its submission
    does not take the others with it.
    """
    verdict = Verdict([], [])
    lost = is_unknown(error)  # else the queue said that the job has failed
    for text_id, (part, count) in tries.items():
        if count + 1 < LOST_TRIES:
            narrow = not lost and count > 0
            verdict.again.append(Retry(-abs(part) if narrow else part, count + 1, text_id))
        elif not lost and len(tries) > 1:
            verdict.again.append(Retry(-((min(abs(part), len(tries)) + 1) // 2), count, text_id))
        else:
            verdict.failures.append((text_id, error.code, error.message))
    return verdict


def unreachable(error: WorkersAIError | None) -> bool:
    """Whether no connection was made."""
    return isinstance(error, APIConnectionError) and not error.delivered


class Health:
    """Failures in a row that say nothing of the texts, over all workers of a run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._strikes = 0
        self._until = 0.0
        self._unanswered = False
        self._refusals = self._full = self._single = self._mismatches = 0
        self._items_struck = self._accepted = False
        self.reached = self.succeeded = self.blamed = False

    def well(self) -> None:
        """Record a success."""
        with self._lock:
            self._strikes = self._mismatches = 0
            self._unanswered = self._items_struck = False
            self.succeeded = self.reached = True

    def accepted(self) -> None:
        """Record that the queue has accepted a submission; whether its texts are valid is still open."""
        with self._lock:
            self._unanswered, self._accepted, self.reached = False, True, True
            if not self._items_struck:
                self._strikes = 0

    def refused(self, error: WorkersAIError) -> None:
        """Record a rejected submission. It may be the fault of its texts, or of what all requests share.

        Raises:
            WorkersAIError: Nothing has been accepted yet, and there are too many.
        """
        with self._lock:
            self.reached = True
            self._refusals += not (self.succeeded or self._accepted)
            if self._refusals > REFUSALS:
                raise error

    def blame(self, failed: Sequence[tuple[WorkersAIError, bool]]) -> None:
        """Record failed requests of accepted submissions, each with whether it was a full one (else a single text).

        Raises:
            WorkersAIError: Nothing has succeeded yet, and so many have failed that it is not the fault of the texts.
        """
        with self._lock:
            if self.succeeded or not failed:
                return
            self.blamed = True
            self._full += sum(is_full for _, is_full in failed)
            self._single += sum(not is_full for _, is_full in failed)
            if self._full > REFUSALS or (self._full >= _FULL and self._single >= _SINGLE):
                raise failed[-1][0]

    @property
    def is_deep(self) -> bool:
        """Whether enough single texts have failed, so that requests of other texts tell more."""
        return self._single >= _SINGLE

    def mismatch(self, errors: Sequence[WorkersAIError]) -> None:
        """Record requests whose vectors have another length than those of the ledger.

        Raises:
            WorkersAIError: There are too many, with none of the right length between them.
        """
        with self._lock:
            self._mismatches += len(errors)
            if self._mismatches > REFUSALS:
                raise errors[-1]

    def unanswered(self, error: WorkersAIError) -> None:
        """Record a submission whose reply was lost: the queue may have accepted it. It is sent again once.

        Raises:
            WorkersAIError: It is the second one in a row.
        """
        with self._lock:
            if self._unanswered:
                raise error
            self._unanswered = True

    def strike(self, error: WorkersAIError, now: float, *, items: bool = False) -> float:
        """Count a failure; return the seconds to wait before the next try. One outage counts once for all workers.

        Raises:
            WorkersAIError: There are too many, or the service was never reached and is not reached now.
        """
        with self._lock:
            if unreachable(error) and not self.reached:
                raise error
            self.reached = self.reached or not unreachable(error)
            self._items_struck = self._items_struck or items
            if now >= self._until:
                self._strikes += 1
                if self._strikes > STRIKES:
                    raise error
                self._until = now + self._wait_s(error)
            return max(0.0, self._until - now)

    def hold_s(self, now: float) -> float:
        """Return the seconds until something may be sent again."""
        with self._lock:
            return max(0.0, self._until - now)

    def _wait_s(self, error: WorkersAIError) -> float:
        wait = required_wait_s(error)
        return float(min(0.5 * 2.0**self._strikes, MINUTE_S)) if wait is None else wait
