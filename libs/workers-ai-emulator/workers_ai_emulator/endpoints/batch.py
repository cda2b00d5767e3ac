"""Submitting to the asynchronous queue and polling it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from workers_ai_emulator.endpoints import chat, embeddings, responses
from workers_ai_emulator.rules import embedding_checks
from workers_ai_emulator.rules.words import neurons
from workers_ai_emulator.shapes.envelopes import success
from workers_ai_emulator.wire import JSON_TYPE, Reply, ServiceError, dumps, json_reply

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.state.flow import Flow
    from workers_ai_emulator.state.queue import ItemFailure, Job
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json


def is_poll(body: Json) -> bool:
    """Whether a body asks for a batch."""
    return "request_id" in body and "requests" not in body


def submit_or_poll(service: Service, call: Call, model: Model, body: Json) -> Flow[Reply]:
    """A request with ``?queueRequest=true``."""
    if is_poll(body):
        return poll(service, call, model, body)
    return submit(service, call, model, body)


def submit(service: Service, call: Call, model: Model, body: Json) -> Flow[Reply]:
    """Take a batch: ``{"requests": [inputs + external_reference, …]}``."""
    call.route = "submit"
    settings = service.queue.settings
    if len(call.body) > settings.max_bytes:
        raise ServiceError(413, 3006, "Request is too large")
    requests = body.get("requests")
    if not isinstance(requests, list) or not requests or not all(isinstance(item, dict) for item in requests):
        raise ServiceError(
            400,
            5006,
            "Bad input: Error: oneOf at '/' not met, 0 matches: required properties at '/' are 'requests'",
        )
    if not model.batch:
        raise ServiceError(
            400, 5006, "Bad input: Error: oneOf at '/' not met, 0 matches: additional property '/requests'"
        )
    service.limits.admit(model)
    if service.settings.busy_in_queue:
        slot = yield from service.capacity.enter(model.id, reject_if_busy=True)
        slot.release()
    if service.settings.latency_s > 0:
        yield service.clock.pause(service.settings.latency_s)
    if model.task == "Text Embeddings":
        service.log.embed(_texts(model, requests))
    job = service.queue.submit(service.new_uuid(), model.id, call.body)
    if settings.answers_at_once:
        return _collected(service, call, model, job)
    accepted = {"status": "queued", "request_id": job.request_id, "model": model.id}
    return json_reply(success(accepted), settings.submit_status)


def poll(service: Service, call: Call, model: Model, body: Json) -> Flow[Reply]:
    """Answer ``{"request_id"}`` with the state of a batch or with its responses."""
    call.route = "poll"
    settings = service.queue.settings
    if service.settings.latency_s > 0:
        yield service.clock.pause(service.settings.latency_s)
    job = service.queue.find(str(body["request_id"]))
    if job is None or job.model != model.id:
        raise ServiceError(settings.unknown_status, settings.unknown_code, settings.unknown_message)
    state = service.queue.progress_of(job)
    if state != "done":
        pending = {"status": state, "request_id": job.request_id, "model": model.id}
        return json_reply(success(pending), settings.pending_status)
    if job.fails:
        raise ServiceError(500, 5001, "Model execution failed")
    return _collected(service, call, model, job)


def _collected(service: Service, call: Call, model: Model, job: Job) -> Reply:
    """The finished batch; computed now, since results are a function of the request."""
    failures = service.queue.failure_of(job)
    first_time = not job.charged
    job.charged = True
    items: list[str] = []
    prompt_tokens = completion_tokens = 0
    for index, request in enumerate(job.requests):
        text, used_in, used_out = _item(service, call, model, index, request, failures.get(index))
        items.append(text)
        prompt_tokens, completion_tokens = prompt_tokens + used_in, completion_tokens + used_out
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    price = neurons(model, prompt_tokens, completion_tokens)
    if first_time:
        service.limits.charge(price)
    done = service.queue.settings.status_when_done
    status = f'"status":{json.dumps(done)},' if done is not None else ""
    responses = ",".join(service.queue.arrange(items))
    result = f'{{{status}"responses":[{responses}],"usage":{dumps(usage).decode()}}}'
    body = f'{{"result":{result},"success":true,"errors":[],"messages":[]}}'
    return Reply(200, {"content-type": JSON_TYPE, "cf-ai-neurons": f"{price:.2f}"}, body.encode())


def _item(
    service: Service, call: Call, model: Model, index: int, request: Json, failure: ItemFailure | None
) -> tuple[str, int, int]:
    """One item as JSON text, with its input and output tokens."""
    reference = json.dumps(request.get("external_reference"), ensure_ascii=False)
    if failure is not None:
        return _failed(service, index, reference, failure.code, failure.message), 0, 0
    try:
        result, used_in, used_out = _result(service, call, model, request)
    except ServiceError as error:
        return _failed(service, index, reference, error.code, f"AiError: {error.message}"), 0, 0
    return (
        f'{{"id":{index},"result":{result},"success":true,"external_reference":{reference}}}',
        used_in,
        used_out,
    )


def _result(service: Service, call: Call, model: Model, request: Json) -> tuple[str, int, int]:
    inputs = {key: value for key, value in request.items() if key != "external_reference"}
    if model.task == "Text Embeddings":
        embedding_checks.check_native(model, inputs)
        text, tokens = embeddings.result_json(service, model, inputs)
        return text, tokens, 0
    if model.responses and "input" in inputs:
        given = responses.read_checked(service, model, inputs)
        shape, usage = responses.result_of(service, call, model, given, inputs)
        return dumps(shape).decode(), usage.prompt_tokens, usage.completion_tokens
    asked = chat.read_checked(model, inputs, service, compat=False)
    answer = chat.answer_of(service, call, model, asked, inputs)
    text = dumps(chat.native_result(answer, model, asked)).decode()
    return text, answer.usage.prompt_tokens, answer.usage.completion_tokens


def _failed(service: Service, index: int, reference: str, code: int, message: str) -> str:
    """A failed item; its shape is not documented."""
    why: dict[str, Any] = {"message": message, "code": code}
    key = service.queue.settings.error_key
    told = f'"{key}":{dumps([why] if key == "errors" else why).decode()},' if key else ""
    return f'{{"id":{index},"success":false,{told}"external_reference":{reference}}}'


def _texts(model: Model, requests: list[Json]) -> list[str]:
    """All texts of a batch that can be read; a malformed item fails later, alone."""
    texts: list[str] = []
    for request in requests:
        try:
            embedding_checks.check_native(model, request)
        except ServiceError:
            continue
        texts += embedding_checks.texts_of(model, request)
    return texts
