"""Run the checks of ``workers-ai doctor`` and print their results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from workers_ai._transports.clients import SecretHeaders, create_client
from workers_ai.cli._doctor.finding import Finding
from workers_ai.cli._doctor.local import (
    check_certificates,
    check_packages,
    check_proxy,
    check_python,
    check_settings,
)
from workers_ai.cli._doctor.service import Service
from workers_ai.cli._errors import message_of
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from workers_ai._settings.keywords import SettingKeywords
    from workers_ai._settings.settings import Settings

__all__ = ["doctor"]

TIMEOUT_S: Final = 15.0
"""Timeout of a request in seconds."""
_STYLES: Final = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}


def doctor(given: SettingKeywords, *, as_json: bool) -> bool:
    """Check everything, print each result with its remedy, and return whether no check failed.

    Args:
        given: Settings of the command line.
        as_json: Whether to print one JSON object at the end.
    """
    console = Console(highlight=False)
    findings = []
    for finding in _findings(given):
        findings.append(finding)
        if not as_json:
            _show(finding, console)
    failed = dict.fromkeys(finding.check for finding in findings if finding.status == "failed")
    if as_json:
        rows = [finding._asdict() for finding in findings]
        console.print(json.dumps({"ok": not failed, "checks": rows}, indent=2), markup=False, soft_wrap=True)
    else:
        console.print(f"failed: {', '.join(failed)}" if failed else "no problem found", markup=False)
    return not failed


def _findings(given: SettingKeywords) -> Iterator[Finding]:
    yield check_python()
    yield from check_packages()
    settings, findings = check_settings({**given, "timeout": TIMEOUT_S})
    yield from findings
    if settings is None:
        return
    yield check_proxy(settings)
    yield check_certificates()
    try:
        http = _create_http(settings)
    except ConfigurationError as exc:
        yield Finding("connection", "failed", message_of(exc))
        return
    with http:
        yield from Service(settings, http).findings()


def _create_http(settings: Settings) -> httpx.Client:
    import httpx

    client = create_client(httpx.Client, SecretHeaders(httpx.Headers()), settings, kept=1)
    client.timeout = httpx.Timeout(TIMEOUT_S)
    return client


def _show(finding: Finding, console: Console) -> None:
    line = Text.assemble((f"{finding.status:<8}", _STYLES[finding.status]), f"{finding.check:<13}{finding.detail}")
    console.print(line, soft_wrap=True)
    if finding.remedy:
        console.print(f"{'':<8}{'':<13}-> {finding.remedy}", markup=False, soft_wrap=True)
