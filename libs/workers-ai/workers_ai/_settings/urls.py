"""Hosts that requests go to: which URLs are fit for it, and the deployed batch Worker as one of them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from workers_ai._validation import check_header, require, require_kind
from workers_ai.errors import ConfigurationError

__all__ = ["BatchWorker", "batch_worker_options", "check_url", "is_loopback", "reveal"]


@dataclass(frozen=True)
class BatchWorker:
    """A deployed Worker that is the queue, in place of the REST route; see :mod:`workers_ai._transports.batch_worker`.

    Args:
        url: URL that ``/batch`` follows, such as ``https://batch.example.workers.dev``.
        headers: Headers the Worker asks for, such as ``{"Authorization": "Bearer ..."}``; masked like the token. The
            API token is never sent to a Worker.

    Raises:
        ConfigurationError: A header cannot be sent.
    """

    url: str
    headers: Mapping[str, SecretStr | str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        require_kind("the url of a BatchWorker", self.url, str, "text")
        require_kind("the headers of a BatchWorker", self.headers, Mapping, "a mapping of names to values")
        object.__setattr__(self, "url", self.url.strip().rstrip("/"))
        for name, value in self.headers.items():
            check_header(name, reveal(value))
        masked = {name: SecretStr(reveal(value)) for name, value in self.headers.items()}
        object.__setattr__(self, "headers", masked)

    def plain_headers(self) -> dict[str, str]:
        """The headers as they are sent."""
        return {name: reveal(value) for name, value in self.headers.items()}


def batch_worker_options(
    given: BatchWorker | Mapping[str, Any] | str | None, allow_insecure_http: bool
) -> BatchWorker | None:
    """The Worker out of its URL, or out of plain data, the form it has in dumps and configuration files."""
    if isinstance(given, str):
        given = BatchWorker(given)
    elif isinstance(given, Mapping):
        require(given.keys() <= {"url", "headers"} and "url" in given, "batch_worker takes url and headers")
        given = BatchWorker(**given)
    require_kind("batch_worker", given, BatchWorker, "a URL or a BatchWorker")
    if given is not None:
        check_url(given.url, allow_insecure_http, "batch_worker", "")
    return given


def check_url(url: str, allow_insecure_http: bool, name: str, hint: str) -> SplitResult:
    """Check a URL and take it apart.

    Args:
        url: The URL.
        allow_insecure_http: Allow plain http to a host that is not this machine.
        name: The setting that holds it.
        hint: Where else it may come from, for the error.

    Raises:
        ConfigurationError: It is no URL, holds what it may not, or is not encrypted.
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
        raise ConfigurationError(f"{name} {shown} may hold no user, query or fragment{hint}")
    if ".." in parts.path.split("/"):
        raise ConfigurationError(f"{name} {shown} may hold no '..'{hint}")
    if parts.scheme == "http" and not allow_insecure_http and not is_loopback(host):
        raise ConfigurationError(f"{name} {shown} is not encrypted: use https, or pass allow_insecure_http=True")
    return parts


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reveal(value: SecretStr | str) -> str:
    """The text behind a value that may be masked."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value
