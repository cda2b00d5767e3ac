"""Turns at LlamaIndex's rate limiter. It takes one for each call itself; tries after the first take theirs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from llama_index.core.rate_limiter import BaseRateLimiter

    from workers_ai.client import AsyncClient, Client

__all__ = ["paced"]

Face = TypeVar("Face", "Client", "AsyncClient")


class _LaterTurns:
    """The turns of one call but the first."""

    def __init__(self, limiter: BaseRateLimiter) -> None:
        self._limiter = limiter
        self._begun = False

    def _is_later(self) -> bool:
        begun, self._begun = self._begun, True
        return begun

    def acquire(self) -> None:
        if self._is_later():
            self._limiter.acquire()

    async def async_acquire(self) -> None:
        if self._is_later():
            await self._limiter.async_acquire()


def paced(client: Face, limiter: BaseRateLimiter) -> Face:
    """The client of one call, each try of which counts at the limiter once."""
    turns = _LaterTurns(limiter)
    return type(client)._of(client._connection.paced(turns.acquire, turns.async_acquire))
