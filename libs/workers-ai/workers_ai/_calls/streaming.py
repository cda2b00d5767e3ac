"""Streams: one decoder from bytes to pieces, and the two short walkers that feed it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from workers_ai._calls.requests import Calls, connection_error
from workers_ai._flow.drivers import aclose, adrive, close, drive
from workers_ai._flow.steps import Body, Close, Read
from workers_ai._limits.limiter import Ticket
from workers_ai._wire.chat.reply import read_chat
from workers_ai._wire.chat.stream import ChatStreamReader, deltas_of
from workers_ai._wire.sse import SSEDecoder
from workers_ai.errors import (
    APIConnectionError,
    APITimeoutError,
    StreamInterruptedError,
    WorkersAIError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from workers_ai._calls.requests import Reply
    from workers_ai._flow.drivers import AsyncSender, Sender
    from workers_ai._flow.steps import Flow
    from workers_ai._wire.chat.request import ChatPlan
    from workers_ai.types import ChatDelta

__all__ = ["ChatStream", "awalk", "open_chat", "walk"]

_SETTLE_S: Final = 0.05
"""Longest wait for the connection after the end mark of an answer."""


class ChatStream:
    """A stream whose headers are in. Push bytes with ``decode`` until :attr:`over`, end with ``flush``.

    Attributes:
        body: The open body; None where the answer came whole.
        ticket: The ticket of the call in limiter and gate.
        now: The limiter's clock.
        first: The pieces that :meth:`begin` has read.
        ended: Whether that was all of them, the last one included.

    Args:
        calls: The client's flows, for settings and limiter.
        plan: The call that was sent.
        reply: Its reply: an open stream, or a whole answer where the service does not stream.
    """

    def __init__(self, calls: Calls, plan: ChatPlan, reply: Reply) -> None:
        self._calls = calls
        self._reply = reply
        self._plan = plan
        self._sse = SSEDecoder()
        self._reader = ChatStreamReader(plan.context, reply.headers, calls.settings.scrub)
        self.body = None if reply.stream is None else Body(reply.stream)
        self.ticket = reply.ticket or Ticket(plan.request.model, plan.request.task)
        self.now = calls.limiter.now
        self._failure: WorkersAIError | None = None
        self.first: list[ChatDelta] = []
        self.ended = False

    @property
    def over(self) -> bool:
        """Whether nothing more counts: the end mark has come, whatever the connection does then, or an error."""
        return self._reader.done or self._failure is not None

    def decode(self, chunk: bytes) -> list[ChatDelta]:
        """The pieces that these bytes complete."""
        return self._read(self._sse.decode(chunk))

    def _read(self, events: list[bytes], *, unfinished: bool = False) -> list[ChatDelta]:
        """The pieces of these events; an error among them is raised by the next call, after what came before it."""
        if self._failure is not None:
            raise self._failure
        pieces: list[ChatDelta] = []
        for data in events:
            try:
                delta = self._reader.read(data, unfinished=unfinished)
            except WorkersAIError as exc:
                if not pieces:
                    raise
                self._failure = exc
                break
            if delta is not None:
                pieces.append(delta)
        return pieces

    def flush(self) -> Generator[ChatDelta, None, None]:
        """The pieces at the end of the stream, the last one among them.

        Raises:
            StreamInterruptedError: The stream was cut.
        """
        if self._reply.stream is None and not isinstance(self._reply.data, bytes):
            reply = self._reply
            yield from deltas_of(self._calls.read(read_chat, reply.data, self._plan.context, reply.headers))
            return
        if isinstance(self._reply.data, bytes):
            yield from self.decode(self._reply.data)
        yield from self._read(self._sse.flush(), unfinished=True)
        yield from self._read([])
        yield self._reader.finish()

    def begin(self) -> Flow[WorkersAIError | None]:
        """Read the first piece; the error that came in its place, with everything given back, where none comes."""
        body = self.body
        if body is None:
            return None
        try:
            while not (self.first or self.ended):
                chunk: bytes = yield Read(body)
                self.first = self.decode(chunk) if chunk else self._read(self._sse.flush(), unfinished=True)
                if not self.first and (self.over or not chunk):
                    self.ended = True
                    self.first = [self._reader.finish()]
        except BaseException as exc:
            if not isinstance(exc, Exception):  # an interrupt, or a cancellation: the driver has closed the reply
                raise
            yield Close(body)
            error = exc if isinstance(exc, WorkersAIError) else self._no_reply(exc)
        else:
            return None
        if error.partial:
            raise error
        if isinstance(error, StreamInterruptedError) and self.ended:
            error.is_retryable = True  # nothing has come
        return error

    def broken(self, exc: Exception) -> WorkersAIError:
        """The typed error of a transport that broke off, with the text that had arrived."""
        if isinstance(exc, WorkersAIError):
            exc.partial = exc.partial or self._reader.partial
            return exc
        error = self._no_reply(exc)
        if isinstance(error, APIConnectionError) and not isinstance(error, APITimeoutError):
            error = StreamInterruptedError(f"the stream broke off: {error.message}", model=error.model)
        error.partial = self._reader.partial
        return error

    def _no_reply(self, exc: Exception) -> WorkersAIError:
        return connection_error(exc, self._plan.request.model, self._calls.settings)

    def release(self) -> None:
        """Release the slots in the shared limiter and at the object's own bound."""
        self._calls.finish(self.ticket)


def open_chat(calls: Calls, plan: ChatPlan) -> Flow[ChatStream]:
    """Begin a streamed answer: retried until its first piece is in, never after.

    A field that the model refuses and can do without is given up.
    """
    opened: list[ChatStream] = []

    def begin(reply: Reply) -> Flow[WorkersAIError | None]:
        opened[:] = [stream := ChatStream(calls, plan, reply)]
        return stream.begin()

    reply = yield from calls.exchange_chat(plan.request, stream=plan.stream, begin=begin)
    return opened[0] if reply.stream is not None else ChatStream(calls, plan, reply)


def _settle(body: Body) -> None:
    """Read the end of the body if it is there already: then the connection serves the next call."""
    import httpx

    line = body.response.extensions.get("network_stream")
    if line is not None and line.get_extra_info("is_readable"):
        with suppress(httpx.RequestError, httpx.StreamError):
            next(body.chunks, b"")


async def _asettle(body: Body) -> None:
    """Read the end of the body if it comes at once: then the connection serves the next call."""
    import anyio
    import httpx

    with suppress(httpx.RequestError, httpx.StreamError), anyio.move_on_after(_SETTLE_S):
        while await anext(body.chunks, b""):
            pass


def walk(opening: Flow[ChatStream], sender: Sender) -> Generator[ChatDelta, None, None]:
    """Open a stream and read it to its end, blocking; closes it whatever happens."""
    stream = drive(opening, sender)
    error: WorkersAIError | None = None
    if stream.body is not None:
        ticket, now, chunks, read_on = stream.ticket, stream.now, stream.body.chunks, stream.body.read_on
        try:
            ticket.idle_since = now()
            yield from stream.first
            while not (stream.ended or stream.over):
                ticket.idle_since = None
                if not (chunk := read_on(chunks)):
                    break
                deltas = stream.decode(chunk)
                ticket.idle_since = now()  # a stream that nobody reads counts against no other call
                yield from deltas
            _settle(stream.body)
        except Exception as exc:  # noqa: BLE001 - raised below, without the frames of httpx and the headers in them
            error = stream.broken(exc)
        finally:
            stream.release()
            close(stream.body)
    if error is not None:
        raise error
    if not stream.ended:
        yield from stream.flush()


async def awalk(opening: Flow[ChatStream], sender: AsyncSender) -> AsyncGenerator[ChatDelta, None]:
    """Open a stream and read it to its end without blocking; closes it whatever happens."""
    stream = await adrive(opening, sender)
    error: WorkersAIError | None = None
    if stream.body is not None:
        ticket, now, chunks = stream.ticket, stream.now, stream.body.chunks
        try:
            ticket.idle_since = now()
            for delta in stream.first:
                yield delta
            while not (stream.ended or stream.over):
                ticket.idle_since = None
                if not (chunk := await anext(chunks, b"")):
                    break
                deltas = stream.decode(chunk)
                ticket.idle_since = now()
                for delta in deltas:
                    yield delta
            await _asettle(stream.body)
        except Exception as exc:  # noqa: BLE001 - raised below, without the frames of httpx and the headers in them
            error = stream.broken(exc)
        finally:
            stream.release()
            await aclose(stream.body)
    if error is not None:
        raise error
    if not stream.ended:
        for delta in stream.flush():
            yield delta
