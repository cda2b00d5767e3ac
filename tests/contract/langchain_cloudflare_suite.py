"""Run LangChain's standard chat integration suite for ``langchain-cloudflare`` on the emulator.

    uv run --group rivals pytest -n 0 -p pytest_recording.plugin tests/contract/langchain_cloudflare_suite.py

Uses the suite's default flags, and a model of the family that accepts most forms of requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from langchain_cloudflare import ChatCloudflareWorkersAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

from workers_ai_emulator import Emulator

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the tested package


class TestChat(ChatModelIntegrationTests):
    """The unchanged suite."""

    url: ClassVar[str]

    @pytest.fixture(scope="class", autouse=True)
    def _served(self) -> Iterator[None]:
        with Emulator().serve() as url:
            type(self).url = url
            yield

    @property
    def chat_model_class(self) -> type[ChatCloudflareWorkersAI]:
        return ChatCloudflareWorkersAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "account_id": "acct",
            "api_token": "token",
            "model": "@cf/google/gemma-4-26b-a4b-it",
            "cloudflare_api_base": self.url,
        }
