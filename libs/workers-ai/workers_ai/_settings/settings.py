"""Settings: where to send requests, with which credentials, and what a busy service means.

Nothing here does I/O. Each setting is an argument, or comes from the environment; no variable with a generic name is
read.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from urllib.parse import quote, urlsplit

from pydantic import SecretStr

from workers_ai._settings.gateway import GatewayOptions, gateway_options
from workers_ai._settings.urls import BatchWorker, batch_worker_options, check_url, reveal
from workers_ai._validation import (
    OnBusy,
    check_header,
    check_on_busy,
    require,
    require_int,
    require_kind,
    unknown_keyword,
)
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

__all__ = [
    "ALIASES",
    "BatchWorker",
    "ENVIRONMENT",
    "GatewayOptions",
    "Settings",
    "from_environment",
    "known_keywords",
    "mask_secrets",
    "masked_headers",
    "reject_settings",
    "session_headers",
    "setting_parameters",
]

Timeout: TypeAlias = "float | httpx.Timeout | Sequence[float | None] | Mapping[str, float | None]"

DEFAULT_BASE_URL: Final = "https://api.cloudflare.com/client/v4"
BINDING_URL: Final = "binding://env.ai"
"""Stands for the URL where calls go through the ``env.AI`` binding of a Worker."""
DEFAULT_TIMEOUT_S: Final = 300.0
CONNECT_TIMEOUT_S: Final = 10.0
DEFAULT_MAX_RETRIES: Final = 2
MAX_CONCURRENCY: Final = 8
"""Requests in flight of embeddings, reranking and the queue where the user sets no bound."""
DEADLINE_S: Final = 3600.0
"""Seconds that the queue may take by default; most jobs take less than five minutes."""
_SECRET_LENGTH: Final = 8
"""Characters of a secret that is replaced wherever it stands. A shorter token is replaced as a whole word alone;
shorter values of extra headers ("true", "1") are not secrets."""

ENVIRONMENT: Final[dict[str, tuple[str, ...]]] = {
    "account_id": ("CLOUDFLARE_ACCOUNT_ID", "CF_ACCOUNT_ID"),
    "api_token": ("CLOUDFLARE_API_TOKEN", "CLOUDFLARE_AUTH_TOKEN", "CF_AI_API_TOKEN", "CF_API_TOKEN"),
    "base_url": ("CLOUDFLARE_BASE_URL",),
    "gateway": ("CLOUDFLARE_AI_GATEWAY",),
}
"""Environment variables of each setting; the first one set wins."""

ALIASES: Final = {"api_key": "api_token", "request_timeout": "timeout"}
"""Other names of settings."""

_EMULATOR: Final = "The emulator (`workers-ai-emulator`) needs no account: set what it prints."
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,32}")
_PLACEHOLDER = re.compile(r"undefined|none|null|nil|your[-_ ].*|<.*|\$.*|\{.*|.*\$\{.*", re.IGNORECASE)
_LONGEST_TIMEOUT_S: Final = 1_000_000
_OF_THE_CONNECTION: Final = frozenset(
    {"connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_TOKEN = re.compile(r"[\x21-\x7e]+")
_GATEWAY_HOST_PATH = re.compile(r"/v1/[^/]+/[^/]+(/workers-ai)?")


def from_environment(setting: str) -> str | None:
    """The first variable of ``setting`` that is set and not blank; None if there is none."""
    for name in ENVIRONMENT[setting]:
        if value := os.environ.get(name, "").strip():
            return value
    return None


def _masking_secrets(resolve: Callable[..., Settings]) -> Callable[..., Settings]:
    """Keep secrets out of the local variables that a traceback of ``resolve`` shows."""

    @wraps(resolve)
    def masked(cls: type[Settings], **given: Any) -> Settings:
        mask_secrets(given)
        try:
            return resolve(cls, **given)
        except ConfigurationError as exc:
            error = exc
        raise error.with_traceback(None)

    return masked


@dataclass(frozen=True)
class Settings:
    """Everything one client needs to know, checked. Make it with :meth:`resolve`.

    Attributes:
        account_id: Cloudflare account id; "" where a batch Worker is all there is.
        api_token: API token with the permission Workers AI Read; as ``account_id``.
        token_from_env: Whether the token came from the environment; then a pickle leaves it out.
        base_url: URL up to and including ``/client/v4``, or an AI Gateway URL ``.../v1/{account}/{gateway}``.
        gateway: AI Gateway routing, or None.
        timeout: Seconds that the service may be silent (300; 10 to connect), or an ``httpx.Timeout``.
        total_timeout: Seconds that one call may take in all, waits and retries included; None for no bound.
        max_retries: Tries after the first (2).
        on_busy: ``"wait"``, ``"retry"`` or ``"raise"``.
        max_concurrency: Requests in flight per object, in all threads and in each event loop; None for no bound.
        session_id: Sent as ``x-session-affinity``.
        default_headers: Extra headers of every request; never shown.
        requests_per_minute: Own limit per task; ``"documented"`` for the service's own limits per task and model; or
            None.
        batch_worker: The Worker that is the queue, or None for the REST route.
    """

    account_id: str
    api_token: SecretStr
    token_from_env: bool = False
    base_url: str = DEFAULT_BASE_URL
    gateway: GatewayOptions | None = None
    timeout: float | httpx.Timeout = DEFAULT_TIMEOUT_S
    total_timeout: float | None = None
    max_retries: int = DEFAULT_MAX_RETRIES
    on_busy: OnBusy = "wait"
    max_concurrency: int | None = None
    session_id: str | None = None
    default_headers: Mapping[str, SecretStr | str] = field(default_factory=dict, repr=False)
    requests_per_minute: int | Literal["documented"] | None = None
    batch_worker: BatchWorker | None = None

    @classmethod
    @_masking_secrets
    def resolve(
        cls,
        *,
        account_id: str | None = None,
        api_token: SecretStr | str | None = None,
        base_url: str | None = None,
        gateway: GatewayOptions | Mapping[str, Any] | str | None = None,
        timeout: Timeout | None = None,
        total_timeout: float | None = None,
        max_retries: int | None = None,
        on_busy: OnBusy = "wait",
        reject_if_busy: bool | None = None,
        max_concurrency: int | None = None,
        session_id: str | None = None,
        default_headers: Mapping[str, str | SecretStr] | None = None,
        requests_per_minute: int | Literal["documented"] | None = None,
        batch_worker: BatchWorker | Mapping[str, Any] | str | None = None,
        allow_insecure_http: bool = False,
        binding: bool = False,
    ) -> Settings:
        """Fill what is missing from the environment, and check everything.

        With ``binding``, calls go through the ``env.AI`` binding of a Worker, which needs no account, token or URL.

        Raises:
            ConfigurationError: A setting is missing or malformed; the text names the argument and the variables.
        """
        for name, value in {"account_id": account_id, "base_url": base_url, "api_token": api_token}.items():
            require_kind(name, value, (str, SecretStr) if name == "api_token" else str, "text")
        worker = batch_worker_options(batch_worker, allow_insecure_http)
        require(not (binding and worker), "a binding has a queue of its own: pass binding= or batch_worker=")
        if binding:
            account, token, from_env, url = "binding", "", False, BINDING_URL
        else:
            require(base_url != BINDING_URL, "a binding does not travel in a pickle or a dump: set binding= again")
            account, token, from_env = _credentials(account_id, api_token, optional=worker is not None)
            url = (base_url or from_environment("base_url") or DEFAULT_BASE_URL).strip().rstrip("/")
            url = _check_base_url(url, allow_insecure_http)
        gateway = gateway_options(gateway or from_environment("gateway"))
        check_on_busy(on_busy)
        max_retries = check_max_retries(max_retries)
        require_int("max_concurrency", max_concurrency, 1, None)
        if requests_per_minute != "documented":
            require_int('requests_per_minute, unless "documented",', requests_per_minute, 1, None)
        return cls(
            account_id=account,
            api_token=SecretStr(token),
            token_from_env=from_env,
            base_url=url,
            gateway=gateway,
            timeout=check_timeout(timeout),
            total_timeout=check_seconds("total_timeout", total_timeout),
            max_retries=max_retries,
            on_busy="raise" if reject_if_busy else on_busy,
            max_concurrency=max_concurrency,
            session_id=session_id,
            default_headers=masked_headers("default_headers", default_headers),
            requests_per_minute=requests_per_minute,
            batch_worker=worker,
        )

    @property
    def through_binding(self) -> bool:
        """Whether calls go through the ``env.AI`` binding of a Worker."""
        return self.base_url == BINDING_URL

    @property
    def on_gateway_host(self) -> bool:
        """Whether ``base_url`` is an AI Gateway endpoint, where the account is part of the path already."""
        return bool(_GATEWAY_HOST_PATH.fullmatch(urlsplit(self.base_url).path))

    @property
    def root(self) -> str:
        """URL that the paths of the service (``run/...``, ``v1/...``) follow, without a final slash."""
        if not self.account_id:  # a host of the user's own
            return self.base_url
        if self.on_gateway_host:
            return self.base_url if self.base_url.endswith("/workers-ai") else f"{self.base_url}/workers-ai"
        return f"{self.base_url}/accounts/{self.account_id}/ai"

    def headers(self) -> dict[str, str]:
        """Headers of every request, the token among them."""
        headers = {"accept": "*/*"}
        if token := self.api_token.get_secret_value():
            headers["authorization"] = f"Bearer {token}"
        if self.gateway:
            headers |= self.gateway.headers()
        headers |= session_headers(self.session_id)
        return headers | {name.lower(): reveal(value) for name, value in self.default_headers.items()}

    def scrub(self, text: str) -> str:
        """Remove every secret of these settings from ``text``."""
        for secret in self._secrets:
            if len(secret.get_secret_value()) >= _SECRET_LENGTH:
                text = text.replace(secret.get_secret_value(), "[redacted]")
            elif secret.get_secret_value() in text:  # too common in words: only where it stands alone
                text = re.sub(rf"(?<!\w){re.escape(secret.get_secret_value())}(?!\w)", "[redacted]", text)
        return text

    @cached_property
    def _secrets(self) -> tuple[SecretStr, ...]:
        """Every secret of these settings, the longest first."""
        found = {self.api_token.get_secret_value()}
        if self.gateway and isinstance(self.gateway.token, SecretStr):
            found.add(self.gateway.token.get_secret_value())
        of_the_worker = self.batch_worker.plain_headers() if self.batch_worker else {}
        for value in (*map(reveal, self.default_headers.values()), *of_the_worker.values()):
            found |= {part for part in (value, value.rpartition(" ")[2]) if len(part) >= _SECRET_LENGTH}
        return tuple(SecretStr(secret) for secret in sorted(found - {""}, key=len, reverse=True))

    def __reduce__(self) -> tuple[Any, ...]:
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.token_from_env:
            state["api_token"] = None
        return (_restore, (state,))


def check_max_retries(max_retries: int | None) -> int:
    """Return the number of retries; the default for None.

    Raises:
        ConfigurationError: It is not a whole number of 0 or more.
    """
    require_int("max_retries", max_retries, 0, None)
    return DEFAULT_MAX_RETRIES if max_retries is None else max_retries


def check_seconds(name: str, seconds: float | None) -> float | None:
    """Return ``seconds`` if it is None, or a number of seconds that can be waited.

    Raises:
        ConfigurationError: It is not.
    """
    fits = seconds is None or (type(seconds) in (int, float) and 0 < seconds <= _LONGEST_TIMEOUT_S)
    require(fits, f"{name} must be more than 0 and at most {_LONGEST_TIMEOUT_S:,} seconds, not {seconds!r:.100}")
    return seconds


def check_timeout(timeout: Timeout | None) -> float | httpx.Timeout:
    """Return the timeout as seconds or an ``httpx.Timeout``; the default for None.

    Args:
        timeout: Seconds, an ``httpx.Timeout``, ``(connect, read)``, ``(connect, read, write, pool)``, or a mapping of
            these four names (the form in dumps).

    Raises:
        ConfigurationError: It is none of these, or out of range.
    """
    if timeout is None:
        return DEFAULT_TIMEOUT_S
    if isinstance(timeout, Sequence) and not isinstance(timeout, str) and len(timeout) in (2, 4):
        parts = [*timeout, timeout[1], timeout[1]] if len(timeout) == 2 else timeout
        timeout = dict(zip(("connect", "read", "write", "pool"), parts, strict=True))
    if isinstance(timeout, Mapping):
        import httpx

        named = {name: check_seconds(f"timeout {name}", part) for name, part in timeout.items()}
        try:
            return httpx.Timeout(**named)
        except (TypeError, ValueError):
            raise ConfigurationError("timeout as plain data has connect, read, write and pool, in seconds") from None
    if isinstance(timeout, (int, float)):
        check_seconds("timeout", timeout)
        return timeout
    what = "seconds or an httpx.Timeout, or (connect, read)"
    require(hasattr(timeout, "connect"), f"timeout must be {what}, not {type(timeout).__name__}")
    return cast("httpx.Timeout", timeout)


def masked_headers(name: str, headers: Mapping[str, str | SecretStr] | None) -> dict[str, SecretStr | str]:
    """Return extra headers with masked values.

    Args:
        name: The setting or keyword that holds them, for errors.
        headers: Names and values.

    Raises:
        ConfigurationError: This is not a mapping, or a header cannot be sent.
    """
    require_kind(name, headers, Mapping, "a mapping of names to values")
    masked: dict[str, SecretStr | str] = {}
    for header, value in (headers or {}).items():
        check_header(header, reveal(value))
        if header.lower() in _OF_THE_CONNECTION:
            raise ConfigurationError(f"{name} may not have {header}: the HTTP client sets it")
        masked[header] = SecretStr(reveal(value))
    return masked


def check_clients(http_client: Any, http_async_client: Any) -> None:
    """Check that each of the user's own clients is of the kind its calls need.

    Raises:
        ConfigurationError: It is not.
    """
    fits = http_client is None or (hasattr(http_client, "send") and not hasattr(http_client, "aclose"))
    require(fits, "http_client serves the sync calls: it must be an httpx.Client")
    fits = http_async_client is None or hasattr(http_async_client, "aclose")
    require(fits, "http_async_client serves the async calls: it must be an httpx.AsyncClient")


def session_headers(session_id: str | None) -> dict[str, str]:
    """The header that keeps a session on one instance, and so its prefix in the cache.

    Source: https://developers.cloudflare.com/workers-ai/features/prompt-caching/. Any id does; what a header cannot
    carry is percent-encoded.
    """
    if not session_id:
        return {}
    return {"x-session-affinity": quote(str(session_id), safe="/:@+,;=!$&'()*~ ", errors="replace")}


def _restore(state: dict[str, Any]) -> Settings:
    if state["api_token"] is None:
        state["api_token"] = SecretStr(_token(None)[0])
    return replace(Settings(state["account_id"], state["api_token"]), **state)


def _credentials(account_id: str | None, api_token: SecretStr | str | None, *, optional: bool) -> tuple[str, str, bool]:
    """Account, token, and whether that is from the environment; empty where they are optional and both are missing."""
    if optional and not any((account_id, api_token, from_environment("account_id"), from_environment("api_token"))):
        return "", "", False
    account = _given(account_id, "account_id")
    token, from_env = _token(api_token)
    _check_account(account, token)
    return account, token, from_env


def _given(value: str | None, setting: str) -> str:
    found = (value or "").strip() or from_environment(setting)
    if not found:
        raise ConfigurationError(
            f"{setting} is missing: pass {setting}= or set {' or '.join(ENVIRONMENT[setting])}. It is on "
            "https://dash.cloudflare.com (Account home, menu of the account, Copy account ID) and in "
            f"`wrangler whoami`. {_EMULATOR}"
        )
    return found


def _token(value: SecretStr | str | None) -> tuple[str, bool]:
    given = reveal(value).strip() if value is not None else ""
    token = given or from_environment("api_token")
    if not token:
        names = " or ".join(ENVIRONMENT["api_token"])
        raise ConfigurationError(
            f"api_token is missing: pass api_token= (or api_key=) or set {names}. Create one with the permission "
            f"Workers AI Read on https://dash.cloudflare.com/profile/api-tokens. {_EMULATOR}"
        )
    require(
        bool(_TOKEN.fullmatch(token) and token.strip("*")) and not _PLACEHOLDER.fullmatch(token),
        "api_token is malformed (white space, a control character, a placeholder, or masked as in a dump): check "
        "CLOUDFLARE_API_TOKEN",
    )
    return token, not given


def _check_account(account: str, token: str) -> None:
    if account == token:
        raise ConfigurationError("account_id holds the API token: set CLOUDFLARE_ACCOUNT_ID to the account's id")
    if not _ACCOUNT.fullmatch(account) or _PLACEHOLDER.fullmatch(account):
        raise ConfigurationError(
            "account_id is malformed (at most 32 letters, digits, - and _; is it an unset placeholder, or the API "
            "token?): check CLOUDFLARE_ACCOUNT_ID"
        )


def _check_base_url(url: str, allow_insecure_http: bool) -> str:
    """The URL that everything else is added to."""
    parts = check_url(url, allow_insecure_http, "base_url", ": check CLOUDFLARE_BASE_URL")
    shown = f"{parts.scheme}://{parts.hostname}{parts.path}"
    if parts.hostname == "gateway.ai.cloudflare.com":
        url = re.sub(r"(/workers-ai)/(?:v1|run)$", r"\1", url)
        fits = bool(_GATEWAY_HOST_PATH.fullmatch(urlsplit(url).path))
        require(fits, f"base_url {shown} must be https://gateway.ai.cloudflare.com/v1/ACCOUNT/GATEWAY/workers-ai")
        return url
    fits = (
        parts.path == "/client/v4" if parts.hostname == "api.cloudflare.com" else "/accounts/" not in f"{parts.path}/"
    )
    require(fits, f"base_url {shown} must end with /client/v4; the account and the route are added to it")
    return url


_KEYWORDS: Final = frozenset(inspect.signature(Settings.resolve).parameters)


def setting_parameters() -> list[inspect.Parameter]:
    """The settings as parameters of a client."""
    return [value for name, value in inspect.signature(Settings.resolve).parameters.items() if name != "binding"]


def mask_secrets(given: dict[str, Any]) -> None:
    """Mask the secrets among settings in place, so that no local variable of a traceback shows them."""
    for name in ("api_token", "api_key"):
        if isinstance(value := given.get(name), str):
            given[name] = SecretStr(value)
    if isinstance(headers := given.get("default_headers"), Mapping):
        given["default_headers"] = _masked_values(headers)
    if isinstance(gateway := given.get("gateway"), Mapping) and isinstance(token := gateway.get("token"), str):
        given["gateway"] = {**gateway, "token": SecretStr(token)}
    if isinstance(worker := given.get("batch_worker"), Mapping) and isinstance(
        headers := worker.get("headers"), Mapping
    ):
        given["batch_worker"] = {**worker, "headers": _masked_values(headers)}


def _masked_values(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: SecretStr(value) if isinstance(value, str) else value for name, value in headers.items()}


def reject_settings(owner: str, given: Mapping[str, Any]) -> None:
    """Raise ``ConfigurationError`` for settings beside a client or service that has its own."""
    if known := known_keywords(owner, given):
        raise ConfigurationError(f"{owner} takes {', '.join(known)} from the client it was given: set it there")


def known_keywords(owner: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of :meth:`Settings.resolve` under their own names.

    Raises:
        ConfigurationError: A keyword is not known, or one setting is given twice.
    """
    named: dict[str, Any] = {}
    for keyword, value in given.items():
        name = ALIASES.get(keyword, keyword)
        if name not in _KEYWORDS:
            raise unknown_keyword(owner, keyword, {*_KEYWORDS, *ALIASES}, "extra_body of a call")
        require(name not in named, f"{owner} was given {name} twice, once as {keyword}")
        named[name] = value
    return named
