"""Whether to try again, and when: a pure function of attempt, error and reply."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from workers_ai.errors import RateLimitError, WorkersAIError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_RETRY_AFTER_S", "RetryEvent", "RetryPolicy"]

MAX_RETRY_AFTER_S: Final = 60.0
"""The longest wait that a ``Retry-After`` header can ask for."""

MINUTE_S: Final = 60.0
"""How long a limit per minute (3021) lasts at most. Whether its window slides is not documented; a whole minute is
right either way."""


def required_wait_s(error: WorkersAIError) -> float | None:
    """Return the seconds that ``error`` requires before the next request; None if it requires no wait.

    A ``Retry-After`` counts up to :data:`MAX_RETRY_AFTER_S`. A rate limit (3021) lasts to the end of the minute.
    """
    if error.retry_after is not None:
        return min(error.retry_after, MAX_RETRY_AFTER_S)
    if error.code == 3021 and isinstance(error, RateLimitError):
        return MINUTE_S
    return None


@dataclass(frozen=True, slots=True)
class RetryEvent:
    """One wait before another try.

    Attributes:
        error: Why the last try failed.
        attempt: Tries made so far.
        wait_s: Seconds until the next one.
    """

    error: WorkersAIError
    attempt: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a failed call is tried again.

    The wait before try *n* + 1 is a random part of ``min(cap_s, base_s * 2 ** (n - 1))`` ("full jitter"). A
    ``Retry-After`` of the reply replaces it, up to :data:`MAX_RETRY_AFTER_S`; a limit per minute (3021) waits the
    minute.

    Attributes:
        max_retries: Tries after the first.
        base_s: Bound in seconds of the first wait.
        cap_s: Bound in seconds of any jittered wait.
        total_s: Seconds since the first try after which no further try begins.
        jitter: Gives a number from 0 to 1.
    """

    max_retries: int = 2
    base_s: float = 0.5
    cap_s: float = 8.0
    total_s: float = 600.0
    jitter: Callable[[], float] = field(default=random.random, compare=False, repr=False)

    def wait_s(self, attempt: int, error: WorkersAIError, elapsed_s: float = 0.0) -> float | None:
        """Seconds to wait after try number ``attempt`` (from 1) failed with ``error``; None to give up.

        Args:
            attempt: Tries made so far.
            error: What the last one ended with.
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
        return float(self.jitter() * min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 64)))
