"""URLs that requests are sent to: checks of ``base_url``, and the deployed batch Worker."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Required, TypedDict, cast
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from workers_ai._settings.masking import masked_url, masked_values, masks_fields
from workers_ai._validation import check_header, require, require_kind
from workers_ai.errors import ConfigurationError

__all__ = [
    "BatchWorker",
    "batch_worker_options",
    "check_base_url",
    "check_url",
    "is_gateway_url",
    "is_loopback",
    "reveal",
]

_GATEWAY_HOST: Final = "gateway.ai.cloudflare.com"
_GATEWAY_PATH: Final = re.compile(r"/v1/([^/]+)/[^/]+(?:/workers-ai)?")
_GATEWAY_ROUTE: Final = re.compile(r"(/workers-ai)/(?:(?:v1|run)(?:/.*)?|@.*)$")
_ACCOUNT_URL: Final = re.compile(r"(.*?)/accounts/([^/]+)(?:/ai(?:/(?:v1|run)(?:/.*)?)?)?")
"""A URL of the account, up to any route of Workers AI."""
_WORKER_HINT: Final = ": pass a URL such as https://batch.example.workers.dev"


@masks_fields(url=masked_url, headers=masked_values)
@dataclass(frozen=True)
class BatchWorker:
    """A deployed Worker that serves as the asynchronous queue in place of the REST route.

    Args:
        url: URL without the path ``/batch``, such as ``https://batch.example.workers.dev``.
        headers: Headers that the Worker requires, such as ``{"Authorization": "Bearer ..."}``; masked like the token.
            The API token is never sent to a Worker.

    Raises:
        ConfigurationError: The URL is malformed, or a header cannot be sent.
    """

    url: str
    headers: Mapping[str, SecretStr | str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        require(isinstance(self.url, str), f"the url of a BatchWorker must be text, not {type(self.url).__name__}")
        require_kind("the headers of a BatchWorker", self.headers, Mapping, "a mapping of names to values")
        object.__setattr__(self, "url", self.url.strip().rstrip("/"))
        check_url(self.url, True, "batch_worker", "")  # the client that uses it rejects an unencrypted URL
        for name, value in self.headers.items():
            check_header(name, value)
        masked = {name: SecretStr(reveal(value)) for name, value in self.headers.items()}
        object.__setattr__(self, "headers", masked)

    def plain_headers(self) -> dict[str, str]:
        """Return the headers unmasked, as they are sent."""
        return {name: reveal(value) for name, value in self.headers.items()}


class _BatchWorkerKeywords(TypedDict, total=False):
    url: Required[str]
    headers: Mapping[str, SecretStr | str]


def batch_worker_options(
    given: BatchWorker | Mapping[str, object] | str | None, allow_insecure_http: bool
) -> BatchWorker | None:
    """Return the Worker for its URL, or for a mapping of ``url`` and ``headers`` (the form in dumps and files).

    Raises:
        ConfigurationError: The URL or a header is malformed, or the mapping has other keys.
    """
    if isinstance(given, str):
        given = BatchWorker(given)
    elif isinstance(given, Mapping):
        require(
            given.keys() <= {"url", "headers"} and "url" in given,
            "batch_worker must have the key url, and may have the key headers; remove other keys",
        )
        given = BatchWorker(**cast("_BatchWorkerKeywords", given))
    require_kind("batch_worker", given, BatchWorker, "a URL or a BatchWorker")
    if given is not None:
        check_url(given.url, allow_insecure_http, "batch_worker", _WORKER_HINT)
    return given


def check_url(url: str, allow_insecure_http: bool, name: str, hint: str) -> SplitResult:
    """Check a URL and return its parts.

    Args:
        url: The URL.
        allow_insecure_http: Allow plain http to a host that is not a loopback host.
        name: Name of the setting, for the error.
        hint: End of the error message, such as the environment variable to check.

    Raises:
        ConfigurationError: The URL is malformed, has a user, query, fragment or ``..``, or is not encrypted.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port, host.encode("idna")
    except ValueError as exc:
        raise ConfigurationError(f"{name} is malformed ({exc}){hint}") from None
    shown = f"{parts.scheme}://{host}{parts.path}"
    if parts.scheme not in ("http", "https") or not host or re.search(r"[\s\\\x00-\x1f\x7f]", url):
        raise ConfigurationError(f"{name} is not an http(s) URL{hint}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigurationError(f"{name} {shown} must not have a user, query or fragment{hint}")
    if ".." in parts.path.split("/"):
        raise ConfigurationError(f"{name} {shown} must not contain '..'{hint}")
    if parts.scheme == "http" and not allow_insecure_http and not is_loopback(host):
        raise ConfigurationError(f"{name} {shown} is not encrypted: use https, or pass allow_insecure_http=True")
    return parts


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is a loopback host."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reveal(value: SecretStr | str) -> str:
    """Return the text of a value that may be masked."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def is_gateway_url(url: str) -> bool:
    """Return whether ``url`` is an AI Gateway endpoint, whose path contains account and gateway."""
    return bool(_GATEWAY_PATH.fullmatch(urlsplit(url).path))


def check_base_url(url: str, allow_insecure_http: bool) -> tuple[str, str | None]:
    """Return the base URL without account and route, and the account that ``url`` contains.

    URLs of the account, as in the dashboard and the documentation, are accepted:
    ``.../client/v4/accounts/ACCOUNT/ai``, ``.../ai/v1``, ``.../ai/v1/chat/completions``, ``.../ai/run/MODEL``.

    Raises:
        ConfigurationError: The URL is malformed, not encrypted, or not a URL of the API or of AI Gateway.
    """
    parts = check_url(url, allow_insecure_http, "base_url", ": check CLOUDFLARE_BASE_URL")
    shown = f"{parts.scheme}://{parts.hostname}{parts.path}"
    if parts.hostname == _GATEWAY_HOST:
        url = _GATEWAY_ROUTE.sub(r"\1", url)
        gateway = _GATEWAY_PATH.fullmatch(urlsplit(url).path)
        if gateway is None:
            raise ConfigurationError(f"base_url {shown} must be https://{_GATEWAY_HOST}/v1/ACCOUNT/GATEWAY/workers-ai")
        return url, gateway[1]
    account = None
    if found := _ACCOUNT_URL.fullmatch(url):
        url, account = found[1], found[2]
    path = urlsplit(url).path
    fits = path == "/client/v4" if parts.hostname == "api.cloudflare.com" else "/accounts/" not in f"{path}/"
    require(fits, f"base_url {shown} must end with /client/v4; the account and the route are added to it")
    gateway = _GATEWAY_PATH.fullmatch(path)
    return url, account or (gateway[1] if gateway else None)
