"""Streamed replies: events as bytes, with pauses and early ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai_emulator.shapes import sse
from workers_ai_emulator.wire import SSE_TYPE, DroppedConnectionError, Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from workers_ai_emulator.clock import Clock, Wait
    from workers_ai_emulator.endpoints.request_faults import RequestFaults
    from workers_ai_emulator.wire import Json


def stream_reply(clock: Clock, events: Iterable[Json], faults: RequestFaults, neurons: float, whole: Json) -> Reply:
    """Return a reply that streams events.

    Args:
        clock: The clock for pauses.
        events: The events, without the end mark.
        faults: The faults of the request.
        neurons: Price of the request, for the header.
        whole: The same answer without streaming, for the shape ``json_for_stream``.
    """
    if "json_for_stream" in faults.shapes:
        return json_reply(faults.whole(whole), headers={"cf-ai-neurons": f"{neurons:.2f}"})
    shaped: Iterable[Json] = faults.events(list(events)) if faults.shapes else events
    frames = sse.frames(shaped, faults.shapes, faults.end)
    headers = {"content-type": SSE_TYPE, "cache-control": "no-cache", "cf-ai-neurons": f"{neurons:.2f}"}
    return Reply(200, headers, chunks=paced(clock, frames, faults))


def paced(clock: Clock, pieces: Iterable[bytes], faults: RequestFaults) -> Iterator[bytes | Wait]:
    """Yield the pieces of a body, with a wait before each if a fault sets one.

    Raises:
        DroppedConnectionError: After the last piece, if a fault drops the connection.
    """
    for piece in pieces:
        for part in [piece[i : i + 1] for i in range(len(piece))] if faults.byte_by_byte else [piece]:
            if faults.pause_s > 0:
                yield clock.pause(faults.pause_s)
            yield part
    if faults.drops_stream:
        raise DroppedConnectionError
