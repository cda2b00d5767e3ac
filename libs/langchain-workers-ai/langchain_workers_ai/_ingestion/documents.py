"""Documents of an ingestion, and their keys."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import pickle
import sqlite3
import tempfile
import uuid
from collections.abc import AsyncIterable, Sequence
from typing import IO, TYPE_CHECKING, Literal, Self, TypeAlias

from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import VectorStore

from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from langchain_workers_ai._types import Data


__all__ = ["Documents", "KeyEncoder", "Source", "batched", "document_key", "key_of"]

KeyEncoder: TypeAlias = 'Literal["sha1", "sha256", "sha512", "blake2b"] | Callable[[Document], str]'
"""``key_encoder`` of LangChain's ``index``."""

Source: TypeAlias = "Iterable[Document] | AsyncIterable[Document] | BaseLoader"


def document_key(document: Document) -> str:
    """Return an id for a document without id: a UUID of its text and metadata. All processes get the same id."""
    try:
        whole = json.dumps([document.page_content, document.metadata], sort_keys=True, default=_plain)
    except (TypeError, ValueError):  # keys of several types cannot be sorted, or the metadata contains itself
        whole = json.dumps([document.page_content, _ordered(document.metadata, ())], default=_plain)
    return str(uuid.UUID(bytes=hashlib.sha256(whole.encode("utf-8", "surrogatepass")).digest()[:16], version=5))


def _plain(value: object) -> Data:
    """Return a JSON value that represents ``value``. It does not depend on the hash seed or on memory addresses."""
    if isinstance(value, (set, frozenset)):
        return sorted((_ordered(item, ()) for item in value), key=_json)
    text = str(value)
    if f"{id(value):x}" not in text.lower():
        return text
    kind = type(value)
    return [f"{kind.__module__}.{kind.__qualname__}", _ordered(getattr(value, "__dict__", {}), (id(value),))]


def _ordered(value: object, above: tuple[int, ...]) -> Data:
    """Return a value with dicts as sorted pairs. A circular reference becomes a text with the number of levels."""
    if id(value) in above:
        return f"circle {len(above) - above.index(id(value))}"
    inside = (*above, id(value))
    if isinstance(value, dict):
        pairs = ([_ordered(key, inside), _ordered(item, inside)] for key, item in value.items())
        return sorted(pairs, key=_json)
    if isinstance(value, (list, tuple)):
        return [_ordered(item, inside) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_ordered(item, inside) for item in value), key=_json)
    return value if value is None or isinstance(value, (str, int, float)) else _plain(value)


def _json(value: object) -> str:
    return json.dumps(value, default=_plain)


class _KeyRecorder(VectorStore):
    """A store that records only the key with which ``index`` adds a document."""

    key: str

    def add_documents(self, documents: list[Document], **kwargs: object) -> list[str]:
        self.key = str(documents[0].id)
        return [self.key]

    def delete(self, ids: list[str] | None = None, **kwargs: object) -> bool | None:
        raise NotImplementedError

    def similarity_search(self, query: str, k: int = 4, **kwargs: object) -> list[Document]:
        raise NotImplementedError

    @classmethod
    def from_texts(
        cls, texts: list[str], embedding: object, metadatas: object = None, *, ids: object = None, **kwargs: object
    ) -> Self:
        raise NotImplementedError


def key_of(document: Document, encoder: KeyEncoder) -> str:
    """Return the key of a document in a record manager.

    Args:
        document: The document.
        encoder: ``key_encoder`` of LangChain's ``index``.
    """
    if callable(encoder):
        return str(encoder(document))
    recorder = _KeyRecorder()
    index([document], InMemoryRecordManager(""), recorder, key_encoder=encoder)
    return recorder.key


def batched(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
    """Yield lists of at most ``size`` documents."""
    rest = iter(documents)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def _checked(document: object) -> Document:
    if not isinstance(document, Document):
        raise BadRequestError(f"a document must be a langchain_core Document, not {document!r:.200}")
    return document


class Documents:
    """Documents that can be read repeatedly. A temporary file holds the documents of an iterator or a loader."""

    def __init__(self) -> None:
        self._list: Sequence[Document] | None = None
        self._file: IO[bytes] | None = None
        self._count = 0

    def read(self, source: Source) -> None:
        """Read all documents of a source.

        Raises:
            TypeError: ``source`` is an asynchronous iterator.
        """
        if isinstance(source, AsyncIterable):
            raise TypeError("documents is an asynchronous iterator: use aingest")
        if isinstance(source, Sequence):
            self._list = source
            return
        for document in source.lazy_load() if isinstance(source, BaseLoader) else source:
            self._add(document)

    async def aread(self, source: Source) -> None:
        """Read all documents of a source without blocking the event loop.

        Raises:
            BadRequestError: The source can be read on this thread only.
        """
        if isinstance(source, BaseLoader):
            source = source.alazy_load()
        if isinstance(source, AsyncIterable):
            async for document in source:
                self._add(document)
            return
        try:
            await asyncio.to_thread(self.read, source)
        except sqlite3.ProgrammingError as exc:
            if "thread" not in str(exc):
                raise
            raise BadRequestError(
                "documents reads an SQLite connection of another thread: pass a list or an asynchronous iterator, or "
                "open the connection with check_same_thread=False"
            ) from exc

    def _add(self, document: Document) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the context
        try:
            pickle.dump(_checked(document), self._file)
        except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as exc:
            raise BadRequestError(
                f"document {self._count:,} of an iterator cannot be pickled into the temporary file ({exc}): "
                "pass a list of documents, or metadata that can be pickled"
            ) from exc
        self._count += 1

    def __len__(self) -> int:
        return self._count if self._list is None else len(self._list)

    def __iter__(self) -> Iterator[Document]:
        if self._list is not None:
            yield from map(_checked, self._list)
        elif self._file is not None:
            self._file.seek(0)
            for _ in range(self._count):
                yield pickle.load(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()
