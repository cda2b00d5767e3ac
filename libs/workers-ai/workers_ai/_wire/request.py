"""Requests as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from workers_ai._wire.json_types import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx
    from pydantic import SecretStr

    from workers_ai._settings.gateway import GatewayOptions

__all__ = ["ReplyContext", "Request"]


class Request(NamedTuple):
    """One HTTP request to the service, without account, token and host.

    Attributes:
        path: Path after ``.../ai/``, such as ``"run/@cf/baai/bge-m3"`` or ``"v1/chat/completions"``.
        body: JSON body; None for no body.
        model: The model, for errors and for the shared limiter.
        task: The task, for the shared limiter: ``"chat"``, ``"embeddings"``, ``"rerank"``, ``"queue"`` or
            ``"catalogue"``.
        method: HTTP method.
        query: Query string without ``?``.
        headers: Additional headers. A value may be a ``SecretStr``.
        timeout: Seconds or an ``httpx.Timeout``; None for the client's own timeout.
        gateway: AI Gateway options; None for the client's own.
        total_s: Maximum seconds for the whole exchange; None for no limit.
    """

    path: str
    body: Mapping[str, JSON] | None
    model: str
    task: str
    method: str = "POST"
    query: str = ""
    headers: Mapping[str, str | SecretStr] = {}
    timeout: float | httpx.Timeout | None = None
    gateway: GatewayOptions | None = None
    total_s: float | None = None


class ReplyContext(NamedTuple):
    """Facts of a request that the reader of its reply needs.

    Attributes:
        model: Model id of the request.
        known_ids: Tool-call ids that the conversation already contains.
        forced: Parameter schemas, by name, of the tools that the model may choose from for a forced call; empty if no
            call is forced.
        json_mode: Whether ``response_format`` or ``guided_json`` was sent.
        max_tokens: The limit of output tokens; None if unknown.
        thinking_off: Whether the request turned thinking off.
        tools: Names of the tools of the request.
    """

    model: str
    known_ids: frozenset[str] = frozenset()
    forced: Mapping[str, JSON] = {}
    json_mode: bool = False
    max_tokens: int | None = None
    thinking_off: bool = False
    tools: frozenset[str] = frozenset()
