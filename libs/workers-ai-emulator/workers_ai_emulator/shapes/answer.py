"""The answer of a chat model, before it is written in the form of a route."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from workers_ai_emulator.wire import Json

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(slots=True)
class ToolCall:
    """One call of a tool."""

    id: str
    name: str
    arguments: Json

    @property
    def arguments_text(self) -> str:
        """Return the arguments as JSON text."""
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(slots=True)
class Choice:
    """One completion.

    Attributes:
        text: The visible answer.
        reasoning: The reasoning before the answer; empty for no reasoning.
        tool_calls: Calls, in order.
        finish_reason: Finish reason.
        parsed: The same answer as a JSON value, if JSON was requested.
        is_json: Whether ``parsed`` is set.
        matched_stop: The stop sequence that ended the answer.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: FinishReason = "stop"
    parsed: object = None
    is_json: bool = False
    matched_stop: str | None = None


@dataclass(slots=True)
class Usage:
    """Tokens and neurons of one request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    neurons: float = 0.0

    def as_dict(self) -> Json:
        """Return the ``usage`` object of a chat reply."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "neurons": self.neurons,
        }


@dataclass(slots=True)
class Answer:
    """All completions of one request.

    Attributes:
        id: Id of the reply.
        created: Seconds since the epoch.
        model: Id of the model that answered.
        choices: The completions.
        usage: Tokens and neurons of the request.
        logprobs: Number of alternatives per token; None if log probabilities were not requested.
    """

    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    logprobs: int | None = None
