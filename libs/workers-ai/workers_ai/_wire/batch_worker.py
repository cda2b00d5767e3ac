"""Translate between the asynchronous queue and the routes of a deployed batch Worker.

``POST /batch`` with ``{"texts": [...], "model": "..."}`` submits and ``GET /batch/{id}?model=...`` polls. Both return
the result of the binding (https://developers.cloudflare.com/workers-ai/features/batch-api/workers-binding/).

The Worker chooses how many texts one request of the queue has. So the sizes of the submitted requests are appended to
the id of the job, and the Worker's responses are grouped by them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from workers_ai._wire.batch import entry_index
from workers_ai._wire.json_types import JSON
from workers_ai._wire.request import Request
from workers_ai._wire.vectors import vector_rows
from workers_ai.errors import APIResponseValidationError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MismatchedResultError",
    "check_live",
    "check_model",
    "group_responses",
    "is_submission",
    "job_id_with_sizes",
    "rejects_model_field",
    "request_sizes",
    "to_worker",
]

_UNGROUPED_FIELDS: Final = frozenset({"response", "shape", "usage"})
"""Fields of a result that become invalid when its texts are grouped differently."""
_TEXT_KEYS: Final = frozenset({"text", "documents"})
_UNKNOWN_FIELD: Final = re.compile(
    r"model|unknown|unrecogni[sz]ed|unexpected|unsupported|additional|extra|only|strict|exactly", re.IGNORECASE
)
"""Words in the error of a strict Worker that accepts only ``texts``."""
_JOB_ID: Final = re.compile(r"(.+)\.(\d+x\d+(?:-\d+x\d+)*)")


class MismatchedResultError(APIResponseValidationError):
    """The result of a finished job does not match its request. Another poll returns the same."""


def to_worker(request: Request, *, with_model: bool = True) -> Request:
    """Return the request to the Worker for a submission or a poll.

    Args:
        request: The request to the queue.
        with_model: Whether to send the model. A strict Worker rejects unknown fields.

    Raises:
        ConfigurationError: The submission has other inputs than texts to embed.
    """
    model = request.model
    parts = _submitted(request)
    if parts is None:
        worker_id, _ = _split_job_id(_polled_id(request))
        query = urlencode({"model": model}) if with_model else ""
        return Request(f"batch/{worker_id}", None, model, request.task, "GET", query)
    texts = [text for part in parts for text in _texts(part)]
    return Request("batch", {"texts": texts, **({"model": model} if with_model else {})}, model, request.task)


def request_sizes(request: Request) -> list[int]:
    """Return the number of texts of each request of a submitted or polled job; an empty list if the id has no sizes."""
    parts = _submitted(request)
    if parts is not None:
        return [len(_texts(part)) for part in parts]
    return _split_job_id(_polled_id(request))[1]


def is_submission(request: Request) -> bool:
    """Return whether a request of the queue is a submission; else it is a poll."""
    return _submitted(request) is not None


def _submitted(request: Request) -> list[Mapping[str, JSON]] | None:
    """Return the requests of a submission; None for a poll."""
    parts = (request.body or {}).get("requests")
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else None


def _polled_id(request: Request) -> str:
    return str((request.body or {}).get("request_id"))


def _texts(part: Mapping[str, JSON]) -> list[str]:
    names = part.keys()
    if len(names) != 1 or not names <= _TEXT_KEYS:
        other = ", ".join(sorted(names - _TEXT_KEYS)) or "none"
        raise ConfigurationError(
            f"a batch Worker accepts only texts to embed, but the request also has: {other}. Set such options in the "
            "Worker, or omit batch_worker="
        )
    (texts,) = part.values()
    return [str(text) for text in texts] if isinstance(texts, (list, tuple)) else [str(texts)]


def job_id_with_sizes(worker_id: str, sizes: Sequence[int]) -> str:
    """Return the Worker's id with the number and size of the submitted requests: ``id.9x100-1x7``."""
    runs = (f"{len(list(run))}x{size}" for size, run in itertools.groupby(sizes))
    return f"{worker_id}.{'-'.join(runs)}"


def _split_job_id(job_id: str) -> tuple[str, list[int]]:
    """Return the Worker's id and the sizes."""
    found = _JOB_ID.fullmatch(job_id)
    if found is None:
        return job_id, []
    runs = (run.split("x") for run in found[2].split("-"))
    return found[1], [int(size) for count, size in runs for _ in range(int(count))]


def rejects_model_field(status: int, message: str) -> bool:
    """Return whether the error of a Worker seems to reject the field ``model``."""
    return status in (400, 422) and bool(_UNKNOWN_FIELD.search(message))


def check_live(reply: JSON) -> None:
    """Check that a Worker is not in demo mode.

    Raises:
        ConfigurationError: The Worker returns placeholders instead of vectors.
    """
    for fields in (reply, reply.get("result") if isinstance(reply, dict) else None):
        if isinstance(fields, dict) and isinstance(mode := fields.get("mode"), str) and mode.strip().lower() == "demo":
            raise ConfigurationError(
                "the batch Worker is in demo mode and returns placeholders as vectors: deploy it with an AI binding "
                "(mode 'live')"
            )


def check_model(model: str, result: JSON) -> None:
    """Check the model in the response to a submission, if the response includes it.

    Raises:
        ConfigurationError: The Worker uses another model.
    """
    used = result.get("model") if isinstance(result, dict) else None
    if isinstance(used, str) and used != model:
        raise ConfigurationError(f"the batch Worker uses the model {used}, not {model}: pass model={used!r}")


def group_responses(responses: Sequence[JSON], sizes: Sequence[int], model: str) -> list[JSON] | None:
    """Return one response for each submitted request; None if the Worker's own responses match the requests.

    Raises:
        MismatchedResultError: The number of vectors differs from the number of texts.
    """
    found = {
        index: entry
        for entry in responses
        if isinstance(entry, dict) and (index := entry_index(entry)) is not None and index < len(responses)
    }
    entries: list[dict[str, JSON]] = [found.get(index, {}) for index in range(max(found, default=-1) + 1)]
    rows = [_rows(entry, model) for entry in entries]
    spans = _spans([None if part is None else len(part) for part in rows], sum(sizes))
    if spans is None:
        raise MismatchedResultError(
            f"the number of vectors of the batch Worker does not match the {sum(sizes)} texts of the job", model=model
        )
    if spans == list(sizes):
        return None
    text_rows = [
        (entry, part[position] if part else None)
        for entry, part, span in zip(entries, rows, spans, strict=True)
        for position in range(span)
    ]
    grouped: list[JSON] = []
    for index, size in enumerate(sizes):
        texts, text_rows = text_rows[:size], text_rows[size:]
        failed = next((entry for entry, row in texts if row is None), None)
        if failed is None:
            first = texts[0][0]["result"]
            fields = (
                {key: value for key, value in first.items() if key not in _UNGROUPED_FIELDS}
                if isinstance(first, dict)
                else {}
            )
            result: dict[str, JSON] = {**fields, "data": [row for _, row in texts]}
            grouped.append({"id": index, "success": True, "result": result})
        else:
            grouped.append({**failed, "id": index, "index": index, "success": False})
    return grouped


def _rows(entry: Mapping[str, JSON], model: str) -> list[JSON] | None:
    """Return the vectors of one response; None if it failed."""
    result = entry.get("result")
    if not isinstance(result, dict) or entry.get("success") is False:
        return None
    try:
        return vector_rows(result, model)
    except APIResponseValidationError:
        return None


def _spans(found: Sequence[int | None], total: int) -> list[int] | None:
    """Return the number of texts of each response, failed ones included; None if the sum differs from ``total``.

    A Worker splits texts into requests of one size. Only the last one may be smaller.
    """
    if not found:
        return None
    *others, last = found
    known = [count for count in others if count is not None]
    if known:
        size = known[0]
    elif others:
        size = -(-total // len(found)) if last is None else (total - last) // len(others)
    else:
        size = total
    spans = [size if count is None else count for count in others]
    spans.append(total - sum(spans) if last is None else last)
    return spans if sum(spans) == total and min(spans) > 0 else None
