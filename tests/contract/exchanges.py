"""The cassettes of published exchanges: source, request and expected value, written by hand.

A name is a file of ``cassettes/documented``; the top of that file has its source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from shapes import Call, Want

from workers_ai import RetryPolicy

__all__ = ["EXCHANGES", "Exchange", "queue"]

Ask: TypeAlias = Callable[[Any], Any]

LLAMA = "@cf/meta/llama-3.1-8b-instruct"
LLAMA_70B = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
GEMMA = "@cf/google/gemma-4-26b-a4b-it"
GPT_OSS = "@cf/openai/gpt-oss-120b"
KIMI = "@cf/moonshotai/kimi-k2.6"

WEATHER = {
    "name": "getWeather",
    "description": "Return the weather for a latitude and longitude",
    "parameters": {
        "type": "object",
        "properties": {
            "latitude": {"type": "string", "description": "The latitude for the given location"},
            "longitude": {"type": "string", "description": "The longitude for the given location"},
        },
        "required": ["latitude", "longitude"],
    },
}
COUNTRY = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "capital": {"type": "string"},
        "languages": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "capital", "languages"],
}
INDIA = (
    {"role": "system", "content": "Extract data about a country."},
    {"role": "user", "content": "Tell me about India."},
)
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "description": "name"}, "age": {"type": "integer", "description": "age"}},
    "required": ["name", "age"],
}
CLOCK = {
    "name": "clock",
    "description": "The time.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Where"}}},
}
STORY = {
    "query": "This is a story about Cloudflare",
    "contexts": [
        {"text": "This is a story about an orange cloud"},
        {"text": "This is a story about a llama"},
        {"text": "This is a story about a hugging emoji"},
    ],
}


@dataclass(frozen=True)
class Exchange:
    """One published exchange.

    Attributes:
        ask: Calls a method of a client.
        want: The expected value: a neutral chat value, or the return value of the call.
        says: A part of the error's text.
        settings: Settings of the client.
    """

    ask: Ask
    want: Any
    says: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def chat(model: str, text: str = "hi", **options: Any) -> Ask:
    """Send one question."""
    return lambda face: face.chat(model, _user(text), **options)


def stream(model: str, text: str = "hi", **options: Any) -> Ask:
    """Send one question, and return the pieces of the answer."""
    return lambda face: face.stream(model, _user(text), **options)


def queue(model: str, requests: list[Any]) -> Ask:
    """Send requests through the queue. Return (index, success, result) of each."""

    def ask(face: Any) -> list[tuple[int, bool, Any]]:
        if face.mode == "sync":
            items = face.client.batch.run(model, requests, deadline_s=30)
        else:
            items = asyncio.run(face.aclient.batch.run(model, requests, deadline_s=30))
        return [(item.index, item.success, item.result) for item in items]

    return ask


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _error(name: str, code: int | None) -> Want:
    return Want(error=name, code=code)


BUSY = {"on_busy": "raise"}
ONCE = {"retry": RetryPolicy(max_retries=0)}
EXPLAIN = "Explain what a capacity queue is."

EXCHANGES: dict[str, Exchange] = {
    # --- whole answers ---
    "run_chat": Exchange(
        chat(LLAMA, "Where did the phrase Hello World come from", api="run"),
        Want("Hello, World first appeared in 1974 at Bell Labs."),
    ),
    "run_tool_call": Exchange(
        chat("@hf/nousresearch/hermes-2-pro-mistral-7b", "what is the weather in london?", api="run", tools=[WEATHER]),
        Want(calls=(Call("getWeather", {"latitude": "51.5074", "longitude": "-0.1278"}),), finish="tool_calls"),
    ),
    "run_json_schema": Exchange(
        lambda face: face.chat(
            LLAMA_70B, INDIA, api="run", response_format={"type": "json_schema", "json_schema": COUNTRY}
        ),
        Want('{"name": "India", "capital": "New Delhi", "languages": ["Hindi", "English"]}'),
    ),
    "run_session_affinity": Exchange(
        lambda face: face.chat(
            KIMI,
            [
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": "What is prefix caching and why does it matter?"},
            ],
            api="run",
            max_tokens=2400,
        ),
        Want("It reuses work.", usage=(120, 4, 124), cached=64),
        settings={"session_id": "ses_12345678"},
    ),
    "responses_gpt_oss": Exchange(
        chat(GPT_OSS, "Talk to me about open source", api="responses"),
        Want("Open source is shared work.", "A broad question.", usage=(72, 21, 93)),
    ),
    "chat_completions_leaked_call": Exchange(
        chat(
            GPT_OSS,
            "Ann is 41.",
            tools=[{"name": "Person", "description": "A person.", "parameters": PERSON}],
            tool_choice="Person",
        ),
        Want(calls=(Call("Person", {"name": "Ann", "age": 41}),), finish="tool_calls", usage=(90, 20, 110)),
    ),
    "chat_completions_thinking_ate_the_budget": Exchange(
        chat(KIMI, "Name a fjord.", max_tokens=16), Want("", "First I ...", finish="length")
    ),
    # --- streams ---
    "run_stream": Exchange(stream(LLAMA, api="run"), Want("Hello chunk", usage=(755, 10, 765))),
    "run_stream_tool_call": Exchange(
        stream(LLAMA_70B, "Time in Oslo?", api="run", tools=[CLOCK]),
        Want(calls=(Call("clock", {"city": "Oslo"}, "call_1"),), finish="tool_calls"),
    ),
    "run_stream_usage_by_event": Exchange(stream(GEMMA, api="run"), Want("Hello", usage=(14, 2, 16))),
    "run_stream_answered_whole": Exchange(stream(GPT_OSS, api="run"), Want("full answer")),
    "chat_completions_stream_without_index": Exchange(stream("@cf/meta/llama-3.1-8b-instruct-fast"), Want("**Hello**")),
    "chat_completions_stream_of_numbers": Exchange(
        stream("@cf/qwen/qwen2.5-coder-32b-instruct", "Which year?"), Want("Year 2026.")
    ),
    # --- vectors, scores, the queue, the catalogue ---
    "run_embeddings": Exchange(
        lambda face: (
            face.embed(
                "@cf/baai/bge-base-en-v1.5", ["This is a story about an orange cloud", "This is a story about a llama"]
            ).vectors
        ),
        [[0.5, -0.25, 0.125, 1.0], [-0.75, 0.0, 0.25, 0.5]],
    ),
    "run_rerank": Exchange(
        lambda face: [
            (one.index, one.score)
            for one in face.rerank(
                "@cf/baai/bge-reranker-base",
                STORY["query"],
                ["This is a story about a llama", "This is a story about an orange cloud"],
                top_n=2,
            )
        ],
        [(1, 0.73974609375), (0, 0.642578125)],
    ),
    "queue_rerank": Exchange(
        queue("@cf/baai/bge-m3", [STORY]),
        [
            (
                0,
                True,
                {
                    "response": [
                        {"id": 0, "score": 0.73974609375},
                        {"id": 1, "score": 0.642578125},
                        {"id": 2, "score": 0.6220703125},
                    ]
                },
            )
        ],
    ),
    "models_page": Exchange(
        lambda face: [model["name"] for model in face.models(task="Text Embeddings")], ["@cf/baai/bge-m3"]
    ),
    # --- errors ---
    "run_busy": Exchange(
        chat(GEMMA, EXPLAIN, api="run"), _error("CapacityError", 3040), "Capacity temporarily exceeded", BUSY
    ),
    "chat_completions_busy": Exchange(
        chat(GEMMA, EXPLAIN), _error("CapacityError", 3040), "Capacity temporarily exceeded", BUSY
    ),
    "run_busy_then_answered": Exchange(
        chat(GEMMA, EXPLAIN, api="run"), Want("A line that requests wait in."), settings={"on_busy": "retry"}
    ),
    "run_timeout_then_answered": Exchange(chat(LLAMA, api="run"), Want("Hello")),
    "run_quota_exhausted": Exchange(chat(LLAMA, api="run"), _error("QuotaExhaustedError", 3036), "10,000 neurons"),
    "run_paid_plan": Exchange(chat(KIMI, api="run"), _error("PaidPlanRequiredError", 5035), "Workers Paid plan"),
    "run_no_such_model": Exchange(
        chat("@cf/meta/no-such-model", api="run"), _error("NotFoundError", 5007), "@cf/meta/no-such-model"
    ),
    "run_retired_model": Exchange(
        chat("@cf/qwen/qwq-32b", api="run"), _error("ModelRetiredError", 5028), "deprecated on 2026-05-30"
    ),
    "run_json_schema_not_met": Exchange(
        lambda face: face.chat(
            LLAMA_70B, INDIA, api="run", response_format={"type": "json_schema", "json_schema": COUNTRY}
        ),
        _error("StructuredOutputError", None),
        "JSON Mode couldn't be met",
    ),
    "run_bad_input": Exchange(chat(GPT_OSS, api="run"), _error("BadRequestError", 5006), "are 'requests'"),
    "chat_completions_errors_as_an_object": Exchange(
        chat("@cf/qwen/qwen2.5-coder-32b-instruct"), _error("BadRequestError", 5006), "'array' not in 'string'"
    ),
    "chat_completions_per_minute_limit": Exchange(
        chat(GEMMA), _error("RateLimitError", 3021), "per min rate reached", ONCE
    ),
    "run_no_route": Exchange(chat(LLAMA, api="run"), _error("NotFoundError", 7003), "CLOUDFLARE_ACCOUNT_ID"),
    "chat_completions_gateway_refuses": Exchange(
        chat(GEMMA), _error("AuthenticationError", 2009), "gateway", {"gateway": "my-gateway"}
    ),
}
