"""The values that travel between the layers: a call coming in, a reply going out, a refusal."""

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


@dataclass(slots=True)
class Call:
    """One request, read far enough to be routed.

    Attributes:
        method: HTTP method, upper case.
        path: Decoded path.
        segments: The path's segments, decoded one by one, so that ``%2F`` and ``/`` read alike.
        query: Query parameters; the last one wins.
        headers: Request headers.
        body: Raw body.
        route: Name of the route that took the call, for faults and the log.
        model: Id of the model asked for, once known.
        gateway: Name of the AI Gateway it goes through; empty for none.
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

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ServiceError: If the body is missing (3003) or is not JSON (5006).
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
        """The body as a JSON object.

        Raises:
            ServiceError: Like :meth:`json`, or if it is another kind of value (5006).
        """
        value = self.json()
        if not isinstance(value, dict):
            raise ServiceError(400, 5006, f"Bad input: Error: Type mismatch of '/', '{kind_of(value)}' not in 'object'")
        return value

    def flag(self, name: str) -> bool:
        """Whether a query parameter says true."""
        return self.query.get(name, "").lower() in {"true", "1"}


@dataclass(slots=True)
class Reply:
    """What goes back: whole (``body``) or in pieces (``chunks``, bytes between waits).

    Attributes:
        status: HTTP status.
        headers: Reply headers.
        body: The whole body.
        chunks: The pieces of a streamed body.
        on_close: Called once, when a streamed reply was read to its end or given up.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: Iterator[bytes | Wait] | None = None
    on_close: list[Callable[[], None]] = field(default_factory=list)


Layer = Literal["ai", "api", "gateway"]
Spelling = Literal["", "object", "binding", "openai"]


class ServiceError(Exception):
    """The service refuses a request.

    Args:
        status: HTTP status.
        code: Cloudflare's code.
        message: Text without prefix and request id; the envelope adds them.
        layer: Who refuses: the model service (``ai``), the API in front of it (``api``) or the AI Gateway.
        raw: Whether the text goes out without prefix and request id.
        spelling: Odd envelope in place of the layer's own.
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
        spelling: Spelling = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.layer = layer
        self.raw = raw
        self.spelling: Spelling = spelling
        self.headers = headers or {}


class DroppedConnectionError(Exception):
    """The service closes the connection, before a reply or inside one."""


class NotEmulatedError(Exception):
    """A part of the service that this emulator does not have."""


def json_reply(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    """A whole JSON reply."""
    return Reply(status, {"content-type": JSON_TYPE, **(headers or {})}, dumps(body))


def dumps(value: Any) -> bytes:
    """Compact JSON as the service writes it; half a letter is replaced."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def strict_json(text: bytes | str) -> Any:
    """Parse JSON; NaN and Infinity are not JSON.

    Raises:
        ValueError: If the text is not JSON.
    """
    return json.loads(text, parse_constant=_reject_constant)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def kind_of(value: Any) -> str:
    """JSON's name for the type of a value."""
    kinds: tuple[tuple[type, str], ...] = (
        (type(None), "null"),
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")
