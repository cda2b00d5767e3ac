"""Flows: what a call does, step by step, written once for sync and async.

A flow is a generator. It yields a step (:class:`Send`, :class:`Sleep`, :class:`Do`, :class:`Read`, :class:`Close`), is
handed what the step gives (or has whatever ended it thrown in), and returns its result. :func:`drive` and
:func:`adrive` are the only places that do I/O for calls; a test can step a flow with no socket and no clock.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from workers_ai._flow.steps import Body, Close, Do, Flow, Read, Send, Sleep, T, Turn
from workers_ai._wire.request import Request

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncSender", "Sender", "aclose", "adrive", "close", "drive"]  # fmt: skip


class Sender(Protocol):
    """Sends one request and waits for the reply."""

    def send(self, request: Request, stream: bool) -> httpx.Response:
        """Send ``request``; raises ``httpx.RequestError`` where no reply comes."""
        ...


class AsyncSender(Protocol):
    """Sends one request and awaits the reply."""

    async def asend(self, request: Request, stream: bool) -> httpx.Response:
        """Send ``request``; raises ``httpx.RequestError`` where no reply comes."""
        ...


def drive(flow: Flow[T], sender: Sender) -> T:
    """Run a flow to its end, blocking."""
    try:
        step = next(flow)
        while True:
            reply: Any = None
            try:
                if isinstance(step, Send):
                    reply = sender.send(step.request, step.stream)
                elif isinstance(step, Do):
                    reply = step.work()
                elif isinstance(step, Sleep):
                    time.sleep(step.seconds)  # noqa: TID251 - the one place that waits
                else:
                    reply = _perform(step, sender)
            except BaseException as exc:  # noqa: BLE001 - an interrupt, too: the flow says what it leaves behind
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
                if isinstance(step, Send):
                    if shielded:  # a cancellation that came meanwhile has found no place, nor may the transport wait
                        await anyio.lowlevel.checkpoint_if_cancelled()
                    reply = await sender.asend(step.request, step.stream)
                elif isinstance(step, Do):
                    with anyio.CancelScope(shield=True):  # what a request has brought reaches the disk
                        reply = await anyio.to_thread.run_sync(step.work)
                    shielded = True
                elif isinstance(step, Sleep):
                    await anyio.sleep(step.seconds)
                else:
                    reply = await _aperform(step, sender)
            except BaseException as exc:  # noqa: BLE001 - a cancellation, too: the flow says what it leaves behind
                step = flow.throw(exc)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


def _perform(step: Read | Close | Turn, sender: Any) -> Any:
    if isinstance(step, Read):
        return _read(step.body)
    return close(step.body) if isinstance(step, Close) else sender.take_turn(step.within_s)


async def _aperform(step: Read | Close | Turn, sender: Any) -> Any:
    if isinstance(step, Read):
        return await _aread(step.body)
    return await (aclose(step.body) if isinstance(step, Close) else sender.atake_turn(step.within_s))


def close(body: Body) -> None:
    """Close an open reply. A transport that fails to costs nobody the answer."""
    from workers_ai._transports import bodies

    with suppress(Exception):
        bodies.close(body.response)


async def aclose(body: Body) -> None:
    """Close an open reply, also when the caller is cancelled."""
    import anyio

    with suppress(Exception), anyio.CancelScope(shield=True):
        await body.response.aclose()


def _read(body: Body) -> bytes:
    if body.chunks is None:
        from workers_ai._transports.bodies import read_on

        body.chunks, body.read_on = body.response.iter_bytes(), read_on
    try:
        chunk: bytes = body.read_on(body.chunks)
    except BaseException:
        close(body)
        raise
    return chunk


async def _aread(body: Body) -> bytes:
    if body.chunks is None:
        body.chunks = body.response.aiter_bytes()
    try:
        chunk: bytes = await anext(body.chunks, b"")
    except BaseException:
        await aclose(body)
        raise
    return chunk
