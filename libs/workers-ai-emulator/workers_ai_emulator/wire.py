"""Values that all layers share: a request, a reply, an error."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from workers_ai_emulator.clock import Wait

Json = dict[str, Any]

JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream"
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(slots=True)
class Call:
    """One parsed request.

    Attributes:
        method: HTTP method, upper case.
        path: Decoded path.
        segments: Segments of the path, each decoded separately.
        query: Query parameters. If a parameter is repeated, the last value is used.
        headers: Request headers.
        body: Raw body.
        route: Name of the route, for faults and the log.
        model: Id of the requested model, once it is known.
        gateway: Id of the AI Gateway; empty for no gateway.
        request_id: Uuid of the request, in headers, reply ids and error texts.
    """

    method: str
    path: str
    segments: list[str]
    query: dict[str, str]
    headers: httpx.Headers
    body: bytes
    route: str = ""
    model: str = ""
    gateway: str = ""
    request_id: str = ""
    _json: Any = field(default=None, repr=False)

    @property
    def token(self) -> str:
        """Return the token of the header ``Authorization``, or ""."""
        header: str = self.headers.get("authorization", "")
        return header.partition(" ")[2].strip()

    def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            ServiceError: If the body is missing (3003) or invalid JSON (5006).
        """
        if self._json is None:
            if not self.body:
                raise ServiceError(400, 3003, "Request is missing headers or body: body")
            try:
                self._json = strict_json(self.body)
            except (ValueError, RecursionError):
                raise ServiceError(400, 5006, "Bad input: Error: the body is not valid JSON") from None
        return self._json

    def json_object(self) -> Json:
        """Return the body as a JSON object.

        Raises:
            ServiceError: Like :meth:`json`, or if the value is not an object (5006).
        """
        value = self.json()
        if not isinstance(value, dict):
            raise ServiceError(400, 5006, f"Bad input: Error: Type mismatch of '/', '{kind_of(value)}' not in 'object'")
        return value

    def flag(self, name: str) -> bool:
        """Return whether a query parameter is true."""
        return self.query.get(name, "").lower() in {"true", "1"}


@dataclass(slots=True)
class Reply:
    """One reply: complete (``body``) or streamed (``chunks``: bytes, with waits between them).

    Attributes:
        status: HTTP status.
        headers: Reply headers.
        body: The body of a reply without streaming.
        chunks: The pieces of a streamed body.
        on_close: Callbacks for a streamed reply. They are called once, after it was read to its end or closed.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: Iterator[bytes | Wait] | None = None
    on_close: list[Callable[[], None]] = field(default_factory=list)


Layer = Literal["ai", "api", "gateway"]
Envelope = Literal["", "object", "binding", "openai"]


class ServiceError(Exception):
    """An error response of the service.

    Args:
        status: HTTP status.
        code: Cloudflare's code.
        message: Text without prefix and request id. The envelope adds them.
        layer: Origin of the error: the model service (``ai``), the API in front of it (``api``) or the AI Gateway.
        raw: Whether the text is sent without prefix and request id.
        envelope: Envelope that replaces the default envelope of the layer.
        headers: Extra reply headers.
    """

    def __init__(
        self,
        status: int,
        code: int | None,
        message: str,
        *,
        layer: Layer = "ai",
        raw: bool = False,
        envelope: Envelope = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.layer = layer
        self.raw = raw
        self.envelope: Envelope = envelope
        self.headers = headers or {}


class DroppedConnectionError(Exception):
    """The service drops the connection, before or inside a reply."""


class NotEmulatedError(Exception):
    """A part of the service that is not emulated."""


def json_reply(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    """Return a JSON reply."""
    return Reply(status, {"content-type": JSON_TYPE, **(headers or {})}, dumps(body))


def dumps(value: object) -> bytes:
    """Serialize compact JSON, as the service does. Replace lone surrogates."""
    return _COMPACT.encode(value).encode(errors="replace")


def strict_json(text: bytes | str) -> Any:
    """Parse JSON. Reject NaN and Infinity.

    Raises:
        ValueError: If the text is not JSON.
    """
    return json.loads(text, parse_constant=_reject_constant)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def kind_of(value: object) -> str:
    """Return JSON's name for the type of a value."""
    kinds: tuple[tuple[type, str], ...] = (
        (type(None), "null"),
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")
