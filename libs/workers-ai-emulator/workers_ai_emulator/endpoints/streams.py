"""Streamed replies: events as bytes, with the faults that meet them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workers_ai_emulator.shapes import sse
from workers_ai_emulator.wire import SSE_TYPE, DroppedConnectionError, Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from workers_ai_emulator.endpoints.request_faults import Meeting
    from workers_ai_emulator.state.clock import Clock, Wait
    from workers_ai_emulator.wire import Json


def stream_reply(clock: Clock, events: Iterable[Json], meeting: Meeting, neurons: float, whole: Any) -> Reply:
    """A stream of events.

    Args:
        clock: For pauses.
        events: The events, without the end mark.
        meeting: The faults that meet it.
        neurons: Price, for the header.
        whole: The same answer as a whole body, for the shape ``json_for_stream``.
    """
    if "json_for_stream" in meeting.shapes:
        return json_reply(meeting.whole(whole), headers={"cf-ai-neurons": f"{neurons:.2f}"})
    listed: Iterable[Json] = meeting.events(list(events)) if meeting.shapes else events
    frames = sse.frames(listed, meeting.shapes, meeting.end)
    headers = {"content-type": SSE_TYPE, "cache-control": "no-cache", "cf-ai-neurons": f"{neurons:.2f}"}
    return Reply(200, headers, chunks=paced(clock, frames, meeting))


def paced(clock: Clock, pieces: Iterable[bytes], meeting: Meeting) -> Iterator[bytes | Wait]:
    """Pieces of a body with the pauses that the faults ask for.

    Raises:
        DroppedConnectionError: At the end of an abrupt cut.
    """
    for piece in pieces:
        for part in [piece[i : i + 1] for i in range(len(piece))] if meeting.byte_by_byte else [piece]:
            if meeting.pause_s > 0:
                yield clock.pause(meeting.pause_s)
            yield part
    if meeting.end is not None and meeting.end.abrupt:
        raise DroppedConnectionError
