"""The embedding model for whole corpora: documents go through the queue, and are recorded in a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from llama_index.embeddings.workers_ai.base import WorkersAIEmbedding
from pydantic import Field, model_validator

from workers_ai._calls.embeddings import check_texts
from workers_ai.errors import BatchItemError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.base.embeddings.base import Embedding

    from workers_ai.ingest import IngestReport

__all__ = ["WorkersAIBatchEmbedding"]


class WorkersAIBatchEmbedding(WorkersAIEmbedding):
    """An embedding model whose documents are embedded once and for all, through the asynchronous queue.

    ::

        embedding = WorkersAIBatchEmbedding(model="@cf/baai/bge-m3", ledger="corpus.ledger")
        nodes = IngestionPipeline(transformations=[splitter, embedding]).run(documents=documents)
        index = VectorStoreIndex(nodes, embed_model=embedding)

    Every vector is on disk, in the ledger, as soon as it has arrived. Whatever ends a run, the next one sends only the
    texts that are still missing, whatever the caches of the pipeline say. Several processes share the work, as those
    of a pipeline with ``num_workers`` do.

    No node comes back without its vector: when texts have failed, the call raises after all others were recorded.
    Queries are sent directly. Documents go past ``embeddings_cache``; the ledger is theirs.

    Raises:
        ConfigurationError: A setting is missing or malformed, or the model has no queue.
    """

    knobs: ClassVar[frozenset[str]] = WorkersAIEmbedding.knobs | {
        "ledger",
        "texts_per_job",
        "limit_cost_usd",
        "show_progress",
    }

    ledger: str | Path
    """Path of the ledger, on a local disk; made where it is missing."""
    queue: Literal["never", "overflow", "always"] = "always"
    """``"always"``: documents go through the queue; ``"never"``: by direct requests, with the same ledger."""
    deadline_s: float | None = Field(default=None, gt=0)
    """Seconds one call may take; None for no end."""
    texts_per_job: int | None = Field(default=None, ge=1)
    """Texts of one submission; None for 1,000."""
    limit_cost_usd: float | None = Field(default=None, ge=0)
    """Stop before one call spends more than this, by list price; None for no limit."""
    show_progress: bool = False
    """Show a bar also where the caller cannot ask for one, as in a pipeline."""

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.queue == "overflow":
            raise ConfigurationError("queue='overflow' has no meaning here: choose 'always' or 'never'")
        if self.api == "embeddings" or self.dimensions is not None:
            raise ConfigurationError("a ledger has no api='embeddings' and no dimensions: leave both unset")
        return self

    @classmethod
    def class_name(cls) -> str:
        """Name of the class in dumps and events."""
        return "WorkersAIBatchEmbedding"

    def _options(self, *, show_progress: bool) -> dict[str, Any]:
        """Arguments of the core's ingestion."""
        return {
            "ledger": self.ledger,
            "model": self.model_name,
            "mode": "queue" if self.queue == "always" else "direct",
            "pooling": self.pooling,
            "truncate_inputs": self.truncate_inputs,
            "normalize": self.normalize,
            "texts_per_job": self.texts_per_job,
            "deadline_s": self.deadline_s,
            "limit_cost_usd": self.limit_cost_usd,
            "progress": show_progress or self.show_progress,
        }

    def _embed(
        self, given: Sequence[str], kind: Literal["document", "query"], *, show_progress: bool = False, **settings: Any
    ) -> list[Embedding]:
        if kind == "query":
            return super()._embed(given, kind, show_progress=show_progress, **settings)
        from workers_ai.client import Client
        from workers_ai.ingest import ingest

        with self._observed(given) as finish:
            texts = list(enumerate(check_texts(given, self.empty_text, self.model_name)))
            options = self._options(show_progress=show_progress)
            report = ingest(texts, client=Client._of(self._connection_of_call(settings)), **options)
            return finish(_vectors(report))

    async def _aembed(
        self, given: Sequence[str], kind: Literal["document", "query"], *, show_progress: bool = False, **settings: Any
    ) -> list[Embedding]:
        if kind == "query":
            return await super()._aembed(given, kind, show_progress=show_progress, **settings)
        from workers_ai.client import AsyncClient
        from workers_ai.ingest import aingest

        with self._observed(given) as finish:
            texts = list(enumerate(check_texts(given, self.empty_text, self.model_name)))
            options = self._options(show_progress=show_progress)
            report = await aingest(texts, client=AsyncClient._of(self._connection_of_call(settings)), **options)
            return finish(_vectors(report))

    def _get_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return self._embed(texts, "document")

    async def _aget_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return await self._aembed(texts, "document")


def _vectors(report: IngestReport) -> list[Embedding]:
    """One vector per text, in the order of the texts.

    Raises:
        BatchItemError: A text failed; names the first of them.
    """
    if report.failed:
        first = report.failures[0]
        total = report.embedded + report.reused + report.failed
        raise BatchItemError(
            f"{report.failed:,} of {total:,} texts failed, the first of them text {first.id}: {first.message}; the "
            "others are in the ledger",
            index=first.id, code=first.code, model=report.model,
        )  # fmt: skip
    return [vector.tolist() for _, vector in report.vectors()]
