"""Odd spellings seen in public reports, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workers_ai_emulator.wire import Json


def whole(shape: str, body: Json) -> Any:
    """A whole body in this shape; unchanged when the shape concerns streams."""
    return body


def streamed(shape: str, events: list[Json]) -> list[Json]:
    """Events in this shape; unchanged when the shape concerns whole replies."""
    return events
