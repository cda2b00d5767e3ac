"""``langchain-cloudflare`` over a socket, unchanged except for the base URL."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("langchain_cloudflare", reason="langchain-cloudflare is in the group 'rivals'")
from langchain_cloudflare import (
    ChatCloudflareWorkersAI,
    CloudflareWorkersAIEmbeddings,
    CloudflareWorkersAIReranker,
)
from langchain_cloudflare.decision_models import CloudflareWorkersAIDecisionModel
from tests.emulator.conftest import BGE, GEMMA, LLAMA
from tests.emulator.test_chat import CLOCK_TOOL, GREETING

from workers_ai_emulator import Emulator

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the package


@pytest.fixture(autouse=True)
def _collected_here() -> Iterator[None]:
    """Collect the unclosed sockets of the package here, where their warnings are ignored."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    return Emulator()


@pytest.fixture(scope="module")
def url(emulator: Emulator) -> Iterator[str]:
    with emulator.serve() as served:
        yield served


def chat(url: str, model: str, **more: Any) -> Any:
    return ChatCloudflareWorkersAI(account_id="acct", api_token="token", model=model, cloudflare_api_base=url, **more)


@pytest.mark.parametrize("model", [LLAMA, GEMMA])
def test_chat_whole_streamed_and_async(url: str, model: str) -> None:
    llm = chat(url, model)

    assert llm.invoke("Hello").text == GREETING
    assert asyncio.run(llm.ainvoke("Hello")).text == GREETING
    assert "".join(chunk.text for chunk in llm.stream("Hello")) == GREETING


@pytest.mark.parametrize("model", [LLAMA, GEMMA])
def test_tools(url: str, model: str) -> None:
    (call,) = chat(url, model).bind_tools([CLOCK_TOOL]).invoke("Time in Oslo?").tool_calls

    assert (call["name"], call["args"]) == ("clock", {"city": "Oslo"})


def test_embeddings(url: str) -> None:
    embeddings = CloudflareWorkersAIEmbeddings(
        account_id="acct", api_token="token", model_name=BGE, api_base_url=f"{url}/accounts"
    )

    assert [len(row) for row in embeddings.embed_documents(["a", "b"])] == [768, 768]


def test_reranking(url: str) -> None:
    reranker = CloudflareWorkersAIReranker(account_id="acct", api_token="token", api_base_url=f"{url}/accounts")

    assert reranker.rerank(query="cat", documents=["a dog", "a cat"])[0].index == 1


def test_decisions(url: str) -> None:
    model = CloudflareWorkersAIDecisionModel(account_id="acct", api_token="token", api_base_url=f"{url}/accounts")
    questions = {"urgent": {"type": "noul", "instructions": "Is checkout failing?"}}
    result = model.evaluate(state="Checkout is failing.", questions=questions)

    assert result["answers"]["urgent"]["noul"] > 0.5
