"""The neutral values that stand between the wire and the frameworks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx
    from pydantic import SecretStr

    from workers_ai._settings.gateway import GatewayOptions

__all__ = [
    "Api",
    "ChatDelta",
    "ChatReply",
    "EmbedReply",
    "FinishReason",
    "JSON",
    "ReplyContext",
    "Request",
    "RerankScore",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
]

JSON: TypeAlias = Any
"""Parsed JSON: dict, list, str, int, float, bool or None."""

Api: TypeAlias = Literal["chat_completions", "run", "responses"]
FinishReason: TypeAlias = str
"""``"stop"``, ``"length"``, ``"tool_calls"``, ``"content_filter"`` or ``"error"``. Any other reason is
the service's own, unchanged."""


class Request(NamedTuple):
    """One HTTP request to the service, before account, token and host are added.

    Attributes:
        path: Path after ``.../ai/``, such as ``"run/@cf/baai/bge-m3"`` or ``"v1/chat/completions"``.
        body: JSON body; None for a request without one.
        model: The model, for errors and for the shared limiter.
        task: The task, for the shared limiter: ``"chat"``, ``"embeddings"``, ``"rerank"`` or ``"catalogue"``.
        method: HTTP method.
        query: Query string without ``?``.
        headers: Headers of this request alone; a value may be masked.
        timeout: Timeout of this request in place of the client's own: seconds or an ``httpx.Timeout``.
        gateway: AI Gateway options of this request in place of the client's own.
        total_s: Seconds that the exchange may take in all; None for no bound.
    """

    path: str
    body: JSON
    model: str
    task: str
    method: str = "POST"
    query: str = ""
    headers: Mapping[str, str | SecretStr] = {}
    timeout: float | httpx.Timeout | None = None
    gateway: GatewayOptions | None = None
    total_s: float | None = None


class Usage(NamedTuple):
    """Tokens and neurons of one reply.

    Attributes:
        input_tokens: Tokens read, cached ones included.
        output_tokens: Tokens written, reasoning included.
        total_tokens: Both together.
        cached_tokens: Input tokens read from the prefix cache; None where the reply does not say.
        reasoning_tokens: Output tokens spent on thinking; None where the reply does not say.
        neurons: Neurons charged; None where the reply does not say. USD 0.011 buys 1,000.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    neurons: float | None = None


class ToolCall(NamedTuple):
    """One tool call of a whole reply.

    Attributes:
        id: Id, unique in the conversation.
        name: Name of the tool.
        arguments: The JSON text the model wrote; "{}" if it wrote none in a complete answer.
        error: Why the call must not run: its arguments are no JSON object, or were truncated. Else "".
    """

    id: str
    name: str
    arguments: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """One piece of a streamed tool call.

    ``id`` and ``name`` come once, with the first piece of each ``index``; pieces of ``arguments`` join to JSON text.
    If they do not, because the model wrote something else or the answer was truncated, the last piece has the reason
    in ``error`` and all of the text in ``broken``.
    """

    index: int
    id: str | None
    name: str | None
    arguments: str
    broken: str = ""
    error: str = ""


@dataclass(slots=True)
class ChatReply:
    """One whole answer.

    Attributes:
        text: The answer; JSON text where the service sent an object, a list or a number.
        reasoning: The thinking beside it, or "".
        tool_calls: The calls, ids unique in the conversation.
        finish_reason: Why it ended; ``"tool_calls"`` for a complete answer with calls.
        usage: Tokens and neurons; None where the reply has none.
        model: The model the service names; may differ from the one asked for (alias, internal name).
        id: The service's id of the completion, or None.
        refusal: The model's refusal, or None.
        logprobs: Log probabilities as sent, or None.
        headers: Reply headers worth keeping: ray, request, gateway and neuron headers.
        raw: The parsed reply without its envelope.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason = "stop"
    usage: Usage | None = None
    model: str | None = None
    id: str | None = None
    refusal: str | None = None
    logprobs: JSON = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: JSON = None


class ChatDelta(NamedTuple):
    """One piece of a streamed answer.

    The last piece, and only it, has ``last=True`` and carries ``finish_reason``, ``usage``, ``id``, ``model`` and
    ``headers``, so that frameworks which add pieces up count nothing twice.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: Sequence[ToolCallDelta] = ()
    logprobs: JSON = None
    refusal: str = ""
    last: bool = False
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    id: str | None = None
    model: str | None = None
    headers: Mapping[str, str] = {}


class ReplyContext(NamedTuple):
    """What of the request is needed to read its reply.

    Attributes:
        model: The model asked for.
        known_ids: Tool-call ids the conversation has used already.
        forced: Parameter schemas by name of the tools one of which was forced; empty when none was.
        json_mode: Whether ``response_format`` or ``guided_json`` was sent.
        max_tokens: Output bound in force, or None where it is not known.
        thinking_off: Whether the request turned thinking off.
    """

    model: str
    known_ids: frozenset[str] = frozenset()
    forced: Mapping[str, JSON] = {}
    json_mode: bool = False
    max_tokens: int | None = None
    thinking_off: bool = False


@dataclass(slots=True)
class EmbedReply:
    """Vectors of a list of texts, in its order.

    Attributes:
        vectors: One list of floats per text, all of the same length.
        model: The model asked for.
        usage: Tokens and neurons of all requests together; None where the service did not say.
        pooling: The pooling the service reports, or None.
    """

    vectors: list[list[float]]
    model: str
    usage: Usage | None = None
    pooling: str | None = None


@dataclass(frozen=True, slots=True)
class RerankScore:
    """Relevance of one text: its position in the list given, and a score from 0 to 1."""

    index: int
    score: float
