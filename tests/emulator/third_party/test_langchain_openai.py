"""LangChain's standard integration suite with langchain-openai: the fake model must pass it."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is in the group 'rivals'")
from langchain_tests.integration_tests import ChatModelIntegrationTests  # noqa: E402

from workers_ai_emulator import Emulator  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.language_models import BaseChatModel

GEMMA = "@cf/google/gemma-4-26b-a4b-it"


@pytest.fixture(autouse=True, scope="module")
def _served() -> Iterator[None]:
    with Emulator().serve() as url:
        TestStandardSuite.url = f"{url}/accounts/acct/ai/v1"
        yield


@pytest.fixture(autouse=True)
def _collected_here() -> Iterator[None]:
    """Collect the unclosed sockets of the package here, where their warnings are ignored."""
    yield
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
class TestStandardSuite(ChatModelIntegrationTests):
    url = ""

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return langchain_openai.ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": GEMMA, "base_url": self.url, "api_key": "token", "stream_usage": True}

    @property
    def structured_output_kwargs(self) -> dict[str, Any]:
        return {"method": "function_calling"}  # a schema with streaming is 5023 here, and this suite streams

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
