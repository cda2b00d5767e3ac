"""The standard tests, run for every class and every route of the LLM."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.embeddings.workers_ai import WorkersAIEmbedding
from llama_index.llms.workers_ai import WorkersAI
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank
from tests.llama_index.standard import EmbeddingStandardTests, LLMStandardTests, RerankerStandardTests
from tests.support import TOKEN, wired

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


class TestWithoutTools(LLMStandardTests):
    secret = TOKEN
    calls_tools = False

    @pytest.fixture
    def model(self, emulator: Emulator) -> WorkersAI:
        return WorkersAI(**wired(emulator, model="@cf/deepseek-ai/deepseek-r1-distill-qwen-32b"))


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


class TestReranker(RerankerStandardTests):
    secret = TOKEN

    @pytest.fixture
    def model(self, emulator: Emulator) -> WorkersAIRerank:
        return WorkersAIRerank(**wired(emulator))
