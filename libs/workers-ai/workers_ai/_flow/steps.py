"""The steps of a flow.

A flow is a generator. It yields a step, receives the result (or has the error thrown into it), and returns its result.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from workers_ai._wire.request import Request

if TYPE_CHECKING:
    import httpx

__all__ = ["Body", "Close", "Do", "Flow", "Read", "Send", "Sleep", "Step", "Turn"]

T = TypeVar("T")


class Send(NamedTuple):
    """Send a request. With ``stream``, the body of a successful event stream stays unread."""

    request: Request
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for ``seconds``; ``reason`` is for the log."""

    seconds: float
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """Wait for a turn at the framework's rate limiter, at most ``within_s`` seconds (None for no bound).

    Raises:
        TimeoutError: No turn came in time.
    """

    within_s: float | None = None


@dataclass(frozen=True, slots=True)
class Do:
    """Run ``work``, which may block for a moment (a disk, a lock). The async driver runs it in a thread."""

    work: Callable[[], Any]


@dataclass(slots=True)
class Body:
    """The body of an open response.

    Attributes:
        response: The response.
        chunks: Iterator over its bytes, sync or async like the driver; None until the first read.
    """

    response: httpx.Response
    chunks: Iterator[bytes] | AsyncIterator[bytes] | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Read the next bytes of ``body``; the result is empty at its end. A failure closes the response."""

    body: Body


@dataclass(frozen=True, slots=True)
class Close:
    """Close the response of ``body``.

    Attributes:
        body: The body.
        is_complete: Whether all events have arrived. Then the driver reads the end of the body, if it comes at once,
            so that the connection can be used again.
    """

    body: Body
    is_complete: bool = False


Step: TypeAlias = Send | Sleep | Turn | Do | Read | Close

Flow: TypeAlias = Generator[Step, Any, T]
