"""Decode server-sent events from pushed bytes (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import json
import re
from typing import Final

__all__ = ["SSEDecoder", "is_event_stream", "looks_like_events", "whole_events"]

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_FIELD: Final = re.compile(rb"\s*(?:data|event|id|retry)?:")


class SSEDecoder:
    """Decode bytes, split anywhere, into the data of whole events.

    - Ignores comments and all fields except ``data`` and ``event``.
    - Joins several data lines of one event with a newline.
    - Wraps the data of an event named ``error`` in ``{"error": ...}``.
    - Accepts a line without a field name if it is ``[DONE]`` or begins an object.
    - Accepts events without an empty line between them if each data line is a whole object.
    """

    __slots__ = ("_data", "_is_error", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._is_error = False

    def decode(self, chunk: bytes) -> list[bytes]:
        """Decode the next bytes. Return the data of every event that they complete."""
        if self._rest:
            if b"\n" not in chunk and b"\r" not in chunk and not self._rest[-1].endswith(b"\r"):
                self._rest.append(chunk)
                return []
            chunk = b"".join([*self._rest, chunk])
        if b"\r" in chunk:
            # A CR at the end may be the first byte of a CRLF. Keep it until the next bytes.
            pending = b"\r" if chunk.endswith(b"\r") else b""
            chunk = chunk[: len(chunk) - len(pending)].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + pending
        *lines, rest = chunk.split(b"\n")
        self._rest = [rest] if rest else []
        events: list[bytes] = []
        for line in lines:  # fast path: nearly all streams consist of these two lines
            if line.startswith(b"data: "):
                self._data.append(line[6:])
            elif not line and len(self._data) == 1 and not self._is_error:
                events.append(self._data.pop())
            else:
                self._decode_line(line, events)
        return events

    def _decode_line(self, line: bytes, events: list[bytes]) -> None:
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
            self._decode_line(line[len(_BYTE_ORDER_MARK) :], events)

    def flush(self) -> list[bytes]:
        """Return the data of a last event without a closing empty line."""
        events: list[bytes] = []
        rest, self._rest = b"".join(self._rest).rstrip(b"\r"), []
        if rest:
            self._decode_line(rest, events)
        self._decode_line(b"", events)
        return events


def _joined(lines: list[bytes]) -> list[bytes]:
    """Return the lines of one event as one text. Lines that are whole events are not joined."""
    are_events = len(lines) > 1 and all(line[:1] + line[-1:] == b"{}" or line == b"[DONE]" for line in lines)
    return lines if are_events or len(lines) == 1 else [b"\n".join(lines)]


def _as_error(data: bytes) -> bytes:
    text = data if data.lstrip().startswith(b"{") else json.dumps(data.decode(errors="replace")).encode()
    return b'{"error":' + text + b"}"


def is_event_stream(status_code: int, content_type: str | None) -> bool:
    """Return whether a response is a successful event stream. The transport leaves its body unread."""
    return status_code < 300 and "event-stream" in (content_type or "").lower()


def looks_like_events(body: bytes) -> bool:
    """Return whether a body begins as an event stream does, whatever its media type is."""
    return _FIELD.match(body.removeprefix(_BYTE_ORDER_MARK)) is not None


def whole_events(body: bytes) -> list[bytes]:
    """Return the data of every event of a whole event stream."""
    decoder = SSEDecoder()
    return decoder.decode(body) + decoder.flush()
