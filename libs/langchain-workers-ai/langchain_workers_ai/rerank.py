"""The reranker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import Field, field_validator

from langchain_workers_ai._connection import Connection
from langchain_workers_ai.errors import framework_errors
from workers_ai.integration import check_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.callbacks import Callbacks

    from workers_ai.types import RerankScore

__all__ = ["WorkersAIRerank"]


class WorkersAIRerank(Connection, BaseDocumentCompressor):
    """Reranking models of Cloudflare Workers AI.

    They work in ``ContextualCompressionRetriever``, or by hand::

        reranker = WorkersAIRerank(top_n=5)
        best = reranker.compress_documents(documents, "Which clause covers termination?")

    Raises:
        ConfigurationError: A setting is missing or malformed, or a keyword is not known.
    """

    keyword_aliases: ClassVar[dict[str, str]] = {**Connection.keyword_aliases, "model_name": "model"}

    model: str = "@cf/baai/bge-reranker-base"
    """Model id (alias ``model_name``)."""
    top_n: int | None = Field(default=3, ge=0)
    """Documents to keep; None for all, in their new order."""
    max_concurrency: int | None = Field(default=8, ge=1)
    """Requests in flight of this object; a request holds up to 100 documents."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return check_model(model)

    @property
    def model_name(self) -> str:
        """The model id, by its other name."""
        return self.model

    def rerank(
        self, documents: Sequence[str | Document], query: str, *, top_n: int | None = None
    ) -> list[dict[str, Any]]:
        """Score texts or documents against a query.

        Args:
            documents: Texts or documents.
            query: The query.
            top_n: How many to return; None for the object's own ``top_n``.

        Returns:
            ``{"index", "relevance_score"}`` of each, best first; scores are from 0 to 1.

        Raises:
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        with framework_errors:
            scores = self.client.rerank(self.model, query, _texts(documents), top_n=self._count(top_n))
        return [{"index": score.index, "relevance_score": score.score} for score in scores]

    async def arerank(
        self, documents: Sequence[str | Document], query: str, *, top_n: int | None = None
    ) -> list[dict[str, Any]]:
        """See :meth:`rerank`."""
        with framework_errors:
            scores = await self.async_client.rerank(self.model, query, _texts(documents), top_n=self._count(top_n))
        return [{"index": score.index, "relevance_score": score.score} for score in scores]

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The best ``top_n`` documents, best first: copies with ``metadata["relevance_score"]``.

        Raises:
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        with framework_errors:
            return _scored(documents, self.client.rerank(self.model, query, _texts(documents), top_n=self.top_n))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """See :meth:`compress_documents`."""
        with framework_errors:
            scores = await self.async_client.rerank(self.model, query, _texts(documents), top_n=self.top_n)
        return _scored(documents, scores)

    def _count(self, top_n: int | None) -> int | None:
        return self.top_n if top_n is None else top_n


def _texts(documents: Sequence[str | Document]) -> Sequence[str]:
    # What is neither goes on as it is, and so does what is no list: the core names it.
    if isinstance(documents, (str, Mapping)) or not isinstance(documents, Iterable):
        return documents
    return [document.page_content if isinstance(document, Document) else document for document in documents]


def _scored(documents: Sequence[Document], scores: Sequence[RerankScore]) -> list[Document]:
    """Copies of the documents in the order of their scores."""
    return [
        document.model_copy(update={"metadata": {**document.metadata, "relevance_score": score.score}})
        for score in scores
        for document in (documents[score.index],)
    ]
