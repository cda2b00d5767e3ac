"""Reading a whole chat reply of any family: native, OpenAI, Responses; inside the envelope or without it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from workers_ai.errors import APIResponseValidationError
from workers_ai.wire.jsontext import is_json, json_text
from workers_ai.wire.toolcalls import CallIds, read_tool_calls, recover_leaked_calls
from workers_ai.wire.types import JSON, ChatReply, FinishReason, ReplyContext, ToolCall, Usage
from workers_ai.wire.usage import read_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["content_text", "finish_reason", "first_choice", "kept_headers", "read_chat", "reasoning_text", "unwrap"]

_FINISH: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "error": "error",
}
_PARTS: Final = frozenset({"text", "output_text", "refusal", "reasoning", "thinking", "image_url", "tool_use"})
_KEPT: Final = ("cf-ray", "cf-ai-req-id", "cf-ai-neurons")


def kept_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers that tell where a reply came from: ray, request and gateway ids, cache status, neurons."""
    kept = {}
    for name, value in raw:
        if name[:3].lower() == b"cf-":
            text = name.decode("latin-1").lower()
            if text in _KEPT or text.startswith("cf-aig-"):
                kept[text] = value.decode("latin-1")
    return kept


def unwrap(data: JSON) -> JSON:
    """The payload inside Cloudflare's envelope; third-party models are wrapped twice."""
    for _ in range(2):
        if isinstance(data, dict) and "result" in data and not ("choices" in data or "response" in data):
            data = data["result"]
    return data


def finish_reason(raw: JSON, *, calls: bool, broken: bool, context: ReplyContext, usage: Usage | None) -> FinishReason:
    """The finish reason the frameworks should see, whatever the service said.

    Calls mean ``"tool_calls"``, unless one of them is broken and the service says that the answer was cut. Where the
    native family says nothing, an answer as long as the bound that was in force counts as cut by it.
    """
    if calls and not broken:
        return "tool_calls"
    if raw is None and usage and context.max_tokens and usage.output_tokens >= context.max_tokens:
        return "length"
    reason = _FINISH.get(raw, "stop") if isinstance(raw, str) else "stop"
    if calls:
        return "length" if reason == "length" else "tool_calls"
    return "stop" if reason == "tool_calls" else reason


def content_text(content: JSON) -> str:
    """Text of a message's content: a string, a list of parts, or JSON the service has parsed already."""
    if isinstance(content, list) and content and all(isinstance(p, dict) and p.get("type") in _PARTS for p in content):
        return "".join(json_text(part.get("text")) for part in content if part["type"] in ("text", "output_text"))
    return json_text(content)


def reasoning_text(message: Mapping[str, JSON]) -> str:
    """Reasoning of a message or delta, under either of its names."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(text := message.get(name), str) and text:
            return text
    return ""


def first_choice(result: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """The first of the ``choices``; None where there is none."""
    choices = result.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def read_chat(data: JSON, context: ReplyContext, headers: Mapping[str, str] | None = None) -> ChatReply:
    """Read a whole answer.

    Raises:
        APIResponseValidationError: The reply is a success without an answer in it.
    """
    headers = headers or {}
    result = unwrap(data)
    if isinstance(result, (str, int, float)) and not isinstance(result, bool):
        result = {"response": result}
    if not isinstance(result, dict):
        raise _no_answer(data, context)
    ids = CallIds(context.known_ids)
    if (choice := first_choice(result)) is not None:
        reply = _read_choice(choice, ids)
    elif isinstance(result.get("output"), list):
        reply = _read_responses(result, context, ids)
    elif "response" in result or "tool_calls" in result:
        reply = _read_native(result, context, ids)
    else:
        raise _no_answer(data, context)
    reply.usage = read_usage(result.get("usage"), headers.get("cf-ai-neurons"))
    reply.model = model if isinstance(model := result.get("model"), str) else None
    reply.id = reply_id if isinstance(reply_id := result.get("id"), str) else None
    reply.headers = headers
    reply.raw = result
    _recover(reply, context, ids)
    reply.finish_reason = finish_reason(
        _raw_finish(result),
        calls=bool(reply.tool_calls),
        broken=not all(is_json(call.arguments) for call in reply.tool_calls),
        context=context,
        usage=reply.usage,
    )
    return reply


def _raw_finish(result: Mapping[str, JSON]) -> JSON:
    choice = first_choice(result)
    raw = choice.get("finish_reason") if choice else None
    if result.get("object") == "response" and isinstance(details := result.get("incomplete_details"), dict):
        return "length" if details.get("reason") == "max_output_tokens" else details.get("reason")
    return raw or result.get("finish_reason") or ("stop" if choice else None)


def _no_answer(data: JSON, context: ReplyContext) -> APIResponseValidationError:
    result = unwrap(data)
    what = "the reply has no answer in it"
    if isinstance(result, dict) and "request_id" in result:
        what = f"the request was queued as {result['request_id']} instead of answered; collect it with Client.batch"
    elif isinstance(result, dict) and result.get("object") == "list":
        what = "the reply is a list, not an answer: is this the route of another task?"
    return APIResponseValidationError(what, model=context.model, body=shortened(data), status_code=200)


def shortened(data: JSON, limit: int = 2000) -> str:
    """JSON text of a body for an error, cut to ``limit`` characters."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def _read_choice(choice: Mapping[str, JSON], ids: CallIds) -> ChatReply:
    message = choice.get("message")
    if not isinstance(message, dict):
        return ChatReply(text=json_text(choice.get("text")), logprobs=choice.get("logprobs"))
    calls = read_tool_calls(message.get("tool_calls"), ids)
    if not calls:
        calls = read_tool_calls(message.get("function_call"), ids)
    return ChatReply(
        text=content_text(message.get("content")),
        reasoning=reasoning_text(message),
        tool_calls=calls,
        refusal=message["refusal"] if isinstance(message.get("refusal"), str) and message["refusal"] else None,
        logprobs=choice.get("logprobs"),
    )


def _read_native(result: Mapping[str, JSON], context: ReplyContext, ids: CallIds) -> ChatReply:
    calls = read_tool_calls(result.get("tool_calls"), ids)
    response = result.get("response")
    text = json_text(response)
    if response is None and context.json_mode and not calls and "response" in result and not _was_cut(result, context):
        text = "null"  # JSON mode can answer with any JSON value; elsewhere null means no text
    return ChatReply(text=text, reasoning=reasoning_text(result), tool_calls=calls)


def _was_cut(result: Mapping[str, JSON], context: ReplyContext) -> bool:
    """Whether the bound of the answer was used up, by reasoning for one."""
    usage = read_usage(result.get("usage"))
    return finish_reason(_raw_finish(result), calls=False, broken=False, context=context, usage=usage) == "length"


def _read_responses(result: Mapping[str, JSON], context: ReplyContext, ids: CallIds) -> ChatReply:
    if result.get("status") not in (None, "completed", "incomplete"):
        error = result.get("error")
        why = error.get("message") if isinstance(error, dict) else error
        raise APIResponseValidationError(
            f"the response is {result['status']}: {why or 'the service gave no reason'}",
            model=context.model,
            body=shortened(result),
            status_code=200,
        )
    texts, thoughts, refusals = [], [], []
    calls: list[ToolCall] = []
    for item in result["output"]:
        if not isinstance(item, dict):
            continue
        if item.get("type") == "function_call":
            calls += read_tool_calls([{**item, "id": item.get("call_id") or item.get("id")}], ids)
        parts = [*_list(item.get("content")), *_list(item.get("summary"))]
        for part in parts:
            text = json_text(part.get("text")) if isinstance(part, dict) else ""
            if item.get("type") == "reasoning":
                thoughts.append(text)
            elif isinstance(part, dict) and part.get("type") == "refusal":
                refusals.append(json_text(part.get("refusal")))
            elif item.get("type") == "message":
                texts.append(text)
    text = "".join(texts) or json_text(result.get("output_text"))
    return ChatReply(
        text=text, reasoning="\n".join(thoughts), tool_calls=tuple(calls), refusal="".join(refusals) or None
    )


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _recover(reply: ChatReply, context: ReplyContext, ids: CallIds) -> None:
    if context.forced and not reply.tool_calls and reply.text:
        reply.tool_calls = recover_leaked_calls(reply.text, context.forced, ids)
        if reply.tool_calls:
            reply.text = ""
