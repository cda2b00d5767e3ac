"""Drivers: run a flow, sync or async.

:func:`drive` and :func:`adrive` do all I/O of calls. :func:`drive_stream` and :func:`adrive_stream` repeat them for
each step of a stream. A test can step a flow without a socket or a clock.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from workers_ai._flow.steps import Close, Do, Flow, Read, Send, Sleep, Turn
from workers_ai._transports import load_bodies
from workers_ai._wire.request import Request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable

    import httpx

    from workers_ai._flow.steps import Body

__all__ = ["AsyncSender", "Sender", "Stream", "adrive", "adrive_stream", "drive", "drive_stream"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Sender(Protocol):
    """Interface to send one request and wait for the response."""

    def send(self, request: Request, stream: bool) -> httpx.Response:
        """Send ``request``.

        Raises:
            httpx.RequestError: No response arrived.
        """
        ...


class AsyncSender(Protocol):
    """Interface to send one request and await the response."""

    async def asend(self, request: Request, stream: bool) -> httpx.Response:
        """Send ``request``.

        Raises:
            httpx.RequestError: No response arrived.
        """
        ...


class Stream(Protocol[T_co]):
    """An open stream."""

    def advance(self) -> Flow[Iterable[T_co] | None]:
        """Return the next items, possibly none; None at the end."""
        ...

    def leave(self) -> Flow[None]:
        """Release everything that the stream holds. Do nothing after the end."""
        ...


def drive(flow: Flow[T], sender: Sender) -> T:
    """Run a flow to its end, blocking."""
    try:
        step = next(flow)
        while True:
            reply: Any = None
            try:
                if isinstance(step, Read):
                    reply = _read(step.body)
                elif isinstance(step, Send):
                    reply = sender.send(step.request, step.stream)
                elif isinstance(step, Do):
                    reply = step.work()
                elif isinstance(step, Sleep):
                    time.sleep(step.seconds)  # noqa: TID251 - the only place that sleeps
                else:
                    _close_or_turn(step, sender)
            except BaseException as exc:  # noqa: BLE001 - interrupts too: the flow releases its slot
                step = flow.throw(exc)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


async def adrive(flow: Flow[T], sender: AsyncSender) -> T:
    """Run a flow to its end without blocking the event loop."""
    import anyio

    shielded = False
    try:
        step = next(flow)
        while True:
            reply: Any = None
            try:
                if isinstance(step, Read):
                    reply = await _aread(step.body)
                elif isinstance(step, Send):
                    if shielded:  # a cancellation may have arrived during the shielded step: deliver it first
                        await anyio.lowlevel.checkpoint_if_cancelled()
                    reply = await sender.asend(step.request, step.stream)
                elif isinstance(step, Do):
                    with anyio.CancelScope(shield=True):  # the result of a paid request must reach the disk
                        reply = await anyio.to_thread.run_sync(step.work)
                    shielded = True
                elif isinstance(step, Sleep):
                    await anyio.sleep(step.seconds)
                else:
                    await _aclose_or_turn(step, sender)
            except BaseException as exc:  # noqa: BLE001 - cancellations too: the flow releases its slot
                step = flow.throw(exc)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


def drive_stream(opening: Flow[Stream[T]], sender: Sender) -> Generator[T, None, None]:
    """Open a stream and yield its items, blocking. Close it in every case."""
    stream = drive(opening, sender)
    try:
        while (items := drive(stream.advance(), sender)) is not None:
            yield from items
    finally:
        drive(stream.leave(), sender)


async def adrive_stream(opening: Flow[Stream[T]], sender: AsyncSender) -> AsyncGenerator[T, None]:
    """Open a stream and yield its items without blocking the event loop. Close it in every case."""
    stream = await adrive(opening, sender)
    try:
        while (items := await adrive(stream.advance(), sender)) is not None:
            for item in items:
                yield item
    finally:
        await adrive(stream.leave(), sender)


def _close_or_turn(step: Close | Turn, sender: Any) -> None:
    if isinstance(step, Turn):
        sender.take_turn(step.within_s)
        return
    from workers_ai._transports.total_timeout import close

    body = step.body
    with suppress(Exception):  # a failure to close must not lose the answer
        try:
            if step.is_complete and body.chunks is not None:
                load_bodies().read_end(body.response, body.chunks)
        finally:
            close(body.response)


async def _aclose_or_turn(step: Close | Turn, sender: Any) -> None:
    if isinstance(step, Turn):
        await sender.atake_turn(step.within_s)
        return
    import anyio

    body = step.body
    with suppress(Exception):
        try:
            if step.is_complete and body.chunks is not None:
                await load_bodies().aread_end(body.chunks)
        finally:
            with anyio.CancelScope(shield=True):  # also if the caller was cancelled
                await body.response.aclose()


def _read(body: Body) -> bytes:
    chunks: Any = body.chunks
    if chunks is None:
        body.chunks = chunks = body.response.iter_bytes()
    chunk: bytes = load_bodies().read_next(body.response, chunks)
    return chunk


async def _aread(body: Body) -> bytes:
    chunks: Any = body.chunks
    if chunks is None:
        body.chunks = chunks = body.response.aiter_bytes()
    chunk: bytes = await load_bodies().aread_next(body.response, chunks)
    return chunk
