"""Keywords of clients and calls, as typed dictionaries: editors complete them, and the checks use their names.

``SettingKeywords`` is the only list of settings. :class:`~workers_ai.Settings` holds their checked values, and
``workers_ai.integration.ConnectionFields`` has them as pydantic fields. ``tests/core/test_keywords.py`` compares the
three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    import httpx
    from pydantic import SecretStr

    from workers_ai._settings.gateway import GatewayOptions
    from workers_ai._settings.urls import BatchWorker
    from workers_ai._validation import OnBusy
    from workers_ai.types import JSON

__all__ = [
    "ALIASES",
    "PER_CALL",
    "SETTINGS",
    "CallKeywords",
    "ClientKeywords",
    "Gateway",
    "SettingKeywords",
    "Timeout",
]

Timeout: TypeAlias = "float | httpx.Timeout | Sequence[float | None] | Mapping[str, float | None]"
"""Seconds, an ``httpx.Timeout``, ``(connect, read)``, ``(connect, read, write, pool)``, or a mapping of these names."""
Gateway: TypeAlias = "GatewayOptions | Mapping[str, object] | str"
"""A gateway's id, its options, or the options as plain data."""


class SettingKeywords(TypedDict, total=False):
    """Settings of a client. None selects the default. Account, token, URL and gateway may come from the environment."""

    account_id: str | None
    """Cloudflare account id; else ``CLOUDFLARE_ACCOUNT_ID`` or ``CF_ACCOUNT_ID``, or the account in ``base_url``."""
    api_token: SecretStr | str | None
    """API token with the permission Workers AI Read; else ``CLOUDFLARE_API_TOKEN``, ``CLOUDFLARE_AUTH_TOKEN``,
    ``CF_AI_API_TOKEN`` or ``CF_API_TOKEN``."""
    base_url: str | None
    """URL up to and including ``/client/v4``, or an AI Gateway URL ``.../v1/ACCOUNT/GATEWAY``; else
    ``CLOUDFLARE_BASE_URL``. A URL of the account (``.../client/v4/accounts/ACCOUNT/ai/v1``) is accepted, too."""
    gateway: Gateway | None
    """AI Gateway: an id, or options; else ``CLOUDFLARE_AI_GATEWAY``."""
    timeout: Timeout | None
    """Maximum seconds without data from the service. Default 300, and 10 to connect."""
    total_timeout: float | None
    """Maximum seconds for one call, including waits and retries. Default: no bound."""
    max_retries: int | None
    """Tries after the first. Default 2; 0 sends exactly one request."""
    on_busy: OnBusy
    """What to do when the service is at capacity: ``"wait"`` in its capacity queue (the default), ``"retry"`` with
    backoff, or ``"raise"`` :class:`~workers_ai.errors.CapacityError`."""
    reject_if_busy: bool | None
    """Alias: True means ``on_busy="raise"``."""
    max_concurrency: int | None
    """Requests in flight per object. Default: 8 for embeddings, reranking and the queue; no bound for chat."""
    session_id: str | None
    """Sent as ``x-session-affinity``, which keeps the prefix of a session cached."""
    default_headers: Mapping[str, str | SecretStr] | None
    """Extra headers of every request; masked like the token."""
    requests_per_minute: int | Literal["documented"] | None
    """Limit of the account per task, shared by all objects of the process; ``"documented"`` uses the limits that
    Cloudflare documents. It applies in addition to a framework's own ``rate_limiter``, which counts the calls of one
    object."""
    batch_worker: BatchWorker | Mapping[str, object] | str | None
    """URL of a deployed Worker that serves as the asynchronous queue, or URL and headers."""
    allow_insecure_http: bool
    """Allow plain http to a host that is not a loopback host."""


class ClientKeywords(SettingKeywords, total=False):
    """Settings of a client, and aliases that other libraries use."""

    api_key: SecretStr | str | None
    """Alias of ``api_token``."""
    auth_token: SecretStr | str | None
    """Alias of ``api_token``."""
    api_base: str | None
    """Alias of ``base_url``."""
    request_timeout: Timeout | None
    """Alias of ``timeout``."""


class CallKeywords(TypedDict, total=False):
    """Settings of one call. None keeps the client's value."""

    timeout: Timeout | None
    """Maximum seconds without data from the service."""
    request_timeout: Timeout | None
    """Alias of ``timeout``."""
    total_timeout: float | None
    """Maximum seconds for the call, including waits and retries."""
    max_retries: int | None
    """Tries after the first."""
    on_busy: OnBusy | None
    """What to do when the service is at capacity: ``"wait"``, ``"retry"`` or ``"raise"``."""
    reject_if_busy: bool | None
    """Alias: True means ``on_busy="raise"``."""
    session_id: str | None
    """Sent as ``x-session-affinity``."""
    gateway: Gateway | None
    """AI Gateway: an id, options, or a mapping without ``id`` that changes some of the client's options."""
    extra_headers: Mapping[str, str | SecretStr] | None
    """Headers of this call; masked like the token."""
    extra_body: Mapping[str, JSON] | None
    """Fields added to the request body as they are."""


SETTINGS: Final = tuple(SettingKeywords.__annotations__)
"""Names of all settings."""
PER_CALL: Final = frozenset(CallKeywords.__annotations__)
"""Names of the settings of one call."""
ALIASES: Final = {
    "api_key": "api_token",
    "auth_token": "api_token",
    "api_base": "base_url",
    "request_timeout": "timeout",
}
"""Other names of settings."""
