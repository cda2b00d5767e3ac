"""Suggest models for an unknown id, or for a model of another task."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from workers_ai.catalogue import known_models, lookup
from workers_ai.errors import BadRequestError, NotFoundError

if TYPE_CHECKING:
    from workers_ai._wire.request import Request
    from workers_ai.errors import WorkersAIError

__all__ = ["hint_for"]

_TASKS: Final = {"chat": "Text Generation", "embeddings": "Text Embeddings", "rerank": "Text Classification"}
_CALLS: Final = {
    "Text Generation": "a chat model",
    "Text Embeddings": "an embedding model",
    "Text Classification": "a reranker or classifier",
}
_USUAL: Final = {
    "chat": ("@cf/meta/llama-3.3-70b-instruct-fp8-fast", "@cf/openai/gpt-oss-120b"),
    "embeddings": ("@cf/baai/bge-m3", "@cf/qwen/qwen3-embedding-0.6b"),
    "rerank": ("@cf/baai/bge-reranker-base",),
}
_INPUTS: Final = {
    "messages": "chat", "prompt": "chat", "input": "chat",
    "text": "embeddings", "documents": "embeddings", "queries": "embeddings",
    "contexts": "rerank",
}  # fmt: skip
"""Fields of the requests of each task."""
_NO_SUCH_MODEL = re.compile(r"no such model|model.{0,40}not (?:found|exist)|(?:unknown|invalid) model", re.IGNORECASE)


def hint_for(error: WorkersAIError, request: Request) -> str:
    """Return a hint that suggests other models; "" if the model is not the cause of the error.

    Args:
        error: The error of the request.
        request: A request of the task ``"chat"``, ``"embeddings"`` or ``"rerank"``, or a submission of such requests.
    """
    model, task = request.model, _task_of(request)
    wanted = _TASKS.get(task)
    if wanted is None or not model:
        return ""
    known = lookup(model).task
    if known is not None and known != wanted:
        kind = _CALLS.get(known, f"a model for {known}")
        return f"{model} is {kind}; for this call use {_listed(_USUAL[task])}."
    is_missing = isinstance(error, NotFoundError) or (
        isinstance(error, BadRequestError) and _NO_SUCH_MODEL.search(error.message[:1000])
    )
    return f"Did you mean {_listed(_candidates(model, task))}?" if is_missing and known is None else ""


def _task_of(request: Request) -> str:
    """Return the task of a request, or of the requests of a submission; "" if it is unknown."""
    if request.task != "queue":
        return request.task
    requests = (request.body or {}).get("requests")
    first = requests[0] if isinstance(requests, list) and requests else None
    return next((task for key, task in _INPUTS.items() if isinstance(first, Mapping) and key in first), "")


def _candidates(model: str, task: str) -> list[str]:
    """Return up to three ids of the task that are similar to ``model``; if none is similar, the usual ids."""
    ids = {card.id.lower(): card.id for card in known_models(_TASKS[task]) if card.retired_on is None}
    names = {id_.rpartition("/")[2]: id_ for id_ in ids}
    wanted = model.lower().strip("/")
    near = [id_ for id_ in ids if id_.startswith(wanted) or wanted.startswith(id_)]
    near += difflib.get_close_matches(wanted, ids, n=3, cutoff=0.8)
    near += [names[name] for name in difflib.get_close_matches(wanted.rpartition("/")[2], names, n=3, cutoff=0.8)]
    return [ids[id_] for id_ in dict.fromkeys(near)][:3] or list(_USUAL[task])


def _listed(models: list[str] | tuple[str, ...]) -> str:
    return " or ".join([", ".join(models[:-1]), models[-1]] if len(models) > 1 else models)
