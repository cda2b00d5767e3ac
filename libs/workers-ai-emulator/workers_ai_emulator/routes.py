"""URLs and their endpoints."""

from __future__ import annotations

import functools
import re
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING

from workers_ai_emulator.endpoints import batch_worker as worker
from workers_ai_emulator.endpoints import catalogue, gateway, responses, run
from workers_ai_emulator.endpoints.request_faults import RequestFaults
from workers_ai_emulator.flow import Flow
from workers_ai_emulator.state.service import Service
from workers_ai_emulator.wire import Call, NotEmulatedError, Reply, ServiceError

if TYPE_CHECKING:
    import httpx

Handler = Callable[[Service, Call, RequestFaults], Flow[Reply]]

PREFIX = ["client", "v4"]
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def plain(endpoint: Callable[[Service, Call], Reply]) -> Handler:
    """Return a handler for an endpoint that never waits."""

    def handler(service: Service, call: Call, faults: RequestFaults) -> Flow[Reply]:
        return endpoint(service, call)
        yield  # makes this a generator

    return handler


INFERENCE: dict[str, tuple[str, Handler]] = {
    "v1/chat/completions": ("chat_completions", run.chat_completions),
    "v1/embeddings": ("embeddings", run.v1_embeddings),
    "v1/responses": ("responses", responses.v1_responses),
    "v1/messages": ("messages", plain(responses.anthropic_messages)),
    "run": ("run_shared", run.run_shared),
}
CATALOGUE: dict[str, tuple[str, Handler]] = {
    "models/search": ("models_search", plain(catalogue.search)),
    "models/schema": ("models_schema", plain(catalogue.schema)),
    "v1/models": ("v1_models", plain(catalogue.get_not_supported)),
}
NOT_EMULATED = {"tomarkdown", "tomarkdown/supported", "tasks/search", "authors/search"}


def read(request: httpx.Request) -> Call:
    """Parse a request. Each segment of the path is decoded separately."""
    raw_path, _, raw_query = request.url.raw_path.decode("ascii").partition("?")
    segments = [urllib.parse.unquote(part) for part in raw_path.split("/") if part]
    query = dict(urllib.parse.parse_qsl(raw_query, keep_blank_values=True))
    return Call(request.method, urllib.parse.unquote(raw_path), segments, query, request.headers, request.content)


def match(service: Service, call: Call) -> Handler:
    """Return the handler of a call. Set the route and model of the call.

    Raises:
        ServiceError: 7000 or 7003 for an unknown route, 7001 for another method.
    """
    segments = call.segments
    if segments[:1] == ["batch"] and service.settings.batch_worker:
        return worker_route(call)
    if segments[:1] == ["v1"] and call.method == "POST" and len(segments) >= 3:
        return gateway_route(service, call)
    if segments[:2] != PREFIX:
        raise no_route(call)
    if segments[2:] == ["user", "tokens", "verify"] and call.method == "GET":
        call.route = "verify"
        return plain(catalogue.verify)
    if len(segments) < 4 or segments[2] != "accounts":
        raise no_route(call)
    check_account(service, call, segments[3])
    if segments[4:] == ["tokens", "verify"] and call.method == "GET":
        call.route = "verify"
        return plain(catalogue.verify)
    if segments[4:5] != ["ai"]:
        raise no_route(call)
    return ai_route(call, segments[5:])


def gateway_route(service: Service, call: Call) -> Handler:
    """Return the handler of a path of AI Gateway's own host, ``/v1/{account}/{gateway}/…``."""
    _, account, call.gateway, *rest = call.segments
    check_account(service, call, account)
    if not rest:
        call.route = "universal"
        return functools.partial(gateway.universal, route=ai_route)
    if rest == ["compat", "chat", "completions"]:
        return ai_route(call, ["v1", "chat", "completions"])
    if rest[0] != "workers-ai":
        raise NotEmulatedError(f"AI Gateway provider {rest[0]}")
    return ai_route(call, gateway.rest_of(rest[1:]))


def worker_route(call: Call) -> Handler:
    """Return the handler of a path of the deployed batch Worker."""
    call.route = "batch_worker"
    if call.method == "POST" and len(call.segments) == 1:
        return worker.submit
    if call.method == "GET" and len(call.segments) == 2:
        return worker.poll
    raise no_route(call)


def ai_route(call: Call, rest: list[str]) -> Handler:
    """Return the handler of a path after ``/ai/``."""
    table = INFERENCE if call.method == "POST" else CATALOGUE if call.method == "GET" else {}
    found = table.get("/".join(rest))
    if found is not None:
        call.route, handler = found
        return handler
    if rest[:1] == ["run"] and len(rest) > 1:
        if call.method != "POST":
            raise ServiceError(405, 7001, f"{call.method} not supported for requested URI.", layer="api")
        call.route, call.model = "run", "/".join(rest[1:])
        return run.run
    if "/".join(rest) in NOT_EMULATED or rest[:1] == ["finetunes"]:
        raise NotEmulatedError(f"{call.method} /ai/{'/'.join(rest)}")
    if "/".join(rest) in INFERENCE:
        raise ServiceError(405, 7001, f"{call.method} not supported for requested URI.", layer="api")
    raise no_route(call)


def check_account(service: Service, call: Call, account: str) -> None:
    """Reject a malformed or unknown account id. The message contains the path, as recorded."""
    accounts = service.settings.accounts
    if not _ACCOUNT.match(account) or (accounts is not None and account not in accounts):
        text = f"Could not route to {call.path}, perhaps your object identifier is invalid?"
        raise ServiceError(404, 7003, text, layer="api")


def no_route(call: Call) -> ServiceError:
    """Return the error for an unknown path."""
    return ServiceError(404, 7000, "No route for that URI", layer="api")
