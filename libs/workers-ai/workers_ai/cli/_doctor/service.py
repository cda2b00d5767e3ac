"""Checks that send requests: connection, TLS, clock, token, permissions, and one call."""

from __future__ import annotations

import datetime as dt
import email.utils
import socket
import ssl
import time
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import httpx

from workers_ai._settings.urls import is_loopback
from workers_ai.catalogue import USD_PER_NEURON
from workers_ai.cli._doctor.finding import Finding, Status
from workers_ai.cli._doctor.local import token_source
from workers_ai.client import Client
from workers_ai.errors import AuthenticationError, RateLimitError, WorkersAIError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai._settings.settings import Settings

__all__ = ["MODEL", "Service"]

MODEL: Final = "@cf/baai/bge-m3"
_TEXT: Final = "doctor"
_MAX_SKEW_S: Final = 60.0
_SOON: Final = dt.timedelta(days=7)
_EMULATOR_HEADER: Final = "x-workers-ai-emulator"
_GATEWAY_TOKEN: Final = 2009
_NO_ACCOUNT: Final = (7000, 7003)

_TOKENS: Final = "https://dash.cloudflare.com/profile/api-tokens"
_NEW_TOKEN: Final = f'create a token with the template "Workers AI" at {_TOKENS}, and set CLOUDFLARE_API_TOKEN'
_ACCOUNT: Final = (
    "copy the account id from https://dash.cloudflare.com (Copy account ID), and set CLOUDFLARE_ACCOUNT_ID"
)
_PERMISSION: Final = (
    f"edit the token at {_TOKENS}: it needs the permission Workers AI Read for this account; then check "
    "CLOUDFLARE_ACCOUNT_ID"
)
_ERRORS: Final = "look the code up at https://developers.cloudflare.com/workers-ai/platform/errors/, or try again later"
_SKIPPED: Final = tuple(Finding(name, "skipped", "no connection") for name in ("token", "models", "call"))
_SEE_CALL: Final = "see the result of the check 'call'"


class Service:
    """The checks of one run; :meth:`findings` yields them in order.

    Args:
        settings: Checked settings.
        http_client: Client that sends the requests.
    """

    def __init__(self, settings: Settings, http_client: httpx.Client) -> None:
        self._settings = settings
        self._http = http_client

    def findings(self) -> Iterator[Finding]:
        """Yield the result of each check. After a failed connection, the other checks are skipped."""
        began = time.monotonic()
        try:
            response = self._get(f"{self._settings.base_url}/user/tokens/verify")
        except httpx.HTTPError as exc:
            yield from (self._unreachable(exc), *_SKIPPED)
            return
        connection = self._reached(response, time.monotonic() - began)
        yield connection
        if connection.status == "failed":
            yield from _SKIPPED
            return
        yield _tls(response)
        yield _clock(response, time.time())
        token = self._token(response)
        yield token
        yield self._models(token)
        yield self._call(token)

    def _get(self, url: str, **query: str | int) -> httpx.Response:
        return self._http.get(url, params=query, headers=self._settings._headers())

    def _reached(self, response: httpx.Response, seconds: float) -> Finding:
        who = "the emulator (not Cloudflare)" if _EMULATOR_HEADER in response.headers else response.url.host
        if response.is_server_error:
            detail = f"{who} answered with HTTP {response.status_code}"
            return Finding("connection", "warning", detail, "see https://www.cloudflarestatus.com, and try again later")
        if response.is_redirect or "json" not in response.headers.get("content-type", ""):
            detail = f"{who} answered with HTTP {response.status_code} and no JSON"
            remedy = (
                "check CLOUDFLARE_BASE_URL; a proxy or a login page of the network may answer instead of Cloudflare"
            )
            return Finding("connection", "failed", detail, remedy)
        return Finding("connection", "ok", f"{who} answered in {1000 * seconds:.0f} ms")

    def _unreachable(self, exc: httpx.HTTPError) -> Finding:
        problem = _diagnosis(exc, urlsplit(self._settings.base_url).hostname or "")
        return Finding("connection", "failed", self._settings._scrub(problem.detail), problem.remedy)

    def _token(self, response: httpx.Response) -> Finding:
        """Return the state of the token: of a user's token, else of a token that the account owns."""
        source = token_source()
        if self._settings._on_gateway_host:
            return Finding("token", "skipped", f"from {source}; AI Gateway cannot check it: see the check 'call'")
        kind = "user"
        if response.status_code in (401, 403):  # the user's URL rejects tokens that an account owns
            kind = "account"
            url = f"{self._settings.base_url}/accounts/{self._settings.account_id}/tokens/verify"
            try:
                response = self._get(url)
            except httpx.HTTPError as exc:
                return Finding("token", "warning", self._settings._scrub(f"{source}: not checked ({exc!r})"), _SEE_CALL)
        if response.is_success:
            return _state(response, f"{kind} token from {source}")
        if response.status_code == 400:
            detail = f"{source} is not an API token; a Global API Key cannot be used"
            return Finding("token", "failed", detail, _NEW_TOKEN)
        if response.status_code in (401, 403, 404):
            return Finding(
                "token", "failed", f"{source} is rejected: mistyped, revoked, or of another account", _NEW_TOKEN
            )
        return Finding(
            "token",
            "warning",
            f"{source}: the service returned HTTP {response.status_code} instead of the state",
            _SEE_CALL,
        )

    def _models(self, token: Finding) -> Finding:
        """Return whether the token may list models. Calls work without this permission."""
        if self._settings._on_gateway_host:
            return Finding("models", "skipped", "AI Gateway has no list of models")
        if token.status == "failed":
            return Finding("models", "skipped", "the token is not valid")
        try:
            response = self._get(f"{self._settings._root}/models/search", per_page=100)
            rows = response.json().get("result") if response.is_success else None
        except (httpx.HTTPError, ValueError, AttributeError) as exc:
            return Finding("models", "warning", self._settings._scrub(f"cannot be listed ({exc!r})"), _SEE_CALL)
        if isinstance(rows, list):
            return Finding("models", "ok", f"the token may list models ({len(rows)} on the first page)")
        if response.status_code == 404:
            return Finding("models", "failed", f"there is no account {self._settings.account_id}", _ACCOUNT)
        detail = f"the token may not list models (HTTP {response.status_code}); calls may work"
        return Finding("models", "warning", detail, "only `workers-ai models --check` and Client.models need it")

    def _call(self, token: Finding) -> Finding:
        """Return the result of embedding one word."""
        settings = self._settings
        client = Client(
            account_id=settings.account_id, api_token=settings.api_token, base_url=settings.base_url,
            gateway=settings.gateway, timeout=settings.timeout, max_retries=0, on_busy="raise",
            http_client=self._http,
        )  # fmt: skip
        began = time.monotonic()
        try:
            reply = client.embed(MODEL, [_TEXT])
        except WorkersAIError as exc:
            return self._failed_call(exc, token)
        took = f"{MODEL} answered in {1000 * (time.monotonic() - began):.0f} ms"
        neurons = reply.usage.neurons or 0.0 if reply.usage else 0.0
        cost = max(neurons * USD_PER_NEURON, 1e-6)
        return Finding("call", "ok", f"{took} for at most ${cost:.6f}")

    def _failed_call(self, exc: WorkersAIError, token: Finding) -> Finding:
        facts = {"HTTP": exc.status_code, "code": exc.code}
        shown = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
        detail = f"{MODEL}: {exc.message}" + (f" ({shown})" if shown else "")
        status: Status = "failed"
        remedy = " ".join(filter(None, [exc.hint, exc._remedy()])) or _ERRORS
        if isinstance(exc, RateLimitError) and exc.is_retryable:
            status, remedy = "warning", "account and token are valid: try again later"
        elif isinstance(exc, AuthenticationError) and exc.code != _GATEWAY_TOKEN:
            remedy = _NEW_TOKEN if token.status == "failed" else _PERMISSION
        elif exc.code in _NO_ACCOUNT:
            remedy = _ACCOUNT
        return Finding("call", status, detail, remedy)


class _Problem(NamedTuple):
    detail: str
    remedy: str


def _diagnosis(exc: httpx.HTTPError, host: str) -> _Problem:
    """Return why no response arrived: the first known cause in the chain of exceptions."""
    for cause in _causes(exc):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _Problem(
                f"the certificate of {host} is not trusted: {cause.verify_message}",
                "if a proxy or a virus scanner inspects TLS, set SSL_CERT_FILE to a file with its root certificate; "
                "else check the clock",
            )
        if isinstance(cause, ssl.SSLError):
            return _Problem(
                f"no TLS connection to {host}: {cause.reason or cause}",
                "begin CLOUDFLARE_BASE_URL with http:// for a local server; check that no proxy intercepts TLS",
            )
        if isinstance(cause, httpx.ProxyError):
            return _Problem(f"the proxy rejects the connection: {cause}", "check HTTPS_PROXY, its user and NO_PROXY")
        if isinstance(cause, socket.gaierror):
            return _Problem(f"the name {host} cannot be resolved", "check the network, DNS and CLOUDFLARE_BASE_URL")
        if isinstance(cause, ConnectionRefusedError):
            start = "start `workers-ai-emulator`, or unset" if is_loopback(host) else "check"
            return _Problem(f"{host} refuses the connection", f"{start} CLOUDFLARE_BASE_URL")
        if isinstance(cause, httpx.ConnectTimeout):
            return _Problem(
                f"no connection to {host} in time", "a firewall may block it: set HTTPS_PROXY if you need a proxy"
            )
        if isinstance(cause, httpx.TimeoutException):
            return _Problem(f"{host} accepts connections but does not answer", "try again later; check the proxy")
    return _Problem(f"no response from {host}: {exc or type(exc).__name__}", "check the network and the proxy")


def _causes(exc: BaseException | None) -> Iterator[BaseException]:
    while exc is not None:
        yield exc
        exc = exc.__cause__ or exc.__context__


def _tls(response: httpx.Response) -> Finding:
    """Return the TLS version and the issuer of the certificate. The name of a company indicates an inspecting proxy."""
    if response.url.scheme != "https":
        return Finding("tls", "skipped", "base_url is plain http")
    stream = response.extensions.get("network_stream")
    tls = stream and stream.get_extra_info("ssl_object")
    if tls is None:
        return Finding("tls", "ok", "verified")
    certificate = tls.getpeercert() or {}
    issuer = dict(pair for group in certificate.get("issuer", ()) for pair in group)
    until = certificate.get("notAfter", "?")
    return Finding("tls", "ok", f"{tls.version()}, certificate of {issuer.get('organizationName', '?')} until {until}")


def _clock(response: httpx.Response, now: float) -> Finding:
    """Return the difference between the clocks of this machine and of the server (resolution: one second)."""
    try:
        server = email.utils.parsedate_to_datetime(response.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return Finding("clock", "skipped", "the server sends no date")
    skew = now - server
    if abs(skew) <= _MAX_SKEW_S:
        return Finding("clock", "ok", "correct to within a minute")
    detail = f"{abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} the server's"
    return Finding("clock", "warning", detail, "set the clock (NTP): certificates and waits until a reset depend on it")


def _state(response: httpx.Response, token: str) -> Finding:
    """Return the state that the service reports for a token."""
    try:
        result = response.json()["result"]
        state, expires = str(result["status"]), result.get("expires_on")
        left = None if expires is None else dt.datetime.fromisoformat(expires) - dt.datetime.now(dt.UTC)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Finding("token", "warning", f"{token}: the service does not report its state", _SEE_CALL)
    if state != "active":
        return Finding("token", "failed", f"{token} is {state}", _NEW_TOKEN)
    if left is not None and left < _SOON:
        return Finding("token", "warning", f"{token} is active, but expires on {expires}", _NEW_TOKEN)
    return Finding("token", "ok", f"{token} is active" + (f" until {expires}" if expires else ""))
