"""The whole state of one emulated service, as the endpoints see it."""

from __future__ import annotations

import random
import threading
import uuid
from typing import TYPE_CHECKING, Any

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


class Service:
    """Everything an endpoint may read or change.

    Args:
        clock: The clock all parts share.
        settings: Choices of behaviour.
        seed: Seed of everything that looks random.
        capacity: Arguments of :class:`Capacity`.
        limits: Arguments of :class:`Limits`.
        queue: Settings of the asynchronous queue.
        upstream: Answers chat and embeddings in place of the built-in rules.
    """

    def __init__(
        self,
        clock: Clock,
        settings: Settings,
        seed: int,
        *,
        capacity: dict[str, Any],
        limits: dict[str, Any],
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
        """A uuid that depends on the seed and on nothing else."""
        with self._lock:
            return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def new_hex(self, length: int) -> str:
        """Hexadecimal digits that depend on the seed and on nothing else."""
        with self._lock:
            return f"{self.rng.getrandbits(4 * length):0{length}x}"
