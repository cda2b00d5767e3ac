"""Send requests with httpx and read the responses, within bounds of size and time."""

from __future__ import annotations

import time
import zlib
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx

from workers_ai._transports.total_timeout import OUT_OF_TIME, inside
from workers_ai._wire.sse import is_event_stream
from workers_ai.errors import APIResponseValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator

    from workers_ai._wire.json_types import JSON

__all__ = [
    "MAX_BODY_BYTES",
    "NoCookies",
    "ParsedResponse",
    "aread_end",
    "aread_next",
    "asend",
    "read_end",
    "read_next",
    "send",
]

MAX_BODY_BYTES: int = 256 * 2**20
"""Maximum size of a decoded body, in bytes: many times the largest result of the queue."""

_PIECE_BYTES: Final = 2**20
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_END_S: Final = 0.05
"""Maximum seconds to wait for the end of a body whose events have all arrived."""


class ParsedResponse(httpx.Response):
    """A response whose body was parsed, and translated, by the transport.

    Args:
        status_code: HTTP status.
        headers: HTTP headers.
        body: The parsed JSON body.
        content: The body in bytes, for an error response; None to leave it out.
        hint: Remedy of the error that the response reports, or "".
    """

    def __init__(
        self,
        status_code: int,
        headers: list[tuple[str, str]],
        body: JSON,
        *,
        content: bytes | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(status_code, headers=headers, content=content)
        self.parsed_body = body
        self.hint = hint


class NoCookies(httpx.Cookies):
    """Cookies that ignore those of responses, since no request sends any. Reading them takes 8% of a call."""

    def extract_cookies(self, response: httpx.Response) -> None:
        """Do nothing."""


def read_next(response: httpx.Response, chunks: Iterator[bytes]) -> bytes:
    """Read the next bytes of a response; empty at its end. A failure closes it."""
    outer = inside.enter(_ends_of(response))
    try:
        return next(chunks, b"")
    except BaseException as exc:  # noqa: BLE001 - raised without the frames of httpx, which hold the sent headers
        inside.closing.append(response)
        raise exc.with_traceback(None)  # noqa: B904
    finally:
        inside.leave(outer)


async def aread_next(response: httpx.Response, chunks: AsyncIterator[bytes]) -> bytes:
    """Read the next bytes of a response; empty at its end. A failure closes it."""
    ends = _ends_of(response)
    try:
        if ends is None:
            return await anext(chunks, b"")
        with anyio.fail_after(max(0.0, ends - time.monotonic())):
            return await anext(chunks, b"")
    except TimeoutError:
        error: BaseException = httpx.ReadTimeout(OUT_OF_TIME)
    except BaseException as exc:  # noqa: BLE001 - raised below
        error = exc
    with suppress(Exception), anyio.CancelScope(shield=True):
        await response.aclose()
    raise error.with_traceback(None)  # without the frames of httpx, which hold the sent headers


def _ends_of(response: httpx.Response) -> float | None:
    """Return the time at which a response must have been read; None for no bound."""
    return getattr(response.stream, "ends", None)


def read_end(response: httpx.Response, chunks: Iterator[bytes]) -> None:
    """Read the end of a body if it arrives at once, so that the connection can be used again."""
    network = response.extensions.get("network_stream")
    if network is None:
        return
    # The end may be in a buffer of the HTTP parser, so checking the socket is not enough. The timeout of a
    # response cannot be changed once reading has begun; the wait is bounded at its network stream.
    with suppress(httpx.RequestError, httpx.StreamError, AttributeError):
        network.read = partial(_read_soon, network.read)
        try:
            while read_next(response, chunks):
                pass
        finally:
            del network.read


def _read_soon(read: Callable[..., bytes], max_bytes: int, timeout: float | None = None) -> bytes:
    return read(max_bytes, timeout=_END_S if timeout is None else min(timeout, _END_S))


async def aread_end(chunks: AsyncIterator[bytes]) -> None:
    """Read the end of a body if it arrives at once, so that the connection can be used again."""
    with suppress(httpx.RequestError, httpx.StreamError), anyio.move_on_after(_END_S):
        while await anext(chunks, b""):
            pass


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The bytes of a response, bounded, and decoded if they have a content coding.

    Raises:
        APIResponseValidationError: The body is larger than :data:`MAX_BODY_BYTES`, or has a coding that was not
            requested.
        httpx.DecodingError: The bytes do not match the coding.
        httpx.ReadTimeout: The bytes arrived after the end of ``total_timeout``.

    Attributes:
        on_close: Function to call after the body was closed.
    """

    on_close: Callable[[], None] | None = None

    def __init__(self, response: httpx.Response, ends: float | None, coding: str) -> None:
        self._raw: Any = response.stream
        self._status = response.status_code
        self._left = MAX_BODY_BYTES
        self.ends = ends
        self._coding = coding
        self._is_plain = ends is None and not coding
        self._decoder: Any = None

    def __iter__(self) -> Generator[bytes, None, None]:
        for chunk in self._raw:
            if self._is_plain:
                self._left -= len(chunk)
                if self._left < 0:
                    raise self._too_large()
                yield chunk
            else:
                yield from self._checked(chunk)

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        async for chunk in self._raw:
            if self._is_plain:
                self._left -= len(chunk)
                if self._left < 0:
                    raise self._too_large()
                yield chunk
            else:
                for piece in self._checked(chunk):
                    yield piece

    def _checked(self, chunk: bytes) -> Iterator[bytes]:
        if self.ends is not None and time.monotonic() > self.ends:
            raise httpx.ReadTimeout(OUT_OF_TIME)
        for piece in self._decoded(chunk) if self._coding else (chunk,):
            self._left -= len(piece)
            if self._left < 0:
                raise self._too_large()
            yield piece

    def _decoded(self, chunk: bytes) -> Iterator[bytes]:
        if self._decoder is not None and self._decoder.eof:
            self._left -= len(chunk)  # data after the end of the compressed body
            return
        full = False
        while chunk or full:
            piece = self._decode(chunk)
            yield piece
            chunk = self._decoder.unconsumed_tail if self._decoder is not None else b""
            full = len(piece) == _PIECE_BYTES

    def _decode(self, chunk: bytes) -> bytes:
        try:
            if self._decoder is None:
                self._decoder = self._create_decoder(chunk)
            piece: bytes = self._decoder.decompress(chunk, _PIECE_BYTES)
        except zlib.error as exc:
            raise httpx.DecodingError(str(exc)) from None
        return piece

    def _create_decoder(self, start: bytes) -> Any:
        if self._coding not in ("gzip", "x-gzip", "deflate"):
            raise self._unreadable(
                f"content-encoding {self._coding[:100]!r}, which was not requested: accept-encoding was gzip, deflate"
            )
        if self._coding == "deflate" and start[0] & 0x0F != 8:  # some servers omit the zlib header
            return zlib.decompressobj(-zlib.MAX_WBITS)
        return zlib.decompressobj(_GZIP_OR_ZLIB)

    def _too_large(self) -> APIResponseValidationError:
        return self._unreadable(f"a body of more than {MAX_BODY_BYTES:,} bytes; the rest was not read")

    def _unreadable(self, what: str) -> APIResponseValidationError:
        return APIResponseValidationError(f"HTTP {self._status} with {what}", status_code=self._status)

    def close(self) -> None:
        try:
            self._raw.close()
        finally:
            if self.on_close:
                self.on_close()

    async def aclose(self) -> None:
        try:
            await self._raw.aclose()
        finally:
            if self.on_close:
                self.on_close()


def _take_coding(headers: httpx.Headers) -> str:
    """Remove ``content-encoding``, so that httpx does not decode, and return it; "" if missing."""
    for name, _ in headers.raw:
        if len(name) == 16 and name.lower() == b"content-encoding":
            coding: str = headers.pop("content-encoding").strip().lower()
            return "" if coding == "identity" else coding
    return ""


def send(client: httpx.Client, request: httpx.Request, stream: bool, total_s: float | None) -> httpx.Response:
    """Send a request. Read the response unless it is the requested event stream."""
    ends = None if total_s is None else time.monotonic() + total_s
    outer = inside.enter(ends)
    try:
        return _send(client, request, stream, ends)
    except BaseException as exc:  # noqa: BLE001 - raised without the frames of httpx, which hold the sent headers
        raise exc.with_traceback(None)  # noqa: B904
    finally:
        inside.leave(outer)


def _send(client: httpx.Client, request: httpx.Request, stream: bool, ends: float | None) -> httpx.Response:
    # The client may be the user's: its credentials would replace ours, and a redirect would send our headers elsewhere.
    response = client.send(request, stream=True, auth=None, follow_redirects=False)
    if response.is_closed:  # a transport or a hook of the user has read it
        return response
    try:
        response.stream = _Body(response, ends, _take_coding(response.headers))
        if not (stream and is_event_stream(response.status_code, response.headers.get("content-type"))):
            response.read()
    except BaseException:
        response.close()
        raise
    return response


async def asend(
    client: httpx.AsyncClient, request: httpx.Request, stream: bool, total_s: float | None
) -> httpx.Response:
    """Send a request. Read the response unless it is the requested event stream."""
    ends = None if total_s is None else time.monotonic() + total_s
    try:
        if total_s is None:
            return await _asend(client, request, stream, None)
        with anyio.fail_after(total_s):
            return await _asend(client, request, stream, ends)
    except TimeoutError:
        error: BaseException = httpx.ReadTimeout(OUT_OF_TIME)
    except BaseException as exc:  # noqa: BLE001 - raised below
        error = exc
    raise error.with_traceback(None)  # without the frames of httpx, which hold the sent headers


async def _asend(client: httpx.AsyncClient, request: httpx.Request, stream: bool, ends: float | None) -> httpx.Response:
    response = await client.send(request, stream=True, auth=None, follow_redirects=False)
    if response.is_closed:
        return response
    try:
        response.stream = _Body(response, ends, _take_coding(response.headers))
        if not (stream and is_event_stream(response.status_code, response.headers.get("content-type"))):
            await response.aread()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await response.aclose()
        raise
    return response
