"""Destination of a call: routes, gateways, sessions, routed models, checked on the wire for every class."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from tests.support import every_row

import langchain_workers_ai as ours
from langchain_workers_ai import ChatWorkersAI, GatewayOptions, WorkersAIEmbeddings, WorkersAIRerank
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator import Emulator

ACCOUNT = "0123456789abcdef0123456789abcdef"
ROOT = f"/client/v4/accounts/{ACCOUNT}/ai"
MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
GPT_OSS = "@cf/openai/gpt-oss-120b"


class Recorder:
    """Record requests, and answer each with a reply of its task."""

    def __init__(self, headers: dict[str, str] | None = None, **reply: Any) -> None:
        self.requests: list[httpx.Request] = []
        self.reply, self.headers = reply or {"response": "Hi", "data": [[0.1, 0.2]]}, headers or {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self.reply
        if "reranker" in request.url.path:
            reply = {"response": [{"id": 0, "score": 0.5}]}
        return httpx.Response(200, json={"result": reply, "success": True}, headers=self.headers)

    @property
    def last(self) -> httpx.Request:
        return self.requests[-1]

    @property
    def body(self) -> Any:
        return json.loads(self.last.content)

    def settings(self, **more: Any) -> dict[str, Any]:
        transport = httpx.MockTransport(self)
        clients = {
            "http_client": httpx.Client(transport=transport),
            "http_async_client": httpx.AsyncClient(transport=transport),
        }
        return {"account_id": ACCOUNT, "api_token": "secret-token", **clients, **more}


TASKS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "chat": lambda call, settings: call(ChatWorkersAI(model=MODEL, **settings), "invoke", "hi"),
    "run": lambda call, settings: call(ChatWorkersAI(model=MODEL, api="run", **settings), "invoke", "hi"),
    "stream": lambda call, settings: call(ChatWorkersAI(model=MODEL, **settings), "stream", "hi"),
    "documents": lambda call, settings: call(
        WorkersAIEmbeddings(model="@cf/baai/bge-m3", **settings), "embed_documents", ["a"]
    ),
    "query": lambda call, settings: call(WorkersAIEmbeddings(model="@cf/baai/bge-m3", **settings), "embed_query", "a"),
    "rerank": lambda call, settings: call(WorkersAIRerank(**settings), "compress_documents", [Document("a")], "q"),
}
PATHS = {
    "chat": "v1/chat/completions",
    "run": f"run/{MODEL}",
    "stream": "v1/chat/completions",
    "documents": "run/@cf/baai/bge-m3",
    "query": "run/@cf/baai/bge-m3",
    "rerank": "run/@cf/baai/bge-reranker-base",
}


@pytest.mark.parametrize("task", TASKS)
def test_urls_and_headers(task: str, call: Any) -> None:
    recorder = Recorder()
    TASKS[task](call, recorder.settings(default_headers={"x-team": "a"}, session_id="s-1"))
    (request,) = recorder.requests
    assert request.url.host == "api.cloudflare.com"
    assert request.url.path == f"{ROOT}/{PATHS[task]}"
    assert request.url.query == b""
    assert request.headers["authorization"] == "Bearer secret-token"
    assert (request.headers["x-team"], request.headers["x-session-affinity"]) == ("a", "s-1")
    assert not [name for name in request.headers if name.startswith("cf-aig")]


@pytest.mark.parametrize("task", TASKS)
@every_row("form", ["id", "options", "dict", "environment"])
def test_a_gateway_is_a_header(task: str, form: str, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """https://github.com/cloudflare/ai/issues/403"""
    gateway: Any = {
        "id": "gw",
        "options": GatewayOptions("gw", token="gateway-secret", cache_ttl_s=60, metadata={"team": "a"}, max_attempts=2),
        "dict": {"id": "gw", "skip_cache": True},
        "environment": None,
    }[form]
    if form == "environment":
        monkeypatch.setenv("CLOUDFLARE_AI_GATEWAY", "gw")
    recorder = Recorder()
    TASKS[task](call, recorder.settings(**({} if gateway is None else {"gateway": gateway})))
    sent = {name: value for name, value in recorder.last.headers.items() if name.startswith("cf-aig")}
    assert sent.pop("cf-aig-gateway-id") == "gw"
    assert recorder.last.url.host == "api.cloudflare.com"
    assert (
        sent
        == {
            "id": {},
            "environment": {},
            "dict": {"cf-aig-skip-cache": "true"},
            "options": {
                "cf-aig-authorization": "Bearer gateway-secret",
                "cf-aig-cache-ttl": "60",
                "cf-aig-metadata": '{"team": "a"}',
                "cf-aig-max-attempts": "2",
            },
        }[form]
    )


@pytest.mark.parametrize("task", TASKS)
@every_row("slash", ["", "/"])
def test_the_host_of_a_gateway(task: str, slash: str, call: Any) -> None:
    """https://github.com/cloudflare/ai/pull/398"""
    recorder = Recorder()
    TASKS[task](call, recorder.settings(base_url=f"https://gateway.ai.cloudflare.com/v1/{ACCOUNT}/gw{slash}"))
    assert recorder.last.url.path == f"/v1/{ACCOUNT}/gw/workers-ai/{PATHS[task]}"


def test_headers_of_the_reply(call: Any) -> None:
    headers = {"cf-aig-log-id": "log-1", "cf-aig-cache-status": "HIT", "cf-ray": "ray-1", "set-cookie": "a=b"}
    recorder = Recorder(headers)
    answer = call(ChatWorkersAI(model=MODEL, **recorder.settings(gateway="gw")), "invoke", "hi")
    assert answer.response_metadata["headers"] == {
        "cf-aig-log-id": "log-1",
        "cf-aig-cache-status": "HIT",
        "cf-ray": "ray-1",
    }


def test_the_cache_of_a_gateway(chat: Callable[..., ChatWorkersAI], emulator: Emulator, route: str, call: Any) -> None:
    one = chat(model=MODEL, api=route, gateway=GatewayOptions("gw", cache_ttl_s=60))
    statuses = [call(one, "invoke", "hi").response_metadata["headers"]["cf-aig-cache-status"] for _ in range(2)]
    assert statuses == ["MISS", "HIT"]


@pytest.mark.parametrize(
    ("code", "says"), [(2009, "AI Gateway requires a token"), (10000, "api_token|CLOUDFLARE_API_TOKEN")]
)
def test_layer_of_a_rejection(
    code: int, says: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    """https://github.com/cloudflare/ai/issues/250"""
    layer: Any = "gateway" if code == 2009 else "api"
    emulator.faults.add(Fault.error(401, code, "Unauthorized", layer=layer, times=None))
    with pytest.raises(ours.AuthenticationError, match=says) as caught:
        call(chat(gateway="gw"), "invoke", "hi")
    assert "secret-token-for-tests" not in str(caught.value)
    assert len(emulator.log.entries) == 1


# --- names of models (https://github.com/cloudflare/ai/issues/596) ---


NAMES = ["@cf/new/model", "@hf/google/gemma", "deepseek/deepseek-v4", "dynamic/route", "workers-ai/@cf/a/b", "m"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_sent_unchanged(name: str, call: Any) -> None:
    recorder = Recorder()
    answer = call(ChatWorkersAI(model=name, **recorder.settings()), "invoke", "hi")
    assert recorder.last.url.path == f"{ROOT}/v1/chat/completions"
    assert recorder.body["model"] == name
    assert answer.response_metadata["model_name"] == name


def test_third_party_models_use_the_shared_route(call: Any) -> None:
    """https://developers.cloudflare.com/ai-gateway/usage/rest-api/"""
    recorder = Recorder()
    one = ChatWorkersAI(model="openai/gpt-5.2", api="run", on_busy="raise", temperature=0, **recorder.settings())
    call(one, "invoke", "hi")
    assert recorder.last.url.path == f"{ROOT}/run"
    assert recorder.last.headers["cf-aig-gateway-id"] == "default"
    assert recorder.body == {
        "model": "openai/gpt-5.2",
        "input": {"messages": [{"role": "user", "content": "hi"}], "temperature": 0},
        "options": {"rejectIfBusy": True},
    }
    recorder = Recorder()
    call(ChatWorkersAI(model="openai/gpt-5.2", api="run", **recorder.settings(gateway="gw")), "invoke", "hi")
    assert recorder.last.headers["cf-aig-gateway-id"] == "gw"


def test_a_dynamic_route_has_no_native_form(call: Any) -> None:
    recorder = Recorder()
    with pytest.raises(ours.ConfigurationError, match="chat_completions"):
        call(ChatWorkersAI(model="dynamic/backup", api="run", **recorder.settings()), "invoke", "hi")
    assert recorder.requests == []


@pytest.mark.parametrize("place", ["object", "call"])
def test_the_auto_router(place: str, call: Any) -> None:
    """https://developers.cloudflare.com/ai-gateway/features/auto-router/"""
    routed = {"cf-aig-routed-model": GPT_OSS, "cf-aig-routing-reason": "cost"}
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0, "total_tokens": 1_000_000}
    recorder = Recorder(routed, response="Hi", usage=usage)
    gateway = GatewayOptions("gw", allowed_models=["@cf/openai/*", "@cf/meta/*"])
    session = {"session_id": "søk"}
    one = ChatWorkersAI(
        model="cloudflare/auto", **recorder.settings(gateway=gateway, **(session if place == "object" else {}))
    )
    answer = call(one, "invoke", "hi", **(session if place == "call" else {}))
    headers = recorder.last.headers
    assert headers["cf-aig-allowed-models"] == "@cf/openai/*,@cf/meta/*"
    assert headers["cf-aig-session-id"] == headers["x-session-affinity"] == "s%C3%B8k"
    assert answer.response_metadata["served_model"] == GPT_OSS
    assert answer.response_metadata["headers"] == routed
    assert answer.response_metadata["cost_usd"] == pytest.approx(0.35)


def test_only_the_auto_router_receives_the_session_twice(call: Any) -> None:
    recorder = Recorder()
    call(ChatWorkersAI(model=MODEL, **recorder.settings(session_id="s")), "invoke", "hi")
    assert "cf-aig-session-id" not in recorder.last.headers
    call(ChatWorkersAI(model="cloudflare/auto", **recorder.settings()), "invoke", "hi")
    assert not {"cf-aig-session-id", "x-session-affinity"} & recorder.last.headers.keys()


def test_allowed_models_are_a_list() -> None:
    with pytest.raises(ValueError, match="allowed_models must be a list"):
        GatewayOptions("gw", allowed_models="@cf/openai/gpt-oss-120b")


# --- sessions ---


def test_the_session_of_one_call(chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any) -> None:
    one = chat(session_id="of the object")
    for given, sent in (({}, "of the object"), ({"session_id": "of the call"}, "of the call")):
        ask(one, "hi", **given)
        assert emulator.log.last.headers["x-session-affinity"] == sent


def graph_of(node: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("ask", node)
    graph.add_edge(START, "ask")
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("setting", [None, "mine"])
def test_a_thread_is_a_session(
    setting: str | None, chat: Callable[..., ChatWorkersAI], emulator: Emulator, call: Any
) -> None:
    """The session is the ``thread_id`` of a LangGraph run, unless a session was set."""
    one = chat() if setting is None else chat(session_id=setting)

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [one.invoke(state["messages"])]}

    async def aask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await one.ainvoke(state["messages"])]}

    graph = graph_of(ask if call.mode == "sync" else aask)
    for thread in ("t-1", "t-2"):
        call(graph, "invoke", {"messages": [("user", "hi")]}, {"configurable": {"thread_id": thread}})
        assert emulator.log.last.headers["x-session-affinity"] == (setting or thread)


def test_no_session_outside_a_graph(chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any) -> None:
    ask(chat(), "hi")
    assert "x-session-affinity" not in emulator.log.last.headers


# --- parameters that choose the route ---


@pytest.mark.parametrize(
    "given",
    [{"lora": "my-lora"}, {"top_k": 5}, {"repetition_penalty": 1.1}, {"guided_json": {"type": "object"}}],
    ids=lambda given: next(iter(given)),
)
@pytest.mark.parametrize("place", ["object", "call"])
def test_parameters_of_the_native_route_select_it(
    given: dict[str, Any], place: str, chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any
) -> None:
    model = "@cf/mistral/mistral-7b-instruct-v0.2-lora" if "lora" in given else MODEL
    one = chat(model=model, **(given if place == "object" else {}))
    ask(one, "hi", **(given if place == "call" else {}))
    entry = emulator.log.last
    assert entry.path == f"{ROOT}/run/{model}"
    assert {name: entry.json[name] for name in given} == given
    assert "model" not in entry.json


@pytest.mark.parametrize("api", ["chat_completions", "responses"])
def test_options_of_run_are_rejected_on_other_routes(api: Any, chat: Callable[..., ChatWorkersAI], call: Any) -> None:
    with pytest.raises(ours.ConfigurationError, match="top_k exists only on api='run': omit it"):
        call(chat(model=GPT_OSS, api=api), "invoke", "hi", top_k=5)


def test_a_raw_prompt(chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any) -> None:
    ask(chat(model=MODEL, raw=True), "<s>[INST] hi [/INST]")
    entry = emulator.log.last
    assert entry.json["prompt"] == "<s>[INST] hi [/INST]"
    assert entry.json["raw"] is True
    assert "messages" not in entry.json


def test_a_raw_prompt_is_one_text(chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any) -> None:
    with pytest.raises(ours.BadRequestError, match="single text message"):
        ask(chat(model=MODEL, raw=True), [("system", "a"), ("user", "b")])
    assert emulator.log.entries == []


def test_responses(chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any) -> None:
    answer = ask(chat(model=GPT_OSS, api="responses", max_tokens=50, reasoning_effort="low"), "Why is the sky blue?")
    entry = emulator.log.last
    assert entry.path == f"{ROOT}/v1/responses"
    assert "stream" not in entry.json
    assert (entry.json["max_output_tokens"], entry.json["reasoning"]) == (50, {"effort": "low"})
    assert answer.response_metadata["model_name"] == GPT_OSS
    assert answer.usage_metadata["total_tokens"] > 0


def test_images_over_responses(call: Any) -> None:
    recorder = Recorder(output=[{"type": "message", "content": [{"type": "output_text", "text": "A cat."}]}])
    image = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
    messages = [HumanMessage([{"type": "text", "text": "What is this?"}, image])]
    one = ChatWorkersAI(model="openai/gpt-9", api="responses", **recorder.settings())
    assert call(one, "invoke", messages).text == "A cat."
    assert recorder.body["input"][0]["content"] == [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
    ]


def test_tools_over_responses(chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"name": "clock", "description": "Tell the time in a city.", "parameters": parameters}
    one = chat(model=GPT_OSS, api="responses").bind_tools([tool])
    first = ask(one, "What time is it in Oslo?")
    assert [(made["name"], made["args"]) for made in first.tool_calls] == [("clock", {"city": "Oslo"})]
    result = {"role": "tool", "content": "14:02", "tool_call_id": first.tool_calls[0]["id"]}
    last = ask(one, [("user", "What time is it in Oslo?"), first, result])
    assert "14:02" in last.text
    assert [item["type"] for item in emulator.log.last.json["input"] if "type" in item][-2:] == [
        "function_call",
        "function_call_output",
    ]


def test_the_error_of_a_wrong_input_form_has_the_model(
    chat: Callable[..., ChatWorkersAI], emulator: Emulator, ask: Any
) -> None:
    """https://github.com/cloudflare/ai/issues/279"""
    emulator.faults.add(Fault.error(400, 5006, "AiError: Bad input: Error: required properties at '/' are 'input'"))
    with pytest.raises(ours.BadRequestError, match="'input'") as caught:
        ask(chat(model=GPT_OSS, api="run"), "hi")
    assert GPT_OSS in str(caught.value)
    assert "chat_completions" in str(caught.value)
