"""LangChain's standard suites, against the emulator: no expected failures, every supported flag set."""

from __future__ import annotations

import base64
import importlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_tests.integration_tests import ChatModelIntegrationTests, EmbeddingsIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests, EmbeddingsUnitTests

from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings
from workers_ai_emulator import Clock, Emulator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.embeddings import Embeddings
    from langchain_core.language_models import BaseChatModel

ACCOUNT = "0123456789abcdef0123456789abcdef"
ENVIRONMENT = {"CLOUDFLARE_ACCOUNT_ID": ACCOUNT, "CLOUDFLARE_API_TOKEN": "token-from-env"}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
load = importlib.import_module("langchain_core.load.load")  # a function of the same name hides it in the package
SERVICE = Emulator(clock=Clock("jump"))


@pytest.fixture(scope="module", autouse=True)
def emulator_url() -> Iterator[str]:
    """Serve the emulator on a socket, because the suites create their own models."""
    with SERVICE.serve() as url:
        _URL.append(url)
        yield url


_URL: list[str] = []


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the image that the tests of the suite download by one pixel."""
    monkeypatch.setattr(
        "langchain_tests.integration_tests.chat_models.httpx.get",
        lambda url, **_: httpx.Response(200, content=PNG, request=httpx.Request("GET", url)),
    )


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the classes to LangChain's mapping, because the suite loads with ``allowed_objects="all"``.

    Programs pass the class instead, as ``test_lc_serdes`` does.
    """
    path = ("langchain_workers_ai", "chat_models", "ChatWorkersAI")
    monkeypatch.setattr(load, "_default_class_paths_cache", {})
    monkeypatch.setitem(load.ALL_SERIALIZABLE_MAPPINGS, path, path)


@pytest.fixture
def vcr() -> None:
    """Provide the fixture of a skipped test of the suite. Its plugin takes a third of the time of an empty test."""


class _Chat:
    model_id = "@cf/moonshotai/kimi-k2.6"
    other_model = "@cf/openai/gpt-oss-120b"
    api: str | None = None

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatWorkersAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": self.model_id, "account_id": ACCOUNT, "api_key": "test", "api": self.api}

    @property
    def has_tool_choice(self) -> bool:
        return True

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_image_inputs(self) -> bool:
        return True

    @property
    def supports_image_tool_message(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True

    @property
    def returns_usage_metadata(self) -> bool:
        return True

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return self.other_model

    # The service rejects links to images, PDFs and audio, so these flags are not set: supports_image_urls,
    # supports_pdf_inputs (and its tool message), supports_audio_inputs.


class TestChatUnit(_Chat, ChatModelUnitTests):
    """The unit suite."""

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        return ENVIRONMENT, {"model": self.model_id}, {"account_id": ACCOUNT, "api_token": "token-from-env"}


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:The test .* is marked with '@pytest.mark.asyncio':pytest.PytestWarning")
class TestChatCompletions(_Chat, ChatModelIntegrationTests):
    """The integration suite on ``/ai/v1/chat/completions``."""

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "base_url": _URL[-1]}


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:The test .* is marked with '@pytest.mark.asyncio':pytest.PytestWarning")
class TestChatRun(TestChatCompletions):
    """The integration suite on ``/ai/run/{model}``."""

    api = "run"


class _Embeds:
    @property
    def embeddings_class(self) -> type[Embeddings]:
        return WorkersAIEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": "@cf/baai/bge-m3", "account_id": ACCOUNT, "api_key": "test"}


class TestEmbeddingsUnit(_Embeds, EmbeddingsUnitTests):
    """The unit suite."""

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        return (
            ENVIRONMENT,
            {"model": "@cf/baai/bge-m3"},
            {"account_id": ACCOUNT, "api_token": "token-from-env"},
        )


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:The test .* is marked with '@pytest.mark.asyncio':pytest.PytestWarning")
class TestEmbeddingsService(_Embeds, EmbeddingsIntegrationTests):
    """The integration suite."""

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {**super().embedding_model_params, "base_url": _URL[-1]}
