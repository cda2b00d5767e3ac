"""Server-sent events as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from workers_ai_emulator.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from workers_ai_emulator.wire import Json

FRAMING = frozenset(
    {"crlf", "no_space", "comments", "two_data_lines", "no_done", "double_done", "bare_done", "open_last_line"}
)
_DONE = b"[DONE]"


class StreamEnd(NamedTuple):
    """An early end of a stream.

    Attributes:
        after_events: Number of events before the end.
        error: Body of an error event at the end; None for no error event.
    """

    after_events: int
    error: Json | None = None


def frames(events: Iterable[Json], shapes: list[str], end: StreamEnd | None) -> Iterator[bytes]:
    """Yield events as bytes, then the end mark.

    Args:
        events: The events.
        shapes: Named shapes. Only the shapes of ``FRAMING`` apply.
        end: Early end of the stream, without an end mark; None for a complete stream.
    """
    framing = _Framing(shapes)
    for count, event in enumerate(events):
        if end is not None and count >= end.after_events:
            break
        yield framing.frame(dumps(event))
    if end is not None:
        if end.error is not None:
            yield framing.frame(dumps({"errors": [end.error]}))
        return
    yield from framing.marks()


class _Framing:
    def __init__(self, shapes: list[str]) -> None:
        self._shapes = set(shapes)
        self._newline = b"\r\n" if "crlf" in self._shapes else b"\n"
        self._field = b"data:" if "no_space" in self._shapes else b"data: "

    def frame(self, data: bytes) -> bytes:
        comment = b": ping" + self._newline * 2 if "comments" in self._shapes else b""
        if "two_data_lines" in self._shapes and data.startswith(b"{"):
            data = b"{" + self._newline + self._field + data[1:]
        return comment + self._field + data + self._newline * 2

    def marks(self) -> Iterator[bytes]:
        if "no_done" in self._shapes:
            return
        if "bare_done" in self._shapes:
            yield _DONE + self._newline
        elif "open_last_line" in self._shapes:
            yield self._field + _DONE
        else:
            yield self.frame(_DONE)
        if "double_done" in self._shapes:
            yield self.frame(_DONE)
