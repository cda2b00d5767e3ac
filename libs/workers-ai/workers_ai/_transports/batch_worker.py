"""A transport that uses a deployed batch Worker as the queue, in place of the REST route.

The Worker has two routes, ``POST /batch`` and ``GET /batch/{id}`` (see :mod:`workers_ai._wire.batch_worker`). Its
errors have the form ``{"error": {"code", "message"}}``: ``INVALID_BODY`` and ``INVALID_REQUEST_ID`` with HTTP 400,
``BATCH_ERROR`` with 502 and the text that the binding threw.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import httpx
from pydantic import SecretStr
from pydantic_core import to_json

from workers_ai._transports.bodies import ParsedResponse
from workers_ai._transports.http import HttpTransport, parsed
from workers_ai._validation import require
from workers_ai._wire.batch import batch_entries
from workers_ai._wire.batch_worker import (
    check_live,
    check_model,
    group_responses,
    is_submission,
    job_id_with_sizes,
    rejects_model_field,
    request_sizes,
    to_worker,
)
from workers_ai._wire.chat.reply import unwrap
from workers_ai._wire.error_mapping import read_error, usual_status

if TYPE_CHECKING:
    from workers_ai._settings.settings import Settings
    from workers_ai._wire.json_types import JSON
    from workers_ai._wire.request import Request

__all__ = ["BatchWorkerTransport"]

_BODY_HEADERS: Final = ("content-encoding", "content-length", "transfer-encoding")
_ERROR_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_ACCESS_STATUSES: Final = (401, 403, 404, 405)
_HINT: Final = "Check the URL and headers of batch_worker=."


class BatchWorkerTransport:
    """Send queue requests to the Worker, and all others to the service.

    The Worker receives its own headers, and never the API token. Without an account, only the queue can be used.

    Args:
        settings: Settings with a ``batch_worker``.
        http_client: The user's own sync client, used for both.
        http_async_client: The user's own async client, used for both.
    """

    def __init__(
        self,
        settings: Settings,
        http_client: httpx.Client | None = None,
        http_async_client: httpx.AsyncClient | None = None,
    ) -> None:
        self._settings = _worker_settings(settings)
        self._worker = HttpTransport(self._settings, http_client, http_async_client)
        self._sends_model = True
        self._has_account = bool(settings.account_id)
        self._service = HttpTransport(settings, http_client, http_async_client)

    def send(self, request: Request, stream: bool) -> httpx.Response:
        """Send one request.

        Raises:
            ConfigurationError: A queued request is not an embedding request, or a direct request has no account
                (nothing was sent); or the Worker uses another model, or is in demo mode.
        """
        if not self._is_for_worker(request):
            return self._service.send(request, stream)
        reply = self._worker.send(to_worker(request, with_model=self._sends_model), False)
        if self._is_strict(request, reply):
            reply = self._remember_strict(self._worker.send(to_worker(request, with_model=False), False))
        return self._read(request, reply)

    async def asend(self, request: Request, stream: bool) -> httpx.Response:
        """Send one request; see :meth:`send`."""
        if not self._is_for_worker(request):
            return await self._service.asend(request, stream)
        reply = await self._worker.asend(to_worker(request, with_model=self._sends_model), False)
        if self._is_strict(request, reply):
            reply = self._remember_strict(await self._worker.asend(to_worker(request, with_model=False), False))
        return self._read(request, reply)

    def _is_strict(self, request: Request, reply: httpx.Response) -> bool:
        """Return whether the Worker rejected the submission because of the field ``model``."""
        if not self._sends_model or not is_submission(request) or reply.is_success:
            return False
        refusal = read_error(_parsed(reply), is_error=True)
        return refusal is not None and rejects_model_field(reply.status_code, refusal.message)

    def _remember_strict(self, reply: httpx.Response) -> httpx.Response:
        self._sends_model = not reply.is_success
        return reply

    def _is_for_worker(self, request: Request) -> bool:
        require(
            request.task == "queue" or self._has_account,
            "a batch Worker serves only the queue: other calls require account_id and api_token (CLOUDFLARE_ACCOUNT_ID "
            "and CLOUDFLARE_API_TOKEN)",
        )
        return request.task == "queue"

    def _read(self, request: Request, reply: httpx.Response) -> httpx.Response:
        """Convert a reply of the Worker to one of the service."""
        data = _parsed(reply)
        result = unwrap(data)
        if not reply.is_success or not isinstance(result, dict):
            return self._rejected(reply, data)
        check_live(data)
        sizes = request_sizes(request)
        if is_submission(request):
            check_model(request.model, result)
            if request_id := result.get("request_id"):
                return _with_body(reply, {**result, "request_id": job_id_with_sizes(str(request_id), sizes)})
        entries = batch_entries(result)
        if entries is None:
            return reply
        if not sizes:
            return _with_body(reply, data)
        grouped = group_responses(entries, sizes, request.model)
        return _with_body(reply, data if grouped is None else {**result, "responses": grouped, "results": None})

    def _rejected(self, reply: httpx.Response, data: JSON) -> httpx.Response:
        """Return an error response with the URL of the Worker, and with the code and status of the service if known."""
        refusal = read_error(data, is_error=True)
        text = refusal.message if refusal else f"HTTP {reply.status_code} without a reason"
        if (name := _error_name(data)) and name != text:
            text = f"{name}: {text}"
        if refusal and refusal.request_id:
            text = f"{text} ({refusal.request_id})"
        message = f"the batch Worker {self._settings.base_url}: {text}"
        code = refusal and refusal.code
        body: JSON = {"success": False, "errors": [{"code": code, "message": message}]}
        return ParsedResponse(
            usual_status(code, reply.status_code),
            _headers(reply),
            body,
            content=to_json(body),
            hint=_HINT if reply.status_code in _ACCESS_STATUSES else "",
        )

    def close(self) -> None:
        """Close the sync clients that were created here."""
        self._worker.close()
        self._service.close()

    async def aclose(self) -> None:
        """Close the async clients of the running event loop that were created here."""
        await self._worker.aclose()
        await self._service.aclose()


def _worker_settings(settings: Settings) -> Settings:
    """Return the settings of requests to the Worker: its URL and headers, without the account."""
    assert settings.batch_worker is not None
    return replace(
        settings,
        account_id="",
        api_token=SecretStr(""),
        token_from_env=False,
        base_url=settings.batch_worker.url,
        gateway=None,
        session_id=None,
        default_headers=settings.batch_worker.headers,
        batch_worker=None,
    )


def _parsed(reply: httpx.Response) -> JSON:
    """Return the body; None if it is not JSON."""
    try:
        return parsed(reply)
    except ValueError:
        return None


def _error_name(data: JSON) -> str | None:
    """Return the name of an error, such as ``BATCH_ERROR``, from any known field."""
    error = data.get("error") if isinstance(data, dict) else None
    names = [error, *(facts.get("code") for facts in (error, data) if isinstance(facts, dict))]
    return next((name for name in names if isinstance(name, str) and _ERROR_NAME.fullmatch(name)), None)


def _with_body(reply: httpx.Response, body: JSON) -> httpx.Response:
    return ParsedResponse(reply.status_code, _headers(reply), body)


def _headers(reply: httpx.Response) -> list[tuple[str, str]]:
    return [(name, value) for name, value in reply.headers.multi_items() if name not in _BODY_HEADERS]
