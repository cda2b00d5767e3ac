"""LlamaIndex reranker for Cloudflare Workers AI."""

from llama_index.postprocessor.workers_ai_rerank._version import __version__
from llama_index.postprocessor.workers_ai_rerank.base import WorkersAIRerank

from workers_ai import GatewayOptions

__all__ = ["GatewayOptions", "WorkersAIRerank", "__version__"]
