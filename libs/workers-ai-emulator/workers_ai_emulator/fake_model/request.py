"""Parse a chat request of any route and schema into one form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.wire import Json


@dataclass(slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    description: str
    parameters: Json


@dataclass(slots=True)
class Turn:
    """One message, with its content as text."""

    role: str
    text: str
    images: int = 0
    tool_calls: list[Json] = field(default_factory=list)
    tool_call_id: str = ""


@dataclass(slots=True)
class ChatRequest:
    """A chat request of any route and schema.

    Attributes:
        turns: The conversation. A ``prompt`` becomes one user turn.
        is_prompt: Whether the request has a ``prompt`` instead of ``messages``.
        tools: The available functions.
        tool_choice: ``none``, ``auto``, ``required`` or the name of a function.
        wants_json: Whether the answer must be JSON.
        schema: The JSON schema of the answer; None for any JSON.
        max_tokens: Limit of output tokens, reasoning included; None for no limit.
        stop: Sequences that end the answer.
        n: Number of completions.
        logprobs: Alternatives per token; None for no log probabilities.
        thinking: Whether the model reasons first.
        effort: Reasoning effort, as the request has it.
        parallel: Whether several tools may be called in one reply.
        stream: Whether the reply is streamed.
    """

    turns: list[Turn]
    is_prompt: bool = False
    tools: list[Tool] = field(default_factory=list)
    tool_choice: str = "auto"
    wants_json: bool = False
    schema: Json | None = None
    max_tokens: int | None = None
    stop: list[str] = field(default_factory=list)
    n: int = 1
    logprobs: int | None = None
    thinking: bool = False
    effort: str = ""
    parallel: bool = True
    stream: bool = False

    @property
    def last_user(self) -> int:
        """Return the index of the last user turn; -1 if there is none."""
        return max((index for index, turn in enumerate(self.turns) if turn.role == "user"), default=-1)

    @property
    def prompt_text(self) -> str:
        """Return all input of the model as one text, for counting tokens."""
        parts = [turn.text for turn in self.turns]
        parts += [str(call) for turn in self.turns for call in turn.tool_calls]
        parts += [f"{tool.name} {tool.description} {tool.parameters}" for tool in self.tools]
        return "\n".join(parts)


def read_chat(model: Model, body: Json) -> ChatRequest:
    """Parse a checked chat body."""
    is_prompt = body.get("messages") is None
    turns = (
        [Turn("user", str(body.get("prompt", "")))] if is_prompt else [_turn(message) for message in body["messages"]]
    )
    wants_json, schema = _format(body)
    stop = body.get("stop") or []
    return ChatRequest(
        turns=turns,
        is_prompt=is_prompt,
        tools=[_tool(tool) for tool in body.get("tools") or []],
        tool_choice=_choice(body.get("tool_choice")),
        wants_json=wants_json,
        schema=schema,
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens") or model.default_max_tokens,
        stop=[stop] if isinstance(stop, str) else list(stop),
        n=body.get("n") or 1,
        logprobs=int(body.get("top_logprobs") or 0) if body.get("logprobs") else None,
        thinking=_thinks(model, body),
        effort=str(body.get("reasoning_effort") or ""),
        parallel=body.get("parallel_tool_calls") is not False,
        stream=body.get("stream") is True,
    )


def _turn(message: Json) -> Turn:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    text = "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
    images = sum(part.get("type") == "image_url" for part in parts)
    calls = message.get("tool_calls") or []
    return Turn(str(message.get("role")), text, images, list(calls), str(message.get("tool_call_id") or ""))


def _tool(tool: Json) -> Tool:
    function = tool.get("function") or tool
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return Tool(str(function.get("name")), str(function.get("description") or ""), parameters)


def _choice(choice: object) -> str:
    if isinstance(choice, dict):
        return str((choice.get("function") or choice).get("name", "required"))
    return str(choice or "auto")


def _format(body: Json) -> tuple[bool, Json | None]:
    """Return whether JSON is requested, and the schema: bare, in OpenAI's envelope, or ``guided_json``."""
    if isinstance(body.get("guided_json"), dict):
        return True, body["guided_json"] or None
    response_format = body.get("response_format") or {}
    if response_format.get("type") == "json_object":
        return True, None
    if response_format.get("type") != "json_schema":
        return False, None
    schema = response_format.get("json_schema") or {}
    return True, schema["schema"] if isinstance(schema.get("schema"), dict) else schema


def _thinks(model: Model, body: Json) -> bool:
    """Return whether the model reasons first: True unless ``chat_template_kwargs`` or the effort disable it."""
    kwargs = body.get("chat_template_kwargs") or {}
    effort = model.reasoning_effort or {}
    by_effort = model.thinking_switch == "effort" or "none" in effort.get("supported", [])
    by_template = model.thinking_switch == "template" and not effort.get("mandatory")
    off = (by_effort and body.get("reasoning_effort") == "none") or (
        by_template and kwargs.get("enable_thinking") is False
    )
    return model.reasoning and not off
