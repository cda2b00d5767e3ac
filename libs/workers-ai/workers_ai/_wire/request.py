"""A request as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from workers_ai.types import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx
    from pydantic import SecretStr

    from workers_ai._settings.gateway import GatewayOptions

__all__ = ["ReplyContext", "Request"]


class Request(NamedTuple):
    """One HTTP request to the service, before account, token and host are added.

    Attributes:
        path: Path after ``.../ai/``, such as ``"run/@cf/baai/bge-m3"`` or ``"v1/chat/completions"``.
        body: JSON body; None for a request without one.
        model: The model, for errors and for the shared limiter.
        task: The task, for the shared limiter: ``"chat"``, ``"embeddings"``, ``"rerank"`` or ``"catalogue"``.
        method: HTTP method.
        query: Query string without ``?``.
        headers: Headers of this request alone; a value may be masked.
        timeout: Timeout of this request in place of the client's own: seconds or an ``httpx.Timeout``.
        gateway: AI Gateway options of this request in place of the client's own.
        total_s: Seconds that the exchange may take in all; None for no bound.
    """

    path: str
    body: JSON
    model: str
    task: str
    method: str = "POST"
    query: str = ""
    headers: Mapping[str, str | SecretStr] = {}
    timeout: float | httpx.Timeout | None = None
    gateway: GatewayOptions | None = None
    total_s: float | None = None


class ReplyContext(NamedTuple):
    """What of the request is needed to read its reply.

    Attributes:
        model: The model asked for.
        known_ids: Tool-call ids the conversation has used already.
        forced: Parameter schemas by name of the tools one of which was forced; empty when none was.
        json_mode: Whether ``response_format`` or ``guided_json`` was sent.
        max_tokens: Output bound in force, or None where it is not known.
        thinking_off: Whether the request turned thinking off.
    """

    model: str
    known_ids: frozenset[str] = frozenset()
    forced: Mapping[str, JSON] = {}
    json_mode: bool = False
    max_tokens: int | None = None
    thinking_off: bool = False
