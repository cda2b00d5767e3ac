"""Many flows at once, bounded: threads for sync, tasks for async. The first failure stops the rest."""

from __future__ import annotations

from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Protocol, TypeVar

from workers_ai._flow.drivers import AsyncSender, Sender, adrive, drive
from workers_ai._flow.steps import Do, Flow, Sleep, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = ["agather", "gather"]

T = TypeVar("T")


class Over(Protocol):
    """Set when all flows have ended, or one has failed."""

    def set(self) -> None:
        """End the wait."""
        ...

    def wait(self) -> object:
        """Wait for :meth:`set`."""
        ...


_GLANCE_S = 0.25
"""Longest wait, in seconds, between two looks at whether to stop."""


class _StoppedError(Exception):
    """Another flow has failed; this one sends nothing more."""


def _until(flow: Flow[T], stopped: Callable[[], bool]) -> Flow[T]:
    """The same flow, which ends before its next request, and in the middle of a wait, once ``stopped`` says so."""
    try:
        step: Step = next(flow)
        while True:
            while isinstance(step, Sleep) and step.seconds > _GLANCE_S and not stopped():
                yield Sleep(_GLANCE_S, step.reason)
                step = Sleep(step.seconds - _GLANCE_S, step.reason)
            if not isinstance(step, Do) and stopped():
                raise _StoppedError
            try:
                reply = yield step
            except Exception as exc:  # noqa: BLE001 - the flow decides
                step = flow.throw(exc)
            else:
                step = flow.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


def gather(flows: Sequence[Flow[T]], sender: Sender, limit: int, over: Over | None = None) -> list[T]:
    """Run all flows, at most ``limit`` at a time; results in the order of the flows.

    Args:
        flows: The flows.
        sender: Sends their requests.
        limit: Maximum flows at a time.
        over: The event on which the calling thread waits; one of its own may do work for the flows meanwhile.

    Raises:
        Exception: What the first failing flow raised. Flows that wait or have not begun send nothing more.
    """
    if len(flows) <= 1 or limit == 1:
        return [drive(flow, sender) for flow in flows]
    lock, stop, over = Lock(), Event(), over or Event()
    waiting = iter(enumerate(flows))
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                with lock:
                    index, flow = next(waiting, (0, None))
                if flow is None:
                    return
                result = drive(_until(flow, stop.is_set), sender)
                with lock:
                    results[index] = result
                if len(results) == len(flows):
                    over.set()
        except BaseException as exc:  # noqa: BLE001 - raised below
            errors.append(exc)
            stop.set()
            over.set()

    # Not an executor: its threads would keep a process that was interrupted alive until their requests end.
    try:
        for _ in range(min(limit, len(flows))):
            Thread(target=work, name="workers-ai", daemon=True).start()
    except RuntimeError:  # the interpreter shuts down: a handler of atexit has no threads
        work()
    try:
        over.wait()
    finally:
        stop.set()
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(flows))]


async def agather(flows: Sequence[Flow[T]], sender: AsyncSender, limit: int) -> list[T]:
    """Run all flows, at most ``limit`` at a time; results in the order of the flows.

    Raises:
        Exception: What the first failing flow raised. The others are cancelled.
    """
    import anyio

    if len(flows) <= 1:
        return [await adrive(flow, sender) for flow in flows]
    results: dict[int, T] = {}
    errors: list[Exception] = []
    waiting = iter(enumerate(flows))

    async def work() -> None:
        for index, flow in waiting:
            try:
                await anyio.lowlevel.checkpoint()  # a failure elsewhere ends this task, however fast the service is
                results[index] = await adrive(flow, sender)
            except Exception as exc:  # noqa: BLE001 - raised below, without the group around it
                errors.append(exc)
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for _ in range(min(limit, len(flows))):
            tasks.start_soon(work)
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(flows))]
