"""A transport that uses the ``env.AI`` binding of a Python Worker in place of HTTP.

A request becomes ``env.AI.run(model, inputs, options)``. ``rejectIfBusy``, ``queueRequest``, gateway and session
affinity are passed in ``options``; inside ``inputs`` they would have no effect. Sources: https://developers.cloudflare.com/workers-ai/configuration/bindings/,
https://developers.cloudflare.com/workers-ai/features/batch-api/workers-binding/ and
https://developers.cloudflare.com/workers-ai/features/reject-if-busy/.

Values are passed to and from JavaScript as JSON text: Pyodide converts None to ``undefined`` and a dict to a ``Map``,
which the service does not accept.

The binding returns a parsed answer, a ``ReadableStream`` (for ``stream``, whether or not the model streams), or, with
``returnRawResponse``, a whole ``Response``.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn
from urllib.parse import parse_qsl

import anyio
import httpx

from workers_ai._settings.settings import session_headers
from workers_ai._settings.urls import reveal
from workers_ai._wire.error_mapping import read_error, usual_status
from workers_ai._wire.json_parsing import replace_lone_surrogates
from workers_ai.errors import BadRequestError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from workers_ai._settings.settings import GatewayOptions, Settings
    from workers_ai._wire.json_types import JSON
    from workers_ai._wire.request import Request

__all__ = ["BindingTransport"]

if sys.platform == "emscripten":
    from js import JSON as _JS_JSON

    def _to_js(text: str) -> object:
        return _JS_JSON.parse(text)

    def _to_json(value: object) -> str:
        text = _JS_JSON.stringify(value)
        return text if isinstance(text, str) else "null"  # undefined has no JSON

else:

    def _to_js(text: str) -> object:
        return json.loads(text)

    def _to_json(value: object) -> str:
        return json.dumps(value)


_MODELS: Final = "models/search"


class BindingTransport:
    """Send requests through a binding. Async only. A pickle omits the binding.

    Args:
        settings: Settings resolved for a binding.
        binding: ``env.AI``.

    Raises:
        ConfigurationError: ``binding`` has no ``run``.
    """

    def __init__(self, settings: Settings, binding: Any) -> None:
        if not callable(getattr(binding, "run", None)):
            raise ConfigurationError("binding has no run(): pass env.AI, and declare the AI binding of the Worker")
        self._settings = settings
        self._binding = binding

    def __getstate__(self) -> dict[str, object]:
        return {"_settings": self._settings, "_binding": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def __copy__(self) -> BindingTransport:
        return BindingTransport(self._settings, self._binding)

    def __deepcopy__(self, memo: dict[int, object]) -> BindingTransport:
        return self.__copy__()

    def send(self, request: Request, stream: bool) -> NoReturn:
        """Raise an error. A binding returns promises, and a Worker cannot block on one.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError("a binding has no blocking calls: use AsyncClient, ainvoke, astream, aembed_documents")

    async def asend(self, request: Request, stream: bool) -> httpx.Response:
        """Send one request. A requested stream stays unread.

        Raises:
            ConfigurationError: The object was unpickled and has no binding.
            BadRequestError: The request cannot be written as JSON.
            httpx.ReadTimeout: No answer within ``timeout``.
            httpx.ReadError: The answer was interrupted before its first byte.
        """
        if self._binding is None:
            raise ConfigurationError("a pickle does not contain the binding: set binding= again")
        call = _read_call(request, self._settings)
        timeout_s = _read_timeout_s(self._settings.timeout if request.timeout is None else request.timeout)
        bounds = [bound for bound in (timeout_s, request.total_s) if bound is not None]
        return await self._answer(call, stream, min(bounds, default=None))

    async def _answer(self, call: _Call, stream: bool, timeout_s: float | None) -> httpx.Response:
        try:
            run = self._binding.models if call.path == _MODELS else self._binding.run
            with anyio.fail_after(timeout_s):
                result = await run(*map(_to_js, call.arguments))
                return await _reply(result, stream, timeout_s)
        except TimeoutError as exc:
            raise httpx.ReadTimeout(str(exc)) from None
        except httpx.RequestError:
            raise
        except Exception as exc:  # noqa: BLE001 - the binding throws error responses as text
            return _thrown(exc)

    def close(self) -> None:
        """Do nothing: the binding belongs to the Worker."""

    async def aclose(self) -> None:
        """Do nothing: the binding belongs to the Worker."""


class _Call(NamedTuple):
    path: str
    arguments: Sequence[str]
    """Arguments of ``env.AI.run`` or ``env.AI.models``, each as JSON text."""


def _write(value: JSON) -> str:
    """Return a value as JSON, with lone surrogates replaced, as in an HTTP body."""
    text = json.dumps(value, allow_nan=False)
    return json.dumps(replace_lone_surrogates(value)) if "\\ud" in text else text


def _read_call(request: Request, settings: Settings) -> _Call:
    """Return the call of the binding for one HTTP request."""
    if request.path == _MODELS:
        return _Call(_MODELS, [json.dumps(dict(parse_qsl(request.query)))])
    if request.path == "v1/embeddings":
        raise ConfigurationError("a binding has no route for api='embeddings': omit api=")
    body: dict[str, Any] = dict(request.body or {})
    options = dict(body.pop("options", None) or {})
    if request.path == "run":
        body = body["input"]
    elif request.path.startswith("v1/"):
        body.pop("model", None)
    if "requests" in body and dict(parse_qsl(request.query)).get("queueRequest") == "true":
        options["queueRequest"] = True
    given = {name: reveal(value) for name, value in settings.default_headers.items()}
    own = {name: reveal(value) for name, value in request.headers.items()}
    headers = {**session_headers(settings.session_id), **given, **own}
    gateway_id = headers.pop("cf-aig-gateway-id", None)
    if gateway := request.gateway or settings.gateway:
        options["gateway"] = _gateway(gateway)
        headers = {**_headers_without_option(gateway), **headers}
    elif gateway_id:
        options["gateway"] = {"id": gateway_id}
    if headers:
        options["extraHeaders"] = headers
    try:
        return _Call(request.path, [_write(value) for value in (request.model, body, options)])
    except (TypeError, ValueError) as exc:
        raise BadRequestError(f"the request cannot be written as JSON: {exc}", model=request.model) from None


async def _reply(result: Any, stream: bool, timeout_s: float | None) -> httpx.Response:
    """Convert the result of the binding to a response of the REST route."""
    status, headers, body = 200, {}, result
    if hasattr(result, "arrayBuffer"):  # a Response
        status, body = result.status, result.body
        headers = {name: value for name, value in result.headers.entries() if name.startswith(("cf-", "retry-after"))}
    if not hasattr(body, "getReader"):
        return httpx.Response(status, headers=headers, content=_to_json(body))
    chunks = _Chunks(body.getReader(), timeout_s)
    try:
        if stream and await chunks.begins_with_events():
            return httpx.Response(status, headers={**headers, "content-type": "text/event-stream"}, stream=chunks)
        return httpx.Response(status, headers=headers, content=b"".join([chunk async for chunk in chunks]))
    except BaseException:
        await chunks.aclose()
        raise


def _gateway(options: GatewayOptions) -> dict[str, JSON]:
    """Return the gateway options by the names of the binding. The token is omitted: a binding requires none."""
    retries = {
        "maxAttempts": options.max_attempts,
        "retryDelayMs": options.retry_delay_ms,
        "backoff": options.backoff,
    }
    values = {
        "id": options.id,
        "cacheTtl": options.cache_ttl_s,
        "skipCache": options.skip_cache,
        "cacheKey": options.cache_key,
        "metadata": dict(options.metadata) if options.metadata else None,
        "collectLog": options.collect_log,
        "eventId": options.event_id,
        "requestTimeoutMs": options.request_timeout_ms,
        "retries": {name: value for name, value in retries.items() if value is not None} or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _headers_without_option(options: GatewayOptions) -> dict[str, str]:
    """Return the gateway headers for which the binding has no documented option: the models of the Auto Router."""
    return {name: value for name, value in options.headers().items() if name == "cf-aig-allowed-models"}


def _read_timeout_s(timeout: float | httpx.Timeout) -> float | None:
    return timeout.read if isinstance(timeout, httpx.Timeout) else timeout


def _thrown(exc: Exception) -> httpx.Response:
    """Return the response for a thrown text: ``"<code>: <text>"``, a whole error body, or text without a code.

    The text has no HTTP status. The response has the usual status of the code, or 500 if the code is unknown.
    """
    text = str(getattr(exc, "message", None) or exc)
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"success": False, "errors": [{"message": text}]}
    refusal = read_error(body)
    return httpx.Response(usual_status(refusal and refusal.code, 500), json=body)


class _Chunks(httpx.AsyncByteStream):
    """The bytes of a ``ReadableStream``. Closing it early cancels the generation."""

    def __init__(self, reader: Any, timeout_s: float | None) -> None:
        self._reader = reader
        self._timeout_s = timeout_s
        self._open = True
        self._first = b""

    async def begins_with_events(self) -> bool:
        """Return whether the body is an event stream, and not JSON."""
        while not self._first.strip() and (chunk := await self._read()) is not None:
            self._first += chunk
        return not self._first.lstrip().startswith((b"{", b"["))

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        if self._first:
            yield self._first
        while self._open and (chunk := await self._read()) is not None:
            yield chunk

    async def _read(self) -> bytes | None:
        """Return the next bytes; None at the end."""
        try:
            with anyio.fail_after(self._timeout_s):
                piece = await self._reader.read()
        except TimeoutError as exc:
            raise httpx.ReadTimeout(str(exc)) from None
        except Exception as exc:  # noqa: BLE001 - any exception means an interrupted stream
            self._open = False
            raise httpx.ReadError(str(exc)) from None
        if piece.done:
            self._open = False
            return None
        return piece.value.to_bytes() if hasattr(piece.value, "to_bytes") else bytes(piece.value)

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            with anyio.CancelScope(shield=True):
                await self._reader.cancel()
