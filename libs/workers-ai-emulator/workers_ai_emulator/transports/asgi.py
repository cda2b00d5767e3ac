"""The transport for ASGI servers and ASGI test clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import httpx

from workers_ai_emulator.clock import Wait
from workers_ai_emulator.flow import ablock, adrive
from workers_ai_emulator.wire import DroppedConnectionError

if TYPE_CHECKING:
    from workers_ai_emulator.transports.backend import Backend
    from workers_ai_emulator.wire import Reply

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiApp:
    """An ASGI 3 application.

    ASGI cannot drop a connection. A fault that drops it raises ``ConnectionResetError`` instead.

    Args:
        backend: The emulator that answers.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            raise NotImplementedError(f"ASGI scope {scope['type']!r} is not supported: send HTTP requests")

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = await _request(scope, receive, self._backend.settings.max_body_bytes)
        try:
            reply = await adrive(self._backend.flow(request), self._backend.clock)
            try:
                await self._send(reply, send)
            finally:
                for callback in reply.on_close:
                    callback()
        except DroppedConnectionError:
            raise ConnectionResetError("the emulator dropped the connection, because of a fault") from None

    async def _send(self, reply: Reply, send: Send) -> None:
        headers = [(name.encode(), value.encode("latin-1")) for name, value in reply.headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if reply.chunks is None:
            await send({"type": "http.response.body", "body": reply.body})
            return
        for piece in reply.chunks:
            if isinstance(piece, Wait):
                await ablock(piece, self._backend.clock)
            else:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _request(scope: Scope, receive: Receive, limit: int) -> httpx.Request:
    """Read a request. Stop one byte above the body limit, so that the service rejects the request."""
    pieces = bytearray()
    while len(pieces) <= limit:
        message = await receive()
        pieces += message.get("body", b"")
        if not message.get("more_body"):
            break
    body = bytes(pieces[: limit + 1])
    path = scope.get("raw_path") or scope["path"].encode()
    query = scope.get("query_string", b"")
    target = path.split(b"?")[0] + (b"?" + query if query else b"")
    url = b"http://emulator" + target
    return httpx.Request(scope["method"], url.decode("ascii"), headers=scope["headers"], content=body)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
