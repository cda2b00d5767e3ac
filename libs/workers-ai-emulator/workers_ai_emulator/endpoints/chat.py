"""Chat on the native and on the OpenAI-compatible route."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from workers_ai_emulator.endpoints.inference import priced, work
from workers_ai_emulator.endpoints.streams import stream_reply
from workers_ai_emulator.fake_model.model import complete
from workers_ai_emulator.fake_model.request import ChatRequest, read_chat
from workers_ai_emulator.rules.chat_checks import check_chat
from workers_ai_emulator.rules.tokens import count_tokens, neurons
from workers_ai_emulator.shapes import hybrid, native, openai
from workers_ai_emulator.shapes.answer import Answer, Choice, ToolCall, Usage
from workers_ai_emulator.shapes.chunks import Padding
from workers_ai_emulator.shapes.envelopes import success
from workers_ai_emulator.shapes.stream_quirks import legacy_chunks
from workers_ai_emulator.wire import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.endpoints.request_faults import RequestFaults
    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.state.faults import Fault
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json, Reply


_JSON_MODE = 5024


def chat(service: Service, call: Call, model: Model, body: Json, faults: RequestFaults, *, compat: bool) -> Flow[Reply]:
    """Answer a chat request in the form of its route."""
    request = read_checked(model, body, service, compat=compat)

    def reply() -> Reply:
        answer = answer_of(service, call, model, request, body, compat=compat, scripted=faults.scripted)
        shape: Json
        if compat:
            shape = openai.whole(answer, model, compat=True)
        else:
            shape = success(native_result(service, answer, model, request))
        if request.stream:
            service.limits.charge(answer.usage.neurons)
            events = _events(service, answer, model, body, compat=compat)
            return stream_reply(service.clock, events, faults, answer.usage.neurons, shape)
        return priced(service, faults.whole(shape), answer.usage.neurons)

    result = yield from work(service, call, model, body, faults.latency_s, reply)
    return result


def read_checked(model: Model, body: Json, service: Service, *, compat: bool) -> ChatRequest:
    """Check a body against the model's schema. Return it as a chat request.

    Raises:
        ServiceError: If the body is invalid.
    """
    check_chat(model, body, service.settings, compat=compat)
    return read_chat(model, body)


def answer_of(
    service: Service,
    call: Call,
    model: Model,
    request: ChatRequest,
    body: Json,
    *,
    compat: bool = False,
    scripted: Fault | None = None,
) -> Answer:
    """Return the answer of the fake model, the script or the upstream, with its usage."""

    def new_id(name: str, number: int) -> str:
        return call_id(service, model, name, number)

    if scripted is not None:
        choices = [_scripted(scripted, request, new_id)]
    elif service.upstream is not None:
        choices = openai.choices_of(service.upstream.chat(model.id, body), request.wants_json)
    else:
        choices = _completions(service, model, request, new_id)
    prompt = request.prompt_text
    prompt_tokens = count_tokens(prompt)
    cached = service.prefixes.cached_tokens(call.headers.get("x-session-affinity", ""), model.id, prompt)
    limit = request.max_tokens or sys.maxsize
    completion_tokens = sum(min(limit, tokens_of(choice)) for choice in choices)
    usage = Usage(prompt_tokens, completion_tokens, cached, neurons(model, prompt_tokens, completion_tokens, cached))
    now = service.clock.now()
    own_id = f"id-{int(now * 1000)}" if compat else f"chatcmpl-{call.request_id}"
    served = None if compat else (model.served_as_json if request.schema is not None else model.served_as)
    return Answer(own_id, int(now), served or model.id, choices, usage, request.logprobs)


def _scripted(fault: Fault, request: ChatRequest, new_id: Callable[[str, int], str]) -> Choice:
    calls = [ToolCall(new_id(name, index), name, arguments) for index, (name, arguments) in enumerate(fault.calls)]
    choice = Choice(fault.text, tool_calls=calls, finish_reason="tool_calls" if calls else "stop")
    if request.wants_json and not calls:
        choice.parsed = native.parsed(fault.text)
        choice.is_json = choice.parsed is not fault.text
    return choice


def _completions(
    service: Service, model: Model, request: ChatRequest, new_id: Callable[[str, int], str]
) -> list[Choice]:
    try:
        return [complete(model, request, new_id) for _ in range(request.n)]
    except ServiceError as error:
        if error.code == _JSON_MODE:
            error.status, error.code = service.settings.json_mode_status, service.settings.json_mode_code
        raise


def call_id(service: Service, model: Model, name: str, number: int) -> str:
    """Return the id of a tool call in the model's format.

    Kimi repeats its ids in every reply (https://github.com/cloudflare/ai/issues/526).
    """
    if "kimi" in model.id:
        return f"functions.{name}:{number}"
    return service.new_hex(9) if model.tool_calls == "nested" else f"chatcmpl-tool-{service.new_hex(32)}"


def tokens_of(choice: Choice) -> int:
    """Count the output tokens of a completion: text, reasoning and tool calls."""
    calls = sum(count_tokens(f"{call.name} {call.arguments}") for call in choice.tool_calls)
    return count_tokens(choice.text) + count_tokens(choice.reasoning) + calls


def native_result(service: Service, answer: Answer, model: Model, request: ChatRequest) -> Json:
    """Return the ``result`` of the native route, in the form of the model's family."""
    if model.family == "native":
        return native.whole(answer, model)
    if model.family == "hybrid":
        return hybrid.whole(answer, model, service.settings.hybrid_tool_calls)
    return openai.whole_text(answer, model) if request.is_prompt else openai.whole(answer, model)


def _events(service: Service, answer: Answer, model: Model, body: Json, *, compat: bool) -> Iterator[Json]:
    include_usage = (body.get("stream_options") or {}).get("include_usage")
    padding = Padding(service.rng)
    if compat:
        yield from _compat_events(service, answer, model, padding, include_usage)
        return
    usage: openai.StreamUsage = "none" if include_usage is False else "each"
    style = openai.Style(padding, usage)
    if model.family == "native":
        yield from native.events(answer, model, padding, usage=usage != "none")
        return
    if model.family == "hybrid":
        yield from hybrid.events(answer, model, style, service.settings.hybrid_tool_calls)
        return
    yield from openai.events(answer, model, style)
    if usage == "none":
        return
    yield native.usage_event(answer, model)
    if model.late_zeros and service.rng.random() < service.settings.late_zeros_chance:
        yield openai.zeros(answer, model, style)


def _compat_events(
    service: Service, answer: Answer, model: Model, padding: Padding, include_usage: bool | None
) -> Iterator[Json]:
    """Yield the events on ``/ai/v1``. Usage depends on ``stream_options``."""
    unasked = service.settings.v1_usage_unasked
    usage: openai.StreamUsage = "last" if include_usage else "none" if include_usage is False else unasked
    events = openai.events(answer, model, openai.Style(padding if service.settings.v1_padding else None, usage))
    if service.settings.v1_legacy_chunks and model.family == "native":
        yield from legacy_chunks(list(events))
        return
    yield from events
    if service.settings.v1_native_usage and usage != "none":
        yield native.usage_event(answer, model)
