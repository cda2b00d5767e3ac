"""The embedding class. LlamaIndex's methods call ``_embed`` or ``_aembed``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, TypeAlias, Unpack, overload

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks.schema import CBEventType, EventPayload
from llama_index.core.instrumentation.events.embedding import EmbeddingEndEvent, EmbeddingStartEvent
from llama_index.core.schema import MetadataMode
from llama_index.embeddings.workers_ai._texts import Texts
from llama_index_instrumentation import get_dispatcher
from pydantic import Field, model_validator

from workers_ai import integration  # its flows are imported at the first call
from workers_ai.catalogue import lookup
from workers_ai.errors import WorkersAIError
from workers_ai.integration import MAX_CONCURRENCY, PER_CALL, EmbeddingFields, masks_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from llama_index.core.base.embeddings.base import Embedding
    from llama_index.core.schema import BaseNode

    from workers_ai import EmbedKeywords
    from workers_ai.integration import Connection, EmbeddingConstructor, Flow
    from workers_ai.types import JSON

__all__ = ["DEFAULT_MODEL", "WorkersAIEmbedding"]

DEFAULT_MODEL: Final = "@cf/baai/bge-m3"
"""A multilingual model for long texts, with 1,024 dimensions."""

_Kind: TypeAlias = Literal["document", "query"]

_COLLECTION: Final = "embeddings"
_CONCURRENCY: Final = ("max_concurrency", "num_workers")

dispatcher = get_dispatcher(__name__)


@masks_arguments("get_text_embedding_batch", "aget_text_embedding_batch", "__call__", "acall")
class WorkersAIEmbedding(EmbeddingFields, BaseEmbedding):
    """An embedding model of Cloudflare Workers AI.

    A request has up to ``embed_batch_size`` texts, and up to ``max_concurrency`` requests are in flight, in sync
    (threads) and async calls. Each distinct text of a call is sent once. The first failure stops the remaining
    requests; vectors received before it are in ``embeddings_cache``, if one is set.

    Pickles do not include ``rate_limiter`` and ``callback_manager``. This matters for an ``IngestionPipeline`` with
    ``num_workers``, which pickles the model.

    Raises:
        ConfigurationError: A setting is missing or malformed.
    """

    if TYPE_CHECKING:  # the second overload accepts the framework's own fields

        @overload
        def __init__(self, model: str = ..., **keywords: Unpack[EmbeddingConstructor]) -> None: ...
        @overload
        def __init__(self, model: str = ..., **keywords: object) -> None: ...
        def __init__(self, *args: object, **keywords: object) -> None: ...

    _keyword_aliases: ClassVar[dict[str, str]] = {
        **EmbeddingFields._keyword_aliases,
        "model": "model_name",
        "batch_size": "embed_batch_size",
        "num_workers": "max_concurrency",
    }
    _ignored_keywords: ClassVar[frozenset[str]] = frozenset({"class_name", "reuse_client"})
    _process_local: ClassVar[frozenset[str]] = EmbeddingFields._process_local | {"callback_manager", "rate_limiter"}
    _not_dumped: ClassVar[frozenset[str]] = EmbeddingFields._not_dumped | {
        "embed_batch_size",
        "num_workers",
        "embeddings_cache",
        "queue",
        "deadline_s",
    }

    model_name: str = Field(default=DEFAULT_MODEL, alias="model")
    """Model id (alias ``model``)."""

    @model_validator(mode="before")
    @classmethod
    def _set_defaults(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Set the default batch size of the model. Set ``max_concurrency`` and ``num_workers`` to the same value."""
        size = _cap(data.get("model_name") or DEFAULT_MODEL)
        limit = data.get("max_concurrency") or MAX_CONCURRENCY
        return {"embed_batch_size": size, **data, **dict.fromkeys(_CONCURRENCY, limit)}

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        self._check_shape(self.model_name)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        for field in _CONCURRENCY if name in _CONCURRENCY else (name,):
            super().__setattr__(field, value)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in dumps and events."""
        return "WorkersAIEmbedding"

    @property
    def model(self) -> str:
        """Return the model id."""
        return self.model_name

    def to_dict(self, **kwargs: object) -> dict[str, Any]:
        """Return the options that vectors depend on. LlamaIndex uses them as the key of an ingestion cache.

        Secrets and connection settings are left out.
        """
        return super().to_dict(**{"mode": "json", "exclude": self._not_dumped, "exclude_none": True, **kwargs})

    def _texts_of_call(self, texts: Sequence[str], kind: _Kind) -> Texts:
        options: list[JSON] = [
            self.model_name,
            kind,
            self.pooling,
            self.truncate_inputs,
            self.query_instruction,
            self.normalize,
        ]
        if self.dimensions is not None:  # appended only if set, so that existing cache keys stay valid
            options.append(self.dimensions)
        if self.extra_body:
            options.append(self.extra_body)
        return Texts(integration.check_texts(texts, self.empty_text, self.model_name), options)

    def _options_of_call(self, kind: _Kind) -> EmbedKeywords:
        return self._embed_options(kind, self.embed_batch_size)

    def _flows(
        self, connection: Connection, texts: Texts, sent: list[str], kind: _Kind, tick: Callable[[int], object]
    ) -> list[Flow[None]]:
        flows = integration.embed_flows(connection.calls, self.model_name, sent, **self._options_of_call(kind))
        whole = self.queue == "always" and kind == "document"
        size = len(sent) if whole else min(self.embed_batch_size, _cap(self.model_name))
        parts = [sent[first : first + size] for first in range(0, len(sent), max(size, 1))]
        return [texts.store(flow, part, tick) for flow, part in zip(flows, parts, strict=True)]

    def _connection(self) -> Connection:
        """Return the connection of both clients. Its requests wait for ``rate_limiter``."""
        connection, limiter = super()._connection(), self.rate_limiter
        return connection if limiter is None else connection.paced(limiter.acquire, limiter.async_acquire)

    def _connection_of_call(self, settings: Mapping[str, object]) -> Connection:
        """Return the connection of one call. Keywords for other steps of a pipeline are ignored."""
        return self._connection().for_call({name: settings[name] for name in PER_CALL & settings.keys()})

    def _embed(
        self, given: Sequence[str], kind: _Kind, *, show_progress: bool = False, **settings: object
    ) -> list[Embedding]:
        connection = self._connection_of_call(settings)
        texts, cache = self._texts_of_call(given, kind), self.embeddings_cache
        with self._observed(given) as finish:
            if cache is not None:
                for text in texts.missing:
                    texts.add_cached(text, cache.get(texts.key(text), collection=_COLLECTION))
            try:
                with self._sending(connection, texts, kind, show_progress=show_progress) as flows:
                    integration.gather(flows, connection.transport, connection.calls.concurrency)
            finally:
                if cache is not None:
                    for text in texts.new:
                        cache.put(texts.key(text), texts.entry(text), collection=_COLLECTION)
            return finish(texts.vectors())

    async def _aembed(
        self, given: Sequence[str], kind: _Kind, *, show_progress: bool = False, **settings: object
    ) -> list[Embedding]:
        connection = self._connection_of_call(settings)
        texts, cache = self._texts_of_call(given, kind), self.embeddings_cache
        with self._observed(given) as finish:
            if cache is not None:
                for text in texts.missing:
                    texts.add_cached(text, await cache.aget(texts.key(text), collection=_COLLECTION))
            try:
                with self._sending(connection, texts, kind, show_progress=show_progress) as flows:
                    await integration.agather(flows, connection.transport, connection.calls.concurrency)
            finally:
                if cache is not None:
                    for text in texts.new:
                        await cache.aput(texts.key(text), texts.entry(text), collection=_COLLECTION)
            return finish(texts.vectors())

    @contextmanager
    def _sending(
        self, connection: Connection, texts: Texts, kind: _Kind, *, show_progress: bool
    ) -> Iterator[list[Flow[None]]]:
        """Yield the flows that embed the missing texts. Change the index of an error to that of the caller's list."""
        sent = texts.missing
        try:
            with _progress(len(sent), shown=show_progress) as tick:
                yield self._flows(connection, texts, sent, kind, tick)
        except WorkersAIError as exc:
            texts.correct_index(exc, sent)
            raise

    @contextmanager
    def _observed(self, texts: Sequence[str]) -> Iterator[Callable[[list[Embedding]], list[Embedding]]]:
        """Send LlamaIndex's start and end events of one call. Yield a function that accepts and returns the vectors."""
        payload = self.to_payload()
        dispatcher.event(EmbeddingStartEvent(model_dict=payload))
        with self.callback_manager.event(CBEventType.EMBEDDING, payload={EventPayload.SERIALIZED: payload}) as event:

            def finish(vectors: list[Embedding]) -> list[Embedding]:
                event.on_end(payload={EventPayload.CHUNKS: list(texts), EventPayload.EMBEDDINGS: vectors})
                # Skip pydantic's validation: it would check every number of vectors that are valid already.
                dispatcher.event(EmbeddingEndEvent.model_construct(chunks=list(texts), embeddings=vectors))
                return vectors

            yield finish

    def get_query_embedding(self, query: str) -> Embedding:
        """Return the vector of a query.

        Raises:
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        return self._embed([query], "query")[0]

    async def aget_query_embedding(self, query: str) -> Embedding:
        """Return the vector of a query. See :meth:`get_query_embedding`."""
        return (await self._aembed([query], "query"))[0]

    def get_text_embedding(self, text: str) -> Embedding:
        """Return the vector of a document.

        Raises:
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        return self._embed([text], "document")[0]

    async def aget_text_embedding(self, text: str) -> Embedding:
        """Return the vector of a document. See :meth:`get_text_embedding`."""
        return (await self._aembed([text], "document"))[0]

    def get_text_embedding_batch(
        self, texts: list[str], show_progress: bool = False, **kwargs: object
    ) -> list[Embedding]:
        """Return the vectors of documents, in their order.

        Args:
            texts: Any number of documents.
            show_progress: Show a progress bar.
            **kwargs: Settings of this call, such as ``extra_headers``, ``timeout`` and ``gateway``. Unknown keywords
                are ignored.

        Raises:
            BadRequestError: A text is empty or not a string. The error has its index, and nothing was sent.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        return self._embed(texts, "document", show_progress=show_progress, **kwargs)

    async def aget_text_embedding_batch(
        self, texts: list[str], show_progress: bool = False, **kwargs: object
    ) -> list[Embedding]:
        """Return the vectors of documents. See :meth:`get_text_embedding_batch`."""
        return await self._aembed(texts, "document", show_progress=show_progress, **kwargs)

    def __call__(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: object) -> Sequence[BaseNode]:
        """Embed the nodes that have no vector."""
        bare = [node for node in nodes if node.embedding is None]
        _attach(bare, self.get_text_embedding_batch(_contents(bare), show_progress, **kwargs))
        return nodes

    async def acall(
        self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: object
    ) -> Sequence[BaseNode]:
        """Embed the nodes that have no vector. See :meth:`__call__`."""
        bare = [node for node in nodes if node.embedding is None]
        _attach(bare, await self.aget_text_embedding_batch(_contents(bare), show_progress, **kwargs))
        return nodes

    # LlamaIndex's abstract methods. They send no events, and use neither the cache nor the rate limiter.

    def _get_query_embedding(self, query: str) -> Embedding:
        return self.client.embed(self.model_name, [query], **self._options_of_call("query")).vectors[0]

    async def _aget_query_embedding(self, query: str) -> Embedding:
        return (await self.async_client.embed(self.model_name, [query], **self._options_of_call("query"))).vectors[0]

    def _get_text_embedding(self, text: str) -> Embedding:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> Embedding:
        return (await self._aget_text_embeddings([text]))[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return self.client.embed(self.model_name, texts, **self._options_of_call("document")).vectors

    async def _aget_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return (await self.async_client.embed(self.model_name, texts, **self._options_of_call("document"))).vectors


def _cap(model: str) -> int:
    """Return the maximum number of texts in one request to ``model``."""
    return lookup(model).texts_per_request


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[int], object]]:
    if not shown:
        yield lambda count: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc="Generating embeddings", unit="text") as bar:
        yield bar.update


def _contents(nodes: Sequence[BaseNode]) -> list[str]:
    return [node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]


def _attach(nodes: Sequence[BaseNode], vectors: Sequence[Embedding]) -> None:
    for node, vector in zip(nodes, vectors, strict=True):
        node.embedding = vector
