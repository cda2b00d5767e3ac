"""Parameters of a chat call in the asynchronous queue: each is part of the item, or is rejected with the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.workers_ai import WorkersAI
from pydantic import BaseModel
from tests.core.test_keywords import TOOL, VALUES
from tests.generation.conftest import FakeQueue, Generator
from tests.support import every_row, wired

from langchain_workers_ai import ChatWorkersAI, WorkersAIBatchGenerator
from workers_ai import AsyncClient, Client
from workers_ai._settings.keywords import PER_CALL
from workers_ai._wire.params import RUN_ONLY_PARAMS
from workers_ai.errors import BadRequestError, ConfigurationError
from workers_ai.generation import Answers, ChatInput, generate
from workers_ai_emulator import Emulator, QueueSettings

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
HI = [{"role": "user", "content": "hi"}]


PER_CALL_VALUES: dict[str, Any] = {
    "timeout": 5, "request_timeout": 5, "total_timeout": 50, "max_retries": 1, "on_busy": "retry",
    "reject_if_busy": True, "session_id": "s", "gateway": "gate", "extra_headers": {"x-mine": "yes"}, "extra_body": {},
}  # fmt: skip
assert PER_CALL_VALUES.keys() == PER_CALL


class City(BaseModel):
    """A city."""

    name: str


def by_core(emulator: Emulator, ledger: Path, extra_body: dict[str, Any], **params: Any) -> Any:
    chat = ChatInput(HI, params, extra_body)
    generate([("a", chat)], ledger=ledger, model=MODEL, client=Client(**wired(emulator)), progress=False)


def by_client(emulator: Emulator, ledger: Path, extra_body: dict[str, Any], **params: Any) -> Any:
    queued = AsyncClient(**wired(emulator)).queued(MODEL, ledger=ledger, window_s=0)
    asyncio.run(queued.chat(MODEL, HI, extra_body=extra_body, **params))


def by_langchain_batch(emulator: Emulator, ledger: Path, extra_body: dict[str, Any], **params: Any) -> Any:
    chat = ChatWorkersAI(**wired(emulator, model=MODEL, queue="always", ledger=str(ledger), model_kwargs=extra_body))
    chat.bind(**params).batch(["hi"])


def by_langchain_generator(emulator: Emulator, ledger: Path, extra_body: dict[str, Any], **params: Any) -> Any:
    chat = ChatWorkersAI(**wired(emulator, model=MODEL, model_kwargs=extra_body))
    WorkersAIBatchGenerator(chat.bind(**params), ledger=ledger, progress=False).generate(["hi"])


def by_langchain_queued(emulator: Emulator, ledger: Path, extra_body: dict[str, Any], **params: Any) -> Any:
    chat = ChatWorkersAI(**wired(emulator, model=MODEL)).queued(ledger=ledger, window_s=0)
    asyncio.run(chat.ainvoke("hi", model_kwargs=extra_body, **params))


def by_llama_index_queued(emulator: Emulator, ledger: Path, extra_body: dict[str, Any], **params: Any) -> Any:
    llm = WorkersAI(**wired(emulator, model=MODEL, additional_kwargs=extra_body)).queued(ledger=ledger, window_s=0)
    asyncio.run(llm.achat([ChatMessage("hi")], **params))


def by_llama_index_rows(emulator: Emulator, ledger: Path, extra_body: dict[str, Any], **params: Any) -> Any:
    llm = WorkersAI(**wired(emulator, model=MODEL, additional_kwargs=extra_body))
    options: dict[str, Any] = {"ledger": ledger, "llm_kwargs": {"max_tokens": 9, **params}, "progress": False}
    llm.structured_predict_many(City, PromptTemplate("{x}"), [{"x": "hi"}], **options)


PLACES: tuple[Callable[..., Any], ...] = (
    by_core, by_client, by_langchain_batch, by_langchain_generator, by_langchain_queued, by_llama_index_queued,
    by_llama_index_rows,
)  # fmt: skip
_SET_BY_ROWS = {"response_format", "guided_json", "tools", "tool_choice", "parallel_tool_calls"}
"""Parameters that ``structured_predict_many`` sets or excludes."""
_PART_OF_LEDGER = (by_langchain_generator, by_llama_index_rows)
"""Callers whose body fields belong to the ledger."""


@every_row(("place",), [(place,) for place in PLACES])
def test_every_parameter_is_part_of_the_item_and_of_its_key(tmp_path: Path, place: Any) -> None:
    emulator, ledger = Emulator(queue=QueueSettings("at_once")), tmp_path / place.__name__
    params = {name: VALUES[name] for name in VALUES if place is not by_llama_index_rows or name not in _SET_BY_ROWS}
    for _ in range(2):
        place(emulator, ledger, {"x_mine": [7]}, **params)
    (item,) = sent(emulator)
    assert {name: item.get(name) for name in params} == {**params, "stream_options": None}
    assert item["x_mine"] == [7]
    if place in _PART_OF_LEDGER:
        with pytest.raises(ConfigurationError, match=r"created with extra_body .*'x_mine': \[7\].*, not "):
            place(emulator, ledger, {"x_mine": [8]}, **params)
    else:
        place(emulator, ledger, {"x_mine": [8]}, **params)
    assert len(sent(emulator)) == 1 + (place not in _PART_OF_LEDGER)


@every_row(
    ("name", "value"),
    [(name, value) for name, value in PER_CALL_VALUES.items() if name not in ("extra_body", "session_id")],
)
def test_setting_of_a_call_replaces_that_of_a_batch_and_is_rejected_elsewhere(
    tmp_path: Path, name: str, value: Any
) -> None:
    emulator = Emulator(queue=QueueSettings("at_once"))
    with pytest.raises(ConfigurationError, match=f"{name} cannot be set for a queued chat.* set it on the client"):
        by_client(emulator, tmp_path / name, {}, **{name: value})
    with pytest.raises(ConfigurationError, match="cannot be set for a generation: set it on the LLM"):
        by_llama_index_rows(emulator, tmp_path / name, {}, **{name: value})
    assert sent(emulator) == []
    for place in (by_langchain_batch, by_langchain_generator):
        place(emulator, tmp_path / f"{place.__name__}-{name}", {}, **{name: value})
        submission = next(entry for entry in emulator.log.entries[::-1] if "requests" in (entry.json or {}))
        assert (submission.headers.get("x-mine") == "yes") == (name == "extra_headers")
        assert (submission.headers.get("cf-aig-gateway-id") == "gate") == (name == "gateway")


def test_parameter_without_a_form_in_the_queue_is_rejected(tmp_path: Path) -> None:
    emulator = Emulator(queue=QueueSettings("at_once"))
    queued = AsyncClient(**wired(emulator)).queued("@cf/openai/gpt-oss-120b", ledger=tmp_path / "a", window_s=0)
    for name in sorted(RUN_ONLY_PARAMS):
        with pytest.raises(ConfigurationError, match=f"gpt-oss-120b does not accept {name} in the queue"):
            asyncio.run(queued.chat("@cf/openai/gpt-oss-120b", HI, **{name: VALUES[name]}))
    with pytest.raises(ConfigurationError, match="tools cannot be set for a generation"):
        by_llama_index_rows(emulator, tmp_path / "b", {}, tools=[TOOL])
    assert emulator.log.requests == 0


def test_invalid_chat_does_not_affect_the_others(tmp_path: Path) -> None:
    """A chat that cannot be sent raises before it joins a submission."""
    emulator = Emulator(queue=QueueSettings("at_once"))
    loop: dict[str, Any] = {"role": "user"}
    loop["content"] = [loop]
    bad: list[dict[str, Any]] = [
        {"response_format": {"type": "json_schema"}}, {"extra_body": {"stream": True}}, {"extra_body": 5},
        {"messages": [loop]}, {"messages": "hi"}, {"messages": [5]},
    ]  # fmt: skip

    async def main() -> list[Any]:
        queued = AsyncClient(**wired(emulator)).queued(MODEL, ledger=tmp_path / "a", window_s=0.05)
        calls = [queued.chat(MODEL, **{"messages": HI, **given}) for given in [*bad, {}]]
        return await asyncio.gather(*calls, return_exceptions=True)

    *failed, answer = asyncio.run(main())
    assert [type(error) for error in failed] == [ConfigurationError] * 3 + [BadRequestError] * 3
    assert answer.text
    assert len(sent(emulator)) == 1


def test_log_probabilities_are_kept(sync: Generator) -> None:
    odds = {"content": [{"token": "yes", "logprob": -0.5}]}
    choice = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop", "logprobs": odds}
    queue = FakeQueue()
    queue._result = lambda request, found: {"choices": [choice]}  # type: ignore[method-assign]
    chat = ChatInput(HI, {"logprobs": True})
    (answer,) = sync([("a", chat)], queue).answers()
    assert answer.message is not None
    assert answer.message["logprobs"] == odds
    with Answers(sync.ledger) as answers:
        (reply,) = answers.find([chat])
    assert reply is not None
    assert reply.logprobs == odds


def sent(emulator: Emulator) -> list[dict[str, Any]]:
    """Return the items of all submissions."""
    bodies = [entry.json for entry in emulator.log.entries if isinstance(entry.json, dict)]
    return [item for body in bodies for item in body.get("requests", ())]
