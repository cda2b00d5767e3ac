"""Secrets are in no repr, dump, message or local variable of a traceback, no matter how they were set."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.load import dumps
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.embeddings.workers_ai import WorkersAIBatchEmbedding, WorkersAIEmbedding
from llama_index.llms.workers_ai import WorkersAI
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank as LlamaRerank
from pydantic import BaseModel, field_validator
from tests.conftest import Face
from tests.support import every_row

from langchain_workers_ai import ChatWorkersAI, WorkersAIDecisions, WorkersAIEmbeddings, WorkersAIRerank
from workers_ai import BatchWorker, Client, GatewayOptions
from workers_ai import errors as e
from workers_ai._engine_settings import bulk_settings
from workers_ai._settings.settings import Settings
from workers_ai.generation import generate
from workers_ai.ingest import ingest

CHAT = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
BGE = "@cf/baai/bge-m3"
HI = [{"role": "user", "content": "hi"}]
SECRET = "sekrit-value"
CLASSES: dict[str, Callable[..., Any]] = {
    "ChatWorkersAI": lambda **s: ChatWorkersAI(model=CHAT, **s),
    "WorkersAIEmbeddings": lambda **s: WorkersAIEmbeddings(model=BGE, **s),
    "WorkersAIRerank": lambda **s: WorkersAIRerank(**s),
    "WorkersAIDecisions": lambda **s: WorkersAIDecisions(model="@cf/cloudflare/clef", **s),
    "WorkersAI": lambda **s: WorkersAI(model=CHAT, **s),
    "WorkersAIEmbedding": lambda **s: WorkersAIEmbedding(model=BGE, **s),
    "WorkersAIBatchEmbedding": lambda **s: WorkersAIBatchEmbedding(model=BGE, ledger="ledger.sqlite", **s),
    "LlamaRerank": lambda **s: LlamaRerank(**s),
}
GIVEN: dict[str, Any] = {
    "api_token": SECRET,
    "api_key": SECRET,
    "gateway": {"id": "gw", "token": SECRET},
    "default_headers": {"x-key": SECRET},
    "batch_worker": {"url": "https://batch.example.workers.dev", "headers": {"authorization": f"Bearer {SECRET}"}},
}
WAYS: dict[str, Callable[[Any, str, Any], Any]] = {
    "assignment": lambda one, name, value: setattr(one, name, value) or one,
    "copy": lambda one, name, value: one.model_copy(update={name: value}),
    "construction": lambda one, name, value: type(one)(**{**one_settings(one, name), name: value}),
}


def one_settings(one: Any, changed: str) -> dict[str, Any]:
    kept = {name: getattr(one, name) for name in ("account_id", "api_token", "model", "model_name", "ledger")
            if name in type(one).model_fields and (name, changed) != ("api_token", "api_key")}  # fmt: skip
    return {name: value for name, value in kept.items() if value is not None}


@every_row("way", WAYS)
@every_row("setting", GIVEN)
@every_row("made", CLASSES)
def test_a_secret_set_in_any_way_is_masked(made: str, setting: str, way: str, account: dict[str, Any]) -> None:
    if setting == "api_key" and way == "assignment":
        pytest.skip("pydantic assigns to fields only")
    one = WAYS[way](CLASSES[made](**account), setting, GIVEN[setting])
    shown = [repr(one), str(one), str(one.model_dump()), one.model_dump_json(), repr(vars(one))]
    if hasattr(one, "to_json"):
        shown += (
            [str(one.to_json()), dumps(one) if one.__class__.is_lc_serializable() else ""] if "lc" in dir(one) else []
        )
    assert SECRET not in "".join(map(str, shown))
    settings = one.client.settings
    sent = str(settings._headers()) + str(settings.batch_worker and settings.batch_worker.plain_headers())
    assert SECRET in sent  # the secret is used


@every_row("made", CLASSES)
def test_a_malformed_setting_is_rejected_when_it_is_assigned(made: str, account: dict[str, Any]) -> None:
    one = CLASSES[made](**account)
    for name, value in {"default_headers": {"x": "a\n"}, "gateway": {"ttl": 1}, "timeout": "long"}.items():
        with pytest.raises(e.ConfigurationError):
            setattr(one, name, value)
        with pytest.raises(e.ConfigurationError):
            one.model_copy(update={name: value})


# --- local variables of tracebacks ---


def frames_of(error: BaseException) -> Iterator[str]:
    """Return the local variables of every frame of an error and its causes, as error reporters show them."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        left += [one.__cause__, one.__context__]
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if "/tests/" not in frame.f_code.co_filename:  # variables of the caller are not checked
                yield from (shown(value) for value in frame.f_locals.values())
        yield str(one)


def shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a failing repr shows nothing
        return ""


SECRETS = {"token": "secret-token-1", "gateway": "secret-gateway", "header": "secret-header", "worker": "secret-worker"}


def secret_settings() -> dict[str, Any]:
    return {
        "account_id": "0123456789abcdef0123456789abcdef",
        "api_token": SECRETS["token"],
        "gateway": {"id": "gw", "token": SECRETS["gateway"]},
        "default_headers": {"x-key": SECRETS["header"]},
    }


def shown_secrets(error: BaseException) -> set[str]:
    text = "\n".join(frames_of(error))
    return {name for name, secret in SECRETS.items() if secret in text}


WRONG: dict[str, dict[str, Any]] = {
    "unknown keyword": {"temprature": 1},
    "malformed account": {"account_id": "x y"},
    "malformed header": {"default_headers": {"x-key": SECRETS["header"] + "\n"}},
    "malformed gateway": {"gateway": {"id": "a b", "token": SECRETS["gateway"]}},
    "malformed token": {"api_token": SECRETS["token"] + " x"},
    "malformed URL": {"base_url": "ftp://x"},
    "misspelt token": {"api_tokn": SECRETS["token"]},
    "gateway with an unknown option": {"gateway": {"id": "gw", "tokn": SECRETS["gateway"]}},
    "gateway without an id": {"gateway": {"token": SECRETS["gateway"]}},
    "token in a list": {"api_token": [SECRETS["token"]]},
    "headers in a list": {"default_headers": [("x-key", SECRETS["header"])]},
    "header in a list": {"default_headers": {"x-key": [SECRETS["header"]]}},
    "password in the URL": {"base_url": f"https://me:{SECRETS['token']}@host.example/client/v4"},
    "password in a malformed URL": {"base_url": f"https://me:{SECRETS['token']}/x@host.example:port/client/v4"},
    "token in the query of the URL": {"base_url": f"https://host.example/client/v4?token={SECRETS['token']}"},
    "password in the URL of a Worker": {"batch_worker": f"https://me:{SECRETS['worker']}@host.example"},
    "headers of a Worker in a list": {
        "batch_worker": {"url": "https://w.example", "headers": [("x-key", SECRETS["worker"])]}
    },
}


def settings_of_an_engine(**settings: Any) -> Settings:
    return bulk_settings("WorkersAIEmbedder", settings)


@every_row("wrong", WRONG.values())
@every_row("made", [*CLASSES, "Client", "an engine"])
def test_no_frame_of_a_constructor_that_raises_shows_a_secret(made: str, wrong: dict[str, Any]) -> None:
    make = {"Client": Client, "an engine": settings_of_an_engine, **CLASSES}[made]
    with pytest.raises(e.ConfigurationError) as caught:
        make(**{**secret_settings(), **wrong})
    assert shown_secrets(caught.value) == set()


WRONG_OPTIONS: dict[str, Callable[[], Any]] = {
    "malformed id": lambda: GatewayOptions("a b", SECRETS["gateway"]),
    "missing id": lambda: GatewayOptions(None, token=SECRETS["gateway"]),  # type: ignore[arg-type]
    "line break in the token": lambda: GatewayOptions("gw", SECRETS["gateway"] + "\n"),
    "token in a list": lambda: GatewayOptions("gw", [SECRETS["gateway"]]),  # type: ignore[arg-type]
    "misspelt token": lambda: GatewayOptions("gw", tokn=SECRETS["gateway"]),  # type: ignore[call-arg]
    "option of another type": lambda: GatewayOptions("gw", SECRETS["gateway"], skip_cache="yes"),  # type: ignore[arg-type]
    "metadata of another type": lambda: GatewayOptions("gw", SECRETS["gateway"], metadata={"a": object()}),  # type: ignore[dict-item]
    "metadata that is not JSON": lambda: GatewayOptions("gw", SECRETS["gateway"], metadata={"a": float("nan")}),
    "models of another type": lambda: GatewayOptions("gw", SECRETS["gateway"], allowed_models=[5]),  # type: ignore[list-item]
    "no URL": lambda: BatchWorker(None, {"x-key": SECRETS["worker"]}),  # type: ignore[arg-type]
    "another scheme": lambda: BatchWorker("ftp://w.example", {"x-key": SECRETS["worker"]}),
    "password in the URL": lambda: BatchWorker(f"https://me:{SECRETS['worker']}@w.example"),
    "token in the query": lambda: BatchWorker(f"https://w.example?token={SECRETS['worker']}"),
    "line break in a header": lambda: BatchWorker("https://w.example", {"x-key": SECRETS["worker"] + "\n"}),
    "header in a list": lambda: BatchWorker("https://w.example", {"x-key": [SECRETS["worker"]]}),  # type: ignore[dict-item]
    "headers in a list": lambda: BatchWorker("https://w.example", [("x-key", SECRETS["worker"])]),  # type: ignore[arg-type]
    "misspelt headers": lambda: BatchWorker("https://w.example", hedrs={"x-key": SECRETS["worker"]}),  # type: ignore[call-arg]
}


@every_row("make", WRONG_OPTIONS.values())
def test_no_frame_of_an_options_object_that_raises_shows_a_secret(make: Callable[[], Any]) -> None:
    with pytest.raises(e.ConfigurationError) as caught:
        make()
    assert shown_secrets(caught.value) == set()


def test_settings_and_options_mask_secrets_that_are_passed_as_text() -> None:
    worker = BatchWorker("https://w.example", {"x-key": SECRETS["worker"]})
    gateway = replace(GatewayOptions("gw", SECRETS["gateway"]), id="other")
    settings = Settings("a" * 32, SECRETS["token"], gateway=gateway, batch_worker=worker)  # type: ignore[arg-type]
    assert not any(secret in repr(settings) for secret in SECRETS.values())
    assert settings._headers()["cf-aig-authorization"] == f"Bearer {SECRETS['gateway']}"


def refuse(request: httpx.Request) -> httpx.Response:
    return httpx.Response(401, json={"errors": [{"message": f"bad {dict(request.headers)}", "code": 10000}]})


def break_off(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("broken off", request=request)


def interrupt(request: httpx.Request) -> httpx.Response:
    headers = dict(request.headers)  # variables in frames of httpx
    raise KeyboardInterrupt(len(headers))


@pytest.mark.parametrize("answer", [refuse, break_off, interrupt])
@every_row("call", ["chat", "stream", "embed"])
def test_no_frame_of_a_call_that_fails_shows_a_secret(face: Callable[..., Face], call: str, answer: Any) -> None:
    one = face(answer, max_retries=0, **secret_settings())
    args = (BGE, ["a"]) if call == "embed" else (CHAT, HI)
    with pytest.raises((e.WorkersAIError, KeyboardInterrupt)) as caught:
        getattr(one, call)(*args, extra_headers={"x-worker": SECRETS["worker"]})
    assert shown_secrets(caught.value) == set()


USER = [ChatMessage(role="user", content="hi")]


async def _aclosed(stream: Any) -> list[Any]:
    return [item async for item in (await stream if inspect.iscoroutine(stream) else stream)]


ENTRIES: dict[str, Callable[[Any, Any, dict[str, Any]], Any]] = {
    "invoke": lambda chat, llm, given: chat.invoke("hi", **given),
    "ainvoke": lambda chat, llm, given: asyncio.run(chat.ainvoke("hi", **given)),
    "stream": lambda chat, llm, given: list(chat.stream("hi", **given)),
    "astream": lambda chat, llm, given: asyncio.run(_aclosed(chat.astream("hi", **given))),
    "batch": lambda chat, llm, given: chat.batch(["a", "b"], **given),
    "bind": lambda chat, llm, given: chat.bind(**given).invoke("hi"),
    "bind_tools": lambda chat, llm, given: chat.bind_tools([], **given).invoke("hi"),
    "with_structured_output": lambda chat, llm, given: chat.with_structured_output(Answer, **given).invoke("hi"),
    "chat": lambda chat, llm, given: llm.chat(USER, **given),
    "achat": lambda chat, llm, given: asyncio.run(llm.achat(USER, **given)),
    "stream_chat": lambda chat, llm, given: list(llm.stream_chat(USER, **given)),
    "astream_chat": lambda chat, llm, given: asyncio.run(_aclosed(llm.astream_chat(USER, **given))),
    "complete": lambda chat, llm, given: llm.complete("hi", **given),
    "chat_with_tools": lambda chat, llm, given: llm.chat_with_tools([], "hi", **given),
    "structured_predict": lambda chat, llm, given: llm.structured_predict(Answer, PromptTemplate("hi"), given),
    "stream_structured_predict": lambda chat, llm, given: list(
        llm.stream_structured_predict(Answer, PromptTemplate("hi"), llm_kwargs=given)
    ),
}


class Answer(BaseModel):
    """An answer."""

    text: str = ""


@pytest.mark.parametrize(
    "given",
    [
        {"extra_headers": {"x-key": SECRETS["header"]}},
        {"extra_headers": {"x y": SECRETS["header"]}},
        {"extra_headers": [("x-key", SECRETS["header"])]},
        {"extra_heders": {"x-key": SECRETS["header"]}},
        {"gateway": {"id": "gw", "token": SECRETS["gateway"]}},
        {"gateway": {"id": "gw", "tokn": SECRETS["gateway"]}},
    ],
    ids=str,
)
def test_no_frame_of_a_framework_shows_a_secret_of_a_call(given: dict[str, Any], account: dict[str, Any]) -> None:
    sync, own = (kind(transport=httpx.MockTransport(refuse)) for kind in (httpx.Client, httpx.AsyncClient))
    settings = {"http_client": sync, "http_async_client": own, "max_retries": 0, **account}
    chat, llm = ChatWorkersAI(CHAT, **settings), WorkersAI(CHAT, **settings)
    for name, enter in ENTRIES.items():
        with pytest.raises(e.WorkersAIError) as caught:
            enter(chat, llm, dict(given))
        assert shown_secrets(caught.value) == set(), name


@pytest.mark.parametrize("bulk", [ingest, generate])
def test_no_frame_of_a_run_that_fails_shows_a_secret(bulk: Any, tmp_path: Path) -> None:
    model = BGE if bulk is ingest else CHAT
    with pytest.raises(e.ConfigurationError) as caught:
        bulk([("a", "text"), ("b", object())], ledger=tmp_path, model=model, max_retries=-1, **secret_settings())
    assert shown_secrets(caught.value) == set()


def test_no_frame_of_a_connection_that_fails_shows_a_secret(face: Callable[..., Face]) -> None:
    one = face(None, base_url="http://127.0.0.1:9", max_retries=0, **secret_settings())
    for call in (one.chat, one.stream):
        with pytest.raises(e.APIConnectionError) as caught:
            call(CHAT, HI)
        assert shown_secrets(caught.value) == set()


# --- proxies, short tokens, copies ---


def test_the_password_of_a_proxy_is_in_no_message(face: Callable[..., Face], monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("http://user:proxy-pass@127.0.0.1:9", "http://user:proxy-pass@[x", "foo://user:proxy-pass@x"):
        monkeypatch.setenv("HTTPS_PROXY", url)
        with pytest.raises((e.APIConnectionError, e.ConfigurationError)) as caught:
            face(None, max_retries=0).chat(CHAT, HI)
        assert "proxy-pass" not in "\n".join(frames_of(caught.value)) + str(caught.value)


def test_loopback_uses_no_proxy(face: Callable[..., Face], monkeypatch: pytest.MonkeyPatch) -> None:
    from workers_ai_emulator import Emulator

    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Emulator().serve() as url:
        assert face(None, base_url=url, max_retries=0).chat(CHAT, HI).text


def test_a_short_token_is_masked_only_as_a_whole_word() -> None:
    scrub = Settings.resolve(account_id="a" * 32, api_token="t")._scrub
    assert scrub("no token t at /t/x, tt") == "no token [redacted] at /[redacted]/x, tt"
    scrub = Settings.resolve(account_id="a" * 32, api_token="long-token")._scrub
    assert scrub("xlong-tokeny") == "x[redacted]y"


def test_the_longer_of_two_secrets_is_replaced_first() -> None:
    settings = Settings.resolve(account_id="a" * 32, api_token="token-12", gateway=GatewayOptions("g", "token-12345"))
    assert settings._scrub("token-12345 token-12") == "[redacted] [redacted]"


def test_pickles_and_settings_keep_their_secrets(account: dict[str, Any]) -> None:
    worker = BatchWorker("https://b.example.workers.dev", {"x": SECRET})
    client = pickle.loads(pickle.dumps(Client(**account, batch_worker=worker, default_headers={"x-key": SECRET})))
    assert client.settings._headers()["x-key"] == SECRET
    assert SECRET not in repr(client.settings)


# --- errors inside validators, handlers at exit ---


def test_a_failed_call_inside_a_validator_stays_a_typed_error(face: Callable[..., Face]) -> None:
    one = face(refuse, max_retries=0)

    class Checked(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def ask(cls, text: str) -> str:
            return one.chat(CHAT, [{"role": "user", "content": text}]).text

    with pytest.raises(e.AuthenticationError):
        Checked(text="hi")


AT_EXIT = """
import atexit, sys
from workers_ai import Client
client = Client(account_id="a" * 32, api_token="secret-token", base_url=sys.argv[1])
texts = [str(number) for number in range(20)]
atexit.register(lambda: print(client.chat(sys.argv[2], [{"role": "user", "content": "hi"}]).text != ""))
atexit.register(lambda: print(len(client.embed("@cf/baai/bge-m3", texts, batch_size=2).vectors)))
client.chat(sys.argv[2], [{"role": "user", "content": "hi"}])
"""


def test_handlers_at_exit_make_calls() -> None:
    from workers_ai_emulator import Emulator

    with Emulator().serve() as url:
        run = subprocess.run(
            [sys.executable, "-c", AT_EXIT, url, CHAT], capture_output=True, text=True, timeout=60, env=dict(os.environ)
        )
    assert run.stdout.split() == ["20", "True"], run.stderr


def test_an_unknown_keyword_is_rejected(account: dict[str, Any]) -> None:
    with pytest.raises(e.ConfigurationError, match="no keyword 'unknwn'"):
        Client(**account, unknwn=1)
