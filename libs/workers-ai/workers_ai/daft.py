"""Workers AI as a Daft provider, for ``embed_text``, ``prompt`` and ``classify_text`` (https://docs.daft.ai/en/stable/ai-functions/).

::

    import daft
    from daft.functions import embed_text
    from workers_ai.daft import WorkersAIProvider

    daft.attach_provider(WorkersAIProvider())
    vectors = embed_text(daft.col("text"), provider="workers-ai", model="@cf/baai/bge-m3")
    daft.read_parquet("docs.parquet").with_column("vector", vectors).write_parquet("vectors")

One batch of rows is one request. At capacity, the batch waits and retries. After the last retry, Daft receives a
``RetryAfterError`` with the delay; permanent errors are never retried. Daft may reorder rows: keep a key column.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import copy
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

try:
    import numpy as np
    from daft import DataType
    from daft.ai.protocols import TextEmbedderDescriptor
    from daft.ai.provider import Provider
    from daft.ai.typing import EmbeddingDimensions, UDFOptions
    from daft.errors import RetryAfterError

    from workers_ai.generation._daft import (
        ClassifierDescriptor,
        GenerationOptions,
        MessageDescriptor,
        close_client,
    )
except ImportError as exc:
    raise ImportError("workers_ai.daft requires Daft 0.7 and NumPy: pip install 'workers-ai[daft]'") from exc

from workers_ai._connection import Connection
from workers_ai._engine_settings import bulk_settings, check_options, texts_per_request
from workers_ai._settings.settings import MAX_CONCURRENCY
from workers_ai._validation import require_int
from workers_ai.catalogue import lookup
from workers_ai.client import AsyncClient
from workers_ai.errors import ConfigurationError, WorkersAIError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai import RetryPolicy, SettingKeywords
    from workers_ai._settings.settings import Settings

__all__ = ["WorkersAIProvider"]

PAUSE_S: Final = 5.0
"""Delay of a ``RetryAfterError`` in seconds if the service sent none."""

_DAFT_OPTIONS: Final = ("batch_size", "max_retries", "on_error")


class WorkersAIProvider(Provider):
    """Daft provider of embeddings and answers from Workers AI.

    Args:
        name: Name of the provider in Daft.
        retry: The retry policy; the default follows ``max_retries``.
        **settings: Settings of :class:`workers_ai.Client`. Defaults: ``max_retries`` 10, ``on_busy`` ``"retry"``,
            ``max_concurrency`` 8 (requests in flight per process).

    Raises:
        ConfigurationError: A setting is missing or malformed.
    """

    def __init__(
        self, name: str = "workers-ai", *, retry: RetryPolicy | None = None, **settings: Unpack[SettingKeywords]
    ) -> None:
        self._name = name
        self._retry = retry
        self._settings = bulk_settings("WorkersAIProvider", settings, max_concurrency=MAX_CONCURRENCY)

    @property
    def name(self) -> str:
        """Name of the provider in Daft."""
        return self._name

    def get_text_embedder(
        self, model: str | None = None, dimensions: int | None = None, **options: object
    ) -> TextEmbedderDescriptor:
        """Return the descriptor of an embedder for one column.

        Args:
            model: Model id.
            dimensions: Length of the vectors; required for models outside the catalogue.
            **options: Daft's ``batch_size`` (default and maximum: texts per request of the model), ``max_retries``
                (default 3) and ``on_error``; ``pooling``, ``truncate_inputs``, ``normalize`` and ``empty_text`` of
                :meth:`workers_ai.Client.embed`.

        Raises:
            ConfigurationError: The model is missing, or an option or the length of the vectors is unknown.
        """
        cap = texts_per_request(model)
        udf: dict[str, Any] = {name: options.pop(name) for name in _DAFT_OPTIONS if name in options}
        require_int("batch_size", udf.get("batch_size"), 1, None)
        udf["batch_size"] = min(udf.get("batch_size", cap), cap)
        udf["concurrency"] = self._settings.max_concurrency
        embed = check_options("embed_text", options)
        return _Descriptor(
            self._name, self._settings, self._retry, model or "", _length(model or "", dimensions), udf, embed
        )

    def get_prompter(
        self,
        model: str | None = None,
        return_format: object = None,
        system_message: str | None = None,
        **options: object,
    ) -> MessageDescriptor:
        """Return the backend of ``daft.functions.prompt`` for columns of text.

        A failed row is null and logged. Errors that concern all rows (credentials, quota) end the query.

        Args:
            model: Model id.
            return_format: Pydantic class of the answers, or None for text.
            system_message: System message, or None.
            **options: ``max_tokens``, ``temperature``, ``seed``, ``stop``, ``reasoning_effort``, ``extra_body``;
                ``queue=True`` with ``ledger=`` (a path on a local disk) for the asynchronous queue; ``on_error``
                ``"log"`` (default), ``"ignore"`` or ``"raise"``.

        Raises:
            ConfigurationError: The model is missing, or an option is unknown or invalid.
        """
        texts_per_request(model)
        given = GenerationOptions.read("prompt", options)
        return MessageDescriptor(
            self._name, self._settings, self._retry, model or "", given, return_format, system_message
        )

    def get_text_classifier(self, model: str | None = None, **options: object) -> ClassifierDescriptor:
        """Return the backend of ``daft.functions.classify_text``. Arguments as for :meth:`get_prompter`.

        Raises:
            ConfigurationError: The model is missing, or an option is unknown or invalid.
        """
        texts_per_request(model)
        return ClassifierDescriptor(
            self._name, self._settings, self._retry, model or "", GenerationOptions.read("classify_text", options)
        )


def _length(model: str, dimensions: int | None) -> int:
    known = lookup(model).dimensions
    if known is None and dimensions is None:
        raise ConfigurationError(f"the length of the vectors of {model} is unknown: pass dimensions=")
    if known is not None and dimensions not in (None, known):
        raise ConfigurationError(f"{model} has vectors of {known} dimensions: remove dimensions=")
    return known or dimensions or 0


@dataclass
class _Descriptor(TextEmbedderDescriptor):
    """The arguments of an embedder, which Daft pickles. A pickle has the token only if it was passed explicitly."""

    provider_name: str
    settings: Settings
    retry: RetryPolicy | None
    model: str
    length: int
    udf: dict[str, object]
    options: dict[str, Any]

    def get_provider(self) -> str:
        return self.provider_name

    def get_model(self) -> str:
        return self.model

    def get_options(self) -> dict[str, object]:
        return {**self.udf, **self.options}

    def get_dimensions(self) -> EmbeddingDimensions:
        return EmbeddingDimensions(self.length, DataType.float32())

    def get_udf_options(self) -> UDFOptions:
        return UDFOptions(**self.udf)

    def is_async(self) -> bool:
        return True

    def instantiate(self) -> _Embedder:
        return _Embedder(self)


class _Embedder:
    """Embed one batch per call. Daft calls it from several coroutines."""

    def __init__(self, descriptor: _Descriptor) -> None:
        self._client = AsyncClient._of(Connection.open(descriptor.settings, retry=descriptor.retry))
        self._closes = False
        self._model = descriptor.model
        self._options = descriptor.options
        self._permanent: dict[int, WorkersAIError] = {}

    async def embed_text(self, text: Sequence[str | None]) -> list[object]:
        """Embed one batch. Return an array of float32 for each text, and None for each None."""
        batch = hash(tuple(text))
        if error := self._permanent.get(batch):
            raise copy.copy(error)  # Daft retries every error; do not send a permanent one again
        if not self._closes:
            weakref.finalize(self, close_client, self._client, asyncio.get_running_loop())
            self._closes = True
        present = [item for item in text if item is not None]
        try:
            reply = await self._client.embed(self._model, present, **self._options)
        except WorkersAIError as exc:
            if exc.is_retryable:
                raise RetryAfterError(exc.retry_after or PAUSE_S, exc) from exc
            self._permanent[batch] = copy.copy(exc)  # a copy has no traceback, which would keep this object alive
            raise
        vectors = iter(np.asarray(reply.vectors, dtype=np.float32))
        return [None if item is None else next(vectors) for item in text]
