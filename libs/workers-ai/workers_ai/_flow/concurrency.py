"""Run several flows concurrently: threads for sync, tasks for async. The first failure stops the others."""

from __future__ import annotations

from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from workers_ai._flow.drivers import AsyncSender, Sender, adrive, drive
from workers_ai._flow.steps import Do, Flow, Sleep, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import httpx

    from workers_ai._wire.request import Request

__all__ = ["agather", "gather"]

T = TypeVar("T")


class Finished(Protocol):
    """An event that is set when all flows have ended, or one has failed."""

    def set(self) -> None:
        """Set the event."""
        ...

    def wait(self) -> object:
        """Wait until the event is set."""
        ...


_CHECK_INTERVAL_S: Final = 0.25
"""Longest sleep, in seconds. After each sleep, a flow checks whether to stop."""


_LARGE_BYTES: Final = 100_000
"""Size of a reply from which parsing it blocks the event loop for a noticeable time: about half a millisecond."""


class _StoppedError(Exception):
    """Raised inside a flow to stop it after another flow has failed."""


def _until(flow: Flow[T], stopped: Callable[[], bool]) -> Flow[T]:
    """Run ``flow``. When ``stopped`` returns True, end it before its next request, or during a wait."""
    try:
        step: Step = next(flow)
        while True:
            while isinstance(step, Sleep) and step.seconds > _CHECK_INTERVAL_S and not stopped():
                yield Sleep(_CHECK_INTERVAL_S, step.reason)
                step = Sleep(step.seconds - _CHECK_INTERVAL_S, step.reason)
            if not isinstance(step, Do) and stopped():
                raise _StoppedError
            try:
                reply = yield step
            except Exception as exc:  # noqa: BLE001 - the flow handles it
                step = flow.throw(exc)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


def gather(flows: Sequence[Flow[T]], sender: Sender, limit: int, finished: Finished | None = None) -> list[T]:
    """Run all flows, at most ``limit`` at a time. Return the results in the order of the flows.

    Args:
        flows: The flows.
        sender: The transport that sends their requests.
        limit: Maximum number of flows at a time.
        finished: The event on which the calling thread waits. Its ``wait`` may do work for the flows.

    Raises:
        Exception: The exception of the first flow that failed. The other flows send no further request.
    """
    if len(flows) <= 1 or limit == 1:
        return [drive(flow, sender) for flow in flows]
    lock, stop, finished = Lock(), Event(), finished or Event()
    pending = iter(enumerate(flows))
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                with lock:
                    index, flow = next(pending, (0, None))
                if flow is None:
                    return
                result = drive(_until(flow, stop.is_set), sender)
                with lock:
                    results[index] = result
                if len(results) == len(flows):
                    finished.set()
        except BaseException as exc:  # noqa: BLE001 - raised below
            errors.append(exc)
            stop.set()
            finished.set()

    # Not an executor: its threads would keep an interrupted process alive until their requests end.
    try:
        for _ in range(min(limit, len(flows))):
            Thread(target=work, name="workers-ai", daemon=True).start()
    except RuntimeError:  # at interpreter shutdown no thread can be started
        work()
    try:
        finished.wait()
    finally:
        stop.set()
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(flows))]


class _InTurns:
    """A sender whose large replies are parsed one at a time, each in its own iteration of the event loop.

    Between two replies, the loop sends the next requests. Otherwise replies that arrive together are all parsed first.
    """

    def __init__(self, sender: AsyncSender) -> None:
        import anyio

        self._sender = sender
        self._turn = anyio.Lock()

    async def asend(self, request: Request, stream: bool) -> httpx.Response:
        """Send ``request``."""
        import anyio

        response = await self._sender.asend(request, stream)
        if response.is_closed and len(response.content) > _LARGE_BYTES:
            with anyio.CancelScope(shield=True):  # the reply is paid: a cancellation must not lose it
                async with self._turn:
                    await anyio.lowlevel.checkpoint()
        return response

    def __getattr__(self, name: str) -> object:
        return getattr(self._sender, name)


async def agather(flows: Sequence[Flow[T]], sender: AsyncSender, limit: int) -> list[T]:
    """Run all flows, at most ``limit`` at a time. Return the results in the order of the flows.

    Raises:
        Exception: The exception of the first flow that failed. The others are cancelled.
    """
    import anyio

    if len(flows) <= 1:
        return [await adrive(flow, sender) for flow in flows]
    results: dict[int, T] = {}
    errors: list[Exception] = []
    waiting, in_turns = iter(enumerate(flows)), _InTurns(sender)

    async def work() -> None:
        for index, flow in waiting:
            if errors:
                return
            try:
                results[index] = await adrive(flow, in_turns)
            except Exception as exc:  # noqa: BLE001 - raised below, outside the exception group
                errors.append(exc)
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for _ in range(min(limit, len(flows))):
            tasks.start_soon(work)
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(flows))]
