"""Checks of this machine: Python, packages, settings, proxy and certificates. Nothing is sent."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from packaging.requirements import Requirement

from workers_ai._settings.settings import ENVIRONMENT, Settings
from workers_ai._settings.urls import is_loopback
from workers_ai.cli._doctor.finding import Finding
from workers_ai.cli._errors import message_of
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai._settings.keywords import SettingKeywords

__all__ = ["check_certificates", "check_packages", "check_proxy", "check_python", "check_settings", "token_source"]

_PACKAGES: Final = (
    "workers-ai", "langchain-workers-ai", "llama-index-llms-workers-ai", "llama-index-embeddings-workers-ai",
    "llama-index-postprocessor-workers-ai-rerank", "workers-ai-emulator",
)  # fmt: skip


def check_python() -> Finding:
    """Return the versions of Python and the system."""
    return Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def check_packages() -> Iterator[Finding]:
    """Yield the installed versions, and each requirement of our packages that they violate."""
    installed = {name: version for name in _PACKAGES if (version := _version(name))}
    needed: dict[str, str] = {}
    wrong = []
    for package in installed:
        for requirement in _requirements(package):
            found = _version(requirement.name)
            if found is None or not requirement.specifier.contains(found, prereleases=True):
                wrong.append(_violation(package, requirement, found))
            if requirement.name not in _PACKAGES and found:
                needed[requirement.name] = f"{found} ({requirement.specifier})"
    yield Finding("packages", "ok", ", ".join(f"{name} {version}" for name, version in installed.items()))
    yield Finding("dependencies", "ok", ", ".join(f"{name} {version}" for name, version in sorted(needed.items())))
    yield from wrong


def _requirements(package: str) -> list[Requirement]:
    """Return the requirements of a package; for the core, including its extra ``cli``."""
    requirements = [Requirement(line) for line in metadata.requires(package) or ()]
    extra = "cli" if package == "workers-ai" else ""
    return [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": extra})]


def _violation(package: str, requirement: Requirement, found: str | None) -> Finding:
    name = requirement.name
    detail = f"{package} requires {name} {requirement.specifier}; {found or 'nothing'} is installed"
    remedy = f"pip install '{name}{requirement.specifier}'"
    if name in _PACKAGES:
        remedy = f"install all packages of this project in one version: pip install --upgrade {package} {name}"
    return Finding("dependencies", "failed", detail, remedy)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_settings(given: SettingKeywords) -> tuple[Settings | None, list[Finding]]:
    """Return the settings, or None if they are invalid, and the source of each.

    Args:
        given: Settings of the command line.
    """
    problems = list(dict.fromkeys(_problems(given)))
    if problems:
        return None, [Finding("settings", "failed", text) for text in problems]
    settings = Settings.resolve(**given)
    findings = [
        Finding("account", "ok", f"{settings.account_id} from {_source('account_id', given)}"),
        Finding("base url", "ok", f"{settings.base_url} ({_source('base_url', given)})"),
    ]
    if settings.gateway:
        findings.append(Finding("gateway", "ok", f"{settings.gateway.id} from {_source('gateway', given)}"))
    return settings, findings


def _problems(given: SettingKeywords) -> Iterator[str]:
    """Yield the errors of the settings. Check the token even if the account is invalid."""
    with_account: SettingKeywords = {**given, "account_id": "0" * 32}
    for settings in (given, with_account):
        try:
            Settings.resolve(**settings)
        except ConfigurationError as exc:
            yield message_of(exc)


def _source(name: str, given: SettingKeywords) -> str:
    if given.get(name):
        return f"--{name.replace('_', '-')}"
    return _variable(name) or ("base_url" if name == "account_id" else "default")


def token_source() -> str:
    """Return the environment variable of the token."""
    return _variable("api_token")


def _variable(name: str) -> str:
    return next((variable for variable in ENVIRONMENT[name] if os.environ.get(variable, "").strip()), "")


def check_proxy(settings: Settings) -> Finding:
    """Return the proxy of requests, without user and password."""
    url = urlsplit(settings.base_url)
    host = url.hostname or ""
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy is None or is_loopback(host) or proxy_bypass(host):
        return Finding("proxy", "ok", "none")
    return Finding("proxy", "ok", f"{_without_user(proxy)} for {host}")


def _without_user(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def check_certificates() -> Finding:
    """Return the certificates that TLS trusts."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        if path := os.environ.get(name):
            if not Path(path).exists():
                return Finding("certificates", "failed", f"{name}={path} does not exist", f"correct or unset {name}")
            return Finding("certificates", "ok", f"{path} from {name}")
    return Finding("certificates", "ok", "those of the package certifi")
