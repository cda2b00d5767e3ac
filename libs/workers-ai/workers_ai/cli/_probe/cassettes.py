"""Write exchanges of the probe as cassettes, without secrets, account and ids. Keep only the listed headers.

The files are JSON, and so YAML that VCR can read.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from workers_ai._settings.settings import Settings
    from workers_ai.cli._probe.calls import Call, Reply
    from workers_ai.cli._probe.session import Exchange
    from workers_ai.types import JSON

__all__ = ["KEPT_HEADERS", "Scrub", "write_cassette"]

KEPT_HEADERS: Final = frozenset(
    {
        "api-version", "cf-ai-neurons", "cf-ai-req-id", "cf-aig-cache-status", "cf-auditlog-id", "cf-ray",
        "content-type", "ratelimit", "ratelimit-policy", "retry-after",
    }
)  # fmt: skip
"""Headers of replies that are kept."""

_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_HEX_ID: Final = re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{40}|[0-9a-f]{32})(?![0-9a-f])", re.IGNORECASE)
_PLACEHOLDER: Final = re.compile(r"00000000-0000-4000-8000-\d{12}")
_TIME_ID: Final = re.compile(r"\bid-\d{13}\b")


class Scrub:
    """Replace secrets, the account and ids; equal ids become equal placeholders, so that a batch can be replayed.

    Args:
        replace_secrets: Function that returns a text without secrets and account.
    """

    def __init__(self, replace_secrets: Callable[[str], str]) -> None:
        self._replace_secrets = replace_secrets
        self._ids: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return the text without secrets, account and ids."""
        text = _TIME_ID.sub("id-0000000000000", _HEX_ID.sub("0" * 32, self._replace_secrets(text)))
        return _UUID.sub(lambda found: self._placeholder(found[0].lower()), text)

    def _placeholder(self, uuid: str) -> str:
        if _PLACEHOLDER.fullmatch(uuid):
            return uuid
        return self._ids.setdefault(uuid, f"00000000-0000-4000-8000-{len(self._ids) + 1:012}")

    def body(self, text: str) -> dict[str, JSON] | None:
        """Return a body in the form of a cassette: as JSON if it is valid JSON, else as text."""
        scrubbed = self.text(text)
        try:
            return {"json": json.loads(scrubbed)}
        except ValueError:
            return {"text": scrubbed} if scrubbed else None

    def header(self, name: str, value: str) -> str:
        """Return the value of a kept header."""
        return "0000000000000000-AMS" if name == "cf-ray" else self.text(value)


def write_cassette(folder: Path, name: str, exchanges: Sequence[Exchange], settings: Settings) -> Path:
    """Write the exchanges of one question; return the file.

    Args:
        folder: Folder of the file; created if it is missing.
        name: Name of the question.
        exchanges: Calls and replies, in their order.
        settings: Source of the secrets and the account to remove.

    Raises:
        OSError: The file cannot be written.
    """
    account = settings.account_id

    def replace_secrets(text: str) -> str:
        text = settings._scrub(text)
        return text.replace(account, "ACCOUNT") if account else text

    scrub = Scrub(replace_secrets)
    interactions = [_interaction(call, reply, settings, scrub) for call, reply in exchanges]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({"version": 1, "interactions": interactions}, indent=2) + "\n", encoding="utf-8")
    return path


def _interaction(call: Call, reply: Reply, settings: Settings, scrub: Scrub) -> dict[str, JSON]:
    request: JSON = {
        "method": "POST",
        "uri": scrub.text(f"{settings._root}/{call.path}"),
        "body": scrub.body(json.dumps(dict(call.body))),
        "headers": {"content-type": "application/json"},
    }
    headers = {name: [scrub.header(name, value)] for name, value in reply.headers.items() if name in KEPT_HEADERS}
    response: JSON = {
        "status": {"code": reply.status, "message": ""},
        "headers": headers,
        "body": scrub.body(reply.text),
    }
    return {"request": request, "response": response}
