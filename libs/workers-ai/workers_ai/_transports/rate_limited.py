"""A transport that waits for a framework's rate limiter before each request."""

from __future__ import annotations

import math
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx
    from anyio import CancelScope

    from workers_ai._wire.request import Request

__all__ = ["RateLimitedTransport"]


class RateLimitedTransport:
    """A transport whose requests, retries included, wait for a turn at a framework's rate limiter.

    Args:
        transport: The transport that sends the requests.
        acquire: Function that blocks until the next request may be sent.
        aacquire: Function that waits for the same without blocking.
    """

    def __init__(
        self, transport: Any, acquire: Callable[[], object], aacquire: Callable[[], Awaitable[object]]
    ) -> None:
        self._transport = transport
        self._acquire = acquire
        self._aacquire = aacquire
        self._turns = 0
        self._scopes: dict[CancelScope, float] = {}

    def take_turn(self, within_s: float | None) -> None:
        """Wait for a turn.

        Args:
            within_s: Seconds to wait while no request of this transport gets a turn; None for no bound.

        Raises:
            TimeoutError: No request got a turn for ``within_s`` seconds.
        """
        if within_s is None:
            self._acquire()
            return
        errors: list[BaseException] = []

        def work() -> None:
            try:
                self._acquire()
                self._turns += 1
            except BaseException as exc:  # noqa: BLE001 - raised below
                errors.append(exc)

        # The limiter of a framework cannot be interrupted, so it blocks a thread that can be abandoned.
        thread = Thread(target=work, name="workers-ai-turn", daemon=True)
        thread.start()
        while thread.is_alive():
            before = self._turns
            thread.join(within_s)
            if thread.is_alive() and self._turns == before:
                raise TimeoutError
        if errors:
            raise errors[0]

    async def atake_turn(self, within_s: float | None) -> None:
        """Wait for a turn; see :meth:`take_turn`."""
        import anyio

        scope = anyio.CancelScope()
        self._scopes[scope] = math.inf if within_s is None else within_s
        try:
            with scope:
                scope.deadline = anyio.current_time() + self._scopes[scope]
                await self._aacquire()
        finally:
            del self._scopes[scope]
        if scope.cancelled_caught:
            raise TimeoutError
        for other, longest_s in self._scopes.items():
            other.deadline = anyio.current_time() + longest_s

    def send(self, request: Request, stream: bool) -> httpx.Response:
        """Send a request."""
        response: httpx.Response = self._transport.send(request, stream)
        return response

    async def asend(self, request: Request, stream: bool) -> httpx.Response:
        """Send a request."""
        response: httpx.Response = await self._transport.asend(request, stream)
        return response

    def close(self) -> None:
        """Close the sync connections."""
        self._transport.close()

    async def aclose(self) -> None:
        """Close the async connections of the running event loop."""
        await self._transport.aclose()
