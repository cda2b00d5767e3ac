"""Questions about the asynchronous queue."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from workers_ai.cli._probe.calls import Call, OpenQuestionError, Reply
from workers_ai.cli._probe.calls import poll as poll_of
from workers_ai.cli._probe.question import Question, Value, acceptance
from workers_ai.cli._probe.session import is_finished

if TYPE_CHECKING:
    from workers_ai.cli._probe.session import Session
    from workers_ai.types import JSON

__all__ = ["QUEUE_QUESTIONS"]

_M3: Final = "@cf/baai/bge-m3"
_GPT: Final = "@cf/openai/gpt-oss-20b"
_KIMI: Final = "@cf/moonshotai/kimi-k2.6"
_LLAMA: Final = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
_NO_QUEUE: Final = "@cf/qwen/qwen3-embedding-0.6b"
_NO_JOB: Final = "00000000-0000-4000-8000-000000000000"
_FORMAT: Final[JSON] = {
    "type": "json_schema",
    "json_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}
_HELLO: Final[JSON] = [{"role": "user", "content": "Say hello."}]


def _submission(model: str, *requests: JSON) -> Call:
    return Call(f"run/{model}?queueRequest=true", {"requests": list(requests)}, model)


_TEXTS = _submission(_M3, {"text": ["a fjord"], "external_reference": "first"})
_BAD_ITEM = _submission(_M3, {"text": ["a fjord"]}, {"text": [""]})
_GPT_BATCH = _submission(
    _GPT,
    {"input": "Say hello.", "max_output_tokens": 32, "external_reference": "first"},
    {"input": "Say goodbye.", "max_output_tokens": 32, "external_reference": "second"},
)
_KIMI_BATCH = _submission(_KIMI, {"messages": _HELLO, "max_tokens": 32, "external_reference": "first"})
_LLAMA_BATCH = _submission(
    _LLAMA,
    {"prompt": "Say hello.", "max_tokens": 32},
    {"prompt": "Say hello.", "max_tokens": 32, "response_format": _FORMAT},
)
_LLAMA_MESSAGES = _submission(_LLAMA, {"messages": _HELLO, "max_tokens": 16})
_UNSUPPORTED = _submission(_NO_QUEUE, {"text": ["a fjord"]})
_GPT_MESSAGES = _submission(_GPT, {"messages": _HELLO, "max_tokens": 16})
_UNKNOWN = poll_of(_TEXTS, _NO_JOB)


def _items(reply: Reply) -> list[dict[str, JSON]]:
    listed = reply.result.get("results") or reply.result.get("responses")
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _submit_status(session: Session) -> Value:
    return session.submit(_TEXTS).status


def _pending_status(session: Session) -> Value:
    reply = session.poll(_TEXTS)
    if reply.error:
        raise OpenQuestionError(reply.summary)
    if is_finished(reply):
        del session.jobs[_TEXTS.key]
        raise OpenQuestionError("the batch was done at the first poll; run the probe again")
    return reply.status


def _unknown_status(session: Session) -> Value:
    reply = session.send(_UNKNOWN)
    if reply.error is None:
        raise OpenQuestionError(f"HTTP {reply.status} for an unknown id")
    return reply.status


def _results_for(session: Session) -> Value:
    return "openai" if "results" in session.collect(_GPT_BATCH).result else "kimi"


def _results_reference(session: Session) -> Value:
    reply = session.collect(_GPT_BATCH)
    if "results" not in reply.result:
        reply = session.collect(_KIMI_BATCH)
    if "results" not in reply.result:
        raise OpenQuestionError("no model finished its batch under `results`")
    return any("external_reference" in item for item in _items(reply))


def _error_key(session: Session) -> Value:
    for item in _items(session.collect(_BAD_ITEM)):
        found = next((key for key in ("error", "errors") if item.get(key)), None)
        if found or item.get("success") is False:
            return found or ""
    raise OpenQuestionError("no item failed")


def _result_at(session: Session, index: int) -> dict[str, JSON]:
    """Return the result of one item of the llama batch."""
    for item in _items(session.collect(_LLAMA_BATCH)):
        result = item.get("result")
        if index in (item.get("id"), item.get("index")) and isinstance(result, dict):
            return result
    raise OpenQuestionError(f"item {index} of the batch has no result")


def _hybrid_items(session: Session) -> Value:
    return "hybrid" if "choices" in _result_at(session, 0) else "native"


def _item_formats(session: Session) -> Value:
    result = _result_at(session, 1)
    answer = result.get("response")
    match result:
        case {"choices": [{"message": {"content": str(content)}}, *_]} if answer is None:
            answer = content
    if isinstance(answer, str):
        with suppress(ValueError):
            answer = json.loads(answer)
    return "fill" if isinstance(answer, dict) else "ignore"


def _bad_item(session: Session) -> Value:
    return "item" if session.send(_BAD_ITEM).accepted == "accept" else "submission"


def _unsupported_code(session: Session) -> Value:
    reply = session.send(_UNSUPPORTED)
    return "accept" if reply.error is None else reply.code


def _collected_twice(session: Session) -> Value:
    first = session.collect(_GPT_BATCH)
    again = session.poll(_GPT_BATCH)
    return again.error is None and is_finished(again) and len(_items(again)) == len(_items(first))


QUEUE_QUESTIONS: Final = (
    Question(
        "submit_status", "HTTP status of an accepted submission", (200, 202), (), _submit_status, batches=(_TEXTS,)
    ),
    Question(
        "pending_status", "HTTP status of a poll before the end", (200, 202), (), _pending_status, batches=(_TEXTS,)
    ),
    Question("unknown_status", "HTTP status of an unknown request id (5504)", (404, 400), (_UNKNOWN,), _unknown_status),
    Question(
        "results_for",
        "models besides Kimi that return batches under `results`",
        ("openai", "kimi"),
        (),
        _results_for,
        batches=(_GPT_BATCH,),
        waits=True,
    ),
    Question(
        "results_reference",
        "`external_reference` in the items of `results`",
        (False, True),
        (),
        _results_reference,
        batches=(_GPT_BATCH, _KIMI_BATCH),
        waits=True,
    ),
    Question(
        "error_key",
        "key of the error in a failed item",
        ("error", "errors", ""),
        (),
        _error_key,
        batches=(_BAD_ITEM,),
        waits=True,
    ),
    Question(
        "unsupported_code",
        "code of a submission to a model without the queue",
        (8007, 5006, 10063),
        (_UNSUPPORTED,),
        _unsupported_code,
    ),
    Question(
        "hybrid_items",
        "form of llama-3.3-70b's items in a finished batch",
        ("hybrid", "native"),
        (),
        _hybrid_items,
        batches=(_LLAMA_BATCH,),
        waits=True,
    ),
    acceptance("hybrid_messages", "`messages` in queue items of llama-3.3-70b", _LLAMA_MESSAGES, assumed="accept"),
    Question(
        "item_formats",
        "`response_format` of a queue item",
        ("fill", "ignore"),
        (),
        _item_formats,
        batches=(_LLAMA_BATCH,),
        waits=True,
    ),
    Question(
        "bad_item",
        "effect of an invalid item in a submission",
        ("item", "submission"),
        (_BAD_ITEM,),
        _bad_item,
    ),
    Question(
        "collected_twice",
        "a finished batch can be polled again",
        (True, False),
        (),
        _collected_twice,
        batches=(_GPT_BATCH,),
        waits=True,
        where="workers_ai/_calls/polling.py",
    ),
    acceptance(
        "gpt_oss_queue_messages",
        "`messages` in the queue of gpt-oss, in place of `input`",
        _GPT_MESSAGES,
        assumed="reject",
        where="workers_ai/_wire/quirks.py (RESPONSES_IN_QUEUE)",
    ),
)
"""Questions in the order of the emulator's switches, then those without a switch."""
