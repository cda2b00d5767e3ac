"""The connection that the sync and the async client of one object share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from workers_ai._calls.requests import Calls
from workers_ai._flow.drivers import AsyncSender, Sender
from workers_ai._settings.checks import check_handles
from workers_ai._transports.http import HttpTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import httpx

    from workers_ai._calls.queue import BatchFlows
    from workers_ai._limits.limiter import Limiter
    from workers_ai._settings.settings import Settings
    from workers_ai.retry import RetryEvent, RetryPolicy

__all__ = ["Connection", "Transport"]


class Transport(Sender, AsyncSender, Protocol):
    """Sends requests, and holds the open HTTP clients."""

    def close(self) -> None:
        """Close the sync connections."""
        ...

    async def aclose(self) -> None:
        """Close the async connections of the running event loop."""
        ...


@dataclass(frozen=True)
class Connection:
    """A transport, and the flows of the calls that use it. Pickles and copies have no open HTTP clients.

    Attributes:
        transport: The transport that sends the requests.
        calls: The flows, with settings, limiter and retry policy.
    """

    transport: Transport
    calls: Calls

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        http_client: httpx.Client | None = None,
        http_async_client: httpx.AsyncClient | None = None,
        binding: Any = None,
        retry: RetryPolicy | None = None,
        on_retry: Callable[[RetryEvent], None] | None = None,
        limiter: Limiter | None = None,
    ) -> Connection:
        """Return a connection. HTTP clients are created at the first request.

        Args:
            settings: Checked settings.
            http_client: The user's own ``httpx.Client``.
            http_async_client: The user's own ``httpx.AsyncClient``.
            binding: The ``env.AI`` of a Python Worker, in place of HTTP.
            retry: The retry policy; the default follows ``settings.max_retries``.
            on_retry: Called before each wait with a :class:`~workers_ai.RetryEvent`.
            limiter: The limiter; the default is shared by all objects of the account.

        Raises:
            ConfigurationError: A client, ``retry`` or ``limiter`` is of the wrong kind, or ``binding`` has no ``run``.
        """
        check_handles(http_client, http_async_client, retry, limiter)
        calls = Calls.of(settings, retry=retry, on_retry=on_retry, limiter=limiter)
        return cls(_transport(settings, http_client, http_async_client, binding), calls)

    @property
    def settings(self) -> Settings:
        """The checked settings."""
        return self.calls.settings

    @property
    def queue(self) -> BatchFlows:
        """The flows of the asynchronous queue."""
        from workers_ai._calls.queue import BatchFlows

        return BatchFlows(self.calls)

    def paced(self, acquire: Callable[[], object], aacquire: Callable[[], Awaitable[object]]) -> Connection:
        """Return a connection whose requests, retries included, wait for a framework's rate limiter.

        Args:
            acquire: Function that blocks until the next request may be sent.
            aacquire: Function that waits for the same without blocking.
        """
        from workers_ai._transports.rate_limited import RateLimitedTransport

        transport = RateLimitedTransport(self.transport, acquire, aacquire)
        return Connection(transport, replace(self.calls, paced=True))

    def for_call(self, settings: Mapping[str, object]) -> Connection:
        """Return a connection with the settings of one call; it shares the transport, the limiter and the gate.

        Args:
            settings: Keywords of :data:`~workers_ai._calls.per_call.PER_CALL`.

        Raises:
            ConfigurationError: A setting is malformed.
        """
        return replace(self, calls=self.calls.for_call(settings)[0])


def _transport(
    settings: Settings, http_client: httpx.Client | None, http_async_client: httpx.AsyncClient | None, binding: Any
) -> Transport:
    if binding is not None:
        from workers_ai._transports.binding import BindingTransport

        return BindingTransport(settings, binding)
    if settings.batch_worker:
        from workers_ai._transports.batch_worker import BatchWorkerTransport

        return BatchWorkerTransport(settings, http_client, http_async_client)
    return HttpTransport(settings, http_client, http_async_client)
