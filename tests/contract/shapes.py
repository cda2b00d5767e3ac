"""Rows of the conformance table, and their encoding as bytes.

A row is a named form of a request or reply and its neutral value, the same for every class. Sources are the rules
of workers-ai-provider (https://github.com/cloudflare/ai/tree/main/packages/workers-ai-provider, cited as "rule n" in
the order in which its own tests state them) and public reports, cited by repository and number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

__all__ = [
    "ABSENT",
    "HI",
    "TOOLS",
    "Call",
    "Refused",
    "Sent",
    "Shape",
    "Want",
    "at",
    "envelope",
    "nested",
    "openai",
    "sse",
    "tool",
]

HI: Final = ({"role": "user", "content": "hi"},)
NATIVE: Final = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
OPENAI: Final = "@cf/zai-org/glm-5.2"


def tool(name: str, **properties: str) -> dict[str, Any]:
    """Return a tool with required string properties."""
    schema = {key: {"type": "string", "description": text} for key, text in properties.items()}
    parameters = {"type": "object", "properties": schema, "required": list(schema)}
    return {"type": "function", "function": {"name": name, "description": f"The {name}.", "parameters": parameters}}


CLOCK: Final = tool("clock", city="Where")
TOOLS: Final = (CLOCK, tool("search", query="What"))


@dataclass(frozen=True)
class Call:
    """A tool call. ``id`` None stands for any non-empty id."""

    name: str
    args: Any
    id: str | None = None


@dataclass(frozen=True)
class Want:
    """The neutral value of a reply.

    Attributes:
        usage: Input, output and total tokens; None for no usage.
        error: Name of the class of ``workers_ai.errors`` in place of an answer.
        partial: Text received before the error.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = "stop"
    usage: tuple[int, int, int] | None = None
    cached: int | None = None
    neurons: float | None = None
    refusal: str | None = None
    error: str | None = None
    code: int | None = None
    partial: str = ""


@dataclass(frozen=True)
class Shape:
    """A reply.

    Attributes:
        name: Unique name.
        source: Rule or report.
        want: The expected value.
        result: The payload of a whole reply: in the envelope on ``run``, bare on chat completions.
        body: The exact body, in place of ``result``.
        events: Data of the events of a streamed reply: JSON, or bytes as they are.
        stream: The exact bytes of a streamed reply, in place of ``events``.
        done: Whether the end mark follows the events.
        params: Parameters of the call.
        model: The requested model.
        headers: Headers of the reply.
        requests: Number of requests, if the call is retried.
    """

    name: str
    source: str
    want: Want
    result: Any = None
    body: Any = None
    events: Sequence[Any] | None = None
    stream: bytes | None = None
    done: bool = True
    params: Mapping[str, Any] = field(default_factory=dict)
    model: str = NATIVE
    headers: Mapping[str, str] = field(default_factory=dict)
    requests: int = 1

    @property
    def streamed(self) -> bool:
        """Return whether this is the form of a stream."""
        return self.events is not None or self.stream is not None

    def whole_body(self, route: str) -> bytes:
        """Return the body of a complete reply on ``route``."""
        body = self.body if self.body is not None else self.result
        if self.body is None and route == "run":
            body = envelope(self.result)
        return body if isinstance(body, bytes) else json.dumps(body).encode()

    def stream_bytes(self) -> bytes:
        """Return the body of a streamed reply."""
        return self.stream if self.stream is not None else sse(self.events or (), done=self.done)


@dataclass(frozen=True)
class Sent:
    """The request of a call.

    Attributes:
        has: Values of the body by path (``"messages.0.content"``), on both routes.
        run: The same on the native route only.
        chat: The same on chat completions only.
        lacks: Paths that are not in the body.
        error: Name of the error raised in place of a request.
        says: A part of its text.
        api: The routes it concerns.
        path: End of the URL's path by route.
        sends_headers: Headers of the request.
    """

    name: str
    source: str
    messages: Sequence[Mapping[str, Any]] = HI
    params: Mapping[str, Any] = field(default_factory=dict)
    model: str = NATIVE
    has: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    chat: Mapping[str, Any] = field(default_factory=dict)
    lacks: Sequence[str] = ()
    error: str | None = None
    says: str = ""
    api: Sequence[str] = ("run", "chat_completions")
    path: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    sends_headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """An error response: its class, its text, and the number of requests of a client with two retries."""

    name: str
    source: str
    status: int
    body: Any
    error: str
    requests: int
    says: str
    headers: Mapping[str, str] = field(default_factory=dict)


ABSENT: Final = object()
"""Stands for the value of a path that is not there."""


def at(body: Any, path: str) -> Any:
    """Return the value at a path of keys and indices."""
    for step in path.split(".") if path else []:
        if isinstance(body, list):
            body = body[int(step)] if step.isdigit() and int(step) < len(body) else ABSENT
        else:
            body = body.get(step, ABSENT) if isinstance(body, Mapping) else ABSENT
    return body


def envelope(result: Any) -> dict[str, Any]:
    """Return Cloudflare's envelope of a success."""
    return {"result": result, "success": True, "errors": [], "messages": []}


def nested(name: Any, arguments: Any, id: Any = None, **more: Any) -> dict[str, Any]:
    """Return a nested tool call or a piece of a call, without the fields that are None."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**({"id": id, "type": "function"} if id is not None else {}), "function": function, **more}


def openai(content: Any = "", finish: Any = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    """Return a complete chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    reply = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return {**reply, "usage": usage} if usage else reply


def chunk(finish: Any = None, usage: Any = None, **delta: Any) -> dict[str, Any]:
    """Return one event of a streamed chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return {**event, "usage": usage} if usage else event


def sse(events: Sequence[Any], *, done: bool = True) -> bytes:
    """Return events as bytes."""
    lines = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return b"".join(b"data: " + line + b"\n\n" for line in [*lines, *([b"[DONE]"] if done else [])])


def forced(*names: str) -> dict[str, Any]:
    """Return parameters that force one of the tools with these names."""
    tools = [one for one in TOOLS if one["function"]["name"] in names]
    return {"tools": tools, "tool_choice": "required"}


def whole_of(shape: Shape) -> Shape:
    """Return the shape without its stream."""
    return replace(shape, events=None, stream=None)
