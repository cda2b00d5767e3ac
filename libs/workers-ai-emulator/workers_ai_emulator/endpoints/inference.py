"""Steps of every inference request: model, plan, limits, capacity, latency, price."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai_emulator.catalogue import Model, is_third_party, models
from workers_ai_emulator.wire import Json, Reply, ServiceError, dumps

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call


def find_model(service: Service, name: str, *, in_path: bool = False) -> Model:
    """Return the model of a request.

    Args:
        service: The service.
        name: An id of the catalogue, or ``author/model`` of a third party.
        in_path: Whether the name is in the URL. If so, an unknown model is rejected with 7000.

    Raises:
        ServiceError: 7000 or 5007 for an unknown model, 5028 for a retired model, 5035 without the paid plan, 5016
            without accepted terms.
    """
    known = models()
    if is_third_party(name):
        return Model(name, family="openai", schema="new", function_calling=True, reasoning=False, vision=True)
    model = known.get(name)
    if model is None and in_path:
        raise ServiceError(400, 7000, "No route for that URI", layer="api")
    if model is None:
        raise no_such_model(name)
    if model.alias_of:
        model = known[model.alias_of]
    if model.retired_on:
        text = f"Model has been deprecated: {name} was deprecated on {model.retired_on}."
        text += " See the model catalog for alternatives"
        raise ServiceError(410, 5028, text)
    if model.paid_only and not service.settings.paid_plan:
        raise ServiceError(403, 5035, "This model requires a Workers Paid plan. See pricing for details.")
    if "llama-3.2-11b-vision" in model.id and not service.settings.licence_agreed:
        raise ServiceError(403, 5016, "User has not agreed to Llama3.2 model terms")
    return model


def no_such_model(name: str) -> ServiceError:
    """Return the error for an unknown model in the body."""
    return ServiceError(400, 5007, f"No such model: No such model {name} or task")


def rejects_if_busy(service: Service, call: Call, body: Json) -> bool:
    """Return whether the body sets ``options.rejectIfBusy``. A query parameter of that name has no effect.

    Documented: https://developers.cloudflare.com/workers-ai/features/reject-if-busy/
    """
    options = body.get("options")
    return (
        call.route in service.settings.reject_on and isinstance(options, dict) and options.get("rejectIfBusy") is True
    )


def work(
    service: Service, call: Call, model: Model, body: Json, extra_s: float, answer: Callable[[], Reply]
) -> Flow[Reply]:
    """Take a slot, wait for the latency, answer, and release the slot when the reply is finished.

    Args:
        service: The service.
        call: The request.
        model: The model.
        body: The part of the request that may contain ``options``.
        extra_s: Seconds in addition to ``settings.latency_s``.
        answer: Returns the reply. The slot of a streamed reply is released when the reply is closed.
    """
    service.limits.admit(model)
    slot = yield from service.capacity.enter(model.id, reject_if_busy=rejects_if_busy(service, call, body))
    keep = False
    try:
        seconds = service.settings.latency_s + extra_s
        if seconds > 0:
            yield service.clock.pause(seconds)
        reply = answer()
        keep = reply.chunks is not None
        if keep:
            reply.on_close.append(slot.release)
        return reply
    finally:
        if not keep:
            slot.release()


def priced(service: Service, body: object, neurons: float) -> Reply:
    """Return a whole JSON reply and charge its price."""
    service.limits.charge(neurons)
    return Reply(200, {"content-type": "application/json", "cf-ai-neurons": f"{neurons:.2f}"}, dumps(body))
