"""The daily allocation, requests per minute, and the API-wide limit.

Sources: https://developers.cloudflare.com/workers-ai/platform/limits/,
https://developers.cloudflare.com/workers-ai/platform/pricing/ and
https://developers.cloudflare.com/fundamentals/api/reference/limits/.
"""

from __future__ import annotations

import collections
import threading
from typing import TYPE_CHECKING

from workers_ai_emulator.wire import ServiceError

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.clock import Clock
    from workers_ai_emulator.wire import Json

DAY_S = 86_400
_API_WINDOW_S = 300
_QUOTA_TEXT = (
    "you have used up your daily free allocation of 10,000 neurons, please upgrade to Cloudflare's Workers Paid plan if"
    " you would like to continue usage."
)


class Limits:
    """Limits of an account.

    Args:
        clock: The emulator's clock.
        neurons_per_day: Daily allocation in neurons; None for no limit. A day ends at 00:00 UTC.
        quota_code: Error code of an exhausted allocation: 3036 as documented, or 4006 as in public reports.
        enforce_rpm: Whether the documented limits per minute are enforced.
        rpm: Limits per minute by task name or model id, in place of the documented ones.
        api_requests_per_5_min: API-wide limit; None for no limit. It is undocumented whether inference requests count.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        neurons_per_day: float | None = None,
        quota_code: int = 4006,
        enforce_rpm: bool = False,
        rpm: dict[str, int] | None = None,
        api_requests_per_5_min: int | None = None,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.neurons_per_day = neurons_per_day
        self.quota_code = quota_code
        self.enforce_rpm = enforce_rpm
        self.rpm: dict[str, int] = dict(rpm or {})
        self.api_requests_per_5_min = api_requests_per_5_min
        self._day = 0
        self._used = 0.0
        self._minutes: dict[str, collections.deque[float]] = collections.defaultdict(collections.deque)
        self._api: collections.deque[float] = collections.deque()
        self._api_blocked_until = 0.0

    @property
    def neurons_today(self) -> float:
        """Return the neurons used since 00:00 UTC."""
        with self._lock:
            return self._today()

    def use_up_quota(self) -> None:
        """Exhaust today's allocation. Without a configured allocation, assume the free 10,000 neurons."""
        with self._lock:
            self._today()
            self.neurons_per_day = 10_000.0 if self.neurons_per_day is None else self.neurons_per_day
            self._used = max(self._used, self.neurons_per_day)

    def admit_api(self) -> None:
        """Count one request against the API-wide limit.

        Raises:
            ServiceError: The API-wide 429, with ``retry-after``, while the account is blocked.
        """
        if self.api_requests_per_5_min is None:
            return
        now = self._clock.now()
        with self._lock:
            _forget(self._api, now - _API_WINDOW_S)
            if now >= self._api_blocked_until and len(self._api) >= self.api_requests_per_5_min:
                self._api_blocked_until = now + _API_WINDOW_S
            if now < self._api_blocked_until:
                retry_after = str(max(1, round(self._api_blocked_until - now)))
                raise ServiceError(
                    429,
                    10429,
                    "Rate limited. Please wait and consider throttling your request speed",
                    layer="api",
                    headers={"retry-after": retry_after},
                )
            self._api.append(now)

    def admit(self, model: Model) -> None:
        """Count one inference request.

        Raises:
            ServiceError: ``quota_code``, or 3021.
        """
        now = self._clock.now()
        with self._lock:
            if self.neurons_per_day is not None and self._today() >= self.neurons_per_day:
                raise ServiceError(429, self.quota_code, _QUOTA_TEXT)
            key = model.id if model.paid_only or model.id in self.rpm else model.task
            limit = self.rpm.get(key, model.rpm if self.enforce_rpm else None)
            if limit is None:
                return
            minute = self._minutes[key]
            _forget(minute, now - 60)
            if len(minute) >= limit:
                raise ServiceError(429, 3021, "rate limiting: inference request per min rate reached")
            minute.append(now)

    def charge(self, neurons: float) -> None:
        """Charge neurons to today's allocation."""
        with self._lock:
            self._today()
            self._used += neurons

    def snapshot(self) -> Json:
        """Return the current state as plain data."""
        with self._lock:
            return {
                "neurons_per_day": self.neurons_per_day,
                "neurons_today": self._today(),
                "quota_code": self.quota_code,
                "enforce_rpm": self.enforce_rpm,
                "rpm": dict(self.rpm),
                "api_requests_per_5_min": self.api_requests_per_5_min,
            }

    def _today(self) -> float:
        day = int(self._clock.now() // DAY_S)
        if day != self._day:
            self._day, self._used = day, 0.0
        return self._used


def _forget(times: collections.deque[float], before: float) -> None:
    while times and times[0] <= before:
        times.popleft()
