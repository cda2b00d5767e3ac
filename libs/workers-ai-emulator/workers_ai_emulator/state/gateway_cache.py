"""The cache of an AI Gateway."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers_ai_emulator.clock import Clock
    from workers_ai_emulator.wire import Reply


_MAX_REPLIES = 1_000


class GatewayCache:
    """Replies by key. Each reply expires after its lifetime.

    Args:
        clock: The emulator's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Reply]] = {}

    def get(self, key: str) -> Reply | None:
        """Return the reply stored under a key; None if it is missing or expired."""
        with self._lock:
            until, reply = self._kept.get(key, (0.0, None))
            return reply if until > self._clock.now() else None

    def put(self, key: str, reply: Reply, ttl_s: float) -> None:
        """Store a reply for ``ttl_s`` seconds."""
        with self._lock:
            self._kept[key] = (self._clock.now() + ttl_s, reply)
            while len(self._kept) > _MAX_REPLIES:
                del self._kept[next(iter(self._kept))]
