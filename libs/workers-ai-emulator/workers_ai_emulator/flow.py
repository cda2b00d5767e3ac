"""Requests as generators: a flow yields the waits it needs and returns its reply.

The logic is written once; one driver blocks a thread, the other one awaits.
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
    """The caller's own read timeout passed while the service was still waiting."""


def drive(flow: Flow[T], clock: Clock, limit_s: float | None = None) -> T:
    """Run a flow to its end, blocking this thread while it waits.

    Args:
        flow: The flow.
        clock: The clock its waits refer to.
        limit_s: Longest single wait the caller accepts, in seconds; None for any.

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
    """Run a flow to its end without blocking the event loop; the twin of :func:`drive`."""
    try:
        while True:
            await ablock(next(flow), clock, limit_s)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


def block(wait: Wait, clock: Clock, limit_s: float | None = None) -> None:
    """Block this thread until ``wait`` is over."""
    wait, late = _limited(wait, clock, limit_s)
    clock.enter(wait)
    try:
        wait.block(clock.timeout_s(wait))
    finally:
        clock.leave(wait)
    if late and not wait.is_set:
        raise WaitedTooLongError


async def ablock(wait: Wait, clock: Clock, limit_s: float | None = None) -> None:
    """Await the end of ``wait``; on an event loop other than asyncio's a thread does the waiting."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        from anyio import to_thread  # httpx brings it along; only users of other loops come here

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
    with contextlib.suppress(RuntimeError):  # the loop is gone, and who waited with it
        loop.call_soon_threadsafe(ended.set)


def _limited(wait: Wait, clock: Clock, limit_s: float | None) -> tuple[Wait, bool]:
    """Shorten a wait to the caller's read timeout; the flag says that it was shortened."""
    if limit_s is None or (wait.until is not None and wait.until - clock.now() <= limit_s):
        return wait, False
    wait.until = clock.now() + limit_s
    return wait, True
