"""The inference routes; each passes its body to the endpoint of the model's task."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from workers_ai_emulator.catalogue import is_third_party
from workers_ai_emulator.endpoints import batch, chat, decisions, embeddings, responses
from workers_ai_emulator.endpoints.inference import find_model, no_such_model
from workers_ai_emulator.wire import NotEmulatedError, ServiceError

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.endpoints.request_faults import RequestFaults
    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json, Reply

_VECTORS = {"Text Embeddings", "Text Classification"}
_THIRD_PARTY_DIMENSIONS = 1536


def run(service: Service, call: Call, faults: RequestFaults) -> Flow[Reply]:
    """Answer ``POST /ai/run/{model}``."""
    model = find_model(service, call.model, in_path=not call.gateway)
    if call.flag("queueRequest"):
        return batch.submit_or_poll(service, call, model, call.json_object())
    body = call.json_object()
    if batch.is_poll(body) and not service.queue.settings.poll_needs_flag:
        return batch.poll(service, call, model, body)
    return dispatch(service, call, model, body, faults)


def run_shared(service: Service, call: Call, faults: RequestFaults) -> Flow[Reply]:
    """Answer ``POST /ai/run`` with ``{"model", "input"}``. An ``@cf/`` model requires the gateway header.

    Documented: https://developers.cloudflare.com/ai-gateway/usage/rest-api/
    """
    body = call.json_object()
    inputs = body.get("input")
    if not isinstance(body.get("model"), str) or not isinstance(inputs, dict):
        raise ServiceError(400, 5006, "Bad input: Error: required properties at '/' are 'model,input'")
    needs_gateway = service.settings.shared_run_gateway == "reject"
    if needs_gateway and body["model"].startswith("@") and not call.headers.get("cf-aig-gateway-id"):
        raise ServiceError(400, 3003, "Request is missing headers or body: cf-aig-gateway-id")
    model = find_model(service, body["model"])
    if "options" in body:
        inputs = {**inputs, "options": body["options"]}
    return dispatch(service, call, model, inputs, faults)


def chat_completions(service: Service, call: Call, faults: RequestFaults) -> Flow[Reply]:
    """Answer ``POST /ai/v1/chat/completions``."""
    body = call.json_object()
    model = find_model(service, _model_of(body))
    if model.task != "Text Generation" or model.family == "decision":
        raise no_such_model(model.id)
    return chat.chat(service, call, model, body, faults, compat=True)


def v1_embeddings(service: Service, call: Call, faults: RequestFaults) -> Flow[Reply]:
    """Answer ``POST /ai/v1/embeddings``."""
    body = call.json_object()
    model = find_model(service, _model_of(body))
    if is_third_party(model.id):
        model = dataclasses.replace(model, task="Text Embeddings", dimensions=_THIRD_PARTY_DIMENSIONS)
    if model.task != "Text Embeddings":
        raise no_such_model(model.id)
    return embeddings.embed_compat(service, call, model, body, faults)


def dispatch(service: Service, call: Call, model: Model, body: Json, faults: RequestFaults) -> Flow[Reply]:
    """Call the endpoint of the model's task.

    Raises:
        NotEmulatedError: If the task is not emulated.
    """
    if "requests" in body:
        raise ServiceError(
            400, 5006, "Bad input: Error: oneOf at '/' not met, 0 matches: additional property '/requests'"
        )
    if model.task in _VECTORS and "distilbert" not in model.id:
        return embeddings.embed_native(service, call, model, body, faults)
    if model.responses and "input" in body:
        return responses.respond(service, call, model, body, faults, compat=False)
    if model.task == "Text Generation" and model.family in {"native", "openai", "hybrid"}:
        return chat.chat(service, call, model, body, faults, compat=False)
    if model.family == "decision":
        return decisions.decision(service, call, model, body, faults)
    raise NotEmulatedError(f"inference with {model.id} (task {model.task})")


def _model_of(body: Json) -> str:
    if not isinstance(body.get("model"), str):
        raise ServiceError(400, 5006, "Bad input: Error: required properties at '/' are 'model'")
    return str(body["model"]).removeprefix("workers-ai/")
