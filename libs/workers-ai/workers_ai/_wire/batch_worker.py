"""The routes of a deployed batch Worker, and how its answers are those of the queue.

``POST /batch`` with ``{"texts": [...], "model": "..."}`` submits, ``GET /batch/{id}?model=...`` polls; both answer with
what the binding gives (https://developers.cloudflare.com/workers-ai/features/batch-api/workers-binding/).

How many texts go into one request of the queue is the Worker's choice. The sizes of the requests that were asked for
are therefore kept in the id of the job, which is the Worker's with them behind it, and answers are grouped by them
again.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from workers_ai._wire.batch import entry_index
from workers_ai._wire.request import Request
from workers_ai._wire.vectors import vector_rows
from workers_ai.errors import APIResponseValidationError, BadRequestError, ConfigurationError
from workers_ai.types import JSON

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["check_live", "check_model", "group_answer", "name_job", "refuses_model", "sizes_asked", "to_worker"]

_OF_ONE_PART: Final = frozenset({"response", "shape", "usage"})
"""Fields of a result that no longer hold once its texts are grouped anew."""
_TEXT_KEYS: Final = frozenset({"text", "documents"})
_STRICT: Final = re.compile(
    r"model|unknown|unrecogni[sz]ed|unexpected|unsupported|additional|extra|only|strict|exactly", re.IGNORECASE
)
"""Words with which a strict Worker refuses a field beside ``texts``."""
_JOB_ID: Final = re.compile(r"(.+)\.(\d+x\d+(?:-\d+x\d+)*)")


def to_worker(request: Request, *, names_model: bool = True) -> Request:
    """Return the Worker's form of a submission or a poll.

    Args:
        request: The request to the queue.
        names_model: Whether the Worker is told the model. A strict Worker refuses what it does not know.

    Raises:
        ConfigurationError: More is asked of the queue than to embed texts.
    """
    body, model = request.body, request.model
    if "requests" not in body:
        worker_id, _ = _read_job_id(body["request_id"])
        query = urlencode({"model": model}) if names_model else ""
        return Request(f"batch/{worker_id}", None, model, request.task, "GET", query)
    texts: JSON = [text for part in body["requests"] for text in _texts(part)]
    return Request("batch", {"texts": texts, **({"model": model} if names_model else {})}, model, request.task)


def sizes_asked(request: Request) -> list[int]:
    """Texts of each request of the job that is submitted or polled; empty where the id does not say."""
    if "requests" in request.body:
        return [len(_texts(part)) for part in request.body["requests"]]
    return _read_job_id(request.body["request_id"])[1]


def _texts(part: Mapping[str, JSON]) -> list[str]:
    names = part.keys()
    if len(names) != 1 or not names <= _TEXT_KEYS:
        other = ", ".join(sorted(names - _TEXT_KEYS)) or "none"
        raise ConfigurationError(
            f"a batch Worker takes texts to embed and nothing beside them (here: {other}): leave such options to the "
            "Worker, or leave batch_worker= out"
        )
    (texts,) = part.values()
    return [texts] if isinstance(texts, str) else list(texts)


def name_job(worker_id: str, sizes: Sequence[int]) -> str:
    """The id of a job: the Worker's, then how many requests of how many texts were asked for: ``id.9x100-1x7``."""
    runs = (f"{len(list(run))}x{size}" for size, run in itertools.groupby(sizes))
    return f"{worker_id}.{'-'.join(runs)}"


def _read_job_id(job_id: str) -> tuple[str, list[int]]:
    found = _JOB_ID.fullmatch(job_id)
    if found is None:
        return job_id, []
    runs = (run.split("x") for run in found[2].split("-"))
    return found[1], [int(size) for count, size in runs for _ in range(int(count))]


def refuses_model(status: int, message: str) -> bool:
    """Return whether a Worker refused a submission, as far as its words say, because it named the model."""
    return status in (400, 422) and bool(_STRICT.search(message))


def check_live(reply: JSON) -> None:
    """Check that a Worker answers with vectors of the model, not with placeholders.

    Raises:
        ConfigurationError: The Worker says that it is in demo mode.
    """
    for facts in (reply, reply.get("result") if isinstance(reply, dict) else None):
        if isinstance(facts, dict) and isinstance(mode := facts.get("mode"), str) and mode.strip().lower() == "demo":
            raise ConfigurationError(
                "the batch Worker is in demo mode, so its vectors are placeholders: deploy it with an AI binding "
                "(mode 'live')"
            )


def check_model(model: str, result: JSON) -> None:
    """Check that a submission went to the model that was asked for, as far as the answer says so.

    Raises:
        ConfigurationError: The Worker uses another one.
    """
    used = result.get("model") if isinstance(result, dict) else None
    if isinstance(used, str) and used != model:
        raise ConfigurationError(f"the batch Worker embeds with {used}, not with {model}: pass model={used!r}")


def group_answer(responses: Sequence[JSON], sizes: Sequence[int], model: str) -> list[JSON] | None:
    """The responses of a job, one for each request that was asked for; None where the Worker made the same ones.

    Raises:
        BadRequestError: They do not fit the texts.
    """
    found = {
        index: entry for entry in responses if (index := entry_index(entry)) is not None and index < len(responses)
    }
    entries = [found.get(index, {}) for index in range(max(found, default=-1) + 1)]
    rows = [_rows(entry, model) for entry in entries]
    spans = _spans([None if part is None else len(part) for part in rows], sum(sizes))
    if spans is None:
        raise BadRequestError(f"its answer does not fit the {sum(sizes)} texts of the job", model=model)
    if spans == list(sizes):
        return None
    of_text = [
        (entry, part and part[place])
        for entry, part, span in zip(entries, rows, spans, strict=True)
        for place in range(span)
    ]
    grouped: list[JSON] = []
    for index, size in enumerate(sizes):
        texts, of_text = of_text[:size], of_text[size:]
        failed = next((entry for entry, row in texts if row is None), None)
        if failed is None:
            facts = {key: value for key, value in texts[0][0]["result"].items() if key not in _OF_ONE_PART}
            result = {**facts, "data": [row for _, row in texts]}
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
    """Texts of each response, those of failed ones included; None where they do not add up to ``total``.

    A Worker cuts texts into requests of one size, of which the last one may be smaller.
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
