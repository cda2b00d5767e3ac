"""The transport for httpx in the same process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import httpx

from workers_ai_emulator.clock import Wait
from workers_ai_emulator.flow import WaitedTooLongError, ablock, adrive, block, drive
from workers_ai_emulator.wire import DroppedConnectionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from workers_ai_emulator.clock import Clock
    from workers_ai_emulator.transports.backend import Backend
    from workers_ai_emulator.wire import Reply


class EmulatorTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """One transport for ``httpx.Client`` and ``httpx.AsyncClient``.

    Async requests do not block the event loop. A wait longer than the client's read timeout raises
    ``httpx.ReadTimeout``, as on a socket.

    Args:
        backend: The emulator that answers.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request. Block this thread during waits."""
        request.read()
        return respond(self._backend, request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request without blocking the event loop."""
        await request.aread()
        return await arespond(self._backend, request)


def respond(backend: Backend, request: httpx.Request) -> httpx.Response:
    """Answer a request. The body must have been read. Block this thread during waits.

    Raises:
        httpx.RemoteProtocolError: If a fault drops the connection.
        httpx.ReadTimeout: If a wait exceeds the client's read timeout.
    """
    try:
        reply = drive(backend.flow(request), backend.clock, _read_timeout_s(request))
    except (DroppedConnectionError, WaitedTooLongError) as error:
        raise _client_error(error, request) from None
    return _response(reply, request, backend.clock)


async def arespond(backend: Backend, request: httpx.Request) -> httpx.Response:
    """Answer a request without blocking the event loop; async form of :func:`respond`."""
    try:
        reply = await adrive(backend.flow(request), backend.clock, _read_timeout_s(request))
    except (DroppedConnectionError, WaitedTooLongError) as error:
        raise _client_error(error, request) from None
    return _response(reply, request, backend.clock)


class _ReplyStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a streamed reply, for sync and async clients."""

    def __init__(self, reply: Reply, clock: Clock, limit_s: float | None) -> None:
        self._reply = reply
        self._clock = clock
        self._limit_s = limit_s
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        """Yield the pieces of the body. Block during waits."""
        with self._client_errors():
            for piece in self._reply.chunks or ():
                if isinstance(piece, Wait):
                    block(piece, self._clock, self._limit_s)
                else:
                    yield piece
        self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body. Do not block the event loop during waits."""
        with self._client_errors():
            for piece in self._reply.chunks or ():
                if isinstance(piece, Wait):
                    await ablock(piece, self._clock, self._limit_s)
                else:
                    yield piece
        self.close()

    def close(self) -> None:
        """Release the slot and close the log entry; a second call does nothing."""
        if self._open:
            self._open = False
            for callback in self._reply.on_close:
                callback()

    async def aclose(self) -> None:
        """Close the stream; async form of :meth:`close`."""
        self.close()

    @contextlib.contextmanager
    def _client_errors(self) -> Iterator[None]:
        """Raise the errors that a client on a socket would raise."""
        try:
            yield
        except WaitedTooLongError:
            raise httpx.ReadTimeout("a pause of the emulator exceeded the read timeout: raise the timeout") from None
        except DroppedConnectionError:
            text = "peer closed connection without sending complete message body (incomplete chunked read)"
            raise httpx.RemoteProtocolError(text) from None


def _response(reply: Reply, request: httpx.Request, clock: Clock) -> httpx.Response:
    if reply.chunks is None:
        return httpx.Response(reply.status, headers=reply.headers, content=reply.body, request=request)
    stream = _ReplyStream(reply, clock, _read_timeout_s(request))
    return httpx.Response(reply.status, headers=reply.headers, stream=stream, request=request)


def _client_error(error: Exception, request: httpx.Request) -> httpx.TransportError:
    """Return the error that a client on a socket would raise."""
    if isinstance(error, DroppedConnectionError):
        return httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)
    return httpx.ReadTimeout("a wait of the emulator exceeded the read timeout: raise the timeout", request=request)


def _read_timeout_s(request: httpx.Request) -> float | None:
    """Return the client's read timeout in seconds; None for no timeout."""
    timeout = request.extensions.get("timeout") or {}
    value = timeout.get("read")
    return None if value is None else float(value)
