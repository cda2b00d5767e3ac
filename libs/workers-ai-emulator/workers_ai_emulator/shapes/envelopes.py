"""Envelopes of results and errors.

Errors of the model service, of the API in front of it and of the AI Gateway have different forms; see
https://github.com/cloudflare/ai/issues/279 for the first, https://github.com/anomalyco/opencode/issues/23773
for the second. Only the Responses route returns OpenAI error objects.
"""

from __future__ import annotations

from workers_ai_emulator.wire import JSON_TYPE, Envelope, Json, Reply, ServiceError, dumps, json_reply

MARK = "x-workers-ai-emulator"
"""Header that every reply of the emulator has."""

_TWICE = {3021, 3036, 3046, 4006, 5021, 5504, 8001, 8006, 8007}
_OPENAI_CODES = {429: "rate_limit_exceeded"}


def success(result: object) -> Json:
    """Return the envelope of a result."""
    return {"result": result, "success": True, "errors": [], "messages": []}


def error_body(error: ServiceError, request_id: str, envelope: Envelope = "") -> Json:
    """Return the body of an error response.

    Args:
        error: The error.
        request_id: Uuid that the model service puts at the end of the text.
        envelope: ``object`` (``errors`` as one object), ``binding`` (as in a gateway log) or ``openai`` (the Responses
            route). Empty for the envelope of the error's layer.
    """
    if envelope == "binding":
        return {
            "internalCode": error.code,
            "httpCode": error.status,
            "name": "AiError",
            "message": error.message,
            "description": error.message,
        }
    if error.layer == "gateway":
        return {
            "success": False,
            "result": [],
            "messages": [],
            "error": [{"code": error.code, "message": error.message}],
            "name": "AiGatewayError",
            "httpCode": error.status,
            "internalCode": error.code,
        }
    if envelope == "openai" and error.layer == "ai":
        code = "server_error" if error.status >= 500 else _OPENAI_CODES.get(error.status, "invalid_prompt")
        return {"error": {"code": code, "message": message_of(error, request_id)}}
    item: Json = {"message": message_of(error, request_id), "code": error.code}
    if error.code is None:
        item.pop("code")
    if error.layer == "api":
        return {"success": False, "errors": [item], "messages": [], "result": None}
    return {
        "errors": item if envelope == "object" else [item],
        "success": False,
        "result": {},
        "messages": [],
    }


def message_of(error: ServiceError, request_id: str) -> str:
    """Return the text of an error with the service's prefix and suffix."""
    if error.layer != "ai" or error.raw:
        return error.message
    prefix = "AiError: AiError: " if error.code in _TWICE else "AiError: "
    return f"{prefix}{error.message} ({request_id})"


def error_response(error: ServiceError, request_id: str, envelope: Envelope = "") -> Reply:
    """Return an error response."""
    headers = {"content-type": JSON_TYPE, **error.headers}
    return Reply(error.status, headers, dumps(error_body(error, request_id, envelope)))


def edge_page(status: int) -> Reply:
    """Return an HTML error page of Cloudflare's edge."""
    names = {
        520: "Web server is returning an unknown error",
        522: "Connection timed out",
        524: "A timeout occurred",
    }
    title = f"{status}: {names.get(status, 'Error')}"
    head = f"<head><title>api.cloudflare.com | {title}</title></head>"
    page = f"<!DOCTYPE html>\n<html>{head}<body><h1>{title}</h1></body></html>\n"
    return Reply(status, {"content-type": "text/html; charset=UTF-8"}, page.encode())


def not_emulated(missing: str) -> Reply:
    """Return status 501 for a part of the service that is not emulated."""
    error = {"code": 501, "message": f"Not emulated: {missing}"}
    return json_reply({"result": None, "success": False, "errors": [error], "messages": []}, 501)
