"""HTTP clients: made at the first request, one for sync and one for each running event loop.

They close with their owner, or with their loop.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote
from urllib.request import getproxies

from workers_ai._settings.urls import is_loopback, reveal
from workers_ai._wire.json_parsing import parse_body, replace_lone_surrogates
from workers_ai.errors import BadRequestError, ConfigurationError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable
    from types import ModuleType

    import httpx

    from workers_ai._settings.settings import Settings
    from workers_ai._wire.request import Request
    from workers_ai.types import JSON

__all__ = ["PARSED", "HttpTransport", "body_text", "parsed", "running_loop", "untie"]

PARSED: Final = "workers_ai_json"
"""Extension of a response that holds its body as parsed JSON."""

AnyClient = TypeVar("AnyClient")

_PATH_SAFE = "/@:+,;=!$&'()*~"
_URLS_KEPT = 256


@functools.cache
def _bodies() -> ModuleType:
    """The module that reads replies; it imports httpx, so not before the first call."""
    from workers_ai._transports import bodies

    return bodies


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """One TLS context for all clients: reading the certificates takes longer than everything else together."""
    import httpx

    return httpx.create_ssl_context()


def _make_client(make: Callable[..., AnyClient], headers: httpx.Headers, settings: Settings) -> AnyClient:
    """Make a client.

    Raises:
        ConfigurationError: httpx cannot use a variable of the environment; names all that it reads.
    """
    import httpx

    try:
        return make(headers=headers, **_client_options(settings))
    except (ValueError, ImportError, OSError, httpx.InvalidURL) as exc:
        # A proxy's URL may hold a password, which the message can quote.
        reason = type(exc).__name__ if any("@" in url for url in getproxies().values()) else str(exc)
    names = "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
    raise ConfigurationError(f"no HTTP client can be made with this environment ({reason}): check {names}")


def _client_options(settings: Settings) -> dict[str, Any]:
    """Options of the clients made here.

    There is no bound of connections: ``max_concurrency`` is one. This machine is never reached through a proxy.
    """
    import httpx

    return {
        "verify": _tls_context(),
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=100),
        "trust_env": not is_loopback(httpx.URL(settings.base_url).host),
    }


_transports: weakref.WeakSet[HttpTransport] = weakref.WeakSet()


class HttpTransport:
    """Sends requests with httpx. Pickles and copies carry the settings and no open client.

    Args:
        settings: Where to, and with which credentials.
        http_client: The user's own sync client; used as it is, never closed.
        http_async_client: The user's own async client; used as it is, never closed.
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
        self._lock = threading.RLock()  # a finalizer that makes a call may interrupt its holder
        self._sync: httpx.Client | None = None
        self._loops: weakref.WeakKeyDictionary[Any, _LoopClient] = weakref.WeakKeyDictionary()
        self._urls: dict[tuple[str, str], httpx.URL] = {}
        _transports.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings, "_own_sync": None, "_own_async": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def __copy__(self) -> HttpTransport:
        return HttpTransport(self._settings, self._own_sync, self._own_async)

    def __deepcopy__(self, memo: dict[int, Any]) -> HttpTransport:
        return self.__copy__()

    def send(self, request: Request, stream: bool) -> httpx.Response:
        """Send one request; the body is read unless it is the event stream that was asked for."""
        client = self._own_sync or self._sync or self._make_sync()
        response: httpx.Response = _bodies().send(client, self._build(client, request), stream, request.total_s)
        return response

    async def asend(self, request: Request, stream: bool) -> httpx.Response:
        """Send one request; the body is read unless it is the event stream that was asked for."""
        client = self._own_async or (await self._loop_client()).client
        ready = self._build(client, request)
        response: httpx.Response = await _bodies().asend(client, ready, stream, request.total_s)
        return response

    def _build(self, client: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
        import httpx

        is_own = client is self._own_sync or client is self._own_async
        headers = self._headers() if is_own else client.headers
        if request.headers or request.gateway:
            headers = self._headers_of(request, headers)
        timeout = None
        if request.timeout is not None or request.total_s is not None:
            timeout = self._timeout_of(request)
        args: Any = (request.method, self._url(request.path, request.query))

        def written(body: JSON) -> httpx.Request:
            if is_own:  # its headers, cookies and parameters are the user's
                return client.build_request(*args, json=body, headers=headers, timeout=timeout or self._timeout)
            extensions = {"timeout": timeout.as_dict()} if timeout else self._extensions
            return httpx.Request(*args, json=body, headers=headers, extensions=extensions)

        try:
            return written(request.body)
        except UnicodeEncodeError:  # half a letter, as scraped pages and names of files have, costs no more than itself
            return written(replace_lone_surrogates(request.body))
        except (TypeError, ValueError, RecursionError) as exc:
            raise BadRequestError(f"the request cannot be written as JSON: {exc}", model=request.model) from None

    def _headers_of(self, request: Request, usual: httpx.Headers) -> httpx.Headers:
        """The usual headers with those of one request; gateway options of a request replace the client's own."""
        headers = usual.copy()
        headers.update({name: reveal(value) for name, value in request.headers.items()})
        if request.gateway:
            for name in [name for name in headers if name.startswith("cf-aig-") and name not in request.headers]:
                del headers[name]
            headers.update(request.gateway.headers())
        elif self._settings.gateway:  # outranks the gateway that a route falls back to
            headers["cf-aig-gateway-id"] = self._settings.gateway.id
        return headers

    def _url(self, path: str, query: str) -> httpx.URL:
        """The URL of a path; parsing one takes longer than the rest of building a request, and there are few."""
        import httpx

        url = self._urls.get((path, query))
        if url is None:
            text = f"{self._settings.root}/{quote(path, safe=_PATH_SAFE)}"
            try:
                url = httpx.URL(f"{text}?{query}" if query else text)
            except httpx.InvalidURL as exc:
                raise BadRequestError(f"the request has no valid URL: {exc}") from None
            if len(self._urls) < _URLS_KEPT:
                self._urls[path, query] = url
        return url

    @functools.cached_property
    def _headers(self) -> Callable[[], httpx.Headers]:
        """Gives the headers of every request: behind a function, so that no dump of this object shows them."""
        import httpx

        headers = httpx.Headers({"accept-encoding": "gzip, deflate", **self._settings.headers()})
        return lambda: headers

    @functools.cached_property
    def _timeout(self) -> httpx.Timeout:
        return self._as_timeout(self._settings.timeout)

    def _timeout_of(self, request: Request) -> httpx.Timeout:
        """The timeout of one request; no part of it outlasts the bound of the whole exchange."""
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

    @functools.cached_property
    def _extensions(self) -> dict[str, Any]:
        return {"timeout": self._timeout.as_dict()}

    def _make_sync(self) -> httpx.Client:
        import httpx

        with self._lock:
            if self._sync is None:
                self._sync = _make_client(httpx.Client, self._headers(), self._settings)
                # Not at exit: handlers that were registered with atexit may still make calls.
                weakref.finalize(self, self._sync.close).atexit = False
            return self._sync

    async def _loop_client(self) -> _LoopClient:
        loop = running_loop()
        held = self._loops.get(loop)
        if held is None:
            held = _LoopClient(self._headers(), self._settings)
            for ref in self._loops.keyrefs():
                other = ref()
                # Closed without the shutdown of its generators; trio's loops cannot be asked, and need not be.
                if isinstance(other, asyncio.AbstractEventLoop) and other.is_closed():
                    self._loops.pop(other, None)
            self._loops[loop] = held
            await held.open(weakref.WeakMethod(self._forget), loop)
        return held

    def _forget(self, loop: Any) -> None:
        self._loops.pop(loop, None)

    def close(self) -> None:
        """Close the sync client that was made here; the next request makes a new one."""
        with self._lock:
            client, self._sync = self._sync, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the async client of the running event loop that was made here."""
        held = self._loops.get(running_loop())
        if held is not None:
            await held.close()


def _after_fork() -> None:
    """Leave the parent's connections to the parent: two processes on one of them would get each other's replies."""
    for transport in list(_transports):
        transport._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _LoopClient:
    """An async client for one event loop; the client closes with the loop.

    A loop that shuts down closes the async generators that were begun on it, and so the client, which lives in one.
    """

    def __init__(self, headers: httpx.Headers, settings: Settings) -> None:
        import httpx

        self.client = _make_client(httpx.AsyncClient, headers, settings)

    async def open(self, forget: weakref.WeakMethod[Callable[[Any], None]], loop: Any) -> None:
        self._life = _life(self.client, forget, loop)
        await anext(self._life)

    async def close(self) -> None:
        await self._life.aclose()


async def _life(
    client: httpx.AsyncClient, forget: weakref.WeakMethod[Callable[[Any], None]], loop: Any
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if (forget_now := forget()) is not None:  # else its owner is gone, and the list with it
            forget_now(loop)
        await client.aclose()


def running_loop() -> Any:
    """The running event loop: asyncio's, or trio's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token()


def parsed(response: httpx.Response) -> JSON:
    """The body of a reply that has been read; parsed once, since results of the queue are large.

    Raises:
        ValueError: It is no JSON.
    """
    if PARSED not in response.extensions:
        response.extensions[PARSED] = parse_body(response.content)
    return response.extensions[PARSED]


def body_text(response: httpx.Response) -> str:
    """Return the body of a response as text: UTF-8, else what its header says, if that is a character set."""
    content = response.content
    try:
        return content.decode()
    except UnicodeDecodeError:
        pass
    try:
        return content.decode(response.encoding or "utf-8", errors="replace")
    except (LookupError, ValueError):
        return content.decode(errors="replace")


def untie(response: httpx.Response) -> None:
    """Let a body that has been read and parsed be freed at once.

    httpx ties a reply and its stream to each other, so that it would stay, large as a result of the queue may be, until
    the next garbage collection.
    """
    import httpx

    response.stream = httpx.ByteStream(response.content)
    response.extensions.pop(PARSED, None)
