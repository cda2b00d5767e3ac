"""The faults that meet one request, as its endpoint applies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workers_ai_emulator.shapes import quirks, stream_quirks

if TYPE_CHECKING:
    from workers_ai_emulator.state.faults import Fault
    from workers_ai_emulator.wire import Json


class Meeting:
    """The faults of one request that alter its reply.

    Args:
        faults: The faults that were drawn for it.
    """

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults
        self.shapes = [fault.shape for fault in faults if fault.kind == "shape"]

    @property
    def latency_s(self) -> float:
        """Seconds of work more."""
        return sum(fault.seconds for fault in self.faults if fault.kind == "latency")

    @property
    def pause_s(self) -> float:
        """Seconds before each piece of the body."""
        return sum(fault.seconds for fault in self.faults if fault.kind == "slow")

    @property
    def byte_by_byte(self) -> bool:
        """Whether the body goes out one byte at a time."""
        return any(fault.kind == "one_byte_chunks" for fault in self.faults)

    @property
    def scripted(self) -> Fault | None:
        """The answer that a script puts into the model's mouth."""
        return next((fault for fault in self.faults if fault.kind == "answer"), None)

    @property
    def end(self) -> Fault | None:
        """The fault that ends a stream early."""
        return next((fault for fault in self.faults if fault.kind in {"cut", "error_frame"}), None)

    def whole(self, body: Json) -> Any:
        """A whole body in the shapes that meet it."""
        for shape in self.shapes:
            body = quirks.whole(shape, body)
        return body

    def events(self, events: list[Json]) -> list[Json]:
        """The events of a stream in the shapes that meet them."""
        for shape in self.shapes:
            events = stream_quirks.streamed(shape, events)
        return events
