"""Vectors computed by an ingestor, for the embedding model of its vector store.

A vector store embeds its documents with its own embedding model. While an ingestor fills a store, that model reads the
vectors of documents from the ingestor's ledger and embeds only the missing ones. A vector depends only on
:class:`Kind` and on the text. Other calls that use the same model in the meantime therefore get correct vectors.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from contextlib import ExitStack, contextmanager
from types import CellType, ModuleType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeVar

from workers_ai.errors import WorkersAIError
from workers_ai.integration import check_texts, set_text_index

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

__all__ = ["Kind", "Lookup", "Precomputed", "find_within", "reading_all"]

T = TypeVar("T")

_MAX_VISITED: Final = 2000
"""Maximum number of objects that :func:`find_within` visits."""


class Kind(NamedTuple):
    """Settings that shape a vector. Vectors of equal kinds are interchangeable."""

    base_url: str | None
    model: str
    pooling: str | None
    truncate_inputs: bool | None
    normalize: bool
    dimensions: int | None = None
    extra_body: str = ""


class Ledger(Protocol):
    """A store of vectors by text; see :class:`workers_ai.ingest.Vectors`."""

    def find(self, texts: Iterable[str]) -> Sequence[array[float] | None]:
        """Return the vectors of texts, in their order; None for each unknown text."""
        ...


class _Source:
    """A ledger that can be closed while other threads still read from it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger: Ledger | None = ledger
        self._lock = threading.Lock()

    def find(self, texts: Sequence[str]) -> Sequence[array[float] | None]:
        with self._lock:
            return [None] * len(texts) if self._ledger is None else self._ledger.find(texts)

    def close(self) -> None:
        with self._lock:
            self._ledger = None


class Precomputed:
    """The ledgers in which one embedding model looks for vectors. Copies and pickles contain no ledgers."""

    def __init__(self) -> None:
        self._sources: tuple[tuple[Kind, _Source], ...] = ()
        self._lock = threading.Lock()

    def sources(self, kind: Kind) -> list[_Source]:
        """Return the open ledgers with vectors of this kind."""
        return [source for its_kind, source in self._sources if its_kind == kind]

    @contextmanager
    def reading(self, kind: Kind, ledger: Ledger) -> Iterator[None]:
        """Look for vectors of this kind in a ledger while the context is open."""
        entry = (kind, _Source(ledger))
        with self._lock:
            self._sources = (*self._sources, entry)
        try:
            yield
        finally:
            with self._lock:
                self._sources = tuple(other for other in self._sources if other is not entry)
            entry[1].close()

    def __reduce__(self) -> tuple[type[Precomputed], tuple[()]]:
        return Precomputed, ()

    def __eq__(self, other: object) -> bool:  # pydantic compares private attributes when it compares models
        return isinstance(other, Precomputed)

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def reading_all(all_precomputed: Iterable[Precomputed], kind: Kind, ledger: Ledger) -> Iterator[None]:
    """Look for vectors of this kind in a ledger, for several embedding models, while the context is open."""
    with ExitStack() as stack:
        for precomputed in all_precomputed:
            stack.enter_context(precomputed.reading(kind, ledger))
        yield


class Lookup:
    """The texts of one call, divided into texts with a known vector and ``missing`` texts.

    Args:
        precomputed: The ledgers of the embedding model.
        kind: The kind of the vectors.
        texts: The documents.
        empty: Handling of empty texts, as for :func:`~workers_ai.integration.check_texts`.

    Raises:
        BadRequestError: A text is empty or not a string; the message has its index.
    """

    def __init__(
        self, precomputed: Precomputed, kind: Kind, texts: Sequence[str], empty: Literal["raise", "space"]
    ) -> None:
        self.missing = texts
        self._vectors: list[list[float] | None] = []
        sources = precomputed.sources(kind)
        if not sources:
            return
        self.missing = check_texts(texts, empty, kind.model)
        self._vectors = [None] * len(texts)
        for source in sources:
            self._fill(source)

    def _fill(self, source: _Source) -> None:
        places = self._places()
        found = source.find(self.missing)
        for place, vector in zip(places, found, strict=True):
            self._vectors[place] = None if vector is None else vector.tolist()
        self.missing = [text for text, vector in zip(self.missing, found, strict=True) if vector is None]

    def _places(self) -> list[int]:
        """Return the indices of the missing texts among all texts."""
        return [place for place, vector in enumerate(self._vectors) if vector is None]

    @classmethod
    async def on_thread(
        cls, precomputed: Precomputed, kind: Kind, texts: Sequence[str], empty: Literal["raise", "space"]
    ) -> Self:
        """Create a lookup without blocking the event loop while a ledger is read."""
        if not precomputed.sources(kind):
            return cls(precomputed, kind, texts, empty)
        return await asyncio.to_thread(cls, precomputed, kind, texts, empty)

    def merge(self, vectors: list[list[float]]) -> list[list[float]]:
        """Return the vectors of all texts in their order, given the vectors of the missing texts."""
        if not self._vectors:
            return vectors
        rest = iter(vectors)
        return [next(rest) if vector is None else vector for vector in self._vectors]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Replace the index of a missing text in an error by its index among all texts."""
        if self._vectors and isinstance(error, WorkersAIError) and error.index is not None:
            set_text_index(error, self._places()[error.index])


def find_within(root: object, kind: type[T]) -> Iterator[T]:
    """Yield the instances of a class inside an object, at any depth. No function of the object is called.

    Visits attributes, items of containers, arguments of partials, and variables of closures.
    """
    seen: dict[int, object] = {}
    pending = [root]
    while pending and len(seen) < _MAX_VISITED:
        value = pending.pop()
        if id(value) in seen or isinstance(value, (str, bytes, int, float, type, ModuleType)):
            continue
        seen[id(value)] = value
        if isinstance(value, kind):
            yield value
        else:
            pending += _parts(value)


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
