"""The embedding model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack, overload

from langchain_core.embeddings import Embeddings
from pydantic import Field, PrivateAttr, field_validator, model_validator

from langchain_workers_ai._connection import Connection
from langchain_workers_ai._ingestion.precomputed import Kind, Lookup, Precomputed
from langchain_workers_ai.errors import framework_errors
from workers_ai.integration import EmbeddingFields, agather, check_model, embed_flows, gather, join_embeddings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from workers_ai.integration import Connection as CoreConnection
    from workers_ai.integration import EmbeddingConstructor, Flow
    from workers_ai.types import EmbedReply

__all__ = ["WorkersAIEmbeddings"]

_Kind = Literal["document", "query"]


class WorkersAIEmbeddings(Connection, EmbeddingFields, Embeddings):
    """Embedding models of Cloudflare Workers AI.

    Texts are sent in requests of up to ``batch_size`` texts, several at a time. The order, count and length of the
    vectors are checked::

        embeddings = WorkersAIEmbeddings(model="@cf/baai/bge-m3")
        vectors = embeddings.embed_documents(["first", "second"])

    Raises:
        ConfigurationError: A setting is missing or malformed, or a keyword is unknown.
    """

    if TYPE_CHECKING:  # the second overload accepts the framework's own fields

        @overload
        def __init__(self, model: str = ..., **keywords: Unpack[EmbeddingConstructor]) -> None: ...
        @overload
        def __init__(self, model: str = ..., **keywords: object) -> None: ...
        def __init__(self, *args: object, **keywords: object) -> None: ...

    _keyword_aliases: ClassVar[dict[str, str]] = {
        **Connection._keyword_aliases,
        "model_name": "model",
        "chunk_size": "batch_size",
    }
    _process_local: ClassVar[frozenset[str]] = Connection._process_local | {"rate_limiter"}

    model: str
    """Model id, such as ``"@cf/baai/bge-m3"`` (alias ``model_name``)."""
    batch_size: int | None = Field(default=None, ge=1)
    """Texts per request. None, the default, uses the model's maximum (100 or 32)."""
    max_concurrency: int | None = Field(default=8, ge=1)
    """Maximum number of concurrent requests of this object."""
    rate_limiter: Any = Field(default=None, exclude=True, repr=False)
    """A ``langchain_core.rate_limiters.BaseRateLimiter``, acquired before each request and each retry."""

    _precomputed: Precomputed = PrivateAttr(default_factory=Precomputed)

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
        """Return the model id."""
        return self.model

    def _flows(self, connection: CoreConnection, texts: Sequence[str], kind: _Kind) -> list[Flow[EmbedReply]]:
        return embed_flows(connection.calls, self.model, texts, **self._embed_options(kind, self.batch_size))

    @property
    def _kind(self) -> Kind:
        """Return the settings that shape the vectors of documents."""
        body = json.dumps(self.extra_body, sort_keys=True, default=repr) if self.extra_body else ""
        return Kind(
            self.base_url, self.model, self.pooling, self.truncate_inputs, self.normalize, self.dimensions, body
        )

    def _connection(self) -> CoreConnection:
        """Return the connection of both clients. Its requests wait for ``rate_limiter``."""
        connection, limiter = super()._connection(), self.rate_limiter
        return connection if limiter is None else connection.paced(limiter.acquire, limiter.aacquire)

    def _embed(self, texts: Sequence[str], kind: _Kind) -> list[list[float]]:
        with framework_errors:
            connection = self._connection()
            flows = self._flows(connection, texts, kind)
            replies = gather(flows, connection.transport, connection.calls.concurrency)
            return join_embeddings(self.model, replies).vectors

    async def _aembed(self, texts: Sequence[str], kind: _Kind) -> list[list[float]]:
        with framework_errors:
            connection = self._connection()
            flows = self._flows(connection, texts, kind)
            replies = await agather(flows, connection.transport, connection.calls.concurrency)
            return join_embeddings(self.model, replies).vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for each text, in their order.

        Raises:
            BadRequestError: A text is empty, too long, or not a string; the message has its index.
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        with framework_errors, Lookup(self._precomputed, self._kind, texts, self.empty_text) as lookup:
            return lookup.merge(self._embed(lookup.missing, "document"))

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for each text. See :meth:`embed_documents`."""
        with (
            framework_errors,
            await Lookup.on_thread(self._precomputed, self._kind, texts, self.empty_text) as lookup,
        ):
            return lookup.merge(await self._aembed(lookup.missing, "document"))

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query. ``query_instruction`` is sent with it if set.

        Raises:
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        return self._embed([text], "query")[0]

    async def aembed_query(self, text: str) -> list[float]:
        """Return the vector of a query. See :meth:`embed_query`."""
        return (await self._aembed([text], "query"))[0]
