"""The failure policy: which inputs to retry, which to give up, when to end the run. No I/O."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from workers_ai._calls.polling import EXECUTION, is_unknown
from workers_ai._wire.error_mapping import CODES, ErrorDetails, classify
from workers_ai.errors import APIConnectionError, CapacityError, QuotaExhaustedError
from workers_ai.retry import MINUTE_S, backoff_s, required_wait_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from workers_ai.errors import BatchError, WorkersAIError

__all__ = [
    "EXECUTION",
    "Decision",
    "Health",
    "Retry",
    "after_failed_requests",
    "after_lost_job",
    "error_class",
    "unreachable",
]

ALONE_TRIES: Final = 2
"""Attempts of an input alone before it counts as failed."""

LOST_TRIES: Final = 3
"""Submissions of an input that the queue may lose before the input counts as failed."""

REJECTIONS: Final = 20
"""Rejected requests, with no success before them, after which the run ends: the inputs are not the cause."""

SINGLE_REJECTIONS: Final = 200
"""Rejected requests with one input each, with no success before them, after which the run ends."""

_FULL: Final = 5
_SINGLE: Final = 3
"""Failed full requests and failed single inputs that together end the run if nothing has succeeded."""

STRIKES: Final = 8
"""Consecutive failures of the service after which the run ends: about three minutes."""


class Retry(NamedTuple):
    """An input to send again, in a request of at most ``part`` inputs, after ``tries`` attempts.

    A negative ``part`` requires a separate submission of at most ``-part`` inputs.
    """

    part: int
    tries: int
    input_id: int


class Decision(NamedTuple):
    """What to do with inputs that failed.

    Attributes:
        again: Inputs to send again.
        failures: Inputs to give up, as (input id, code, message).
        waits: An error of the service (capacity, 5xx) that pauses the run, or None.
        stops: An error that ends the run (quota), or None.
        blamed: Errors of full requests and of single inputs. They end the run if nothing ever succeeds. The flag is
            True for a full request.
    """

    again: list[Retry]
    failures: list[tuple[int, int | None, str]]
    waits: BatchError | None = None
    stops: BatchError | None = None
    blamed: tuple[tuple[BatchError, bool], ...] = ()


def error_class(error: WorkersAIError) -> type[WorkersAIError] | None:
    """Return the error class for the code or the text of an item's error; None if neither is known."""
    refusal = ErrorDetails(error.message, error.code)
    if error.code in CODES:
        return classify(refusal, 0)
    known = classify(refusal, 429)
    return known if known in (QuotaExhaustedError, CapacityError) else None


def after_failed_requests(
    failed: Iterable[tuple[Sequence[int], BatchError]],
    tries: Mapping[int, tuple[int, int]],
    *,
    size: int = 0,
    alone: bool = False,
    outage: bool = False,
    per_request: int | None = None,
) -> Decision:
    """Decide about failed requests: halve a request of several inputs, retry a single input once.

    Quota, capacity and server errors are not caused by the inputs: send these again unchanged, up to ``STRIKES`` times.

    Args:
        failed: Input ids of each request, and its error.
        tries: Maximum inputs per request, and attempts so far, of each input.
        size: Inputs of a full request; a full request that fails counts against the run.
        alone: Whether each half is a separate submission.
        outage: Whether every request of a larger submission failed.
        per_request: Inputs that one request can hold, if it is a fixed number.
    """
    again: list[Retry] = []
    failures: list[tuple[int, int | None, str]] = []
    blamed: list[tuple[BatchError, bool]] = []
    waits = stops = None
    for group, error in failed:
        kind = error_class(error)
        count = max(tries[input_id][1] for input_id in group) + 1
        if kind is not None and issubclass(kind, QuotaExhaustedError):
            stops = error
            again += [Retry(*tries[input_id], input_id) for input_id in group]
        elif _is_temporary(kind, error.code, outage) and count < STRIKES:
            waits = error
            again += [Retry(tries[input_id][0], count, input_id) for input_id in group]
        elif len(group) > 1:
            part = _half(group, tries, per_request)
            again += [Retry(-part if alone else part, tries[input_id][1], input_id) for input_id in group]
            blamed += [(error, True)] if len(group) >= size else []
        elif (kind is not None and not kind.is_retryable) or count >= ALONE_TRIES:
            failures.append((group[0], error.code, error.message))
            blamed.append((error, False))
        else:
            again.append(Retry(-1 if alone else 1, count, group[0]))
    return Decision(again, failures, waits, stops, tuple(blamed))


def _half(group: Sequence[int], tries: Mapping[int, tuple[int, int]], per_request: int | None) -> int:
    """Return half the inputs of a failed request, or of a failed submission of requests of one input."""
    parts = [tries[input_id][0] for input_id in group]
    sizes = [-part for part in parts if part < 0] if per_request == 1 else list(map(abs, parts))
    return (min([len(group), *sizes]) + 1) // 2


def _is_temporary(kind: type[WorkersAIError] | None, code: int | None, outage: bool) -> bool:
    """Return whether an error is temporary.

    A failed execution is temporary only if every request failed; otherwise an input may be the cause.
    """
    return kind is not None and kind.is_retryable and (outage or code not in EXECUTION)


def after_lost_job(
    error: BatchError, tries: Mapping[int, tuple[int, int]], *, per_request: int | None = None
) -> Decision:
    """Decide about the inputs of a submission that the queue lost, or that failed as a whole.

    After the second failure as a whole, split it into smaller submissions, so that an input that fails its submission
    does not fail the others.

    Args:
        error: The error of the job.
        tries: Maximum inputs per request, and attempts so far, of each input.
        per_request: Inputs that one request can hold, if it is a fixed number.
    """
    decision = Decision([], [])
    lost = is_unknown(error)  # otherwise the queue reported a failed job
    half = -_half(list(tries), tries, per_request) if tries else -1
    for input_id, (part, count) in tries.items():
        if count + 1 < LOST_TRIES:
            narrow = not lost and count > 0
            smaller = half if per_request == 1 else -abs(part)
            decision.again.append(Retry(smaller if narrow else part, count + 1, input_id))
        elif not lost and len(tries) > 1:
            decision.again.append(Retry(half, count, input_id))
        else:
            decision.failures.append((input_id, error.code, error.message))
    return decision


def unreachable(error: WorkersAIError | None) -> bool:
    """Return whether no connection was made."""
    return isinstance(error, APIConnectionError) and not error.delivered


class Health:
    """Count consecutive failures of the service, over all workers of a run.

    Args:
        max_single: Number of failed single inputs, with no success, that ends the run; None for no limit.
    """

    def __init__(self, max_single: int | None = None) -> None:
        self._max_single = max_single
        self._lock = threading.Lock()
        self._strikes = 0
        self._until = 0.0
        self._unanswered = False
        self._rejections = self._full = self._single = self._mismatches = 0
        self._items_struck = self._accepted = False
        self.reached = self.succeeded = self.blamed = False

    def succeed(self) -> None:
        """Record a success."""
        with self._lock:
            self._strikes = self._mismatches = 0
            self._unanswered = self._items_struck = False
            self.succeeded = self.reached = True

    def accepted(self) -> None:
        """Record an accepted submission. Whether its inputs are valid is still unknown."""
        with self._lock:
            self._unanswered, self._accepted, self.reached = False, True, True
            if not self._items_struck:
                self._strikes = 0

    def rejected(self, error: WorkersAIError) -> None:
        """Record a rejected submission.

        Raises:
            WorkersAIError: Too many submissions were rejected, and none was accepted: the inputs are not the cause.
        """
        with self._lock:
            self.reached = True
            self._rejections += not (self.succeeded or self._accepted)
            if self._rejections > REJECTIONS:
                raise error

    def blame(self, failed: Sequence[tuple[WorkersAIError, bool]]) -> None:
        """Record failed requests of accepted submissions. The flag is True for a full request, False for one input.

        Raises:
            WorkersAIError: Too many requests have failed, and none has succeeded: the inputs are not the cause.
        """
        with self._lock:
            if self.succeeded or not failed:
                return
            self.blamed = True
            self._full += sum(is_full for _, is_full in failed)
            self._single += sum(not is_full for _, is_full in failed)
            too_many = self._max_single is not None and self._single > self._max_single
            if too_many or self._full > REJECTIONS or (self._full >= _FULL and self._single >= _SINGLE):
                raise failed[-1][0]

    @property
    def can_probe_new(self) -> bool:
        """Whether enough single inputs have failed to try new inputs next."""
        return self._single >= _SINGLE

    def mismatch(self, errors: Sequence[WorkersAIError]) -> None:
        """Record requests whose vectors have another length than those of the ledger.

        Raises:
            WorkersAIError: Too many requests in a row have another length.
        """
        with self._lock:
            self._mismatches += len(errors)
            if self._mismatches > REJECTIONS:
                raise errors[-1]

    def unanswered(self, error: WorkersAIError) -> None:
        """Record a submission without a reply. The queue may have accepted it; it is sent again once.

        Raises:
            WorkersAIError: The submission before it had no reply either.
        """
        with self._lock:
            if self._unanswered:
                raise error
            self._unanswered = True

    def strike(self, error: WorkersAIError, now: float, *, items: bool = False) -> float:
        """Count a failure; return the seconds to wait before the next attempt. One outage counts once for all workers.

        Raises:
            WorkersAIError: There are too many failures, or the service was never reached.
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
        """Return the seconds until the next attempt."""
        with self._lock:
            return max(0.0, self._until - now)

    def _wait_s(self, error: WorkersAIError) -> float:
        wait = required_wait_s(error)
        if wait is not None:
            return wait
        return backoff_s(self._strikes, 1.0, MINUTE_S)
