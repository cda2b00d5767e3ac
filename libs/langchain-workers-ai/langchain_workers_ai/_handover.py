"""Vectors on their way from a ledger into a store.

A vector store has its texts embedded by the object it was made with. While an ingestor fills a store, every
``WorkersAIEmbeddings`` of the same model and options, on whatever thread, finds the vectors of documents in the
ingestor's ledger, and embeds only what is not there. A vector depends on nothing else, so nobody can get a wrong one.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from workers_ai.calls import check_texts
from workers_ai.errors import WorkersAIError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

    from langchain_core.embeddings import Embeddings

__all__ = ["Kind", "Texts", "handing_over", "reaches"]


class Kind(NamedTuple):
    """What makes vectors interchangeable: service, model and options."""

    base_url: str | None
    model: str
    pooling: str | None
    truncate_inputs: bool | None
    normalize: bool
    dimensions: int | None = None


class Ledger(Protocol):
    """Knows vectors of texts; see :meth:`workers_ai.ingest.Ledger.find`."""

    def find(self, texts: Iterable[str]) -> Sequence[array[float] | None]:
        """The vectors of texts, in their order; None where it has none."""
        ...


_open: list[tuple[Kind, Ledger]] = []
_lock = threading.Lock()


@contextmanager
def handing_over(kind: Kind, ledger: Ledger) -> Iterator[None]:
    """Let documents of this kind find their vectors in the ledger."""
    entry = (kind, ledger)
    with _lock:
        _open.append(entry)
    try:
        yield
    finally:
        with _lock:
            _open.remove(entry)


class _AskedError(Exception):
    """The question has arrived."""


class _Probe:
    """A ledger that is asked for one text alone; being asked ends the question, so that nothing keeps the answer."""

    def __init__(self) -> None:
        self.text = f"probe {uuid.uuid4()}"

    def find(self, texts: Iterable[str]) -> Sequence[array[float] | None]:
        asked = list(texts)
        if self.text in asked:
            raise _AskedError
        return [None] * len(asked)


def reaches(embeddings: Embeddings, kind: Kind) -> bool:
    """Whether an object of any class, such as a cache, has documents embedded by one of ours of this kind."""
    probe = _Probe()
    try:
        with handing_over(kind, probe):
            embeddings.embed_documents([probe.text])
    except _AskedError:
        return True
    return False


class Texts:
    """The documents of one call: those whose vectors are at hand, and the ``missing`` ones.

    Args:
        kind: The kind of vectors that is asked for.
        texts: The documents.
        empty: What an empty text means, as for :func:`~workers_ai.calls.check_texts`.

    Raises:
        BadRequestError: A text is empty or no string; its index is named.
    """

    def __init__(self, kind: Kind, texts: Sequence[str], empty: Literal["raise", "space"]) -> None:
        self.missing = texts
        self._vectors: list[list[float] | None] = []
        with _lock:  # also while the ledgers are read: none of them is closed meanwhile
            ledgers = [ledger for its_kind, ledger in _open if its_kind == kind]
            if not ledgers:
                return
            self.missing = check_texts(texts, empty, kind.model)
            self._vectors = [None] * len(texts)
            for ledger in ledgers:
                self._fill(ledger)

    def _fill(self, ledger: Ledger) -> None:
        places = [place for place, vector in enumerate(self._vectors) if vector is None]
        found = ledger.find(self.missing)
        for place, vector in zip(places, found, strict=True):
            self._vectors[place] = None if vector is None else vector.tolist()
        self.missing = [text for text, vector in zip(self.missing, found, strict=True) if vector is None]

    @classmethod
    async def looked_up(cls, kind: Kind, texts: Sequence[str], empty: Literal["raise", "space"]) -> Self:
        """The same, without blocking the event loop while a ledger is read."""
        if not _open:
            return cls(kind, texts, empty)
        return await asyncio.to_thread(cls, kind, texts, empty)

    def joined(self, vectors: list[list[float]]) -> list[list[float]]:
        """All vectors in the order of the texts, given those of the missing ones."""
        if not self._vectors:
            return vectors
        rest = iter(vectors)
        return [next(rest) if vector is None else vector for vector in self._vectors]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Let an error about one of the missing texts name its place among all."""
        if self._vectors and isinstance(error, WorkersAIError) and error.index is not None:
            places = [place for place, vector in enumerate(self._vectors) if vector is None]
            error.message = error.message.replace(f"text {error.index} ", f"text {places[error.index]} ", 1)
            error.index = places[error.index]
