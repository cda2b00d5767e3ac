"""Write requests to the asynchronous queue, and read its responses.

Documented (https://developers.cloudflare.com/workers-ai/features/batch-api/rest-api/): a submission sends
``{"requests": [...]}`` with ``?queueRequest=true`` and receives a ``request_id``. A poll sends that id and receives
``queued`` or ``running``, and at the end ``{"responses": [{"id", "result", "success", "external_reference"}]}``.

Recorded for kimi-k2.6, not documented: ``{"results": [{"index", "result", "success"}]}``. Which model uses which form
is unknown, so both are read for every model.

Not documented: the HTTP status of a pending job, the error of a failed item, whether a finished batch repeats its
status, and the response to a poll with an unknown id. All likely forms are read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal, Unpack, cast

from workers_ai._validation import unknown_keyword
from workers_ai._wire.chat.reply import is_failed_response, shortened, unwrap
from workers_ai._wire.chat.request import chat_form, run_request
from workers_ai._wire.error_mapping import ErrorDetails, is_unknown_job, read_error
from workers_ai._wire.json_parsing import whole_number
from workers_ai._wire.json_types import JSON
from workers_ai._wire.json_writing import compact_json
from workers_ai._wire.params import CHAT_PARAMS, ChatParams
from workers_ai._wire.quirks import RESPONSES_IN_QUEUE
from workers_ai._wire.request import Request
from workers_ai._wire.usage import read_usage, sum_usage
from workers_ai.catalogue import lookup
from workers_ai.errors import (
    BadRequestError,
    BatchError,
    BatchItemError,
    RequestTooLargeError,
)
from workers_ai.types import BatchItem, BatchJob, BatchStatus, Usage

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
"""Maximum bytes of one submission. The documented limit is 10 MB; the margin is for the JSON around the requests."""

QUEUE_QUERY: Final = "queueRequest=true"
"""Query string of submissions and polls, as documented for the REST route."""

_RESULT_FIELDS: Final = frozenset({"response", "choices", "data", "output", "tool_calls", "shape"})
"""Every result of a model has one of these fields."""
_FINAL_STATES: Final = frozenset(
    {"failed", "error", "errored", "cancelled", "canceled", "expired", "not_found", "unknown"}
    | {"complete", "completed", "done", "finished", "succeeded", "success"}
)
"""Final states: a result is in the same response, or never follows."""
_SUCCESS_FIELDS: Final = frozenset({"id", "index", "external_reference", "result", "success"})
"""Fields of a successful entry. An entry with other fields may have an error among them."""
_SEPARATOR_BYTES: Final = 1
_encoder: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class UnclearReplyError(BatchError):
    """The response to a poll has neither a state nor a result. The state of the job is unknown."""

    remedy = "Poll the job again."


def chat_inputs(model: str, messages: Sequence[Mapping[str, JSON]], **params: Unpack[ChatParams]) -> dict[str, JSON]:
    """Return the inputs of one chat request of a batch.

    In the queue, gpt-oss accepts the ``input`` form. Every other model accepts ``messages``.

    Args:
        model: Model id.
        messages: OpenAI-shaped messages.
        **params: Parameters of the chat call, such as ``max_tokens``.

    Raises:
        BadRequestError: A message is invalid.
        ConfigurationError: A parameter is unknown or invalid.
    """
    if unknown := params.keys() - CHAT_PARAMS:
        raise unknown_keyword("chat_inputs", min(unknown), CHAT_PARAMS)
    api: Literal["run", "responses"] = "responses" if RESPONSES_IN_QUEUE.of(lookup(model)) else "run"
    body = chat_form(model, cast("Mapping[str, JSON]", params), api=api).plan(messages).request.body or {}
    return {key: value for key, value in body.items() if key != "model"}


def rerank_inputs(query: str, texts: Sequence[str], top_k: int | None = None) -> dict[str, JSON]:
    """Return the inputs of one rerank request of a batch.

    Args:
        query: The query.
        texts: The texts to score, at most 100.
        top_k: Maximum number of scores; None for all.
    """
    body: dict[str, JSON] = {"query": query, "contexts": [{"text": text} for text in texts]}
    return body if top_k is None else {**body, "top_k": top_k}


def json_bytes(value: JSON) -> int:
    """Return the size of a value in a request body, in bytes."""
    return len(compact_json(value))


def split_requests(
    requests: Sequence[Mapping[str, JSON]],
    *,
    model: str,
    max_bytes: int = MAX_SUBMISSION_BYTES,
    max_requests: int | None = None,
) -> Iterator[list[Mapping[str, JSON]]]:
    """Split requests, in their order, into submissions within the limits of the queue.

    Raises:
        RequestTooLargeError: A single request exceeds ``max_bytes``. The message includes its index.
        BadRequestError: A request cannot be written as JSON. The message includes its index.
    """
    part: list[Mapping[str, JSON]] = []
    total = 0
    for index, request in enumerate(requests):
        try:
            # Not `json_bytes`: it accepts values that are not JSON, such as sets.
            size = len(_encoder.encode(request).encode("utf-8", "surrogatepass")) + _SEPARATOR_BYTES
        except (TypeError, ValueError, RecursionError) as exc:
            raise BadRequestError(f"request {index} cannot be written as JSON: {exc}", model=model) from None
        if size > max_bytes:
            raise RequestTooLargeError(
                f"request {index} has {size:,} bytes; the limit of a submission is {max_bytes:,} bytes: shorten it",
                model=model,
            )
        if part and (total + size > max_bytes or len(part) == max_requests):
            yield part
            part, total = [], 0
        part.append(request)
        total += size
    if part:
        yield part


def submit_request(model: str, requests: Sequence[Mapping[str, JSON]]) -> Request:
    """Return the request that submits a batch."""
    return run_request(model, {"requests": list(requests)}, task="queue", query=QUEUE_QUERY)


def poll_request(job: BatchJob) -> Request:
    """Return the request that polls a job."""
    return run_request(job.model, {"request_id": job.request_id}, task="queue", query=QUEUE_QUERY)


def read_submission(data: JSON, model: str, size: int) -> BatchJob:
    """Read the response to a submission: a request id, or the results if the model answered at once.

    Raises:
        BatchError: The response has neither.
    """
    result = unwrap(data)
    if isinstance(result, dict) and isinstance(request_id := result.get("request_id"), (str, int)) and request_id:
        return BatchJob(str(request_id), model, size)
    status = _finished(result, model, size, "")
    if status is None and size == 1 and isinstance(result, dict) and not _RESULT_FIELDS.isdisjoint(result):
        status = BatchStatus("done", [BatchItem(0, None, True, result, None)], read_usage(result.get("usage")))
    if status is None:
        error = BatchError(f"the queue returned no request id: {shortened(data, 300)}", model=model)
        error.hint = "Submit the requests again."
        raise error
    return BatchJob("", model, size, status)


def read_poll(data: JSON, job: BatchJob, neurons: str | None = None) -> BatchStatus:
    """Read the response to a poll.

    Args:
        data: The parsed response.
        job: The polled job.
        neurons: The ``cf-ai-neurons`` header.

    Raises:
        BatchError: The job failed as a whole.
        UnclearReplyError: The response has neither a state nor a result.
    """
    result = unwrap(data)
    status = _finished(result, job.model, job.size, job.request_id, neurons)
    if status is not None:
        return status
    details = read_error(result) or read_error(data)
    state = _pending_state(result) if details is None else None
    if state is None:
        why = details.message if details else shortened(data, 300)
        error_type = BatchError if details or _has_final_state(result) else UnclearReplyError
        error = error_type(
            f"the queue has no result for {job.request_id}: {why}", model=job.model, request_ids=[job.request_id]
        )
        error.code = details.code if details else None
        if error_type is BatchError and not is_unknown_job(error.code, why):
            error.hint = "Submit the requests again."
        raise error
    return BatchStatus(state)


def _has_final_state(result: JSON) -> bool:
    state = result.get("status") if isinstance(result, dict) else None
    return isinstance(state, str) and state.lower() in _FINAL_STATES


def _pending_state(result: JSON) -> Literal["queued", "running"] | None:
    """Return the state of a job that is not finished; None if the response reports no such state."""
    if not isinstance(result, dict):
        return None
    state = result.get("status") or ("running" if result.get("request_id") else None)
    if not isinstance(state, str) or state.lower() in _FINAL_STATES:
        return None
    return "queued" if state.lower() in ("queued", "pending") else "running"


def _finished(
    result: JSON, model: str, size: int | None, request_id: str, neurons: str | None = None
) -> BatchStatus | None:
    """Return the status of a finished batch, with an item for each request; None if it is not finished."""
    entries = batch_entries(result)
    if entries is None or (not entries and size != 0 and not _has_final_state(result)):
        return None  # an empty list does not mean that the job has ended
    found: dict[int, BatchItem] = {}
    for index, entry in _indexed(entries, size):
        if (size is not None and index >= size) or (index in found and found[index].success):
            continue  # an unknown index, or a second entry of an index that has its result
        found[index] = _item(index, entry, model, request_id)
    expected = range(size) if size is not None else sorted(found)
    if (
        len(found) < max(len(expected), 1)
        and isinstance(result, dict)
        and result.get("status")
        and _pending_state(result)
    ):
        return None  # still running, with some of the results
    items = [found.get(index) or _item(index, {}, model, request_id) for index in expected]
    return BatchStatus("done", items, _total_usage(result, items, neurons))


def _indexed(entries: Sequence[JSON], size: int | None) -> list[tuple[int, dict[str, JSON]]]:
    """Return the entries with their index.

    If as many entries lack an index as indices are free, and each has a reference, they get the free indices in their
    order: the caller can still match them by reference.
    """
    given = [(entry_index(entry), entry) for entry in entries if isinstance(entry, dict)]
    lost = [entry for index, entry in given if index is None]
    found = [(index, entry) for index, entry in given if index is not None]
    if lost and all(entry.get("external_reference") not in (None, "") for entry in lost):
        free = sorted(set(range(size or 0)) - {index for index, _ in found})
        if len(free) == len(lost):
            found += zip(free, lost, strict=True)
    return found


def _total_usage(result: JSON, items: Sequence[BatchItem], neurons: str | None) -> Usage | None:
    """Return the usage of the whole batch; without such a record, the sum of the items' records."""
    whole = result.get("usage") if isinstance(result, dict) else None
    if not isinstance(whole, dict):
        records = (item.result.get("usage") for item in items if isinstance(item.result, dict))
        if usage := sum_usage(map(read_usage, records)):
            return usage
    return read_usage(whole, neurons)


def batch_entries(result: JSON) -> list[JSON] | None:
    """Return the entries of a finished batch, from ``responses`` and ``results``; None if it has neither list."""
    if not isinstance(result, dict):
        return result if isinstance(result, list) else None
    lists = [found for key in ("responses", "results") if isinstance(found := result.get(key), list)]
    return [entry for found in lists for entry in found] if lists else None


def entry_index(entry: JSON) -> int | None:
    """Return the index of the request of an entry: its ``index``, else its ``id``; None if both are missing."""
    if not isinstance(entry, dict):
        return None
    index = whole_number(entry.get("index"))
    return whole_number(entry.get("id")) if index is None else index


def _item(index: int, entry: Mapping[str, JSON], model: str, request_id: str) -> BatchItem:
    reference = entry.get("external_reference")
    reference = None if reference in (None, "") else str(reference)
    result = entry.get("result")
    details = None
    if entry.get("success") is not True or not entry.keys() <= _SUCCESS_FIELDS:
        details = read_error({key: value for key, value in entry.items() if key != "result"})
    if details is not None:
        details = read_error(result) or details
    elif result is None:
        details = ErrorDetails("the queue returned no result for this item")
    elif isinstance(result, dict) and is_failed_response(result):
        details = read_error(result)
    if details is None:
        return BatchItem(index, reference, True, result, None)
    error = BatchItemError(
        details.message, index=index, external_reference=reference, code=details.code, model=model,
        request_ids=[request_id] if request_id else (),
    )  # fmt: skip
    return BatchItem(index, reference, False, None, error)
