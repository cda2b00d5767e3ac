"""Translate the core's replies to LangChain messages. Pure; each delta of a stream becomes exactly one chunk."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, cast

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.json import parse_partial_json

from workers_ai.integration import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_core.messages import InvalidToolCall
    from langchain_core.messages import ToolCall as LangChainToolCall
    from langchain_core.messages.ai import UsageMetadata

    from langchain_workers_ai._translation.chunks import AIMessageChunk as ChunkWithCalls
    from langchain_workers_ai._types import Data, Fields
    from workers_ai.types import ChatDelta, ChatReply, ToolCall, Usage

__all__ = ["AFTER_BLOCKS", "PROVIDER", "add_outputs", "delta_translator", "to_result", "with_llm_output"]

PROVIDER: Final = "workers-ai"
"""``model_provider`` of messages and ``ls_provider`` of traces. LangChain tools compare the two."""

AFTER_BLOCKS: Final = 1000
"""Index of the first streamed call with ``output_version="v1"``. LangChain numbers text and reasoning from 0 and merges
content blocks of the same index even if their types differ, so calls need other indices."""

_ENDS: Final = ("]", "}", '"]', '"}', '""]', '""}')
"""Suffixes that can make arguments unparsable: outside a string, inside a string, and after a backslash."""

_REFUSAL_INDEX: Final = AFTER_BLOCKS - 1

_TEXT_ALONE: Final[tuple[object, ...]] = ("", (), None, "", False, None, None, None, None, {})
"""The other fields of a delta with only text. Written out, because importing ``ChatDelta`` would load its module."""


def to_result(reply: ChatReply, model: str) -> ChatResult:
    """Return a complete answer as a LangChain result.

    Args:
        reply: The answer.
        model: The model of the call.
    """
    tool_calls, invalid_tool_calls = _calls(reply.tool_calls)
    content = _with_refusal(reply.text, {"refusal": reply.refusal}) if reply.refusal else reply.text
    message = AIMessage(
        content=content,
        additional_kwargs={"reasoning_content": reply.reasoning} if reply.reasoning else {},
        tool_calls=tool_calls,
        invalid_tool_calls=invalid_tool_calls,
        usage_metadata=_usage(reply.usage),
        response_metadata=_metadata(reply, model),
    )
    info: Fields = {"finish_reason": reply.finish_reason}
    if logprobs := _mergeable(reply.logprobs):
        info["logprobs"] = logprobs
    output: Fields = {"model_name": model}
    if (usage := reply.usage) is not None:
        output["token_usage"] = _token_usage(usage)
    return ChatResult(generations=[ChatGeneration(message=message, generation_info=info)], llm_output=output)


def delta_translator(
    model: str, first_call: int = 0, *, tools: bool = True
) -> Callable[[ChatDelta], ChatGenerationChunk]:
    """Return the function that translates the deltas of one streamed answer, each to one chunk.

    Args:
        model: The model of the call.
        first_call: Index of the first tool call; see :data:`AFTER_BLOCKS`.
        tools: Whether the answer may contain calls. It selects the class of all chunks of the answer.
    """
    chunk_class = _chunk_with_calls() if tools else AIMessageChunk

    def translate(delta: ChatDelta) -> ChatGenerationChunk:
        if delta[1:] == _TEXT_ALONE:  # most deltas
            return ChatGenerationChunk(message=chunk_class(content=delta[0]))
        return _to_chunk(delta, model, first_call, tools=tools)

    return translate


def _to_chunk(delta: ChatDelta, model: str, first_call: int, *, tools: bool) -> ChatGenerationChunk:
    """Return one delta of a streamed answer as a LangChain chunk."""
    chunk_class = _chunk_with_calls() if tools else AIMessageChunk
    text, reasoning, calls, logprobs, refusal, last, *_ = delta
    if logprobs:
        logprobs = _mergeable(logprobs)
    content = _with_refusal(text, {"refusal": refusal, "index": _REFUSAL_INDEX}) if refusal else text
    if not (reasoning or calls or last):
        message = chunk_class(content=content)
        return ChatGenerationChunk(message=message, generation_info={"logprobs": logprobs} if logprobs else None)
    extra: Fields = {}
    if last:
        extra = {
            "chunk_position": "last",
            "usage_metadata": _usage(delta.usage),
            "response_metadata": _metadata(delta, model),
        }
    message = chunk_class(
        content=content,
        additional_kwargs={"reasoning_content": reasoning} if reasoning else {},
        tool_call_chunks=[
            {
                "type": "tool_call_chunk",
                "name": call.name,
                "args": call.arguments + _unparsable_suffix(call.broken) if call.error else call.arguments,
                "id": call.id,
                "index": first_call + call.index,
            }
            for call in calls
        ],
        **extra,
    )
    if tools:
        cast("ChunkWithCalls", message).mark_broken(
            {first_call + call.index: _invalid(call.broken, call.error) for call in calls if call.error}
        )
    info: Fields = {"finish_reason": delta.finish_reason} if last else {}
    if logprobs:
        info["logprobs"] = logprobs
    return ChatGenerationChunk(message=message, generation_info=info or None)


def _mergeable(logprobs: Data) -> dict[str, list[Data]] | None:
    """Return the lists of log probabilities. LangChain cannot merge other values of different types."""
    if not isinstance(logprobs, dict):
        return None
    lists = {name: value for name, value in logprobs.items() if isinstance(value, list)}
    return {
        name: [item for item in items if not (isinstance(item, dict) and "index" in item)]
        for name, items in lists.items()
    }


@cache
def _chunk_with_calls() -> type[ChunkWithCalls]:
    """Return the class of chunks with calls. It is created on first use, which takes about 10 ms."""
    from langchain_workers_ai._translation.chunks import AIMessageChunk

    return AIMessageChunk


def _invalid(arguments: str, error: str) -> InvalidToolCall:
    return {"type": "invalid_tool_call", "name": None, "args": arguments, "id": None, "error": error}


def _unparsable_suffix(arguments: str) -> str:
    """Return a suffix that makes invalid arguments unparsable.

    LangChain repairs the arguments of a streamed call, so that an agent would run the tool with truncated arguments.
    With this suffix, LangChain puts the call into ``invalid_tool_calls``, also in code that adds chunks without
    :meth:`AIMessageChunk.mark_broken`.
    """
    return next((end for end in _ENDS if _is_unparsable(arguments + end)), "")


def _is_unparsable(arguments: str) -> bool:
    try:
        return parse_partial_json(arguments) is None
    except (ValueError, RecursionError):  # a number is too long, or the nesting too deep
        return True


def _with_refusal(text: str, refusal: Fields) -> str | list[str | Fields]:
    """Return content with a standard refusal block. LangChain's structured-output parsers raise an error for it."""
    block = {"type": "refusal", **refusal}
    return [{"type": "text", "text": text}, block] if text else [block]


def _calls(calls: tuple[ToolCall, ...]) -> tuple[list[LangChainToolCall], list[InvalidToolCall]]:
    """Return the valid calls and the invalid calls."""
    good: list[LangChainToolCall] = []
    bad: list[InvalidToolCall] = []
    for call in calls:
        if call.error:
            bad.append({**_invalid(call.arguments, call.error), "name": call.name, "id": call.id})
        else:
            args = cast("Fields", parse_json(call.arguments))
            good.append({"type": "tool_call", "name": call.name, "args": args, "id": call.id})
    return good, bad


def _usage(usage: Usage | None) -> UsageMetadata | None:
    """Return LangChain's ``UsageMetadata``, with the details that the service reported."""
    if usage is None or not usage.total_tokens:  # the service reported neurons only, or nothing
        return None
    out: UsageMetadata = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
    if usage.cached_tokens is not None:
        out["input_token_details"] = {"cache_read": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        out["output_token_details"] = {"reasoning": usage.reasoning_tokens}
    return out


def _token_usage(usage: Usage) -> dict[str, int]:
    """Return usage in the older form that callback handlers read from ``llm_output``."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


def _metadata(reply: ChatReply | ChatDelta, model: str) -> Fields:
    """Return the ``response_metadata`` of a reply or of the last delta."""
    out: Fields = {"model_name": model, "model_provider": PROVIDER}
    served = reply.headers.get("cf-aig-routed-model") or reply.model
    if served and served != model:
        out["served_model"] = served
    if reply.id:
        out["id"] = reply.id
    if reply.headers:
        out["headers"] = dict(reply.headers)
    if reply.usage is not None:
        if (neurons := reply.usage.neurons) is not None:
            out["neurons"] = neurons
        if (cost := _cost_usd(reply.usage, model, served)) is not None:
            out["cost_usd"] = cost
    return out


def _cost_usd(usage: Usage, model: str, served: str | None) -> float | None:
    """Return the cost of the neurons; without neurons, the list price of the tokens."""
    from workers_ai.catalogue import USD_PER_NEURON, lookup

    if usage.neurons is not None:
        return usage.neurons * USD_PER_NEURON
    tokens = (usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0)
    cost = lookup(model).cost_usd(*tokens)
    return lookup(served).cost_usd(*tokens) if cost is None and served else cost


def with_llm_output(result: ChatResult) -> ChatResult:
    """Return the result with ``llm_output``, which LangChain omits for streamed answers. Skip cached answers."""
    message = result.generations[0].message if result.generations else None
    if result.llm_output is not None or not isinstance(message, AIMessage):
        return result
    usage: Mapping[str, Data] = message.usage_metadata or {}
    if "total_cost" in usage:  # LangChain marks answers from its cache
        return result
    output: Fields = {"model_name": message.response_metadata.get("model_name")}
    if usage:
        output["token_usage"] = {
            "prompt_tokens": usage["input_tokens"],
            "completion_tokens": usage["output_tokens"],
            "total_tokens": usage["total_tokens"],
        }
    return result.model_copy(update={"llm_output": output})


def add_outputs(total: Mapping[str, Data], more: Mapping[str, Data]) -> Fields:
    """Return the sum of two ``llm_output`` records: numbers are added at any depth, other values are replaced."""
    out = dict(total)
    for key, value in more.items():
        old = out.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            out[key] = add_outputs(old, value)
        elif isinstance(value, (int, float)) and isinstance(old, (int, float)):
            out[key] = old + value
        elif value is not None:
            out[key] = value
    return out
