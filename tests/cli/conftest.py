"""The command ``workers-ai`` in this process, against an emulator in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from workers_ai._transports import clients
from workers_ai.cli._app import app
from workers_ai_emulator import Emulator

Command = Callable[..., Result]


@pytest.fixture
def emulator() -> Emulator:
    return Emulator()


@pytest.fixture
def workers_ai(emulator: Emulator, account: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Return a function that runs the command in an empty folder, and checks that the token is not printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clients, "_client_options", lambda *_: {"transport": emulator.transport()})
    monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", account["account_id"])
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", account["api_token"])

    def run(*arguments: str, status: int | None = 0, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(app, arguments, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status or status is None, result.output
        assert account["api_token"] not in result.output
        return result

    return run
