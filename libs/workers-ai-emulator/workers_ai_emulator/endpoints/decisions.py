"""Decision models on the native route."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai_emulator.endpoints.inference import priced, work
from workers_ai_emulator.rules.decisions import check_decision, decide
from workers_ai_emulator.rules.tokens import count_tokens, neurons
from workers_ai_emulator.shapes.envelopes import success

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.endpoints.request_faults import RequestFaults
    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json, Reply


def decision(service: Service, call: Call, model: Model, body: Json, faults: RequestFaults) -> Flow[Reply]:
    """Answer ``POST /ai/run/@cf/cloudflare/clef…``."""
    check_decision(model, body)

    def reply() -> Reply:
        tokens = count_tokens(f"{body['state']} {body['questions']}")
        usage = {"input_tokens": tokens, "output_tokens": 0}
        result = {"model": body["model"].strip(), "answers": decide(body), "usage": usage}
        return priced(service, faults.whole(success(result)), neurons(model, tokens, 0))

    result = yield from work(service, call, model, body, faults.latency_s, reply)
    return result
