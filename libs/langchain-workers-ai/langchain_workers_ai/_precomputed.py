"""Vectors on their way from a ledger into a store.

A vector store has its texts embedded by the object it was made with. While an ingestor fills a store, every
``WorkersAIEmbeddings`` of the same model and options, on whatever thread, finds the vectors of documents in the
ingestor's ledger, and embeds only what is not there. A vector depends on nothing else, so nobody can get a wrong one.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from contextlib import contextmanager
from types import CellType, ModuleType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeVar

from workers_ai._calls.embeddings import check_texts
from workers_ai.errors import WorkersAIError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

__all__ = ["Kind", "Texts", "find_within", "handing_over"]

T = TypeVar("T")

_LOOKED_AT: Final = 2000
"""Objects that are looked through at most."""


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


def find_within(root: object, kind: type[T]) -> Iterator[T]:
    """Yield the objects of a class that an object holds, however it wraps them; nothing is called.

    Attributes, items of containers, arguments of partials, and variables of closures are looked through.
    """
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting and len(seen) < _LOOKED_AT:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, (str, bytes, int, float, type, ModuleType)):
            continue
        seen[id(value)] = value
        if isinstance(value, kind):
            yield value
        else:
            waiting += _parts(value)


def _parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    parts = [cell.cell_contents for cell in getattr(value, "__closure__", None) or () if _is_set(cell)]
    parts += [getattr(value, name, None) for name in ("__self__", "__func__", "__pydantic_private__")]
    parts += [getattr(value, name, None) for name in getattr(type(value), "__slots__", ()) or ()]
    return parts + list(getattr(value, "__dict__", {}).values())


def _is_set(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


class Texts:
    """The documents of one call: those whose vectors are at hand, and the ``missing`` ones.

    Args:
        kind: The kind of vectors that is asked for.
        texts: The documents.
        empty: What an empty text means, as for :func:`~workers_ai._calls.embeddings.check_texts`.

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
