"""Replies of httpx: bounded in decoded size and in time, and closed only where no lock of httpx can be held."""

from __future__ import annotations

import threading
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx

from workers_ai._wire.sse import is_event_stream
from workers_ai.errors import APIResponseValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator

__all__ = ["MAX_BODY_BYTES", "asend", "close", "read_on", "send"]

MAX_BODY_BYTES: int = 256 * 2**20
"""Decoded bytes of one reply at most: many times the largest result of the queue."""

_PIECE_BYTES: Final = 2**20
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_OUT_OF_TIME: Final = "total_timeout ended before the reply was complete"


class _Inside(threading.local):
    """Whether this thread is inside httpx, where it may hold a lock of its connection pool.

    An abandoned stream ends where garbage collection finds it. If that is inside httpx, closing its reply would wait
    for a lock that this thread holds. So it is closed on the way out.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.closing: list[httpx.Response] = []

    def close_all(self) -> None:
        while self.closing and not self.depth:
            with suppress(httpx.HTTPError, OSError):
                self.closing.pop().close()


_inside = _Inside()


def close(response: httpx.Response) -> None:
    """Close a reply, now or as soon as this thread has left httpx."""
    if _inside.depth:
        _inside.closing.append(response)
    else:
        response.close()


def read_on(chunks: Iterator[bytes]) -> bytes:
    """Read the next bytes of a reply; none at its end."""
    inside = _inside
    inside.depth += 1
    try:
        return next(chunks, b"")
    except BaseException as exc:  # noqa: BLE001 - raised as it is
        raise exc.with_traceback(None)  # noqa: B904
    finally:
        inside.depth -= 1
        if inside.closing:
            inside.close_all()


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The bytes of a reply, decoded.

    Raises:
        APIResponseValidationError: There are more than :data:`MAX_BODY_BYTES`, or they came in a coding that was not
            asked for.
        httpx.DecodingError: They do not fit the coding.
        httpx.ReadTimeout: They came too late.
    """

    def __init__(self, response: httpx.Response, ends: float | None) -> None:
        self._raw: Any = response.stream
        self._status = response.status_code
        self._left = MAX_BODY_BYTES
        self._ends = ends
        self._coding = _take_coding(response.headers)
        self._decoder: Any = None
        self._begun = False

    def __iter__(self) -> Generator[bytes, None, None]:
        for chunk in self._raw:
            if self._ends is not None or self._coding:
                yield from self._taken(chunk)
                continue
            self._left -= len(chunk)
            if self._left < 0:
                raise self._too_large()
            yield chunk

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        async for chunk in self._raw:
            if self._ends is not None or self._coding:
                for piece in self._taken(chunk):
                    yield piece
                continue
            self._left -= len(chunk)
            if self._left < 0:
                raise self._too_large()
            yield chunk

    def _taken(self, chunk: bytes) -> Iterator[bytes]:
        if self._ends is not None and time.monotonic() > self._ends:
            raise httpx.ReadTimeout(_OUT_OF_TIME)
        for piece in self._decoded(chunk) if self._coding else (chunk,):
            self._left -= len(piece)
            if self._left < 0:
                raise self._too_large()
            yield piece

    def _decoded(self, chunk: bytes) -> Iterator[bytes]:
        if self._decoder is not None and self._decoder.eof:
            self._left -= len(chunk)  # rubbish behind the end
            return
        full = False
        while chunk or full:
            piece = self._decode(chunk)
            yield piece
            chunk = self._decoder.unconsumed_tail
            full = len(piece) == _PIECE_BYTES

    def _decode(self, chunk: bytes) -> bytes:
        try:
            if self._decoder is None:
                self._decoder = self._make_decoder(chunk)
            piece: bytes = self._decoder.decompress(chunk, _PIECE_BYTES)
        except zlib.error as exc:
            raise httpx.DecodingError(str(exc)) from None
        return piece

    def _make_decoder(self, start: bytes) -> Any:
        if self._coding not in ("gzip", "x-gzip", "deflate"):
            raise APIResponseValidationError(
                f"HTTP {self._status} with content-encoding {self._coding[:100]!r}, which was not asked for: "
                "accept-encoding was gzip, deflate",
                status_code=self._status,
            )
        if self._coding == "deflate" and start[0] & 0x0F != 8:  # some servers leave the header out
            return zlib.decompressobj(-zlib.MAX_WBITS)
        return zlib.decompressobj(_GZIP_OR_ZLIB)

    def _too_large(self) -> APIResponseValidationError:
        return APIResponseValidationError(
            f"HTTP {self._status} with a body of more than {MAX_BODY_BYTES:,} bytes: it was not read further",
            status_code=self._status,
        )

    def close(self) -> None:
        self._raw.close()

    async def aclose(self) -> None:
        await self._raw.aclose()


def _take_coding(headers: httpx.Headers) -> str:
    """Remove ``content-encoding``, so that httpx does not decode, and return it; "" for none."""
    if not any(name.lower() == b"content-encoding" for name, _ in headers.raw):
        return ""
    coding: str = headers.pop("content-encoding").strip().lower()
    return "" if coding == "identity" else coding


def send(client: httpx.Client, request: httpx.Request, stream: bool, total_s: float | None) -> httpx.Response:
    """Send a request, and read its reply unless it is the event stream that was asked for."""
    ends = None if total_s is None else time.monotonic() + total_s
    inside = _inside
    inside.depth += 1
    try:
        return _send(client, request, stream, ends)
    except BaseException as exc:  # noqa: BLE001 - raised as it is
        # The frames of httpx have the headers that were sent.
        raise exc.with_traceback(None)  # noqa: B904
    finally:
        inside.depth -= 1
        if inside.closing:
            inside.close_all()


def _send(client: httpx.Client, request: httpx.Request, stream: bool, ends: float | None) -> httpx.Response:
    # A client of the user: its credentials would outrank ours, and a redirect would take our headers elsewhere.
    response = client.send(request, stream=True, auth=None, follow_redirects=False)
    if response.is_closed:  # a transport or a hook of the user has read it
        return response
    try:
        response.stream = _Body(response, ends)
        if not (stream and is_event_stream(response.status_code, response.headers.get("content-type"))):
            response.read()
    except BaseException:
        response.close()
        raise
    return response


async def asend(
    client: httpx.AsyncClient, request: httpx.Request, stream: bool, total_s: float | None
) -> httpx.Response:
    """Send a request, and read its reply unless it is the event stream that was asked for."""
    ends = None if total_s is None else time.monotonic() + total_s
    try:
        if total_s is None:
            return await _asend(client, request, stream, None)
        with anyio.fail_after(total_s):
            return await _asend(client, request, stream, ends)
    except TimeoutError:
        error: BaseException = httpx.ReadTimeout(_OUT_OF_TIME)
    except BaseException as exc:  # noqa: BLE001 - raised below
        error = exc
    raise error.with_traceback(None)  # the frames of httpx have the headers that were sent


async def _asend(client: httpx.AsyncClient, request: httpx.Request, stream: bool, ends: float | None) -> httpx.Response:
    response = await client.send(request, stream=True, auth=None, follow_redirects=False)
    if response.is_closed:
        return response
    try:
        response.stream = _Body(response, ends)
        if not (stream and is_event_stream(response.status_code, response.headers.get("content-type"))):
            await response.aread()
    except BaseException:
        with anyio.CancelScope(shield=True):
            await response.aclose()
        raise
    return response
