"""Convert the replies of each class to the neutral value of the table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from shapes import Call, Want

from workers_ai.errors import WorkersAIError
from workers_ai.types import ChatDelta, ChatReply, Usage

__all__ = ["disagreements", "of_deltas", "of_error", "of_message", "of_reply"]


def _args(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


def _usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    return {
        "usage": (usage.input_tokens, usage.output_tokens, usage.total_tokens),
        "cached": usage.cached_tokens,
        "neurons": usage.neurons,
    }


def of_reply(reply: ChatReply) -> Want:
    """Convert a complete reply of the core."""
    return Want(
        text=reply.text,
        reasoning=reply.reasoning,
        calls=tuple(Call(call.name, _args(call.arguments), call.id) for call in reply.tool_calls),
        finish=reply.finish_reason,
        refusal=reply.refusal,
        **_usage(reply.usage),
    )


def of_deltas(deltas: list[ChatDelta]) -> Want:
    """Combine the pieces of the core as their documentation describes."""
    calls: dict[int, dict[str, str]] = {}
    for piece in [piece for delta in deltas for piece in delta.tool_calls]:
        assert (piece.index in calls) == (piece.id is None) == (piece.name is None), "id and name come once, and first"
        call = calls.setdefault(piece.index, {"id": piece.id or "", "name": piece.name or "", "args": ""})
        call["args"] += piece.arguments
    last = deltas[-1]
    assert [delta.last for delta in deltas].count(True) == 1
    assert last.last
    assert last.finish_reason is not None
    return Want(
        text="".join(delta.text for delta in deltas),
        reasoning="".join(delta.reasoning for delta in deltas),
        calls=tuple(Call(call["name"], _args(call["args"]), call["id"]) for _, call in sorted(calls.items())),
        finish=last.finish_reason,
        refusal="".join(delta.refusal for delta in deltas) or None,
        **_usage(last.usage),
    )


def of_error(error: Exception) -> Want:
    """Convert an error; an error of another package to the name of its class."""
    if isinstance(error, WorkersAIError):
        return Want(error=type(error).__name__, code=error.code, partial=error.partial)
    return Want(error=type(error).__name__)


def of_message(message: Any) -> Want:
    """Convert a LangChain message, complete or the sum of its chunks."""
    calls = [Call(call["name"], call["args"], call["id"]) for call in message.tool_calls]
    calls += [Call(call["name"], _args(call["args"]), call["id"]) for call in message.invalid_tool_calls]
    usage = message.usage_metadata or {}
    details = usage.get("input_token_details") or {}
    blocks = message.content_blocks
    reasoning = "".join(block.get("reasoning", "") for block in blocks if block["type"] == "reasoning")
    if not reasoning and isinstance(message.content, list):  # the form of some packages
        parts = [part for part in message.content if isinstance(part, dict) and part.get("type") == "thinking"]
        reasoning = "".join(part["thinking"] for part in parts)
    return Want(
        text=message.text,
        reasoning=reasoning or message.additional_kwargs.get("reasoning_content") or "",
        calls=tuple(calls),
        finish=message.response_metadata.get("finish_reason") or "absent",
        usage=(usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) if usage else None,
        cached=details.get("cache_read"),
        neurons=message.response_metadata.get("neurons"),
        refusal=message.additional_kwargs.get("refusal"),
    )


def disagreements(want: Want, got: Want, fields: Iterable[str] = Want.__dataclass_fields__) -> list[str]:
    """Return the differences of ``got``. Ids must be unique, and are compared only if the row has one."""
    found = []
    for name in fields:
        left, right = getattr(want, name), getattr(got, name)
        if name == "calls":
            ids = [call.id for call in right]
            if len(set(ids)) < len(ids) or not all(ids):
                found.append(f"ids {ids}")
            right = (
                tuple(
                    Call(call.name, call.args, call.id if one.id else None)
                    for call, one in zip(right, left, strict=False)
                )
                + right[len(left) :]
            )
        if left != right:
            found.append(f"{name}: {right!r} instead of {left!r}")
    return found
