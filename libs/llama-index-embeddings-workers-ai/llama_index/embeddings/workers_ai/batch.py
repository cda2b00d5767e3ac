"""The embedding class for large corpora. It uses the asynchronous queue and a ledger on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self, Unpack, overload

from llama_index.embeddings.workers_ai.base import WorkersAIEmbedding
from pydantic import Field, model_validator

from workers_ai import integration  # its flows are imported at the first call
from workers_ai.errors import BatchItemError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.base.embeddings.base import Embedding

    from workers_ai.ingest import IngestOptions, IngestReport
    from workers_ai.integration import EmbeddingConstructor

__all__ = ["WorkersAIBatchEmbedding"]


class WorkersAIBatchEmbedding(WorkersAIEmbedding):
    """An embedding model that embeds documents through the asynchronous queue and stores the vectors in a ledger.

    ::

        embedding = WorkersAIBatchEmbedding(model="@cf/baai/bge-m3", ledger="corpus.ledger")
        nodes = IngestionPipeline(transformations=[splitter, embedding]).run(documents=documents)
        index = VectorStoreIndex(nodes, embed_model=embedding)

    Each vector is stored in the ledger when it arrives. After an interrupted run, the next run sends only the texts
    without a vector, whatever the caches of the pipeline contain. Several processes can share a ledger, for example
    those of a pipeline with ``num_workers``.

    No node is returned without a vector: if a text failed, the call raises after the other vectors were stored.
    Queries are sent directly. ``embeddings_cache`` is not used for documents.

    Raises:
        ConfigurationError: A setting is missing or malformed, or the model has no queue.
    """

    if TYPE_CHECKING:  # the second overload accepts the framework's own fields

        @overload
        def __init__(self, model: str = ..., **keywords: Unpack[EmbeddingConstructor]) -> None: ...
        @overload
        def __init__(self, model: str = ..., **keywords: object) -> None: ...
        def __init__(self, *args: object, **keywords: object) -> None: ...

    _not_dumped: ClassVar[frozenset[str]] = WorkersAIEmbedding._not_dumped | {
        "ledger",
        "texts_per_job",
        "limit_cost_usd",
        "show_progress",
    }

    ledger: str | Path
    """Path of the ledger, on a local disk. It is created if missing."""
    queue: Literal["never", "overflow", "always"] = "always"
    """``"always"``: send documents through the queue; ``"never"``: send direct requests, with the same ledger."""
    deadline_s: float | None = Field(default=None, gt=0)
    """Maximum seconds of one call; None for no limit."""
    texts_per_job: int | None = Field(default=None, ge=1)
    """Texts per submission; None for 1,000."""
    limit_cost_usd: float | None = Field(default=None, ge=0)
    """Maximum cost of one call in US dollars, by list price. The call stops before it costs more. None for no limit."""
    show_progress: bool = False
    """Show a progress bar in every call. A pipeline cannot pass ``show_progress`` to its transformations."""

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.queue == "overflow":
            raise ConfigurationError("queue='overflow' does not work with a ledger: use 'always' or 'never'")
        if self.api == "embeddings" or self.dimensions is not None or self.extra_body:
            raise ConfigurationError(
                "api='embeddings', dimensions and extra_body do not work with a ledger: leave them unset"
            )
        return self

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in dumps and events."""
        return "WorkersAIBatchEmbedding"

    def _options(self, *, show_progress: bool) -> IngestOptions:
        """Return the options of :func:`workers_ai.ingest.ingest`."""
        return {
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
        self,
        given: Sequence[str],
        kind: Literal["document", "query"],
        *,
        show_progress: bool = False,
        **settings: object,
    ) -> list[Embedding]:
        if kind == "query":
            return super()._embed(given, kind, show_progress=show_progress, **settings)
        from workers_ai.client import Client
        from workers_ai.ingest import ingest

        with self._observed(given) as finish:
            texts = list(enumerate(integration.check_texts(given, self.empty_text, self.model_name)))
            options = self._options(show_progress=show_progress)
            client = Client._of(self._connection_of_call(settings))
            report = ingest(texts, ledger=self.ledger, model=self.model_name, client=client, **options)
            return finish(_vectors(report))

    async def _aembed(
        self,
        given: Sequence[str],
        kind: Literal["document", "query"],
        *,
        show_progress: bool = False,
        **settings: object,
    ) -> list[Embedding]:
        if kind == "query":
            return await super()._aembed(given, kind, show_progress=show_progress, **settings)
        from workers_ai.client import AsyncClient
        from workers_ai.ingest import aingest

        with self._observed(given) as finish:
            texts = list(enumerate(integration.check_texts(given, self.empty_text, self.model_name)))
            options = self._options(show_progress=show_progress)
            client = AsyncClient._of(self._connection_of_call(settings))
            report = await aingest(texts, ledger=self.ledger, model=self.model_name, client=client, **options)
            return finish(_vectors(report))

    def _get_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return self._embed(texts, "document")

    async def _aget_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return await self._aembed(texts, "document")


def _vectors(report: IngestReport) -> list[Embedding]:
    """Return one vector per text, in the order of the texts.

    Raises:
        BatchItemError: A text failed. ``index`` is the index of the first failed text.
    """
    if report.failed:
        first = report.failures[0]
        total = report.embedded + report.reused + report.failed
        raise BatchItemError(
            f"{report.failed:,} of {total:,} texts failed, the first is text {first.id}: {first.message}; run again: "
            "the other vectors are in the ledger, so the next run sends only the failed texts",
            index=first.id, code=first.code, model=report.model,
        )  # fmt: skip
    return [vector.tolist() for _, vector in report.vectors()]
