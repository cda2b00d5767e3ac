"""Questions about embeddings and reranking."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from workers_ai.cli._probe.calls import Call, OpenQuestionError
from workers_ai.cli._probe.question import Question, Value, acceptance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai.cli._probe.session import Session
    from workers_ai.types import JSON

__all__ = ["VECTOR_QUESTIONS"]

_SMALL: Final = "@cf/baai/bge-small-en-v1.5"
_M3: Final = "@cf/baai/bge-m3"
_QWEN3: Final = "@cf/qwen/qwen3-embedding-0.6b"
_RERANKER: Final = "@cf/baai/bge-reranker-base"
_CUT: Final = 64
_TOLERANCE: Final = 0.02


def _run(model: str, **body: JSON) -> Call:
    return Call(f"run/{model}", body, model)


def _v1(**body: JSON) -> Call:
    return Call("v1/embeddings", {"model": _SMALL, "input": ["a fjord"], **body}, _SMALL)


_ONE = _run(_SMALL, text=["a fjord"])
_PLAIN = _v1()
_BASE64 = _v1(encoding_format="base64")
_DIMENSIONS = _v1(dimensions=_CUT)
_LONG = _run(_SMALL, text=["fjord " * 700])
_TOO_MANY = _run(_SMALL, text=["a"] * 101)
_RANKING = _run(
    _RERANKER,
    query="What is the capital of Norway?",
    contexts=[{"text": "The capital of Norway is Oslo."}, {"text": "Bread is made of flour."}],
)
_CONTEXTS = _run(_M3, contexts=[{"text": "a fjord"}])
_DOCUMENTS = _run(_QWEN3, documents=["a fjord"])
_SHARED = Call("run", {"model": _SMALL, "input": {"text": ["a fjord"]}}, _SMALL)


def _embedding(session: Session, call: Call) -> Sequence[JSON] | str:
    match session.send(call).success():
        case {"data": [{"embedding": [*_] | str() as found}, *_]}:
            return found
    raise OpenQuestionError("the reply has no data[0].embedding")


def _dimensions(session: Session) -> Value:
    if session.send(_DIMENSIONS).accepted == "reject":
        return "reject"
    return "cut" if len(_embedding(session, _DIMENSIONS)) == _CUT else "ignore"


def _plain_body(session: Session) -> Value:
    body = session.send(_PLAIN).success()
    return "openai" if "data" in body else ", ".join(sorted(body))


def _long_texts(session: Session) -> Value:
    return "cut" if session.send(_LONG).accepted == "accept" else "reject"


def _too_many_code(session: Session) -> Value:
    reply = session.send(_TOO_MANY)
    return "accept" if reply.error is None else reply.code


def _unit_vectors(session: Session) -> Value:
    match session.send(_ONE).result:
        case {"data": [[*vector], *_]} if vector:
            length = math.sqrt(sum(float(str(value)) ** 2 for value in vector))
            return abs(length - 1) < _TOLERANCE
    raise OpenQuestionError("the reply has no vector")


def _rerank_scores(session: Session) -> Value:
    rows = session.send(_RANKING).result.get("response")
    found = [row.get("score") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    scores = [score for score in found if isinstance(score, int | float)]
    if not scores:
        raise OpenQuestionError("the reply has no scores")
    return "sigmoid" if all(0 <= score <= 1 for score in scores) else "raw"


def _contexts_key(session: Session) -> Value:
    result = session.send(_CONTEXTS).result
    return next((key for key in ("response", "data") if key in result), ", ".join(sorted(result)))


VECTOR_QUESTIONS: Final = (
    Question(
        "v1_base64",
        "`encoding_format: base64` on `/ai/v1/embeddings`",
        (False, True),
        (_BASE64,),
        lambda session: isinstance(_embedding(session, _BASE64), str),
    ),
    Question(
        "v1_dimensions",
        "`dimensions` on `/ai/v1/embeddings`",
        ("ignore", "cut", "reject"),
        (_DIMENSIONS,),
        _dimensions,
    ),
    Question("long_texts", "bge-*-en texts above 512 tokens", ("cut", "reject"), (_LONG,), _long_texts),
    Question("too_many_texts_code", "code of more than 100 texts", (5006, 3030), (_TOO_MANY,), _too_many_code),
    Question("unit_vectors", "unit length of vectors", (True, False), (_ONE,), _unit_vectors),
    Question("rerank_scores", "scores of the reranker", ("sigmoid", "raw"), (_RANKING,), _rerank_scores),
    Question(
        "contexts_key", "key of bge-m3's vectors of `contexts`", ("response", "data"), (_CONTEXTS,), _contexts_key
    ),
    acceptance("shared_run_gateway", "`POST /ai/run` without the gateway header", _SHARED, assumed="reject"),
    Question(
        "v1_embeddings_body",
        "body of `/ai/v1/embeddings`",
        ("openai",),
        (_PLAIN,),
        _plain_body,
        where="workers_ai/_wire/vectors.py",
    ),
    acceptance(
        "qwen3_documents",
        "`documents` of qwen3-embedding",
        _DOCUMENTS,
        assumed="accept",
        where="workers_ai/_wire/quirks.py (QUERIES_AND_DOCUMENTS)",
    ),
)
"""Questions in the order of the emulator's switches, then those without a switch."""
