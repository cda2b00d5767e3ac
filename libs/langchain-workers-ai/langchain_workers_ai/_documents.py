"""Documents of an ingestion: read as often as needed, and known by a key."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import pickle
import tempfile
import uuid
from collections.abc import AsyncIterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import VectorStore

from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Documents", "Source", "batched", "document_key", "key_of"]

Source: TypeAlias = "Iterable[Document] | AsyncIterable[Document] | BaseLoader"


def document_key(document: Document) -> str:
    """Return the id of a document that has none: a UUID made of its text and metadata, the same in every process."""
    try:
        whole = json.dumps([document.page_content, document.metadata], sort_keys=True, default=_plain)
    except (TypeError, ValueError):  # keys of several types have no order, and a circle has no end
        whole = json.dumps([document.page_content, _ordered(document.metadata, ())], default=_plain)
    return str(uuid.UUID(bytes=hashlib.sha256(whole.encode("utf-8", "surrogatepass")).digest()[:16], version=5))


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks as one that it has. Neither the hash seed nor an address has any influence."""
    if isinstance(value, (set, frozenset)):
        return sorted((_ordered(item, ()) for item in value), key=_json)
    text = str(value)
    if f"{id(value):x}" not in text.lower():
        return text
    kind = type(value)
    return [f"{kind.__module__}.{kind.__qualname__}", _ordered(getattr(value, "__dict__", {}), (id(value),))]


def _ordered(value: Any, above: tuple[int, ...]) -> Any:
    """Return a value with dicts as sorted pairs, and a mark in the place of a container that contains itself."""
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


def _json(value: Any) -> str:
    return json.dumps(value, default=_plain)


class _Noted(VectorStore):
    """A store that keeps nothing but the key under which ``index`` would add a document."""

    key: str

    def add_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        self.key = str(documents[0].id)
        return [self.key]

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:
        raise NotImplementedError

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        raise NotImplementedError

    @classmethod
    def from_texts(
        cls, texts: list[str], embedding: Any, metadatas: Any = None, *, ids: Any = None, **kwargs: Any
    ) -> Self:
        raise NotImplementedError


def key_of(document: Document, encoder: Any) -> str:
    """The key of a document in a record manager, by an encoder as LangChain's ``index`` takes one."""
    if callable(encoder):
        return str(encoder(document))
    noted = _Noted()
    index([document], InMemoryRecordManager(""), noted, key_encoder=encoder)
    return noted.key


def batched(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
    """Cut documents into lists of at most ``size``."""
    rest = iter(documents)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def _checked(document: object) -> Document:
    if not isinstance(document, Document):
        raise BadRequestError(f"a document is a Document of langchain_core, not {document!r:.200}")
    return document


class Documents:
    """Documents that can be read more than once: those of an iterator or a loader wait in a temporary file."""

    def __init__(self) -> None:
        self._list: Sequence[Document] | None = None
        self._file: Any = None
        self._count = 0

    def read(self, source: Source) -> None:
        """Take documents.

        Raises:
            TypeError: ``source`` is an asynchronous iterator.
        """
        if isinstance(source, AsyncIterable):
            raise TypeError("documents of an asynchronous iterator need aingest")
        if isinstance(source, Sequence):
            self._list = source
            return
        for document in source.lazy_load() if isinstance(source, BaseLoader) else source:
            self._add(document)

    async def aread(self, source: Source) -> None:
        """Take documents without blocking the event loop."""
        if isinstance(source, BaseLoader):
            source = source.alazy_load()
        if isinstance(source, AsyncIterable):
            async for document in source:
                self._add(document)
        else:
            await asyncio.to_thread(self.read, source)

    def _add(self, document: Document) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the context
        try:
            pickle.dump(_checked(document), self._file)
        except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as exc:
            raise BadRequestError(
                f"document {self._count:,} cannot be put into the temporary file of documents that come one by one "
                f"({exc}): give a list of documents, or metadata that can be pickled"
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
