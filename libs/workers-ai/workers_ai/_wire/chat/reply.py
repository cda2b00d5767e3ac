"""Read whole chat replies of all families (native, OpenAI, Responses), with or without the envelope."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from workers_ai._wire.chat.tool_calls import CallIds, read_tool_calls, recover_leaked_calls
from workers_ai._wire.json_parsing import json_text
from workers_ai._wire.json_types import JSON
from workers_ai._wire.request import ReplyContext
from workers_ai._wire.usage import read_usage
from workers_ai.errors import APIResponseValidationError
from workers_ai.types import ChatReply, FinishReason, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "Content",
    "truncation_of",
    "early_end",
    "finish_reason",
    "first_choice",
    "is_failed_response",
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
"""Finish reasons of a complete answer, those of third-party models behind a gateway included."""
_EARLY_ENDS: Final = {
    "length": "the answer was truncated at max_tokens; increase max_tokens or shorten the task",
    "content_filter": "a content filter stopped the answer; change the prompt",
    "error": "the service failed during the answer; send the request again",
}
_TEXTS: Final = frozenset({"text", "output_text"})
_REASONING: Final = frozenset({"reasoning", "thinking", "reasoning_text", "reasoning_content"})
_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call", "function", "toolUse", "functionCall"})
_KNOWN_PARTS: Final = _TEXTS | _REASONING | _CALLS | {"refusal", "redacted_thinking", "reference", "image_url"}
_KEYS_OF_UNTYPED_PARTS: Final = ("text", "thinking", "reasoning", "toolUse", "functionCall")
_KEPT_HEADERS: Final = ("cf-ray", "cf-ai-req-id", "cf-ai-neurons")


def kept_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers that identify a reply: ray, request and gateway ids, cache status, neurons."""
    kept = {}
    for name, value in raw:
        if name[:3].lower() == b"cf-":
            text = name.decode("latin-1").lower()
            if text in _KEPT_HEADERS or text.startswith("cf-aig-"):
                kept[text] = value.decode("latin-1")
    return kept


def unwrap(data: JSON) -> JSON:
    """Return the payload inside Cloudflare's envelope. Replies of third-party models have two envelopes."""
    for _ in range(2):
        if isinstance(data, dict) and "result" in data and not ("choices" in data or "response" in data):
            data = data["result"]
    return data


def truncation_of(raw: JSON, usage: Usage | None, context: ReplyContext) -> FinishReason:
    """Return the finish reason of a truncated, filtered or failed answer; "" for a complete one.

    Without a finish reason, an answer with ``max_tokens`` output tokens counts as truncated ("length").
    """
    if isinstance(raw, str) and raw:
        reason = _FINISH.get(raw, raw)
        return "" if reason in _COMPLETE else reason
    return "length" if usage and context.max_tokens and usage.output_tokens >= context.max_tokens else ""


def finish_reason(raw: JSON, truncation: str, *, calls: bool, broken: bool) -> FinishReason:
    """Return the finish reason for the frameworks.

    The service's reason for a truncated, filtered or failed answer takes precedence over tool calls. An unknown reason
    is returned unchanged. If truncation was only inferred from the number of tokens, tool calls take precedence, unless
    one is invalid.

    Args:
        raw: The service's reason; None if it sent none.
        truncation: The result of :func:`truncation_of`.
        calls: Whether the answer has tool calls.
        broken: Whether one of the tool calls is invalid and must not run.
    """
    if truncation and (raw or broken or not calls):
        return truncation
    reason = _FINISH.get(raw, raw) if isinstance(raw, str) else "stop"
    if reason not in ("stop", "tool_calls"):
        return reason
    return "tool_calls" if calls else "stop"


def early_end(reason: str | None) -> str:
    """Return why an answer ended early, with the remedy; "" for the finish reason of a complete answer."""
    if not reason or reason in _COMPLETE:
        return ""
    return _EARLY_ENDS.get(reason, f"the answer ended early, with finish reason {reason!r}")


class Content(NamedTuple):
    """The text, the reasoning, the refusal and the tool calls of a message's content."""

    text: str
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[Mapping[str, JSON], ...] = ()


def read_content(content: JSON, *, in_stream: bool = False) -> Content:
    """Read the content of a message: a string, a list of parts, or JSON that the service has already parsed.

    Parts of unknown types are ignored. A list is read as parts if one item has a known type; in a stream, if one item
    is a text or has any type. Any other list is JSON data.
    """
    if type(content) is str:
        return Content(content)
    if not isinstance(content, list) or not _has_parts(content, in_stream=in_stream):
        return Content(json_text(content))
    texts, reasoning, refusals, calls = [], [], [], []
    for part in content:
        kind = _kind_of(part)
        fields: Mapping[str, JSON] = part if isinstance(part, dict) else {}
        if kind in _TEXTS:
            texts.append(part if isinstance(part, str) else json_text(fields.get("text")))
        elif kind in _REASONING:
            reasoning.append(_reasoning_of(part))
        elif kind == "refusal":
            refusals.append(json_text(fields.get("refusal")))
        elif kind in _CALLS:
            calls.append(_call_of(fields, kind))
    return Content("".join(texts), "".join(reasoning), "".join(refusals), tuple(calls))


def _kind_of(part: JSON) -> str | None:
    """Return the type of a part. Parts of Gemini and Bedrock have no ``type``; one of their keys is the type."""
    if isinstance(part, str):
        return "text"
    if not isinstance(part, dict):
        return None
    if "type" in part:
        kind = part["type"]
        return kind if isinstance(kind, str) else None
    if part.get("thought") is True:
        return "thinking"
    return next((key for key in _KEYS_OF_UNTYPED_PARTS if key in part), None)


def _has_parts(content: list[JSON], *, in_stream: bool) -> bool:
    kinds = [_kind_of(part) for part in content]
    if in_stream or not content:
        return any(kinds) or not content
    known = [
        kind in _KNOWN_PARTS
        for kind, part in zip(kinds, content, strict=True)
        if kind in _CALLS or (isinstance(part, dict) and "type" in part)
    ]
    return any(known)


def _call_of(part: Mapping[str, JSON], kind: str) -> Mapping[str, JSON]:
    """Return the tool call in a part of the content as a flat call."""
    body = part
    for key in (kind, "function"):
        if isinstance(inner := part.get(key), dict):
            body = {**part, **inner}
    return {
        "id": next((found for key in ("call_id", "id", "toolUseId") if (found := body.get(key))), None),
        "name": body.get("name"),
        "arguments": next((body[key] for key in ("arguments", "input", "args") if key in body), None),
    }


class _Answer(NamedTuple):
    """The answer in a reply of any family."""

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    refusal: str | None = None
    logprobs: JSON = None


def _reasoning_of(value: JSON) -> str:
    """Return the text of reasoning: a string, a part, or a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_reasoning_of, value))
    if isinstance(value, dict):
        names = ("thinking", "reasoning", "text", "summary", "content")
        return next((text for name in names if (text := _reasoning_of(value.get(name)))), "")
    return ""


def reasoning_text(message: Mapping[str, JSON]) -> str:
    """Return the reasoning of a message or delta, under either of its names."""
    for name in ("reasoning_content", "reasoning"):
        if (value := message.get(name)) and (text := _reasoning_of(value)):
            return text
    return ""


def first_choice(result: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """Return the first item of ``choices``; None if the list is missing or empty."""
    choices = result.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def read_chat(data: JSON, context: ReplyContext, headers: Mapping[str, str] | None = None) -> ChatReply:
    """Read a whole reply.

    Raises:
        APIResponseValidationError: The successful response has no answer.
    """
    headers = headers or {}
    result = unwrap(data)
    if isinstance(result, (str, int, float)) and not isinstance(result, bool):
        result = {"response": result}
    if not isinstance(result, dict):
        raise _no_answer(data, context)
    usage = read_usage(result.get("usage"), headers.get("cf-ai-neurons"))
    choice = first_choice(result)
    raw = _raw_finish(result, choice)
    truncation = truncation_of(raw, usage, context)
    ids = CallIds(context.known_ids)
    if choice is not None:
        reply = _read_choice(choice, result, ids, truncation)
    elif isinstance(result.get("output"), list):
        reply = _read_responses(result, context, ids, truncation)
    elif "response" in result or "tool_calls" in result:
        reply = _read_native(result, context, ids, truncation)
    else:
        raise _no_answer(data, context)
    text, reasoning, calls = reply.text, reply.reasoning, reply.tool_calls
    if context.forced and text and not calls and (calls := recover_leaked_calls(text, context.forced, ids)):
        text = ""
    if not ((truncation and not context.thinking_off) or text or calls or reply.refusal):
        text, reasoning = reasoning, ""  # with thinking off, some models send the answer as reasoning
    broken = any(call.error for call in calls)
    return ChatReply(
        text=text,
        reasoning=reasoning,
        tool_calls=calls,
        finish_reason=finish_reason(raw, truncation, calls=bool(calls), broken=broken),
        usage=usage,
        model=model if isinstance(model := result.get("model"), str) else None,
        id=reply_id if isinstance(reply_id := result.get("id"), str) else None,
        refusal=reply.refusal,
        logprobs=reply.logprobs,
        headers=headers,
        raw=result,
    )


def _raw_finish(result: Mapping[str, JSON], choice: Mapping[str, JSON] | None) -> JSON:
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
    problem = "the reply has no answer"
    if isinstance(result, dict) and "request_id" in result:
        problem = f"the request was queued as {result['request_id']} instead of answered: collect it with Client.batch"
    elif isinstance(result, dict) and result.get("object") == "list":
        problem = "the reply is a list instead of an answer: check that the model is a chat model"
    return APIResponseValidationError(problem, model=context.model, body=shortened(data), status_code=200)


def shortened(data: JSON, limit: int = 2000) -> str:
    """Return the JSON text of a body for an error, truncated to ``limit`` characters."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def _read_choice(choice: Mapping[str, JSON], result: Mapping[str, JSON], ids: CallIds, truncation: str) -> _Answer:
    """Read a choice. Read missing fields from the native fields beside ``choices`` (llama-3.3)."""
    message = choice.get("message")
    if not isinstance(message, dict):
        message = {"content": choice.get("text")}
    text, reasoning, refusal, in_content = read_content(message.get("content"))
    calls: tuple[ToolCall, ...] = ()
    for raw in (message.get("tool_calls"), message.get("function_call"), list(in_content), result.get("tool_calls")):
        if raw and (calls := read_tool_calls(raw, ids, truncation)):
            break
    if isinstance(own := message.get("refusal"), str):
        refusal = own or refusal
    return _Answer(
        text=text if text or refusal else json_text(result.get("response")),
        reasoning=reasoning_text(message) or reasoning or reasoning_text(result),
        tool_calls=calls,
        refusal=refusal or None,
        logprobs=choice.get("logprobs"),
    )


def _read_native(result: Mapping[str, JSON], context: ReplyContext, ids: CallIds, truncation: str) -> _Answer:
    calls = read_tool_calls(result.get("tool_calls"), ids, truncation)
    response = result.get("response")
    text = json_text(response)
    if response is None and context.json_mode and not calls and "response" in result and not truncation:
        text = "null"  # in JSON mode, null is an answer; elsewhere it means no text
    return _Answer(text, reasoning_text(result), calls)


def is_failed_response(result: Mapping[str, JSON]) -> bool:
    """Return whether a result of the Responses route reports a failure and its error."""
    return "output" in result and result.get("status") == "failed" and bool(result.get("error"))


def _read_responses(result: Mapping[str, JSON], context: ReplyContext, ids: CallIds, truncation: str) -> _Answer:
    if result.get("status") not in (None, "completed", "incomplete"):
        error = result.get("error")
        why = error.get("message") if isinstance(error, dict) else error
        raise APIResponseValidationError(
            f"the service returned a response with status {result['status']}: {why or 'no reason was given'}",
            model=context.model,
            body=shortened(result),
            status_code=200,
        )
    texts, reasoning, refusals = [], [], []
    calls: list[ToolCall] = []
    for item in _list(result["output"]):
        if not isinstance(item, dict):
            continue
        if item.get("type") == "reasoning":
            reasoning += [_reasoning_of(part) for part in [*_list(item.get("content")), *_list(item.get("summary"))]]
            continue
        content = read_content(item.get("content") if item.get("type") == "message" else [item, {"type": "text"}])
        texts.append(content.text)
        reasoning += [content.reasoning] if content.reasoning else []
        refusals.append(content.refusal)
        calls += read_tool_calls(list(content.calls), ids, truncation)
    text = "".join(texts) or json_text(result.get("output_text"))
    return _Answer(text, "\n".join(reasoning), tuple(calls), "".join(refusals) or None)


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []
