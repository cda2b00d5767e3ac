"""The HTTP transport. It creates clients when needed: for sync calls, and for each running event loop.

The clients are closed with their owner, or with their event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import weakref
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from workers_ai._settings.urls import reveal
from workers_ai._transports import load_bodies
from workers_ai._transports.clients import Clients, SecretHeaders, create_client
from workers_ai._wire.json_parsing import parse_body, replace_lone_surrogates
from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    import httpx

    from workers_ai._settings.settings import Settings
    from workers_ai._wire.json_types import JSON
    from workers_ai._wire.request import Request

__all__ = ["HttpTransport", "body_text", "parsed", "free_body", "running_loop"]

_PATH_SAFE: Final = "/@:+,;=!$&'()*~"
_MAX_CACHED_URLS: Final = 256
_encoder: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


_transports: weakref.WeakSet[HttpTransport] = weakref.WeakSet()


class HttpTransport:
    """Send requests with httpx. Pickles and copies contain the settings, but no open client.

    Args:
        settings: URL, credentials and timeouts.
        http_client: The user's own sync client; never changed or closed.
        http_async_client: The user's own async client; never changed or closed.
    """

    def __init__(
        self,
        settings: Settings,
        http_client: httpx.Client | None = None,
        http_async_client: httpx.AsyncClient | None = None,
    ) -> None:
        self._settings = settings
        self._own_sync = http_client
        self._own_async = http_async_client
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()  # a finalizer that sends a request can interrupt the holder
        self._sync: Clients[httpx.Client] | None = None
        self._loops: weakref.WeakKeyDictionary[object, _LoopClients] = weakref.WeakKeyDictionary()
        self._urls: dict[tuple[str, str], httpx.URL] = {}
        _transports.add(self)

    def __getstate__(self) -> dict[str, object]:
        return {"_settings": self._settings, "_own_sync": None, "_own_async": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._reset()

    def __copy__(self) -> HttpTransport:
        return HttpTransport(self._settings, self._own_sync, self._own_async)

    def __deepcopy__(self, memo: dict[int, object]) -> HttpTransport:
        return self.__copy__()

    def send(self, request: Request, stream: bool) -> httpx.Response:
        """Send one request. Read the response unless it is the requested event stream."""
        send = load_bodies().send
        if (own := self._own_sync) is not None:
            response: httpx.Response = send(own, self._build(own, request), stream, request.total_s)
            return response
        clients = self._sync or self._open_sync()
        client = clients.take()
        try:
            response = send(client, self._build(client, request), stream, request.total_s)
        except BaseException:
            clients.release(client)
            raise
        return clients.release_after(response, client)

    async def asend(self, request: Request, stream: bool) -> httpx.Response:
        """Send one request. Read the response unless it is the requested event stream."""
        send = load_bodies().asend
        if (own := self._own_async) is not None:
            response: httpx.Response = await send(own, self._build(own, request), stream, request.total_s)
            return response
        clients = await self._loop_clients()
        client = clients.take()
        try:
            response = await send(client, self._build(client, request), stream, request.total_s)
        except BaseException:
            clients.release(client)
            raise
        return clients.release_after(response, client)

    def _build(self, client: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
        import httpx

        is_own = client is self._own_sync or client is self._own_async
        headers = self._headers.reveal() if is_own else client.headers
        if request.headers or request.gateway:
            headers = self._headers_of(request, headers)
        timeout = None
        if request.timeout is not None or request.total_s is not None:
            timeout = self._timeout_of(request)
        content = None if request.body is None else _json_bytes(request.body, request.model)
        if content is not None:
            headers = headers.copy()
            headers["content-length"] = str(len(content))
            if "content-type" not in headers:
                headers["content-type"] = "application/json"
        args: Any = (request.method, self._url(request.path, request.query))
        if is_own:  # adds the headers, cookies and parameters of the user's client
            return client.build_request(*args, content=content, headers=headers, timeout=timeout or self._timeout)
        extensions = {"timeout": timeout.as_dict()} if timeout else self._extensions
        # With `content` instead of `stream`, httpx would compute each header again at each request.
        ready = httpx.Request(*args, headers=headers, stream=httpx.ByteStream(content or b""), extensions=extensions)
        ready.read()
        return ready

    def _headers_of(self, request: Request, default: httpx.Headers) -> httpx.Headers:
        """Return ``default`` with the headers of one request. Its gateway options replace those of the client."""
        headers = default.copy()
        headers.update({name: reveal(value) for name, value in request.headers.items()})
        if request.gateway:
            for name in [name for name in headers if name.startswith("cf-aig-") and name not in request.headers]:
                del headers[name]
            headers.update(request.gateway.headers())
        elif self._settings.gateway:  # replaces the default gateway of the route
            headers["cf-aig-gateway-id"] = self._settings.gateway.id
        return headers

    def _url(self, path: str, query: str) -> httpx.URL:
        """Return the URL of a path, cached: parsing it takes longer than the rest of building a request.

        Raises:
            BadRequestError: The URL is invalid.
        """
        import httpx

        url = self._urls.get((path, query))
        if url is None:
            text = f"{self._settings._root}/{quote(path, safe=_PATH_SAFE)}"
            try:
                url = httpx.URL(f"{text}?{query}" if query else text)
            except httpx.InvalidURL as exc:
                raise BadRequestError(
                    f"the URL of the request is invalid: {exc}. Check base_url and the model id"
                ) from None
            if len(self._urls) < _MAX_CACHED_URLS:
                self._urls[path, query] = url
        return url

    @cached_property
    def _headers(self) -> SecretHeaders:
        """The headers of every request."""
        import httpx

        return SecretHeaders(httpx.Headers({"accept-encoding": "gzip, deflate", **self._settings._headers()}))

    @cached_property
    def _timeout(self) -> httpx.Timeout:
        return self._as_timeout(self._settings.timeout)

    def _timeout_of(self, request: Request) -> httpx.Timeout:
        """Return the timeout of one request. No part of it exceeds the bound of the whole exchange."""
        import httpx

        timeout = self._timeout if request.timeout is None else self._as_timeout(request.timeout)
        if (total := request.total_s) is None:
            return timeout
        return httpx.Timeout(
            **{name: total if part is None else min(part, total) for name, part in timeout.as_dict().items()}
        )

    def _as_timeout(self, timeout: float | httpx.Timeout) -> httpx.Timeout:
        import httpx

        from workers_ai._settings.settings import CONNECT_TIMEOUT_S

        if isinstance(timeout, httpx.Timeout):
            return timeout
        return httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT_S))

    @cached_property
    def _extensions(self) -> dict[str, object]:
        return {"timeout": self._timeout.as_dict()}

    def _open_sync(self) -> Clients[httpx.Client]:
        import httpx

        with self._lock:
            if self._sync is None:
                self._sync = Clients(partial(create_client, httpx.Client, self._headers, self._settings))
                # Not at exit: handlers registered with atexit may still make calls.
                weakref.finalize(self, _close_all, self._sync).atexit = False
            return self._sync

    async def _loop_clients(self) -> Clients[httpx.AsyncClient]:
        loop = running_loop()
        opened = self._loops.get(loop)
        if opened is None:
            opened = _LoopClients(self._headers, self._settings)
            for ref in self._loops.keyrefs():
                other = ref()
                # Closed without a shutdown of its async generators. Trio always shuts them down.
                if isinstance(other, asyncio.AbstractEventLoop) and other.is_closed():
                    self._loops.pop(other, None)
            self._loops[loop] = opened
            await opened.open(weakref.WeakMethod(self._forget), loop)
        return opened.clients

    def _forget(self, loop: object) -> None:
        self._loops.pop(loop, None)

    def close(self) -> None:
        """Close the sync clients that were created here. The next request creates a new one."""
        with self._lock:
            clients, self._sync = self._sync, None
        if clients is not None:
            _close_all(clients)

    async def aclose(self) -> None:
        """Close the async clients of the running event loop that were created here."""
        opened = self._loops.get(running_loop())
        if opened is not None:
            await opened.close()


def _after_fork() -> None:
    """Drop the parent's connections: two processes on one connection would receive each other's responses."""
    for transport in list(_transports):
        transport._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _close_all(clients: Clients[httpx.Client]) -> None:
    for client in clients.created:
        client.close()


class _LoopClients:
    """The async clients of one event loop, closed when the loop shuts down.

    A loop closes its async generators when it shuts down. One of them holds the clients.
    """

    def __init__(self, headers: SecretHeaders, settings: Settings) -> None:
        import httpx

        self.clients = Clients(partial(create_client, httpx.AsyncClient, headers, settings))

    async def open(self, forget: weakref.WeakMethod[Callable[[object], None]], loop: object) -> None:
        self._lifetime = _lifetime(self.clients, forget, loop)
        await anext(self._lifetime)

    async def close(self) -> None:
        await self._lifetime.aclose()


async def _lifetime(
    clients: Clients[httpx.AsyncClient], forget: weakref.WeakMethod[Callable[[object], None]], loop: object
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if (forget_now := forget()) is not None:  # None: the owner was collected
            forget_now(loop)
        for client in clients.created:
            await client.aclose()


def running_loop() -> object:
    """Return the running event loop of asyncio, or the token of trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token()


def parsed(response: httpx.Response) -> JSON:
    """Return the parsed body of a response that has been read.

    Raises:
        ValueError: The body is not JSON.
    """
    body: JSON = getattr(response, "parsed_body", None) if isinstance(response, load_bodies().ParsedResponse) else None
    return parse_body(response.content) if body is None else body


def _json_bytes(body: JSON, model: str) -> bytes:
    """Return the body of a request.

    Raises:
        BadRequestError: A value is not JSON, or is nested too deep.
    """
    try:
        try:
            return _encoder.encode(body).encode()
        except UnicodeEncodeError:  # lone surrogates, as in scraped pages and file names
            return _encoder.encode(replace_lone_surrogates(body)).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise BadRequestError(f"the request cannot be written as JSON: {exc}", model=model) from None


def body_text(response: httpx.Response) -> str:
    """Return the body of a response as text: UTF-8, else the character set of its header."""
    content = response.content
    try:
        return content.decode()
    except UnicodeDecodeError:
        pass
    try:
        return content.decode(response.encoding or "utf-8", errors="replace")
    except (LookupError, ValueError):
        return content.decode(errors="replace")


def free_body(response: httpx.Response) -> None:
    """Free a body that has been read and parsed, without waiting for the garbage collector.

    httpx keeps a reference cycle between a response and its stream; a result of the queue can be large.
    """
    import httpx

    response.stream = httpx.ByteStream(response.content)
