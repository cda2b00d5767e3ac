"""AI Gateway: its paths, headers and cache.

Sources: https://developers.cloudflare.com/ai-gateway/usage/providers/workersai/,
https://developers.cloudflare.com/ai-gateway/features/caching/ and its glossary of headers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

from workers_ai_emulator.wire import NotEmulatedError, Reply, ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator.endpoints.request_faults import RequestFaults
    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call

    Handler = Callable[[Service, Call, RequestFaults], Flow[Reply]]
    Router = Callable[[Call, list[str]], Handler]

_KEYED_TTL_S = 300.0


def through(service: Service, call: Call, handler: Handler, faults: RequestFaults) -> Flow[Reply]:
    """Answer a request to a gateway: from its cache if the request allows it, else from the service."""
    required_token = service.settings.gateway_token
    if required_token is not None and call.headers.get("cf-aig-authorization") != f"Bearer {required_token}":
        raise ServiceError(401, 2009, "Unauthorized", layer="gateway")
    headers = {"cf-aig-log-id": service.new_uuid()}
    if call.headers.get("cf-aig-event-id"):
        headers["cf-aig-event-id"] = call.headers["cf-aig-event-id"]
    key, ttl_s = _cache_key(call), _ttl_s(call)
    kept = service.gateway_cache.get(key) if ttl_s > 0 else None
    if kept is not None:
        reply = dataclasses.replace(kept, on_close=[])
        status = "HIT"
    else:
        reply = yield from handler(service, call, faults)
        if ttl_s > 0 and reply.status == 200 and reply.chunks is None:
            service.gateway_cache.put(key, dataclasses.replace(reply), ttl_s)
        status = "MISS"
    reply.headers = {"cf-aig-step": "0", **reply.headers, **headers, "cf-aig-cache-status": status}
    return reply


def universal(service: Service, call: Call, faults: RequestFaults, *, route: Router) -> Flow[Reply]:
    """Answer ``POST /v1/{account}/{gateway}``: try a list of steps, and return the first success."""
    steps = call.json()
    if not isinstance(steps, list) or not steps:
        raise ServiceError(400, 2001, "Please configure AI Gateway in the Cloudflare dashboard", layer="gateway")
    failure: ServiceError | None = None
    for number, step in enumerate(steps):
        part = _step_call(call, step)
        handler = route(part, rest_of(part.segments))
        try:
            reply = yield from handler(service, part, faults)
        except ServiceError as error:
            failure = error
            continue
        reply.headers["cf-aig-step"] = str(number)
        call.model = part.model
        return reply
    raise failure or ServiceError(400, 2008, "Invalid provider", layer="gateway")


def rest_of(segments: list[str]) -> list[str]:
    """Return the segments after ``workers-ai`` in the form of the native path; ``run`` is optional."""
    if segments[:1] in (["run"], ["v1"]):
        return segments
    return ["run", *segments]


def _step_call(call: Call, step: object) -> Call:
    if not isinstance(step, dict) or not isinstance(step.get("query"), dict):
        raise ServiceError(400, 2008, "Invalid provider", layer="gateway")
    if step.get("provider") != "workers-ai":
        raise NotEmulatedError(f"AI Gateway provider {step.get('provider')}")
    segments = [part for part in str(step.get("endpoint", "")).split("/") if part]
    return dataclasses.replace(call, segments=segments, body=json.dumps(step["query"]).encode(), _json=None)


def _ttl_s(call: Call) -> float:
    """Return the cache lifetime in seconds; 0 for no caching. With only a custom cache key, it is five minutes."""
    if call.headers.get("cf-aig-skip-cache", call.headers.get("cf-skip-cache", "")).lower() == "true":
        return 0.0
    ttl = call.headers.get("cf-aig-cache-ttl", call.headers.get("cf-cache-ttl", ""))
    if ttl.isdecimal():
        return float(ttl)
    return _KEYED_TTL_S if call.headers.get("cf-aig-cache-key") else 0.0


def _cache_key(call: Call) -> str:
    own = call.headers.get("cf-aig-cache-key")
    return own or hashlib.sha256(call.path.encode() + b"\0" + call.body).hexdigest()
