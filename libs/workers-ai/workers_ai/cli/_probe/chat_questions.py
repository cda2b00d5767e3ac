"""Questions about chat: streams, tools, schemas, the Responses route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workers_ai.cli._probe.calls import Call, OpenQuestionError
from workers_ai.cli._probe.question import Question, Value, acceptance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers_ai.cli._probe.session import Session
    from workers_ai.types import JSON

__all__ = ["CHAT_QUESTIONS"]

_GPT: Final = "@cf/openai/gpt-oss-20b"
_GLM: Final = "@cf/zai-org/glm-4.7-flash"
_LLAMA: Final = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
_OLDER: Final = "@cf/meta/llama-3.1-8b-instruct-fp8"
_MISTRAL: Final = "@cf/mistralai/mistral-small-3.1-24b-instruct"
_NO_TOOLS: Final = "@cf/meta/llama-3.2-1b-instruct"

_HELLO: Final[JSON] = [{"role": "user", "content": "Say hello."}]
_WEATHER: Final[JSON] = [{"role": "user", "content": "What is the weather in Moss? Call the tool."}]
_FILL: Final[JSON] = [{"role": "user", "content": "Fill the form with any number, as JSON."}]
_CITY: Final[JSON] = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "city"}},
    "required": ["city"],
}
_FUNCTION: Final[JSON] = {"name": "weather", "description": "Return the weather of a city.", "parameters": _CITY}
_TOOLS: Final[JSON] = [{"type": "function", "function": _FUNCTION}]
_UNDESCRIBED: Final[JSON] = [{"type": "function", "function": {"name": "weather", "parameters": _CITY}}]
_NAMED: Final[JSON] = {"type": "function", "function": {"name": "weather"}}
_NUMBER: Final[JSON] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_IMPOSSIBLE: Final[JSON] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 1}},
    "required": ["n"],
}


def _run(model: str, **body: JSON) -> Call:
    return Call(f"run/{model}", body, model)


def _v1(model: str, **body: JSON) -> Call:
    return Call("v1/chat/completions", {"model": model, **body}, model)


def _schema(schema: JSON) -> JSON:
    return {"type": "json_schema", "json_schema": schema}


_STREAM = _v1(_GPT, messages=_HELLO, max_tokens=24, stream=True, stream_options={"include_usage": True})
_PLAIN_STREAM = _v1(_GPT, messages=_HELLO, max_tokens=24, stream=True)
_OLDER_STREAM = _v1(_OLDER, messages=_HELLO, max_tokens=16, stream=True)
_LLAMA_TOOLS = _run(_LLAMA, messages=_WEATHER, tools=_TOOLS, tool_choice="required", max_tokens=64)
_GLM_REQUIRED = _v1(_GLM, messages=_WEATHER, tools=_TOOLS, tool_choice="required", max_tokens=128)
_GLM_NAMED = _v1(_GLM, messages=_WEATHER, tools=_TOOLS, tool_choice=_NAMED, max_tokens=128)
_MISTRAL_TOOLS = _v1(_MISTRAL, messages=_WEATHER, tools=_TOOLS, tool_choice="required", max_tokens=64)
_MISTRAL_GUIDED = _run(_MISTRAL, messages=_FILL, guided_json=_NUMBER, max_tokens=32)
_UNDESCRIBED_TOOLS = _run(_LLAMA, messages=_WEATHER, tools=_UNDESCRIBED, max_tokens=64)
_IMPOSSIBLE_JSON = _run(_LLAMA, messages=_FILL, response_format=_schema(_IMPOSSIBLE), max_tokens=32)
_NAMED_ON_RUN = _run(
    _LLAMA, messages=_FILL, response_format=_schema({"name": "form", "schema": _NUMBER}), max_tokens=32
)
_BARE_ON_V1 = _v1(_LLAMA, messages=_FILL, response_format=_schema(_NUMBER), max_tokens=32)
_SCHEMA_STREAM = _run(_LLAMA, messages=_FILL, response_format=_schema(_NUMBER), max_tokens=32, stream=True)
_TOOLS_UNSUPPORTED = _run(_NO_TOOLS, messages=_WEATHER, tools=_TOOLS, max_tokens=32)
_REJECT_IF_BUSY = _v1(_GPT, messages=_HELLO, max_tokens=24, options={"rejectIfBusy": True})
_RESPONSES_STREAM = Call(
    "v1/responses", {"model": _GPT, "input": "Say hello.", "max_output_tokens": 32, "stream": True}, _GPT
)


def _native_usage(session: Session) -> Value:
    return any("response" in event and "usage" in event for event in session.send(_STREAM).events)


def _padding(session: Session) -> Value:
    return any("p" in event for event in session.send(_STREAM).events)


def _usage_unasked(session: Session) -> Value:
    events = [event for event in session.send(_PLAIN_STREAM).events if "choices" in event]
    with_usage = [event for event in events if isinstance(event.get("usage"), dict)]
    if not with_usage:
        return "none"
    return "each" if any(event["choices"] for event in with_usage[:-1]) else "last"


def _legacy_chunks(session: Session) -> Value:
    choices = [choice for event in session.send(_OLDER_STREAM).events for choice in _choices(event)]
    if not choices:
        raise OpenQuestionError("the stream has no choices")
    return not any("index" in choice for choice in choices)


def _choices(body: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    """Return the choices of a reply or an event."""
    choices = body.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _hybrid_tool_calls(session: Session) -> Value:
    result = session.send(_LLAMA_TOOLS).result
    messages = [choice.get("message") for choice in _choices(result)]
    at_top = bool(result.get("tool_calls"))
    in_choices = any(message.get("tool_calls") for message in messages if isinstance(message, dict))
    if not at_top and not in_choices:
        raise OpenQuestionError("the model called no tool")
    return "both" if at_top and in_choices else "top" if at_top else "choices"


def _json_mode(session: Session) -> tuple[int, int | None]:
    reply = session.send(_IMPOSSIBLE_JSON)
    if reply.error is None or "JSON Mode" not in reply.error.message:
        raise OpenQuestionError(f"the service did not report that no value matches the schema: {reply.summary}")
    return reply.status, reply.code


def _schema_forms(session: Session) -> Value:
    run, v1 = session.send(_NAMED_ON_RUN).accepted, session.send(_BARE_ON_V1).accepted
    if run == v1:
        return "both" if run == "accept" else "own"
    return "named on run" if run == "accept" else "bare on v1"


def _unsupported_tools(session: Session) -> Value:
    reply = session.send(_TOOLS_UNSUPPORTED)
    if reply.accepted == "reject":
        return "reject"
    return "call" if reply.result.get("tool_calls") else "ignore"


def _responses_stream(session: Session) -> Value:
    reply = session.send(_RESPONSES_STREAM)
    if reply.accepted == "reject":
        return "reject"
    return "whole" if reply.data is not None else "stream"


_BOOLEANS: Final = (False, True)
CHAT_QUESTIONS: Final = (
    Question("v1_native_usage", "trailing native usage event on `/ai/v1`", _BOOLEANS, (_STREAM,), _native_usage),
    Question("v1_padding", "padding `p` on `/ai/v1`", (True, False), (_STREAM,), _padding),
    Question(
        "v1_usage_unasked",
        "usage in streams on `/ai/v1` without `stream_options`",
        ("each", "last", "none"),
        (_PLAIN_STREAM,),
        _usage_unasked,
    ),
    Question(
        "v1_legacy_chunks", "bare chunks of older models on `/ai/v1`", _BOOLEANS, (_OLDER_STREAM,), _legacy_chunks
    ),
    Question(
        "hybrid_tool_calls",
        "place of the tool calls of llama-3.3-70b",
        ("both", "choices", "top"),
        (_LLAMA_TOOLS,),
        _hybrid_tool_calls,
    ),
    acceptance("glm_required", '`tool_choice: "required"` on glm-4.7-flash', _GLM_REQUIRED, assumed="reject"),
    Question(
        "json_mode_status",
        'HTTP status of "JSON Mode couldn\'t be met"',
        (400, 422, 500, 200),
        (_IMPOSSIBLE_JSON,),
        lambda session: _json_mode(session)[0],
    ),
    Question(
        "json_mode_code",
        'code of "JSON Mode couldn\'t be met"',
        (5024, None),
        (_IMPOSSIBLE_JSON,),
        lambda session: _json_mode(session)[1],
    ),
    Question(
        "schema_forms",
        "JSON schema bare on `/ai/v1`, in an envelope on `/ai/run`",
        ("both", "own"),
        (_NAMED_ON_RUN, _BARE_ON_V1),
        _schema_forms,
    ),
    Question(
        "unsupported_tools",
        "tools for a model without tool support",
        ("ignore", "reject"),
        (_TOOLS_UNSUPPORTED,),
        _unsupported_tools,
    ),
    Question(
        "responses_stream",
        "`stream: true` on the Responses route",
        ("reject", "whole"),
        (_RESPONSES_STREAM,),
        _responses_stream,
    ),
    acceptance(
        "glm_named",
        "a named `tool_choice` on glm-4.7-flash",
        _GLM_NAMED,
        assumed="accept",
        where="workers_ai/_wire/quirks.py (TOOL_CHOICE_FORMS)",
    ),
    acceptance(
        "mistral_required",
        '`tool_choice: "required"` on mistral-small-3.1',
        _MISTRAL_TOOLS,
        assumed="accept",
        where="workers_ai/_wire/quirks.py (TOOL_CHOICE_FORMS)",
    ),
    acceptance(
        "mistral_guided_json",
        "`guided_json` on mistral-small-3.1",
        _MISTRAL_GUIDED,
        assumed="accept",
        where="workers_ai/_wire/quirks.py (GUIDED_JSON)",
    ),
    acceptance(
        "undescribed_tools",
        "tools without a description on the older schema",
        _UNDESCRIBED_TOOLS,
        assumed="reject",
        where="workers_ai/_wire/quirks.py (COMPLETE_TOOLS)",
    ),
    acceptance(
        "schema_stream",
        "a JSON schema in a stream",
        _SCHEMA_STREAM,
        assumed="reject",
        where="workers_ai/_wire/chat/schemas.py",
    ),
    acceptance(
        "v1_reject_if_busy",
        "`options.rejectIfBusy` on `/ai/v1`",
        _REJECT_IF_BUSY,
        assumed="accept",
        where="workers_ai/_wire/chat/request.py",
    ),
)
"""Questions in the order of the emulator's switches, then those without a switch."""
