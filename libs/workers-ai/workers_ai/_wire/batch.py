"""The asynchronous queue on the wire: what is sent, and every shape in which it may answer.

The documented part (https://developers.cloudflare.com/workers-ai/features/batch-api/rest-api/): requests go in as
``{"requests": [...]}`` with ``?queueRequest=true``, a ``request_id`` comes back, and asking with it answers ``queued``
or ``running``, then ``{"responses": [{"id", "result", "success", "external_reference"}]}``. Recorded of kimi-k2.6, not
documented: ``{"results": [{"index", "result", "success"}]}``; which model uses which form is open, so both are read
for every model. Not documented, and so read in every form that is likely: the HTTP status of a pending answer, how a
failed item says why, whether a finished batch repeats its status, and what an id the queue has lost is answered with.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Final, Literal

from workers_ai._wire.chat.reply import shortened, unwrap
from workers_ai._wire.chat.request import plan_chat, run_request
from workers_ai._wire.error_mapping import read_refusal
from workers_ai._wire.json_parsing import whole_number
from workers_ai._wire.quirks import RESPONSES_IN_QUEUE
from workers_ai._wire.request import Request
from workers_ai._wire.usage import add_usage, read_usage
from workers_ai.catalogue import lookup
from workers_ai.errors import (
    BadRequestError,
    BatchError,
    BatchItemError,
    RequestTooLargeError,
)
from workers_ai.types import JSON, BatchItem, BatchJob, BatchStatus, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "MAX_SUBMISSION_BYTES",
    "UnclearReplyError",
    "batch_entries",
    "chat_inputs",
    "entry_index",
    "json_bytes",
    "poll_request",
    "read_poll",
    "read_submission",
    "rerank_inputs",
    "split_requests",
    "submit_request",
]

MAX_SUBMISSION_BYTES: Final = 9_900_000
"""Bytes of one submission. Documented is "less than 10 MB"; the margin leaves room for what frames the requests."""

QUEUE_QUERY: Final = "queueRequest=true"
"""What sends a request to the queue. Polls carry it too, as the documentation of the REST route shows them."""

_ANSWERS: Final = frozenset({"response", "choices", "data", "output", "tool_calls", "shape"})
"""Fields of which an answer has one, whatever was asked."""
_OVER: Final = frozenset(
    {"failed", "error", "errored", "cancelled", "canceled", "expired", "not_found", "unknown"}
    | {"complete", "completed", "done", "finished", "succeeded", "success"}
)
"""States in which there will be no result, if there is none beside them."""
_FRAME_BYTES: Final = 1


class UnclearReplyError(BatchError):
    """The reply to a poll is neither a state nor a result. It says nothing of the job, which can be polled again."""


def chat_inputs(model: str, messages: Sequence[Mapping[str, JSON]], **params: Any) -> dict[str, JSON]:
    """The inputs of one chat request of a batch; arguments are those of :meth:`workers_ai.Client.chat`.

    gpt-oss takes the ``input`` form in the queue, every other model ``messages``.
    """
    api: Literal["run", "responses"] = "responses" if RESPONSES_IN_QUEUE.of(lookup(model)) else "run"
    body: dict[str, JSON] = plan_chat(model, messages, params, api=api).request.body
    return {key: value for key, value in body.items() if key != "model"}


def rerank_inputs(query: str, texts: Sequence[str], top_k: int | None = None) -> dict[str, JSON]:
    """The inputs of one rerank request of a batch."""
    body: dict[str, JSON] = {"query": query, "contexts": [{"text": text} for text in texts]}
    return body if top_k is None else {**body, "top_k": top_k}


def json_bytes(value: JSON) -> int:
    """Bytes of a value as it stands in a request body."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def split_requests(
    requests: Sequence[Mapping[str, JSON]],
    *,
    model: str,
    max_bytes: int = MAX_SUBMISSION_BYTES,
    max_requests: int | None = None,
) -> Iterator[list[Mapping[str, JSON]]]:
    """Cut requests, in their order, into submissions that stay under the queue's limit.

    Raises:
        RequestTooLargeError: One request alone exceeds it; names its index.
        BadRequestError: A request cannot be written as JSON; names its index.
    """
    part: list[Mapping[str, JSON]] = []
    total = 0
    for index, request in enumerate(requests):
        try:
            size = json_bytes(request) + _FRAME_BYTES
        except (TypeError, ValueError, RecursionError) as exc:
            raise BadRequestError(f"request {index} cannot be written as JSON: {exc}", model=model) from None
        if size > max_bytes:
            raise RequestTooLargeError(
                f"request {index} has {size:,} bytes; a submission may have {max_bytes:,}", model=model
            )
        if part and (total + size > max_bytes or len(part) == max_requests):
            yield part
            part, total = [], 0
        part.append(request)
        total += size
    if part:
        yield part


def submit_request(model: str, requests: Sequence[Mapping[str, JSON]]) -> Request:
    """One submission."""
    return run_request(model, {"requests": list(requests)}, task="queue", query=QUEUE_QUERY)


def poll_request(job: BatchJob) -> Request:
    """The question how far a job is."""
    return run_request(job.model, {"request_id": job.request_id}, task="queue", query=QUEUE_QUERY)


def read_submission(data: JSON, model: str, size: int) -> BatchJob:
    """Read the answer to a submission: an id, or, from a model that answers at once, the responses themselves.

    Raises:
        BatchError: Neither is in it.
    """
    result = unwrap(data)
    if isinstance(result, dict) and isinstance(request_id := result.get("request_id"), (str, int)) and request_id:
        return BatchJob(str(request_id), model, size)
    status = _finished(result, model, size, "")
    if status is None and size == 1 and isinstance(result, dict) and not _ANSWERS.isdisjoint(result):
        status = BatchStatus("done", [BatchItem(0, None, True, result, None)], read_usage(result.get("usage")))
    if status is None:
        raise BatchError(f"the queue gave no request id: {shortened(data, 300)}", model=model)
    return BatchJob("", model, size, status)


def read_poll(data: JSON, job: BatchJob, neurons: str | None = None) -> BatchStatus:
    """Read the answer to a poll.

    Args:
        data: The parsed reply.
        job: The job that was asked for.
        neurons: The reply's ``cf-ai-neurons`` header.

    Raises:
        BatchError: The job has failed as a whole.
        UnclearReplyError: The reply is neither a state nor a result.
    """
    result = unwrap(data)
    status = _finished(result, job.model, job.size, job.request_id, neurons)
    if status is not None:
        return status
    refusal = read_refusal(result) or read_refusal(data)
    word = _pending(result) if refusal is None else None
    if word is None:
        why = refusal.message if refusal else shortened(data, 300)
        kind = BatchError if refusal or _is_over(result) else UnclearReplyError
        error = kind(
            f"the queue has no result for {job.request_id}: {why}", model=job.model, request_ids=[job.request_id]
        )
        error.code = refusal.code if refusal else None
        raise error
    return BatchStatus(word)


def _is_over(result: JSON) -> bool:
    """Whether a reply names a state after which there is no result, unless it is beside it."""
    word = result.get("status") if isinstance(result, dict) else None
    return isinstance(word, str) and word.lower() in _OVER


def _pending(result: JSON) -> Literal["queued", "running"] | None:
    """The state of a job that is still at work; None where the reply does not say that it is."""
    if not isinstance(result, dict):
        return None
    word = result.get("status") or ("running" if result.get("request_id") else None)
    if not isinstance(word, str) or word.lower() in _OVER:
        return None
    return "queued" if word.lower() in ("queued", "pending") else "running"


def _finished(
    result: JSON, model: str, size: int | None, request_id: str, neurons: str | None = None
) -> BatchStatus | None:
    entries = batch_entries(result)
    if entries is None:
        return None
    found: dict[int, BatchItem] = {}
    for entry in entries:
        index = entry_index(entry)
        if index is None or (size is not None and index >= size) or (index in found and found[index].success):
            continue  # no index of ours, or one that has its result
        found[index] = _item(index, entry, model, request_id)
    expected = range(size) if size is not None else sorted(found)
    if len(found) < max(len(expected), 1) and isinstance(result, dict) and result.get("status") and _pending(result):
        return None  # still running, and only some of the results are there
    items = [found.get(index) or _missing(index, model, request_id) for index in expected]
    return BatchStatus("done", items, _total_usage(result, items, neurons))


def _total_usage(result: JSON, items: Sequence[BatchItem], neurons: str | None) -> Usage | None:
    """Return the usage of the whole batch, or the sum of the items' own records where the batch has none."""
    whole = result.get("usage") if isinstance(result, dict) else None
    if not isinstance(whole, dict):
        records = (item.result.get("usage") for item in items if isinstance(item.result, dict))
        if usage := functools.reduce(add_usage, map(read_usage, records), None):
            return usage
    return read_usage(whole, neurons)


def batch_entries(result: JSON) -> list[JSON] | None:
    """Return the entries of a finished batch, from ``responses`` and from ``results``; None if it has neither list."""
    if not isinstance(result, dict):
        return result if isinstance(result, list) else None
    lists = [found for key in ("responses", "results") if isinstance(found := result.get(key), list)]
    return [entry for found in lists for entry in found] if lists else None


def entry_index(entry: JSON) -> int | None:
    """Return the index of the request that an entry answers: its ``index``, or its ``id``; None if it has neither."""
    if not isinstance(entry, dict):
        return None
    index = whole_number(entry.get("index"))
    return whole_number(entry.get("id")) if index is None else index


def _item(index: int, entry: Mapping[str, JSON], model: str, request_id: str) -> BatchItem:
    reference = entry.get("external_reference")
    reference = reference if reference is None else str(reference)
    result = entry.get("result")
    refusal = read_refusal({key: value for key, value in entry.items() if key != "result"})
    if refusal is not None:
        refusal = read_refusal(result) or refusal
    elif result is None:
        refusal = read_refusal({"error": "the queue returned no result for this item"})
    if refusal is None:
        return BatchItem(index, reference, True, result, None)
    error = BatchItemError(
        refusal.message, index=index, external_reference=reference, code=refusal.code, model=model,
        request_ids=[request_id] if request_id else (),
    )  # fmt: skip
    return BatchItem(index, reference, False, None, error)


def _missing(index: int, model: str, request_id: str) -> BatchItem:
    return _item(index, {}, model, request_id)
