"""Run the live tests of ``langchain-cloudflare`` on the emulator, with its own class or with ``ChatWorkersAI``.

    git clone https://github.com/cloudflare/langchain-cloudflare
    uv run --group rivals --with pytest-rerunfailures python tests/contract/langchain_cloudflare_live.py PATH [--ours]

PATH is the clone. Its authors run these tests on the real service with 12 models. No test is copied here. Further
arguments go to pytest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from workers_ai_emulator import Emulator

SUITE = Path("libs/langchain-cloudflare/tests/integration_tests")
FILES = ("test_workersai_models.py", "test_chat_models.py")
ROUTES = {"workers_ai": "run", "openai": "chat_completions", "openai_compat": "chat_completions"}


def substitute() -> None:
    """Replace the suite's class by ``ChatWorkersAI``, with the suite's names of parameters."""
    import langchain_cloudflare
    from langchain_cloudflare import chat_models

    from langchain_workers_ai import ChatWorkersAI

    class Substitute(ChatWorkersAI):
        """``ChatWorkersAI`` with the parameter names of the other class."""

        def __init__(self, **given: Any) -> None:
            gateway = given.pop("ai_gateway", None) or os.environ.get("AI_GATEWAY")
            route = ROUTES.get(given.pop("endpoint_format", ""), "run")
            ignored = ("aig_request_timeout", "aig_max_attempts", "aig_retry_delay", "aig_backoff", "request_timeout")
            kept = {name: value for name, value in given.items() if name not in ignored and value is not None}
            super().__init__(**{"gateway": gateway, "api": route, **kept} if gateway else {"api": route, **kept})

    for module in (langchain_cloudflare, chat_models):
        module.ChatCloudflareWorkersAI = Substitute


def connect_to(url: str) -> None:
    """Connect both classes to the emulator."""
    from langchain_cloudflare.rerankers import CloudflareWorkersAIReranker

    names = {"CF_ACCOUNT_ID": "emulated-account", "CF_AI_API_TOKEN": "emulated-token", "AI_GATEWAY": "gateway"}
    ours = {"CLOUDFLARE_ACCOUNT_ID": "emulated-account", "CLOUDFLARE_API_TOKEN": "emulated-token"}
    os.environ.update({**names, **ours, "BASE_URL": url, "CLOUDFLARE_BASE_URL": url})
    CloudflareWorkersAIReranker.model_fields["api_base_url"].default = f"{url}/accounts"
    CloudflareWorkersAIReranker.model_rebuild(force=True)


def main(arguments: list[str]) -> int:
    """Run the suite. Return pytest's exit status."""
    if not arguments:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    root, *rest = arguments
    folder = Path(root) / SUITE
    with Emulator(glm_required="accept").serve() as url:  # the service accepted this when the suite was run live
        connect_to(url)
        if "--ours" in rest:
            rest.remove("--ours")
            substitute()
        files = [str(folder / name) for name in FILES]
        options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", f"--rootdir={folder.parent}"]
        return int(pytest.main([*options, "-c", os.devnull, "-W", "ignore", *files, *rest]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
