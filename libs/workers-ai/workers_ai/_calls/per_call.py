"""Settings of one call, which replace those of the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from workers_ai._settings.checks import check_setting, masked_headers
from workers_ai._settings.gateway import GatewayOptions, gateway_options
from workers_ai._settings.keywords import ALIASES, PER_CALL
from workers_ai._settings.settings import session_headers
from workers_ai._validation import require, require_kind

if TYPE_CHECKING:
    import httpx
    from pydantic import SecretStr

    from workers_ai._settings.settings import Settings
    from workers_ai._wire.json_types import JSON
    from workers_ai._wire.request import Request

__all__ = ["PER_CALL", "Overrides", "override"]


_REPLACED: Final = ("timeout", "total_timeout", "max_retries", "on_busy", "session_id")
"""Settings of a client that a call replaces as they are."""


class Overrides(NamedTuple):
    """Settings of one call that change its requests.

    Attributes:
        headers: Extra headers, values masked.
        body: Fields added to the body.
        timeout: Timeout in seconds, or an ``httpx.Timeout``.
        gateway: AI Gateway options.
    """

    headers: Mapping[str, str | SecretStr] = {}
    body: Mapping[str, JSON] = {}
    timeout: float | httpx.Timeout | None = None
    gateway: GatewayOptions | None = None

    def apply(self, request: Request) -> Request:
        """Return ``request`` with these overrides."""
        if self.body and isinstance(request.body, dict):
            request = request._replace(body=self._with_fields(request.body, request.path))
        headers = {**request.headers, **self.headers} if self.headers else request.headers
        return request._replace(headers=headers, timeout=self.timeout, gateway=self.gateway)

    def _with_fields(self, body: Mapping[str, JSON], path: str) -> dict[str, JSON]:
        """Return a body with the added fields: in the input of the shared route, and in each request of a batch."""
        if path == "run":
            given = body["input"]
            return {**body, "input": {**given, **self.body} if isinstance(given, dict) else dict(self.body)}
        if isinstance(requests := body.get("requests"), list):
            return {**body, "requests": [{**one, **self.body} if isinstance(one, dict) else one for one in requests]}
        return dict(body) if "request_id" in body else {**body, **self.body}

    def over(self, earlier: Overrides | None) -> Overrides:
        """Return these overrides, and those of ``earlier`` that they do not replace."""
        if earlier is None:
            return self
        return Overrides(
            headers={**earlier.headers, **self.headers},
            body={**earlier.body, **self.body},
            timeout=earlier.timeout if self.timeout is None else self.timeout,
            gateway=self.gateway or earlier.gateway,
        )


def override(settings: Settings, given: Mapping[str, object]) -> tuple[Settings, Overrides]:
    """Return the settings of one call, and the overrides for its requests.

    Args:
        settings: Settings of the client.
        given: Keywords of :data:`PER_CALL`.

    Raises:
        ConfigurationError: A value is malformed, or a setting is given twice.
    """
    named: dict[str, Any] = {}
    for keyword, value in given.items():
        name = ALIASES.get(keyword, keyword)
        require(name not in named, f"{name} was passed twice, once as {keyword}: pass it once")
        if value is not None:
            named[name] = value
    changed: dict[str, Any] = {name: check_setting(name, named[name]) for name in _REPLACED if name in named}
    if named.get("reject_if_busy"):
        changed["on_busy"] = "raise"
    gateway = _gateway_of_call(named.get("gateway"), settings.gateway)
    if gateway is not None:
        changed["gateway"] = gateway
    extra = masked_headers("extra_headers", named.get("extra_headers"))
    if extra:
        changed["default_headers"] = {**settings.default_headers, **extra}
    body = named.get("extra_body")
    require_kind("extra_body", body, Mapping, "a dict of body fields")
    return replace(settings, **changed), Overrides(
        headers={**session_headers(changed.get("session_id")), **extra},
        body=dict(body or {}),
        timeout=changed.get("timeout"),
        gateway=gateway,
    )


def _gateway_of_call(given: Any, default: GatewayOptions | None) -> GatewayOptions | None:
    """Return the gateway options of one call. A mapping without ``id`` changes some of the client's options."""
    if isinstance(given, Mapping) and "id" not in given and default is not None:
        try:
            return replace(default, **given)
        except TypeError:
            return gateway_options({"id": default.id, **given})  # raises an error that includes the unknown option
    return gateway_options(given)
