"""A question to the service: the assumed answer, the calls, and the reader of the replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from workers_ai.cli._probe.calls import Call
from workers_ai.cli._probe.session import Session

__all__ = ["Question", "Value", "acceptance"]

Value: TypeAlias = str | int | bool | None


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        name: Name of the question: that of the emulator's switch, if there is one.
        text: The undocumented fact.
        positions: Possible answers; the first one is what this project assumes.
        calls: Requests to send, without batches.
        read: Function that sends the requests and returns the answer.
        batches: Submissions to the queue.
        waits: Whether the question requires a finished batch. Such questions come last.
        where: File with the assumption; empty if the question is a switch of the emulator.
    """

    name: str
    text: str
    positions: tuple[Value, ...]
    calls: tuple[Call, ...]
    read: Callable[[Session], Value]
    batches: tuple[Call, ...] = ()
    waits: bool = False
    where: str = ""

    @property
    def choice(self) -> Value:
        """The answer that this project assumes."""
        return self.positions[0]

    @property
    def cost_usd(self) -> float:
        """Estimated cost of this question alone."""
        return sum(call.cost_usd for call in (*self.calls, *self.batches))


def acceptance(name: str, text: str, call: Call, *, assumed: Literal["accept", "reject"], where: str = "") -> Question:
    """Return the question whether the service accepts a call."""
    other = "reject" if assumed == "accept" else "accept"
    return Question(name, text, (assumed, other), (call,), lambda session: session.send(call).accepted, where=where)
