"""Options of an ingestion, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from workers_ai._calls.queued_embeddings import TEXTS_PER_JOB
from workers_ai._validation import require_int, require_one_of
from workers_ai.catalogue import lookup
from workers_ai.client import ClientArguments
from workers_ai.errors import ConfigurationError
from workers_ai.ledger._records import Limits, check_mode
from workers_ai.ledger._run import Outline, shown, total_of
from workers_ai.ledger._store.fingerprints import Fingerprint

if TYPE_CHECKING:
    import os

    from workers_ai.ingest._task import EmbedTask
    from workers_ai.ledger._engine import Mode
    from workers_ai.ledger._progress import Bar

__all__ = ["EstimateOptions", "IngestKeywords", "IngestOptions", "Options"]


class EstimateOptions(TypedDict, total=False):
    """Options of :func:`workers_ai.ingest.estimate`."""

    mode: Mode
    pooling: Literal["mean", "cls"] | None
    instruction: str | None
    truncate_inputs: bool | None
    normalize: bool
    empty_text: Literal["raise", "space"]
    texts_per_job: int | None


class IngestOptions(EstimateOptions, total=False):
    """Options of :func:`workers_ai.ingest.ingest`, which describes them."""

    deadline_s: float | None
    limit_cost_usd: float | None
    raise_on_failure: bool
    progress: bool | Bar
    total: int | None
    take_over: bool


class IngestKeywords(IngestOptions, ClientArguments, total=False):
    """Keywords of :func:`workers_ai.ingest.ingest`: its options, and arguments of :class:`~workers_ai.Client`."""


@dataclass(frozen=True)
class Options:
    """Checked arguments of :func:`workers_ai.ingest.ingest` that are not connection settings."""

    ledger: str | os.PathLike[str]
    model: str
    mode: Mode = "queue"
    pooling: Literal["mean", "cls"] | None = None
    instruction: str | None = None
    truncate_inputs: bool | None = None
    normalize: bool = False
    empty_text: Literal["raise", "space"] = "raise"
    texts_per_job: int | None = None
    deadline_s: float | None = None
    limit_cost_usd: float | None = None
    raise_on_failure: bool = False
    progress: bool | Bar = True
    total: int | None = None
    take_over: bool = False

    def __post_init__(self) -> None:
        _ = self.fingerprint, self.limits  # their constructors check the arguments
        check_mode(self.model, self.mode)
        require_one_of("empty_text", self.empty_text, ("raise", "space"))
        require_int("total", self.total, 0, None)
        if self.limit_cost_usd is not None and lookup(self.model).usd_per_m_in is None:
            raise ConfigurationError(
                f"limit_cost_usd requires a price, but the price of {self.model} is unknown: remove limit_cost_usd",
                arguments=("limit_cost_usd",),
            )

    @property
    def fingerprint(self) -> Fingerprint:
        """Options that change the vectors."""
        return Fingerprint(self.model, self.pooling, self.instruction, self.truncate_inputs, self.normalize)

    @property
    def limits(self) -> Limits:
        """Bounds of the run."""
        texts = TEXTS_PER_JOB if self.texts_per_job is None else self.texts_per_job
        return Limits(texts, deadline_s=self.deadline_s, cost_usd=self.limit_cost_usd)

    def outline(self, source: object, task: EmbedTask) -> Outline:
        """Return the options of the run."""
        total = total_of(source, self.total)
        return Outline(
            self.ledger, self.fingerprint, self.mode, self.limits, shown(self.progress, total, task), total,
            take_over=self.take_over, raise_on_failure=self.raise_on_failure,
        )  # fmt: skip
