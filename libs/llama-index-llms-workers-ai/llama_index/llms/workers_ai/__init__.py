"""LlamaIndex LLM for Cloudflare Workers AI."""

from typing import TYPE_CHECKING

from llama_index.llms.workers_ai._version import __version__
from llama_index.llms.workers_ai.base import WorkersAI
from llama_index.llms.workers_ai.retry import WorkersAIRetryPolicy

from workers_ai import GatewayOptions

if TYPE_CHECKING:
    from llama_index.llms.workers_ai.extractor import WorkersAIBatchExtractor

__all__ = ["GatewayOptions", "WorkersAI", "WorkersAIBatchExtractor", "WorkersAIRetryPolicy", "__version__"]


def __getattr__(name: str) -> object:
    if name == "WorkersAIBatchExtractor":  # imported on first use: it loads LlamaIndex's extractors
        from llama_index.llms.workers_ai.extractor import WorkersAIBatchExtractor

        return WorkersAIBatchExtractor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
