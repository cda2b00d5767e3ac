"""The whole service as one function of a request."""

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
    """Workers AI in this process.

    ``httpx.Client(transport=emulator.transport())``, ``httpx.AsyncClient(transport=emulator.transport())``
    and ``with emulator.serve() as url`` are its doors.

    ``base_url`` is where a client finds it, up to ``/client/v4``: the service's own URL, for the doors in this process,
    and the server's while it is served.

    Args:
        seed: Seed of everything that looks random: ids, padding, faults by chance.
        clock: The clock; None for real time. ``Clock("jump")`` never sleeps.
        slots: Requests in work at once; None for any number.
        max_wait_s: Seconds a request may wait for a slot before it is refused with 3040.
        neurons_per_day: Daily allocation; None for no end.
        quota_code: Code of the refusal when it is used up: 4006 or 3036.
        enforce_rpm: Whether the documented requests per minute hold.
        rpm: Requests per minute by task or model id, in place of the documented ones.
        api_requests_per_5_min: Limit of the API as a whole; None for none.
        queue: Settings of the asynchronous queue.
        upstream: Answers chat and embeddings in place of the built-in rules.
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
        """Start anew: no log, no faults, no batches, full quota, and the settings it was made with."""
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
        """Choices of behaviour; may be changed at any time."""
        return self.service.settings

    @property
    def capacity(self) -> Capacity:
        """Slots and the queue in front of them."""
        return self.service.capacity

    @property
    def limits(self) -> Limits:
        """Quota, requests per minute, the limit of the API."""
        return self.service.limits

    @property
    def queue(self) -> Queue:
        """The asynchronous queue; how it behaves is in ``queue.settings``."""
        return self.service.queue

    @property
    def faults(self) -> Faults:
        """The script of faults."""
        return self.service.faults

    @property
    def log(self) -> Log:
        """Every request, and counters."""
        return self.service.log

    def flow(self, request: httpx.Request) -> Flow[Reply]:
        """Return the flow that answers a request whose body has been read; transports drive it."""
        call = routes.read(request)
        if call.segments[:1] == [control.PREFIX]:
            return self._control(call)
        return middleware.serve(self.service, call, routes.match)

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer a request whose body has been read; block this thread during waits. Thread-safe.

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
        """A transport for ``httpx.Client`` and ``httpx.AsyncClient`` alike."""
        return EmulatorTransport(self)

    def asgi(self) -> AsgiApp:
        """An ASGI application, for ``httpx.ASGITransport`` or a server."""
        return AsgiApp(self)

    def serve(self, host: str = "127.0.0.1", port: int = 0, *, idle_s: float = 75.0) -> Server:
        """A server in threads of its own; a context manager that gives the base URL up to ``/client/v4``.

        Args:
            host: Address to listen on.
            port: Port to listen on; 0 for a free one.
            idle_s: Seconds without a byte from the client after which a connection ends.
        """
        return Server(self, host, port, idle_s)
