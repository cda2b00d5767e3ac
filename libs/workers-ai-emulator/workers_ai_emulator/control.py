"""Control requests under ``/__emulator__/``; they need no token and are not logged."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from typing import TYPE_CHECKING

import httpx

from workers_ai_emulator.shapes.envelopes import MARK, not_emulated
from workers_ai_emulator.state.faults import fault_from_dict
from workers_ai_emulator.state.queue import ItemFailure
from workers_ai_emulator.wire import Reply, ServiceError, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json

PREFIX = "__emulator__"
_LABEL = re.compile(r"[A-Za-z0-9_-]+")
_LOG_LINES = 100
_RESET = ("POST", "reset")
_IN_PROCESS_HOST = "api.cloudflare.com"


def control(service: Callable[[], Service], call: Call, *, reset: Callable[[], None], base_url: str) -> Reply:
    """Answer a control request; an invalid one returns 400 with the reason.

    Args:
        service: Returns the current state.
        call: The request.
        reset: Replaces the state by a new one.
        base_url: Base URL of the emulator; its host may send control requests.
    """
    key = (call.method, "/".join(call.segments[1:]))
    handler = _ROUTES.get(key)
    if not _is_local(call, base_url):
        reply = json_reply({"error": "Host or Origin is not this server: send control requests to its own URL"}, 403)
    elif key == _RESET:
        reset()
        reply = json_reply({"reset": True})
    elif handler is None:
        reply = not_emulated(f"control {key[0]} /{PREFIX}/{key[1]}; choose one of {sorted([*_ROUTES, _RESET])}")
    else:
        try:
            reply = json_reply(handler(service(), call))
        except (ValueError, TypeError, KeyError, ServiceError) as error:
            reply = json_reply({"error": str(error)}, 400)
    reply.headers[MARK] = "1"
    return reply


def _is_local(call: Call, base_url: str) -> bool:
    """Return whether a request comes from this machine: not from a page of another site or by a foreign host name."""
    host = call.headers.get("host", "")
    origin = call.headers.get("origin")
    if origin is not None and origin != f"http://{host}" and not _is_loopback(_name_in(origin)):
        return False
    name = _name_in(f"http://{host}")
    return bool(_is_address(name) or _LABEL.fullmatch(name) or name in {_name_in(base_url), _IN_PROCESS_HOST})


def _name_in(url: str) -> str:
    try:
        return httpx.URL(url).host
    except httpx.InvalidURL:
        return "invalid.invalid"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _state(service: Service, call: Call) -> Json:
    return {
        "now": service.clock.now(),
        "settings": dataclasses.asdict(service.settings),
        "counters": service.log.counters(),
        "capacity": service.capacity.snapshot(),
        "limits": service.limits.snapshot(),
        "queue": {
            "settings": dataclasses.asdict(service.queue.settings),
            "submitted": service.queue.submitted,
            "collected": service.queue.collected,
            "jobs": [
                {"request_id": job.request_id, "model": job.model, "polls": job.polls} for job in service.queue.jobs
            ],
        },
        "faults": [fault.as_dict() for fault in service.faults.all],
    }


def _log(service: Service, call: Call) -> object:
    last = int(call.query.get("last", _LOG_LINES))
    return [entry.as_dict() for entry in service.log.entries[-last:]]


def _texts(service: Service, call: Call) -> Json:
    """Return how often each text of the body was embedded."""
    return {text: service.log.times_embedded(text) for text in call.json_object()["texts"]}


def _faults(service: Service, call: Call) -> object:
    return [fault.as_dict() for fault in service.faults.all]


def _add_faults(service: Service, call: Call) -> object:
    body = call.json()
    service.faults.add(*[fault_from_dict(item) for item in (body if isinstance(body, list) else [body])])
    return _faults(service, call)


def _clear_faults(service: Service, call: Call) -> object:
    service.faults.clear()
    return []


def _capacity(service: Service, call: Call) -> Json:
    body = call.json_object()
    _only(body, {"slots", "max_wait_s", "model_slots", "busy_for", "model"})
    if "slots" in body:
        service.capacity.slots = body["slots"]
    if "max_wait_s" in body:
        service.capacity.max_wait_s = float(body["max_wait_s"])
    for model, slots in body.get("model_slots", {}).items():
        service.capacity.set_model_slots(model, slots)
    if "busy_for" in body:
        service.capacity.busy_for(float(body["busy_for"]), body.get("model"))
    return service.capacity.snapshot()


def _limits(service: Service, call: Call) -> Json:
    body = call.json_object()
    names = {"neurons_per_day", "quota_code", "enforce_rpm", "rpm", "api_requests_per_5_min"}
    _only(body, names | {"use_up_quota"})
    for name in names & set(body):
        setattr(service.limits, name, body[name])
    if body.get("use_up_quota"):
        service.limits.use_up_quota()
    return service.limits.snapshot()


def _queue(service: Service, call: Call) -> Json:
    settings = service.queue.settings
    body = dict(call.json_object())
    _only(body, set(dataclasses.asdict(settings)) | {"expire"})
    if "expire" in body:
        service.queue.expire(str(body.pop("expire")))
    if "failures" in body:
        body["failures"] = [ItemFailure(**item) for item in body["failures"]]
    dataclasses.replace(settings, **body)  # raises for an unknown choice
    for name, value in body.items():
        setattr(settings, name, value)
    return dataclasses.asdict(settings)


def _settings(service: Service, call: Call) -> Json:
    body = call.json_object()
    _only(body, set(dataclasses.asdict(service.settings)))
    dataclasses.replace(service.settings, **body)  # raises for an unknown choice
    for name, value in body.items():
        setattr(service.settings, name, value)
    return dataclasses.asdict(service.settings)


def _advance(service: Service, call: Call) -> Json:
    service.clock.advance(float(call.json_object()["seconds"]))
    return {"now": service.clock.now()}


def _only(body: Json, names: set[str]) -> None:
    unknown = sorted(set(body) - names)
    if unknown:
        raise ValueError(f"unknown keys {unknown}; choose from {sorted(names)}")


_ROUTES: dict[tuple[str, str], Callable[[Service, Call], object]] = {
    ("GET", "state"): _state,
    ("GET", "log"): _log,
    ("POST", "texts"): _texts,
    ("GET", "faults"): _faults,
    ("POST", "faults"): _add_faults,
    ("DELETE", "faults"): _clear_faults,
    ("POST", "capacity"): _capacity,
    ("POST", "limits"): _limits,
    ("POST", "queue"): _queue,
    ("POST", "settings"): _settings,
    ("POST", "clock/advance"): _advance,
}
