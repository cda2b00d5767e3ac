"""Vectors and scores in every shape: rules 34 and 35, and the reports of group 9."""

from __future__ import annotations

import array
import base64
import json
from typing import Any

import httpx
import pytest

from workers_ai import errors as e

BGE = "@cf/baai/bge-base-en-v1.5"
QWEN = "@cf/qwen/qwen3-embedding-0.6b"
RERANKER = "@cf/baai/bge-reranker-base"


def enveloped(result: Any) -> dict[str, Any]:
    return {"result": result, "success": True, "errors": [], "messages": []}


def packed(*floats: float) -> str:
    """Return base64 of little-endian float32."""
    numbers = array.array("f", floats)
    return base64.b64encode(numbers.tobytes()).decode()


def item(index: int | None, embedding: Any) -> dict[str, Any]:
    return {"object": "embedding", "embedding": embedding} | ({} if index is None else {"index": index})


TWO = [[0.5, -1.0], [0.25, 2.0]]
SHAPES = {
    "data": enveloped({"shape": [2, 2], "data": TWO, "pooling": "cls"}),
    "data without the envelope": {"shape": [2, 2], "data": TWO},
    "response": enveloped({"response": TWO, "shape": [2, 2]}),
    "openai": {"object": "list", "data": [item(0, TWO[0]), item(1, TWO[1])], "model": "m", "usage": {}},
    "openai in the envelope": enveloped({"object": "list", "data": [item(0, TWO[0]), item(1, TWO[1])]}),
    "openai in another order": {"data": [item(1, TWO[1]), item(0, TWO[0])]},
    "openai without indexes": {"data": [item(None, TWO[0]), item(None, TWO[1])]},
    "base64 (karakeep-app/karakeep#2698)": {"data": [item(0, packed(0.5, -1.0)), item(1, packed(0.25, 2.0))]},
    "base64 alone": enveloped({"data": [packed(0.5, -1.0), packed(0.25, 2.0)]}),
}


@pytest.mark.parametrize("body", SHAPES.values(), ids=SHAPES)
def test_vectors_of_every_shape(body: Any, face: Any) -> None:
    reply = face(lambda request: httpx.Response(200, json=body)).embed(BGE, ["a", "b"])
    assert reply.vectors == TWO


@pytest.mark.parametrize("data", [[[0.5, -1.0]], [0.5, -1.0]], ids=["two dimensions", "one dimension"])
def test_the_vector_of_one_text(data: Any, face: Any) -> None:
    reply = face(lambda request: httpx.Response(200, json=enveloped({"data": data}))).embed(BGE, ["a"])
    assert reply.vectors == [[0.5, -1.0]]


MISFITS = {
    "one too few": (enveloped({"data": TWO[:1]}), "1 vectors for 2 texts"),
    "one too many": (enveloped({"data": [*TWO, TWO[0]]}), "3 vectors for 2 texts"),
    "none": (enveloped({"data": []}), "has no vectors"),
    "null": (enveloped(None), "has no vectors"),
    "an answer instead": (enveloped({"response": "Hello"}), "has no vectors"),
    "queued": (enveloped({"status": "queued", "request_id": "r"}), "was queued"),
    "not a number": ('{"result": {"data": [[NaN, 1.0], [1.0, 1.0]]}}', "vector 0 contains NaN or infinity"),
    "infinite": ('{"result": {"data": [[1.0, 1.0], [Infinity, 1.0]]}}', "vector 1 contains NaN or infinity"),
    "infinite both ways": ('{"result": {"data": [[Infinity, -Infinity], [1.0, 1.0]]}}', "vector 0 contains NaN"),
    "all zeros (karakeep-app/karakeep#2698)": (enveloped({"data": [[1.0, 0.0], [0.0, 0.0]]}), "vector 1 is all zeros"),
    "another length": (enveloped({"data": [[1.0, 0.0], [1.0]]}), "vector 1 is not a list of"),
    "empty": (enveloped({"data": [[], []]}), "vector 0 is not a list of"),
    "a null for a vector": (enveloped({"data": [[1.0], None]}), "vector 1 is not a list of"),
    "a null for a number": (
        enveloped({"data": [[1.0, None], [1.0, 1.0]]}),
        "vector 0 contains a value that is not a number",
    ),
    "text for a number": (
        enveloped({"data": [["a", "b"], [1.0, 1.0]]}),
        "vector 0 contains a value that is not a number",
    ),
    "truth values": (
        enveloped({"data": [[True, False], [1.0, 1.0]]}),
        "vector 0 contains a value that is not a number",
    ),
    "indexes twice": ({"data": [item(0, TWO[0]), item(0, TWO[1])]}, "indexes of the vectors"),
    "indexes from one": ({"data": [item(1, TWO[0]), item(2, TWO[1])]}, "indexes of the vectors"),
    "an index that is null": ({"data": [item(0, TWO[0]), {"index": None, "embedding": TWO[1]}]}, "indexes"),
    "items of several kinds": ({"data": [item(0, TWO[0]), TWO[1]]}, "several forms"),
    "not base64": (enveloped({"data": ["a b", "c"]}), "not base64"),
    "base64 of half a number": (enveloped({"data": ["AAA=", "AAA="]}), "not base64"),
}


@pytest.mark.parametrize(("body", "text"), MISFITS.values(), ids=MISFITS)
def test_an_invalid_vector_is_never_returned(body: Any, text: str, face: Any) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    one = face(lambda request: httpx.Response(200, content=content))
    with pytest.raises(e.APIResponseValidationError, match=text):
        one.embed(BGE, ["a", "b"])


SENT = [
    # Only set fields are sent (CherryHQ/cherry-studio#20730). Line breaks are not changed (run-llama/llama_index#6436).
    (BGE, {}, {"text": ["a\nb"]}),
    (BGE, {"kind": "query"}, {"text": ["a\nb"]}),
    (BGE, {"pooling": "cls"}, {"text": ["a\nb"], "pooling": "cls"}),
    (BGE, {"pooling": "cls", "kind": "query"}, {"text": ["a\nb"], "pooling": "cls"}),
    ("@cf/baai/bge-m3", {"truncate_inputs": True}, {"text": ["a\nb"], "truncate_inputs": True}),
    (BGE, {"query_instruction": "find: ", "kind": "query"}, {"text": ["find: a\nb"]}),
    (BGE, {"query_instruction": "find: "}, {"text": ["a\nb"]}),
    (QWEN, {}, {"documents": ["a\nb"]}),
    (QWEN, {"kind": "query"}, {"queries": ["a\nb"]}),
    (QWEN, {"kind": "query", "query_instruction": "Find"}, {"queries": ["a\nb"], "instruction": "Find"}),
    (QWEN, {"query_instruction": "Find"}, {"documents": ["a\nb"]}),
    (BGE, {"on_busy": "raise"}, {"text": ["a\nb"], "options": {"rejectIfBusy": True}}),
]


@pytest.mark.parametrize(("model", "options", "body"), SENT)
def test_the_request_of_an_embedding_call(model: str, options: Any, body: Any, face: Any) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json=enveloped({"data": [[1.0]]}))

    face(answer).embed(model, ["a\nb"], **options)
    (request,) = sent
    assert json.loads(request.content) == body
    assert request.url.raw_path.decode().endswith(f"/ai/run/{model}")


SCORES = {
    "by id": {"response": [{"id": 1, "score": 0.9}, {"id": 0, "score": 0.2}, {"id": 2, "score": 0.1}]},
    "not sorted": {"response": [{"id": 0, "score": 0.2}, {"id": 2, "score": 0.1}, {"id": 1, "score": 0.9}]},
    "under data": {"data": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "score": 0.2}, {"id": 2, "score": 0.1}]},
    "as a list": [{"id": 1, "score": 0.9}, {"id": 0, "score": 0.2}, {"id": 2, "score": 0.1}],
}


@pytest.mark.parametrize("result", SCORES.values(), ids=SCORES)
def test_scores_of_every_shape(result: Any, face: Any) -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json=enveloped(result))

    scores = face(answer, on_busy="retry").rerank(RERANKER, "q", ["a", "b", "c"], top_n=2)
    assert [(one.index, one.score) for one in scores] == [(1, 0.9), (0, 0.2)]
    contexts = [{"text": text} for text in "abc"]
    assert sent == [{"query": "q", "contexts": contexts, "top_k": 2, "options": {"rejectIfBusy": True}}]


# Not supported: reading a missing ranking as an empty one (rule 35). Texts would be lost silently.
@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        {"response": None},
        {"response": []},
        {"response": [{"id": 0, "score": 0.5}]},
        {"response": [{"id": 0, "score": 0.5}, {"id": 0, "score": 0.4}]},
        {"response": [{"id": 0, "score": 0.5}, {"id": 7, "score": 0.4}]},
        {"response": [{"id": 0, "score": 0.5}, {"id": 1, "score": None}]},
        {"response": [{"id": 0, "score": 0.5}, {"id": 1, "score": "high"}]},
        {"response": [{"id": 0, "score": 0.5}, {"id": True, "score": 0.4}]},
        {"response": "text"},
    ],
    ids=str,
)
def test_scores_that_are_missing_are_an_error(result: Any, face: Any) -> None:
    one = face(lambda request: httpx.Response(200, json=enveloped(result)))
    with pytest.raises(e.APIResponseValidationError, match="but 2 were requested"):
        one.rerank(RERANKER, "q", ["a", "b"])
