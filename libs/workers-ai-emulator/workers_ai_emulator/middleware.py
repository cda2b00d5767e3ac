"""Steps around every request: log, faults, token, errors, headers."""

from __future__ import annotations

import email.utils
import logging
import re
from typing import TYPE_CHECKING

from workers_ai_emulator.endpoints import gateway, streams
from workers_ai_emulator.endpoints.request_faults import RequestFaults
from workers_ai_emulator.shapes.envelopes import MARK, edge_page, error_response, not_emulated
from workers_ai_emulator.state.log import LogEntry
from workers_ai_emulator.wire import DroppedConnectionError, NotEmulatedError, Reply, ServiceError, json_reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.state.faults import Fault
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json

    Router = Callable[[Service, Call], Callable[[Service, Call, RequestFaults], Flow[Reply]]]

_API_VERSION = "2026-09-25.epoch"
_RATE_LIMIT = {"ratelimit": '"default";r=1199;t=1', "ratelimit-policy": '"default";q=1200;w=300'}
_NATIVE_ROUTES = {"run", "run_shared", "submit", "poll", "universal"}
_NO_ROUTE = {7000, 7003}
_NO_TOKEN = {10000, 9109, 6003}
_WRONG = re.compile(r"(?i)(?:^|[^a-z])(?:bad|expired|fake|invalid|revoked|wrong)(?:[^a-z]|$)")

_log = logging.getLogger("workers_ai_emulator")


def serve(service: Service, call: Call, route: Router) -> Flow[Reply]:
    """Answer one request and log it.

    Raises:
        DroppedConnectionError: If a fault drops the connection.
    """
    entry = LogEntry(
        call.method, call.path, call.query, dict(call.headers.items()), service.clock.now(), body=call.body or None
    )
    service.log.add(entry)
    call.request_id = service.new_uuid()
    streamed = False
    try:
        reply, error = yield from _answer(service, call, route, entry)
        if reply.chunks is not None:
            streamed = True
            reply.on_close.append(service.log.leave)
        return _stamped(service, call, reply, error)
    finally:
        if not streamed:
            service.log.leave()


def _answer(service: Service, call: Call, route: Router, entry: LogEntry) -> Flow[tuple[Reply, ServiceError | None]]:
    """Return the reply, and the error that it reports."""
    failure: ServiceError | None = None
    faults = RequestFaults([])
    try:
        handler = route(service, call)
        _name_call(call)
        entry.route, entry.model = call.route, call.model
        faults = RequestFaults(service.faults.draw(call.route, call.model, _streams(call)))
        if faults.replacement is not None:
            reply = yield from _replace(service, faults.replacement, faults)
        else:
            service.limits.admit_api()
            if call.route != "batch_worker":
                check_token(service, call)
            if len(call.body) > service.settings.max_body_bytes:
                raise ServiceError(413, 3006, "Request is too large")
            through = gateway.through(service, call, handler, faults) if call.gateway else None
            reply = yield from through or handler(service, call, faults)
    except ServiceError as error:
        failure = error
        reply = error_response(
            error, call.request_id, error.envelope or ("openai" if call.route == "responses" else "")
        )
    except NotEmulatedError as error:
        reply = not_emulated(str(error))
    except DroppedConnectionError:
        service.log.answer(entry, None)
        raise
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        # No check of the emulator covers the type of this field. The service's schema would reject it.
        _log.warning("rejected a request as bad input", exc_info=True)
        failure = ServiceError(400, 5006, f"Bad input: Error: {error}")
        reply = error_response(failure, call.request_id, "openai" if call.route == "responses" else "")
    entry.route = call.route
    code = faults.replacement.code if faults.replacement else failure.code if failure else None
    service.log.answer(entry, reply.status, code)
    return _altered(service, reply, faults), failure


def _name_call(call: Call) -> None:
    """Set the model and the route of queue requests. Faults are matched by them."""
    body = _peek(call)
    if call.route == "run" and (call.flag("queueRequest") or "request_id" in body):
        call.route = "poll" if "request_id" in body and "requests" not in body else "submit"
    if not call.model and isinstance(body.get("model"), str):
        call.model = body["model"].removeprefix("workers-ai/")
    call.gateway = call.gateway or call.headers.get("cf-aig-gateway-id", "")


def _streams(call: Call) -> bool:
    body = _peek(call)
    inputs = body.get("input")
    return body.get("stream") is True or (isinstance(inputs, dict) and inputs.get("stream") is True)


def _peek(call: Call) -> Json:
    try:
        body = call.json() if call.body else {}
    except ServiceError:
        return {}
    return body if isinstance(body, dict) else {}


def check_token(service: Service, call: Call) -> None:
    """Reject a request with a missing, malformed or wrong token.

    Raises:
        ServiceError: 10000, 9109, 6003, or the gateway's 2009.
    """
    header = call.headers.get("authorization", "")
    if not header and not call.headers.get("cf-aig-authorization"):
        raise ServiceError(401, 10000, "Authentication error", layer="api")
    token = call.token
    if header and (header.partition(" ")[0].lower() != "bearer" or not token):
        raise ServiceError(400, 6003, "Invalid request headers", layer="api")
    code = service.settings.refused_tokens.get(token)
    accepted = service.settings.tokens
    if code is None and (_WRONG.search(token) if accepted is None else token not in accepted):
        code = 10000
    if code is None and call.route != "verify" and token in service.settings.unpermitted_tokens:
        code = 10000
    if code == 9109:
        raise ServiceError(403, 9109, "Invalid access token", layer="api")
    if code == 2009:
        raise ServiceError(401, 2009, "Unauthorized", layer="gateway")
    if code is not None:
        raise ServiceError(401, code, "Authentication error", layer="api")


def _replace(service: Service, fault: Fault, faults: RequestFaults) -> Flow[Reply]:
    """Return the reply of a fault in place of the service's reply."""
    if faults.latency_s > 0:
        yield service.clock.pause(faults.latency_s)
    if fault.kind == "drop":
        raise DroppedConnectionError
    if fault.kind == "html":
        return edge_page(fault.status)
    if fault.kind == "reply":
        return _scripted(fault)
    headers = dict(fault.headers) | ({"retry-after": fault.retry_after} if fault.retry_after is not None else {})
    raise ServiceError(
        fault.status, fault.code, fault.message, layer=fault.layer, headers=headers, envelope=fault.envelope
    )


def _scripted(fault: Fault) -> Reply:
    if fault.chunks is not None:
        headers = {"content-type": "text/event-stream"} | {key.lower(): value for key, value in fault.headers.items()}
        return Reply(fault.status, headers, chunks=iter(fault.chunks))
    headers = {"retry-after": fault.retry_after} if fault.retry_after is not None else {}
    headers |= {key.lower(): value for key, value in fault.headers.items()}
    if isinstance(fault.body, bytes | str):
        body = fault.body.encode() if isinstance(fault.body, str) else fault.body
        return Reply(fault.status, {"content-type": "application/json"} | headers, body)
    return json_reply(fault.body, fault.status, headers)


def _altered(service: Service, reply: Reply, faults: RequestFaults) -> Reply:
    """Slow down or split a complete body or a scripted stream, according to the faults."""
    if not (faults.pause_s or faults.byte_by_byte):
        return reply
    if reply.chunks is None:
        reply.chunks, reply.body = streams.paced(service.clock, [reply.body], faults), b""
    elif faults.replacement is not None and faults.replacement.kind == "reply":
        reply.chunks = streams.paced(
            service.clock, [piece for piece in reply.chunks if isinstance(piece, bytes)], faults
        )
    return reply


def _stamped(service: Service, call: Call, reply: Reply, error: ServiceError | None) -> Reply:
    """Add the headers of Cloudflare's edge, as recorded for each kind of reply."""
    headers = {
        "date": email.utils.formatdate(service.clock.now(), usegmt=True),
        "server": "cloudflare",
        "cf-ray": f"{service.new_hex(16)}-EMU",
    }
    if error is None or error.code not in _NO_ROUTE:
        headers["cf-auditlog-id"] = service.new_uuid()
        if error is None or error.code not in _NO_TOKEN:
            headers["api-version"] = _API_VERSION
    if (error.layer == "ai") if error is not None else (call.route in _NATIVE_ROUTES):
        headers["cf-ai-req-id"] = call.request_id
    if call.route == "models_search":
        headers |= _RATE_LIMIT
    reply.headers = headers | reply.headers | {MARK: "1"}
    return reply
