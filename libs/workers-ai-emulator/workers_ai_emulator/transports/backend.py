"""The interface that transports need from the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import httpx

    from workers_ai_emulator.clock import Clock
    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.settings import Settings
    from workers_ai_emulator.wire import Reply


class Backend(Protocol):
    """The service behind a transport.

    Attributes:
        base_url: Base URL for clients, up to ``/client/v4``. A server sets it while it runs.
    """

    base_url: str

    @property
    def clock(self) -> Clock:
        """Return the clock for all waits."""
        ...

    @property
    def settings(self) -> Settings:
        """Return the settings. Transports read ``max_body_bytes``."""
        ...

    def flow(self, request: httpx.Request) -> Flow[Reply]:
        """Return the flow that answers a request. The body must have been read."""
        ...
