"""Submissions to the asynchronous queue, and polls."""

from __future__ import annotations

import dataclasses
import json
import uuid
from typing import TYPE_CHECKING

from workers_ai_emulator.endpoints import chat, embeddings, responses
from workers_ai_emulator.rules import embedding_checks
from workers_ai_emulator.rules.tokens import neurons
from workers_ai_emulator.shapes import native, openai
from workers_ai_emulator.shapes.envelopes import success
from workers_ai_emulator.wire import JSON_TYPE, Reply, ServiceError, dumps, json_reply

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.state.queue import ItemFailure, Job
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json


_UNSUPPORTED = {
    8007: "This model does not support request queuing",
    5006: "Bad input: Error: oneOf at '/' not met, 0 matches: additional property '/requests'",
    10063: "batch queueing not available",
}


def is_poll(body: Json) -> bool:
    """Return whether a body polls a batch."""
    return "request_id" in body and "requests" not in body


def submit_or_poll(service: Service, call: Call, model: Model, body: Json) -> Flow[Reply]:
    """Answer a request with ``?queueRequest=true``."""
    if is_poll(body):
        return poll(service, call, model, body)
    return submit(service, call, model, body)


def submit(service: Service, call: Call, model: Model, body: Json) -> Flow[Reply]:
    """Store a batch: ``{"requests": [inputs + external_reference, …]}``."""
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
        raise ServiceError(400, settings.unsupported_code, _UNSUPPORTED[settings.unsupported_code])
    _check_items(service, model, requests)
    service.limits.admit(model)
    if service.settings.busy_in_queue:
        slot = yield from service.capacity.enter(model.id, reject_if_busy=True)
        slot.release()
    if service.settings.latency_s > 0:
        yield service.clock.pause(service.settings.latency_s)
    if model.task == "Text Embeddings":
        service.log.embed(_texts(service, model, requests))
    job = service.queue.submit(service.new_uuid(), model.id, call.body)
    if settings.answers_at_once:
        return _collected(service, call, model, job)
    accepted = {"status": "queued", "request_id": job.request_id, "model": model.id}
    return json_reply(success(accepted), settings.submit_status)


def _check_items(service: Service, model: Model, items: list[Json]) -> None:
    """Reject a submission with invalid items.

    Documented: llama-3.3-70b accepts ``prompt``; ``messages`` are also used. Recorded: gpt-oss accepts only ``input``.

    Raises:
        ServiceError: 5006.
    """
    settings = service.queue.settings
    if model.responses and any("input" not in item for item in items):
        text = "Bad input: Error: oneOf at '/' not met, 0 matches: required properties at '/' are 'prompt', required"
        raise ServiceError(400, 5006, f"{text} properties at '/' are 'messages', required properties at '/requests/0'")
    if model.family == "hybrid" and settings.hybrid_messages == "reject":
        for index, item in enumerate(items):
            if "prompt" not in item:
                text = "Bad input: Error: oneOf at '/' not met, 0 matches: required properties at"
                raise ServiceError(400, 5006, f"{text} '/requests/{index}' are 'prompt'")
    if settings.bad_item == "submission":
        for item in items:
            _check_item(service, model, _inputs(item))


def _check_item(service: Service, model: Model, inputs: Json) -> None:
    """Raise the error of an invalid item."""
    if model.task == "Text Embeddings":
        embedding_checks.check_native(model, inputs, service.settings)
    elif model.responses and "input" in inputs:
        responses.read_checked(service, model, inputs)
    else:
        chat.read_checked(model, inputs, service, compat=False)


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
    """Return the finished batch. Its results depend only on the request, so they are computed at the poll."""
    failures = service.queue.failure_of(job)
    first_time = not job.charged
    job.charged = True
    items: list[str] = []
    prompt_tokens = completion_tokens = 0
    for index, request in enumerate(job.requests):
        own = dataclasses.replace(call, request_id=str(uuid.uuid5(uuid.UUID(job.request_id), str(index))))
        text, used_in, used_out = _item(service, own, model, index, request, failures.get(index))
        items.append(text)
        prompt_tokens, completion_tokens = prompt_tokens + used_in, completion_tokens + used_out
    usage: Json = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if _in_results(service, model):
        usage["prompt_tokens_details"] = {"cached_tokens": 0}
    price = neurons(model, prompt_tokens, completion_tokens)
    if first_time:
        service.limits.charge(price)
    done = service.queue.settings.status_when_done
    status = f'"status":{json.dumps(done)},' if done is not None else ""
    key = "results" if _in_results(service, model) else "responses"
    listed = ",".join(service.queue.arrange(job, items))
    result = f'{{{status}"{key}":[{listed}],"usage":{dumps(usage).decode()}}}'
    body = f'{{"result":{result},"success":true,"errors":[],"messages":[]}}'
    return Reply(200, {"content-type": JSON_TYPE, "cf-ai-neurons": f"{price:.2f}"}, body.encode())


def _in_results(service: Service, model: Model) -> bool:
    return service.queue.uses_results(model.id, model.family)


def _item(
    service: Service, call: Call, model: Model, index: int, request: Json, failure: ItemFailure | None
) -> tuple[str, int, int]:
    """Return one item as JSON text, with its input and output tokens."""
    if failure is not None:
        return _failed(service, model, index, request, failure.code, failure.message), 0, 0
    try:
        result, used_in, used_out = _result(service, call, model, request)
    except ServiceError as error:
        return _failed(service, model, index, request, error.code, f"AiError: {error.message}"), 0, 0
    return _item_json(service, model, index, request, f'"result":{result},"success":true'), used_in, used_out


def _item_json(service: Service, model: Model, index: int, request: Json, inner: str) -> str:
    """Return an item with its position and reference, in its model's form."""
    reference = json.dumps(request.get("external_reference"), ensure_ascii=False)
    if not _in_results(service, model):
        return f'{{"id":{index},{inner},"external_reference":{reference}}}'
    echoed = service.queue.settings.results_reference and "external_reference" in request
    more = f',"external_reference":{reference}' if echoed else ""
    return f'{{"index":{index},{inner}{more}}}'


def _result(service: Service, call: Call, model: Model, request: Json) -> tuple[str, int, int]:
    inputs = _inputs(request)
    if service.queue.settings.item_formats == "ignore":
        inputs.pop("response_format", None)
    if model.task == "Text Embeddings":
        embedding_checks.check_native(model, inputs, service.settings)
        text, tokens = embeddings.result_json(service, model, inputs)
        return text, tokens, 0
    if model.responses and "input" in inputs:
        given = responses.read_checked(service, model, inputs)
        shape, usage = responses.result_of(service, call, model, given, inputs)
        return dumps(shape).decode(), usage.prompt_tokens, usage.completion_tokens
    chat_request = chat.read_checked(model, inputs, service, compat=False)
    answer = chat.answer_of(service, call, model, chat_request, inputs)
    shape = chat.native_result(service, answer, model, chat_request)
    if model.family == "hybrid" and service.queue.settings.hybrid_items == "native":
        shape = native.whole(answer, model)
    if model.family == "native" or "choices" not in shape:
        shape.pop("usage")
    if model.family == "openai":
        shape = openai.queued(shape, model)
    return dumps(shape).decode(), answer.usage.prompt_tokens, answer.usage.completion_tokens


def _inputs(item: Json) -> Json:
    return {key: value for key, value in item.items() if key != "external_reference"}


def _failed(service: Service, model: Model, index: int, request: Json, code: int | None, message: str) -> str:
    """Return a failed item. No recording shows its form."""
    why: Json = {"message": message, "code": code}
    key = service.queue.settings.error_key
    reason = f',"{key}":{dumps([why] if key == "errors" else why).decode()}' if key else ""
    return _item_json(service, model, index, request, f'"success":false{reason}')


def _texts(service: Service, model: Model, requests: list[Json]) -> list[str]:
    """Return all texts of the valid items of a batch."""
    texts: list[str] = []
    for request in requests:
        try:
            embedding_checks.check_native(model, request, service.settings)
        except ServiceError:
            continue
        texts += embedding_checks.texts_of(model, request)
    return texts
