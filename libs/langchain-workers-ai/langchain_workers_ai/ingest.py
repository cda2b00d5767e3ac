"""Filling a vector store through the asynchronous queue."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Generator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from langchain_core.indexing import InMemoryRecordManager, aindex, index

from langchain_workers_ai._documents import Documents, Source, batched, document_key, key_of
from langchain_workers_ai._precomputed import find_within, handing_over
from langchain_workers_ai.embeddings import WorkersAIEmbeddings
from langchain_workers_ai.errors import framework_errors
from workers_ai._calls.queue import require_queue
from workers_ai.client import AsyncClient, Client
from workers_ai.errors import ConfigurationError
from workers_ai.ingest import IngestReport
from workers_ai.ingest import aingest as aembed
from workers_ai.ingest import ingest as embed
from workers_ai.ledger._file import LedgerFile
from workers_ai.ledger._records import text_hash

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
    from typing import Unpack

    from langchain_core.documents import Document
    from langchain_core.indexing import IndexingResult, RecordManager
    from langchain_core.vectorstores import VectorStore


__all__ = ["IndexReport", "Indexing", "WorkersAIBatchIngestor"]


class Indexing(TypedDict, total=False):
    """Options of :func:`langchain_core.indexing.index`, and their meaning there; they need a record manager.

    ``key_encoder`` is a UUID of text and metadata where it is not given.
    """

    cleanup: Literal["incremental", "full", "scoped_full"] | None
    source_id_key: str | Callable[[Document], str] | None
    cleanup_batch_size: int
    force_update: bool
    key_encoder: Literal["sha1", "sha256", "sha512", "blake2b"] | Callable[[Document], str]
    upsert_kwargs: dict[str, Any] | None


@dataclass(frozen=True)
class IndexReport(IngestReport):
    """What came of one ingestion into a vector store.

    The documents counted as ``embedded``, ``reused`` and ``failed`` are those the record manager did not know.

    Attributes:
        indexing: What LangChain's ``index`` reports: ``num_added``, ``num_updated``, ``num_skipped`` and
            ``num_deleted``; None without a record manager.
    """

    indexing: IndexingResult | None = None

    def _facts(self) -> list[tuple[str, str]]:
        return [*super()._facts(), *((name[4:], f"{count:,}") for name, count in (self.indexing or {}).items())]


@dataclass
class WorkersAIBatchIngestor:
    """Fills a vector store with documents that are embedded through the asynchronous queue.

    ::

        embeddings = WorkersAIEmbeddings(model="@cf/baai/bge-m3")
        store = InMemoryVectorStore(embeddings)
        ingestor = WorkersAIBatchIngestor(embeddings, store, ledger="corpus.ledger")
        report = ingestor.ingest(documents)

    First all documents are embedded, each distinct text once, and their vectors recorded in the ledger; then the store
    is given the documents by its own ``add_documents``, and finds the vectors there. Killed at any moment, the same
    call goes on where it was. Any store will do that embeds with ``embeddings``, or with another object of the same
    model and options, or with a wrapper of one, such as a cache.

    Without a record manager, a document replaces the one in the store with its id, unless text and metadata are the
    same; one that has no id gets one made of its text and metadata, the same in every process. With a record manager
    it is indexed as by LangChain's ``index``: what the record manager knows is neither embedded nor written again, and
    ``cleanup`` deletes what is outdated.

    Args:
        embeddings: The embedding model; its settings are those of the requests.
        vector_store: The store.
        ledger: Path of the ledger; made where it is missing.
        record_manager: Knows what is in the store.
        mode: ``"queue"``, or ``"direct"`` for synchronous requests.
        batch_size: Documents given to the store at a time.
        texts_per_job: Texts of one submission; None for 1,000.
        deadline_s: Seconds the embedding may take; None for no bound.
        limit_cost_usd: USD by list price that one call may spend; None for no limit.
        raise_on_failure: Raise when a document could not be embedded, before anything is written to the store.
        progress: Show a tqdm bar.

    Raises:
        ConfigurationError: The model has no queue, or the store embeds with another model or other options.
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
                raise ConfigurationError(f"batch_size must be a whole number 1 or more, not {self.batch_size!r:.100}")
            if self.embeddings.api == "embeddings" or self.embeddings.dimensions is not None:
                raise ConfigurationError("an ingestor has no api='embeddings' and no dimensions: leave both unset")
            if self.mode == "queue":
                require_queue(self.embeddings.model)
            self._check_store()

    def _check_store(self) -> None:
        """Check that the store embeds with our model, as far as can be told without a request.

        Raises:
            ConfigurationError: It embeds with another model, or with other options.
        """
        theirs, kind = self.vector_store.embeddings, self.embeddings._kind
        kinds = [found._kind for found in find_within(theirs, WorkersAIEmbeddings)]
        if theirs is None or kind in kinds:
            return
        if kinds:
            other = f"{kinds[0].model}, and the ingestor with {kind.model}, or with other options"
        else:
            other = f"its own {type(theirs).__name__}, and the ingestor with {kind.model}"
        raise ConfigurationError(f"the vector store embeds with {other}: give both the same object")

    def ingest(self, documents: Source, **indexing: Unpack[Indexing]) -> IndexReport:
        """Embed documents, and put them into the store.

        Args:
            documents: Documents, or a loader. Other than those of a list, they wait in a temporary file until all are
                embedded, so that memory stays bounded.
            **indexing: Options of LangChain's ``index``, with a record manager: ``cleanup`` (``"incremental"``,
                ``"full"`` or ``"scoped_full"``), ``source_id_key``, ``cleanup_batch_size``, ``force_update``,
                ``key_encoder``; and ``upsert_kwargs``, keywords of the store's ``add_documents``.

        Returns:
            What came of it. Documents that could not be embedded are listed there, and not in the store; when there
            are any, nothing is cleaned up.

        Raises:
            ConfigurationError: An option does not fit, or the ledger is that of another model.
            LedgerError: The ledger cannot be used.
            BatchTimeoutError: ``deadline_s`` has passed; the same call goes on.
            BatchItemError: A document failed, with ``raise_on_failure``.
            WorkersAIError: What stops the whole run, such as a used-up quota; the same call goes on later.
        """
        options = self._checked(indexing)
        with framework_errors, Documents() as read:
            read.read(documents)
            exists = None if self.record_manager is None else self.record_manager.exists
            texts = self._texts(read, options, exists)
            report = embed(texts, client=Client._of(self.embeddings._connection()), **self._embedding(read))
            with self._filling(read, report) as ready:
                if self.record_manager is None:
                    _drive(self._upsert(ready, options), self.vector_store)
                    return _report(report)
                options = _careful(options, report)
                result = index(ready, self.record_manager, self.vector_store, batch_size=self.batch_size, **options)
                return _report(report, result)

    async def aingest(self, documents: Source, **indexing: Unpack[Indexing]) -> IndexReport:
        """:meth:`ingest` without blocking the event loop; asynchronous iterators of documents are taken, too."""
        options = self._checked(indexing)
        with framework_errors, Documents() as read, contextlib.ExitStack() as stack:
            await read.aread(documents)
            manager = self.record_manager
            exists = None if manager is None else _from_thread(manager.aexists, asyncio.get_running_loop())
            texts = self._texts(read, options, exists)
            report = await aembed(texts, client=AsyncClient._of(self.embeddings._connection()), **self._embedding(read))
            ready = await asyncio.to_thread(stack.enter_context, self._filling(read, report))
            if manager is None:
                await _adrive(self._upsert(ready, options), self.vector_store)
                return _report(report)
            options = _careful(options, report)
            result = await aindex(ready, manager, self.vector_store, batch_size=self.batch_size, **options)
            return _report(report, result)

    # What both faces share

    def _checked(self, indexing: Indexing) -> dict[str, Any]:
        """The options, once ``index`` has taken them for no documents at all.

        Raises:
            ConfigurationError: An option needs a record manager.
        """
        options: dict[str, Any] = {"key_encoder": document_key, **indexing}
        if self.record_manager is not None:
            index([], InMemoryRecordManager(""), self.vector_store, **options)
        elif lost := sorted(indexing.keys() - {"upsert_kwargs"}):
            with framework_errors:
                raise ConfigurationError(
                    f"without a record manager there is no {', '.join(lost)}: pass record_manager="
                )
        return options

    def _embedding(self, documents: Documents) -> dict[str, Any]:
        """Arguments of the core's ingestion."""
        embeddings = self.embeddings
        return {
            "ledger": self.ledger,
            "model": embeddings.model,
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
        self, documents: Documents, options: dict[str, Any], exists: Callable[[list[str]], Sequence[bool]] | None
    ) -> Iterator[tuple[str, str]]:
        """Ids and texts of the documents that the record manager does not know."""
        if options.get("force_update"):
            exists = None
        encoder = options["key_encoder"]
        for batch in batched(documents, self.batch_size):
            known = exists([key_of(document, encoder) for document in batch]) if exists else [False] * len(batch)
            for document, is_known in zip(batch, known, strict=True):
                if not is_known:
                    yield document.id or key_of(document, encoder), document.page_content

    @contextlib.contextmanager
    def _filling(self, documents: Documents, report: IngestReport) -> Iterator[Iterable[Document]]:
        """Give the documents that can be written, while the store finds their vectors in the ledger."""
        failed = {row.hash for row in report.rows() if row.vector is None} if report.failed else set()
        ready = (doc for doc in documents if not failed or text_hash(self._sent(doc)) not in failed)
        with LedgerFile(self.ledger) as ledger, handing_over(self.embeddings._kind, ledger):
            yield ready

    def _sent(self, document: Document) -> str:
        return document.page_content or (" " if self.embeddings.empty_text == "space" else "")

    def _upsert(self, documents: Iterable[Document], options: dict[str, Any]) -> _Calls:
        """Write documents so that each replaces the one with its id. Unchanged ones are left alone."""
        keywords = options.get("upsert_kwargs") or {}
        for batch in batched(documents, self.batch_size):
            by_id = {document.id or document_key(document): document for document in batch}
            found = yield "get_by_ids", ([*by_id, *map(_meanwhile, by_id)],), {}
            there = {document.id: document for document in found or () if document.id}
            yield from _replace(by_id, there, keywords)


def _meanwhile(key: str) -> str:
    """Return the id under which the new version of a document stands while it replaces the old one."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"workers-ai {key}"))


def _same(document: Document, stored: Document | None) -> bool:
    return stored is not None and (stored.page_content, stored.metadata) == (document.page_content, document.metadata)


def _replace(documents: dict[str, Document], there: dict[str, Document], keywords: dict[str, Any]) -> _Calls:
    """Write documents, given what the store has under their ids.

    Some stores reject an id that they have, and one of them, FAISS, has changed by then. So new versions are first
    written under other ids: nothing is deleted before its successor is there, and an interrupted call can be repeated.
    """
    changed = {key: document for key, document in documents.items() if not _same(document, there.get(key))}
    new = {key: document for key, document in changed.items() if key not in there}
    replaced = {key: document for key, document in changed.items() if key in there}
    if new:
        yield _add(new, keywords)
    temporary = {_meanwhile(key): document for key, document in replaced.items()}
    if stale := [key for key, document in temporary.items() if key in there and not _same(document, there[key])]:
        yield "delete", (stale,), {}
    if added := {key: document for key, document in temporary.items() if not _same(document, there.get(key))}:
        yield _add(added, keywords)
    if replaced:
        yield "delete", (list(replaced),), {}
        yield _add(replaced, keywords)
    if left := [key for key in map(_meanwhile, documents) if key in temporary or key in there]:
        yield "delete", (left,), {}


def _add(documents: dict[str, Document], keywords: dict[str, Any]) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    named = [document.model_copy(update={"id": key}) for key, document in documents.items()]
    return "add_documents", (named,), {"ids": list(documents), **keywords}


_Calls: TypeAlias = Generator[tuple[str, tuple[Any, ...], dict[str, Any]], Any, None]
"""Calls of a store's methods, by name; each is sent the result. A look-up that fails counts as None: many stores
cannot look up ids, and a store that is away fails at writing, too."""


def _drive(calls: _Calls, store: VectorStore) -> None:
    with contextlib.suppress(StopIteration):
        step = next(calls)
        while True:
            name, args, kwargs = step
            try:
                reply = getattr(store, name)(*args, **kwargs)
            except Exception as exc:  # noqa: BLE001 - the flow decides
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
            except Exception as exc:  # noqa: BLE001 - the flow decides
                step = calls.send(None) if name == "get_by_ids" else calls.throw(exc)
            else:
                step = calls.send(reply)


def _from_thread(
    exists: Callable[[list[str]], Coroutine[Any, Any, list[bool]]], loop: asyncio.AbstractEventLoop
) -> Callable[[list[str]], list[bool]]:
    """The question to an asynchronous record manager, for the thread that reads the documents."""
    return lambda keys: asyncio.run_coroutine_threadsafe(exists(keys), loop).result()


def _careful(options: dict[str, Any], report: IngestReport) -> dict[str, Any]:
    """Clean nothing up on sight of a part of the documents."""
    return {**options, "cleanup": None} if report.failed else options


def _report(report: IngestReport, indexing: IndexingResult | None = None) -> IndexReport:
    return IndexReport(**vars(report), indexing=indexing)
