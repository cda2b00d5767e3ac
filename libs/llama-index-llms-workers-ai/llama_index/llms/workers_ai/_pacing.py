"""Use LlamaIndex's rate limiter for retries. LlamaIndex acquires it once per call; each retry acquires it here."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from llama_index.core.rate_limiter import BaseRateLimiter

    from workers_ai.client import AsyncClient, Client

__all__ = ["limited", "paced"]

ClientT = TypeVar("ClientT", "Client", "AsyncClient")


class _RetryTurns:
    """Acquire the limiter for each request of one call except the first."""

    def __init__(self, limiter: BaseRateLimiter) -> None:
        self._limiter = limiter
        self._sent_first = False

    def _is_retry(self) -> bool:
        is_retry, self._sent_first = self._sent_first, True
        return is_retry

    def acquire(self) -> None:
        if self._is_retry():
            self._limiter.acquire()

    async def async_acquire(self) -> None:
        if self._is_retry():
            await self._limiter.async_acquire()


def paced(client: ClientT, limiter: BaseRateLimiter) -> ClientT:
    """Return a client for one call that acquires ``limiter`` before each retry."""
    return limited(client, _RetryTurns(limiter))


def limited(client: ClientT, limiter: BaseRateLimiter | _RetryTurns) -> ClientT:
    """Return a client that acquires ``limiter`` before each request."""
    return type(client)._of(client._connection.paced(limiter.acquire, limiter.async_acquire))
