"""URLs, tokens, envelopes, headers: checks before any model."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.parse
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.emulator.conftest import BASE, BGE, GEMMA, LLAMA, code_of, message_of, user

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.conftest import Api

API = "https://api.cloudflare.com/client/v4"
GATEWAY = "https://gateway.ai.cloudflare.com/v1/acct/gw"


@pytest.mark.parametrize(
    "spelling", ["@cf/baai/bge-base-en-v1.5", "%40cf%2Fbaai%2Fbge-base-en-v1.5", "%40cf/baai/bge-base-en-v1.5"]
)
def test_a_model_id_may_be_escaped_or_plain(api: Api, spelling: str) -> None:
    assert api.embed("a", spelling).json()["result"]["shape"] == [1, 768]
    assert api.emulator.log.last.model == BGE


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/ai/v1/models", (405, 7001)),
        ("GET", f"/ai/run/{BGE}", (405, 7001)),
        ("GET", "/ai/v1/chat/completions", (405, 7001)),
        ("POST", "/ai/v1", (404, 7000)),
        ("POST", "/ai/v1/completions", (404, 7000)),
        ("POST", "/ai/v1/rerank", (404, 7000)),
        ("GET", "/workers", (404, 7000)),
    ],
)
def test_other_paths_and_methods_have_the_routers_envelope(
    api: Api, method: str, path: str, expected: tuple[int, int]
) -> None:
    reply = api.http.request(method, path)

    assert expected == code_of(reply)
    assert {k: v for k, v in reply.json().items() if k != "errors"} == {
        "success": False,
        "messages": [],
        "result": None,
    }


@pytest.mark.parametrize("path", ["/ai/tomarkdown", "/ai/finetunes", f"/ai/run/{'@cf/openai/whisper'}"])
def test_parts_that_are_not_emulated_return_501(api: Api, path: str) -> None:
    reply = api.http.post(path, json={"audio": []})

    assert reply.status_code == 501
    assert "Not emulated" in message_of(reply)


@pytest.mark.parametrize("account", ["${CLOUDFLARE_ACCOUNT_ID}", "a b", "acct\n", "x" * 65])
def test_a_malformed_account_id_is_not_routed(api: Api, account: str) -> None:
    reply = api.http.post(f"{API}/accounts/{urllib.parse.quote(account)}/ai/run/{BGE}", json={})

    assert code_of(reply) == (404, 7003)
    assert message_of(reply).startswith("Could not route to /client/v4/accounts/")


def test_accounts_can_be_listed(make_api: Callable[..., Api]) -> None:
    assert code_of(make_api(accounts=["other"]).embed("a")) == (404, 7003)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, (401, 10000)),
        ("token", (400, 6003)),
        ("Basic token", (400, 6003)),
        ("Bearer ", (400, 6003)),
        ("Bearer bad-token", (401, 10000)),
        ("Bearer invalid-token", (403, 9109)),
    ],
)
def test_missing_and_wrong_tokens_are_rejected(api: Api, header: str | None, expected: tuple[int, int]) -> None:
    headers = {} if header is None else {"authorization": header}
    reply = httpx.Client(transport=api.emulator.transport()).post(
        f"{BASE}/ai/run/{BGE}", json={"text": "a"}, headers=headers
    )

    assert expected == code_of(reply)
    assert reply.json()["result"] is None


def test_accepted_tokens_can_be_listed(make_api: Callable[..., Api]) -> None:
    assert make_api(tokens=["token"]).embed("a").status_code == 200
    assert code_of(make_api(tokens=["another"]).embed("a")) == (401, 10000)


def test_the_token_can_be_verified_and_may_be_unable_to_list_models(make_api: Callable[..., Api]) -> None:
    api = make_api(list_refused_tokens=["token"])

    assert api.http.get(f"{API}/user/tokens/verify").json()["result"]["status"] == "active"
    assert code_of(api.http.get("/ai/models/search")) == (401, 10000)
    assert api.embed("a").status_code == 200


@pytest.mark.parametrize(
    ("settings", "user", "owned", "embed"),
    [
        ({}, 200, 401, 200),
        ({"account_tokens": ["token"]}, 401, 200, 200),
        ({"unpermitted_tokens": ["token"]}, 200, 401, 401),
    ],
)
def test_a_token_is_verified_where_it_belongs(
    make_api: Callable[..., Api], settings: dict[str, Any], user: int, owned: int, embed: int
) -> None:
    api = make_api(**settings)

    assert api.http.get(f"{API}/user/tokens/verify").status_code == user
    assert api.http.get("/tokens/verify").status_code == owned
    assert api.embed("a").status_code == embed


def test_an_error_of_the_model_layer_ends_in_a_uuid(api: Api) -> None:
    reply = api.embed("")

    assert reply.json()["result"] == {}
    assert re.fullmatch(r"AiError: Bad input: .* \([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\)", message_of(reply))


def test_replies_have_the_headers_of_the_edge_and_the_emulator(api: Api) -> None:
    headers = api.embed("a").headers

    assert re.fullmatch(r"[0-9a-f]{16}-EMU", headers["cf-ray"])
    assert headers["cf-ai-req-id"]
    assert (
        headers["x-workers-ai-emulator"],
        headers["content-type"],
        headers["cf-ai-neurons"],
    ) == ("1", "application/json", "0.01")
    assert api.http.get("/nowhere").headers["x-workers-ai-emulator"] == "1"


def test_ids_depend_on_the_seed(make_api: Callable[..., Api]) -> None:
    one, same, other = (make_api(seed=seed).run(GEMMA, user("a")).json()["result"]["id"] for seed in (1, 1, 2))

    assert one == same != other


def test_the_catalogue_is_paged_and_filtered(api: Api) -> None:
    names: list[str] = []
    for page in (1, 2, 3):
        body = api.http.get("/ai/models/search", params={"page": page, "per_page": 40}).json()
        names += [row["name"] for row in body["result"]]
    found = api.http.get(
        "/ai/models/search", params={"search": "BGE", "task": "Text Embeddings", "author": "baai"}
    ).json()

    assert len(set(names)) == len(names) > 50
    assert body["result_info"]["total_count"] == 310
    assert set(body["result_info"]) == {"count", "page", "per_page", "total_count"}
    assert "@cf/meta/llama-3.1-8b-instruct" not in names
    assert len(found["result"]) == 4
    properties = {item["property_id"]: item["value"] for item in found["result"][0]["properties"]}
    assert (
        properties["async_queue"],
        properties["output_dimensions"],
        properties["max_input_tokens"],
    ) == ("true", "384", "512")
    deprecated = api.http.get("/ai/models/search", params={"include_deprecated": "true", "per_page": 100}).json()[
        "result"
    ]
    assert "@cf/meta/llama-3.1-8b-instruct" in [row["name"] for row in deprecated]


@pytest.mark.parametrize("model", [BGE, LLAMA, GEMMA, "@cf/baai/bge-reranker-base"])
def test_models_schema_returns_a_schema(api: Api, model: str) -> None:
    assert {"input", "output"} == set(api.http.get("/ai/models/schema", params={"model": model}).json()["result"])


def test_models_schema_rejects_a_retired_model(api: Api) -> None:
    assert code_of(api.http.get("/ai/models/schema", params={"model": "@cf/microsoft/phi-2"})) == (404, 6002)


def test_the_shared_route_needs_a_gateway_for_cloudflares_models(api: Api) -> None:
    body = {"model": BGE, "input": {"text": "a"}}

    assert code_of(api.http.post("/ai/run", json=body)) == (400, 3003)
    reply = api.http.post("/ai/run", json=body, headers={"cf-aig-gateway-id": "default"})
    assert reply.json()["result"]["shape"] == [1, 768]
    assert code_of(api.http.post("/ai/run", json={"model": BGE, "text": "a"})) == (400, 5006)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"/workers-ai/{LLAMA}", user("Hello")),
        (f"/workers-ai/run/{LLAMA}", user("Hello")),
        ("/workers-ai/v1/chat/completions", {**user("Hello"), "model": LLAMA}),
        ("/compat/chat/completions", {**user("Hello"), "model": f"workers-ai/{LLAMA}"}),
        ("", [{"provider": "workers-ai", "endpoint": LLAMA, "headers": {}, "query": user("Hello")}]),
    ],
)
def test_the_gateways_own_host_reaches_the_models(api: Api, path: str, body: Any) -> None:
    reply = api.http.post(GATEWAY + path, json=body)

    assert "Hello! How can I help you today?" in reply.text
    assert reply.headers["cf-aig-log-id"]
    assert reply.headers["cf-aig-cache-status"] == "MISS"


def test_the_universal_endpoint_tries_the_next_step(api: Api) -> None:
    steps = [{"provider": "workers-ai", "endpoint": model, "query": user("Hello")} for model in ("@cf/no/model", LLAMA)]
    reply = api.http.post(GATEWAY, json=steps)

    assert (reply.status_code, reply.headers["cf-aig-step"]) == (200, "1")
    assert code_of(api.http.post(GATEWAY, json=steps[:1])) == (400, 5007)
    assert api.http.post(GATEWAY, json=[{}]).json()["error"][0]["code"] == 2008


def test_a_gateway_by_header_caches_on_request(api: Api) -> None:
    def status(body: str = "Hello", **headers: str) -> str:
        named = {f"cf-aig-{key.replace('_', '-')}": value for key, value in headers.items()}
        reply = api.run(LLAMA, user(body), headers={"cf-aig-gateway-id": "gw", **named})
        return reply.headers["cf-aig-cache-status"]

    assert [status(), status()] == ["MISS", "MISS"]
    assert [status(cache_ttl="60"), status(cache_ttl="60")] == ["MISS", "HIT"]
    assert status(cache_ttl="60", skip_cache="true") == "MISS"
    assert status("Other", cache_ttl="60") == "MISS"
    assert [status("One", cache_key="k"), status("Two", cache_key="k")] == ["MISS", "HIT"]
    api.emulator.clock.advance(61)
    assert status(cache_ttl="60") == "MISS"
    assert "cf-aig-cache-status" not in api.run(LLAMA, user("Hello")).headers


def test_a_gateway_can_require_its_own_token(make_api: Callable[..., Api]) -> None:
    api = make_api(gateway_token="secret")
    refused = api.run(LLAMA, user("hi"), headers={"cf-aig-gateway-id": "gw"})
    headers = {"cf-aig-gateway-id": "gw", "cf-aig-authorization": "Bearer secret", "cf-aig-event-id": "e-1"}
    accepted = api.run(LLAMA, user("hi"), headers=headers)

    assert (refused.json()["name"], refused.json()["error"][0]["code"]) == ("AiGatewayError", 2009)
    assert (accepted.status_code, accepted.headers["cf-aig-event-id"]) == (200, "e-1")
    assert api.emulator.log.last.headers["cf-aig-authorization"] == "REDACTED"


def test_the_log_has_every_request_without_its_token(api: Api) -> None:
    api.embed(["a"])
    api.http.get("/nowhere")
    first, second = api.emulator.log.entries

    assert ("POST", f"/client/v4/accounts/acct/ai/run/{BGE}", 200, "run", BGE) == (
        first.method,
        first.path,
        first.status,
        first.route,
        first.model,
    )
    assert first.json == {"text": ["a"]}
    assert first.headers["authorization"] == "REDACTED"
    assert (second.status, second.code) == (404, 7000)
    assert {key: api.emulator.log.counters()[key] for key in ("requests", "statuses")} == {
        "requests": 2,
        "statuses": {200: 1, 404: 1},
    }
    assert "token" not in str([entry.as_dict() for entry in api.emulator.log.entries])


def test_the_log_drops_bodies_to_limit_memory(api: Api) -> None:
    api.emulator.log._max_body_bytes = 60
    for _ in range(10):
        api.embed("a" * 40)

    bodies = [entry.body for entry in api.emulator.log.entries]
    assert bodies[:9] == [None] * 9
    assert bodies[9] is not None
    assert api.emulator.log.requests == 10


def test_the_emulator_imports_neither_our_client_nor_a_framework() -> None:
    code = (
        "import sys, workers_ai_emulator, workers_ai_emulator.cli;"
        "foreign = {'workers_ai', 'langchain_core', 'llama_index', 'pydantic'};"
        "print([name for name in sys.modules if name.split('.')[0] in foreign])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
