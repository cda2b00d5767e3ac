"""Answer questions from a Python Worker, through its AI binding: no account id and no token.

    curl https://answers.example.workers.dev -d '{"question": "Why is the sky blue?"}'

Save this file as ``src/entry.py`` beside a ``wrangler.jsonc``, list ``workers-ai`` in ``pyproject.toml``, and run
``uv run pywrangler dev``::

    {
        "name": "answers",
        "main": "src/entry.py",
        "compatibility_date": "2026-10-01",
        "compatibility_flags": ["python_workers"],
        "ai": {"binding": "AI"}
    }
"""

from __future__ import annotations

from http import HTTPStatus

from pydantic import BaseModel, Field, ValidationError
from workers import Request, Response, WorkerEntrypoint  # pyright: ignore[reportMissingImports]

from workers_ai import AsyncClient
from workers_ai.errors import RateLimitError, WorkersAIError

MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
RETRY_AFTER_S = 5


class Question(BaseModel):
    """The body of a request."""

    question: str = Field(min_length=1, max_length=4_000)


class Default(WorkerEntrypoint):
    """The Worker."""

    async def fetch(self, request: Request) -> Response:
        """Answer ``{"question": ...}`` with ``{"answer": ..., "tokens": ...}``, or with ``{"error": ...}``."""
        if request.method != "POST":
            return failure(HTTPStatus.METHOD_NOT_ALLOWED, "send a POST request", Allow="POST")
        try:
            question = Question.model_validate_json(await request.text()).question
        except ValidationError as error:
            return failure(HTTPStatus.BAD_REQUEST, error.errors()[0]["msg"])
        client = AsyncClient(binding=self.env.AI, on_busy="raise", timeout=30)
        try:
            reply = await client.chat(MODEL, [{"role": "user", "content": question}], max_tokens=500)
        except RateLimitError as error:  # at capacity, too many requests, or the daily allocation is used up
            wait_s = round(error.retry_after or RETRY_AFTER_S)
            return failure(HTTPStatus.SERVICE_UNAVAILABLE, type(error).__name__, **{"Retry-After": str(wait_s)})
        except WorkersAIError as error:
            return failure(HTTPStatus.BAD_GATEWAY, type(error).__name__)
        return Response.from_json({"answer": reply.text, "tokens": reply.usage.total_tokens if reply.usage else None})


def failure(status: HTTPStatus, message: str, **headers: str) -> Response:
    """Return an error response."""
    return Response.from_json({"error": message}, status=status, headers={"Cache-Control": "no-store", **headers})
