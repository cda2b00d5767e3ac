"""AI Gateway options."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, cast

from pydantic import SecretStr

from workers_ai._settings.masking import masked_text, masks_fields
from workers_ai._validation import check_header, require, require_int, require_kind, require_one_of
from workers_ai.errors import ConfigurationError

__all__ = ["GATEWAY_OPTIONS", "GatewayOptions", "gateway_options"]

_GATEWAY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@masks_fields(token=masked_text)
@dataclass(frozen=True)
class GatewayOptions:
    """AI Gateway routing, sent as ``cf-aig-*`` headers.

    Sources: https://developers.cloudflare.com/ai-gateway/configuration/caching/ and
    https://developers.cloudflare.com/ai-gateway/configuration/request-handling/.

    Args:
        id: Id of the gateway.
        token: Token of an authenticated gateway.
        cache_ttl_s: Seconds that a response stays in the gateway's cache: 60 to 2,592,000 (30 days).
        skip_cache: Do not read or write the gateway's cache.
        cache_key: Cache key in place of one computed from the request.
        metadata: At most 5 entries for the gateway's log.
        collect_log: Whether the gateway logs the request.
        event_id: Your own id of the request in the log.
        request_timeout_ms: Milliseconds that the gateway waits for the first byte.
        max_attempts: Tries by the gateway: 1 to 5.
        retry_delay_ms: Milliseconds between the gateway's tries: at most 5,000.
        backoff: Growth of that delay: constant, linear or exponential.
        allowed_models: Models that the Auto Router (model ``"cloudflare/auto"``) may choose, such as
            ``["@cf/*"]``; see https://developers.cloudflare.com/ai-gateway/features/auto-router/.

    Raises:
        ConfigurationError: A value has the wrong type, is out of range, or cannot be sent in a header.
    """

    id: str
    token: SecretStr | str | None = field(default=None, repr=False)
    cache_ttl_s: int | None = None
    skip_cache: bool | None = None
    cache_key: str | None = None
    metadata: Mapping[str, str | int | float | bool | None] | None = None
    collect_log: bool | None = None
    event_id: str | None = None
    request_timeout_ms: int | None = None
    max_attempts: int | None = None
    retry_delay_ms: int | None = None
    backoff: Literal["constant", "linear", "exponential"] | None = None
    allowed_models: Sequence[str] | None = None

    def __post_init__(self) -> None:
        require(
            isinstance(self.id, str) and bool(_GATEWAY_ID.fullmatch(self.id)),
            f"gateway id {self.id!r:.80} must have 1 to 64 letters, digits, - or _",
        )
        require_kind("gateway token", self.token, SecretStr, "text")
        require_int("gateway cache_ttl_s", self.cache_ttl_s, 60, 2_592_000)
        require_int("gateway max_attempts", self.max_attempts, 1, 5)
        require_int("gateway retry_delay_ms", self.retry_delay_ms, 0, 5_000)
        require_int("gateway request_timeout_ms", self.request_timeout_ms, 1, None)
        for name in ("skip_cache", "collect_log"):
            require_kind(f"gateway {name}", getattr(self, name), bool, "true or false")
        for name in ("cache_key", "event_id"):
            require_kind(f"gateway {name}", getattr(self, name), str, "text")
        self._check_metadata()
        models = self.allowed_models
        require(
            models is None or (isinstance(models, Sequence) and not isinstance(models, str) and _are_texts(models)),
            "gateway allowed_models must be a list of model ids",
        )
        if self.backoff is not None:
            require_one_of("gateway backoff", self.backoff, ("constant", "linear", "exponential"))
        for name, value in self.headers().items():
            check_header(name, value)

    def _check_metadata(self) -> None:
        require_kind("gateway metadata", self.metadata, Mapping, "a mapping of names to values")
        metadata = self.metadata or {}
        require(len(metadata) <= 5, "gateway metadata may have at most 5 entries")
        require(
            _are_texts(metadata) and all(map(_is_plain, metadata.values())),
            "gateway metadata must map texts to texts, finite numbers, true, false or None",
        )

    def headers(self) -> dict[str, str]:
        """Return the headers of the options that are set."""
        values: dict[str, object] = {
            "cf-aig-gateway-id": self.id,
            "cf-aig-cache-ttl": self.cache_ttl_s,
            "cf-aig-skip-cache": self.skip_cache,
            "cf-aig-cache-key": self.cache_key,
            "cf-aig-metadata": json.dumps(dict(self.metadata)) if self.metadata else None,
            "cf-aig-collect-log": self.collect_log,
            "cf-aig-event-id": self.event_id,
            "cf-aig-request-timeout": self.request_timeout_ms,
            "cf-aig-max-attempts": self.max_attempts,
            "cf-aig-retry-delay": self.retry_delay_ms,
            "cf-aig-backoff": self.backoff,
            "cf-aig-allowed-models": ",".join(self.allowed_models) if self.allowed_models else None,
        }
        if isinstance(self.token, SecretStr):
            values["cf-aig-authorization"] = f"Bearer {self.token.get_secret_value()}"
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in values.items()
            if value is not None
        }


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_plain(value: object) -> bool:
    """Return whether a value is null, a text, a finite number, or a boolean."""
    return value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))


GATEWAY_OPTIONS: Final = frozenset(item.name for item in fields(GatewayOptions))


def gateway_options(given: GatewayOptions | Mapping[str, object] | str | None) -> GatewayOptions | None:
    """Return options for a gateway's id, or for a mapping of options (the form in dumps and files).

    Raises:
        ConfigurationError: An option is unknown or malformed, or ``id`` is missing.
    """
    if isinstance(given, str):
        return GatewayOptions(given)
    if isinstance(given, Mapping):
        if unknown := given.keys() - GATEWAY_OPTIONS:
            options = ", ".join(sorted(GATEWAY_OPTIONS))
            raise ConfigurationError(f"gateway has no option {min(unknown)!r}; options are {options}")
        require("id" in given, "gateway has no id: add the key 'id'")
        return GatewayOptions(**cast("dict[str, Any]", given))
    require_kind("gateway", given, GatewayOptions, "an id or GatewayOptions")
    return given
