"""The state of one emulated service."""

from __future__ import annotations

import random
import threading
import uuid
from typing import TYPE_CHECKING

from workers_ai_emulator.state.capacity import Capacity
from workers_ai_emulator.state.faults import Faults
from workers_ai_emulator.state.gateway_cache import GatewayCache
from workers_ai_emulator.state.limits import Limits
from workers_ai_emulator.state.log import Log
from workers_ai_emulator.state.prefixes import Prefixes
from workers_ai_emulator.state.queue import Queue, QueueSettings

if TYPE_CHECKING:
    from workers_ai_emulator.clock import Clock
    from workers_ai_emulator.settings import Settings
    from workers_ai_emulator.state.upstream import Upstream
    from workers_ai_emulator.wire import Json


class Service:
    """State that endpoints read and change.

    Args:
        clock: The clock of all parts.
        settings: Settings of the service.
        seed: Seed of all random values.
        capacity: Arguments of :class:`Capacity`.
        limits: Arguments of :class:`Limits`.
        queue: Settings of the asynchronous queue.
        upstream: OpenAI-compatible server that answers chat and embeddings; None for the fake model.
    """

    def __init__(
        self,
        clock: Clock,
        settings: Settings,
        seed: int,
        *,
        capacity: Json,
        limits: Json,
        queue: QueueSettings,
        upstream: Upstream | None = None,
    ) -> None:
        self.clock = clock
        self.settings = settings
        self._lock = threading.Lock()
        self.rng = random.Random(seed)
        self.log = Log()
        self.faults = Faults(random.Random(seed))
        self.capacity = Capacity(clock, **capacity)
        self.limits = Limits(clock, **limits)
        self.gateway_cache = GatewayCache(clock)
        self.upstream = upstream
        self.prefixes = Prefixes(settings)
        self.queue = Queue(clock, queue, seed)

    def new_uuid(self) -> str:
        """Return a uuid that depends only on the seed."""
        with self._lock:
            return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def new_hex(self, length: int) -> str:
        """Return hexadecimal digits that depend only on the seed."""
        with self._lock:
            return f"{self.rng.getrandbits(4 * length):0{length}x}"
