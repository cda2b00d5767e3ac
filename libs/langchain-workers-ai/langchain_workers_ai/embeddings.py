"""The embedding model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from langchain_core.embeddings import Embeddings
from pydantic import ConfigDict, Field, field_validator
from workers_ai.config import check_model

from langchain_workers_ai._connection import Connection
from langchain_workers_ai.errors import framework_errors

__all__ = ["WorkersAIEmbeddings"]


class WorkersAIEmbeddings(Connection, Embeddings):
    """Embedding models of Cloudflare Workers AI.

    Requests hold up to the model's own cap of texts and run several at a time; order, count and length of the vectors are
    checked::

        embeddings = WorkersAIEmbeddings(model="@cf/baai/bge-m3")
        vectors = embeddings.embed_documents(["first", "second"])

    Raises:
        ConfigurationError: A setting is missing or malformed, or a keyword is not known.
    """

    model_config = ConfigDict(defer_build=True)
    keyword_aliases: ClassVar[dict[str, str]] = {**Connection.keyword_aliases, "model_name": "model"}

    model: str
    """Model id, such as ``"@cf/baai/bge-m3"`` (alias ``model_name``)."""
    batch_size: int | None = Field(default=None, ge=1)
    """Texts in one request; None for the model's own cap (100 or 32), which is also the most."""
    pooling: Literal["mean", "cls"] | None = None
    """How the bge family makes one vector of a text. The service's default is ``"mean"``; the two do not mix."""
    truncate_inputs: bool | None = None
    """Let the service cut texts that are too long, where the model has that option."""
    query_instruction: str | None = None
    """Instruction for queries, in the form the model wants it; documents never get one."""
    normalize: bool = False
    """Scale each vector to length 1."""
    empty_text: Literal["raise", "space"] = "raise"
    """What an empty text means: an error that names its index, or one space in its place."""
    max_concurrency: int | None = Field(default=8, ge=1)
    """Requests in flight of this object."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return check_model(model)

    @property
    def model_name(self) -> str:
        """The model id, by its other name."""
        return self.model

    def _options(self, kind: Literal["document", "query"]) -> dict[str, Any]:
        return {
            "kind": kind,
            "batch_size": self.batch_size,
            "empty_text": self.empty_text,
            "pooling": self.pooling,
            "truncate_inputs": self.truncate_inputs,
            "query_instruction": self.query_instruction,
            "normalize": self.normalize,
        }

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts; one vector for each, in their order.

        Raises:
            BadRequestError: A text is empty, no string, or too long; its index is named.
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        with framework_errors:
            return self.client.embed(self.model, texts, **self._options("document")).vectors

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """See :meth:`embed_documents`."""
        with framework_errors:
            reply = await self.async_client.embed(self.model, texts, **self._options("document"))
            return reply.vectors

    def embed_query(self, text: str) -> list[float]:
        """Embed a query, with ``query_instruction`` where there is one.

        Raises:
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        with framework_errors:
            return self.client.embed(self.model, [text], **self._options("query")).vectors[0]

    async def aembed_query(self, text: str) -> list[float]:
        """See :meth:`embed_query`."""
        with framework_errors:
            reply = await self.async_client.embed(self.model, [text], **self._options("query"))
            return reply.vectors[0]
