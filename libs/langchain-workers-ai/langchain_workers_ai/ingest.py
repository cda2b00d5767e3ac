"""Fill a vector store with documents that are embedded through the asynchronous queue."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from langchain_core.indexing import InMemoryRecordManager, aindex, index

from langchain_workers_ai._ingestion.documents import Documents, KeyEncoder, Source, batched, document_key, key_of
from langchain_workers_ai._ingestion.precomputed import find_within, reading_all
from langchain_workers_ai.embeddings import WorkersAIEmbeddings
from langchain_workers_ai.errors import framework_errors
from workers_ai.client import AsyncClient, Client
from workers_ai.errors import ConfigurationError
from workers_ai.ingest import IngestOptions, IngestReport, Vectors
from workers_ai.ingest import aingest as aembed
from workers_ai.ingest import ingest as embed
from workers_ai.integration import require_queue, text_hash

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
    from typing import Unpack

    from langchain_core.documents import Document
    from langchain_core.indexing import IndexingResult, RecordManager
    from langchain_core.vectorstores import VectorStore


__all__ = ["IndexReport", "Indexing", "WorkersAIBatchIngestor"]


class Indexing(TypedDict, total=False):
    """Options of :func:`langchain_core.indexing.index`. All but ``upsert_kwargs`` need a record manager.

    ``key_encoder`` defaults to a UUID of text and metadata.
    """

    cleanup: Literal["incremental", "full", "scoped_full"] | None
    source_id_key: str | Callable[[Document], str] | None
    cleanup_batch_size: int
    force_update: bool
    key_encoder: KeyEncoder
    upsert_kwargs: dict[str, Any] | None


@dataclass(frozen=True)
class IndexReport(IngestReport):
    """Result of one ingestion into a vector store.

    ``embedded``, ``reused`` and ``failed`` count only documents that the record manager did not contain.

    Attributes:
        indexing: Report of LangChain's ``index``: ``num_added``, ``num_updated``, ``num_skipped`` and
            ``num_deleted``. None without a record manager.
    """

    indexing: IndexingResult | None = None

    def _facts(self) -> list[tuple[str, str]]:
        return [*super()._facts(), *((name[4:], f"{count:,}") for name, count in (self.indexing or {}).items())]


@dataclass
class WorkersAIBatchIngestor:
    """Fill a vector store with documents that are embedded through the asynchronous queue.

    ::

        embeddings = WorkersAIEmbeddings(model="@cf/baai/bge-m3")
        store = InMemoryVectorStore(embeddings)
        ingestor = WorkersAIBatchIngestor(embeddings, store, ledger="corpus.ledger")
        report = ingestor.ingest(documents)

    The ingestor first embeds all documents, each distinct text once, and records the vectors in the ledger. Then it
    adds the documents to the store with the store's own ``add_documents``. The store's embedding model finds the
    vectors in the ledger. If the process is killed, the same call continues from the ledger.

    The store must embed with ``embeddings``, with an object of the same model and options, or with a wrapper around
    such an object, for example a cache.

    Without a record manager, a document replaces the stored document with its id, unless text and metadata are equal.
    A document without an id gets a UUID of its text and metadata, which is the same in every process. With a record
    manager, documents are indexed as by LangChain's ``index``: documents that the record manager contains are neither
    embedded nor written again, and ``cleanup`` deletes outdated ones.

    Args:
        embeddings: The embedding model. Requests are sent with its settings.
        vector_store: The store.
        ledger: Path of the ledger. A missing file is created.
        record_manager: LangChain's record of the documents in the store.
        mode: ``"queue"``, or ``"direct"`` for synchronous requests.
        batch_size: Documents per call of the store.
        texts_per_job: Texts per submission; None for 1,000.
        deadline_s: Timeout of the embedding in seconds; None for no limit.
        limit_cost_usd: Maximum cost of one call in USD, by list price; None for no limit.
        raise_on_failure: Raise if a document failed to embed, before anything is written to the store.
        progress: Show a progress bar.

    Raises:
        ConfigurationError: An option is invalid, the model has no queue, or the store embeds with another model or
            other options.
    """

    embeddings: WorkersAIEmbeddings
    vector_store: VectorStore
    _: KW_ONLY
    ledger: str | os.PathLike[str]
    record_manager: RecordManager | None = None
    mode: Literal["queue", "direct"] = "queue"
    batch_size: int = 500
    texts_per_job: int | None = None
    deadline_s: float | None = None
    limit_cost_usd: float | None = None
    raise_on_failure: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        with framework_errors:
            if not isinstance(self.embeddings, WorkersAIEmbeddings):
                raise ConfigurationError(f"embeddings must be a WorkersAIEmbeddings, not {self.embeddings!r:.100}")
            if type(self.batch_size) is not int or self.batch_size < 1:
                raise ConfigurationError(f"batch_size must be an integer of at least 1, not {self.batch_size!r:.100}")
            given = self.embeddings
            if given.api == "embeddings" or given.dimensions is not None or given.extra_body:
                raise ConfigurationError(
                    "an ingestor does not support api='embeddings', dimensions or extra_body: create embeddings "
                    "without them"
                )
            if self.mode == "queue":
                require_queue(self.embeddings.model)
            self._check_store()

    def _check_store(self) -> None:
        """Check the store's embedding model, as far as possible without a request.

        Raises:
            ConfigurationError: The store embeds with another model or other options.
        """
        theirs, kind = self.vector_store.embeddings, self.embeddings._kind
        kinds = [found._kind for found in find_within(theirs, WorkersAIEmbeddings)]
        if theirs is None or kind in kinds:
            return
        if kinds:
            other = f"{kinds[0].model}, the ingestor with {kind.model}; model or options differ"
        else:
            other = f"its own {type(theirs).__name__}, the ingestor with {kind.model}"
        raise ConfigurationError(f"the vector store embeds with {other}: pass the same object to both")

    def ingest(self, documents: Source, **indexing: Unpack[Indexing]) -> IndexReport:
        """Embed documents and write them to the store.

        Args:
            documents: Documents, or a loader. Documents that do not come as a list are kept in a temporary file until
                all are embedded, so that memory stays bounded.
            **indexing: Options of LangChain's ``index``, with a record manager: ``cleanup`` (``"incremental"``,
                ``"full"`` or ``"scoped_full"``), ``source_id_key``, ``cleanup_batch_size``, ``force_update``,
                ``key_encoder``; and ``upsert_kwargs``, keywords of the store's ``add_documents``.

        Returns:
            The report. Documents that failed to embed are listed in it and are not written to the store. If any
            failed, ``cleanup`` is skipped.

        Raises:
            ConfigurationError: An option is invalid, or the ledger belongs to another model.
            LedgerError: The ledger cannot be used.
            BatchTimeoutError: ``deadline_s`` has passed. The same call continues.
            BatchItemError: A document failed, with ``raise_on_failure``.
            WorkersAIError: The run cannot continue, for example because the quota is exhausted. The same call
                continues later.
        """
        options = self._checked(indexing)
        with framework_errors, Documents() as read:
            read.read(documents)
            exists = None if self.record_manager is None else self.record_manager.exists
            texts = self._texts(read, options, exists)
            client = Client._of(self.embeddings._connection())
            report = embed(
                texts, ledger=self.ledger, model=self.embeddings.model, client=client, **self._embedding(read)
            )
            with self._ready(read, report) as ready:
                if self.record_manager is None:
                    _drive(self._upsert(ready, options), self.vector_store)
                    return _report(report)
                options = _without_unsafe_cleanup(options, report)
                result = index(ready, self.record_manager, self.vector_store, batch_size=self.batch_size, **options)
                return _report(report, result)

    async def aingest(self, documents: Source, **indexing: Unpack[Indexing]) -> IndexReport:
        """Embed documents and write them to the store without blocking the event loop. See :meth:`ingest`.

        Accepts asynchronous iterators of documents, too.
        """
        options = self._checked(indexing)
        with framework_errors, Documents() as read, contextlib.ExitStack() as stack:
            await read.aread(documents)
            manager = self.record_manager
            exists = None if manager is None else _from_thread(manager.aexists, asyncio.get_running_loop())
            texts = self._texts(read, options, exists)
            client = AsyncClient._of(self.embeddings._connection())
            report = await aembed(
                texts, ledger=self.ledger, model=self.embeddings.model, client=client, **self._embedding(read)
            )
            ready = await asyncio.to_thread(stack.enter_context, self._ready(read, report))
            if manager is None:
                await _adrive(self._upsert(ready, options), self.vector_store)
                return _report(report)
            options = _without_unsafe_cleanup(options, report)
            result = await aindex(ready, manager, self.vector_store, batch_size=self.batch_size, **options)
            return _report(report, result)

    def _checked(self, indexing: Indexing) -> Indexing:
        """Return the options, checked by a call of ``index`` without documents.

        Raises:
            ConfigurationError: An option needs a record manager.
        """
        options: Indexing = {"key_encoder": document_key, **indexing}
        if self.record_manager is not None:
            index([], InMemoryRecordManager(""), self.vector_store, **options)
        elif lost := sorted(indexing.keys() - {"upsert_kwargs"}):
            with framework_errors:
                raise ConfigurationError(
                    f"{', '.join(lost)} cannot be used without a record manager: pass record_manager="
                )
        return options

    def _embedding(self, documents: Documents) -> IngestOptions:
        """Return the options of the core's ingestion."""
        embeddings = self.embeddings
        return {
            "mode": self.mode,
            "pooling": embeddings.pooling,
            "truncate_inputs": embeddings.truncate_inputs,
            "normalize": embeddings.normalize,
            "empty_text": embeddings.empty_text,
            "texts_per_job": self.texts_per_job,
            "deadline_s": self.deadline_s,
            "limit_cost_usd": self.limit_cost_usd,
            "raise_on_failure": self.raise_on_failure,
            "progress": self.progress,
            "total": len(documents) if self.record_manager is None else None,
        }

    def _texts(
        self, documents: Documents, options: Indexing, exists: Callable[[list[str]], Sequence[bool]] | None
    ) -> Iterator[tuple[str, str]]:
        """Yield id and text of each document that the record manager does not contain."""
        if options.get("force_update"):
            exists = None
        encoder = options.get("key_encoder", document_key)
        for batch in batched(documents, self.batch_size):
            known = exists([key_of(document, encoder) for document in batch]) if exists else [False] * len(batch)
            for document, is_known in zip(batch, known, strict=True):
                if not is_known:
                    yield document.id or key_of(document, encoder), document.page_content

    @contextlib.contextmanager
    def _ready(self, documents: Documents, report: IngestReport) -> Iterator[Iterable[Document]]:
        """Yield the embedded documents; the store finds their vectors in the ledger while the context is open."""
        failed = {row.hash for row in report.rows() if row.vector is None} if report.failed else set()
        ready = (doc for doc in documents if not failed or text_hash(self._sent(doc)) not in failed)
        kind = self.embeddings._kind
        found = find_within(self.vector_store.embeddings, WorkersAIEmbeddings)
        embedders = {id(embedder): embedder._precomputed for embedder in (self.embeddings, *found)}
        with Vectors(self.ledger) as vectors, reading_all(embedders.values(), kind, vectors):
            yield ready

    def _sent(self, document: Document) -> str:
        return document.page_content or (" " if self.embeddings.empty_text == "space" else "")

    def _upsert(self, documents: Iterable[Document], options: Indexing) -> _Calls:
        """Write changed documents so that each replaces the stored document with its id."""
        keywords = options.get("upsert_kwargs") or {}
        for batch in batched(documents, self.batch_size):
            by_id = {document.id or document_key(document): document for document in batch}
            found = yield "get_by_ids", ([*by_id, *map(_temporary_id, by_id)],), {}
            stored = {document.id: document for document in found or () if document.id}
            yield from _replace(by_id, stored, keywords)


def _temporary_id(key: str) -> str:
    """Return the id of the new version of a document while it replaces the old one."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"workers-ai {key}"))


def _same(document: Document, stored: Document | None) -> bool:
    return stored is not None and (stored.page_content, stored.metadata) == (document.page_content, document.metadata)


def _replace(documents: dict[str, Document], stored: dict[str, Document], keywords: Mapping[str, object]) -> _Calls:
    """Write documents, given the stored documents with their ids.

    Some stores reject an existing id, and FAISS changes its index before it does. New versions are therefore first
    written under temporary ids. A document is deleted only after its new version is stored, and an interrupted call
    can be repeated.
    """
    changed = {key: document for key, document in documents.items() if not _same(document, stored.get(key))}
    new = {key: document for key, document in changed.items() if key not in stored}
    replaced = {key: document for key, document in changed.items() if key in stored}
    if new:
        yield _add(new, keywords)
    temporary = {_temporary_id(key): document for key, document in replaced.items()}
    if stale := [key for key, document in temporary.items() if key in stored and not _same(document, stored[key])]:
        yield "delete", (stale,), {}
    if added := {key: document for key, document in temporary.items() if not _same(document, stored.get(key))}:
        yield _add(added, keywords)
    if replaced:
        yield "delete", (list(replaced),), {}
        yield _add(replaced, keywords)
    if left := [key for key in map(_temporary_id, documents) if key in temporary or key in stored]:
        yield "delete", (left,), {}


def _add(documents: dict[str, Document], keywords: Mapping[str, object]) -> _Call:
    named = [document.model_copy(update={"id": key}) for key, document in documents.items()]
    return "add_documents", (named,), {"ids": list(documents), **keywords}


_Call: TypeAlias = "tuple[str, tuple[object, ...], Mapping[str, object]]"
_Calls: TypeAlias = "Generator[_Call, Sequence[Document] | None, None]"
"""Calls of a store's methods by name. The driver sends each result back. A failed look-up returns None: many stores
cannot look up ids, and writing to an unreachable store raises an error anyway."""


def _drive(calls: _Calls, store: VectorStore) -> None:
    with contextlib.suppress(StopIteration):
        step = next(calls)
        while True:
            name, args, kwargs = step
            try:
                reply = getattr(store, name)(*args, **kwargs)
            except Exception as exc:  # noqa: BLE001 - the flow handles all errors
                step = calls.send(None) if name == "get_by_ids" else calls.throw(exc)
            else:
                step = calls.send(reply)


async def _adrive(calls: _Calls, store: VectorStore) -> None:
    with contextlib.suppress(StopIteration):
        step = next(calls)
        while True:
            name, args, kwargs = step
            try:
                reply = await getattr(store, f"a{name}")(*args, **kwargs)
            except Exception as exc:  # noqa: BLE001 - the flow handles all errors
                step = calls.send(None) if name == "get_by_ids" else calls.throw(exc)
            else:
                step = calls.send(reply)


def _from_thread(
    exists: Callable[[list[str]], Coroutine[object, None, list[bool]]], loop: asyncio.AbstractEventLoop
) -> Callable[[list[str]], list[bool]]:
    """Return a blocking ``exists`` for the thread that reads the documents."""
    return lambda keys: asyncio.run_coroutine_threadsafe(exists(keys), loop).result()


def _without_unsafe_cleanup(options: Indexing, report: IngestReport) -> Indexing:
    """Disable ``cleanup`` if documents failed: it would delete their stored versions."""
    return {**options, "cleanup": None} if report.failed else options


def _report(report: IngestReport, indexing: IndexingResult | None = None) -> IndexReport:
    return IndexReport(**vars(report), indexing=indexing)
