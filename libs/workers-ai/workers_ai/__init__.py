"""Clients of Cloudflare Workers AI: chat, embeddings, reranking and the asynchronous queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai._version import __version__

if TYPE_CHECKING:
    from workers_ai._limits.limiter import Limiter
    from workers_ai._settings.gateway import GatewayOptions
    from workers_ai._settings.keywords import CallKeywords, ClientKeywords, SettingKeywords
    from workers_ai._settings.settings import Settings
    from workers_ai._settings.urls import BatchWorker
    from workers_ai._wire.params import ChatKeywords, ChatParams, EmbedKeywords, ModelFilters
    from workers_ai.client import AsyncClient, Client
    from workers_ai.retry import RetryEvent, RetryPolicy

__all__ = [
    "AsyncClient",
    "BatchWorker",
    "CallKeywords",
    "ChatKeywords",
    "ChatParams",
    "Client",
    "ClientKeywords",
    "EmbedKeywords",
    "GatewayOptions",
    "Limiter",
    "ModelFilters",
    "RetryEvent",
    "RetryPolicy",
    "SettingKeywords",
    "Settings",
    "__version__",
]

_HOMES = {
    "AsyncClient": "workers_ai.client",
    "BatchWorker": "workers_ai._settings.urls",
    "CallKeywords": "workers_ai._settings.keywords",
    "ChatKeywords": "workers_ai._wire.params",
    "ChatParams": "workers_ai._wire.params",
    "Client": "workers_ai.client",
    "ClientKeywords": "workers_ai._settings.keywords",
    "EmbedKeywords": "workers_ai._wire.params",
    "GatewayOptions": "workers_ai._settings.gateway",
    "Limiter": "workers_ai._limits.limiter",
    "ModelFilters": "workers_ai._wire.params",
    "RetryEvent": "workers_ai.retry",
    "RetryPolicy": "workers_ai.retry",
    "SettingKeywords": "workers_ai._settings.keywords",
    "Settings": "workers_ai._settings.settings",
}
"""Module of each exported name. A name is imported when it is first used."""


def __getattr__(name: str) -> object:
    if home := _HOMES.get(name):
        from importlib import import_module

        return getattr(import_module(home), name)
    raise AttributeError(f"module 'workers_ai' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
