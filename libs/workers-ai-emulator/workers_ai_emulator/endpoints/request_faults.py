"""The faults that apply to one request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai_emulator.shapes import quirks, stream_quirks
from workers_ai_emulator.shapes.sse import StreamEnd

if TYPE_CHECKING:
    from workers_ai_emulator.state.faults import Fault
    from workers_ai_emulator.wire import Json


class RequestFaults:
    """The faults that apply to one request, read by its endpoint.

    Args:
        drawn: The faults that :meth:`Faults.draw` returned for the request.
    """

    def __init__(self, drawn: list[Fault]) -> None:
        self._drawn = drawn
        self.shapes = [fault.shape for fault in drawn if fault.kind == "shape"]

    @property
    def latency_s(self) -> float:
        """Return the extra seconds of work."""
        return sum(fault.seconds for fault in self._drawn if fault.kind == "latency")

    @property
    def pause_s(self) -> float:
        """Return the seconds to wait before each piece of the body."""
        return sum(fault.seconds for fault in self._drawn if fault.kind == "slow")

    @property
    def byte_by_byte(self) -> bool:
        """Return whether the body is sent one byte at a time."""
        return any(fault.kind == "one_byte_chunks" for fault in self._drawn)

    @property
    def replacement(self) -> Fault | None:
        """Return the fault that replaces the whole reply: an error, a fixed reply, a page or a drop."""
        return next((fault for fault in self._drawn if fault.replaces_reply), None)

    @property
    def scripted(self) -> Fault | None:
        """Return the scripted answer of the model."""
        return next((fault for fault in self._drawn if fault.kind == "answer"), None)

    @property
    def end(self) -> StreamEnd | None:
        """Return the early end of a stream."""
        fault = self._ending
        if fault is None:
            return None
        error = {"message": f"AiError: {fault.message}", "code": fault.code} if fault.kind == "error_frame" else None
        return StreamEnd(fault.after_events, error)

    @property
    def drops_stream(self) -> bool:
        """Return whether the connection is dropped at the early end of a stream."""
        return self._ending is not None and self._ending.abrupt

    @property
    def _ending(self) -> Fault | None:
        return next((fault for fault in self._drawn if fault.kind in {"cut", "error_frame"}), None)

    def whole(self, body: Json) -> Json:
        """Return the body of a reply that is not streamed, with all named shapes applied."""
        for shape in self.shapes:
            body = quirks.whole(shape, body)
        return body

    def events(self, events: list[Json]) -> list[Json]:
        """Return the events of a stream with all named shapes applied."""
        for shape in self.shapes:
            events = stream_quirks.streamed(shape, events)
        return events
