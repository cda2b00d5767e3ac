"""The emulator's own controls under ``/__emulator__/``; they need no token and are not logged."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from typing import TYPE_CHECKING, Any

import httpx

from workers_ai_emulator.middleware import MARK, not_emulated
from workers_ai_emulator.state.faults import fault_from_dict
from workers_ai_emulator.state.queue import ItemFailure
from workers_ai_emulator.wire import Reply, ServiceError, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator.emulator import Emulator
    from workers_ai_emulator.wire import Call, Json

PREFIX = "__emulator__"
_LABEL = re.compile(r"[A-Za-z0-9_-]+")
_LOG_LINES = 100
_IN_PROCESS_HOST = "api.cloudflare.com"


def control(emulator: Emulator, call: Call) -> Reply:
    """Answer a control request; a wrong one is a 400 that says what is wrong."""
    key = (call.method, "/".join(call.segments[1:]))
    handler = _ROUTES.get(key)
    if not _is_local(emulator, call):
        reply = json_reply({"error": "controls are closed to this Host or Origin; use the address of the server"}, 403)
    elif handler is None:
        reply = not_emulated(f"control {key[0]} /{PREFIX}/{key[1]}; there are {sorted(_ROUTES)}")
    else:
        try:
            reply = json_reply(handler(emulator, call))
        except (ValueError, TypeError, KeyError, ServiceError) as error:
            reply = json_reply({"error": str(error)}, 400)
    reply.headers[MARK] = "1"
    return reply


def _is_local(emulator: Emulator, call: Call) -> bool:
    """Whether a request comes from no page of another site, and by no name that such a page could point here."""
    host = call.headers.get("host", "")
    origin = call.headers.get("origin")
    if origin is not None and origin != f"http://{host}" and not _is_loopback(_name_in(origin)):
        return False
    name = _name_in(f"http://{host}")
    return bool(_is_address(name) or _LABEL.fullmatch(name) or name in {_name_in(emulator.base_url), _IN_PROCESS_HOST})


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


def _reset(emulator: Emulator, call: Call) -> Json:
    emulator.reset()
    return {"reset": True}


def _state(emulator: Emulator, call: Call) -> Json:
    return {
        "now": emulator.clock.now(),
        "settings": dataclasses.asdict(emulator.settings),
        "counters": emulator.log.counters(),
        "capacity": emulator.capacity.snapshot(),
        "limits": emulator.limits.snapshot(),
        "queue": {
            "settings": dataclasses.asdict(emulator.queue.settings),
            "submitted": emulator.queue.submitted,
            "collected": emulator.queue.collected,
            "jobs": [
                {"request_id": job.request_id, "model": job.model, "polls": job.polls} for job in emulator.queue.jobs
            ],
        },
        "faults": [fault.as_dict() for fault in emulator.faults.all],
    }


def _log(emulator: Emulator, call: Call) -> Any:
    last = int(call.query.get("last", _LOG_LINES))
    return [entry.as_dict() for entry in emulator.log.entries[-last:]]


def _texts(emulator: Emulator, call: Call) -> Json:
    """How often each text of the body was embedded."""
    return {text: emulator.log.times_embedded(text) for text in call.json_object()["texts"]}


def _faults(emulator: Emulator, call: Call) -> Any:
    return [fault.as_dict() for fault in emulator.faults.all]


def _add_faults(emulator: Emulator, call: Call) -> Any:
    body = call.json()
    emulator.faults.add(*[fault_from_dict(item) for item in (body if isinstance(body, list) else [body])])
    return _faults(emulator, call)


def _clear_faults(emulator: Emulator, call: Call) -> Any:
    emulator.faults.clear()
    return []


def _capacity(emulator: Emulator, call: Call) -> Json:
    body = call.json_object()
    _only(body, {"slots", "max_wait_s", "model_slots", "busy_for", "model"})
    if "slots" in body:
        emulator.capacity.slots = body["slots"]
    if "max_wait_s" in body:
        emulator.capacity.max_wait_s = float(body["max_wait_s"])
    for model, slots in body.get("model_slots", {}).items():
        emulator.capacity.set_model_slots(model, slots)
    if "busy_for" in body:
        emulator.capacity.busy_for(float(body["busy_for"]), body.get("model"))
    return emulator.capacity.snapshot()


def _limits(emulator: Emulator, call: Call) -> Json:
    body = call.json_object()
    names = {"neurons_per_day", "quota_code", "enforce_rpm", "rpm", "api_requests_per_5_min"}
    _only(body, names | {"use_up_quota"})
    for name in names & set(body):
        setattr(emulator.limits, name, body[name])
    if body.get("use_up_quota"):
        emulator.limits.use_up_quota()
    return emulator.limits.snapshot()


def _queue(emulator: Emulator, call: Call) -> Json:
    settings = emulator.queue.settings
    body = dict(call.json_object())
    _only(body, set(dataclasses.asdict(settings)) | {"expire"})
    if "expire" in body:
        emulator.queue.expire(str(body.pop("expire")))
    if "failures" in body:
        body["failures"] = [ItemFailure(**item) for item in body["failures"]]
    dataclasses.replace(settings, **body)  # raises for an unknown choice
    for name, value in body.items():
        setattr(settings, name, value)
    return dataclasses.asdict(settings)


def _settings(emulator: Emulator, call: Call) -> Json:
    body = call.json_object()
    _only(body, set(dataclasses.asdict(emulator.settings)))
    dataclasses.replace(emulator.settings, **body)  # raises for an unknown choice
    for name, value in body.items():
        setattr(emulator.settings, name, value)
    return dataclasses.asdict(emulator.settings)


def _advance(emulator: Emulator, call: Call) -> Json:
    emulator.clock.advance(float(call.json_object()["seconds"]))
    return {"now": emulator.clock.now()}


def _only(body: Json, names: set[str]) -> None:
    unknown = sorted(set(body) - names)
    if unknown:
        raise ValueError(f"unknown keys {unknown}; there are {sorted(names)}")


_ROUTES: dict[tuple[str, str], Callable[[Emulator, Call], Any]] = {
    ("POST", "reset"): _reset,
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
