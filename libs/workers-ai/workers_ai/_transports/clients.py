"""HTTP clients that each send one request at a time.

httpcore checks every connection of a client at each request. With 100 connections in one client, that takes longer than
the requests, and httpx keeps only 20 of them. So each request uses a client of its own, and concurrent requests use
several.
"""

from __future__ import annotations

import functools
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.request import getproxies

from workers_ai._settings.urls import is_loopback
from workers_ai._transports import load_bodies
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    import httpx

    from workers_ai._settings.settings import Settings

__all__ = ["KEPT_CONNECTIONS", "Clients", "SecretHeaders", "create_client"]

AnyClient = TypeVar("AnyClient", "httpx.Client", "httpx.AsyncClient")
C = TypeVar("C", bound="httpx.Client | httpx.AsyncClient")

KEPT_CONNECTIONS: Final = 100
"""Number of idle connections that stay open."""


class Clients(Generic[C]):
    """The clients of one event loop, or of all threads. No method acquires a lock, so that finalizers may call it.

    Args:
        create: Function that creates a client. The argument is the number of idle connections to keep: 1 or 0.

    Attributes:
        created: All clients.
    """

    def __init__(self, create: Callable[[int], C]) -> None:
        self._create = create
        self.created: list[C] = []
        self._keeping: set[C] = set()
        self._idle: deque[C] = deque()

    def take(self) -> C:
        """Return the idle client that was released last, or else a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            keeps = len(self._keeping) < KEPT_CONNECTIONS
            client = self._create(1 if keeps else 0)
            self.created.append(client)
            if keeps:
                self._keeping.add(client)
            return client

    def release(self, client: C) -> None:
        """Make a client available to the next request. A client that keeps no connection is used last."""
        if client in self._keeping:
            self._idle.append(client)
        else:
            self._idle.appendleft(client)

    def release_after(self, response: httpx.Response, client: C) -> httpx.Response:
        """Release a client as soon as its response is closed, and return the response."""
        if response.is_closed:
            self.release(client)
        else:
            response.stream.on_close = partial(self.release, client)  # type: ignore[union-attr]
        return response


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Return the TLS context of all clients. Loading the certificates takes longer than the rest of a client."""
    import httpx

    return httpx.create_ssl_context()


def create_client(kind: type[AnyClient], headers: SecretHeaders, settings: Settings, kept: int) -> AnyClient:
    """Create a client that keeps ``kept`` idle connections.

    Raises:
        ConfigurationError: httpx cannot use a variable of the environment. The message lists the variables it reads.
    """
    import httpx

    from workers_ai._transports.total_timeout import bound

    try:
        client = kind(headers=headers.reveal(), **_client_options(settings, kept))
        if isinstance(client, httpx.Client):
            bound(client)
        client.headers.setdefault("host", httpx.URL(settings._root).netloc.decode("ascii"))
        client._cookies = load_bodies().NoCookies()  # the argument `cookies` and its setter copy it
        return client
    except (ValueError, ImportError, OSError, httpx.InvalidURL) as exc:
        # The message can quote the URL of a proxy, with its password.
        reason = type(exc).__name__ if any("@" in url for url in getproxies().values()) else str(exc)
    names = "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
    raise ConfigurationError(f"httpx cannot create a client with this environment ({reason}): check {names}")


def _client_options(settings: Settings, kept: int) -> dict[str, Any]:
    """Return the options of the clients created here.

    Connections are not bounded: ``max_concurrency`` bounds requests. Loopback hosts are never reached through a proxy.
    """
    import httpx

    return {
        "verify": _tls_context(),
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=kept),
        "trust_env": not is_loopback(httpx.URL(settings.base_url).host),
    }


class SecretHeaders:
    """Headers that are hidden in ``repr`` and dumps."""

    __slots__ = ("_headers",)

    def __init__(self, headers: httpx.Headers) -> None:
        self._headers = headers

    def __repr__(self) -> str:
        return "SecretHeaders('**********')"

    def reveal(self) -> httpx.Headers:
        """Return the headers."""
        return self._headers
