"""Map each recorded fact of the real service to the exchanges and tests that check it.

The facts come from public recordings, cited by the cassettes of the exchanges. ``exchange:`` names a cassette of
``captured.py`` in ``cassettes/documented``; other entries name a test file under ``tests``, or one of its tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from captured import CAPTURED

__all__ = ["FACTS", "missing"]

_ERRORS: Final = "contract/test_captured_errors.py::test_a_captured_error_response_over_http"
_QUEUE: Final = "transports/test_queue_replies.py"
_EMULATOR: Final = "emulator/test_captures.py"
_CATALOGUE: Final = "core/test_catalogue.py"

FACTS: Final[Mapping[str, Sequence[str]]] = {
    # --- the asynchronous queue ---
    "A finished batch of kimi-k2.6 has `results` with `index`": ["exchange: queue_results", _QUEUE, _EMULATOR],
    "Results are not in the order of the requests": [
        "exchange: queue_results_out_of_order",
        "exchange: queue_responses_out_of_order",
    ],
    "A pending job is queued or running": ["exchange: queue_queued_then_running"],
    "An unknown or expired request id is 5504, and is not polled again": ["exchange: queue_unknown_id", _QUEUE],
    "A job takes up to 40 minutes; polls do not count as requests": [
        "ingest/test_batch_client.py::test_a_job_of_forty_minutes_is_collected_and_its_polls_count_against_no_limit",
        "emulator/test_queue.py::test_the_limit_per_minute_counts_submissions_but_no_polls",
    ],
    "A submission stays below 10 MB": ["ingest/test_batch_wire.py"],
    "Requests of gpt-oss in a batch have the form of the Responses route": [_EMULATOR, "contract/test_quirks.py"],
    # --- whole chat replies ---
    "llama-3.3 on the native route has both families in one result": [
        "exchange: run_hybrid",
        "exchange: run_hybrid_json_schema",
        "exchange: run_hybrid_bare_schema",
    ],
    "Text that parses as JSON is an object, requested or not": [
        "exchange: run_hybrid_parsed_unasked",
        "exchange: run_scout_parsed_unasked",
    ],
    "scout on the native route has `response`, `tool_calls` and `usage`": ["exchange: run_scout"],
    "gpt-oss has `reasoning` and `reasoning_content`": [
        "exchange: run_gpt_oss",
        "exchange: chat_completions_gpt_oss",
    ],
    "qwen3.8 has `reasoning` only": ["exchange: run_qwen3_8", "exchange: chat_completions_qwen3_8"],
    "Native tool calls are flat, without ids, with numbers as texts": ["exchange: run_flat_call_of_texts"],
    "Chat completions of llama has the id and the null fields of its newer form": ["exchange: chat_completions_llama"],
    "Chat completions accepts a named schema": [
        "exchange: chat_completions_named_schema_gpt_oss",
        "exchange: chat_completions_named_schema_llama",
    ],
    "Calls of the hybrid may be at the top": ["contract/test_replies.py::test_whole_replies"],
    # --- differences between models ---
    "glm-4.7-flash rejects `required` and accepts the named form": [
        "exchange: chat_completions_named_tool_choice",
        "exchange: chat_completions_required_refused",
        "contract/test_quirks.py",
    ],
    "nemotron-3 sends the answer as reasoning when thinking is off": [
        "exchange: run_nemotron_without_thinking",
        "exchange: run_stream_nemotron_without_thinking",
    ],
    "mistral requires ids of nine characters and no user message after a tool message": [
        "contract/test_quirks.py",
        "core/test_turns.py",
    ],
    "kimi-k2.6 stops thinking by effort none alone, gpt-oss never; glm-5.3 takes none as max": [
        "contract/test_quirks.py::test_reasoning_is_the_answer_only_of_models_that_stop_thinking",
        "emulator/test_chat.py::test_models_turn_thinking_off_in_different_ways",
    ],
    "Content that is null is rejected; images are data URLs": ["contract/test_sent.py"],
    # --- streams ---
    "Events of the hybrid have the text in two places": ["exchange: run_stream_hybrid", _EMULATOR],
    "Streams of qwen3.8 have increments and a closing usage": ["exchange: run_stream_qwen3_8"],
    "An event of zeros may follow the usage": ["exchange: run_stream_qwen3_8_zeros_at_the_end"],
    "The first delta of a call has no arguments": ["exchange: run_stream_qwen3_8_tool_call"],
    "Streams of gpt-oss have both kinds of reasoning": ["exchange: run_stream_gpt_oss"],
    # --- headers and lists ---
    "`cf-ai-neurons` and `cf-ai-req-id` come with a reply": ["exchange: run_neurons_and_request_id", _EMULATOR],
    "The list of models has no `total_pages`": ["exchange: models_search_live"],
    "embeddinggemma returns 768 numbers without `pooling`": ["exchange: run_embeddinggemma"],
    # --- errors ---
    "An unknown model is 7000 on run and 5007 on v1": [
        "exchange: run_unknown_model",
        "exchange: chat_completions_unknown_model",
        _ERRORS,
    ],
    "A wrong token is 10000": ["exchange: run_unauthorized", _ERRORS],
    "A used-up allocation is 4006": ["exchange: run_quota_prefix_twice", "exchange: gateway_quota", _ERRORS],
    "A timeout of the service is 3046": ["exchange: run_timeout_twice", _ERRORS],
    "bge-m3 limits one text and the sum of all": [
        "exchange: run_text_too_long",
        "exchange: run_texts_too_long_together",
        _ERRORS,
    ],
    "At capacity is 3040, with or without the model, without retry-after": ["exchange: run_busy_names_the_model"],
    "A validation error of Clef is JSON in the message": [
        "contract/test_captured_errors.py::test_a_message_that_is_json_is_read"
    ],
    "The Responses route has OpenAI error objects": ["exchange: responses_invalid", "exchange: responses_busy"],
    "The binding throws texts with and without a code": [
        "contract/test_captured_errors.py::test_errors_thrown_by_the_binding",
        "contract/test_captured_errors.py::test_an_error_without_a_code_has_the_message",
    ],
    "Context window, private model and internal error have 5021, 5018 and 3043": [
        "exchange: run_context_window",
        "exchange: run_private_model",
        "exchange: run_internal_error",
    ],
    # --- the catalogue and decisions ---
    "Windows, prices, batch and efforts of the catalogue are those of the sources": [_CATALOGUE],
    "clef-omni accepts audio and video": ["langchain/test_lc_decisions.py"],
}


def missing(tests: Path) -> list[str]:
    """Return the exchanges and tests that do not exist."""
    found = []
    for name in {name for names in FACTS.values() for name in names}:
        file, _, test = name.partition("::")
        if name.startswith("exchange: "):
            exists = name.removeprefix("exchange: ") in CAPTURED
        else:
            path = tests / file
            exists = path.is_file() and bool(re.search(rf"def {test or 'test_'}", path.read_text(encoding="utf-8")))
        found += [] if exists else [name]
    return found
