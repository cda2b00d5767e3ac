"""Settings: where to send requests, with which credentials, and what to do when the service is at capacity.

Nothing here does I/O. Each setting is an argument or comes from the environment; no variable with a generic name is
read.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, cast
from urllib.parse import quote

from pydantic import SecretStr

from workers_ai._settings.checks import CHECKS, DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_S
from workers_ai._settings.gateway import GatewayOptions
from workers_ai._settings.keywords import ALIASES, SETTINGS, ClientKeywords, SettingKeywords
from workers_ai._settings.masking import masked_text, masked_url, masked_values, masks_fields
from workers_ai._settings.secrets import mask_secrets
from workers_ai._settings.urls import BatchWorker, batch_worker_options, check_base_url, is_gateway_url, reveal
from workers_ai._validation import OnBusy, require, require_kind, unknown_keyword
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    import httpx

__all__ = [
    "ALIASES",
    "CLIENT_KEYWORDS",
    "BatchWorker",
    "ENVIRONMENT",
    "GatewayOptions",
    "Settings",
    "from_environment",
    "known_keywords",
    "reject_settings",
    "session_headers",
    "setting_parameters",
]

DEFAULT_BASE_URL: Final = "https://api.cloudflare.com/client/v4"
BINDING_URL: Final = "binding://env.ai"
"""Placeholder for the URL if calls go through the ``env.AI`` binding of a Worker."""
CONNECT_TIMEOUT_S: Final = 10.0
MAX_CONCURRENCY: Final = 8
"""Default number of requests in flight for embeddings, reranking and the queue."""
DEADLINE_S: Final = 3600.0
"""Default number of seconds to wait for the queue; most jobs take less than five minutes."""
_SECRET_LENGTH: Final = 8
"""Minimum length of a secret that is replaced wherever it occurs. A shorter token is replaced only as a whole word.
Shorter values of extra headers ("true", "1") are not secrets."""

ENVIRONMENT: Final[dict[str, tuple[str, ...]]] = {
    "account_id": ("CLOUDFLARE_ACCOUNT_ID", "CF_ACCOUNT_ID"),
    "api_token": ("CLOUDFLARE_API_TOKEN", "CLOUDFLARE_AUTH_TOKEN", "CF_AI_API_TOKEN", "CF_API_TOKEN"),
    "base_url": ("CLOUDFLARE_BASE_URL",),
    "gateway": ("CLOUDFLARE_AI_GATEWAY",),
}
"""Environment variables of each setting. The first one that is set is used."""

_EMULATOR: Final = "The emulator (`workers-ai-emulator`) needs no account: set the variables that it prints."
_ACCOUNT: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_PLACEHOLDER: Final = re.compile(r"undefined|none|null|nil|your[-_ ].*|<.*|\$.*|\{.*|.*\$\{.*", re.IGNORECASE)
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
CLIENT_KEYWORDS: Final = frozenset({*SETTINGS, *ALIASES})
"""All keywords for settings of a client."""


def from_environment(setting: str) -> str | None:
    """Return the first variable of ``setting`` that is set and not blank, or None."""
    for name in ENVIRONMENT[setting]:
        if value := os.environ.get(name, "").strip():
            return value
    return None


@masks_fields(api_token=masked_text, default_headers=masked_values)
@dataclass(frozen=True)
class Settings:
    """Checked settings of a client. Create them with :meth:`resolve`.

    Attributes:
        account_id: Cloudflare account id; "" if only a batch Worker is used.
        api_token: API token with the permission Workers AI Read; empty if only a batch Worker is used.
        token_from_env: Whether the token came from the environment. If so, pickles omit it.
        base_url: URL up to and including ``/client/v4``, or an AI Gateway URL ``.../v1/{account}/{gateway}``.
        gateway: AI Gateway routing, or None.
        timeout: Maximum seconds without data from the service (300; 10 to connect), or an ``httpx.Timeout``.
        total_timeout: Maximum seconds for one call, including waits and retries; None for no bound.
        max_retries: Tries after the first (2).
        on_busy: ``"wait"``, ``"retry"`` or ``"raise"``.
        max_concurrency: Requests in flight per object, in all threads and in each event loop; None for no bound.
        session_id: Sent as ``x-session-affinity``.
        default_headers: Extra headers of every request; never shown.
        requests_per_minute: Limit per task; ``"documented"`` for the service's own limits per task and model; or None.
        batch_worker: The Worker that serves as the asynchronous queue, or None for the REST route.
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
    def resolve(cls, *, binding: bool = False, **given: Unpack[ClientKeywords]) -> Settings:
        """Fill missing settings from the environment, and check all of them.

        Args:
            binding: Send calls through the ``env.AI`` binding of a Worker, which needs no account, token or URL.
            **given: Settings; see :class:`~workers_ai.SettingKeywords` and its aliases.

        Raises:
            ConfigurationError: A setting is unknown, missing or malformed. The message contains the argument and the
                environment variables.
        """
        mask_secrets(cast("dict[str, object]", given), CLIENT_KEYWORDS)
        try:
            return _resolved(cls, known_keywords("Settings", given), binding)
        except ConfigurationError as exc:
            error = exc
        raise error.with_traceback(None)  # the local variables of the checks may hold a secret

    @property
    def _through_binding(self) -> bool:
        """Whether calls go through the ``env.AI`` binding of a Worker."""
        return self.base_url == BINDING_URL

    @property
    def _on_gateway_host(self) -> bool:
        """Whether ``base_url`` is an AI Gateway endpoint, whose path contains the account."""
        return is_gateway_url(self.base_url)

    @property
    def _root(self) -> str:
        """URL before the paths of the service (``run/...``, ``v1/...``), without a final slash."""
        if not self.account_id:  # only a batch Worker is used
            return self.base_url
        if self._on_gateway_host:
            return self.base_url if self.base_url.endswith("/workers-ai") else f"{self.base_url}/workers-ai"
        return f"{self.base_url}/accounts/{self.account_id}/ai"

    def _headers(self) -> dict[str, str]:
        """Return the headers of every request, including the token."""
        headers = {"accept": "*/*"}
        if token := self.api_token.get_secret_value():
            headers["authorization"] = f"Bearer {token}"
        if self.gateway:
            headers |= self.gateway.headers()
        headers |= session_headers(self.session_id)
        return headers | {name.lower(): reveal(value) for name, value in self.default_headers.items()}

    def _scrub(self, text: str) -> str:
        """Remove every secret of these settings from ``text``."""
        for secret in self._secrets:
            if len(secret.get_secret_value()) >= _SECRET_LENGTH:
                text = text.replace(secret.get_secret_value(), "[redacted]")
            elif secret.get_secret_value() in text:  # may be part of a word: replace whole words only
                text = re.sub(rf"(?<!\w){re.escape(secret.get_secret_value())}(?!\w)", "[redacted]", text)
        return text

    @cached_property
    def _secrets(self) -> tuple[SecretStr, ...]:
        """Secrets of these settings, the longest first."""
        found = {self.api_token.get_secret_value()}
        if self.gateway and isinstance(self.gateway.token, SecretStr):
            found.add(self.gateway.token.get_secret_value())
        worker_headers = self.batch_worker.plain_headers() if self.batch_worker else {}
        for value in (*map(reveal, self.default_headers.values()), *worker_headers.values()):
            found |= {part for part in (value, value.rpartition(" ")[2]) if len(part) >= _SECRET_LENGTH}
        return tuple(SecretStr(secret) for secret in sorted(found - {""}, key=len, reverse=True))

    def __reduce__(self) -> tuple[Callable[[dict[str, object]], Settings], tuple[dict[str, object]]]:
        state: dict[str, object] = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.token_from_env:
            state["api_token"] = None
        return (_restore, (state,))


def _resolved(cls: type[Settings], given: SettingKeywords, binding: bool) -> Settings:
    require_kind("account_id", given.get("account_id"), str, "text")
    require_kind("base_url", given.get("base_url"), str, "text")
    require_kind("api_token", given.get("api_token"), (str, SecretStr), "text")
    insecure = bool(given.get("allow_insecure_http"))
    worker = batch_worker_options(given.get("batch_worker"), insecure)
    require(not (binding and worker), "a binding has its own queue: pass binding= or batch_worker=, not both")
    account, token, from_env, url = _binding() if binding else _connection(given, insecure, optional=worker is not None)
    given = {**given, "gateway": given.get("gateway") or from_environment("gateway")}
    named = cast("dict[str, object]", given)
    values = {name: check(named[name]) for name, check in CHECKS.items() if name in named}
    if given.get("reject_if_busy"):
        values["on_busy"] = "raise"
    return cls(
        account_id=account,
        api_token=SecretStr(token),
        token_from_env=from_env,
        base_url=url,
        batch_worker=worker,
        **values,  # type: ignore[arg-type]
    )


def _binding() -> tuple[str, str, bool, str]:
    return "binding", "", False, BINDING_URL


def _connection(given: SettingKeywords, insecure: bool, *, optional: bool) -> tuple[str, str, bool, str]:
    """Return account, token, whether the token is from the environment, and base URL."""
    base_url = given.get("base_url")
    require(base_url != BINDING_URL, "a pickle or dump does not contain the binding: set binding= again")
    url = (base_url or from_environment("base_url") or DEFAULT_BASE_URL).strip().rstrip("/")
    url = cast("str", masked_url(url))
    url, url_account = check_base_url(url, insecure)
    account_id = _choose_account(given, url, url_account)
    account, token, from_env = _credentials(account_id, given.get("api_token"), optional=optional)
    return account, token, from_env, url


def _choose_account(given: SettingKeywords, url: str, url_account: str | None) -> str | None:
    """Return the account of the arguments or of the URL; None to read the environment.

    Raises:
        ConfigurationError: ``base_url`` contains another account than the one given.
    """
    account, source = given.get("account_id"), "account_id"
    if not account and not given.get("base_url"):
        account, source = from_environment("account_id"), "CLOUDFLARE_ACCOUNT_ID"
    if url_account and account and account.strip() != url_account and not is_gateway_url(url):
        raise ConfigurationError(
            f"base_url contains another account than {source}: pass base_url={url!r}, or the account id that the URL "
            "contains",
            arguments=("base_url", "account_id"),
        )
    return account or url_account


def session_headers(session_id: str | None) -> dict[str, str]:
    """Return the header that routes a session to one instance, which keeps its prefix cached.

    Source: https://developers.cloudflare.com/workers-ai/features/prompt-caching/. Characters that a header cannot
    contain are percent-encoded.
    """
    if not session_id:
        return {}
    return {"x-session-affinity": quote(str(session_id), safe="/:@+,;=!$&'()*~ ", errors="replace")}


def _restore(state: dict[str, Any]) -> Settings:
    if state["api_token"] is None:
        state["api_token"] = SecretStr(_token(None)[0])
    return Settings(**state)


def _credentials(account_id: str | None, api_token: SecretStr | str | None, *, optional: bool) -> tuple[str, str, bool]:
    """Return account, token, and whether the token is from the environment; empty if optional and both are missing."""
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
            f"{setting} is missing: pass {setting}= or set {' or '.join(ENVIRONMENT[setting])}. Find it on "
            "https://dash.cloudflare.com (Account home, menu of the account, Copy account ID) or with "
            f"`wrangler whoami`. {_EMULATOR}",
            arguments=(setting,),
        )
    return found


def _token(value: SecretStr | str | None) -> tuple[str, bool]:
    given = reveal(value).strip() if value is not None else ""
    token = given or from_environment("api_token")
    if not token:
        names = " or ".join(ENVIRONMENT["api_token"])
        raise ConfigurationError(
            f"api_token is missing: set {names}, or pass api_token= (alias api_key). Create one with the permission "
            f"Workers AI Read at https://dash.cloudflare.com/profile/api-tokens. {_EMULATOR}",
            arguments=("api_token",),
        )
    require(
        bool(_TOKEN.fullmatch(token) and token.strip("*")) and not _PLACEHOLDER.fullmatch(token),
        "api_token is malformed (it has white space or a control character, is a placeholder, or is masked as in a "
        "dump): check CLOUDFLARE_API_TOKEN",
        "api_token",
    )
    return token, not given


def _check_account(account: str, token: str) -> None:
    if account == token:
        raise ConfigurationError(
            "account_id is the API token: set CLOUDFLARE_ACCOUNT_ID to the account's id", arguments=("account_id",)
        )
    if not _ACCOUNT.fullmatch(account) or _PLACEHOLDER.fullmatch(account):
        raise ConfigurationError(
            "account_id is malformed (allowed: 1 to 32 letters, digits, - and _; is it a placeholder, or the API "
            "token?): check CLOUDFLARE_ACCOUNT_ID",
            arguments=("account_id",),
        )


def setting_parameters() -> list[inspect.Parameter]:
    """Return the settings as parameters of a client, for its signature."""
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=getattr(annotation, "__forward_arg__", annotation),
        )
        for name, annotation in SettingKeywords.__annotations__.items()
    ]


def reject_settings(owner: str, given: Mapping[str, object]) -> None:
    """Raise ``ConfigurationError`` if settings are passed together with a client, which has its own."""
    if given:
        raise ConfigurationError(f"{owner} uses the settings of the client it was given: set {', '.join(given)} there")


def known_keywords(owner: str, given: Mapping[str, object]) -> SettingKeywords:
    """Return settings under their own names, aliases resolved.

    Raises:
        ConfigurationError: A keyword is unknown, or one setting is given twice.
    """
    named: dict[str, object] = {}
    for keyword, value in given.items():
        name = ALIASES.get(keyword, keyword)
        if name not in SETTINGS:
            raise unknown_keyword(owner, keyword, {*SETTINGS, *ALIASES}, "extra_body of a call")
        require(name not in named, f"{owner} received {name} twice, once as {keyword}: pass it once")
        named[name] = value
    return cast("SettingKeywords", named)
