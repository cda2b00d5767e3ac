"""Every envelope, code and status has one typed error, readable and without secrets."""

from __future__ import annotations

import copy
import datetime as dt
import json
import pickle
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.support import every_row

from workers_ai import Client
from workers_ai import errors as e
from workers_ai._calls.replies import read_reply
from workers_ai._settings.settings import GatewayOptions, Settings
from workers_ai._wire.error_mapping import error_from_reply
from workers_ai.batch import BatchJob

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
UUID = "40440429-4290-4404-8429-500404429404"

# (code, HTTP status on the wire, class, retryable). The documented codes are listed at
# https://developers.cloudflare.com/workers-ai/platform/errors/, the others are in public traces.
CODES = [
    (5007, 400, e.NotFoundError, False),
    (5004, 400, e.BadRequestError, False),
    (3039, 400, e.BadRequestError, False),
    (3003, 400, e.BadRequestError, False),
    (5018, 403, e.PermissionDeniedError, False),
    (5016, 403, e.PermissionDeniedError, False),
    (3023, 403, e.PermissionDeniedError, False),
    (3041, 403, e.PermissionDeniedError, False),
    (5035, 403, e.PaidPlanRequiredError, False),
    (5019, 405, e.BadRequestError, False),
    (5005, 405, e.BadRequestError, False),
    (3042, 404, e.NotFoundError, False),
    (3006, 413, e.RequestTooLargeError, False),
    (3007, 408, e.RequestTimeoutError, True),
    (3008, 408, e.RequestTimeoutError, True),
    (3036, 429, e.QuotaExhaustedError, False),
    (3040, 429, e.CapacityError, True),
    # recorded, not documented
    (1000, 500, e.InternalServerError, True),
    (1001, 400, e.BadRequestError, False),
    (1031, 400, e.BadRequestError, False),
    (3010, 413, e.ContextWindowExceededError, False),
    (3021, 429, e.RateLimitError, True),
    (3030, 400, e.BadRequestError, False),
    (3043, 500, e.InternalServerError, True),
    (3046, 408, e.RequestTimeoutError, True),
    (3050, 503, e.InternalServerError, True),
    (4006, 429, e.QuotaExhaustedError, False),
    (5001, 500, e.InternalServerError, True),
    (5006, 400, e.BadRequestError, False),
    (5021, 413, e.ContextWindowExceededError, False),
    (5023, 400, e.StructuredOutputError, False),
    (5025, 400, e.StructuredOutputError, False),
    (5028, 410, e.ModelRetiredError, False),
    (5028, 400, e.ModelRetiredError, False),
    (6002, 404, e.NotFoundError, False),
    (8001, 400, e.BadRequestError, False),
    (8006, 400, e.StructuredOutputError, False),
    (8007, 400, e.BadRequestError, False),
    (8008, 500, e.InternalServerError, True),
    (10063, 400, e.BadRequestError, False),
    # the API in front of the service, and AI Gateway
    (10000, 401, e.AuthenticationError, False),
    (10000, 400, e.AuthenticationError, False),
    (9109, 403, e.AuthenticationError, False),
    (6003, 400, e.BadRequestError, False),
    (7000, 404, e.NotFoundError, False),
    (7003, 404, e.NotFoundError, False),
    (7003, 400, e.NotFoundError, False),
    (7001, 405, e.BadRequestError, False),
    (7009, 502, e.InternalServerError, True),
    (2008, 400, e.BadRequestError, False),
    (2009, 401, e.AuthenticationError, False),
    (2016, 424, e.BadRequestError, False),
    (2017, 424, e.BadRequestError, False),
    (2003, 429, e.RateLimitError, True),
    (2018, 429, e.RateLimitError, True),
    (2021, 402, e.PermissionDeniedError, False),
    (2036, 403, e.PermissionDeniedError, False),
    (2040, 400, e.BadRequestError, False),
    (2041, 429, e.QuotaExhaustedError, False),
]

STATUSES = [
    (302, e.BadRequestError, False),
    (400, e.BadRequestError, False),
    (401, e.AuthenticationError, False),
    (402, e.PermissionDeniedError, False),
    (403, e.PermissionDeniedError, False),
    (404, e.NotFoundError, False),
    (405, e.BadRequestError, False),
    (408, e.RequestTimeoutError, True),
    (409, e.APIStatusError, True),
    (410, e.ModelRetiredError, False),
    (413, e.RequestTooLargeError, False),
    (415, e.BadRequestError, False),
    (418, e.BadRequestError, False),
    (422, e.BadRequestError, False),
    (429, e.RateLimitError, True),
    (500, e.InternalServerError, True),
    (502, e.InternalServerError, True),
    (503, e.InternalServerError, True),
    (504, e.InternalServerError, True),
    (520, e.InternalServerError, True),
    (522, e.InternalServerError, True),
    (524, e.InternalServerError, True),
    (530, e.InternalServerError, True),
]


@pytest.fixture
def settings(account: dict[str, Any]) -> Settings:
    return Settings.resolve(**account)


@pytest.fixture
def read(settings: Settings) -> Any:
    """Return a function that reads a reply as a call does."""

    def read(status: int, body: Any, headers: dict[str, str] | None = None) -> Any:
        content = body if isinstance(body, (str, bytes)) else json.dumps(body)
        return read_reply(httpx.Response(status, content=content, headers=headers), MODEL, settings)

    return read


def envelope(code: int | None, text: str = "no") -> dict[str, Any]:
    entry: dict[str, Any] = {"message": f"AiError: {text} ({UUID})"}
    if code is not None:
        entry["code"] = code
    return {"errors": [entry], "success": False, "result": {}, "messages": []}


@every_row(("code", "status", "cls", "retryable"), CODES)
def test_each_code_has_its_class(code: int, status: int, cls: type, retryable: bool, read: Any) -> None:
    error = read(status, envelope(code))
    assert type(error) is cls
    assert (error.code, error.status_code, error.is_retryable, error.model) == (code, status, retryable, MODEL)


@every_row(("status", "cls", "retryable"), STATUSES)
@every_row("code", [None, 99999])
def test_without_a_known_code_the_status_decides(
    status: int, cls: type, retryable: bool, code: int | None, read: Any
) -> None:
    error = read(status, envelope(code))
    assert type(error) is cls
    assert (error.code, error.status_code, error.is_retryable) == (code, status, retryable)


ENVELOPES = {
    "errors as a list": {"errors": [{"code": 5006, "message": "AiError: m"}], "success": False, "result": {}},
    "errors as an object": {"errors": {"code": 5006, "message": "AiError: m"}, "success": False, "result": {}},
    "code as text": {"errors": [{"code": "5006", "message": "m"}], "success": False},
    "gateway, error as a list": {"success": False, "result": [], "error": [{"code": 5006, "message": "m"}]},
    "error as an object": {"error": {"code": 5006, "message": "m"}},
    "binding": {"name": "AiError", "internalCode": 5006, "httpCode": 400, "message": "m", "description": "d"},
    "binding, no message": {"name": "AiError", "internalCode": 5006, "httpCode": 400, "description": "m"},
    "code in the text": {"error": "5006: m"},
    "code after prefixes": {"errors": [{"message": "AiError: Error: 5006: AiError: m"}], "success": False},
    "text alone": "5006: AiError: Ai: m",
    "a validation list as message": {"errors": [{"code": 5006, "message": '[{"loc": ["body"], "msg": "m"}]'}]},
    "several": {"errors": [{"code": 5006, "message": "m"}, {"code": 7000, "message": "n"}], "success": False},
    "prefix twice": {"errors": [{"code": 5006, "message": f"AiError: AiError: m ({UUID})"}], "success": False},
}


@every_row("body", ENVELOPES.values())
def test_code_and_message_are_read_from_every_envelope(body: Any, read: Any) -> None:
    error = read(400, body)
    assert type(error) is e.BadRequestError
    assert (error.code, error.message) == (5006, "m")


def test_an_http_status_is_not_read_as_a_code(read: Any) -> None:
    error = read(401, {"error": {"code": 401, "message": "m"}})
    assert type(error) is e.AuthenticationError
    assert (error.code, error.status_code, error.message) == (None, 401, "m")


@every_row("body", [{"error": "m"}, {"message": "m", "success": False}, "m"])
def test_a_bare_message_is_kept(body: Any, read: Any) -> None:
    assert read(400, body).message == "m"


def test_numbers_in_the_uuid_are_not_read_as_a_status_and_the_uuid_becomes_the_request_id(read: Any) -> None:
    error = read(500, envelope(None, "failed"))
    assert type(error) is e.InternalServerError
    assert (error.message, error.code, error.request_id) == ("failed", None, UUID)


def test_a_text_that_begins_with_another_number_keeps_it(read: Any) -> None:
    assert read(400, {"errors": [{"code": 5006, "message": "2026: no such year"}]}).message == "2026: no such year"


NARROWED = [
    (400, 3030, "Max context reached 82800 tokens but model supports only 60000", e.ContextWindowExceededError),
    (
        400,
        8007,
        '{"object":"error","message":"This model\'s maximum context length is 24000 tokens.","code":400}',
        e.ContextWindowExceededError,
    ),
    (413, None, "exceeded this model context window limit (128000).", e.ContextWindowExceededError),
    (400, None, "JSON Mode couldn't be met", e.StructuredOutputError),
    (500, None, "JSON Mode couldn\u2019t be met", e.StructuredOutputError),
    (429, None, "you have used up your daily free allocation of 10,000 neurons", e.QuotaExhaustedError),
    (429, None, "No more data centers to forward the request to", e.CapacityError),
    (429, None, "Capacity temporarily exceeded, please try again.", e.CapacityError),
    (403, None, "This model requires a Workers Paid plan.", e.PaidPlanRequiredError),
    (400, None, "This model was deprecated on 2026-05-30. Please use an alternative", e.ModelRetiredError),
    (429, None, "Rate limited.", e.RateLimitError),
    (400, 3030, "Your output has been flagged", e.BadRequestError),
    (413, 3006, "Request is too large", e.RequestTooLargeError),
]


@every_row(("status", "code", "text", "cls"), NARROWED)
def test_error_texts_that_outrank_code_and_status(
    status: int, code: int | None, text: str, cls: type, read: Any
) -> None:
    assert type(read(status, envelope(code, text))) is cls


def test_the_upstreams_own_error_is_read_out_of_code_8007(read: Any) -> None:
    text = '{"object":"error","message":"System message must be at the beginning.","code":400}'
    assert read(400, envelope(8007, f"AiError: {text}")).message == "System message must be at the beginning."


def test_a_2xx_response_that_reports_an_error_raises(read: Any) -> None:
    busy = read(200, envelope(3040, "Capacity temporarily exceeded, please try again."))
    assert type(busy) is e.CapacityError
    assert busy.status_code == 429
    unknown = read(200, {"success": False, "errors": [], "result": None})
    assert type(unknown) is e.APIResponseValidationError
    without_flag = read(200, {"errors": [{"code": 3040, "message": "m"}], "result": {}})
    assert type(without_flag) is e.CapacityError


@every_row(
    ("body", "message"),
    [
        ("", "HTTP 200 with an empty body"),
        ("  \n", "HTTP 200 with an empty body"),
        ("<html><title>Sign in</title></html>", "HTTP 200 with a body that is not JSON"),
        (b'{"result": "\xff', "HTTP 200 with a body that is not JSON"),
    ],
)
def test_a_success_without_json_is_a_validation_error(body: Any, message: str, read: Any) -> None:
    error = read(200, body)
    assert type(error) is e.APIResponseValidationError
    assert error.message == message


@pytest.mark.parametrize("status", [403, 429, 503])
def test_a_challenge_page_is_not_retried(status: int, read: Any) -> None:
    error = read(status, "<title>Just a moment...</title>", {"cf-mitigated": "challenge"})
    assert (type(error), error.status_code, error.is_retryable) == (e.PermissionDeniedError, status, False)


def test_an_edge_page_becomes_one_line(read: Any) -> None:
    page = "<html><head><title>example.com |\n 522: Connection timed out</title></head><body>long</body></html>"
    error = read(522, page, {"cf-ray": "8a1-AMS"})
    assert error.message == "example.com | 522: Connection timed out"
    assert str(error).startswith(error.message)
    assert read(500, "").message == "HTTP 500 with an empty body"
    assert len(read(500, "x" * 5000).message) == 300


def test_the_text_is_one_line_with_model_status_code_ray_and_remedy(read: Any) -> None:
    error = read(400, envelope(5028, "This model\n was  deprecated."), {"cf-ray": "8a1-AMS", "cf-aig-log-id": "log1"})
    text = str(error)
    assert "\n" not in text
    assert text.startswith(
        f"This model was deprecated (model {MODEL}, HTTP 400, code 5028, ray 8a1-AMS, gateway log log1). "
    )
    assert (error.ray_id, error.gateway_log_id, error.request_id) == ("8a1-AMS", "log1", UUID)


@every_row(
    ("status", "code", "names"),
    [
        (401, 10000, "CLOUDFLARE_API_TOKEN"),
        (401, 2009, "GatewayOptions(id, token=...)"),
        (404, 7003, "CLOUDFLARE_ACCOUNT_ID"),
        (403, 5035, "Workers Paid plan"),
        (413, 5021, "max_tokens"),
        (400, 8006, "max_tokens"),
        (429, 3040, "asynchronous queue"),
        (429, 3036, "renewed at"),
    ],
)
def test_the_text_has_the_remedy(status: int, code: int, names: str, read: Any) -> None:
    assert names in str(read(status, envelope(code)))


def test_the_daily_allocation_is_renewed_at_the_next_midnight_utc() -> None:
    now = dt.datetime(2026, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    for code in (3036, 4006):
        error = error_from_reply(429, {}, "", body=envelope(code), now=lambda: now)
        assert isinstance(error, e.QuotaExhaustedError)
        assert error.resets_at == dt.datetime(2027, 1, 1, tzinfo=dt.UTC)
        assert "2027-01-01 00:00 UTC" in str(error)
    spending_limit = error_from_reply(429, {}, "", body=envelope(2041), now=lambda: now)
    assert spending_limit.resets_at is None  # type: ignore[attr-defined]


def test_the_error_of_a_retired_model_contains_its_successor() -> None:
    error = error_from_reply(410, {}, "", model="@cf/old", body=envelope(5028), successor={"@cf/old": "@cf/new"}.get)
    assert error.successor == "@cf/new"  # type: ignore[attr-defined]
    assert "Use @cf/new instead." in str(error)
    unknown = error_from_reply(410, {}, "", model="@cf/odd", body=envelope(5028), successor={}.get)
    assert "https://developers.cloudflare.com/workers-ai/models/" in str(unknown)


def all_errors() -> list[e.WorkersAIError]:
    classes = [getattr(e, name) for name in e.__all__ if name not in ("ErrorResponse", "BatchItemError")]
    return [cls("what happened") for cls in classes] + [e.BatchItemError("bad item", index=3, code=5006)]


@every_row("error", all_errors())
def test_every_class_pickles_and_copies_with_all_fields(error: e.WorkersAIError) -> None:
    error.attempts, error.partial, error.retry_after = 3, "half", 1.5
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert (str(twin), twin.__dict__) == (str(error), error.__dict__)


@every_row("error", all_errors())
def test_built_in_bases_agree_with_is_retryable(error: e.WorkersAIError) -> None:
    builtin = isinstance(error, (ValueError, RuntimeError, LookupError, OSError))
    plain = type(error) in (e.WorkersAIError, e.APIStatusError)
    assert builtin is not error.is_retryable or plain
    assert not isinstance(error, TimeoutError)


def test_an_error_pickles_with_its_response(read: Any) -> None:
    error = read(429, envelope(3040, "busy"), {"cf-ray": "r", "retry-after": "3", "set-cookie": "s=1"})
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.retry_after, twin.response, twin.body) == (3.0, error.response, error.body)
    assert twin.response.json()["errors"][0]["code"] == 3040
    assert "set-cookie" not in twin.response.headers


ECHO = "token-of-the-tests-0123456789 gateway-secret header-secret"
NO_ANSWER = {"result": {"echo": ECHO}, "success": True}
FAILED_ITEM = {"responses": [{"id": 0, "success": False, "error": ECHO}]}
HI = [{"role": "user", "content": "hi"}]
JOB = BatchJob("id", MODEL, 1)


@every_row(
    ("call", "reply"),
    [
        (lambda client: client.chat(MODEL, HI), NO_ANSWER),
        (lambda client: list(client.stream_chat(MODEL, HI)), NO_ANSWER),
        (lambda client: client.embed(MODEL, ["a"]), NO_ANSWER),
        (lambda client: client.rerank(MODEL, "q", ["a"]), NO_ANSWER),
        (lambda client: client.models(), NO_ANSWER),
        (lambda client: client.batch.submit(MODEL, [{"text": ["a"]}]), NO_ANSWER),
        (lambda client: client.batch.poll(JOB), NO_ANSWER),
        (lambda client: client.batch.poll(JOB).items[0].error, FAILED_ITEM),
        (lambda client: client.batch.run(MODEL, [{"text": ["a"]}])[0].error, FAILED_ITEM),
    ],
)
def test_no_error_shows_a_secret_that_a_reply_without_an_answer_repeats(
    call: Callable[[Client], Any], reply: Any, account: dict[str, Any]
) -> None:
    client = Client(
        **account,
        gateway=GatewayOptions("gw", token="gateway-secret"),
        default_headers={"x-key": "header-secret"},
        http_client=httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json=reply))),
    )
    try:
        error = call(client)
    except e.WorkersAIError as exc:
        error = exc
    shown = repr((str(error), error.args, error.__dict__, pickle.dumps(error)))
    assert "[redacted] [redacted] [redacted]" in shown
    for secret in ECHO.split():
        assert secret not in shown


def test_no_secret_is_left_in_any_part_of_an_error(account: dict[str, Any]) -> None:
    settings = Settings.resolve(
        **account,
        gateway=GatewayOptions("gw", token="gateway-secret"),
        default_headers={"x-key": "Bearer header-secret", "x-flag": "false", "x-n": "7003"},
    )
    text = "no route /accounts/token-of-the-tests-0123456789 gateway-secret header-secret"
    body = {**envelope(7003, text), "echo": {"token-of-the-tests-0123456789": ["Bearer header-secret"]}}
    error = read_reply(httpx.Response(404, json=body), MODEL, settings)
    assert isinstance(error, e.NotFoundError)
    assert error.code == 7003
    shown = repr((str(error), error.args, error.__dict__, error.response))
    for secret in ("token-of-the-tests", "gateway-secret", "header-secret"):
        assert secret not in shown
    assert error.body["success"] is False
    page = read_reply(httpx.Response(200, text=f"<p>{text}"), MODEL, settings)
    assert "gateway-secret" not in repr(page.__dict__)  # type: ignore[union-attr]
