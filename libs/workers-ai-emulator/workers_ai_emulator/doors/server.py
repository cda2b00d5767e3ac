"""The door for everybody else: a small HTTP/1.1 server, one thread per connection."""

from __future__ import annotations

import contextlib
import http
import socket
import threading
from typing import TYPE_CHECKING

import httpx

from workers_ai_emulator.state.clock import Wait
from workers_ai_emulator.state.flow import block, drive
from workers_ai_emulator.wire import DroppedConnectionError

if TYPE_CHECKING:
    from types import TracebackType

    from workers_ai_emulator.emulator import Emulator
    from workers_ai_emulator.wire import Reply

_MAX_HEAD = 64 * 1024
_READ = 256 * 1024
_BACKLOG = 1024
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


class Server:
    """Serves one emulator until it is stopped.

    Args:
        emulator: The emulator that answers.
        host: Address to listen on.
        port: Port to listen on; 0 for a free one.
    """

    def __init__(self, emulator: Emulator, host: str, port: int) -> None:
        self._emulator = emulator
        self._host = host
        self._listener = socket.create_server((host, port), backlog=_BACKLOG)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._closing = False
        self._former_url = emulator.base_url
        self._thread = threading.Thread(target=self._accept, name="workers-ai-emulator", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.getsockname()[1])

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    @property
    def base_url(self) -> str:
        """What a client takes as base URL; ends in ``/client/v4``."""
        return f"{self.origin}/client/v4"

    def start(self) -> Server:
        """Begin to answer."""
        self._port = self.port
        self._emulator.base_url, self._former_url = self.base_url, self._emulator.base_url
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the port and every connection."""
        self._emulator.base_url = self._former_url
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
                _Connection(connection, self._emulator, self.origin_bytes).run()
        except (OSError, ValueError):
            pass  # the client went away, or spoke no HTTP
        finally:
            with self._lock:
                self._connections.discard(connection)

    @property
    def origin_bytes(self) -> bytes:
        """Host and port as the URL of requests spells them."""
        return f"http://{self._host}:{self._port}".encode()


class _Connection:
    """One kept-alive connection."""

    def __init__(self, connection: socket.socket, emulator: Emulator, origin: bytes) -> None:
        self._socket = connection
        self._emulator = emulator
        self._origin = origin
        self._buffer = b""

    def run(self) -> None:
        while (request := self._read_request()) is not None:
            try:
                reply = drive(self._emulator.flow(request), self._emulator.clock)
                try:
                    self._send(reply, request.method)
                finally:
                    for callback in reply.on_close:
                        callback()
            except DroppedConnectionError:
                return
            if request.headers.get("connection", "").lower() == "close":
                return

    def _read_request(self) -> httpx.Request | None:
        head = self._read_until(b"\r\n\r\n")
        if head is None:
            return None
        first, *lines = head.split(b"\r\n")
        method, target, _ = first.split(b" ", 2)
        headers = [(name.strip(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        sent = {name.lower(): value for name, value in headers}
        if sent.get(b"expect", b"").lower() == b"100-continue":
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if sent.get(b"transfer-encoding", b"").lower() == b"chunked":
            body = self._read_chunked()
        else:
            body = self._read_exactly(int(sent.get(b"content-length", b"0")))
        url = target if target.startswith(b"http") else self._origin + target
        return httpx.Request(method.decode("ascii"), url.decode("ascii"), headers=headers, content=body)

    def _read_until(self, mark: bytes) -> bytes | None:
        while (end := self._buffer.find(mark)) < 0:
            if len(self._buffer) > _MAX_HEAD or not self._fill():
                return None
        found, self._buffer = self._buffer[:end], self._buffer[end + len(mark) :]
        return found

    def _read_exactly(self, length: int) -> bytes:
        pieces, missing = [self._buffer[:length]], length - len(self._buffer)
        self._buffer = self._buffer[length:]
        while missing > 0:
            piece = self._socket.recv(min(_READ, missing))
            if not piece:
                raise OSError("the client closed the connection inside a request")
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _read_chunked(self) -> bytes:
        pieces: list[bytes] = []
        while True:
            line = self._read_until(b"\r\n")
            size = int((line or b"0").split(b";")[0], 16)
            piece = self._read_exactly(size)
            self._read_exactly(2)
            if size == 0:
                return b"".join(pieces)
            pieces.append(piece)

    def _fill(self) -> bool:
        piece = self._socket.recv(_READ)
        self._buffer += piece
        return bool(piece)

    def _send(self, reply: Reply, method: str) -> None:
        lines = [f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Error')}"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        if reply.chunks is None:
            lines.append(f"content-length: {len(reply.body)}")
            head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
            self._socket.sendall(head if method == "HEAD" else head + reply.body)
            return
        lines.append("transfer-encoding: chunked")
        self._socket.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        for piece in reply.chunks:
            if isinstance(piece, Wait):
                block(piece, self._emulator.clock)
            elif piece:
                self._socket.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        self._socket.sendall(b"0\r\n\r\n")
