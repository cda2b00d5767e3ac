"""Vectors on their way from a ledger into a store.

A vector store has its texts embedded by the object it was made with. While an ingestor fills a store, every
``WorkersAIEmbeddings`` of the same model and options, on whatever thread, finds the vectors of documents in the
ingestor's ledger, and embeds only what is not there. A vector depends on nothing else, so nobody can get a wrong one.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_workers_ai.embeddings import WorkersAIEmbeddings
    from workers_ai.ingest.ledger_file import LedgerFile

__all__ = ["Kind", "Texts", "handing_over"]


class Kind(NamedTuple):
    """What makes vectors interchangeable: service, model and options."""

    base_url: str | None
    model: str
    pooling: str | None
    truncate_inputs: bool | None
    normalize: bool

    @classmethod
    def of(cls, embeddings: WorkersAIEmbeddings) -> Kind:
        """The kind of the vectors that ``embeddings`` makes of documents."""
        return cls(*(getattr(embeddings, name) for name in cls._fields))


_open: list[tuple[Kind, LedgerFile]] = []
_lock = threading.Lock()


@contextmanager
def handing_over(kind: Kind, ledger: LedgerFile) -> Iterator[None]:
    """Let documents of this kind find their vectors in the ledger."""
    entry = (kind, ledger)
    with _lock:
        _open.append(entry)
    try:
        yield
    finally:
        with _lock:
            _open.remove(entry)


class Texts:
    """The documents of one call: those whose vectors are at hand, and the ``missing`` ones.

    Args:
        embeddings: What is asked for the vectors.
        texts: The documents.
    """

    def __init__(self, embeddings: WorkersAIEmbeddings, texts: Sequence[str]) -> None:
        self.missing = texts
        self._vectors: list[list[float] | None] = []
        with _lock:
            kind = Kind.of(embeddings) if _open else None
            ledgers = [ledger for its_kind, ledger in _open if its_kind == kind]
        empty = " " if embeddings.empty_text == "space" else ""
        for ledger in ledgers:
            found = ledger.find(text or empty for text in texts)
            if any(vector is not None for vector in found):
                self._vectors = [None if vector is None else vector.tolist() for vector in found]
                self.missing = [text for text, vector in zip(texts, found, strict=True) if vector is None]
                break

    def joined(self, vectors: list[list[float]]) -> list[list[float]]:
        """All vectors in the order of the texts, given those of the missing ones."""
        if not self._vectors:
            return vectors
        rest = iter(vectors)
        return [next(rest) if vector is None else vector for vector in self._vectors]
