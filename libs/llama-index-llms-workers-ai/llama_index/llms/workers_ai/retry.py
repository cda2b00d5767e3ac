"""Retry policy for the steps of a LlamaIndex workflow."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from workers_ai.errors import WorkersAIError
from workers_ai.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["WorkersAIRetryPolicy"]


class WorkersAIRetryPolicy:
    """Retry a step after a retryable Workers AI error, and honour ``Retry-After``.

    Use it as ``@step(retry_policy=WorkersAIRetryPolicy())``. Other errors, an exhausted quota and rejected requests
    fail the step at once. The LLM retries as well: a step with one call of ``max_retries=2`` sends up to
    ``3 * max_attempts`` requests.

    Args:
        max_attempts: Maximum runs of the step, including the first.
        base_s: Maximum of the first jittered delay, in seconds. It doubles with each retry.
        cap_s: Maximum of any jittered delay, in seconds. ``Retry-After`` is honoured up to 60 s.
        total_s: Seconds since the first failure after which the step is not retried.
    """

    def __init__(
        self, max_attempts: int = 3, *, base_s: float = 0.5, cap_s: float = 8.0, total_s: float = 600.0
    ) -> None:
        self._max_retries = max_attempts - 1
        self._base_s = base_s
        self._cap_s = cap_s
        self._total_s = total_s

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> float | None:
        """Return the seconds to wait before the next run; None to fail the step.

        Args:
            elapsed_time: Seconds since the first failure.
            attempts: Failures so far.
            error: The last error. Its causes are searched for a Workers AI error.
            seed: Seed of the jitter.
        """
        ours = next((found for found in _chain(error) if isinstance(found, WorkersAIError)), None)
        if ours is None:
            return None
        policy = RetryPolicy(
            max_retries=self._max_retries,
            base_s=self._base_s,
            cap_s=self._cap_s,
            total_s=self._total_s,
            jitter=random.Random(seed).random,
        )
        return policy.wait_s(attempts, ours, elapsed_time)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
