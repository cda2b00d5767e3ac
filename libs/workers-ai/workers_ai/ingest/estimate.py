"""What an ingestion would send, cost and take."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from workers_ai.catalogue import TEXTS_PER_REQUEST, USD_PER_NEURON, lookup
from workers_ai.ingest.engine import Mode
from workers_ai.ingest.ledger import Ledger
from workers_ai.ingest.records import (
    JOBS_IN_FLIGHT,
    Fingerprint,
    Limits,
    as_sent,
    check_manner,
    checked,
    estimated_tokens,
    text_hash,
)
from workers_ai.ingest.report import neurons_of
from workers_ai.limiter import REQUESTS_PER_MINUTE
from workers_ai.queued import TEXTS_PER_JOB
from workers_ai.wire.batch import json_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

__all__ = ["Estimate", "estimate"]

_QUEUE_MINUTES: Final = 5.0


@dataclass(frozen=True)
class Estimate:
    """What an ingestion would take, without sending anything.

    Attributes:
        model: Model id.
        documents: Documents of the source.
        texts: Distinct texts the ledger has no vector of.
        requests: Requests: items of submissions, or direct requests.
        submissions: Submissions to the queue; 0 for direct requests.
        tokens: Estimated input tokens.
        neurons: Neurons by list price; None where no price is known.
        cost_usd: USD by list price, without the free allocation.
        minutes: About how long it takes.
    """

    model: str
    documents: int
    texts: int
    requests: int
    submissions: int
    tokens: int
    neurons: float | None
    cost_usd: float | None
    minutes: float

    def __str__(self) -> str:
        cost = "unknown" if self.cost_usd is None else f"${self.cost_usd:.6f}"
        neurons = "unknown" if self.neurons is None else f"{self.neurons:,.1f}"
        return "\n".join(
            [
                f"With {self.model}, nothing sent yet:",
                f"  documents    {self.documents:,}",
                f"  texts        {self.texts:,} to embed",
                f"  requests     {self.requests:,}",
                f"  submissions  {self.submissions:,}",
                f"  tokens       {self.tokens:,} (estimated)",
                f"  neurons      {neurons}",
                f"  cost         {cost}",
                f"  minutes      {self.minutes:,.1f}",
            ]
        )


def estimate(
    source: Iterable[tuple[Any, str]],
    *,
    model: str,
    ledger: str | os.PathLike[str] | None = None,
    mode: Mode = "queue",
    pooling: Literal["mean", "cls"] | None = None,
    instruction: str | None = None,
    truncate_inputs: bool | None = None,
    normalize: bool = False,
    empty_text: Literal["raise", "space"] = "raise",
    texts_per_job: int | None = None,
) -> Estimate:
    """What :func:`ingest` would send, cost and take; reads the source, and sends nothing.

    Tokens are estimated as a quarter of the bytes. A job in the queue is taken to last five minutes, the time
    within which most are done (https://developers.cloudflare.com/workers-ai/features/batch-api/); direct requests go
    at the account's documented limit per minute.

    Args:
        source: Documents as (id, text). Their distinct hashes are kept in memory: 100 MB for a million.
        model: Model id.
        ledger: A ledger whose vectors need not be made again; may not exist yet.
        mode: ``"queue"`` or ``"direct"``.
        pooling: As for :func:`ingest`.
        instruction: The same.
        truncate_inputs: The same.
        normalize: The same.
        empty_text: The same.
        texts_per_job: Texts of one submission; 1,000 by default.

    Raises:
        ConfigurationError: An option does not fit, or the ledger was made with another model or other options.
        BadRequestError: A document is no pair of id and text.
    """
    shape = Fingerprint(model, pooling, instruction, truncate_inputs, normalize)
    check_manner(model, mode, empty_text)
    limits = Limits(TEXTS_PER_JOB if texts_per_job is None else texts_per_job)
    seen: set[bytes] = set()
    documents = texts = tokens = 0
    with Ledger(ledger, shape) if ledger is not None and Path(ledger).exists() else nullcontext() as held:
        for _, given in map(checked, source):
            documents += 1
            text = as_sent(given, instruction, empty_text)
            digest = text_hash(text)
            if not text or digest in seen or (held is not None and held.find([text])[0] is not None):
                continue
            seen.add(digest)
            texts += 1
            tokens += estimated_tokens(json_bytes(text))
    card = lookup(model)
    requests = -(-texts // (card.max_items or TEXTS_PER_REQUEST))
    submissions = 0
    minutes = requests / (card.requests_per_minute or REQUESTS_PER_MINUTE["embeddings"])
    if mode == "queue":
        submissions = -(-texts // limits.texts_per_job)
        minutes = -(-submissions // JOBS_IN_FLIGHT) * _QUEUE_MINUTES
    neurons = neurons_of(model, tokens)
    cost = None if neurons is None else neurons * USD_PER_NEURON
    return Estimate(model, documents, texts, requests, submissions, tokens, neurons, cost, minutes)
