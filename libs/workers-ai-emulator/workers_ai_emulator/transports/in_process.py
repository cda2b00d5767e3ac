"""The door for httpx in the same process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import httpx

from workers_ai_emulator.state.clock import Wait
from workers_ai_emulator.state.flow import WaitedTooLongError, ablock, block
from workers_ai_emulator.wire import DroppedConnectionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from workers_ai_emulator.emulator import Emulator
    from workers_ai_emulator.state.clock import Clock
    from workers_ai_emulator.wire import Reply


class EmulatorTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """One transport for ``httpx.Client`` and ``httpx.AsyncClient``; waits block neither loop nor lock.

    A wait longer than the client's read timeout ends in ``httpx.ReadTimeout``, as on a socket.

    Args:
        emulator: The emulator that answers.
    """

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request, blocking this thread while the service waits."""
        request.read()
        return self._emulator.handle(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request without blocking the event loop."""
        await request.aread()
        return await self._emulator.ahandle(request)


class ReplyStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A streamed body, read by either kind of client."""

    def __init__(self, reply: Reply, clock: Clock, limit_s: float | None) -> None:
        self._reply = reply
        self._clock = clock
        self._limit_s = limit_s
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        """The pieces, waiting between them where the reply does."""
        with self._as_on_a_socket():
            for piece in self._reply.chunks or ():
                if isinstance(piece, Wait):
                    block(piece, self._clock, self._limit_s)
                else:
                    yield piece
        self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces, awaiting between them where the reply does."""
        with self._as_on_a_socket():
            for piece in self._reply.chunks or ():
                if isinstance(piece, Wait):
                    await ablock(piece, self._clock, self._limit_s)
                else:
                    yield piece
        self.close()

    def close(self) -> None:
        """The reply was read or given up."""
        if self._open:
            self._open = False
            for callback in self._reply.on_close:
                callback()

    async def aclose(self) -> None:
        """The same for an async client."""
        self.close()

    @contextlib.contextmanager
    def _as_on_a_socket(self) -> Iterator[None]:
        try:
            yield
        except WaitedTooLongError:
            raise httpx.ReadTimeout("the emulator paused longer than the read timeout") from None
        except DroppedConnectionError:
            text = "peer closed connection without sending complete message body (incomplete chunked read)"
            raise httpx.RemoteProtocolError(text) from None


def in_process_response(reply: Reply, request: httpx.Request, clock: Clock) -> httpx.Response:
    """A reply as httpx sees it."""
    if reply.chunks is None:
        return httpx.Response(reply.status, headers=reply.headers, content=reply.body, request=request)
    stream = ReplyStream(reply, clock, read_timeout_s(request))
    return httpx.Response(reply.status, headers=reply.headers, stream=stream, request=request)


def in_process_error(error: Exception, request: httpx.Request) -> httpx.TransportError:
    """What a client on a socket would have seen."""
    if isinstance(error, DroppedConnectionError):
        return httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)
    return httpx.ReadTimeout("the emulator waited longer than the read timeout", request=request)


def read_timeout_s(request: httpx.Request) -> float | None:
    """The client's read timeout in seconds; None for none."""
    timeout = request.extensions.get("timeout") or {}
    value = timeout.get("read")
    return None if value is None else float(value)
