"""Cloudflare Workers AI for LangChain: chat, embeddings, reranking and decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workers_ai._version import __version__

if TYPE_CHECKING:
    from workers_ai.config import GatewayOptions

    from langchain_workers_ai.chat_models import ChatWorkersAI
    from langchain_workers_ai.embeddings import WorkersAIEmbeddings

__all__ = ["ChatWorkersAI", "GatewayOptions", "WorkersAIEmbeddings", "__version__"]

_HOMES = {
    "ChatWorkersAI": "langchain_workers_ai.chat_models",
    "GatewayOptions": "workers_ai.config",
    "WorkersAIEmbeddings": "langchain_workers_ai.embeddings",
}


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        from importlib import import_module

        return getattr(import_module(home), name)
    raise AttributeError(f"module 'langchain_workers_ai' has no attribute {name!r}")
