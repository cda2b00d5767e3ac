"""Cloudflare Workers AI: chat, embeddings, reranking and the batch queue over one small transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai._version import __version__

if TYPE_CHECKING:
    from workers_ai._settings.settings import BatchWorker, GatewayOptions, Settings
    from workers_ai.client import AsyncClient, Client
    from workers_ai.retry import RetryEvent, RetryPolicy

__all__ = [
    "AsyncClient",
    "BatchWorker",
    "Client",
    "GatewayOptions",
    "RetryEvent",
    "RetryPolicy",
    "Settings",
    "__version__",
]

_HOMES = {
    "AsyncClient": "workers_ai.client",
    "BatchWorker": "workers_ai._settings.settings",
    "Client": "workers_ai.client",
    "GatewayOptions": "workers_ai._settings.settings",
    "RetryEvent": "workers_ai.retry",
    "RetryPolicy": "workers_ai.retry",
    "Settings": "workers_ai._settings.settings",
}


def __getattr__(name: str) -> object:
    if home := _HOMES.get(name):
        from importlib import import_module

        return getattr(import_module(home), name)
    raise AttributeError(f"module 'workers_ai' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
