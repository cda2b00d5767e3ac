"""Playing one chat request: which rule applies, and what that gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai_emulator.shapes.answer import Choice

if TYPE_CHECKING:
    from workers_ai_emulator.player.request import ChatRequest


def play(request: ChatRequest) -> Choice:
    """Answer a request."""
    last = next((turn.text for turn in reversed(request.turns) if turn.role == "user"), "")
    return Choice(text=f"You said: {last}")
