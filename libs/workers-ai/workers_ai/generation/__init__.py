"""Answer a corpus of any size: chat, extraction, classification, summaries. After a kill, the same call continues."""

from workers_ai.generation._api import agenerate, generate
from workers_ai.generation._estimate import GenerateEstimate, estimate
from workers_ai.generation._gathering import QueuedClient
from workers_ai.generation._inputs import ChatInput
from workers_ai.generation._options import (
    EstimateOptions,
    GenerateKeywords,
    GenerateOptions,
    RunOptions,
    SamplingOptions,
)
from workers_ai.generation._report import Answer, Answers, GenerateReport
from workers_ai.ledger._records import Failure
from workers_ai.ledger._store.schema import LedgerError

__all__ = [
    "Answer",
    "Answers",
    "ChatInput",
    "EstimateOptions",
    "Failure",
    "GenerateEstimate",
    "GenerateKeywords",
    "GenerateOptions",
    "GenerateReport",
    "LedgerError",
    "QueuedClient",
    "RunOptions",
    "SamplingOptions",
    "agenerate",
    "estimate",
    "generate",
]
