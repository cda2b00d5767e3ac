"""Translate replies and stream deltas of the core to LlamaIndex responses. Pure functions, for sync and async."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    LogProb,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms.llm import ToolSelection
from pydantic_core import from_json

from workers_ai.errors import APIResponseValidationError
from workers_ai.integration import argument_error, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from llama_index.core.base.llms.types import ContentBlock

    from workers_ai.types import JSON, ChatDelta, ChatReply, Usage

__all__ = [
    "StreamedResponse",
    "is_complete",
    "is_truncated_json",
    "partial_object",
    "to_chat_response",
    "to_tool_selections",
]


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: str


def to_chat_response(reply: ChatReply, names: Mapping[str, str], model: str) -> ChatResponse:
    """Return the response for a complete reply.

    Args:
        reply: The reply.
        names: Original names of renamed tools, by the name that was sent.
        model: The requested model. Used if the reply does not include a model.
    """
    calls = [_Call(call.id, names.get(call.name, call.name), call.arguments) for call in reply.tool_calls]
    return ChatResponse(
        message=_message(reply.text, reply.reasoning, calls, complete=True, usage=reply.usage, refusal=reply.refusal),
        delta="",
        raw=_raw(reply, model, reply.raw),
        logprobs=_logprobs(reply.logprobs),
        additional_kwargs=_closing_kwargs(reply),
    )


class StreamedResponse:
    """Accumulate the deltas of a stream. Each response contains the answer so far, and the new text in ``delta``.

    Args:
        names: Original names of renamed tools, by the name that was sent.
        model: The requested model. Used if the reply does not include a model.
    """

    def __init__(self, names: Mapping[str, str], model: str) -> None:
        self._names = names
        self._model = model
        self._text = ""
        self._reasoning = ""
        self._refusal = ""
        self._calls: dict[int, _Call] = {}

    def add(self, delta: ChatDelta) -> ChatResponse:
        """Return the response that includes ``delta``."""
        self._text += delta.text
        self._reasoning += delta.reasoning
        self._refusal += delta.refusal
        for piece in delta.tool_calls:
            if piece.index in self._calls:
                self._calls[piece.index].arguments += piece.arguments
            else:
                name = piece.name or ""
                self._calls[piece.index] = _Call(piece.id or "", self._names.get(name, name), piece.arguments)
        calls = [self._calls[index] for index in sorted(self._calls)]
        kwargs = _closing_kwargs(delta) if delta.last else {}
        if delta.reasoning:
            kwargs["thinking_delta"] = delta.reasoning
        return ChatResponse(
            message=_message(
                self._text, self._reasoning, calls, complete=delta.last, usage=delta.usage, refusal=self._refusal
            ),
            delta=delta.text,
            raw=_raw(delta, self._model) if delta.last else None,
            logprobs=_logprobs(delta.logprobs),
            additional_kwargs=kwargs,
        )


def _message(
    text: str, reasoning: str, calls: list[_Call], *, complete: bool, usage: Usage | None, refusal: str | None
) -> ChatMessage:
    # The text comes first, also if it is empty: without a TextBlock ``content`` is None, and LlamaIndex's
    # DocumentContextExtractor reads ``blocks[0]`` only.
    blocks: list[ContentBlock] = [TextBlock(text=text)]
    if reasoning:
        blocks.append(ThinkingBlock(content=reasoning, num_tokens=usage.reasoning_tokens if usage else None))
    kwargs: dict[str, Any] = {"refusal": refusal} if refusal else {}
    if calls:
        blocks += [
            ToolCallBlock(
                tool_call_id=call.id,
                tool_name=call.name,
                tool_kwargs=_parse_arguments(call.arguments) if complete else call.arguments,
            )
            for call in calls
        ]
        # LlamaIndex checks this key in every response before it reads the ToolCallBlocks.
        kwargs["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=kwargs)


def _parse_arguments(text: str) -> dict[str, JSON] | str:
    """Return the arguments as a dict; the text if it is not a JSON object."""
    try:
        value = parse_json(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def _raw(reply: ChatReply | ChatDelta, model: str, body: JSON = None) -> dict[str, JSON]:
    """Return the body of the response, with usage under the names that LlamaIndex's token counter reads."""
    raw: dict[str, JSON] = dict(body) if isinstance(body, dict) else {}
    raw |= {
        "id": reply.id,
        "model": reply.model or model,
        "finish_reason": reply.finish_reason,
        "headers": dict(reply.headers),
    }
    raw.pop("usage", None)
    if reply.usage is not None:
        raw["usage"] = _usage(reply.usage)
    return raw


def _usage(usage: Usage) -> dict[str, JSON]:
    counts: dict[str, JSON] = {**_tokens(usage)}
    if usage.cached_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    if usage.neurons is not None:
        counts["neurons"] = usage.neurons
    return counts


def _tokens(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


def _closing_kwargs(reply: ChatReply | ChatDelta) -> dict[str, str | int | None]:
    return {"finish_reason": reply.finish_reason, **(_tokens(reply.usage) if reply.usage else {})}


def _logprobs(logprobs: JSON) -> list[list[LogProb]] | None:
    """Return the log probabilities per position: the chosen token first, then the alternatives."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return None
    try:
        return [[_logprob(entry), *(_logprob(other) for other in entry.get("top_logprobs") or ())] for entry in content]
    except (AttributeError, KeyError, TypeError, ValueError):  # unknown form: return the answer without them
        return None


def _logprob(entry: Mapping[str, JSON]) -> LogProb:
    return LogProb(token=entry.get("token") or "", logprob=entry["logprob"], bytes=entry.get("bytes") or [])


def is_complete(response: ChatResponse) -> bool:
    """Return whether ``response`` is complete: a response without streaming, or the last of a stream."""
    return "finish_reason" in response.additional_kwargs


def to_tool_selections(response: ChatResponse) -> Iterable[ToolSelection]:
    """Yield the tool calls of a response. Calls of an incomplete response have the arguments received so far.

    Raises:
        APIResponseValidationError: The response is complete, and the arguments of a call are not a JSON object.
    """
    for block in response.message.blocks:
        if isinstance(block, ToolCallBlock):
            arguments = block.tool_kwargs
            if isinstance(arguments, str):
                if is_complete(response):
                    raise _malformed(block.tool_name, arguments, response)
                arguments = partial_object(arguments)
            yield ToolSelection(tool_id=block.tool_call_id or "", tool_name=block.tool_name, tool_kwargs=arguments)


def partial_object(text: str) -> dict[str, JSON]:
    """Return the readable fields of an incomplete JSON object; {} before the first field."""
    try:
        value = from_json(text, allow_partial="trailing-strings", allow_inf_nan=False)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def is_truncated_json(text: str) -> bool:
    """Return whether ``text`` is the beginning of a JSON value, as after reaching ``max_tokens``."""
    try:
        from_json(text)
    except ValueError as exc:
        return bool(text.strip()) and "EOF while parsing" in str(exc)
    return False


def _malformed(name: str, arguments: str, response: ChatResponse) -> APIResponseValidationError:
    reason = response.additional_kwargs["finish_reason"]
    truncation = ""
    if not arguments.strip() or is_truncated_json(arguments):
        truncation = "length" if reason in ("stop", "tool_calls") else reason
    return APIResponseValidationError(
        f"the arguments of a call of {name} are not a JSON object: {arguments[:200]!r}: "
        f"{argument_error(arguments, truncation)}",
        model=(response.raw or {}).get("model"),
        body=arguments,
        status_code=200,
    )
