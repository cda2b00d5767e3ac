"""An HTTP/1.1 server with one thread per connection."""

from __future__ import annotations

import contextlib
import http
import socket
import threading
from typing import TYPE_CHECKING

import h11
import httpx

from workers_ai_emulator.clock import Wait
from workers_ai_emulator.flow import block, drive
from workers_ai_emulator.wire import DroppedConnectionError

if TYPE_CHECKING:
    from types import TracebackType

    from workers_ai_emulator.transports.backend import Backend
    from workers_ai_emulator.wire import Reply

_MAX_HEAD = 64 * 1024
_READ = 256 * 1024
_BACKLOG = 1024
_IDLE_S = 75.0
_SEND_S = 120.0
_LINGER_S = 1.0
_LINGER_READS = 256
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


class Server:
    """Serve one emulator until it is stopped.

    Args:
        backend: The emulator that answers.
        host: Address to listen on.
        port: Port to listen on; 0 for a free port.
        idle_s: Seconds without a byte from the client after which a connection ends.
    """

    def __init__(self, backend: Backend, host: str, port: int, idle_s: float = _IDLE_S) -> None:
        self._idle_s = idle_s
        self._backend = backend
        self._host = host
        self._listener = socket.create_server((host, port), backlog=_BACKLOG)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._closing = False
        self._former_url = backend.base_url
        self._thread = threading.Thread(target=self._accept, name="workers-ai-emulator", daemon=True)

    @property
    def port(self) -> int:
        """Return the port of the listening socket."""
        return int(self._listener.getsockname()[1])

    @property
    def origin(self) -> str:
        """Return scheme, host and port."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    @property
    def base_url(self) -> str:
        """Return the base URL for clients. It ends in ``/client/v4``."""
        return f"{self.origin}/client/v4"

    def start(self) -> Server:
        """Start to accept connections. Return the server."""
        self._port = self.port
        self._backend.base_url, self._former_url = self.base_url, self._backend.base_url
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the port and every connection."""
        self._backend.base_url = self._former_url
        with self._lock:
            self._closing = True
            connections = list(self._connections)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def __enter__(self) -> str:
        return self.start().base_url

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._closing:
                    connection.close()
                    return
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="workers-ai-connection", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with connection:
                _Connection(connection, self._backend, self.origin_bytes, self._idle_s).run()
        except (OSError, h11.ProtocolError):
            pass  # the client disconnected, or a scripted reply is invalid HTTP
        finally:
            with self._lock:
                self._connections.discard(connection)

    @property
    def origin_bytes(self) -> bytes:
        """Return scheme, host and port as bytes, for the URL of requests."""
        return f"http://{self._host}:{self._port}".encode()


class _Connection:
    """One keep-alive connection.

    Args:
        connection: The connected socket.
        backend: The emulator that answers.
        origin: Scheme, host and port of the server.
        idle_s: Seconds without a byte from the client after which the connection ends.
    """

    def __init__(self, connection: socket.socket, backend: Backend, origin: bytes, idle_s: float) -> None:
        self._socket = connection
        self._backend = backend
        self._origin = origin
        self._idle_s = idle_s
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)

    def run(self) -> None:
        try:
            while (request := self._read_request()) is not None:
                self._answer(request)
                if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
                    return self._linger()
                self._protocol.start_next_cycle()
        except DroppedConnectionError:
            return None
        except (h11.RemoteProtocolError, httpx.InvalidURL, ValueError):
            self._reject()

    def _answer(self, request: httpx.Request) -> None:
        reply = drive(self._backend.flow(request), self._backend.clock)
        try:
            self._socket.settimeout(_SEND_S)
            self._send(reply, request.method)
        finally:
            for callback in reply.on_close:
                callback()

    def _read_request(self) -> httpx.Request | None:
        self._socket.settimeout(self._idle_s)
        head = self._next_event()
        if not isinstance(head, h11.Request):
            return None
        target = head.target if head.target.startswith(b"http") else self._origin + head.target
        headers = list(head.headers)
        return httpx.Request(head.method.decode(), target.decode("ascii"), headers=headers, content=self._read_body())

    def _read_body(self) -> bytes:
        """Read the body. Stop one byte above the limit, so that the service rejects the request."""
        limit = self._backend.settings.max_body_bytes
        body = bytearray()
        while len(body) <= limit:
            event = self._next_event()
            if not isinstance(event, h11.Data):
                break
            body += event.data
        return bytes(body[: limit + 1])

    def _next_event(self) -> h11.Event | None:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            if self._protocol.they_are_waiting_for_100_continue:
                self._write(h11.InformationalResponse(status_code=100, headers=[]))
            self._protocol.receive_data(self._socket.recv(_READ))
        return event if isinstance(event, h11.Event) else None

    def _send(self, reply: Reply, method: str) -> None:
        headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in reply.headers.items()]
        if reply.chunks is None:
            headers.append((b"content-length", str(len(reply.body)).encode()))
        reason = _REASONS.get(reply.status, "Error").encode()
        self._write(h11.Response(status_code=reply.status, headers=headers, reason=reason))
        for piece in reply.chunks if reply.chunks is not None else [reply.body]:
            if isinstance(piece, Wait):
                block(piece, self._backend.clock)
            elif piece and method != "HEAD":
                self._write(h11.Data(data=piece))
        self._write(h11.EndOfMessage())

    def _write(self, event: h11.Event) -> None:
        self._socket.sendall(self._protocol.send(event) or b"")

    def _reject(self) -> None:
        """Answer invalid HTTP with status 400."""
        if self._protocol.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            self._write(h11.Response(status_code=400, headers=[(b"content-length", b"0"), (b"connection", b"close")]))

    def _linger(self) -> None:
        """Discard incoming bytes, then close. Closing at once could reset the connection before the reply arrives."""
        self._socket.shutdown(socket.SHUT_WR)
        self._socket.settimeout(_LINGER_S)
        for _ in range(_LINGER_READS):
            if not self._socket.recv(_READ):
                return
