"""Rerank calls: split texts into requests, and merge the rankings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai._calls.embeddings import check_texts
from workers_ai._calls.per_call import PER_CALL
from workers_ai._validation import check_model, require_int, unknown_keyword
from workers_ai._wire.vectors import CONTEXTS_PER_REQUEST, read_scores, rerank_request
from workers_ai.types import RerankScore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workers_ai._calls.requests import Calls
    from workers_ai._flow.steps import Flow

__all__ = ["join_rankings", "rerank_flows"]


def rerank_flows(
    calls: Calls, model: str, query: str, texts: Sequence[str], top_n: int | None, options: Mapping[str, object]
) -> list[Flow[list[RerankScore]]]:
    """Return one flow for each request; an empty list if ``top_n`` is 0.

    Args:
        calls: The flows with the settings of the call.
        model: Model id.
        query: The query.
        texts: The texts.
        top_n: Maximum number of scores; None for all.
        options: Other options of the call; must be empty.

    Raises:
        BadRequestError: A text is not a string.
        ConfigurationError: An option is unknown, or ``top_n`` or the model id is malformed.
    """
    check_model(model)
    if options:
        raise unknown_keyword("a rerank call", min(options), PER_CALL | {"top_n"}, "extra_body")
    require_int("top_n", top_n, 0, None)
    texts = check_texts(texts, "space", model)
    if top_n == 0:
        return []
    size = CONTEXTS_PER_REQUEST
    parts = [texts[first : first + size] for first in range(0, len(texts), size)]
    calls = calls.started()
    return [_rerank(calls, model, query, part, len(part) if top_n is None else min(top_n, len(part))) for part in parts]


def _rerank(calls: Calls, model: str, query: str, texts: Sequence[str], top_k: int) -> Flow[list[RerankScore]]:
    """Score the texts of one request, best first."""
    request = rerank_request(model, query, texts, top_k, reject_if_busy=calls.settings.on_busy != "wait")
    reply = yield from calls.exchange(request)
    return calls.read(read_scores, reply.data, model, len(texts), top_k)


def join_rankings(rankings: list[list[RerankScore]], top_n: int | None) -> list[RerankScore]:
    """Return the best scores of several requests, with indexes into the whole list of texts."""
    merged = [
        RerankScore(score.index + part * CONTEXTS_PER_REQUEST, score.score)
        for part, scores in enumerate(rankings)
        for score in scores
    ]
    return sorted(merged, key=lambda score: -score.score)[:top_n]
