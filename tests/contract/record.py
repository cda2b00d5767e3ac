"""Record the cases on the real service: ``uv run python tests/contract/record.py [CASE ...]``.

Account and token come from ``CLOUDFLARE_ACCOUNT_ID`` and ``CLOUDFLARE_API_TOKEN``. Every case becomes one file of
``cassettes/live``, without secrets; without names, all of them are recorded, at the cost of the account. A case
with an unexpected answer is not kept, and the exit status is 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

from cases import CASES
from recording import CASSETTES, use_cassette

from workers_ai import Client
from workers_ai.errors import WorkersAIError

__all__ = ["record"]


def record(name: str, client: Client, directory: Path) -> str:
    """Record one case. Return the problem of its answer, or "".

    Raises:
        EmulatedReplyError: The reply is from the emulator.
    """
    case, path = CASES[name], directory / f"{name}.yaml"
    face = SimpleNamespace(
        mode="sync",
        client=client,
        chat=client.chat,
        embed=client.embed,
        rerank=client.rerank,
        stream=lambda *args, **options: list(client.stream_chat(*args, **options)),
    )
    secrets = {client.settings.account_id: "ACCOUNT", client.settings.api_token.get_secret_value(): "TOKEN"}
    path.unlink(missing_ok=True)
    try:
        with use_cassette(path, record=True, secrets=secrets):
            case.holds(case.ask(face))
    except (AssertionError, WorkersAIError) as exc:
        path.unlink(missing_ok=True)
        return str(exc) or type(exc).__name__
    return ""


def main(names: list[str]) -> int:
    """Record these cases, or all cases."""
    if unknown := set(names) - set(CASES):
        print(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}", file=sys.stderr)
        return 2
    wrong = 0
    with Client() as client:
        for name in names or CASES:
            problem = record(name, client, CASSETTES / "live")
            wrong += bool(problem)
            print(f"{name:60} {problem or 'recorded'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
