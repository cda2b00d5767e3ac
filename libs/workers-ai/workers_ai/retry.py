"""The retry policy: whether and when to retry, computed from attempt and error. It does no I/O."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from workers_ai.errors import RateLimitError, WorkersAIError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_RETRY_AFTER_S", "RetryEvent", "RetryPolicy"]

MAX_RETRY_AFTER_S: Final = 60.0
"""Upper bound in seconds for a ``Retry-After`` header."""

MINUTE_S: Final = 60.0
"""Seconds to wait after a rate limit (3021). Whether its window slides is not documented; a whole minute is long enough
for both."""


def required_wait_s(error: WorkersAIError) -> float | None:
    """Return the seconds that ``error`` requires before the next request; None if it requires no wait.

    A ``Retry-After`` is limited to :data:`MAX_RETRY_AFTER_S`. A rate limit (3021) requires one minute.
    """
    if error.retry_after is not None:
        return min(error.retry_after, MAX_RETRY_AFTER_S)
    if error.code == 3021 and isinstance(error, RateLimitError):
        return MINUTE_S
    return None


def backoff_s(attempt: int, first_s: float, longest_s: float, factor: float = 2.0) -> float:
    """Return the seconds to wait after try number ``attempt`` (from 1): ``first_s``, then ``factor`` times longer each.

    The result is at most ``longest_s``.
    """
    return min(first_s * factor ** min(attempt - 1, 64), longest_s)


@dataclass(frozen=True, slots=True)
class RetryEvent:
    """One wait before a retry.

    Attributes:
        error: Error of the last try.
        attempt: Number of tries so far.
        wait_s: Seconds until the retry.
    """

    error: WorkersAIError
    attempt: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number and delay of retries.

    The backoff after try *n* is a random part of ``min(cap_s, base_s * 2 ** (n - 1))`` ("full jitter"). A
    ``Retry-After`` header replaces it, up to :data:`MAX_RETRY_AFTER_S`. A rate limit (3021) waits one minute.

    Attributes:
        max_retries: Maximum number of tries after the first.
        base_s: Upper bound in seconds of the first backoff.
        cap_s: Upper bound in seconds of every backoff.
        total_s: Seconds since the first try after which no retry starts.
        jitter: Function that returns a number from 0 to 1.
    """

    max_retries: int = 2
    base_s: float = 0.5
    cap_s: float = 8.0
    total_s: float = 600.0
    jitter: Callable[[], float] = field(default=random.random, compare=False, repr=False)

    def wait_s(self, attempt: int, error: WorkersAIError, elapsed_s: float = 0.0) -> float | None:
        """Return the seconds to wait before a retry; None if no retry follows.

        Args:
            attempt: Number of tries so far, from 1.
            error: Error of the last try.
            elapsed_s: Seconds since the first try began.
        """
        if not error.is_retryable or attempt > self.max_retries:
            return None
        wait = self.delay_s(attempt, error)
        return wait if elapsed_s + wait <= self.total_s else None

    def delay_s(self, attempt: int, error: WorkersAIError) -> float:
        """Return the backoff delay in seconds after ``attempt``, whether or not a retry follows."""
        wait = required_wait_s(error)
        if wait is not None:
            return wait
        return self.jitter() * backoff_s(attempt, self.base_s, self.cap_s)
