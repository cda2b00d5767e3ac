"""Server-sent events, decoded by pushed bytes (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import json
from typing import Final

__all__ = ["SSEDecoder", "is_event_stream"]

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class SSEDecoder:
    """Collects bytes, cut anywhere, into the data of whole events.

    Comments and fields without a meaning here are dropped, several data lines of one event are joined by a newline. The
    data of an event named ``error`` is handed on inside ``{"error": ...}``. A bare line that is ``[DONE]`` or begins an
    object, which some services send, counts as data; and so do lines of data without an empty line between them, where
    each is an object of its own.
    """

    __slots__ = ("_data", "_is_error", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._is_error = False

    def decode(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; returns the data of every event that they complete."""
        if self._rest:
            if b"\n" not in chunk and b"\r" not in chunk and not self._rest[-1].endswith(b"\r"):
                self._rest.append(chunk)
                return []
            chunk = b"".join([*self._rest, chunk])
        if b"\r" in chunk:
            # A lone CR at the end may be half of a CRLF: it waits for the next bytes.
            held = b"\r" if chunk.endswith(b"\r") else b""
            chunk = chunk[: len(chunk) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
        *lines, rest = chunk.split(b"\n")
        self._rest = [rest] if rest else []
        events: list[bytes] = []
        for line in lines:  # the two lines that nearly all streams consist of first
            if line.startswith(b"data: "):
                self._data.append(line[6:])
            elif not line and len(self._data) == 1 and not self._is_error:
                events.append(self._data.pop())
            else:
                self._take(line, events)
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events += [_as_error(data) if self._is_error else data for data in _joined(self._data)]
                self._data = []
            self._is_error = False
        elif line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif line == b"data":
            self._data.append(b"")
        elif line.startswith(b"event:"):
            self._is_error = line[6:].strip() == b"error"
        elif line.startswith(b"{") or line.strip() == b"[DONE]":
            events.append(line.strip())
        elif line.startswith(_BYTE_ORDER_MARK):
            self._take(line[len(_BYTE_ORDER_MARK) :], events)

    def flush(self) -> list[bytes]:
        """The data of a last event that no empty line has closed."""
        events: list[bytes] = []
        rest, self._rest = b"".join(self._rest).rstrip(b"\r"), []
        if rest:
            self._take(rest, events)
        self._take(b"", events)
        return events


def _joined(lines: list[bytes]) -> list[bytes]:
    """The data of one event; of several, where the empty lines between them are missing and each is whole."""
    whole = len(lines) > 1 and all(line[:1] + line[-1:] == b"{}" or line == b"[DONE]" for line in lines)
    return lines if whole or len(lines) == 1 else [b"\n".join(lines)]


def _as_error(data: bytes) -> bytes:
    text = data if data.lstrip().startswith(b"{") else json.dumps(data.decode(errors="replace")).encode()
    return b'{"error":' + text + b"}"


def is_event_stream(status_code: int, content_type: str | None) -> bool:
    """Return whether a response is the event stream that was requested; its body is then left unread."""
    return status_code < 300 and "event-stream" in (content_type or "").lower()
