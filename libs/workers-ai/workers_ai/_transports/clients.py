"""HTTP clients that each send one request at a time.

httpcore checks every connection of a client at each request. With 100 connections in one client, that takes longer than
the requests, and httpx keeps only 20 of them. So each request uses a client of its own, and concurrent requests use
several.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

__all__ = ["KEPT_CONNECTIONS", "Clients"]

C = TypeVar("C", bound="httpx.Client | httpx.AsyncClient")

KEPT_CONNECTIONS: Final = 100
"""Number of idle connections that stay open."""


class Clients(Generic[C]):
    """The clients of one event loop, or of all threads. Takes no lock, so that finalizers may call it.

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
