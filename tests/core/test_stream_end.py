"""After the end mark an answer is complete, even if the connection then fails."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

HI = [{"role": "user", "content": "hi"}]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENTS = b'data: {"response":"Hel"}\n\ndata: {"response":"lo"}\n\n'
END = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Line:
    """A server for one connection at a time. It answers, sends the end mark, and then calls ``then``."""

    def __init__(self, then: str, at_once: bool) -> None:
        self.then, self.at_once = then, at_once
        self.release = threading.Event()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self.listening.accept()
        with connection:
            while b"hi" not in connection.recv(65536):
                pass
            pieces = [HEAD + chunk(EVENTS) + chunk(END)] if self.at_once else [HEAD + chunk(EVENTS), chunk(END)]
            for piece in pieces:
                connection.sendall(piece)
                self.release.wait(0.02)
            if self.then == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            elif self.then == "garbage":
                connection.sendall(b"zz\r\nnot a chunk")
            elif self.then == "hold":
                self.release.wait(60)


@pytest.fixture(params=["hold", "reset", "garbage", "close"])
def then(request: pytest.FixtureRequest) -> Iterator[str]:
    return request.param


@pytest.mark.parametrize("at_once", [True, False], ids=["in one piece", "in two"])
def test_a_complete_stream_does_not_wait_for_the_end_of_the_connection(then: str, at_once: bool, face: Any) -> None:
    line = Line(then, at_once)
    began = time.perf_counter()
    pieces = face(None, base_url=line.url).stream("@cf/a", HI)
    took = time.perf_counter() - began
    line.release.set()
    line.listening.close()
    assert "".join(piece.text for piece in pieces) == "Hello"
    assert pieces[-1].last
    assert took < 30
