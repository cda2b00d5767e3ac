"""Cases that any service with this API must pass: the emulator in the process, on a socket, and the real service.

A case is a call and a check of its answer that does not depend on the words of the answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from exchanges import LLAMA_70B, PERSON, Ask, chat, queue, stream

from workers_ai.errors import NotFoundError
from workers_ai.types import ChatDelta, ChatReply, EmbedReply, RerankScore, Usage

__all__ = ["CASES", "Case"]

GEMMA: Final = "@cf/google/gemma-4-26b-a4b-it"
GPT_OSS: Final = "@cf/openai/gpt-oss-20b"
BGE: Final = "@cf/baai/bge-base-en-v1.5"
QWEN: Final = "@cf/qwen/qwen3-embedding-0.6b"
RERANKER: Final = "@cf/baai/bge-reranker-base"

FERRY_QUESTION: Final = "Context:\nThe ferry to Moss leaves at 14:02.\n\nQuestion: When does the ferry to Moss leave?"
ABOUT_ANN: Final = "My name is Ann and I am 41 years old."
PERSON_TOOL: Final = {"name": "Person", "description": "Stores what a text says of a person.", "parameters": PERSON}
PLACES: Final = ("Oslo is the capital of Norway.", "Bread is baked from flour, water, salt and yeast.")


class Case(NamedTuple):
    """A call and the check of its result."""

    ask: Ask
    holds: Callable[[Any], None]


def _counted(usage: Usage | None) -> None:
    assert usage is not None
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


def answered(reply: ChatReply) -> None:
    """Check a complete answer with the time and its usage."""
    assert "14:02" in reply.text
    assert (reply.finish_reason, reply.tool_calls) == ("stop", ())
    _counted(reply.usage)


def answered_in_pieces(pieces: Sequence[ChatDelta]) -> None:
    """Check the same answer in several pieces. Only the last has finish reason and usage."""
    assert "14:02" in "".join(piece.text for piece in pieces)
    assert len([piece for piece in pieces if piece.text]) > 1
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["stop"]
    _counted(pieces[-1].usage)


def called(reply: ChatReply) -> None:
    """Check the one forced call and its arguments."""
    (call,) = reply.tool_calls
    assert (call.name, reply.finish_reason) == ("Person", "tool_calls")
    assert call.id
    assert {"name", "age"} <= set(json.loads(call.arguments))


def called_in_pieces(pieces: Sequence[ChatDelta]) -> None:
    """Check the same call, streamed."""
    parts = [part for piece in pieces for part in piece.tool_calls]
    assert [part.name for part in parts if part.name] == ["Person"]
    assert {"name", "age"} <= set(json.loads("".join(part.arguments for part in parts)))
    assert pieces[-1].finish_reason == "tool_calls"


def structured(reply: ChatReply) -> None:
    """Check JSON that fits the schema."""
    person = json.loads(reply.text)
    assert isinstance(person["name"], str)
    assert isinstance(person["age"], int)


def cut(reply: ChatReply) -> None:
    """Check an answer that was truncated at ``max_tokens``."""
    assert reply.finish_reason == "length"


def embedded(dimensions: int) -> Callable[[EmbedReply], None]:
    """Check two different vectors of finite numbers."""

    def holds(reply: EmbedReply) -> None:
        assert [len(vector) for vector in reply.vectors] == [dimensions] * 2
        assert all(math.isfinite(number) for vector in reply.vectors for number in vector)
        assert reply.vectors[0] != reply.vectors[1]

    return holds


def ranked(scores: Sequence[RerankScore]) -> None:
    """Check that the relevant sentence comes first."""
    assert [one.index for one in scores] == [0, 1]
    assert scores[0].score > scores[1].score


def collected(items: Sequence[tuple[int, bool, Any]]) -> None:
    """Check both requests, in order, with the vectors of their texts."""
    assert [(index, success) for index, success, _ in items] == [(0, True), (1, True)]
    assert [len(result["data"]) for _, _, result in items] == [2, 1]


def not_found(error: NotFoundError) -> None:
    """Check a typed error with the model."""
    assert isinstance(error, NotFoundError)
    assert "@cf/nobody/no-such-model" in str(error)


def _refused(ask: Ask) -> Ask:
    def run(face: Any) -> Exception | None:
        try:
            ask(face)
        except NotFoundError as exc:
            return exc
        return None

    return run


FORCED: Final = {"tools": [PERSON_TOOL], "tool_choice": "Person"}
SCHEMA: Final = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}

CASES: dict[str, Case] = {
    **{
        f"{kind}-{api}-{model.rpartition('/')[2]}": Case(ask(model, FERRY_QUESTION, api=api, max_tokens=400), holds)
        for model in (LLAMA_70B, GEMMA)
        for api in ("run", "chat_completions")
        for kind, ask, holds in (("chat", chat, answered), ("stream", stream, answered_in_pieces))
    },
    **{
        f"forced-call-{api}": Case(chat(GEMMA, ABOUT_ANN, api=api, max_tokens=800, **FORCED), called)
        for api in ("run", "chat_completions")
    },
    "forced-call-stream": Case(stream(GEMMA, ABOUT_ANN, max_tokens=800, **FORCED), called_in_pieces),
    **{
        f"schema-{api}": Case(chat(LLAMA_70B, ABOUT_ANN, api=api, max_tokens=200, response_format=SCHEMA), structured)
        for api in ("run", "chat_completions")
    },
    "cut-by-length": Case(chat(GEMMA, "Count from one to one hundred in words.", max_tokens=8), cut),
    "responses": Case(chat(GPT_OSS, FERRY_QUESTION, api="responses"), answered),
    "embeddings": Case(lambda face: face.embed(BGE, PLACES), embedded(768)),
    "embeddings-query": Case(lambda face: face.embed(QWEN, PLACES, kind="query"), embedded(1024)),
    "rerank": Case(lambda face: face.rerank(RERANKER, "What is the capital of Norway?", PLACES), ranked),
    "queue": Case(queue(BGE, [{"text": list(PLACES)}, {"text": ["one more"]}]), collected),
    "unknown-model": Case(_refused(chat("@cf/nobody/no-such-model")), not_found),
}
