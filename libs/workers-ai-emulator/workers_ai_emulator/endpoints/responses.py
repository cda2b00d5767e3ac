"""The Responses route, and the ``input`` form of gpt-oss on the native route. Neither supports streaming."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai_emulator.catalogue import is_third_party
from workers_ai_emulator.endpoints import chat
from workers_ai_emulator.endpoints.inference import find_model, no_such_model, priced, work
from workers_ai_emulator.shapes import responses
from workers_ai_emulator.shapes.envelopes import success
from workers_ai_emulator.wire import NotEmulatedError, ServiceError, json_reply

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.endpoints.request_faults import RequestFaults
    from workers_ai_emulator.fake_model.request import ChatRequest
    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.shapes.answer import Usage
    from workers_ai_emulator.state.faults import Fault
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json, Reply


def v1_responses(service: Service, call: Call, faults: RequestFaults) -> Flow[Reply]:
    """Answer ``POST /ai/v1/responses`` for gpt-oss and third-party models."""
    body = call.json_object()
    model = find_model(service, str(body.get("model")))
    if not model.responses and model.id.startswith("@"):
        raise no_such_model(model.id)
    return respond(service, call, model, body, faults, compat=True)


def anthropic_messages(service: Service, call: Call) -> Reply:
    """Reject ``POST /ai/v1/messages`` for models of the catalogue; third-party models are not emulated."""
    model = str(call.json_object().get("model"))
    if is_third_party(model):
        raise NotEmulatedError(f"Anthropic messages with {model}")
    text = f'AiError: Anthropic Messages API is not supported for model "{model}" ({call.request_id})'
    return json_reply({"type": "error", "error": {"type": "invalid_request_error", "message": text}}, 400)


def respond(
    service: Service, call: Call, model: Model, body: Json, faults: RequestFaults, *, compat: bool
) -> Flow[Reply]:
    """Answer a request in the Responses form."""
    checked = read_checked(service, model, body)

    def reply() -> Reply:
        shape, usage = result_of(service, call, model, checked, body, faults.scripted)
        return priced(service, faults.whole(shape if compat else success(shape)), usage.neurons)

    result = yield from work(service, call, model, body, faults.latency_s, reply)
    return result


def read_checked(service: Service, model: Model, body: Json) -> tuple[ChatRequest, Json]:
    """Check a body in the Responses form. Return it as a chat request and as a chat body.

    Raises:
        ServiceError: If the body is invalid.
    """
    if not isinstance(body.get("input"), str | list) or not body["input"]:
        raise ServiceError(400, 5006, "Bad input: Error: oneOf at '/' not met: required properties at '/' are 'input'")
    if body.get("stream") is True and service.settings.responses_stream == "reject":
        raise ServiceError(400, 5006, "Bad input: Error: streaming is not supported by the Responses API")
    try:
        chat_body = responses.chat_body(body)
    except (KeyError, TypeError, AttributeError):
        raise ServiceError(400, 5006, "Bad input: Error: Type mismatch of '/input'") from None
    return chat.read_checked(model, chat_body, service, compat=True), chat_body


def result_of(
    service: Service,
    call: Call,
    model: Model,
    checked: tuple[ChatRequest, Json],
    body: Json,
    scripted: Fault | None = None,
) -> tuple[Json, Usage]:
    """Return the result in the Responses form, and its usage."""
    answer = chat.answer_of(service, call, model, *checked, scripted=scripted)
    return responses.response(answer, body, service.new_hex(32)), answer.usage
