"""The neutral values that stand between the wire and the frameworks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from workers_ai.errors import (
    BatchItemError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


__all__ = [
    "Api",
    "ChatDelta",
    "ChatReply",
    "EmbedReply",
    "FinishReason",
    "JSON",
    "RerankScore",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
    "BatchItem",
    "BatchJob",
    "BatchStatus",
]

JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"
"""JSON data. Parsed JSON has dicts and lists; input may have any mapping and sequence."""

Api: TypeAlias = Literal["chat_completions", "run", "responses"]
FinishReason: TypeAlias = str
"""``"stop"``, ``"length"``, ``"tool_calls"``, ``"content_filter"`` or ``"error"``. Any other reason is
the service's own, unchanged."""


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


@dataclass(frozen=True)
class BatchJob:
    """One submission that the queue has accepted. ``BatchJob(request_id, model)`` is enough to ask for it again.

    Attributes:
        request_id: The queue's id; "" where the model answered at once.
        model: The model it was submitted to; the queue is asked with the same one.
        size: Requests in it, or None where that is not known.
        answer: What the service answered at once instead of queueing, or None.
    """

    request_id: str
    model: str
    size: int | None = None
    answer: BatchStatus | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class BatchItem:
    """What became of one request.

    Attributes:
        index: Position of the request in the list that was submitted.
        external_reference: The caller's own reference for it, or None.
        success: Whether it succeeded.
        result: The task's result as the service sent it, for :func:`~workers_ai._wire.vectors.read_vectors`,
            :func:`~workers_ai._wire.chat.reply.read_chat` or :func:`~workers_ai._wire.vectors.read_scores`; None on failure.
        error: Why it failed, or None.
    """

    index: int
    external_reference: str | None
    success: bool
    result: JSON
    error: BatchItemError | None


class BatchStatus(NamedTuple):
    """How far a job is.

    Attributes:
        state: ``"queued"``, ``"running"`` or ``"done"``.
        items: One item per request, in the order of the requests, once it is done; else empty. For a job of unknown
            size, the items that came.
        usage: Tokens and neurons of the whole job; None where the reply does not say.
    """

    state: Literal["queued", "running", "done"]
    items: Sequence[BatchItem] = ()
    usage: Usage | None = None
