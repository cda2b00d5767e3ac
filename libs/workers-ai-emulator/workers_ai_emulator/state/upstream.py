"""An OpenAI-compatible server that answers chat and embeddings in place of the fake model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from workers_ai_emulator.wire import ServiceError

if TYPE_CHECKING:
    from workers_ai_emulator.wire import Json

_TIMEOUT_S = 600.0
_CHAT_KEYS = (
    "messages",
    "tools",
    "tool_choice",
    "response_format",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "frequency_penalty",
    "presence_penalty",
    "parallel_tool_calls",
    "reasoning_effort",
    "chat_template_kwargs",
)


class Upstream:
    """HTTP client of the upstream. Calls block the thread, also for async requests.

    Args:
        url: Base URL up to and including ``/v1``.
        chat_model: Chat model of the upstream; None for the model of the request.
        embedding_model: Embedding model of the upstream; None for the model of the request.
        transport: Transport of the HTTP client; None for the network.
        api_key: Bearer token; None for no token.
    """

    def __init__(
        self,
        url: str,
        chat_model: str | None = None,
        embedding_model: str | None = None,
        transport: httpx.BaseTransport | None = None,
        *,
        api_key: str | None = None,
    ) -> None:
        self._chat_model = chat_model
        self._embedding_model = embedding_model
        self._api_key = api_key
        headers = {"authorization": f"Bearer {api_key}"} if api_key else None
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_S, transport=transport, headers=headers)

    def chat(self, model: str, body: Json) -> Json:
        """Return the upstream's ``chat.completion`` for a chat body.

        Raises:
            ServiceError: 8007 with the upstream's text if it rejects the request, 8008 if it fails.
        """
        sent: Json = {key: body[key] for key in _CHAT_KEYS if body.get(key) is not None}
        if "messages" not in sent:
            sent["messages"] = [{"role": "user", "content": body.get("prompt", "")}]
        answer: Json = self._post("/chat/completions", {**sent, "model": self._chat_model or model})
        return answer

    def embed(self, model: str, texts: list[str]) -> list[list[float]]:
        """Return the upstream's vectors, in the order of the texts.

        Raises:
            ServiceError: Like :meth:`chat`.
        """
        answer = self._post("/embeddings", {"model": self._embedding_model or model, "input": texts})
        rows = sorted(answer["data"], key=lambda row: row["index"])
        return [row["embedding"] for row in rows]

    def close(self) -> None:
        """Close the HTTP client."""
        self._http.close()

    def _post(self, path: str, body: Json) -> Any:
        try:
            reply = self._http.post(path, json=body)
        except httpx.TransportError as error:
            raise ServiceError(502, 8008, f"The upstream did not answer ({error}): check its URL") from None
        waits = {name: reply.headers[name] for name in ("retry-after",) if name in reply.headers}
        if reply.is_client_error:
            raise ServiceError(reply.status_code, 8007, self._without_key(reply.text), headers=waits)
        if not reply.is_success:
            status = reply.status_code if reply.is_server_error else 502
            raise ServiceError(status, 8008, f"The upstream failed with status {reply.status_code}", headers=waits)
        try:
            return reply.json()
        except ValueError:
            raise ServiceError(502, 8008, "The upstream's reply is not JSON: check its URL") from None

    def _without_key(self, text: str) -> str:
        return text.replace(self._api_key, "REDACTED") if self._api_key else text
