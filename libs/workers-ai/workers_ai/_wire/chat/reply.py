"""Reading a whole chat reply of any family: native, OpenAI, Responses; inside the envelope or without it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from workers_ai._wire.chat.tool_calls import CallIds, read_tool_calls, recover_leaked_calls
from workers_ai._wire.json_parsing import json_text
from workers_ai._wire.request import ReplyContext
from workers_ai._wire.usage import read_usage
from workers_ai.errors import APIResponseValidationError
from workers_ai.types import JSON, ChatReply, FinishReason, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "Content",
    "cut_by",
    "finish_reason",
    "first_choice",
    "kept_headers",
    "read_chat",
    "read_content",
    "reasoning_text",
    "unwrap",
]

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
_COMPLETE: Final = frozenset({"stop", "tool_calls", "eos", "end_turn", "stop_sequence", "tool_use"})
"""Reasons of a complete answer: ours, and those that third-party models behind a gateway use."""
_TEXTS: Final = frozenset({"text", "output_text"})
_THOUGHTS: Final = frozenset({"reasoning", "thinking", "reasoning_text", "reasoning_content"})
_PARTS: Final = _TEXTS | _THOUGHTS | {"refusal", "redacted_thinking", "reference", "image_url", "tool_use"}
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


def cut_by(raw: JSON, usage: Usage | None, context: ReplyContext) -> FinishReason:
    """Return the finish reason of an answer that is not complete; "" for a complete one.

    If the service names no reason, an answer as long as the bound in force counts as truncated by it.
    """
    if isinstance(raw, str) and raw:
        reason = _FINISH.get(raw, raw)
        return "" if reason in _COMPLETE else reason
    return "length" if usage and context.max_tokens and usage.output_tokens >= context.max_tokens else ""


def finish_reason(raw: JSON, cut: str, *, calls: bool, broken: bool) -> FinishReason:
    """Return the finish reason for the frameworks.

    What the service says of a truncated, filtered or failed answer outranks the presence of calls; a reason that is
    unknown stays as it is. A bound that was only met by the count of tokens does not, unless a call is broken.

    Args:
        raw: The service's reason, or None.
        cut: What :func:`cut_by` returned.
        calls: Whether there are calls.
        broken: Whether one of them must not run.
    """
    if cut and (raw or broken or not calls):
        return cut
    reason = _FINISH.get(raw, raw) if isinstance(raw, str) else "stop"
    if reason not in ("stop", "tool_calls"):
        return reason
    return "tool_calls" if calls else "stop"


class Content(NamedTuple):
    """Text of a message, and the reasoning and the refusal that stand among its parts."""

    text: str
    reasoning: str = ""
    refusal: str = ""


def read_content(content: JSON, *, in_stream: bool = False) -> Content:
    """Read the content of a message: a string, a list of parts, or JSON that the service has parsed already.

    Parts of unknown type are dropped. A list counts as parts if one of its types is known; in a stream, always.
    """
    if type(content) is str:
        return Content(content)
    if not isinstance(content, list) or not _has_parts(content, in_stream=in_stream):
        return Content(json_text(content))
    texts, thoughts, refusals = [], [], []
    for part in content:
        kind = part["type"] if isinstance(part, dict) else "text"
        if kind in _TEXTS:
            texts.append(json_text(part.get("text") if isinstance(part, dict) else part))
        elif kind in _THOUGHTS:
            thoughts.append(_thought(part))
        elif kind == "refusal":
            refusals.append(json_text(part.get("refusal")))
    return Content("".join(texts), "".join(thoughts), "".join(refusals))


def _has_parts(content: list[JSON], *, in_stream: bool) -> bool:
    kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
    typed = [isinstance(kind, str) or isinstance(part, str) for kind, part in zip(kinds, content, strict=True)]
    known = [kind for kind in kinds if isinstance(kind, str) and (in_stream or kind in _PARTS)]
    return bool(known) and all(typed)


def _thought(value: JSON) -> str:
    """Return the text of reasoning: a string, a part, or a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_thought, value))
    if isinstance(value, dict):
        names = ("thinking", "reasoning", "text", "summary", "content")
        return next((text for name in names if (text := _thought(value.get(name)))), "")
    return ""


def reasoning_text(message: Mapping[str, JSON]) -> str:
    """Return the reasoning of a message or delta, under either of its names."""
    for name in ("reasoning_content", "reasoning"):
        if text := _thought(message.get(name)):
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
    usage = read_usage(result.get("usage"), headers.get("cf-ai-neurons"))
    raw = _raw_finish(result)
    cut = cut_by(raw, usage, context)
    ids = CallIds(context.known_ids)
    if (choice := first_choice(result)) is not None:
        reply = _read_choice(choice, result, ids, cut)
    elif isinstance(result.get("output"), list):
        reply = _read_responses(result, context, ids, cut)
    elif "response" in result or "tool_calls" in result:
        reply = _read_native(result, context, ids, cut)
    else:
        raise _no_answer(data, context)
    text, reasoning, calls = reply.text, reply.reasoning, reply.tool_calls
    if context.forced and text and not calls and (calls := recover_leaked_calls(text, context.forced, ids)):
        text = ""
    if not ((cut and not context.thinking_off) or text or calls or reply.refusal):
        text, reasoning = reasoning, ""  # the answer of a model whose thinking is off
    broken = any(call.error for call in calls)
    return ChatReply(
        text=text,
        reasoning=reasoning,
        tool_calls=calls,
        finish_reason=finish_reason(raw, cut, calls=bool(calls), broken=broken),
        usage=usage,
        model=model if isinstance(model := result.get("model"), str) else None,
        id=reply_id if isinstance(reply_id := result.get("id"), str) else None,
        refusal=reply.refusal,
        logprobs=reply.logprobs,
        headers=headers,
        raw=result,
    )


def _raw_finish(result: Mapping[str, JSON]) -> JSON:
    choice = first_choice(result)
    raw = choice.get("finish_reason") if choice else None
    details = result.get("incomplete_details")
    if isinstance(details, dict) and (reason := details.get("reason")):
        return "length" if reason == "max_output_tokens" else reason
    if isinstance(result.get("output"), list) and result.get("status") == "incomplete":
        return "incomplete"
    raw = raw or result.get("finish_reason")
    return raw if isinstance(raw, str) and raw else "stop" if choice else None


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


def _read_choice(choice: Mapping[str, JSON], result: Mapping[str, JSON], ids: CallIds, cut: str) -> ChatReply:
    """Read a choice. What it lacks may stand beside the choices, in the native fields (llama-3.3)."""
    message = choice.get("message")
    if not isinstance(message, dict):
        message = {"content": choice.get("text")}
    calls = (
        read_tool_calls(message.get("tool_calls"), ids, cut)
        or read_tool_calls(message.get("function_call"), ids, cut)
        or read_tool_calls(result.get("tool_calls"), ids, cut)
    )
    text, reasoning, refusal = read_content(message.get("content"))
    if isinstance(message.get("refusal"), str):
        refusal = message["refusal"] or refusal
    return ChatReply(
        text=text if text or refusal else json_text(result.get("response")),
        reasoning=reasoning_text(message) or reasoning or reasoning_text(result),
        tool_calls=calls,
        refusal=refusal or None,
        logprobs=choice.get("logprobs"),
    )


def _read_native(result: Mapping[str, JSON], context: ReplyContext, ids: CallIds, cut: str) -> ChatReply:
    calls = read_tool_calls(result.get("tool_calls"), ids, cut)
    response = result.get("response")
    text = json_text(response)
    if response is None and context.json_mode and not calls and "response" in result and not cut:
        text = "null"  # JSON mode can answer with any JSON value; elsewhere null means no text
    return ChatReply(text=text, reasoning=reasoning_text(result), tool_calls=calls)


def _read_responses(result: Mapping[str, JSON], context: ReplyContext, ids: CallIds, cut: str) -> ChatReply:
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
            calls += read_tool_calls([{**item, "id": item.get("call_id") or item.get("id")}], ids, cut)
        elif item.get("type") == "reasoning":
            thoughts += [_thought(part) for part in [*_list(item.get("content")), *_list(item.get("summary"))]]
        elif item.get("type") == "message":
            content = read_content(item.get("content"))
            texts.append(content.text)
            thoughts += [content.reasoning] if content.reasoning else []
            refusals.append(content.refusal)
    text = "".join(texts) or json_text(result.get("output_text"))
    return ChatReply(
        text=text, reasoning="\n".join(thoughts), tool_calls=tuple(calls), refusal="".join(refusals) or None
    )


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []
