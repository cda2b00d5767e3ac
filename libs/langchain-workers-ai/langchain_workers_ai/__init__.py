"""Cloudflare Workers AI for LangChain: chat, embeddings, reranking, decisions and batch ingestion."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from langchain_workers_ai._version import __version__

if TYPE_CHECKING:
    from langchain_workers_ai.chat_models import ChatWorkersAI
    from langchain_workers_ai.decisions import WorkersAIDecisions
    from langchain_workers_ai.embeddings import WorkersAIEmbeddings
    from langchain_workers_ai.errors import (
        APIConnectionError,
        APIResponseValidationError,
        APIStatusError,
        APITimeoutError,
        AuthenticationError,
        BadRequestError,
        BatchError,
        BatchItemError,
        BatchTimeoutError,
        CapacityError,
        ConfigurationError,
        ContextWindowExceededError,
        InternalServerError,
        ModelRetiredError,
        NotFoundError,
        PaidPlanRequiredError,
        PermissionDeniedError,
        QuotaExhaustedError,
        RateLimitError,
        RequestTimeoutError,
        RequestTooLargeError,
        StreamInterruptedError,
        StructuredOutputError,
        WorkersAIError,
        is_retryable,
    )
    from langchain_workers_ai.generation import GenerationReport, WorkersAIBatchGenerator
    from langchain_workers_ai.ingest import IndexReport, WorkersAIBatchIngestor
    from langchain_workers_ai.rerank import WorkersAIRerank
    from workers_ai import GatewayOptions
    from workers_ai.ingest import LedgerError

__all__ = [
    "APIConnectionError",
    "APIResponseValidationError",
    "APIStatusError",
    "APITimeoutError",
    "AuthenticationError",
    "BadRequestError",
    "BatchError",
    "BatchItemError",
    "BatchTimeoutError",
    "CapacityError",
    "ChatWorkersAI",
    "ConfigurationError",
    "ContextWindowExceededError",
    "GatewayOptions",
    "GenerationReport",
    "IndexReport",
    "InternalServerError",
    "LedgerError",
    "ModelRetiredError",
    "NotFoundError",
    "PaidPlanRequiredError",
    "PermissionDeniedError",
    "QuotaExhaustedError",
    "RateLimitError",
    "RequestTimeoutError",
    "RequestTooLargeError",
    "StreamInterruptedError",
    "StructuredOutputError",
    "WorkersAIBatchGenerator",
    "WorkersAIBatchIngestor",
    "WorkersAIEmbeddings",
    "WorkersAIError",
    "WorkersAIRerank",
    "__version__",
    "is_retryable",
]

if find_spec("langchain_core.decisions"):  # langchain-core 1.8 and newer
    __all__ += ["WorkersAIDecisions"]

_HOMES = {
    "ChatWorkersAI": "langchain_workers_ai.chat_models",
    "GatewayOptions": "workers_ai",
    "GenerationReport": "langchain_workers_ai.generation",
    "IndexReport": "langchain_workers_ai.ingest",
    "LedgerError": "workers_ai.ingest",
    "WorkersAIBatchGenerator": "langchain_workers_ai.generation",
    "WorkersAIBatchIngestor": "langchain_workers_ai.ingest",
    "WorkersAIDecisions": "langchain_workers_ai.decisions",
    "WorkersAIEmbeddings": "langchain_workers_ai.embeddings",
    "WorkersAIRerank": "langchain_workers_ai.rerank",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'langchain_workers_ai' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "langchain_workers_ai.errors")), name)


def __dir__() -> list[str]:
    return __all__
