"""The embedding model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from langchain_core.embeddings import Embeddings
from pydantic import Field, field_validator, model_validator

from langchain_workers_ai._connection import Connection
from langchain_workers_ai._precomputed import Kind, Texts
from langchain_workers_ai.errors import framework_errors
from workers_ai._calls.embeddings import embed_flows, join_embeddings
from workers_ai._flow.concurrency import agather, gather
from workers_ai._validation import check_model
from workers_ai.integration._pydantic_fields import EmbeddingFields

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from workers_ai._calls.requests import Calls
    from workers_ai._connection import Connection as CoreConnection
    from workers_ai._flow.steps import Flow
    from workers_ai.types import EmbedReply

__all__ = ["WorkersAIEmbeddings"]

_Kind = Literal["document", "query"]


class WorkersAIEmbeddings(Connection, EmbeddingFields, Embeddings):
    """Embedding models of Cloudflare Workers AI.

    Requests hold up to the model's own cap of texts and run several at a time; order, count and length of the
    vectors are checked::

        embeddings = WorkersAIEmbeddings(model="@cf/baai/bge-m3")
        vectors = embeddings.embed_documents(["first", "second"])

    Raises:
        ConfigurationError: A setting is missing or malformed, or a keyword is not known.
    """

    extra_keyword: ClassVar[str] = "no call of this kind"
    keyword_aliases: ClassVar[dict[str, str]] = {
        **Connection.keyword_aliases,
        "model_name": "model",
        "chunk_size": "batch_size",
    }
    process_local: ClassVar[frozenset[str]] = Connection.process_local | {"rate_limiter"}

    model: str
    """Model id, such as ``"@cf/baai/bge-m3"`` (alias ``model_name``)."""
    batch_size: int | None = Field(default=None, ge=1)
    """Texts in one request; None for the model's own cap (100 or 32), which is also the most."""
    max_concurrency: int | None = Field(default=8, ge=1)
    """Requests in flight of this object."""
    rate_limiter: Any = Field(default=None, exclude=True, repr=False)
    """A ``langchain_core.rate_limiters.BaseRateLimiter``, acquired for each request, one sent again too."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return check_model(model)

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        self._check_shape(self.model)
        return self

    @property
    def model_name(self) -> str:
        """The model id, by its other name."""
        return self.model

    def _flows(self, calls: Calls, texts: Sequence[str], kind: _Kind) -> list[Flow[EmbedReply]]:
        return embed_flows(
            calls,
            self.model,
            texts,
            kind=kind,
            batch_size=self.batch_size,
            empty_text=self.empty_text,
            queue=self.queue,
            deadline_s=self.deadline_s,
            api=self.api,
            dimensions=self.dimensions,
            pooling=self.pooling,
            truncate_inputs=self.truncate_inputs,
            query_instruction=self.query_instruction,
            normalize=self.normalize,
        )

    @property
    def _kind(self) -> Kind:
        """What the vectors of documents depend on, besides the texts."""
        return Kind(self.base_url, self.model, self.pooling, self.truncate_inputs, self.normalize, self.dimensions)

    def _connection(self) -> CoreConnection:
        """Return the connection of both clients; its requests wait for ``rate_limiter``."""
        connection, limiter = super()._connection(), self.rate_limiter
        return connection if limiter is None else connection.paced(limiter.acquire, limiter.aacquire)

    def _embed(self, texts: Sequence[str], kind: _Kind) -> list[list[float]]:
        with framework_errors:
            connection = self._connection()
            replies = gather(
                self._flows(connection.calls, texts, kind), connection.transport, connection.calls.concurrency
            )
            return join_embeddings(self.model, replies).vectors

    async def _aembed(self, texts: Sequence[str], kind: _Kind) -> list[list[float]]:
        with framework_errors:
            connection = self._connection()
            replies = await agather(
                self._flows(connection.calls, texts, kind), connection.transport, connection.calls.concurrency
            )
            return join_embeddings(self.model, replies).vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts; one vector for each, in their order.

        Raises:
            BadRequestError: A text is empty, no string, or too long; its index is named.
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        with framework_errors, Texts(self._kind, texts, self.empty_text) as given:
            return given.joined(self._embed(given.missing, "document"))

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """See :meth:`embed_documents`."""
        with framework_errors, await Texts.looked_up(self._kind, texts, self.empty_text) as given:
            return given.joined(await self._aembed(given.missing, "document"))

    def embed_query(self, text: str) -> list[float]:
        """Embed a query, with ``query_instruction`` where there is one.

        Raises:
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        return self._embed([text], "query")[0]

    async def aembed_query(self, text: str) -> list[float]:
        """See :meth:`embed_query`."""
        return (await self._aembed([text], "query"))[0]
