"""The steps of a flow.

A flow is a generator. It yields a step, receives the result (or has the error thrown into it), and returns its result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from workers_ai._wire.request import Request

if TYPE_CHECKING:
    import httpx

__all__ = ["Body", "Close", "Do", "Flow", "Read", "Send", "Sleep", "Step", "Turn"]

T = TypeVar("T")


class Send(NamedTuple):
    """Send a request; with ``stream`` the body of a successful event stream stays unread."""

    request: Request
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for ``seconds``; ``reason`` is for the log."""

    seconds: float
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """Wait for a turn at the framework's rate limiter that the sender has, at most ``within_s`` seconds.

    Raises:
        TimeoutError: No turn came in time.
    """

    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class Do:
    """Run ``work``, which may block for a moment (a disk, a lock); the async driver runs it in a thread."""

    work: Callable[[], Any]


@dataclass(slots=True)
class Body:
    """The body of an open reply, and its pieces once reading has begun: an iterator, sync or async as the driver is.

    A sync one is read by ``read_on(chunks)``.
    """

    response: httpx.Response
    chunks: Any = None
    read_on: Any = None


@dataclass(frozen=True, slots=True)
class Read:
    """Read the next bytes of ``body``; none at its end. A failure closes the reply."""

    body: Body


@dataclass(frozen=True, slots=True)
class Close:
    """Close the reply of ``body``."""

    body: Body


Step: TypeAlias = Send | Sleep | Turn | Do | Read | Close


Flow: TypeAlias = Generator[Step, Any, T]
