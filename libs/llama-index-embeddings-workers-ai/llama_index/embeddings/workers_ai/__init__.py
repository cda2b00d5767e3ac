"""LlamaIndex embeddings for Cloudflare Workers AI."""

from typing import TYPE_CHECKING

from llama_index.embeddings.workers_ai._version import __version__
from llama_index.embeddings.workers_ai.base import WorkersAIEmbedding
from llama_index.embeddings.workers_ai.batch import WorkersAIBatchEmbedding
from llama_index.embeddings.workers_ai.docstore import docstore_rollback

from workers_ai import GatewayOptions

if TYPE_CHECKING:
    from workers_ai.ingest import LedgerError

__all__ = [
    "GatewayOptions",
    "LedgerError",
    "WorkersAIBatchEmbedding",
    "WorkersAIEmbedding",
    "__version__",
    "docstore_rollback",
]


def __getattr__(name: str) -> object:
    if name == "LedgerError":  # imported on first use: it loads SQLite
        from workers_ai.ingest import LedgerError

        return LedgerError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
