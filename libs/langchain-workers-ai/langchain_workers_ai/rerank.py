"""The reranker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack, overload

from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import Field, field_validator

from langchain_workers_ai._connection import Connection
from langchain_workers_ai.errors import BadRequestError, framework_errors
from workers_ai.integration import check_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.callbacks import Callbacks

    from workers_ai.integration import ConnectionConstructor
    from workers_ai.types import RerankScore

__all__ = ["Ranking", "WorkersAIRerank"]


class Ranking(TypedDict):
    """Relevance of one text to a query."""

    index: int
    """Index of the text."""
    relevance_score: float
    """Between 0 and 1."""


class WorkersAIRerank(Connection, BaseDocumentCompressor):
    """Reranking models of Cloudflare Workers AI.

    Use it in ``ContextualCompressionRetriever`` or call it directly::

        reranker = WorkersAIRerank(top_n=5)
        best = reranker.compress_documents(documents, "Which clause covers termination?")

    Raises:
        ConfigurationError: A setting is missing or malformed, or a keyword is unknown.
    """

    if TYPE_CHECKING:  # the second overload accepts the framework's own fields

        @overload
        def __init__(self, model: str = ..., **keywords: Unpack[ConnectionConstructor]) -> None: ...
        @overload
        def __init__(self, model: str = ..., **keywords: object) -> None: ...
        def __init__(self, *args: object, **keywords: object) -> None: ...

    _keyword_aliases: ClassVar[dict[str, str]] = {**Connection._keyword_aliases, "model_name": "model"}

    model: str = "@cf/baai/bge-reranker-base"
    """Model id (alias ``model_name``)."""
    top_n: int | None = Field(default=3, ge=0)
    """Number of documents to return; None for all."""
    max_concurrency: int | None = Field(default=8, ge=1)
    """Maximum number of concurrent requests of this object. A request has up to 100 documents."""
    extra_body: dict[str, Any] | None = None
    """Additional fields of each request body, sent unchanged."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return check_model(model)

    @property
    def model_name(self) -> str:
        """Return the model id."""
        return self.model

    def rerank(self, documents: Sequence[str | Document], query: str, *, top_n: int | None = None) -> list[Ranking]:
        """Return the relevance of texts or documents to a query.

        Args:
            documents: Texts or documents.
            query: The query.
            top_n: Number of results; None for the ``top_n`` of this object.

        Returns:
            ``{"index", "relevance_score"}`` for each result, best first. Scores are between 0 and 1.

        Raises:
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        with framework_errors:
            scores = self.client.rerank(self.model, query, _texts(documents), top_n=self._count(top_n))
        return [{"index": score.index, "relevance_score": score.score} for score in scores]

    async def arerank(
        self, documents: Sequence[str | Document], query: str, *, top_n: int | None = None
    ) -> list[Ranking]:
        """Return the relevance of texts or documents to a query. See :meth:`rerank`."""
        with framework_errors:
            scores = await self.async_client.rerank(self.model, query, _texts(documents), top_n=self._count(top_n))
        return [{"index": score.index, "relevance_score": score.score} for score in scores]

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return copies of the best ``top_n`` documents, best first, with ``metadata["relevance_score"]``.

        Raises:
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        with framework_errors:
            documents = _documents(documents, self.model)
            return _scored(documents, self.client.rerank(self.model, query, _texts(documents), top_n=self.top_n))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Return the best documents. See :meth:`compress_documents`."""
        with framework_errors:
            documents = _documents(documents, self.model)
            scores = await self.async_client.rerank(self.model, query, _texts(documents), top_n=self.top_n)
        return _scored(documents, scores)

    def _count(self, top_n: int | None) -> int | None:
        return self.top_n if top_n is None else top_n


def _documents(documents: Iterable[Document], model: str) -> list[Document]:
    """Return the documents as a list.

    Raises:
        BadRequestError: One of them is not a ``Document``. Nothing was sent.
    """
    documents = list(documents)
    for index, document in enumerate(documents):
        if not isinstance(document, Document):
            kind = type(document).__name__
            raise BadRequestError(f"document {index} is a {kind}: pass a Document, or use rerank()", model=model)
    return documents


def _texts(documents: Sequence[str | Document]) -> Sequence[str]:
    # Invalid arguments are passed on. The core rejects them, and its message has their index.
    if isinstance(documents, (str, Mapping)) or not isinstance(documents, Iterable):
        return documents
    return [document.page_content if isinstance(document, Document) else document for document in documents]


def _scored(documents: Sequence[Document], scores: Sequence[RerankScore]) -> list[Document]:
    """Return copies of the documents in the order of their scores."""
    return [
        document.model_copy(update={"metadata": {**deepcopy(document.metadata), "relevance_score": score.score}})
        for score in scores
        for document in (documents[score.index],)
    ]
