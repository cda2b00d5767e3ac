"""One list of settings, of chat parameters and of embedding options: every class accepts each of them and sends it."""

from __future__ import annotations

import inspect
import json
import pickle
from dataclasses import fields
from typing import Any

import httpx
import pytest
from langchain_core.documents import Document
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.workers_ai import WorkersAIBatchEmbedding, WorkersAIEmbedding
from llama_index.llms.workers_ai import WorkersAI, WorkersAIBatchExtractor
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank as LlamaRerank
from tests.support import every_row

from langchain_workers_ai import ChatWorkersAI, WorkersAIDecisions, WorkersAIEmbeddings, WorkersAIRerank
from workers_ai import AsyncClient, Client, Limiter, RetryPolicy, Settings
from workers_ai import errors as e
from workers_ai._connection import Connection
from workers_ai._settings.checks import CHECKS
from workers_ai._settings.keywords import ALIASES, PER_CALL, SETTINGS
from workers_ai._wire.params import CHAT_PARAMS, EMBED_KEYWORDS, RUN_ONLY_PARAMS
from workers_ai._wire.vectors import EmbedOptions
from workers_ai.client import ClientArguments
from workers_ai.generation import GenerateOptions, agenerate, generate
from workers_ai.generation import _options as generate_options
from workers_ai.generation import estimate as estimate_generation
from workers_ai.ingest import IngestOptions, aingest, ingest
from workers_ai.ingest import _options as ingest_options
from workers_ai.ingest import estimate as estimate_ingestion
from workers_ai.integration import ChatFields, ConnectionFields, EmbeddingFields
from workers_ai.integration._settings_model import HANDLES

CHAT = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
HI = [{"role": "user", "content": "hi"}]
CLASSES = (
    ChatWorkersAI,
    WorkersAIDecisions,
    WorkersAIEmbeddings,
    WorkersAIRerank,
    WorkersAI,
    WorkersAIEmbedding,
    LlamaRerank,
)
TOOL = {
    "type": "function",
    "function": {"name": "clock", "description": "Time.", "parameters": {"type": "object", "properties": {}}},
}
VALUES: dict[str, Any] = {
    "temperature": 0.5, "top_p": 0.5, "top_k": 5, "max_tokens": 5, "stop": ["x"], "seed": 5, "frequency_penalty": 0.5,
    "presence_penalty": 0.5, "repetition_penalty": 1.5, "logprobs": True, "top_logprobs": 2, "tools": [TOOL],
    "tool_choice": "none", "parallel_tool_calls": False, "response_format": {"type": "json_object"},
    "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}, "lora": "adapter", "raw": False,
    "guided_json": {"type": "object"}, "stream_options": {"include_usage": False},
}  # fmt: skip
"""A value for each parameter of a chat call. A new parameter needs one here."""


def test_settings_are_the_same_in_every_list() -> None:
    fixed = {"reject_if_busy", "allow_insecure_http"}  # read once, by Settings.resolve
    assert {field.name for field in fields(Settings)} - {"token_from_env"} == set(SETTINGS) - fixed
    assert set(CHECKS) == set(SETTINGS) - fixed - {"account_id", "api_token", "base_url", "batch_worker"}
    handles = set(HANDLES)
    assert handles | {"settings"} == inspect.signature(Connection.open).parameters.keys()
    assert set(ClientArguments.__annotations__) == {*SETTINGS, *ALIASES, *handles, "async_http_client"}
    assert set(ConnectionFields.model_fields) - handles == set(SETTINGS)
    assert PER_CALL - {"extra_headers", "extra_body"} <= {*SETTINGS, *ALIASES}
    for cls in (Client, AsyncClient):
        assert set(SETTINGS) | handles <= inspect.signature(cls).parameters.keys()


def test_chat_parameters_and_embedding_options_are_the_same_in_every_list() -> None:
    assert set(VALUES) == CHAT_PARAMS
    assert RUN_ONLY_PARAMS <= CHAT_PARAMS
    own = set(ChatFields.model_fields) - set(ConnectionFields.model_fields)
    assert own - {"api"} == CHAT_PARAMS - {"tools", "stream_options"}
    assert set(EmbedOptions._fields) <= EMBED_KEYWORDS
    own = set(EmbeddingFields.model_fields) - set(ConnectionFields.model_fields)
    assert own == EMBED_KEYWORDS - {"kind", "batch_size"} | {"extra_body"}


@pytest.mark.parametrize(
    ("calls", "estimate", "options", "checked"),
    [
        ((ingest, aingest), estimate_ingestion, IngestOptions, ingest_options.Options),
        ((generate, agenerate), estimate_generation, GenerateOptions, generate_options.Options),
    ],
)
def test_options_of_a_run_are_the_same_in_every_list(calls: Any, estimate: Any, options: Any, checked: Any) -> None:
    names = {field.name for field in fields(checked) if field.init} - {"ledger", "model"}
    assert names == set(options.__annotations__)
    for call in calls:
        shown = inspect.signature(call).parameters
        assert set(shown) == {"source", "client", "ledger", "model", *names, *SETTINGS}
        assert shown["mode"].default == "queue"
    shown = set(inspect.signature(estimate).parameters) - {"source", "ledger", "model"}
    assert {"mode"} < shown < names
    with pytest.raises(e.ConfigurationError, match="estimate has no keyword 'model_id'"):
        estimate([], model="@cf/a/b", model_id="@cf/a/b")


def test_every_chat_parameter_is_sent(account: dict[str, Any]) -> None:
    sent: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json={"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]})

    own = httpx.Client(transport=httpx.MockTransport(answer))
    client = Client(http_client=own, **account)
    for name, value in VALUES.items():
        given = {"tools": [TOOL]} if name in ("tool_choice", "parallel_tool_calls") else {}
        if name == "stream_options":
            list(client.stream_chat(CHAT, HI, stream_options=value))
        else:
            client.chat(CHAT, HI, **{**given, name: value})  # type: ignore[arg-type]
        assert sent[-1][name] == value, name
        if name in ChatFields.model_fields and name not in ("tool_choice", "parallel_tool_calls"):
            ChatWorkersAI(CHAT, http_client=own, **account, **{name: value}).invoke("hi")
            WorkersAI(model=CHAT, http_client=own, **account, **{name: value}).complete("hi")
            assert [body[name] for body in sent[-2:]] == [value, value], name


FOREIGN: dict[str, Any] = {
    "extra_headers": {"x-mine": "yes"}, "extra_body": {"x_field": 7}, "n": 1, "max_retries": None,
    "timeout": (5, 60), "gateway": {"id": "gate"},
}  # fmt: skip
"""Arguments of the OpenAI SDK and of other providers."""


def _calls(one: Any) -> Any:
    """Send a call of a class of any kind."""
    if isinstance(one, (ChatWorkersAI, WorkersAI)):
        return one.invoke("hi") if isinstance(one, ChatWorkersAI) else one.complete("hi")
    if isinstance(one, WorkersAIEmbeddings):
        return one.embed_documents(["a"])
    if isinstance(one, WorkersAIEmbedding):
        return one.get_text_embedding_batch(["a"], extra_headers={"x-call": "yes"})
    if isinstance(one, WorkersAIRerank):
        return one.compress_documents([Document("a")], "q")
    return one.postprocess_nodes([NodeWithScore(node=TextNode(text="a"))], query_str="q")


@pytest.mark.parametrize("make", [one for one in CLASSES if one is not WorkersAIDecisions])
def test_arguments_of_the_openai_sdk_are_sent_or_ignored_with_a_warning(make: Any, account: dict[str, Any]) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        row = {"id": 0, "score": 0.5}
        return httpx.Response(200, json={"result": {"response": [row], "data": [[0.5, 0.5]], "choices": [
            {"message": {"content": "ok"}, "finish_reason": "stop"}]}})  # fmt: skip

    own = httpx.Client(transport=httpx.MockTransport(answer))
    is_chat = make in (ChatWorkersAI, WorkersAI)
    given = {**FOREIGN, "http_client": own, "model": "@cf/a/b", **account}
    given |= {"max_completion_tokens": 9, "logit_bias": {"5": 1}} if is_chat else {}
    with pytest.warns(UserWarning, match=f"{make.__name__} ignores store, user: Workers AI has no such parameter"):
        one = make(**given, user="me", store=True)
    _calls(one)
    (request,) = sent
    body = json.loads(request.content)
    wanted = {"x_field": 7, "max_tokens": 9, "logit_bias": {"5": 1}} if is_chat else {"x_field": 7}
    assert {name: body.get(name) for name in wanted} == wanted
    assert {"n", "user", "store"}.isdisjoint(body)
    assert (request.headers["x-mine"], request.headers["cf-aig-gateway-id"]) == ("yes", "gate")
    assert request.extensions["timeout"] == {"connect": 5, "read": 60, "write": 60, "pool": 60}
    assert one.client.settings.max_retries == 2
    with pytest.raises(e.ConfigurationError, match="n=2"):
        make(**{**given, "n": 2})


ALIAS_VALUES: dict[str, Any] = {
    "api_key": "t-1",
    "auth_token": "t-1",
    "api_base": "https://a.example",
    "request_timeout": 7,
}


@every_row("make", [Client, AsyncClient, *CLASSES])
def test_names_of_other_libraries_are_accepted(make: Any, account: dict[str, Any]) -> None:
    assert set(ALIAS_VALUES) == set(ALIASES)
    for alias, value in ALIAS_VALUES.items():
        kept = {name: given for name, given in account.items() if name != ALIASES[alias]}
        model = {"model": "@cf/a/b"} if make in CLASSES else {}
        one = make(**kept, **model, **{alias: value})
        settings = one.settings if make not in CLASSES else one.client.settings
        found = getattr(settings, ALIASES[alias])
        assert (found.get_secret_value() if alias in ("api_key", "auth_token") else found) == value
        with pytest.raises(e.ConfigurationError, match="twice"):
            make(
                **kept, **model, **{alias: value, ALIASES[alias]: "https://other.example" if alias == "api_base" else 9}
            )


@every_row("make", CLASSES)
def test_policies_are_passed_to_the_clients_and_stay_out_of_dumps(make: Any, account: dict[str, Any]) -> None:
    sent: list[httpx.Request] = []

    def fail(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(500, json={"errors": [{"message": "no"}]})

    retry, limiter = RetryPolicy(max_retries=1, base_s=0.0), Limiter()
    own = httpx.Client(transport=httpx.MockTransport(fail))
    one = make(**account, model="@cf/a/b", retry=retry, limiter=limiter, http_client=own)
    with pytest.raises(e.InternalServerError):
        one.client.chat(CHAT, HI)
    assert len(sent) == 2
    assert {"retry", "limiter"}.isdisjoint(one.model_dump())
    assert pickle.loads(pickle.dumps(one)).retry == retry
    for wrong in ({"retry": 3}, {"limiter": 3}):
        with pytest.raises(e.ConfigurationError, match="must be a workers_ai"):
            make(**account, model="@cf/a/b", **wrong)


def test_llama_index_accepts_reuse_client_and_every_class_async_http_client(account: dict[str, Any]) -> None:
    own = httpx.AsyncClient()
    transport: Any = AsyncClient(**account, async_http_client=own)._connection.transport
    assert transport._own_async is own
    with pytest.raises(e.ConfigurationError, match="twice"):
        AsyncClient(**account, async_http_client=own, http_async_client=own)
    for make in CLASSES:
        assert make(**account, model="@cf/a/b", async_http_client=own).http_async_client is own
    for make in (WorkersAI, WorkersAIEmbedding, LlamaRerank):
        assert make(**account, model="@cf/a/b", reuse_client=False)  # type: ignore[arg-type]


@every_row("make", [*CLASSES, WorkersAIBatchEmbedding, WorkersAIBatchExtractor])
def test_the_json_schema_describes_every_field(make: Any) -> None:
    properties = make.model_json_schema()["properties"]
    assert {"http_client", "retry", "binding", "docstore"}.isdisjoint(properties)
    of_the_frameworks = {"disable_streaming", "is_text_node_only", "name", "output_version", "pydantic_program_mode"}
    described = set(properties) - of_the_frameworks
    assert [name for name in described if not properties[name].get("description")] == []


# --- forms of base_url ---

ROUTES = (
    "",
    "/",
    "/ai",
    "/ai/v1",
    "/ai/v1/",
    "/ai/v1/chat/completions",
    "/ai/v1/embeddings",
    "/ai/run",
    "/ai/run/@cf/a/b",
)
API = "https://api.cloudflare.com/client/v4"


@pytest.mark.parametrize("base", [API, "http://127.0.0.1:8787/client/v4", "https://proxy.example/workers"])
def test_a_url_of_the_account_is_understood(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for route in ROUTES:
        url = f"{base}/accounts/acct{route}"
        for given in ({"base_url": url}, {"base_url": url, "account_id": "acct"}):
            assert Settings.resolve(api_token="t", **given)._root == f"{base}/accounts/acct/ai"  # type: ignore[arg-type]
    url = f"{base}/accounts/acct/ai/v1"
    with pytest.raises(e.ConfigurationError, match=rf"another account than account_id: pass base_url='{base}'"):
        Settings.resolve(api_token="t", base_url=url, account_id="other")
    monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", "other")
    assert Settings.resolve(api_token="t", base_url=url).account_id == "acct"  # an argument overrides the environment
    monkeypatch.setenv("CLOUDFLARE_BASE_URL", url)
    with pytest.raises(e.ConfigurationError, match="another account than CLOUDFLARE_ACCOUNT_ID"):
        Settings.resolve(api_token="t")
    monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", "acct")
    assert Settings.resolve(api_token="t").base_url == base


def test_a_gateway_url_contains_the_account() -> None:
    base = "https://gateway.ai.cloudflare.com/v1/acct/gw/workers-ai"
    for route in ("", "/v1", "/v1/chat/completions", "/run/@cf/a/b"):
        settings = Settings.resolve(api_token="t", base_url=base + route)
        assert (settings._root, settings.account_id) == (base, "acct")
