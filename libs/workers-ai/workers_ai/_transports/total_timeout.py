"""Bound the time of an exchange, and close responses only while this thread is outside httpx."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import httpcore

if TYPE_CHECKING:
    import ssl

    import httpx

__all__ = ["OUT_OF_TIME", "bound", "close", "inside"]

OUT_OF_TIME: Final = "total_timeout ended before the response was complete"


class _Inside(threading.local):
    """Whether this thread is inside httpx, where it may hold a lock of the connection pool.

    Garbage collection can end an abandoned stream at any point. If that point is inside httpx, closing the response
    would wait for a lock that this thread holds, so it is closed when the thread leaves httpx.

    Attributes:
        ends: The time, by ``time.monotonic``, at which the exchange must have ended; None for no bound.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.closing: list[httpx.Response] = []
        self.ends: float | None = None

    def enter(self, ends: float | None) -> float | None:
        """Bound all reads and writes until :meth:`leave`. Return the previous bound, to pass to :meth:`leave`."""
        outer, self.ends = self.ends, ends
        self.depth += 1
        return outer

    def leave(self, outer: float | None) -> None:
        """Restore the previous bound. Close the responses whose streams ended inside httpx."""
        self.depth -= 1
        self.ends = outer
        if self.closing:
            self.close_all()

    def close_all(self) -> None:
        while self.closing and not self.depth:
            with suppress(Exception):
                self.closing.pop().close()


inside = _Inside()


def bound(client: httpx.Client) -> None:
    """Bound every read and write of a client by ``total_timeout``, including those of the response head and of TLS.

    httpx has no option for the network backend of its connection pools, so it is replaced in place. A pool of another
    kind, as in Pyodide, or of a version with other private names, keeps the timeouts of single reads and writes.
    """
    mounted = getattr(client, "_mounts", {}).values()
    for transport in (getattr(client, "_transport", None), *mounted):
        pool = getattr(transport, "_pool", None)
        backend = getattr(pool, "_network_backend", None)
        if isinstance(pool, httpcore.ConnectionPool) and backend is not None:
            pool._network_backend = _BoundedBackend(backend)


def _left_s(timeout: float | None, error: type[Exception]) -> float | None:
    """Return the seconds that one read or write may take.

    Raises:
        Exception: ``error``, if the time of the exchange is over.
    """
    ends = inside.ends
    if ends is None:
        return timeout
    left = ends - time.monotonic()
    if left <= 0:
        raise error(OUT_OF_TIME)
    return left if timeout is None else min(timeout, left)


class _BoundedBackend(httpcore.NetworkBackend):
    """Open connections whose reads and writes end with the exchange."""

    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *args: Any, **options: Any
    ) -> httpcore.NetworkStream:
        left = _left_s(timeout, httpcore.ConnectTimeout)
        return _BoundedStream(self._backend.connect_tcp(host, port, left, *args, **options))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, *args: Any, **options: Any
    ) -> httpcore.NetworkStream:
        left = _left_s(timeout, httpcore.ConnectTimeout)
        return _BoundedStream(self._backend.connect_unix_socket(path, left, *args, **options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _BoundedStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left_s(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left_s(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left_s(timeout, httpcore.ConnectTimeout)
        return _BoundedStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def close(response: httpx.Response) -> None:
    """Close a response, now or as soon as this thread has left httpx."""
    if inside.depth:
        inside.closing.append(response)
    else:
        response.close()
