"""Estimate what an ingestion would send and cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from workers_ai._limits.limiter import REQUESTS_PER_MINUTE
from workers_ai._wire.batch import json_bytes
from workers_ai.catalogue import USD_PER_NEURON, lookup
from workers_ai.ingest._options import EstimateOptions, Options
from workers_ai.ledger._keywords import check_keywords, with_signature
from workers_ai.ledger._ledger import existing_ledger
from workers_ai.ledger._packing import Packer
from workers_ai.ledger._progress import neurons_of
from workers_ai.ledger._records import (
    JOBS_IN_FLIGHT,
    QUEUE_MINUTES,
    Limits,
    as_sent,
    checked,
    estimated_tokens,
    input_window,
    text_hash,
    unsendable,
)
from workers_ai.ledger._report_text import estimate_html, estimate_text
from workers_ai.ledger._source import iter_source

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from typing import Unpack

    from workers_ai.ledger._engine import Mode

__all__ = ["Estimate", "estimate"]


@dataclass(frozen=True)
class Estimate:
    """Estimate of the requests and the cost of an ingestion.

    Attributes:
        model: Model id.
        documents: Documents of the source.
        texts: Distinct texts without a vector in the ledger.
        requests: Number of requests: items of submissions, or direct requests.
        submissions: Submissions to the queue; 0 for direct requests.
        tokens: Estimated input tokens.
        neurons: Neurons by list price; None without a price.
        cost_usd: USD by list price, without the free allocation.
        minutes: Approximate duration.
        truncated: Documents whose text is probably longer than the model reads: text beyond its window has no influence
            on the vector.
        duplicate_ids: Number of ids that several documents share.
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
    truncated: int = 0
    duplicate_ids: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON-compatible values."""
        return asdict(self)

    def _facts(self) -> list[tuple[str, str]]:
        facts = [
            ("documents", f"{self.documents:,}"),
            ("texts", f"{self.texts:,} to embed"),
            ("requests", f"{self.requests:,}"),
            ("submissions", f"{self.submissions:,}"),
            ("tokens", f"{self.tokens:,} (estimated)"),
            ("neurons", "unknown" if self.neurons is None else f"{self.neurons:,.1f}"),
            ("cost", "unknown" if self.cost_usd is None else f"${self.cost_usd:.6f}"),
            ("minutes", f"{self.minutes:,.1f}"),
        ]
        if self.truncated:
            window = f"{input_window(self.model):,} tokens that the model reads"
            facts.append(
                ("truncated", f"{self.truncated:,} documents are longer than the {window}: split them into chunks")
            )
        if self.duplicate_ids:
            facts.append(("duplicate", f"{self.duplicate_ids:,} ids belong to several documents"))
        return facts

    def __str__(self) -> str:
        return estimate_text(self.model, self._facts())

    def _repr_html_(self) -> str:
        return estimate_html(self.model, self._facts())


@with_signature(EstimateOptions, Options)
def estimate(
    source: Iterable[object],
    *,
    model: str,
    ledger: str | os.PathLike[str] | None = None,
    **options: Unpack[EstimateOptions],
) -> Estimate:
    """Estimate what :func:`ingest` would send and cost. Read the source, but send nothing.

    Tokens are estimated as a quarter of the bytes, up to what the model reads of one text. A job in the queue is
    assumed to last five minutes, within which most are done
    (https://developers.cloudflare.com/workers-ai/features/batch-api/); direct requests are sent at the documented limit
    per minute.

    Args:
        source: Documents as (id, text). Their distinct hashes are kept in memory: 100 MB for a million.
        model: Model id.
        ledger: A ledger whose vectors are reused; may not exist yet.
        **options: ``mode``, ``pooling``, ``instruction``, ``truncate_inputs``, ``normalize``, ``empty_text`` and
            ``texts_per_job``, as for :func:`ingest`.

    Raises:
        ConfigurationError: An option is invalid, or the ledger belongs to another model or other options.
        BadRequestError: A document is not a pair of id and text.
    """
    chosen = Options(ledger or "", model, **check_keywords(options, EstimateOptions, "estimate"))
    limits = chosen.limits
    window = input_window(model)
    count = _Count(model, limits, window, chosen.mode)
    seen: set[bytes] = set()
    ids: set[str | int] = set()
    repeated: set[str | int] = set()
    documents = truncated = 0
    with existing_ledger(ledger, chosen.fingerprint) as held:
        for doc_id, given in map(checked, iter_source(source)):
            documents += 1
            (repeated if doc_id in ids else ids).add(doc_id)
            text = as_sent(given, chosen.instruction, chosen.empty_text)
            size = json_bytes(text)
            truncated += window is not None and estimated_tokens(size) > window
            digest = text_hash(text)
            if not text or digest in seen or (held is not None and held.find([text])[0] is not None):
                continue
            seen.add(digest)
            if unsendable(text, size, limits.max_bytes) is None:
                count.add(size)
    card = lookup(model)
    minutes = count.requests / (card.requests_per_minute or REQUESTS_PER_MINUTE["embeddings"])
    if chosen.mode == "queue":
        minutes = -(-count.submissions // JOBS_IN_FLIGHT) * QUEUE_MINUTES
    neurons = neurons_of(model, count.tokens)
    return Estimate(
        model=model,
        documents=documents,
        texts=len(seen),
        requests=count.requests,
        submissions=count.submissions if chosen.mode == "queue" else 0,
        tokens=count.tokens,
        neurons=neurons,
        cost_usd=None if neurons is None else neurons * USD_PER_NEURON,
        minutes=minutes,
        truncated=truncated,
        duplicate_ids=len(repeated),
    )


class _Count:
    """Count submissions, requests and tokens of texts, packed like claims."""

    def __init__(self, model: str, limits: Limits, window: int | None, mode: Mode) -> None:
        card = lookup(model)
        self._part = card.texts_per_request
        self._window = window
        texts = limits.per_job if mode == "queue" else self._part
        requests = None if mode == "queue" else 1
        self._new_packer = partial(Packer, texts, limits.max_bytes, card.context_window, requests)
        self._packer: Packer | None = None
        self.submissions = self.requests = self.tokens = 0

    def add(self, size: int) -> None:
        """Count a text of ``size`` bytes."""
        tokens = estimated_tokens(size, self._window)
        self.tokens += tokens
        where = self._packer.add(size, tokens, self._part) if self._packer else "full"
        if where == "full":
            self._packer = self._new_packer()
            self.submissions += 1
            where = self._packer.add(size, tokens, self._part)
        self.requests += where == "new"
