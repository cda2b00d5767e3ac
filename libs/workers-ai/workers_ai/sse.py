"""Server-sent events, decoded by pushed bytes (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

from typing import Final

__all__ = ["SSEDecoder"]

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class SSEDecoder:
    """Collects bytes, cut anywhere, into the data of whole events.

    Only ``data`` matters here: comments and other fields are dropped, several data lines of one event are joined by a
    newline. A bare ``[DONE]`` line without its field name, which some models send, counts as data.
    """

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def decode(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; returns the data of every event that they complete."""
        if self._rest:
            chunk = self._rest + chunk
        if b"\r" in chunk:
            # A lone CR at the end may be half of a CRLF: it waits for the next bytes.
            held = b"\r" if chunk.endswith(b"\r") else b""
            chunk = chunk[: len(chunk) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
        *lines, self._rest = chunk.split(b"\n")
        events: list[bytes] = []
        for line in lines:
            self._take(line, events)
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line == b"data":
            self._data.append(b"")
        elif line.strip() == b"[DONE]":
            events.append(b"[DONE]")
        elif line.startswith(_BYTE_ORDER_MARK):
            self._take(line[len(_BYTE_ORDER_MARK) :], events)

    def flush(self) -> list[bytes]:
        """The data of a last event that no empty line has closed."""
        events: list[bytes] = []
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        if rest:
            self._take(rest, events)
        self._take(b"", events)
        return events
