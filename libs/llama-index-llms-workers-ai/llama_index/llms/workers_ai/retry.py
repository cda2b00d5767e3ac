"""A retry policy for the steps of a LlamaIndex workflow."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from workers_ai.errors import WorkersAIError
from workers_ai.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["WorkersAIRetryPolicy"]


class WorkersAIRetryPolicy:
    """Runs a step again when Workers AI failed in a way that passes, after the time the service asked for.

    ``@step(retry_policy=WorkersAIRetryPolicy())``. A step that fails with anything else, with a used-up allocation or
    with a refused request is not run again. These tries multiply with the model's own: a step that makes one call of
    ``max_retries=2`` sends at most ``3 * max_attempts`` requests.

    Args:
        max_attempts: Times the step runs at most, the first one included.
        base_s: Bound in seconds of the first jittered wait; it doubles with each try.
        cap_s: Bound in seconds of any jittered wait. What the service asks for is honoured up to 60 s.
        total_s: Seconds since the first failure after which the step is not run again.
    """

    def __init__(
        self, max_attempts: int = 3, *, base_s: float = 0.5, cap_s: float = 8.0, total_s: float = 600.0
    ) -> None:
        self._max_retries = max_attempts - 1
        self._base_s = base_s
        self._cap_s = cap_s
        self._total_s = total_s

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> float | None:
        """Seconds to wait before the step runs again; None to let it fail.

        Args:
            elapsed_time: Seconds since the first failure.
            attempts: Failures so far.
            error: The last one, or one that was raised from it.
            seed: Makes the jitter repeatable.
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
