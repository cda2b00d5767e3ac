"""Invalid arguments of calls: rejected before sending, with a remedy in the message."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.support import every_row

from langchain_workers_ai import ChatWorkersAI
from workers_ai import Client
from workers_ai import errors as e
from workers_ai._settings.settings import BatchWorker
from workers_ai.integration._settings_model import SettingsModel
from workers_ai_emulator import Emulator

CHAT = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
VISION = "@cf/moonshotai/kimi-k2.6"
BGE = "@cf/baai/bge-m3"
RERANK = "@cf/baai/bge-reranker-base"
HI = [{"role": "user", "content": "hi"}]


def tool(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "clock", "parameters": parameters}}


ODD_DATA: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no messages": (
        lambda c: c.chat(CHAT, None),
        "messages must be a list of dicts with role and content, not a NoneT",
    ),
    "a text for messages": (lambda c: c.chat(CHAT, "hi"), "messages must be a list of dicts .* not a str"),
    "one message": (lambda c: c.chat(CHAT, HI[0]), "messages must be a list of dicts .* not a dict"),
    "messages that run out": (lambda c: c.chat(CHAT, iter(HI)), "messages must be a list of dicts .* not a list_it"),
    "a number among messages": (lambda c: c.chat(CHAT, [*HI, 5]), "message 1 must be a dict .* not a int"),
    "a text among messages": (lambda c: c.chat(CHAT, ["hi"]), "message 0 must be a dict .* not a str"),
    "calls": (lambda c: c.chat(CHAT, [{"role": "assistant", "tool_calls": 5}]), "tool_calls of message 0 must be a l"),
    "a call": (lambda c: c.chat(CHAT, [{"role": "assistant", "tool_calls": [5]}]), "tool_calls of message 0 must"),
    "a function": (
        lambda c: c.chat(CHAT, [{"role": "assistant", "tool_calls": [{"id": "a", "function": "f"}]}]),
        "tool_calls of message 0 must be a list of dicts with id and function",
    ),
    "content": (
        lambda c: c.chat(CHAT, [{"role": "user", "content": {1}}]),
        "cannot be written as JSON: Object of type",
    ),
    "content, bytes": (
        lambda c: c.chat(CHAT, [{"role": "user", "content": b"x"}]),
        "cannot be written as JSON: Object",
    ),
    "calls, a dict": (lambda c: c.chat(CHAT, [{"role": "assistant", "tool_calls": {"a": 1}}]), "tool_calls of message"),
    **{
        f"an image at {url}": (
            lambda c, url=url: c.chat(
                VISION, [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
            ),
            "message 0 has data without the media type of an image",
        )
        for url in (None, 5)
    },
    "a tuple of too many texts": (lambda c: c.batch.run(BGE, [{"text": ("a",) * 200}]), "request 0 has 200 texts"),
    "no texts": (lambda c: c.embed(BGE, None), "texts must be a list of strings, not a NoneType"),
    "a number for texts": (lambda c: c.embed(BGE, 5), "texts must be a list of strings, not a int"),
    "a dict for texts": (lambda c: c.embed(BGE, {"text": "a"}), "texts must be a list of strings, not a dict"),
    "a text to rank": (lambda c: c.rerank(RERANK, "q", "abc"), "texts must be a list of strings, not one string"),
    "nothing to rank": (lambda c: c.rerank(RERANK, "q", None), "texts must be a list of strings, not a NoneType"),
    "a number to rank": (lambda c: c.rerank(RERANK, "q", ["a"] * 150 + [5]), "text 150 is a int, not a string"),
    "no query": (lambda c: c.rerank(RERANK, None, ["a"]), "a non-empty string, not None"),
    "no requests": (lambda c: c.batch.run(BGE, None), "requests must be a list of inputs .* not a NoneType"),
    "one request": (lambda c: c.batch.run(BGE, {"text": ["a"]}), "requests must be a list of inputs .* not a dict"),
    "requests that run out": (lambda c: c.batch.run(BGE, iter([])), "requests must be a list of inputs .* not a list_"),
    "a text among requests": (lambda c: c.batch.run(CHAT, [{}, "a"]), "request 1 must be a dict .* not a str"),
    "no submission": (lambda c: c.batch.submit(BGE, None), "requests must be a list of inputs .* not a NoneType"),
    "an id to poll": (
        lambda c: c.batch.poll("id"),
        r"job must be a BatchJob, not a str: create one with BatchJob\(request_id, model\)",
    ),
    "an id to collect": (lambda c: c.batch.collect("id"), "job must be a BatchJob, not a str"),
}

ODD_OPTIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a number of tools": (
        lambda c: c.chat(CHAT, HI, tools=5),
        "tools must be a list, not a int: pass each tool as",
    ),
    "one tool": (lambda c: c.chat(CHAT, HI, tools=tool({})), "tools must be a list, not a dict"),
    "a number among tools": (lambda c: c.chat(CHAT, HI, tools=[5]), "tool 0 must be a dict, not a int"),
    "a function": (lambda c: c.chat(CHAT, HI, tools=[{"function": "f"}]), "tool 0 must be a dict"),
    "a name": (lambda c: c.chat(CHAT, HI, tools=[{"function": {"name": 5}}]), "tool 0 has no name"),
    "parameters": (lambda c: c.chat(CHAT, HI, tools=[tool([1])]), "parameters of tool 'clock' must be a JSON schema"),
    "properties, null": (lambda c: c.chat(CHAT, HI, tools=[tool({"properties": None})]), "'clock' must be an object"),
    "properties, a list": (lambda c: c.chat(CHAT, HI, tools=[tool({"properties": [1]})]), "'clock' must be an object"),
    "tool_choice": (lambda c: c.chat(CHAT, HI, tools=[tool({})], tool_choice=5), "name of a tool or a dict, not 5"),
    "response_format": (lambda c: c.chat(CHAT, HI, response_format=5), "response_format must be a dict such as"),
    "extra_body": (
        lambda c: c.chat(CHAT, HI, extra_body="x"),
        "extra_body must be a dict of body fields, not s",
    ),
    "options": (
        lambda c: c.chat(CHAT, HI, extra_body={"options": 5}, on_busy="raise"),
        "options in extra_body must be a dict, not int",
    ),
    "kind": (lambda c: c.embed(BGE, ["a"], kind="doc"), "kind 'doc' is not one of document, query"),
    "empty_text": (lambda c: c.embed(BGE, [""], empty_text="drop"), "empty_text 'drop' is not one of raise, space"),
    "pooling": (lambda c: c.embed(BGE, ["a"], pooling="max"), "pooling 'max' is not one of None, mean, cls"),
    "queue": (
        lambda c: c.embed(BGE, ["a"], kind="query", queue="x"),
        "queue 'x' is not one of never, overflow, always",
    ),
    "query_instruction": (
        lambda c: c.embed(BGE, ["a"], query_instruction=5),
        "query_instruction must be text, not int",
    ),
    "deadline_s": (lambda c: c.batch.run(BGE, [], "5"), "deadline_s must be a number of seconds, .* not '5'"),
    "an invalid deadline": (
        lambda c: c.embed(BGE, ["a"], queue="always", deadline_s=float("nan")),
        "deadline_s must be a number of seconds, or None for no bound, not nan",
    ),
    "the URL of a Worker": (lambda c: BatchWorker(5), "the url of a BatchWorker must be text, not int"),  # type: ignore[arg-type]
    "headers of a Worker": (lambda c: BatchWorker("https://a.example", "x"), "headers of a BatchWorker must be"),  # type: ignore[arg-type]
}


def refuse(request: httpx.Request) -> httpx.Response:
    pytest.fail("something was sent")


@pytest.fixture
def client(account: dict[str, Any]) -> Client:
    return Client(http_client=httpx.Client(transport=httpx.MockTransport(refuse)), **account)


@every_row(("call", "says"), ODD_DATA.values())
def test_data_of_another_type_is_a_bad_request(call: Callable[[Any], Any], says: str, client: Client) -> None:
    with pytest.raises(e.BadRequestError, match=says):
        call(client)


@every_row(("call", "says"), ODD_OPTIONS.values())
def test_an_option_of_another_type_is_reported(call: Callable[[Any], Any], says: str, client: Client) -> None:
    with pytest.raises(e.ConfigurationError, match=says):
        call(client)


def test_only_text_parts_of_an_assistant_turn_are_its_text(account: dict[str, Any]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content)["messages"])
        return httpx.Response(200, json={"response": "a"})

    sent: list[Any] = []
    client = Client(http_client=httpx.Client(transport=httpx.MockTransport(answer)), **account)
    left = [{"executable_code": {"code": "1"}}, {"type": "text", "text": "Hel"}, "lo"]
    client.chat(CHAT, [*HI, {"role": "assistant", "content": left}])
    assert [message["content"] for message in sent[0]] == ["hi", "Hello"]
    with pytest.raises(e.BadRequestError, match=r"message 0 has content of an unknown form with the keys \['a'\]"):
        client.chat(CHAT, [{"role": "user", "content": [{"a": 1}]}])


def test_texts_may_come_from_a_generator_and_lone_surrogates_are_harmless(account: dict[str, Any]) -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.query.decode() or request.headers["x-session-affinity"])
        found = {"response": [{"id": 0, "score": 0.5}]} if "reranker" in request.url.path else []
        return httpx.Response(200, json={"result": found, "success": True})

    own = httpx.Client(transport=httpx.MockTransport(answer))
    client = Client(http_client=own, session_id="a\ud800", **account)
    assert client.rerank(RERANK, "q", (text for text in ["a"]))[0].index == 0  # type: ignore[arg-type]
    assert client.models(search="llama\ud800", hide_experimental=True, task=None) == []
    assert seen == ["a%3F", "search=llama%3F&hide_experimental=true&page=1&per_page=100"]
    with pytest.raises(e.ConfigurationError, match="has no keyword 'serch'; did you mean 'search'"):
        client.models(serch="llama")  # type: ignore[call-arg]


FOREIGN: dict[str, tuple[Callable[[Client], Any], str]] = {
    "a near miss": (lambda c: c.chat(CHAT.removesuffix("-fast"), HI), rf"Did you mean {CHAT}"),
    "a chat model of another provider": (lambda c: c.chat("gpt-4o-mini", HI), rf"Did you mean {CHAT} or @cf/openai"),
    "vectors of another provider": (lambda c: c.embed("text-embedding-3-small", ["a"]), rf"Did you mean {BGE} or @cf"),
    "a bare name": (lambda c: c.embed("bge-m3", ["a"]), rf"Did you mean {BGE}\?"),
    "a chat model that embeds": (lambda c: c.embed(CHAT, ["a"]), rf"{CHAT} is a chat model; for this call use {BGE}"),
    "an embedding model that chats": (
        lambda c: c.chat(BGE, HI),
        rf"{BGE} is an embedding model; for this call use @cf",
    ),
    "texts in the queue": (lambda c: c.embed("bge-m3", ["a"], queue="always"), rf"Did you mean {BGE}\?"),
    "chats in the queue": (
        lambda c: c.batch.submit(CHAT.removesuffix("-fast"), [{"messages": HI}]),
        rf"Did you mean {CHAT}",
    ),
    "contexts in the queue": (
        lambda c: c.batch.run("bge-reranker", [{"query": "q", "contexts": []}]),
        rf"Did you mean {RERANK}\?",
    ),
    "another length": (lambda c: c.embed(BGE, ["a"], dimensions=7), r"dimensions=7 exists only on api=.embeddings."),
}


@every_row(("call", "text"), FOREIGN.values())
def test_a_model_of_another_task_raises_an_error_with_suitable_models(
    call: Callable[[Client], Any], text: str, account: dict[str, Any]
) -> None:
    client = Client(**account, http_client=httpx.Client(transport=Emulator().transport()))
    with pytest.raises(e.WorkersAIError, match=text):
        call(client)


def test_signatures_show_every_setting_before_the_first_object() -> None:
    code = """
import inspect
from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings
from workers_ai import AsyncClient, Client
for cls in (ChatWorkersAI, WorkersAIEmbeddings, AsyncClient, Client):
    shown = inspect.signature(cls).parameters.keys()
    assert {"account_id", "timeout", "total_timeout", "default_headers", "on_retry"} <= shown, (cls, shown)
assert "temperature" in inspect.signature(ChatWorkersAI).parameters
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_class_that_cannot_be_built_yet_shows_its_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unbuilt(SettingsModel):
        pass

    monkeypatch.setattr(Unbuilt, "model_rebuild", lambda: None)
    assert list(inspect.signature(Unbuilt).parameters) == ["args", "data"]


def test_the_model_may_be_given_by_position(account: dict[str, Any]) -> None:
    assert ChatWorkersAI(CHAT, **account).model == CHAT
    for args, given in (((CHAT, 1), {}), ((CHAT,), {"model": BGE}), ((1,), {})):
        with pytest.raises(e.ConfigurationError, match=r"by position"):
            ChatWorkersAI(*args, **given, **account)


def test_a_missing_account_raises_an_error_with_its_sources() -> None:
    with pytest.raises(e.ConfigurationError, match=r"dash\.cloudflare\.com .*wrangler whoami.*emulator"):
        Client()
