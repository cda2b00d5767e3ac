"""From the core's replies and pieces to LlamaIndex's responses. Pure, and the same for sync and async."""

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

    from workers_ai.types import JSON, ChatDelta, ChatReply, Usage

__all__ = ["StreamedResponse", "breaks_off", "is_whole", "partial_object", "to_chat_response", "to_tool_selections"]


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: str


def to_chat_response(reply: ChatReply, names: Mapping[str, str], model: str) -> ChatResponse:
    """The response of a whole reply.

    Args:
        reply: The reply.
        names: A tool's own name by the name it was sent under, where the two differ.
        model: The model that was asked, for where the reply names none.
    """
    calls = [_Call(call.id, names.get(call.name, call.name), call.arguments) for call in reply.tool_calls]
    return ChatResponse(
        message=_message(reply.text, reply.reasoning, calls, whole=True, usage=reply.usage, refusal=reply.refusal),
        delta="",
        raw=_raw(reply, model, reply.raw),
        logprobs=_logprobs(reply.logprobs),
        additional_kwargs=_closing_kwargs(reply),
    )


class StreamedResponse:
    """Adds the pieces of a stream up: each response carries all that has come, and the new text as its delta.

    Args:
        names: A tool's own name by the name it was sent under, where the two differ.
        model: The model that was asked, for where the reply names none.
    """

    def __init__(self, names: Mapping[str, str], model: str) -> None:
        self._names = names
        self._model = model
        self._text = ""
        self._reasoning = ""
        self._refusal = ""
        self._calls: dict[int, _Call] = {}

    def add(self, delta: ChatDelta) -> ChatResponse:
        """The response up to and with ``delta``."""
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
                self._text, self._reasoning, calls, whole=delta.last, usage=delta.usage, refusal=self._refusal
            ),
            delta=delta.text,
            raw=_raw(delta, self._model) if delta.last else None,
            logprobs=_logprobs(delta.logprobs),
            additional_kwargs=kwargs,
        )


def _message(
    text: str, reasoning: str, calls: list[_Call], *, whole: bool, usage: Usage | None, refusal: str | None
) -> ChatMessage:
    blocks: list[Any] = []
    if reasoning:
        blocks.append(ThinkingBlock(content=reasoning, num_tokens=usage.reasoning_tokens if usage else None))
    blocks.append(TextBlock(text=text))  # empty beside calls, too: else ``content`` is None
    kwargs: dict[str, Any] = {"refusal": refusal} if refusal else {}
    if calls:
        blocks += [
            ToolCallBlock(
                tool_call_id=call.id,
                tool_name=call.name,
                tool_kwargs=_whole_arguments(call.arguments) if whole else call.arguments,
            )
            for call in calls
        ]
        # LlamaIndex looks for this key, as a list and in every piece, before it asks for the calls themselves.
        kwargs["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=kwargs)


def _whole_arguments(text: str) -> dict[str, Any] | str:
    """The arguments as a dict, or the text itself where it is not a JSON object."""
    try:
        value = parse_json(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def _raw(reply: ChatReply | ChatDelta, model: str, body: JSON = None) -> dict[str, Any]:
    """What the service sent, with usage under the names that LlamaIndex's token counter reads."""
    raw = dict(body) if isinstance(body, dict) else {}
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


def _usage(usage: Usage) -> dict[str, Any]:
    counts: dict[str, Any] = _tokens(usage)
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


def _closing_kwargs(reply: ChatReply | ChatDelta) -> dict[str, Any]:
    return {"finish_reason": reply.finish_reason, **(_tokens(reply.usage) if reply.usage else {})}


def _logprobs(logprobs: JSON) -> list[list[LogProb]] | None:
    """Log probabilities per position: the token that was taken first, then the ones it was chosen from."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return None
    try:
        return [[_logprob(place), *(_logprob(other) for other in place.get("top_logprobs") or ())] for place in content]
    except (AttributeError, KeyError, TypeError, ValueError):  # of no form that is known; the answer is worth more
        return None


def _logprob(place: Mapping[str, JSON]) -> LogProb:
    return LogProb(token=place.get("token") or "", logprob=place["logprob"], bytes=place.get("bytes") or [])


def is_whole(response: ChatResponse) -> bool:
    """Whether ``response`` is complete: a whole reply, or the last of a stream."""
    return "finish_reason" in response.additional_kwargs


def to_tool_selections(response: ChatResponse) -> Iterable[ToolSelection]:
    """The calls of a response that has all or part of them.

    Raises:
        APIResponseValidationError: The arguments of a whole response are not a JSON object.
    """
    for block in response.message.blocks:
        if isinstance(block, ToolCallBlock):
            arguments = block.tool_kwargs
            if isinstance(arguments, str):
                if is_whole(response):
                    raise _malformed(block.tool_name, arguments, response)
                arguments = partial_object(arguments)
            yield ToolSelection(tool_id=block.tool_call_id or "", tool_name=block.tool_name, tool_kwargs=arguments)


def partial_object(text: str) -> dict[str, Any]:
    """The part of a JSON object that has come; an empty one where there is nothing to read yet."""
    try:
        value = from_json(text, allow_partial="trailing-strings", allow_inf_nan=False)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def breaks_off(text: str) -> bool:
    """Whether ``text`` is JSON that ends in the middle, as it does where the bound of tokens was met."""
    try:
        from_json(text)
    except ValueError as exc:
        return bool(text.strip()) and "EOF while parsing" in str(exc)
    return False


def _malformed(name: str, arguments: str, response: ChatResponse) -> APIResponseValidationError:
    reason = response.additional_kwargs["finish_reason"]
    cut = ""
    if not arguments.strip() or breaks_off(arguments):
        cut = "length" if reason in ("stop", "tool_calls") else reason
    return APIResponseValidationError(
        f"the model called {name} with arguments that are not a JSON object: {arguments[:200]!r}: "
        f"{argument_error(arguments, cut)}",
        model=(response.raw or {}).get("model"),
        body=arguments,
        status_code=200,
    )
