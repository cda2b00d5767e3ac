"""LlamaIndex LLM for Cloudflare Workers AI."""

from llama_index.llms.workers_ai._version import __version__
from llama_index.llms.workers_ai.base import WorkersAI
from llama_index.llms.workers_ai.extractor import WorkersAIBatchExtractor
from llama_index.llms.workers_ai.retry import WorkersAIRetryPolicy

from workers_ai import GatewayOptions

__all__ = ["GatewayOptions", "WorkersAI", "WorkersAIBatchExtractor", "WorkersAIRetryPolicy", "__version__"]
