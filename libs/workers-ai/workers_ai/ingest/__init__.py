"""Embed a corpus of any size. After a crash, the same call continues and sends no text twice."""

from workers_ai.ingest._api import aingest, ingest
from workers_ai.ingest._estimate import Estimate, estimate
from workers_ai.ingest._options import EstimateOptions, IngestKeywords, IngestOptions
from workers_ai.ingest._report import IngestReport, Vectors
from workers_ai.ledger._records import Failure, Row
from workers_ai.ledger._store.schema import LedgerError

__all__ = [
    "Estimate",
    "EstimateOptions",
    "Failure",
    "IngestKeywords",
    "IngestOptions",
    "IngestReport",
    "LedgerError",
    "Row",
    "Vectors",
    "aingest",
    "estimate",
    "ingest",
]
