"""The emulated service: state, routes and transports."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from workers_ai_emulator import control, middleware, routes
from workers_ai_emulator.clock import Clock
from workers_ai_emulator.settings import Settings
from workers_ai_emulator.state.queue import QueueSettings
from workers_ai_emulator.state.service import Service
from workers_ai_emulator.transports.asgi import AsgiApp
from workers_ai_emulator.transports.in_process import EmulatorTransport, arespond, respond
from workers_ai_emulator.transports.server import Server

if TYPE_CHECKING:
    import httpx

    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.state.capacity import Capacity
    from workers_ai_emulator.state.faults import Faults
    from workers_ai_emulator.state.limits import Limits
    from workers_ai_emulator.state.log import Log
    from workers_ai_emulator.state.queue import Queue
    from workers_ai_emulator.state.upstream import Upstream
    from workers_ai_emulator.wire import Call, Reply


IN_PROCESS_URL = "https://api.cloudflare.com/client/v4"


class Emulator:
    """An emulated Workers AI service.

    Use it with ``httpx.Client(transport=emulator.transport())``,
    ``httpx.AsyncClient(transport=emulator.transport())`` or ``with emulator.serve() as url``.

    ``base_url`` is the base URL for clients, up to ``/client/v4``: the URL of the running server, or without a server
    the URL of the service itself.

    Args:
        seed: Seed of all random values: ids, padding, and faults with a probability.
        clock: The clock; None for real time. ``Clock("jump")`` never sleeps.
        slots: Requests that may run at once; None for no limit.
        max_wait_s: Maximum wait for a slot, in seconds. After it, the request fails with 3040.
        neurons_per_day: Daily allocation in neurons; None for no limit.
        quota_code: Error code of an exhausted allocation: 4006 or 3036.
        enforce_rpm: Whether the documented limits per minute are enforced.
        rpm: Limits per minute by task or model id, in place of the documented ones.
        api_requests_per_5_min: API-wide limit; None for no limit.
        queue: Settings of the asynchronous queue.
        upstream: OpenAI-compatible server that answers chat and embeddings; None for the fake model.
        **settings: Any field of :class:`Settings`, such as ``latency_s=0.1`` or ``paid_plan=False``.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        clock: Clock | None = None,
        slots: int | None = None,
        max_wait_s: float = 60.0,
        neurons_per_day: float | None = None,
        quota_code: int = 4006,
        enforce_rpm: bool = False,
        rpm: dict[str, int] | None = None,
        api_requests_per_5_min: int | None = None,
        queue: QueueSettings | None = None,
        upstream: Upstream | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or Clock()
        self.base_url = IN_PROCESS_URL
        self._seed = seed
        self._settings = Settings(**settings)
        self._queue = queue or QueueSettings()
        self._upstream = upstream
        self._capacity = {"slots": slots, "max_wait_s": max_wait_s}
        self._limits = {
            "neurons_per_day": neurons_per_day,
            "quota_code": quota_code,
            "enforce_rpm": enforce_rpm,
            "rpm": rpm,
            "api_requests_per_5_min": api_requests_per_5_min,
        }
        self.reset()

    def reset(self) -> None:
        """Replace the state: empty log, no faults, no batches, full allocation, initial settings."""
        self.service = Service(
            self.clock,
            copy.deepcopy(self._settings),
            self._seed,
            capacity=self._capacity,
            limits=self._limits,
            queue=copy.deepcopy(self._queue),
            upstream=self._upstream,
        )

    @property
    def settings(self) -> Settings:
        """Return the settings; change them at any time."""
        return self.service.settings

    @property
    def capacity(self) -> Capacity:
        """Return the slots and the capacity queue."""
        return self.service.capacity

    @property
    def limits(self) -> Limits:
        """Return the daily allocation and the rate limits."""
        return self.service.limits

    @property
    def queue(self) -> Queue:
        """Return the asynchronous queue; its behaviour is in ``queue.settings``."""
        return self.service.queue

    @property
    def faults(self) -> Faults:
        """Return the script of faults."""
        return self.service.faults

    @property
    def log(self) -> Log:
        """Return the log of all requests, with counters."""
        return self.service.log

    def flow(self, request: httpx.Request) -> Flow[Reply]:
        """Return the flow that answers a request. The body must have been read. Transports drive the flow."""
        call = routes.read(request)
        if call.segments[:1] == [control.PREFIX]:
            return self._control(call)
        return middleware.serve(self.service, call, routes.match)

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer a request. The body must have been read. Block this thread during waits. Thread-safe.

        Raises:
            httpx.RemoteProtocolError: If a fault drops the connection.
            httpx.ReadTimeout: If a wait exceeds the client's read timeout.
        """
        return respond(self, request)

    async def ahandle(self, request: httpx.Request) -> httpx.Response:
        """Answer a request without blocking the event loop; async form of :meth:`handle`."""
        return await arespond(self, request)

    def _control(self, call: Call) -> Flow[Reply]:
        return control.control(lambda: self.service, call, reset=self.reset, base_url=self.base_url)
        yield  # makes this a generator

    def transport(self) -> EmulatorTransport:
        """Return a transport for ``httpx.Client`` and ``httpx.AsyncClient``."""
        return EmulatorTransport(self)

    def asgi(self) -> AsgiApp:
        """Return an ASGI application, for ``httpx.ASGITransport`` or a server."""
        return AsgiApp(self)

    def serve(self, host: str = "127.0.0.1", port: int = 0, *, idle_s: float = 75.0) -> Server:
        """Return a threaded HTTP server. As a context manager it returns the base URL, up to ``/client/v4``.

        Args:
            host: Address to listen on.
            port: Port to listen on; 0 for a free port.
            idle_s: Seconds without a byte from the client after which a connection ends.
        """
        return Server(self, host, port, idle_s)
