"""Streamed chat answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai._calls.chat import exchange_chat
from workers_ai._calls.replies import Reply, connection_error
from workers_ai._flow.steps import Body, Close, Read
from workers_ai._limits.tickets import Ticket
from workers_ai._wire.chat.reply import read_chat
from workers_ai._wire.chat.stream import ChatStreamReader, deltas_of
from workers_ai._wire.sse import SSEDecoder
from workers_ai.errors import APIConnectionError, APITimeoutError, StreamInterruptedError, WorkersAIError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from workers_ai._calls.requests import Calls
    from workers_ai._flow.steps import Flow
    from workers_ai._wire.chat.request import ChatPlan
    from workers_ai.types import ChatDelta

__all__ = ["ChatStream", "open_chat"]


class ChatStream:
    """A streamed answer. Call :meth:`begin`, then :meth:`advance` until it returns None. :meth:`leave` ends it early.

    Args:
        calls: The flows of the client.
        plan: The plan of the call.
        reply: The reply: an open stream, or a whole answer if the service did not stream.
    """

    def __init__(self, calls: Calls, plan: ChatPlan, reply: Reply) -> None:
        self._calls = calls
        self._reply = reply
        self._plan = plan
        self._sse = SSEDecoder()
        self._reader = ChatStreamReader(plan.context, reply.headers, calls.settings._scrub)
        self._read_body = None if reply.stream is None else Read(Body(reply.stream))
        self._ticket = reply.ticket or Ticket(plan.request.model, plan.request.task)
        self._now = calls.limiter.now
        self._failure: WorkersAIError | None = None
        self._begun: list[ChatDelta] = []
        self._is_finished = False
        self._last: Iterator[ChatDelta] | None = None

    def begin(self) -> Flow[WorkersAIError | None]:
        """Read the first deltas.

        Returns:
            None, or the error that arrived before any delta; then the response is closed.
        """
        read_body = self._read_body
        if read_body is None:
            return self._begin_whole()
        try:
            while not (self._begun or self._is_finished):
                chunk: bytes = yield read_body
                self._begun = self._decode(chunk) if chunk else self._read(self._sse.flush(), unfinished=True)
                if not self._begun and (self._is_over or not chunk):
                    self._is_finished = True
                    self._begun = [self._reader.finish()]
        except BaseException as exc:
            if not isinstance(exc, Exception):  # an interrupt or a cancellation: the driver has closed the response
                raise
            yield Close(read_body.body)
            error = exc if isinstance(exc, WorkersAIError) else self._no_response(exc)
        else:
            return None
        if error.partial:
            raise error
        if isinstance(error, StreamInterruptedError) and self._is_finished:
            error.is_retryable = True  # nothing was delivered
        return error

    def _begin_whole(self) -> WorkersAIError | None:
        """Read the first deltas of an event stream that has arrived whole."""
        if not isinstance(self._reply.data, bytes):
            return None
        try:
            self._begun = self._decode(self._reply.data)
        except WorkersAIError as exc:
            return exc
        return None

    def advance(self) -> Flow[Sequence[ChatDelta] | None]:
        """Return the next deltas, possibly none; None at the end.

        Raises:
            WorkersAIError: The stream was interrupted, or an error event arrived; with ``partial``.
        """
        if self._last is not None:
            delta = next(self._last, None)
            return None if delta is None else (delta,)
        if self._begun:
            deltas, self._begun = self._begun, []
            self._ticket.idle_since = self._now()
            return deltas
        try:
            if self._read_body is not None and not (self._is_finished or self._is_over):
                self._ticket.idle_since = None
                chunk: bytes = yield self._read_body
                if chunk:
                    deltas = self._decode(chunk)
                    self._ticket.idle_since = self._now()  # a stream that nobody reads holds no slot
                    return deltas
            yield from self._close(is_complete=self._is_over)
        except Exception as exc:  # noqa: BLE001 - raised below, without the frames of httpx, which hold the sent headers
            error = self._interrupted(exc)
        else:
            self._last = iter(()) if self._is_finished else self._flush()
            return ()
        raise error

    def leave(self) -> Flow[None]:
        """Release the slots and close the response."""
        return self._close(is_complete=False)

    def _close(self, *, is_complete: bool) -> Flow[None]:
        read_body, self._read_body = self._read_body, None
        if read_body is not None:
            self._calls.finish(self._ticket)
            yield Close(read_body.body, is_complete)

    @property
    def _is_over(self) -> bool:
        """Whether the end mark or an error has arrived. Later bytes are ignored."""
        return self._reader.done or self._failure is not None

    def _decode(self, chunk: bytes) -> list[ChatDelta]:
        return self._read(self._sse.decode(chunk))

    def _read(self, events: list[bytes], *, unfinished: bool = False) -> list[ChatDelta]:
        """Return the deltas of ``events``. An error after the first delta is raised by the next call."""
        if self._failure is not None:
            raise self._failure
        deltas: list[ChatDelta] = []
        for data in events:
            try:
                delta = self._reader.read(data, unfinished=unfinished)
            except WorkersAIError as exc:
                if not deltas:
                    raise
                self._failure = exc
                break
            if delta is not None:
                deltas.append(delta)
        return deltas

    def _flush(self) -> Generator[ChatDelta, None, None]:
        """Yield the deltas at the end of the stream.

        Raises:
            StreamInterruptedError: The stream ended early.
        """
        reply = self._reply
        if reply.stream is None and not isinstance(reply.data, bytes):
            yield from deltas_of(self._calls.read(read_chat, reply.data, self._plan.context, reply.headers))
            return
        yield from self._read(self._sse.flush(), unfinished=True)
        yield from self._read([])
        yield self._reader.finish()

    def _interrupted(self, exc: Exception) -> WorkersAIError:
        """Return the typed error of a stream that was interrupted, with the text received so far."""
        if isinstance(exc, WorkersAIError):
            exc.partial = exc.partial or self._reader.partial
            return exc
        error = self._no_response(exc)
        if isinstance(error, APIConnectionError) and not isinstance(error, APITimeoutError):
            error = StreamInterruptedError(f"the stream was interrupted: {error.message}", model=error.model)
        error.partial = self._reader.partial
        return error

    def _no_response(self, exc: Exception) -> WorkersAIError:
        return connection_error(exc, self._plan.request.model, self._calls.settings)


def open_chat(calls: Calls, plan: ChatPlan) -> Flow[ChatStream]:
    """Open a streamed answer. Retry until the first delta has arrived, never after."""
    calls = calls.started()
    opened: list[ChatStream] = []

    def begin(reply: Reply) -> Flow[WorkersAIError | None]:
        opened[:] = [stream := ChatStream(calls, plan, reply)]
        return stream.begin()

    yield from exchange_chat(calls, plan.request, stream=plan.stream, begin=begin)
    return opened[0]
