"""Every recorded error response of the service, on each possible route, and damaged variants."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

import httpx
import pytest
from axes import MODES, ROUTES, spread
from hypothesis import given
from hypothesis import strategies as st
from refusals import UUID
from tests.support import every_row

from workers_ai import AsyncClient, RetryPolicy, Settings, errors
from workers_ai._calls.replies import Reply, read_reply
from workers_ai._wire.error_mapping import read_error

LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
HI = [{"role": "user", "content": "hi"}]
QUOTA = "you have used up your daily free allocation of 10,000 neurons, please upgrade to the Workers Paid plan"
CLEF = '{"error":{"type":"invalid_request","message":"Request body failed validation","details":{"fieldErrors":{"images":["image payload is invalid"]}}}}'  # noqa: E501
IN_CLEF = "Request body failed validation (images: image payload is invalid)"


class Row(NamedTuple):
    """A recorded error response, and the expected error."""

    status: int
    code: int | None
    text: str
    """The message in the envelope; the binding throws it after the code."""
    cls: type[errors.WorkersAIError]
    says: str
    """The whole message of the error."""
    hint: str = ""
    """Part of what ``str()`` adds."""


def ai(text: str) -> str:
    """Return an error text as the service writes it: with its prefix twice, and an id at the end."""
    return f"AiError: AiError: {text} ({UUID})"


BUSY = f"Capacity temporarily exceeded for {LLAMA}, please try again."
SUM = "Max context reached 80030 tokens but model supports only 60000"
MANY = "The estimated number of input and maximum output tokens (9) exceeded this model context window limit (8)."
UNKNOWN_MODEL = f"No such model: No such model {LLAMA} or task"
BAD = "Bad input: required properties at '/' are 'model,state,questions'"
CAPTURED = [
    Row(400, 7000, "No route for that URI", errors.NotFoundError, "No route for that URI", "Check the model id"),
    Row(400, 5007, ai(UNKNOWN_MODEL), errors.NotFoundError, UNKNOWN_MODEL, "Check the model id"),
    Row(401, 10000, "Authentication error", errors.AuthenticationError, "Authentication error", "CLOUDFLARE_API_TOKEN"),
    Row(429, 4006, ai(QUOTA), errors.QuotaExhaustedError, QUOTA, "renewed at"),
    Row(429, 3036, ai(QUOTA), errors.QuotaExhaustedError, QUOTA, "renewed at"),
    Row(408, 3046, ai("Request timeout"), errors.RequestTimeoutError, "Request timeout"),
    Row(400, 3030, ai("Sequence too long: 9003 > 8192"), errors.ContextWindowExceededError,
        "Sequence too long: 9003 > 8192", "Shorten the input"),
    Row(400, 3030, ai(SUM), errors.ContextWindowExceededError, SUM, "Shorten the input"),
    Row(429, 3040, ai(BUSY), errors.CapacityError, BUSY, "asynchronous queue"),
    Row(400, 5504, ai("Request not found in queue"), errors.NotFoundError, "Request not found in queue"),
    Row(422, 5012, ai(CLEF), errors.BadRequestError, IN_CLEF),
    Row(400, 5006, ai(BAD), errors.BadRequestError, BAD),
    Row(413, 5021, ai(MANY), errors.ContextWindowExceededError, MANY, "lower max_tokens"),
    Row(500, 3043, ai("Internal server error"), errors.InternalServerError, "Internal server error"),
    Row(403, 5018, f"AiError: Ai: This account is not allowed to access {LLAMA} ({UUID})", errors.PermissionDeniedError,
        f"This account is not allowed to access {LLAMA}"),
    Row(403, 5035, ai("This model requires a Workers Paid plan."), errors.PaidPlanRequiredError,
        "This model requires a Workers Paid plan.", "AI Gateway credits"),
]  # fmt: skip
CODELESS = [
    Row(0, None, QUOTA, errors.QuotaExhaustedError, QUOTA, "renewed at"),
    Row(0, None, "internal error", errors.InternalServerError, "internal error"),
    Row(0, 1031, "error code: 1031", errors.BadRequestError, "error code: 1031"),
    Row(0, None, "Request not found in queue", errors.NotFoundError, "Request not found in queue"),
    Row(0, None, "JSON Mode couldn't be met", errors.StructuredOutputError, "JSON Mode couldn't be met"),
    Row(0, None, "Capacity temporarily exceeded, please try again.", errors.CapacityError,
        "Capacity temporarily exceeded, please try again."),
    Row(0, None, "Request timeout", errors.RequestTimeoutError, "Request timeout"),
    Row(0, None, "Sequence too long: 9003 > 8192", errors.ContextWindowExceededError, "Sequence too long: 9003 > 8192"),
    Row(0, None, UNKNOWN_MODEL, errors.NotFoundError, UNKNOWN_MODEL),
]  # fmt: skip


def is_the_error(caught: errors.WorkersAIError, row: Row, sent: int) -> None:
    """Check class, code, message, hint, id and number of attempts."""
    assert type(caught) is row.cls
    assert (caught.code, caught.message) == (row.code, row.says)
    assert row.hint in str(caught)
    assert "AiError" not in str(caught)
    assert caught.request_id == (UUID if UUID in row.text else None)
    assert sent == caught.attempts == (3 if caught.is_retryable else 1)
    assert "Check the model id" not in str(caught) or "model" in row.says or "route" in row.says


@pytest.mark.parametrize(
    ("row", "face", "way", "api"),
    spread(CAPTURED, MODES, ("chat", "stream"), (*ROUTES, "responses"), name=lambda row: f"{row.status}-{row.code}"),
    indirect=["face"],
)
def test_a_captured_error_response_over_http(row: Row, face: Any, way: str, api: Any) -> None:
    sent: list[httpx.Request] = []
    body = {"errors": [{"message": row.text, "code": row.code}], "success": False, "result": {}, "messages": []}
    if api == "responses":  # recorded on this route: OpenAI's error object, without Cloudflare's code
        row = row._replace(code=None)
        body = {"error": {"code": "invalid_prompt", "message": row.text}}

    def refuse(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(row.status, json=body)

    model = "@cf/openai/gpt-oss-120b" if api == "responses" else LLAMA
    with pytest.raises(errors.WorkersAIError) as caught:
        getattr(face(refuse), way)(model, HI, api=api)
    assert caught.value.status_code == row.status
    if api == "responses" and row.status in (400, 422, 401, 403) and type(caught.value) is not row.cls:
        assert type(caught.value) in (errors.BadRequestError, errors.AuthenticationError, errors.PermissionDeniedError)
        return  # without a code, the status determines the class
    is_the_error(caught.value, row, len(sent))


@pytest.mark.parametrize("row", CAPTURED, ids=lambda row: f"{row.status}-{row.code}")
def test_a_captured_error_response_with_http_200_is_the_same_error(row: Row, face: Any) -> None:
    sent: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"success": False, "errors": [{"message": row.text, "code": row.code}]})

    with pytest.raises(row.cls) as caught:
        face(refuse).chat(LLAMA, HI)
    is_the_error(caught.value, row, len(sent))


def thrown_forms(row: Row) -> list[str]:
    """Return the messages with which the binding may throw an error response."""
    gateway = {"name": "AiError", "internalCode": row.code, "httpCode": row.status, "message": row.text}
    return [
        f"{row.code}: {row.text}",
        f"InferenceUpstreamError: {row.code}: {row.text}",
        json.dumps({**gateway, "description": row.text}),
        f"AiError: {json.dumps(gateway)}",
    ]


def codeless_forms(row: Row) -> list[str]:
    """Return the messages with which the binding throws an error response without a code."""
    names = ["", "InferenceUpstreamError: ", "AiError: ", "InferenceUpstreamError: AiError: AiError: ", "undefined: "]
    return [f"{name}{row.text}" for name in names]


THROWN = [(row, text) for row in CAPTURED for text in thrown_forms(row)] + [
    (row, text) for row in CODELESS for text in codeless_forms(row)
]


@every_row(("row", "text"), THROWN)
def test_errors_thrown_by_the_binding(row: Row, text: str) -> None:
    calls: list[Any] = []

    class Binding:
        async def run(self, *call: Any) -> None:
            calls.append(call)
            raise RuntimeError(text)

    client = AsyncClient(binding=Binding(), retry=RetryPolicy(max_retries=2, base_s=0.0))
    with pytest.raises(errors.WorkersAIError) as caught:
        asyncio.run(client.chat(LLAMA, HI))
    is_the_error(caught.value, row, len(calls))


@pytest.mark.parametrize("status", [200, 500, 502])
@pytest.mark.parametrize("row", CODELESS, ids=lambda row: row.text[:20])
def test_an_error_without_a_code_has_the_message(row: Row, status: int, face: Any) -> None:
    sent: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(status, json={"success": False, "errors": [{"message": f"AiError: {row.text}"}]})

    with pytest.raises(row.cls) as caught:
        face(refuse).chat(LLAMA, HI)
    is_the_error(caught.value, row, len(sent))


MESSAGES = [
    (CLEF, IN_CLEF),
    ('{"object":"error","message":"no","code":400}', "no"),
    ('{"error":"no"}', "no"),
    ('{"errors":[{"message":"AiError: no","code":5006}]}', "no"),
    ('{"message":"no"}', "no"),
    ('{"detail":[{"loc":["a"],"msg":"no"}]}', "no"),
    ('{"error":{"message":"{\\"message\\":\\"no\\"}"}}', "no"),
    ('{"type":"error","error":{"type":"invalid_request_error","message":"AiError: no"}}', "no"),
    ('{"other": 1}', '{"other": 1}'),
    ("{not json", "{not json"),
    ("[]", "[]"),
]


@pytest.mark.parametrize(("text", "message"), MESSAGES)
def test_a_message_that_is_json_is_read(text: str, message: str) -> None:
    for body in ({"errors": [{"message": ai(text), "code": 8007}]}, f"8007: {ai(text)}", {"error": {"message": text}}):
        refusal = read_error(body)
        assert refusal is not None
        assert refusal.message == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": "BATCH_ERROR", "message": "5504: AiError: no"}, "no"),
        ({"code": "BATCH_ERROR", "message": "no"}, "no"),
        ({"error": {"code": "BATCH_ERROR", "message": "no"}}, "no"),
        ({"error": "no", "message": ""}, "no"),
        ({"error": "no", "message": None}, "no"),
    ],
)
def test_the_message_of_an_error_with_a_name_is_kept(body: Any, message: str) -> None:
    refusal = read_error(body, is_error=True)
    assert refusal is not None
    assert refusal.message == message


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
KEYS = st.sampled_from(
    ["errors", "error", "code", "message", "success", "result", "internalCode", "httpCode", "name", "object",
     "description", "detail", "details", "fieldErrors", "messages", "msg", "errors"]
)  # fmt: skip
ANY = st.recursive(
    SCALARS | st.sampled_from([CLEF, ai(CLEF), "3040: x", "AiError: error code: 1031"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=14,
)


@given(body=ANY, status=st.sampled_from([200, 400, 422, 429, 500, 599]))
def test_a_field_of_another_type_is_read_or_raises_a_typed_error(body: Any, status: int) -> None:
    settings = Settings.resolve(account_id="0" * 32, api_token="token")
    outcome = read_reply(httpx.Response(status, content=json.dumps(body)), LLAMA, settings)
    assert isinstance(outcome, errors.WorkersAIError | Reply)
    if isinstance(outcome, errors.WorkersAIError):
        assert str(outcome)
        assert isinstance(outcome.status_code, int)
    else:
        assert status == 200


@pytest.mark.parametrize("levels", [150, 600, 900, 5000])
def test_deeply_nested_errors_are_read_to_a_limited_depth(levels: int) -> None:
    settings = Settings.resolve(account_id="0" * 32, api_token="token")
    body = '{"error":' * levels + '"no"' + "}" * levels
    message = "no"
    for _ in range(8):
        message = json.dumps({"error": {"message": message}})
    for content in (body, message):
        outcome = read_reply(httpx.Response(400, content=content), LLAMA, settings)
        assert type(outcome) is errors.BadRequestError
