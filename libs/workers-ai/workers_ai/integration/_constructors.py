"""Keywords of the constructors of framework classes, for type checkers and editors.

A pydantic class gets its constructor from its fields, under their own names and with their own types. The aliases and
the wider types that the classes accept are declared here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workers_ai._settings.keywords import ClientKeywords
from workers_ai._wire.params import ChatParams, EmbedShape

if TYPE_CHECKING:
    import httpx

    from workers_ai._limits.limiter import Limiter
    from workers_ai.retry import RetryEvent, RetryPolicy
    from workers_ai.types import Api

__all__ = ["ChatConstructor", "ConnectionConstructor", "EmbeddingConstructor"]


class ConnectionConstructor(ClientKeywords, total=False):
    """Keywords of every class with settings."""

    http_client: httpx.Client | None
    """Your own client for sync calls."""
    http_async_client: httpx.AsyncClient | None
    """Your own client for async calls."""
    async_http_client: httpx.AsyncClient | None
    """Alias of ``http_async_client``."""
    binding: object
    """The ``env.AI`` of a Python Worker."""
    on_retry: Callable[[RetryEvent], None] | None
    """Called before each wait."""
    retry: RetryPolicy | None
    """The retry policy."""
    limiter: Limiter | None
    """The limiter of requests."""
    model_name: str
    """Alias of ``model``."""


class ChatConstructor(ChatParams, ConnectionConstructor, total=False):
    """Keywords of a chat model."""

    api: Api | None
    """The route."""
    stop_sequences: Sequence[str] | str | None
    """Alias of ``stop``."""


class EmbeddingConstructor(EmbedShape, ConnectionConstructor, total=False):
    """Keywords of an embedding model."""
