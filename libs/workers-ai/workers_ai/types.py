"""Results of calls: plain, immutable values between the wire and the frameworks. Read them by attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from workers_ai._html import fact_table, list_table
from workers_ai.errors import BatchItemError

__all__ = [
    "Api",
    "BatchItem",
    "BatchJob",
    "BatchStatus",
    "ChatDelta",
    "ChatReply",
    "EmbedReply",
    "FinishReason",
    "JSON",
    "RerankScore",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
]

JSON: TypeAlias = Any
"""Parsed JSON: dict, list, str, int, float, bool or None."""

Api: TypeAlias = Literal["chat_completions", "run", "responses"]
"""Route of a chat call: OpenAI's chat completions, the native route, or OpenAI's responses."""
FinishReason: TypeAlias = str
"""``"stop"``, ``"length"``, ``"tool_calls"``, ``"content_filter"`` or ``"error"``; any other value is as the
service sent it."""


class Usage(NamedTuple):
    """Tokens and neurons of one reply.

    Attributes:
        input_tokens: Tokens read, cached ones included.
        output_tokens: Tokens written, reasoning included.
        total_tokens: Sum of both.
        cached_tokens: Input tokens read from the prefix cache, or None if not reported.
        reasoning_tokens: Output tokens of the reasoning, or None if not reported.
        neurons: Neurons charged, or None if not reported. 1,000 neurons cost USD 0.011.
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
        arguments: Arguments as JSON text; "{}" if the model sent none in a complete answer.
        error: Reason why the call must not run: its arguments are not a JSON object, or were truncated. Else "".
    """

    id: str
    name: str
    arguments: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """One piece of a streamed tool call.

    The first piece of each ``index`` has ``id`` and ``name``. The pieces of ``arguments`` join to JSON text. If the
    joined text is not a JSON object, because the model wrote something else or the answer was truncated, the last piece
    has the reason in ``error`` and the whole text in ``broken``.

    Attributes:
        index: Position of the call in the answer.
        id: Id of the call, unique in the conversation; None after the first piece.
        name: Name of the tool; None after the first piece.
        arguments: The next part of the arguments, or "".
        broken: All arguments of a call that must not run, else "".
        error: Reason why the call must not run, else "".
    """

    index: int
    id: str | None
    name: str | None
    arguments: str
    broken: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """One whole answer.

    Attributes:
        text: The answer; JSON text if the service sent an object, a list or a number.
        reasoning: The reasoning of the model, or "".
        tool_calls: Tool calls, ids unique in the conversation.
        finish_reason: Why the answer ended; ``"tool_calls"`` for a complete answer with calls.
        usage: Tokens and neurons, or None if not reported.
        model: Model that the reply reports; it may differ from the requested one (alias, internal name).
        id: The service's id of the completion, or None.
        refusal: The model's refusal, or None.
        logprobs: Log probabilities as sent, or None.
        headers: Response headers with ray, request, gateway and neurons.
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

    Only the last piece has ``last=True``, ``finish_reason``, ``usage``, ``id``, ``model`` and ``headers``. So
    frameworks that add up pieces count each of these values once.

    Attributes:
        text: The next part of the answer, or "".
        reasoning: The next part of the reasoning, or "".
        tool_calls: Pieces of tool calls.
        logprobs: Log probabilities of this piece as sent, or None.
        refusal: The next part of the model's refusal, or "".
        last: Whether this is the last piece.
        finish_reason: Why the answer ended; ``"tool_calls"`` for a complete answer with calls.
        usage: Tokens and neurons of the whole answer, or None if not reported.
        id: The service's id of the completion, or None.
        model: Model that the stream reports, or None.
        headers: Response headers with ray, request, gateway and neurons.
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


@dataclass(frozen=True, slots=True)
class EmbedReply:
    """Vectors of a list of texts, in the order of the texts.

    Attributes:
        vectors: One list of floats per text, all of the same length.
        model: The requested model.
        usage: Tokens and neurons of all requests together, or None if not reported.
        pooling: Pooling that the service reports, or None.
    """

    vectors: list[list[float]]
    model: str
    usage: Usage | None = None
    pooling: str | None = None


@dataclass(frozen=True, slots=True)
class RerankScore:
    """Relevance of one text.

    Attributes:
        index: Position of the text in the list passed to the call.
        score: Relevance, 0 to 1.
    """

    index: int
    score: float


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One submission that the asynchronous queue accepted. ``BatchJob(request_id, model)`` is enough to poll it again.

    Attributes:
        request_id: The queue's id; "" if the model answered at once.
        model: Model of the submission; polls must use the same model.
        size: Number of requests in the submission, or None if unknown.
        answer: The answer of a model that did not queue the submission, or None.
    """

    request_id: str
    model: str
    size: int | None = None
    answer: BatchStatus | None = field(default=None, repr=False, compare=False)

    def _repr_html_(self) -> str:
        size = "unknown" if self.size is None else f"{self.size:,}"
        facts = [("request_id", self.request_id or "none: the model answered at once"), ("model", self.model)]
        return fact_table("Submission", [*facts, ("requests", size)])


@dataclass(frozen=True, slots=True)
class BatchItem:
    """Result of one request of a batch.

    Attributes:
        index: Position of the request in the submitted list.
        external_reference: The caller's own reference, or None.
        success: Whether the request succeeded.
        result: The result as the service sent it; None on failure.
        error: The error, or None.
    """

    index: int
    external_reference: str | None
    success: bool
    result: JSON
    error: BatchItemError | None


class BatchStatus(NamedTuple):
    """Progress of a job.

    Attributes:
        state: ``"queued"``, ``"running"`` or ``"done"``.
        items: Once the job is done, one item per request, in the order of the requests; before that, empty. For a job
            of unknown size, the items that the service sent.
        usage: Tokens and neurons of the whole job, or None if not reported.
    """

    state: Literal["queued", "running", "done"]
    items: Sequence[BatchItem] = ()
    usage: Usage | None = None

    def _repr_html_(self) -> str:
        failed = [(item.index, item.external_reference, item.error) for item in self.items if not item.success]
        facts = [("state", str(self.state))]
        if self.items:
            facts += [("succeeded", f"{len(self.items) - len(failed):,}"), ("failed", f"{len(failed):,}")]
        if self.usage is not None:
            facts.append(("tokens", f"{self.usage.total_tokens:,}"))
        return fact_table("Job", facts) + list_table(("index", "reference", "error"), failed)
