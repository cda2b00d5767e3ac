"""Published exchanges, replayed against the client; and what a recording keeps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from exchanges import EXCHANGES, Exchange
from readers import disagreements, of_deltas, of_error, of_reply
from recording import CASSETTES, EmulatedReplyError, describe, not_in_the_cassette, use_cassette
from shapes import Want

from workers_ai.errors import WorkersAIError
from workers_ai.wire.types import ChatReply
from workers_ai_emulator import Emulator

DOCUMENTED = CASSETTES / "documented"


def neutral(got: Any) -> Any:
    """A chat value without its class; anything else as it is."""
    if isinstance(got, ChatReply):
        return of_reply(got)
    if isinstance(got, list) and got and hasattr(got[-1], "last"):
        return of_deltas(got)
    return got


@pytest.mark.parametrize(("name", "exchange"), EXCHANGES.items(), ids=EXCHANGES)
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
    assert {path.stem for path in DOCUMENTED.iterdir()} == set(EXCHANGES)


@pytest.mark.parametrize("path", sorted(DOCUMENTED.iterdir()), ids=lambda path: path.stem)
def test_a_cassette_says_where_it_comes_from(path: Path) -> None:
    content = describe(path)
    assert re.match(r"https://(developers\.cloudflare\.com|github\.com)/\S+$", content["source"])
    assert content["evidence"] in ("documented", "seen")
    assert content["note"].endswith(".")
    assert content["interactions"]


# --- what a recording keeps ---

SECRET_ACCOUNT = "fedcba9876543210fedcba9876543210"
SECRET_TOKEN = "v1.0-a-token-that-nobody-may-see-0123456789"
SECRET_JOB = "9b2f6c1e-53a7-4d0c-8a64-7e1c90d3f5ab"


def service(request: httpx.Request) -> httpx.Response:
    """A service that repeats what it should not, and has a job with an id of its own."""
    headers = {"cf-ray": "8f1c2d3e4f5a6b7c-OSL", "set-cookie": f"a={SECRET_TOKEN}", "x-trace": SECRET_JOB}
    if b"request_id" in request.content:
        assert SECRET_JOB.encode() in request.content, "the real service is asked with the real id"
        items = [{"id": 0, "result": {"data": [[1.0, 2.0]]}, "success": True, "external_reference": None}]
        result: Any = {"responses": items, "account": SECRET_ACCOUNT}
    else:
        result = {"status": "queued", "request_id": SECRET_JOB, "echo": request.headers["authorization"]}
    return httpx.Response(200, headers=headers, json={"result": result, "success": True, "errors": [], "messages": []})


def test_what_is_recorded_has_no_secret_and_replays_with_another_account(tmp_path: Path, face: Any) -> None:
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


def test_a_stream_is_recorded_as_it_reads(tmp_path: Path, face: Any) -> None:
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
    """A JSON value without its contents."""
    if isinstance(value, dict):
        return {key: skeleton(one) for key, one in value.items()}
    if isinstance(value, list):
        return [skeleton(one) for one in value]
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, int | float) else "text"


def lacking(published: Any, emulated: Any, path: str = "") -> list[str]:
    """Paths of the published skeleton that the emulated one lacks, or has otherwise. A null may be anything.

    Of a list, each published item must look like one of the emulated ones.
    """
    if "NoneType" in (published, emulated):
        return []
    if isinstance(published, dict) and isinstance(emulated, dict):
        return [
            found
            for key, one in published.items()
            for found in (lacking(one, emulated[key], f"{path}.{key}") if key in emulated else [f"{path}.{key}"])
        ]
    if isinstance(published, list) and isinstance(emulated, list):
        return [f"{path}[]" for one in published if all(lacking(one, other) for other in emulated)]
    return [] if published == emulated else [path]


def published_answers() -> list[Any]:
    """Every first question of a documented cassette that is answered with JSON and no refusal."""
    found = []
    for path in sorted(DOCUMENTED.iterdir()):
        content = describe(path)
        first = content["interactions"][0]
        if content["evidence"] == "documented" and first["response"]["status"]["code"] == 200:
            found.append(pytest.param(first["request"], first["response"]["body"]["json"], id=path.stem))
    return found


LIVING = {  # in place of models that were retired after the pages were written
    "@cf/meta/llama-3.1-8b-instruct": "@cf/meta/llama-3.1-8b-instruct-fp8",
    "@hf/nousresearch/hermes-2-pro-mistral-7b": "@cf/meta/llama-3.3-70b-instruct-fp8-fast",
}


@pytest.mark.parametrize(("request_", "published"), published_answers())
def test_the_emulator_answers_in_the_published_shapes(request_: Any, published: Any) -> None:
    headers = {"authorization": "Bearer any"}
    json_body = (request_["body"] or {}).get("json")
    base, _, model = request_["uri"].partition("/run/")
    url = f"{base}/run/{LIVING.get(model, model)}" if model else base
    with httpx.Client(transport=Emulator().transport()) as client:
        reply = client.request(request_["method"], url, json=json_body, headers=headers)
    assert reply.status_code == 200
    assert lacking(skeleton(published), skeleton(reply.json())) == []
