"""Documents of a run, read in chunks on the thread that owns the source."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import AsyncIterable, Generator, Iterable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeAlias

from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import anyio

    from workers_ai.ledger._records import Document

__all__ = ["AsyncDocuments", "Chunk", "Convert", "Documents", "SyncDocuments", "iter_source"]

Chunk: TypeAlias = "list[Document]"
Convert: TypeAlias = "Callable[[object], Document]"


class Documents(Protocol):
    """A source of documents, read chunk by chunk."""

    def read(self, size: int) -> Chunk:
        """Return the next documents, at most ``size``; an empty list at the end."""
        ...

    def close(self) -> None:
        """End the workers that wait for documents."""
        ...


class _ClosedError(Exception):
    """The run has ended, and the source is no longer read."""


_Reply: TypeAlias = "SimpleQueue[Chunk | BaseException]"


class _Requests:
    """Requests of worker threads for chunks. The thread or task that owns the source answers them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._waiting: list[_Reply] = []
        self.pending: SimpleQueue[tuple[int, _Reply] | None] = SimpleQueue()

    def request(self, size: int, wake: Callable[[], object] | None = None) -> Chunk:
        """Wait for a chunk. Called on a worker's thread."""
        reply: _Reply = SimpleQueue()
        with self._lock:
            if self._closed:
                raise _ClosedError
            self._waiting.append(reply)
            self.pending.put((size, reply))
        if wake is not None:
            wake()
        found = reply.get()
        with self._lock:
            self._waiting.remove(reply)
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """End every waiting worker, even if the source is still being read."""
        with self._lock:
            self._closed = True
            for reply in self._waiting:
                reply.put(_ClosedError())


class SyncDocuments:
    """The documents of an iterable, read on the thread that created this object.

    :func:`~workers_ai._flow.concurrency.gather` waits on this object in place of an event: :meth:`wait` reads the
    source until :meth:`set`.

    Args:
        source: The iterable.
        convert: Function that converts its items to documents.

    Raises:
        BadRequestError: ``source`` is not an iterable.
    """

    def __init__(self, source: Iterable[object], convert: Convert) -> None:
        self._rows = iter_source(source)
        self._convert = convert
        self._owner = threading.get_ident()
        self._requests = _Requests()

    def read(self, size: int) -> Chunk:
        """Return the next documents, at most ``size``; an empty list at the end."""
        if threading.get_ident() == self._owner:
            return read_chunk(self._rows, size, self._convert)
        return self._requests.request(size)

    def close(self) -> None:
        """End the workers that wait for documents."""
        self._requests.close()

    def set(self) -> None:
        """End :meth:`wait`."""
        self._requests.pending.put(None)

    def wait(self) -> None:
        """Read chunks for the workers until :meth:`set`."""
        try:
            while (request := self._requests.pending.get()) is not None:
                size, reply = request
                try:
                    reply.put(read_chunk(self._rows, size, self._convert))
                except Exception as exc:  # noqa: BLE001 - raised by the worker, which ends the run
                    reply.put(exc)
                except BaseException:
                    reply.put(_ClosedError())
                    raise
        finally:
            self._requests.close()


class AsyncDocuments:
    """The documents of an iterable, read in worker threads, or of an asynchronous one, read by :meth:`serve`.

    Args:
        source: The iterable.
        convert: Function that converts its items to documents.

    Raises:
        BadRequestError: ``source`` is not an iterable.
    """

    def __init__(self, source: Iterable[object] | AsyncIterable[object], convert: Convert) -> None:
        self._convert = convert
        self._requests = _Requests()
        self._wake: anyio.Event | None = None
        self._arows: AsyncIterator[object] | None = None
        self._rows: Iterator[object] | None = None
        self._bound = False  # whether only the thread of the event loop may read, as for a cursor of sqlite3
        if isinstance(source, AsyncIterable):
            self._arows = aiter(source)
        else:
            self._rows = iter_source(source)

    def read(self, size: int) -> Chunk:
        """Return the next documents, at most ``size``; an empty list at the end. Called on a worker's thread."""
        if self._rows is None or self._bound:
            return self._request(size)
        try:
            return read_chunk(self._rows, size, self._convert)
        except sqlite3.ProgrammingError as exc:
            if "thread" not in str(exc):
                raise
            if isinstance(self._rows, Generator):
                raise BadRequestError(
                    "the source reads an SQLite connection of another thread: pass the cursor itself or an "
                    "asynchronous iterable, or open the connection with check_same_thread=False"
                ) from exc
            self._bound = True
            return self._request(size)

    def _request(self, size: int) -> Chunk:
        from anyio import from_thread

        return self._requests.request(size, lambda: from_thread.run_sync(self._notify))

    def _notify(self) -> None:
        if self._wake is not None:
            self._wake.set()

    def close(self) -> None:
        """End the workers that wait for documents."""
        self._requests.close()

    async def serve(self) -> None:
        """Read chunks for the workers until cancelled."""
        import anyio

        try:
            while True:
                self._wake = anyio.Event()
                while not self._requests.pending.empty():
                    await self._answer()
                await self._wake.wait()
        finally:
            self._requests.close()

    async def _answer(self) -> None:
        request = self._requests.pending.get()
        assert request is not None
        size, reply = request
        try:
            reply.put(await self._chunk(size))
        except Exception as exc:  # noqa: BLE001 - raised by the worker, which ends the run
            reply.put(exc)
        except BaseException:
            reply.put(_ClosedError())
            raise

    async def _chunk(self, size: int) -> Chunk:
        if self._arows is None:
            assert self._rows is not None
            return read_chunk(self._rows, size, self._convert)
        chunk: Chunk = []
        async for document in self._arows:
            chunk.append(self._convert(document))
            if len(chunk) == size:
                break
        return chunk


def iter_source(source: Iterable[object]) -> Iterator[object]:
    """Return an iterator over a source.

    Raises:
        BadRequestError: ``source`` is not an iterable, or is an asynchronous one, or a table.
    """
    if isinstance(source, AsyncIterable):
        raise BadRequestError("the source is an asynchronous iterable: use aingest or agenerate")
    _require_rows(source)
    if not isinstance(source, (str, bytes)) and isinstance(source, Iterable):
        return iter(source)
    raise BadRequestError(f"the source must be an iterable of pairs of id and input, not {source!r:.200}")


def _require_rows(source: object) -> None:
    if hasattr(source, "columns") and hasattr(source, "shape"):
        raise BadRequestError(
            f"the source is a {type(source).__name__}: pass its rows, such as frame.to_dict('records') of pandas, "
            "frame.iter_rows(named=True) of Polars or table.to_pylist() of PyArrow"
        )


def read_chunk(rows: Iterator[object], size: int, convert: Convert) -> Chunk:
    """Return the next documents, at most ``size``."""
    return [convert(row) for row in itertools.islice(rows, size)]
