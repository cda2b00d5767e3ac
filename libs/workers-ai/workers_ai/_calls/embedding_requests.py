"""One embedding request, and the joining of replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

from workers_ai._wire.usage import add_usage
from workers_ai._wire.vectors import EmbedOptions, embed_request, read_vectors, require_one_length
from workers_ai.errors import ContextWindowExceededError, RequestTooLargeError
from workers_ai.types import EmbedReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai._calls.requests import Calls
    from workers_ai._flow.steps import Flow
    from workers_ai._validation import OnBusy
    from workers_ai.errors import WorkersAIError

__all__ = ["embed", "halves", "join_embeddings", "set_text_index"]

S = TypeVar("S", "range", "Sequence[str]")


def embed(
    calls: Calls,
    model: str,
    texts: Sequence[str],
    options: EmbedOptions,
    *,
    kind: Literal["document", "query"],
    first: int = 0,
    on_busy: OnBusy | None = None,
) -> Flow[EmbedReply]:
    """Embed the texts of one request. A request that is too large is split in half, down to a single text.

    Args:
        calls: The flows with the settings of the call.
        model: Model id.
        texts: The texts, at most the maximum of one request.
        options: Options that change the vectors.
        kind: Whether the texts are documents or queries.
        first: Index of the first text in the caller's list, for errors.
        on_busy: Replaces the client's setting.

    Raises:
        ContextWindowExceededError, RequestTooLargeError: A single text is too long; ``index`` is set.
        WorkersAIError: See :mod:`workers_ai.errors`.
    """
    reject = (on_busy or calls.settings.on_busy) != "wait"
    request = embed_request(model, texts, options, kind=kind, reject_if_busy=reject)
    try:
        reply = yield from calls.exchange(request, on_busy=on_busy)
    except (ContextWindowExceededError, RequestTooLargeError) as exc:
        if len(texts) == 1:
            set_text_index(exc, first, f"is too long: {exc.message}")
            raise
    else:
        neurons = reply.headers.get("cf-ai-neurons")
        return calls.read(read_vectors, reply.data, model, len(texts), normalize=options.normalize, neurons=neurons)
    replies = []
    for half in halves(texts):
        replies.append((yield from embed(calls, model, half, options, kind=kind, first=first, on_busy=on_busy)))
        first += len(half)
    return join_embeddings(model, replies)


def set_text_index(error: WorkersAIError, index: int, reason: str = "") -> None:
    """Set the index of the failed text on its error, also in the message.

    Args:
        error: The error of one text.
        index: Position of the text in the caller's list.
        reason: Why the text failed; "" keeps the present reason.
    """
    error.index = index
    error._text_reason = reason or error._text_reason
    if error._text_reason:
        error.message = f"text {index} {error._text_reason}"


def halves(items: S) -> tuple[S, S]:
    """Return the two halves of a rejected request, to be sent separately."""
    middle = len(items) // 2
    return items[:middle], items[middle:]


def join_embeddings(model: str, replies: list[EmbedReply]) -> EmbedReply:
    """Merge the replies of several requests. Empty the replies, so that each vector is in memory once.

    Raises:
        APIResponseValidationError: The vectors differ in length.
    """
    vectors: list[list[float]] = []
    usage, pooling = None, None
    for reply in replies:
        vectors += reply.vectors
        usage = add_usage(usage, reply.usage)
        pooling = reply.pooling
        reply.vectors.clear()
    require_one_length(vectors, model)
    return EmbedReply(vectors, model, usage, pooling)
