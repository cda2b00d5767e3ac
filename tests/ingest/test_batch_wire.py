"""Every possible form of replies of the queue, and the division into submissions. No I/O."""

from __future__ import annotations

import contextlib
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import every_row

from workers_ai._wire.batch import read_poll, read_submission, split_requests, submit_request
from workers_ai.batch import chat_inputs
from workers_ai.errors import BatchError, BatchItemError, BatchTimeoutError, ConfigurationError
from workers_ai.types import BatchJob, Usage

MODEL = "@cf/baai/bge-m3"
JOB = BatchJob("r-1", MODEL, 2)


def enveloped(result: Any) -> dict[str, Any]:
    return {"result": result, "success": True, "errors": [], "messages": []}


def entry(index: Any, result: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"id": index, "result": result, "success": True, "external_reference": None, **more}


BOTH = [entry(0, "first"), entry(1, "second")]


@every_row(
    "data",
    [
        enveloped({"responses": BOTH}),
        enveloped({"responses": BOTH, "status": "complete"}),
        enveloped({"responses": BOTH, "status": "running", "request_id": "r-1"}),
        enveloped({"result": {"responses": BOTH}}),
        enveloped(BOTH),
        {"responses": BOTH},
        BOTH,
        enveloped({"responses": [BOTH[1], BOTH[0]]}),
        enveloped({"responses": [entry("1", "second"), entry("0", "first")]}),
        enveloped({"responses": [*BOTH, entry(2), entry(-1), entry(None), entry("x"), entry(True), "junk", None]}),
        enveloped({"responses": [*BOTH, entry(1, "an echo"), {"id": 0, "success": False, "error": "late"}]}),
        enveloped({"responses": [{"id": 0, "success": False, "error": "early"}, *BOTH]}),
        enveloped({"responses": [{"id": 0, "result": "first"}, {"id": 1, "result": "second"}]}),
        enveloped({"responses": [entry(0, "first", error=None), entry(1, "second", errors=[])]}),
    ],
)
def test_results_in_every_place_are_matched_by_id(data: Any) -> None:
    status = read_poll(data, JOB)
    assert status.state == "done"
    assert [(item.index, item.success, item.result) for item in status.items] == [
        (0, True, "first"),
        (1, True, "second"),
    ]


@every_row(
    ("failed", "code", "words"),
    [
        ({"success": False, "error": {"message": "AiError: too long", "code": 3030}}, 3030, "too long"),
        ({"success": False, "errors": [{"message": "AiError: too long", "code": 3030}]}, 3030, "too long"),
        ({"success": False, "error": "5006: too long"}, 5006, "too long"),
        ({"success": False, "error": "just text"}, None, "just text"),
        ({"success": False, "internalCode": 3030, "message": "too long"}, 3030, "too long"),
        ({"success": False, "result": {"error": {"code": 3030, "message": "too long"}}}, 3030, "too long"),
        ({"success": False}, None, ""),
        ({"success": False, "result": "a result all the same"}, None, ""),
        ({"success": True, "result": None}, None, "no result"),
        ({"success": True, "result": "r", "error": {"code": 3043, "message": "broke"}}, 3043, "broke"),
        ({}, None, "no result"),
    ],
)
def test_the_error_of_a_failed_item(failed: dict[str, Any], code: int | None, words: str) -> None:
    data = enveloped({"responses": [entry(0), {"id": 1, "external_reference": "ref", **failed}]})
    good, bad = read_poll(data, JOB).items
    assert good.success
    assert (bad.success, bad.result, bad.external_reference) == (False, None, "ref")
    assert isinstance(bad.error, BatchItemError)
    assert (bad.error.index, bad.error.external_reference, bad.error.code) == (1, "ref", code)
    assert words in bad.error.message
    assert bad.error.request_ids == ("r-1",)


@pytest.mark.parametrize(
    "responses", [[entry(1)], [entry(1), entry(7)], [{"result": "no id", "success": True}, entry(1)]]
)
def test_an_item_that_is_missing_is_an_error_at_its_index(responses: list[Any]) -> None:
    first, second = read_poll(enveloped({"responses": responses}), JOB).items
    assert (first.index, first.success, second.success) == (0, False, True)
    assert "returned no result for this item" in str(first.error)


def test_a_job_of_unknown_size_has_the_received_items() -> None:
    responses = [entry(2), entry(0), entry(10**15)]  # the missing items are unknown, and the list is limited
    status = read_poll(enveloped({"responses": responses}), BatchJob("r-1", MODEL))
    assert [(item.index, item.success) for item in status.items] == [(0, True), (2, True), (10**15, True)]


@every_row(
    ("result", "state"),
    [
        ({"status": "queued", "request_id": "r-1"}, "queued"),
        ({"status": "PENDING"}, "queued"),
        ({"status": "running"}, "running"),
        ({"status": "something new"}, "running"),
        ({"request_id": "r-1", "model": MODEL}, "running"),
        ({"request_id": "r-1", "status": None, "error": None}, "running"),
        ({"status": "running", "responses": None}, "running"),
    ],
)
def test_pending_with_and_without_a_status(result: Any, state: str) -> None:
    assert read_poll(enveloped(result), JOB) == (state, (), None)


@every_row(
    ("data", "words"),
    [
        (enveloped({"status": "failed", "error": {"code": 3043, "message": "model crashed"}}), "model crashed"),
        (enveloped({"status": "Expired"}), "Expired"),
        (enveloped({"status": "complete"}), "complete"),
        (enveloped({"request_id": "r-1", "errors": [{"code": 5001, "message": "broke"}]}), "broke"),
        (enveloped({}), "r-1"),
        (enveloped(None), "r-1"),
        (enveloped("what"), "what"),
        (None, "r-1"),
    ],
)
def test_a_result_that_is_missing_for_good(data: Any, words: str) -> None:
    with pytest.raises(BatchError, match="has no result for r-1") as raised:
        read_poll(data, JOB)
    assert words in str(raised.value)
    assert raised.value.request_ids == ("r-1",)


def test_usage_and_neurons_of_the_whole_job() -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    status = read_poll(enveloped({"responses": BOTH, "usage": usage}), JOB, neurons="0.5")
    assert status.usage is not None
    assert (status.usage.input_tokens, status.usage.output_tokens, status.usage.neurons) == (12, 3, 0.5)


def test_usage_that_some_items_report_is_summed() -> None:
    records = [
        {"prompt_tokens": 1, "completion_tokens": 2, "neurons": 0.5},
        {"prompt_tokens": 3, "completion_tokens": 4},
        None,
    ]
    entries = [
        {"id": index, "success": True, "result": {"response": "x", "usage": record}}
        for index, record in enumerate(records)
    ]
    status = read_poll(enveloped({"responses": entries}), BatchJob("r", "m", 3))
    assert status.usage == Usage(4, 6, 10, neurons=0.5)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
KEYS = st.sampled_from(
    ["id", "result", "responses", "success", "error", "errors", "code", "message", "status", "usage"]
)
JSON_VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(JSON_VALUES | st.lists(JSON_VALUES, max_size=4).map(lambda found: enveloped({"responses": found})))
def test_any_reply_is_read_or_raises_a_batch_error(data: Any) -> None:
    with contextlib.suppress(BatchError):
        status = read_poll(data, JOB)
        assert len(status.items) == (2 if status.state == "done" else 0)
        assert all(item.success == (item.error is None) == (item.result is not None) for item in status.items)


@pytest.mark.parametrize("data", [enveloped({"request_id": "r-9"}), {"request_id": "r-9", "status": "queued"}])
def test_an_accepted_submission(data: Any) -> None:
    assert read_submission(data, MODEL, 5) == BatchJob("r-9", MODEL, 5)


def test_a_submission_that_was_answered_at_once() -> None:
    job = read_submission(enveloped({"responses": BOTH}), MODEL, 2)
    assert job.request_id == ""
    assert job.answer is not None
    assert [item.result for item in job.answer.items] == ["first", "second"]


def test_a_single_request_answered_at_once_in_the_direct_form() -> None:
    job = read_submission(enveloped({"data": [[0.5]], "shape": [1, 1]}), MODEL, 1)
    assert job.answer is not None
    (item,) = job.answer.items
    assert (item.success, item.result) == (True, {"data": [[0.5]], "shape": [1, 1]})


@pytest.mark.parametrize("data", [enveloped({}), enveloped(None), enveloped({"request_id": ""}), enveloped("queued")])
def test_a_submission_without_an_id(data: Any) -> None:
    with pytest.raises(BatchError, match="returned no request id"):
        read_submission(data, MODEL, 2)


@given(
    st.lists(st.text(max_size=30), max_size=30),
    st.integers(min_value=200, max_value=400),
    st.none() | st.integers(min_value=1, max_value=4),
)
def test_submissions_keep_order_and_bounds(texts: list[str], max_bytes: int, max_requests: int | None) -> None:
    requests = [{"text": text} for text in texts]

    parts = list(split_requests(requests, model=MODEL, max_bytes=max_bytes, max_requests=max_requests))

    assert [request for part in parts for request in part] == requests
    for part in parts:
        body = json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        assert 0 < len(part) <= (max_requests or len(texts))
        assert len(body) <= max_bytes + 2  # the brackets


def test_the_bound_counts_bytes_not_characters() -> None:
    requests = [{"text": "日" * 1_700_000}, {"text": "日" * 1_700_000}]  # 3 bytes each: 10.2 MB in total
    assert [len(part) for part in split_requests(requests, model=MODEL)] == [1, 1]


def test_a_submission_is_sent_to_the_model_with_the_flag() -> None:
    request = submit_request(MODEL, [{"text": ["a"]}])
    assert (request.path, request.query) == (f"run/{MODEL}", "queueRequest=true")
    assert request.body == {"requests": [{"text": ["a"]}]}


def test_chat_inputs_have_the_form_of_the_model() -> None:
    messages = [{"role": "user", "content": "hi"}]
    llama = chat_inputs("@cf/meta/llama-3.3-70b-instruct-fp8-fast", messages, max_tokens=5, temperature=0)
    assert llama == {"messages": messages, "max_tokens": 5, "temperature": 0}
    oss = chat_inputs("@cf/openai/gpt-oss-120b", messages, max_tokens=5, reasoning_effort="low")
    assert oss == {"input": messages, "max_output_tokens": 5, "reasoning": {"effort": "low"}}
    with pytest.raises(ConfigurationError, match=r"temprature.*did you mean 'temperature'"):
        chat_inputs("@cf/openai/gpt-oss-120b", messages, temprature=0)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "error",
    [
        BatchError("lost", model=MODEL, request_ids=["a", "b"]),
        BatchTimeoutError("late", model=MODEL, request_ids=["a", "b"]),
        BatchItemError("bad", index=3, external_reference="ref", code=3030, model=MODEL, request_ids=["a", "b"]),
    ],
)
def test_errors_survive_a_process_boundary(error: BatchError) -> None:
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin), twin.request_ids) == (type(error), str(error), ("a", "b"))
    assert vars(twin) == vars(error)
