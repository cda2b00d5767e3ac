"""Estimate what an ingestion would send and cost."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from workers_ai._calls.queued_embeddings import TEXTS_PER_JOB
from workers_ai._limits.limiter import REQUESTS_PER_MINUTE
from workers_ai._validation import require_one_of
from workers_ai._wire.batch import json_bytes
from workers_ai.catalogue import USD_PER_NEURON, lookup
from workers_ai.ledger._engine import Mode
from workers_ai.ledger._fingerprints import Fingerprint
from workers_ai.ledger._ledger import Ledger
from workers_ai.ledger._packing import Packer
from workers_ai.ledger._progress import neurons_of
from workers_ai.ledger._records import (
    JOBS_IN_FLIGHT,
    Limits,
    as_sent,
    check_mode,
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

__all__ = ["Estimate", "estimate"]

_QUEUE_MINUTES: Final = 5.0


@dataclass(frozen=True)
class Estimate:
    """What an ingestion would send and cost.

    Attributes:
        model: Model id.
        documents: Documents of the source.
        texts: Distinct texts without a vector in the ledger.
        requests: Requests: items of submissions, or direct requests.
        submissions: Submissions to the queue; 0 for direct requests.
        tokens: Estimated input tokens.
        neurons: Neurons by list price; None without a price.
        cost_usd: USD by list price, without the free allocation.
        minutes: Approximate duration.
        truncated: Documents whose text is probably longer than the model reads: text beyond its window has no influence
            on the vector.
        duplicate_ids: How many ids several documents share.
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
        """Return the estimate as values that JSON can hold."""
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
                ("truncated", f"{self.truncated:,} documents are longer than the {window}: cut them into chunks")
            )
        if self.duplicate_ids:
            facts.append(("duplicate", f"{self.duplicate_ids:,} ids belong to several documents"))
        return facts

    def __str__(self) -> str:
        return estimate_text(self.model, self._facts())

    def _repr_html_(self) -> str:
        return estimate_html(self.model, self._facts())


def estimate(
    source: Iterable[Any],
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
    """Estimate what :func:`ingest` would send and cost. Reads the source and sends nothing.

    Tokens are estimated as a quarter of the bytes, up to what the model reads of one text. A job in the queue is
    assumed to last five minutes, within which most are done
    (https://developers.cloudflare.com/workers-ai/features/batch-api/); direct requests are sent at the documented limit
    per minute.

    Args:
        source: Documents as (id, text). Their distinct hashes are kept in memory: 100 MB for a million.
        model: Model id.
        ledger: A ledger whose vectors are reused; may not exist yet.
        mode: ``"queue"`` or ``"direct"``.
        pooling: As for :func:`ingest`.
        instruction: The same.
        truncate_inputs: The same.
        normalize: The same.
        empty_text: The same.
        texts_per_job: Texts of one submission; 1,000 by default.

    Raises:
        ConfigurationError: An option is invalid, or the ledger belongs to another model or other options.
        BadRequestError: A document is not a pair of id and text.
    """
    shape = Fingerprint(model, pooling, instruction, truncate_inputs, normalize)
    check_mode(model, mode)
    require_one_of("empty_text", empty_text, ("raise", "space"))
    limits = Limits(TEXTS_PER_JOB if texts_per_job is None else texts_per_job)
    window = input_window(model)
    count = _Count(model, limits, window, mode)
    seen: set[bytes] = set()
    ids: set[str | int] = set()
    repeated: set[str | int] = set()
    documents = truncated = 0
    with Ledger(ledger, shape) if ledger is not None and Path(ledger).exists() else nullcontext() as held:
        for doc_id, given in map(checked, iter_source(source)):
            documents += 1
            (repeated if doc_id in ids else ids).add(doc_id)
            text = as_sent(given, instruction, empty_text)
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
    if mode == "queue":
        minutes = -(-count.submissions // JOBS_IN_FLIGHT) * _QUEUE_MINUTES
    neurons = neurons_of(model, count.tokens)
    return Estimate(
        model=model,
        documents=documents,
        texts=len(seen),
        requests=count.requests,
        submissions=count.submissions if mode == "queue" else 0,
        tokens=count.tokens,
        neurons=neurons,
        cost_usd=None if neurons is None else neurons * USD_PER_NEURON,
        minutes=minutes,
        truncated=truncated,
        duplicate_ids=len(repeated),
    )


class _Count:
    """Submissions, requests and tokens of texts, packed as claims are."""

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
