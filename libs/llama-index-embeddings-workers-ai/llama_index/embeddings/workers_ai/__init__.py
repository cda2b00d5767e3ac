"""Cloudflare Workers AI embeddings for LlamaIndex."""

from llama_index.embeddings.workers_ai._version import __version__
from llama_index.embeddings.workers_ai.base import WorkersAIEmbedding
from llama_index.embeddings.workers_ai.batch import WorkersAIBatchEmbedding
from llama_index.embeddings.workers_ai.docstore import docstore_rollback

from workers_ai.config import GatewayOptions
from workers_ai.ingest import LedgerError

__all__ = [
    "GatewayOptions",
    "LedgerError",
    "WorkersAIBatchEmbedding",
    "WorkersAIEmbedding",
    "__version__",
    "docstore_rollback",
]
