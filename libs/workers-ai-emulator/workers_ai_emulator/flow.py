"""Requests as generators: a flow yields its waits and returns its reply.

The logic is written once. :func:`drive` blocks a thread during waits, :func:`adrive` awaits them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Generator
from typing import TYPE_CHECKING, TypeVar

from workers_ai_emulator.clock import Wait

if TYPE_CHECKING:
    from workers_ai_emulator.clock import Clock

T = TypeVar("T")
Flow = Generator[Wait, None, T]


class WaitedTooLongError(Exception):
    """The caller's read timeout passed during a wait."""


def drive(flow: Flow[T], clock: Clock, limit_s: float | None = None) -> T:
    """Run a flow to its end. Block this thread during waits.

    Args:
        flow: The flow.
        clock: The clock for its waits.
        limit_s: Read timeout of the caller in seconds, for each wait; None for no timeout.

    Raises:
        WaitedTooLongError: If a wait took longer than ``limit_s``.
    """
    try:
        while True:
            block(next(flow), clock, limit_s)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


async def adrive(flow: Flow[T], clock: Clock, limit_s: float | None = None) -> T:
    """Run a flow to its end without blocking the event loop; async form of :func:`drive`."""
    try:
        while True:
            await ablock(next(flow), clock, limit_s)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


def block(wait: Wait, clock: Clock, limit_s: float | None = None) -> None:
    """Block this thread until a wait ends."""
    wait, late = _limited(wait, clock, limit_s)
    clock.enter(wait)
    try:
        wait.block(clock.timeout_s(wait))
    finally:
        clock.leave(wait)
    if late and not wait.is_set:
        raise WaitedTooLongError


async def ablock(wait: Wait, clock: Clock, limit_s: float | None = None) -> None:
    """Await the end of a wait. Outside asyncio, block in a worker thread."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        from anyio import to_thread  # a dependency of httpx; imported only outside asyncio

        await to_thread.run_sync(functools.partial(block, wait, clock, limit_s), abandon_on_cancel=True)
        return
    wait, late = _limited(wait, clock, limit_s)
    ended = asyncio.Event()
    clock.enter(wait)
    try:
        wait.on_set(functools.partial(_set_in_loop, loop, ended))
        await asyncio.wait_for(ended.wait(), clock.timeout_s(wait))
    except TimeoutError:
        pass
    finally:
        clock.leave(wait)
    if late and not wait.is_set:
        raise WaitedTooLongError


def _set_in_loop(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
        loop.call_soon_threadsafe(ended.set)


def _limited(wait: Wait, clock: Clock, limit_s: float | None) -> tuple[Wait, bool]:
    """Shorten a wait to the caller's read timeout. Return the wait and whether it was shortened."""
    if limit_s is None or (wait.until is not None and wait.until - clock.now() <= limit_s):
        return wait, False
    wait.until = clock.now() + limit_s
    return wait, True
