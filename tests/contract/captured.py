"""Exchanges of the real service, taken from public repositories: source, request, expected value.

A name is a file of ``cassettes/documented``. Texts, ids and numbers are our own; keys, types and order are theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from exchanges import BUSY, COUNTRY, INDIA, ONCE, Ask, Exchange, chat, queue, stream
from shapes import Call, Want

from workers_ai.batch import BatchJob
from workers_ai_emulator import Emulator, Fault

__all__ = ["CAPTURED", "PREPARE"]

LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
SCOUT = "@cf/meta/llama-4-scout-17b-16e-instruct"
GRANITE = "@cf/ibm-granite/granite-4.0-h-micro"
KIMI = "@cf/moonshotai/kimi-k2.6"
OSS = "@cf/openai/gpt-oss-20b"
QWEN = "@cf/qwen/qwen3.8-27b"
GEMMA = "@cf/google/gemma-4-26b-a4b-it"
GLM = "@cf/zai-org/glm-4.7-flash"
NEMOTRON = "@cf/nvidia/nemotron-3-120b-a12b"
BGE_M3 = "@cf/baai/bge-m3"
GEMMA_VECTORS = "@cf/google/embeddinggemma-300m"
UNKNOWN_JOB = "00000000-0000-4000-8000-000000000009"

COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
BARE = {"type": "json_schema", "json_schema": COLOUR}
NAMED = {"type": "json_schema", "json_schema": {"name": "colour", "schema": COLOUR}}
LAMP = {
    "name": "lamp",
    "description": "Set a lamp.",
    "parameters": {
        "type": "object",
        "properties": {"level": {"type": "integer"}, "on": {"type": "boolean"}},
        "required": ["level", "on"],
    },
}
CITY = {
    "name": "clock",
    "description": "The time.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


def embed(model: str, *texts: str) -> Ask:
    """Embed texts; returns the number of vectors and their length."""
    return lambda face: [len(vector) for vector in face.embed(model, list(texts)).vectors]


def poll(model: str, request_id: str) -> Ask:
    """Poll a job once."""

    def ask(face: Any) -> Any:
        if face.mode == "sync":
            return face.client.batch.poll(BatchJob(request_id, model))
        return asyncio.run(face.aclient.batch.poll(BatchJob(request_id, model)))

    return ask


def texts_of(ask: Ask) -> Ask:
    """Return index, success and the text or object of the answer of each queue item."""

    def texts(face: Any) -> list[tuple[int, bool, Any]]:
        found = []
        for index, success, result in ask(face):
            choice = (result.get("choices") or [{}])[0]
            found.append((index, success, (choice.get("message") or {}).get("content", result.get("response"))))
        return found

    return texts


def _user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def _error(name: str, code: int | None) -> Want:
    return Want(error=name, code=code)


def _weather(city: str) -> tuple[Call, ...]:
    return (Call("clock", {"city": city}),)


CAPTURED: dict[str, Exchange] = {
    # --- the queue ---
    "queue_results": Exchange(
        texts_of(queue(KIMI, [_user("Name a letter."), _user("Name another letter.")])),
        [(0, True, "alpha"), (1, True, "beta")],
    ),
    "queue_results_out_of_order": Exchange(
        texts_of(queue(KIMI, [_user("One."), _user("Two."), _user("Three.")])),
        [(0, True, "one"), (1, True, "two"), (2, True, "three")],
    ),
    "queue_responses_out_of_order": Exchange(
        texts_of(queue(SCOUT, [_user("Describe it as JSON."), _user("Describe it in a fence.")])),
        [(0, True, {"caption": "a boat"}), (1, True, "```json\n{}\n```")],
    ),
    "queue_queued_then_running": Exchange(texts_of(queue(SCOUT, [_user("Name a boat.")])), [(0, True, "Fram")]),
    "queue_unknown_id": Exchange(poll(SCOUT, UNKNOWN_JOB), _error("BatchError", 5504), "not found in queue"),
    # --- whole replies on run ---
    "run_hybrid": Exchange(
        chat(LLAMA, "Name a cat.", api="run"), Want("Tom", usage=(14, 2, 16), cached=0, neurons=0.78)
    ),
    "run_hybrid_json_schema": Exchange(
        lambda face: face.chat(
            LLAMA, INDIA, api="run", response_format={"type": "json_schema", "json_schema": COUNTRY}
        ),
        Want(
            '{"name": "India", "capital": "New Delhi", "languages": ["Hindi"]}',
            usage=(48, 13, 61),
            cached=0,
            neurons=3.94,
        ),
    ),
    "run_hybrid_parsed_unasked": Exchange(
        chat(LLAMA, "A colour as JSON.", api="run"), Want('{"colour": "red"}', usage=(20, 6, 26), cached=0, neurons=1.2)
    ),
    "run_hybrid_bare_schema": Exchange(
        chat(LLAMA, "A colour.", api="run", response_format=BARE),
        Want('{"colour": "blue"}', usage=(20, 6, 26), cached=0, neurons=1.2),
    ),
    "run_scout": Exchange(chat(SCOUT, "Name a boat.", api="run"), Want("Fram", usage=(11, 3, 14), neurons=0.78)),
    "run_scout_parsed_unasked": Exchange(
        chat(SCOUT, "A boat as JSON.", api="run"), Want('{"boat": "Fram"}', usage=(12, 7, 19), neurons=0.78)
    ),
    "run_flat_call_of_texts": Exchange(
        chat(GRANITE, "Lamp to 7.", api="run", tools=[LAMP]),
        Want(
            calls=(Call("lamp", {"level": "7", "on": "true"}),),
            finish="tool_calls",
            usage=(30, 9, 39),
            cached=0,
            neurons=0.5,
        ),
    ),
    "run_gpt_oss": Exchange(
        chat(OSS, "Name a tree.", api="run"), Want("Oak.", "An easy one.", usage=(70, 12, 82), cached=0, neurons=4.1)
    ),
    "run_qwen3_8": Exchange(
        chat(QWEN, "Name a tree.", api="run"), Want("Elm.", "Short answer.", usage=(15, 9, 24), cached=0, neurons=1.1)
    ),
    "run_nemotron_without_thinking": Exchange(
        chat(NEMOTRON, "Say hi.", api="run", **OFF), Want("Hi", usage=(17, 1, 18), cached=0, neurons=0.4)
    ),
    "run_neurons_and_request_id": Exchange(
        chat(LLAMA, "Name a dog.", api="run"), Want("Rex", usage=(14, 2, 16), cached=0, neurons=0.78)
    ),
    # --- whole replies on chat completions ---
    "chat_completions_gpt_oss": Exchange(
        chat(OSS, "Name a tree."), Want("Oak.", "An easy one.", usage=(70, 12, 82), cached=0, neurons=4.1)
    ),
    "chat_completions_qwen3_8": Exchange(
        chat(QWEN, "A colour as JSON."),
        Want('\n\n```json\n{"colour": "red"}\n```', "They want JSON.", usage=(16, 20, 36), cached=0, neurons=1.5),
    ),
    "chat_completions_llama": Exchange(
        chat(LLAMA, "Name a cat."), Want("Tom", usage=(14, 2, 16), cached=0, neurons=0.78)
    ),
    "chat_completions_named_schema_gpt_oss": Exchange(
        chat(OSS, "A colour.", response_format=NAMED),
        Want('{"colour": "red"}', "One colour.", usage=(80, 14, 94), cached=0, neurons=4.9),
    ),
    "chat_completions_named_schema_llama": Exchange(
        chat(LLAMA, "A colour.", response_format=NAMED),
        Want('{"colour": "blue"}', usage=(20, 6, 26), cached=0, neurons=1.2),
    ),
    "chat_completions_named_tool_choice": Exchange(
        chat(GLM, "Time in Oslo?", tools=[CITY], tool_choice="clock"),
        Want(calls=_weather("Oslo"), finish="tool_calls", usage=(40, 11, 51), cached=0, neurons=0.6),
    ),
    # --- streams ---
    "run_stream_hybrid": Exchange(
        stream(LLAMA, "Name a cat.", api="run"), Want("Tom Cat", usage=(14, 3, 17), cached=0, neurons=0.78)
    ),
    "run_stream_qwen3_8": Exchange(
        stream(QWEN, "Name a tree.", api="run"),
        Want("Elm.", "Short answer.", usage=(15, 9, 24), cached=0, neurons=0.78),
    ),
    "run_stream_qwen3_8_zeros_at_the_end": Exchange(
        stream(QWEN, "Name a tree.", api="run"), Want("Elm.", "Short.", usage=(57, 28, 85), cached=0, neurons=0.78)
    ),
    "run_stream_qwen3_8_tool_call": Exchange(
        stream(QWEN, "Time in Oslo?", api="run", tools=[CITY]),
        Want(
            reasoning="A tool.", calls=_weather("Oslo"), finish="tool_calls", usage=(60, 15, 75), cached=0, neurons=0.78
        ),
    ),
    "run_stream_gpt_oss": Exchange(
        stream(OSS, "Name a tree.", api="run"), Want("Oak.", "Easy.", usage=(70, 12, 82), cached=0, neurons=0.78)
    ),
    "run_stream_nemotron_without_thinking": Exchange(
        stream(NEMOTRON, "Say hi.", api="run", **OFF), Want("Hi there", usage=(17, 2, 19), cached=0, neurons=0.78)
    ),
    # --- vectors and the catalogue ---
    "run_embeddinggemma": Exchange(embed(GEMMA_VECTORS, "a boat"), [4]),
    "models_search_live": Exchange(
        lambda face: [
            [one["value"] for one in model["properties"] if one["property_id"] == "reasoning_effort"]
            for model in face.models(search="qwen3.8")
        ],
        [
            [
                {
                    "supported_efforts": ["xhigh", "medium", "low"],
                    "default_effort": "xhigh",
                    "normalizes_to": {"null": "xhigh"},
                    "mandatory": False,
                    "default_enabled": True,
                    "supports_max_tokens": True,
                }
            ]
        ],
    ),
    # --- errors ---
    "run_unknown_model": Exchange(
        chat("@cf/nobody/nothing", api="run"), _error("NotFoundError", 7000), "No route for that URI"
    ),
    "chat_completions_unknown_model": Exchange(
        chat("@cf/nobody/nothing"), _error("NotFoundError", 5007), "@cf/nobody/nothing"
    ),
    "run_unauthorized": Exchange(chat(LLAMA, api="run"), _error("AuthenticationError", 10000), "Authentication error"),
    "run_quota_prefix_twice": Exchange(
        chat(LLAMA, api="run"), _error("QuotaExhaustedError", 4006), "daily free allocation"
    ),
    "run_timeout_twice": Exchange(chat(LLAMA, api="run"), _error("RequestTimeoutError", 3046), "Request timeout", ONCE),
    "run_text_too_long": Exchange(
        lambda face: face.embed(BGE_M3, ["word " * 30]), _error("ContextWindowExceededError", 3030), "9003 > 8192"
    ),
    "run_texts_too_long_together": Exchange(
        lambda face: face.embed(BGE_M3, ["word " * 30]), _error("ContextWindowExceededError", 3030), "80030 tokens"
    ),
    "run_busy_names_the_model": Exchange(
        chat(GEMMA, api="run"), _error("CapacityError", 3040), f"exceeded for {GEMMA}", BUSY
    ),
    "responses_invalid": Exchange(chat(OSS, api="responses"), _error("BadRequestError", None), "Bad input"),
    "responses_busy": Exchange(
        chat(OSS, api="responses"), _error("CapacityError", None), "Capacity temporarily exceeded", BUSY
    ),
    "gateway_quota": Exchange(
        chat(LLAMA, api="run"),
        _error("QuotaExhaustedError", 4006),
        "daily free allocation",
        {"gateway": "my-gateway"},
    ),
    "chat_completions_required_refused": Exchange(
        chat(GLM, "Time in Oslo?", extra_body={"tool_choice": "required"}, tools=[CITY]),
        Want(calls=_weather("Oslo"), finish="tool_calls", usage=(40, 11, 51), cached=0, neurons=0.6),
    ),
    "run_private_model": Exchange(
        chat(GEMMA, api="run"), _error("PermissionDeniedError", 5018), "not allowed to access"
    ),
    "run_internal_error": Exchange(chat(GEMMA, api="run"), _error("InternalServerError", 3043), "internal", ONCE),
    "run_context_window": Exchange(
        chat(LLAMA, api="run", max_tokens=200_000), _error("ContextWindowExceededError", 5021), "(24000)"
    ),
}


def _fault(*given: Any, **named: Any) -> Callable[[Emulator], None]:
    def prepare(emulator: Emulator) -> None:
        emulator.faults.add(Fault.error(*given, **named))

    return prepare


def _set(**settings: Any) -> Callable[[Emulator], None]:
    def prepare(emulator: Emulator) -> None:
        for name, value in settings.items():
            setattr(emulator.settings, name, value)

    return prepare


def _say(text: str) -> Callable[[Emulator], None]:
    def prepare(emulator: Emulator) -> None:
        emulator.faults.add(Fault.say(text))

    return prepare


def _call(name: str, **arguments: Any) -> Callable[[Emulator], None]:
    def prepare(emulator: Emulator) -> None:
        emulator.faults.add(Fault.call(name, **arguments))

    return prepare


PREPARE: Mapping[str, Callable[[Emulator], None]] = {
    "run_busy": _fault(429, 3040, "Capacity temporarily exceeded"),
    "chat_completions_busy": _fault(429, 3040, "Capacity temporarily exceeded"),
    "run_busy_then_answered": _fault(429, 3040, "Capacity temporarily exceeded"),
    "run_json_schema_not_met": _fault(400, None, "JSON Mode couldn't be met"),
    "run_flat_call_of_texts": _call("lamp", level="7", on="true"),
    "run_timeout_then_answered": _fault(408, 3007, "Request timeout"),
    "run_quota_exhausted": _fault(429, 3036, "you have used up your daily free allocation"),
    "run_paid_plan": _set(paid_plan=False),
    "run_hybrid_parsed_unasked": _say('{"colour": "red"}'),
    "run_scout_parsed_unasked": _say('{"boat": "Fram"}'),
    "run_stream_qwen3_8_zeros_at_the_end": _set(late_zeros_chance=1.0),
    "run_stream_qwen3_8": _set(late_zeros_chance=0.0),
    "run_unauthorized": _set(tokens=["another"]),
    "run_quota_prefix_twice": lambda emulator: emulator.limits.use_up_quota(),
    "run_timeout_twice": _fault(408, 3046, "Request timeout"),
    "run_text_too_long": _fault(400, 3030, "Sequence too long: 9003 > 8192"),
    "run_texts_too_long_together": _fault(400, 3030, "Max context reached"),
    "run_busy_names_the_model": _fault(429, 3040, "Capacity temporarily exceeded"),
    "responses_invalid": _fault(400, 5006, "Bad input"),
    "responses_busy": _fault(429, 3040, "Capacity temporarily exceeded"),
    "gateway_quota": _fault(429, 4006, "you have used up your daily free allocation", envelope="binding"),
    "run_private_model": _fault(403, 5018, "not allowed"),
    "run_internal_error": _fault(500, 3043, "internal server error"),
}
"""What makes the emulator answer in the same way."""
