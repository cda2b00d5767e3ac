"""Chat on the native and on the OpenAI-compatible route."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from workers_ai_emulator.endpoints.inference import priced, work
from workers_ai_emulator.endpoints.streams import stream_reply
from workers_ai_emulator.player.player import play
from workers_ai_emulator.player.request import ChatRequest, read_chat
from workers_ai_emulator.rules.chat_checks import check_chat
from workers_ai_emulator.rules.words import count_tokens, neurons
from workers_ai_emulator.shapes import native, openai
from workers_ai_emulator.shapes.answer import Answer, Choice, Usage
from workers_ai_emulator.shapes.envelopes import success
from workers_ai_emulator.shapes.pieces import Padding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.endpoints.meeting import Meeting
    from workers_ai_emulator.state.flow import Flow
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json, Reply


def chat(service: Service, call: Call, model: Model, body: Json, meeting: Meeting, *, compat: bool) -> Flow[Reply]:
    """Answer a chat request in the shape of its route."""
    request = read_checked(model, body, service, compat=compat)

    def reply() -> Reply:
        answer = answer_of(service, call, model, request, body)
        shape: Any = _compat_body(answer) if compat else success(native_result(answer, model, request))
        if request.stream:
            service.limits.charge(answer.usage.neurons)
            events = _events(service, answer, model, compat=compat)
            return stream_reply(service.clock, events, meeting, answer.usage.neurons, shape)
        return priced(service, meeting.whole(shape), answer.usage.neurons)

    result = yield from work(service, call, model, body, meeting.latency_s, reply)
    return result


def read_checked(model: Model, body: Json, service: Service, *, compat: bool) -> ChatRequest:
    """Read a body after the checks of its model's schema.

    Raises:
        ServiceError: If the schema or the model refuses it.
    """
    check_chat(model, body, compat=compat, reject_tools=service.settings.unsupported_tools == "reject")
    return read_chat(model, body)


def answer_of(service: Service, call: Call, model: Model, request: ChatRequest, body: Json) -> Answer:
    """Play a request, or have the upstream answer its body, and count what it costs."""

    def new_id(name: str, number: int) -> str:
        return call_id(service, model, name, number)

    if service.upstream is not None:
        choices = openai.choices_of(service.upstream.chat(model.id, body), request.wants_json)
    else:
        choices = [play(model, request, new_id) for _ in range(request.n)]
    prompt_tokens = count_tokens(request.prompt_text)
    cached = service.prefixes.cached_tokens(call.headers.get("x-session-affinity", ""), model.id, request.prompt_text)
    limit = request.max_tokens or sys.maxsize
    completion_tokens = sum(min(limit, tokens_of(choice)) for choice in choices)
    usage = Usage(prompt_tokens, completion_tokens, cached, neurons(model, prompt_tokens, completion_tokens, cached))
    now = service.clock.now()
    own_id = f"chatcmpl-{service.new_hex(32)}" if model.family == "openai" else f"id-{int(now * 1000)}"
    return Answer(own_id, int(now), model.id, choices, usage, request.logprobs)


def call_id(service: Service, model: Model, name: str, number: int) -> str:
    """The id of a tool call, in the style of the model; Kimi's repeat in every reply.

    Reported: https://github.com/cloudflare/ai/issues/526.
    """
    if "kimi" in model.id:
        return f"functions.{name}:{number}"
    return service.new_hex(9) if model.tool_calls == "nested" else f"chatcmpl-tool-{service.new_hex(32)}"


def tokens_of(choice: Choice) -> int:
    """Output tokens of a completion: text, thinking and calls."""
    calls = sum(count_tokens(f"{call.name} {call.arguments}") for call in choice.tool_calls)
    return count_tokens(choice.text) + count_tokens(choice.reasoning) + calls


def native_result(answer: Answer, model: Model, request: ChatRequest) -> Json:
    """The ``result`` on the native route, in the model's own family."""
    if model.family != "openai":
        return native.whole(answer, model)
    return openai.whole_text(answer) if request.is_prompt else openai.whole(answer)


def _compat_body(answer: Answer) -> Json:
    return openai.whole(answer)


def _events(service: Service, answer: Answer, model: Model, *, compat: bool) -> Iterator[Json]:
    padding = Padding(service.rng)
    if not compat and model.family != "openai":
        yield from native.events(answer, model, padding)
        return
    yield from openai.events(answer, model, padding)
    if not compat or service.settings.v1_native_usage:
        yield native.usage_event(answer)
