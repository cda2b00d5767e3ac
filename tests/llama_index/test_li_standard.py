"""The standard tests, run for every class and for each way the LLM can take."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.embeddings.workers_ai import WorkersAIEmbedding
from llama_index.llms.workers_ai import WorkersAI
from tests.llama_index.conftest import TOKEN, wired
from tests.llama_index.standard import EmbeddingStandardTests, LLMStandardTests

from workers_ai_emulator import Emulator


class TestChatCompletions(LLMStandardTests):
    secret = TOKEN

    @pytest.fixture
    def model(self, emulator: Emulator) -> WorkersAI:
        return WorkersAI(**wired(emulator))


class TestReasoningModel(TestChatCompletions):
    @pytest.fixture
    def model(self, emulator: Emulator) -> WorkersAI:
        return WorkersAI(**wired(emulator, model="@cf/openai/gpt-oss-120b"))


class TestNativeRoute(TestChatCompletions):
    @pytest.fixture
    def model(self, emulator: Emulator) -> WorkersAI:
        return WorkersAI(**wired(emulator, api="run"))


class TestJsonSchema(TestChatCompletions):
    @pytest.fixture
    def model(self, emulator: Emulator) -> WorkersAI:
        return WorkersAI(**wired(emulator, should_use_structured_outputs=True))


class TestEmbedding(EmbeddingStandardTests):
    secret = TOKEN
    dimensions = 1024

    @pytest.fixture
    def model(self, emulator: Emulator) -> WorkersAIEmbedding:
        return WorkersAIEmbedding(**wired(emulator))


class TestInstructedEmbedding(EmbeddingStandardTests):
    secret = TOKEN
    dimensions = 1024

    @pytest.fixture
    def model(self, emulator: Emulator) -> Any:
        return WorkersAIEmbedding(
            **wired(emulator, model="@cf/qwen/qwen3-embedding-0.6b", query_instruction="Find the passage", batch_size=2)
        )
