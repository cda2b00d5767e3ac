"""A deployed batch Worker: the queue behind two plain routes.

``POST /batch`` accepts ``{"texts": […], "model"?}``, and ``GET /batch/{id}?model=`` polls. Both return the result
of the binding's ``env.AI.run``. Errors are ``{"error": {"code", "message"}}``.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING

from workers_ai_emulator.endpoints import batch
from workers_ai_emulator.endpoints.inference import find_model
from workers_ai_emulator.wire import Reply, ServiceError, json_reply

if TYPE_CHECKING:
    from workers_ai_emulator.endpoints.request_faults import RequestFaults
    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_TEXTS_PER_REQUEST = 100


def submit(service: Service, call: Call, faults: RequestFaults) -> Flow[Reply]:
    """Answer ``POST /batch``."""
    body = _object(call)
    texts = body.get("texts")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        return _error(400, "INVALID_BODY", "texts must be a list of non-empty strings")
    try:
        step = find_model(service, _model(service, body)).max_items or _TEXTS_PER_REQUEST
    except ServiceError as error:
        return _error(502, "BATCH_ERROR", str(error))
    requests = [{"text": texts[start : start + step]} for start in range(0, len(texts), step)]
    result = yield from _run(service, call, _model(service, body), {"requests": requests})
    return result


def poll(service: Service, call: Call, faults: RequestFaults) -> Flow[Reply]:
    """Answer ``GET /batch/{id}``."""
    request_id = call.segments[-1]
    if not _ID.match(request_id):
        return _error(400, "INVALID_REQUEST_ID", "the request id must be a uuid")
    result = yield from _run(service, call, _model(service, dict(call.query)), {"request_id": request_id})
    return result


def _run(service: Service, call: Call, model_id: str, body: Json) -> Flow[Reply]:
    part = dataclasses.replace(call, body=json.dumps(body).encode(), _json=None)
    try:
        reply = yield from batch.submit_or_poll(service, part, find_model(service, model_id), body)
    except ServiceError as error:
        return _error(502, "BATCH_ERROR", str(error))
    return Reply(200, reply.headers, json.dumps(json.loads(reply.body)["result"]).encode())


def _object(call: Call) -> Json:
    try:
        return call.json_object()
    except ServiceError:
        return {}


def _model(service: Service, body: Json) -> str:
    return str(body.get("model") or service.settings.batch_worker_model)


def _error(status: int, code: str, message: str) -> Reply:
    return json_reply({"error": {"code": code, "message": message}}, status)
