"""Error responses: rules 30 to 33 and the reports of group 7.

Not possible here: deciding by the HTTP status alone, as rule 32 does. After the daily allocation is exhausted,
a request would be sent three times.
"""

from __future__ import annotations

from typing import Any

from shapes import Refused

UUID = "40440429-4290-4404-8429-500404429404"


def ai(code: int | None, text: str, prefix: str = "AiError: ") -> dict[str, Any]:
    """Return the envelope of the inference layer."""
    entry: dict[str, Any] = {"message": f"{prefix}{text} ({UUID})"}
    return {"errors": [{**entry, "code": code} if code else entry], "success": False, "result": {}, "messages": []}


BUSY = "Capacity temporarily exceeded, please try again."
BAD_INPUT = "Bad input: Error: oneOf at '/' not met, 0 matches: Type mismatch of '/messages/1/content'"

REFUSED = [
    Refused("no capacity", "cloudflare/ai#593", 429, ai(3040, BUSY), "CapacityError", 3, "code 3040"),
    Refused(
        "no capacity, its old text",
        "errors page",
        429,
        ai(None, "No more data centers to forward the request to"),
        "CapacityError",
        3,
        "No more data centers",
    ),
    Refused(
        "no capacity, told how long",
        "cloudflare/ai#593",
        429,
        ai(3040, BUSY),
        "CapacityError",
        3,
        "code 3040",
        {"retry-after": "0"},
    ),
    Refused(
        "daily allocation, documented",
        "peers: retried as busy",
        429,
        ai(3036, "Account limited"),
        "QuotaExhaustedError",
        1,
        "renewed at",
    ),
    Refused(
        "daily allocation, as emitted",
        "peers: retried as busy",
        429,
        ai(4006, "you have used up your daily free allocation of 10,000 neurons"),
        "QuotaExhaustedError",
        1,
        "Workers Paid plan",
    ),
    Refused(
        "spending limit of the gateway",
        "gateway trace",
        429,
        {"success": False, "error": [{"code": 2041, "message": "Spend limit exceeded"}]},
        "QuotaExhaustedError",
        1,
        "code 2041",
    ),
    Refused(
        "limit per minute, told how long",
        "cloudflare/ai#657",
        429,
        ai(3021, "rate limiting: inference request per min rate reached"),
        "RateLimitError",
        3,
        "code 3021",
        {"retry-after": "0"},
    ),
    Refused(
        "limit of the API",
        "API limits page",
        429,
        ai(None, "Rate limited."),
        "RateLimitError",
        3,
        "HTTP 429",
        {"retry-after-ms": "1"},
    ),
    Refused(
        "paid plan",
        "errors page",
        403,
        ai(5035, "This model requires a Workers Paid plan. See pricing for details."),
        "PaidPlanRequiredError",
        1,
        "Workers Paid plan",
    ),
    Refused(
        "private model",
        "errors page",
        403,
        ai(5018, "The account is not allowed to access this model", "AiError: Ai: "),
        "PermissionDeniedError",
        1,
        "The account is not allowed",
    ),
    Refused(
        "retired",
        "cloudflare/cloudflare-docs#32501",
        410,
        ai(5028, "This model was deprecated on 2026-05-30. Please use an alternative model."),
        "ModelRetiredError",
        1,
        "deprecated on 2026-05-30",
    ),
    Refused(
        "retired, older trace",
        "wire trace",
        400,
        ai(5028, "This model was deprecated on 2026-05-30."),
        "ModelRetiredError",
        1,
        "code 5028",
    ),
    Refused(
        "no such model",
        "errors page",
        400,
        ai(5007, "No such model @cf/x or task"),
        "NotFoundError",
        1,
        "No such model",
    ),
    Refused("bad input", "cloudflare/ai#279", 400, ai(5006, BAD_INPUT), "BadRequestError", 1, "oneOf at '/' not met"),
    Refused(
        "bad input, errors as an object",
        "anomalyco/opencode#30381",
        400,
        {"errors": {"message": f"AiError: {BAD_INPUT}", "code": 5006}, "success": False, "result": {}, "messages": []},
        "BadRequestError",
        1,
        "code 5006",
    ),
    Refused(
        "bad input, from the binding",
        "cloudflare/workerd#2103",
        400,
        {"name": "AiError", "internalCode": 5006, "httpCode": 400, "message": "m", "description": "m"},
        "BadRequestError",
        1,
        "code 5006",
    ),
    Refused(
        "error as an object",
        "ferro-labs/ai-gateway#302",
        401,
        {"error": {"code": 401, "message": "m"}},
        "AuthenticationError",
        1,
        "HTTP 401",
    ),
    Refused("error as a text", "ferro-labs/ai-gateway#302", 400, {"error": "m"}, "BadRequestError", 1, "HTTP 400"),
    Refused(
        "tool parser missing",
        "cloudflare/ai#85",
        400,
        ai(3030, '"auto" tool choice requires --enable-auto-tool-choice'),
        "BadRequestError",
        1,
        '"auto" tool choice requires',
    ),
    Refused("any as a choice", "cloudflare/ai#454", 400, ai(8001, "Invalid input"), "BadRequestError", 1, "code 8001"),
    Refused(
        "forced tool with too few tokens",
        "cloudflare/ai#575",
        400,
        ai(8006, "tool call was cut"),
        "StructuredOutputError",
        1,
        "max_tokens",
    ),
    Refused(
        "JSON mode not met",
        "JSON mode page",
        400,
        ai(None, "JSON Mode couldn't be met"),
        "StructuredOutputError",
        1,
        "JSON Mode",
    ),
    Refused(
        "schema with a stream",
        "cloudflare/agents#1688",
        400,
        ai(5023, "JSON Schema mode is not supported with stream mode"),
        "StructuredOutputError",
        1,
        "code 5023",
    ),
    Refused(
        "context window",
        "wire trace",
        413,
        ai(
            5021,
            "The estimated number of input and maximum output tokens (155740) "
            "exceeded this model context window limit (128000).",
        ),
        "ContextWindowExceededError",
        1,
        "155740",
    ),
    Refused(
        "context window, from upstream",
        "wire trace",
        400,
        ai(
            8007,
            '{"object":"error","message":"This model\'s maximum context length is 24000 tokens.",'
            '"type":"BadRequestError","param":null,"code":400}',
            "AiError: AiError: ",
        ),
        "ContextWindowExceededError",
        1,
        "maximum context length is 24000 tokens",
    ),
    Refused(
        "request too large",
        "errors page",
        413,
        ai(3006, "Request is too large"),
        "RequestTooLargeError",
        1,
        "code 3006",
    ),
    Refused(
        "timeout inside the service",
        "cloudflare/ai#593",
        408,
        ai(3007, "Request timeout"),
        "RequestTimeoutError",
        3,
        "code 3007",
    ),
    Refused(
        "aborted inside the service",
        "cloudflare/ai#593",
        408,
        ai(3008, "Request was aborted"),
        "RequestTimeoutError",
        3,
        "code 3008",
    ),
    Refused(
        "server error", "wire trace", 500, ai(3043, "Internal server error"), "InternalServerError", 3, "code 3043"
    ),
    Refused(
        "server error with a uuid that holds 404",
        "wire trace",
        500,
        ai(None, "failed"),
        "InternalServerError",
        3,
        "HTTP 500",
    ),
    Refused(
        "edge page",
        "wire trace",
        522,
        "<html><title>522: Connection timed out</title></html>",
        "InternalServerError",
        3,
        "522: Connection timed out",
    ),
    Refused("empty body", "anomalyco/opencode#30381", 502, "", "InternalServerError", 3, "empty body"),
    Refused(
        "account token",
        "cloudflare/ai#250",
        401,
        {
            "errors": [{"code": 10000, "message": "Authentication error"}],
            "success": False,
            "result": None,
            "messages": [],
        },
        "AuthenticationError",
        1,
        "CLOUDFLARE_API_TOKEN",
    ),
    Refused(
        "gateway token",
        "cloudflare/cloudflare-docs#31050",
        401,
        {
            "success": False,
            "result": [],
            "error": [{"code": 2009, "message": "Unauthorized"}],
            "name": "AiGatewayError",
        },
        "AuthenticationError",
        1,
        "GatewayOptions",
    ),
    Refused(
        "no route",
        "anomalyco/opencode#18552",
        404,
        {
            "success": False,
            "errors": [
                {
                    "code": 7003,
                    "message": "Could not route to /client/v4/accounts/token-of-the-tests-0123456789, "
                    "perhaps your object identifier is invalid?",
                },
                {"code": 7000, "message": "No route for that URI"},
            ],
            "messages": [],
            "result": None,
        },
        "NotFoundError",
        1,
        "CLOUDFLARE_ACCOUNT_ID",
    ),
    Refused("a success that failed", "API-wide", 200, ai(3040, BUSY), "CapacityError", 3, "code 3040"),
    Refused(
        "a success that failed, no code",
        "langchain-cloudflare",
        200,
        {"success": False, "result": None, "errors": [], "messages": []},
        "APIResponseValidationError",
        1,
        "HTTP 200",
    ),
]
