"""Documents of a run: read in chunks, on the thread that the source belongs to."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import AsyncIterable, Generator, Iterable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from workers_ai.errors import BadRequestError
from workers_ai.ledger._records import checked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import anyio

__all__ = ["AsyncDocuments", "Chunk", "Documents", "SyncDocuments"]

Chunk: TypeAlias = "list[tuple[str | int, str]]"


class Documents(Protocol):
    """Gives documents, chunk by chunk."""

    def read(self, size: int) -> Chunk:
        """Return the next documents, ``size`` at most; none at the end."""
        ...

    def close(self) -> None:
        """Let every worker that waits for documents end."""
        ...


class _ClosedError(Exception):
    """Nobody reads the source any more: the run has ended."""


class _Requests:
    """Requests for chunks of worker threads, answered by the thread or task that owns the source."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._waiting: list[SimpleQueue[Any]] = []
        self.pending: SimpleQueue[tuple[int, SimpleQueue[Any]] | None] = SimpleQueue()

    def ask(self, size: int, wake: Callable[[], object] | None = None) -> Chunk:
        """Wait for a chunk. Called on a worker's thread."""
        reply: SimpleQueue[Any] = SimpleQueue()
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
        chunk: Chunk = found
        return chunk

    def close(self) -> None:
        """Let every waiting worker end, however long the source takes."""
        with self._lock:
            self._closed = True
            for reply in self._waiting:
                reply.put(_ClosedError())


class SyncDocuments:
    """The documents of an iterable, read on the thread that made this object.

    It stands in for the event on which :func:`~workers_ai._flow.concurrency.gather` waits: while it waits, it reads.

    Raises:
        BadRequestError: ``source`` is not an iterable.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self._rows = iter_source(source)
        self._owner = threading.get_ident()
        self._requests = _Requests()

    def read(self, size: int) -> Chunk:
        """Return the next documents, ``size`` at most; none at the end."""
        if threading.get_ident() == self._owner:
            return read_chunk(self._rows, size)
        return self._requests.ask(size)

    def close(self) -> None:
        """Let every worker that waits for documents end."""
        self._requests.close()

    def set(self) -> None:
        """End :meth:`wait`."""
        self._requests.pending.put(None)

    def wait(self) -> None:
        """Read what the workers ask for, until :meth:`set`."""
        try:
            while (request := self._requests.pending.get()) is not None:
                size, reply = request
                try:
                    reply.put(read_chunk(self._rows, size))
                except Exception as exc:  # noqa: BLE001 - raised by the worker, which ends the run
                    reply.put(exc)
                except BaseException:
                    reply.put(_ClosedError())
                    raise
        finally:
            self._requests.close()


class AsyncDocuments:
    """The documents of an iterable, read in worker threads, or of an asynchronous one, read by :meth:`serve`.

    Raises:
        BadRequestError: ``source`` is neither.
    """

    def __init__(self, source: Iterable[Any] | AsyncIterable[Any]) -> None:
        self._requests = _Requests()
        self._wake: anyio.Event | None = None
        self._arows: AsyncIterator[Any] | None = None
        self._rows: Iterator[Any] | None = None
        self._bound = False  # to the thread of the event loop, as a cursor of sqlite3 is
        if isinstance(source, AsyncIterable):
            self._arows = aiter(source)
        else:
            self._rows = iter_source(source)

    def read(self, size: int) -> Chunk:
        """Return the next documents, ``size`` at most; none at the end. Called on a worker's thread."""
        if self._rows is None or self._bound:
            return self._ask(size)
        try:
            return read_chunk(self._rows, size)
        except sqlite3.ProgrammingError as exc:
            if "thread" not in str(exc):
                raise
            if isinstance(self._rows, Generator):
                raise BadRequestError(
                    "the source reads an SQLite connection of another thread: pass the cursor itself or an "
                    "asynchronous iterable, or open the connection with check_same_thread=False"
                ) from exc
            self._bound = True
            return self._ask(size)

    def _ask(self, size: int) -> Chunk:
        from anyio import from_thread

        return self._requests.ask(size, lambda: from_thread.run_sync(self._notify))

    def _notify(self) -> None:
        if self._wake is not None:
            self._wake.set()

    def close(self) -> None:
        """Let every worker that waits for documents end."""
        self._requests.close()

    async def serve(self) -> None:
        """Read what the workers ask for, until this is cancelled."""
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
            return read_chunk(self._rows, size)
        chunk: Chunk = []
        async for document in self._arows:
            chunk.append(checked(document))
            if len(chunk) == size:
                break
        return chunk


def iter_source(source: Iterable[Any]) -> Iterator[Any]:
    """Return an iterator over documents.

    Raises:
        BadRequestError: ``source`` is not an iterable of documents.
    """
    if isinstance(source, AsyncIterable):
        raise BadRequestError("an asynchronous iterable of documents needs aingest")
    if not isinstance(source, (str, bytes)) and isinstance(source, Iterable):
        return iter(source)
    raise BadRequestError(f"the source must be an iterable of pairs of id and text, not {source!r:.200}")


def read_chunk(rows: Iterator[Any], size: int) -> Chunk:
    """Return the next documents, checked."""
    return [checked(row) for row in itertools.islice(rows, size)]
