"""Published exchanges, replayed against the client; contents of recordings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from captured import CAPTURED, PREPARE
from exchanges import EXCHANGES, Exchange
from readers import disagreements, of_deltas, of_error, of_reply
from recording import CASSETTES, EmulatedReplyError, describe, not_in_the_cassette, use_cassette
from shapes import Want
from tests.support import every_row

from workers_ai.errors import WorkersAIError
from workers_ai.types import ChatReply
from workers_ai_emulator import Emulator, QueueSettings

DOCUMENTED = CASSETTES / "documented"
ALL = EXCHANGES | CAPTURED
NO_ADDRESS = "public files whose repository is not recorded"


def neutral(got: Any) -> Any:
    """Return a chat value without its class; other values unchanged."""
    if isinstance(got, ChatReply):
        return of_reply(got)
    if isinstance(got, list) and got and hasattr(got[-1], "last"):
        return of_deltas(got)
    return got


@pytest.mark.parametrize(("name", "exchange"), ALL.items(), ids=ALL)
def test_published_exchanges(name: str, exchange: Exchange, face: Any) -> None:
    with use_cassette(DOCUMENTED / f"{name}.yaml") as cassette:
        text = ""
        try:
            got = neutral(exchange.ask(face(not_in_the_cassette, **exchange.settings)))
        except WorkersAIError as exc:
            got, text = of_error(exc), str(exc)
        if isinstance(exchange.want, Want):
            assert disagreements(exchange.want, got) == []
        else:
            assert got == exchange.want
        assert exchange.says in text
        assert cassette.all_played


@pytest.mark.parametrize("name", ["run_session_affinity", "chat_completions_gateway_refuses"])
def test_a_cassette_fails_when_a_header_that_it_documents_is_not_sent(name: str, face: Any) -> None:
    bare = face(not_in_the_cassette)
    with use_cassette(DOCUMENTED / f"{name}.yaml"), pytest.raises(Exception, match="the cassette documents"):
        EXCHANGES[name].ask(bare)


def test_every_cassette_is_replayed_and_none_is_missing() -> None:
    assert {path.stem for path in DOCUMENTED.iterdir()} == set(ALL)
    assert len(ALL) >= 70


@every_row("path", sorted(DOCUMENTED.iterdir()))
def test_a_cassette_has_its_source(path: Path) -> None:
    content = describe(path)
    assert re.match(rf"https://(developers\.cloudflare\.com|github\.com)/\S+$|{NO_ADDRESS}$", content["source"])
    assert content["evidence"] in ("documented", "seen", "recorded")
    assert path.stem in EXCHANGES or re.match(r"20\d\d-\d\d(-\d\d)?$", content["date"])
    assert content["note"].endswith(".")
    assert content["interactions"]


# --- contents of a recording ---

SECRET_ACCOUNT = "fedcba9876543210fedcba9876543210"
SECRET_TOKEN = "v1.0-a-token-that-nobody-may-see-0123456789"
SECRET_JOB = "9b2f6c1e-53a7-4d0c-8a64-7e1c90d3f5ab"


def service(request: httpx.Request) -> httpx.Response:
    """Return replies that repeat secrets and contain a job id."""
    headers = {"cf-ray": "8f1c2d3e4f5a6b7c-OSL", "set-cookie": f"a={SECRET_TOKEN}", "x-trace": SECRET_JOB}
    if b"request_id" in request.content:
        assert SECRET_JOB.encode() in request.content, "the real service is asked with the real id"
        items = [{"id": 0, "result": {"data": [[1.0, 2.0]]}, "success": True, "external_reference": None}]
        result: Any = {"responses": items, "account": SECRET_ACCOUNT}
    else:
        result = {"status": "queued", "request_id": SECRET_JOB, "echo": request.headers["authorization"]}
    return httpx.Response(200, headers=headers, json={"result": result, "success": True, "errors": [], "messages": []})


def test_recordings_have_no_secret_and_replay_with_another_account(tmp_path: Path, face: Any) -> None:
    path = tmp_path / "queue.yaml"
    ask = EXCHANGES["queue_rerank"].ask
    secret = {"account_id": SECRET_ACCOUNT, "api_token": SECRET_TOKEN, "session_id": "kept"}
    with use_cassette(path, record=True, secrets={SECRET_ACCOUNT: "ACCOUNT", SECRET_TOKEN: "TOKEN"}):
        recorded = ask(face(service, **secret))
    assert recorded == [(0, True, {"data": [[1.0, 2.0]]})]

    text = path.read_text(encoding="utf-8")
    assert [word for word in (SECRET_ACCOUNT, SECRET_TOKEN, SECRET_JOB, "OSL", "cookie") if word in text] == []
    content = describe(path)["interactions"]
    assert [set(one["request"]["headers"]) for one in content] == [{"content-type", "x-session-affinity"}] * 2
    assert [set(one["response"]["headers"]) for one in content] == [{"content-type", "cf-ray"}] * 2
    assert content[0]["response"]["body"]["json"]["result"] == {
        "status": "queued",
        "request_id": "00000000-0000-4000-8000-000000000001",
        "echo": "Bearer TOKEN",
    }
    assert content[1]["request"]["body"]["json"] == {"request_id": "00000000-0000-4000-8000-000000000001"}

    with use_cassette(path) as cassette:
        assert ask(face(not_in_the_cassette, session_id="kept")) == recorded
        assert cassette.all_played


def test_a_stream_is_recorded_as_text(tmp_path: Path, face: Any) -> None:
    events = b'data: {"response":"Bl\xc3\xa5"}\n\ndata: {"response":"b\xc3\xa6r"}\n\ndata: [DONE]\n\n'
    path = tmp_path / "stream.yaml"
    headers = {"content-type": "text/event-stream"}
    messages = [{"role": "user", "content": "hi"}]
    with use_cassette(path, record=True):
        first = face(lambda request: httpx.Response(200, headers=headers, content=events)).stream("@cf/a", messages)
    assert 'data: {"response":"Blå"}' in path.read_text(encoding="utf-8")
    with use_cassette(path):
        again = face(not_in_the_cassette).stream("@cf/a", messages)
    assert "".join(piece.text for piece in first) == "".join(piece.text for piece in again) == "Blåbær"


def test_the_emulator_is_never_recorded(tmp_path: Path, face: Any) -> None:
    path = tmp_path / "chat.yaml"
    with pytest.raises(EmulatedReplyError), use_cassette(path, record=True):
        EXCHANGES["run_chat"].ask(face(Emulator().handle))
    assert not path.exists()


def test_another_request_is_not_answered_from_a_cassette(face: Any) -> None:
    ask = EXCHANGES["run_stream"].ask
    with use_cassette(DOCUMENTED / "run_chat.yaml"), pytest.raises(Exception, match="Can't overwrite"):
        ask(face(not_in_the_cassette))


# --- the emulator against the documents ---


def skeleton(value: Any) -> Any:
    """Return a JSON value without its contents."""
    if isinstance(value, dict):
        return {key: skeleton(one) for key, one in value.items()}
    if isinstance(value, list):
        return [skeleton(one) for one in value]
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, int | float) else "text"


def lacking(published: Any, emulated: Any, path: str = "") -> list[str]:
    """Return the paths of the published skeleton that are missing or different in the emulated one. Null matches all.

    Of a list, each published item must look like one of the emulated ones.
    """
    if "NoneType" in (published, emulated):
        return []
    if isinstance(published, dict) and isinstance(emulated, dict):
        return [
            found
            for key, one in published.items()
            if not (key == "response" and {"text"} & {str(one), str(emulated.get(key))})  # a text, or its parsed value
            for found in (lacking(one, emulated[key], f"{path}.{key}") if key in emulated else [f"{path}.{key}"])
        ]
    if isinstance(published, list) and isinstance(emulated, list):
        return [f"{path}[]" for one in published if all(lacking(one, other) for other in emulated)]
    return [] if published == emulated else [path]


LIVING = {  # replace models that were retired after the pages were written
    "@cf/meta/llama-3.1-8b-instruct": "@cf/meta/llama-3.1-8b-instruct-fp8",
    "@hf/nousresearch/hermes-2-pro-mistral-7b": "@cf/ibm-granite/granite-4.0-h-micro",
}
UNKNOWN_TO_THE_EMULATOR = {"cf-aig-cache-status"}
SUPERSEDED = {"run_no_such_model"}  # documented, but recorded differently later
REPORTED = {  # odd replies from reports: the emulator sends them only as named shapes
    path.stem for path in DOCUMENTED.iterdir() if describe(path)["evidence"] == "seen" and path.stem in EXCHANGES
}


class Replay:
    """Send the requests of a cassette to an emulator. Later requests have the emulator's job id."""

    def __init__(self, name: str, interactions: list[Any]) -> None:
        pending = sum("request_id" in str(one["request"]["body"]) for one in interactions) - 1
        self.emulator = Emulator(queue=QueueSettings(polls=max(0, pending)))
        PREPARE.get(name, lambda emulator: None)(self.emulator)
        self.job = ""

    def ask(self, request: Any, published: Any) -> httpx.Response:
        """Return the emulator's reply to a request of the cassette."""
        body = dict((request["body"] or {}).get("json") or {})
        if self.job and "request_id" in body:
            body["request_id"] = self.job
        base, _, model = request["uri"].partition("/run/")
        name, flag, query = model.partition("?")
        url = f"{base}/run/{LIVING.get(name, name)}{flag}{query}" if model else base
        headers = {"authorization": "Bearer any", **{key: value[0] for key, value in request["headers"].items()}}
        with httpx.Client(transport=self.emulator.transport()) as client:
            reply = client.request(request["method"], url, json=body or None, headers=headers)
        if "request_id" in str(published["body"].get("json")) and not self.job:
            self.job = reply.json()["result"]["request_id"]
        return reply


def events(text: str) -> list[Any]:
    """Return the events of a stream. Its end mark is a text."""
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def codes(body: Any) -> list[Any]:
    """Return the codes of an error response."""
    return [one.get("code") for one in body.get("errors") or []] if isinstance(body, dict) else []


@every_row("name", sorted(set(ALL) - REPORTED - SUPERSEDED))
def test_the_emulator_answers_in_the_published_shapes(name: str) -> None:
    content = describe(DOCUMENTED / f"{name}.yaml")
    replay = Replay(name, content["interactions"])
    for interaction in content["interactions"]:
        published = interaction["response"]
        reply = replay.ask(interaction["request"], published)
        assert reply.status_code == published["status"]["code"]
        assert set(published["headers"]) - UNKNOWN_TO_THE_EMULATOR <= set(reply.headers)
        if "text" in published["body"]:
            shapes = skeleton(events(reply.text))
            assert lacking(skeleton(events(published["body"]["text"])), shapes) == []
            continue
        body = published["body"]["json"]
        assert codes(reply.json()) == codes(body)
        assert lacking(skeleton(body), skeleton(reply.json())) == []
        if content["evidence"] == "recorded":
            assert lacking(skeleton(reply.json()), skeleton(body)) == []
