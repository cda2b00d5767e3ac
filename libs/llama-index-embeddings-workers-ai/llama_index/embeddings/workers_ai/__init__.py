"""Cloudflare Workers AI embeddings for LlamaIndex."""

from workers_ai.config import GatewayOptions

from llama_index.embeddings.workers_ai._version import __version__
from llama_index.embeddings.workers_ai.base import WorkersAIEmbedding

__all__ = ["GatewayOptions", "WorkersAIEmbedding", "__version__"]
