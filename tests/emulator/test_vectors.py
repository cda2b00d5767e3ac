"""Embeddings and reranking: shapes, and similar texts have similar vectors."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from tests.emulator.conftest import BGE

from workers_ai_emulator.rules.vectors import relevance, vector, vector_json

if TYPE_CHECKING:
    from tests.emulator.conftest import Api

M3 = "@cf/baai/bge-m3"
QWEN3 = "@cf/qwen/qwen3-embedding-0.6b"
DIMENSIONS = {
    "@cf/baai/bge-small-en-v1.5": 384,
    BGE: 768,
    "@cf/baai/bge-large-en-v1.5": 1024,
    M3: 1024,
    QWEN3: 1024,
    "@cf/google/embeddinggemma-300m": 768,
    "@cf/pfnet/plamo-embedding-1b": 2048,
}


def cosine(one: list[float], two: list[float]) -> float:
    return sum(a * b for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(("model", "dimensions"), DIMENSIONS.items())
def test_each_model_has_its_dimensions_and_unit_vectors(api: Api, model: str, dimensions: int) -> None:
    result = api.embed(["hello world", "a"], model).json()["result"]

    assert [2, dimensions] == result["shape"]
    assert [dimensions] * 2 == [len(row) for row in result["data"]]
    assert all(math.isclose(1.0, math.hypot(*row), rel_tol=1e-5) for row in result["data"])
    assert all(isinstance(value, float) for row in result["data"] for value in row)
    assert ("pooling" in result) == ("/bge-" in model)


def test_a_single_text_returns_rows(api: Api) -> None:
    assert api.embed("hello").json()["result"]["shape"] == [1, 768]


def test_a_query_is_nearest_to_its_answer(api: Api) -> None:
    texts = [
        "The csv module reads and writes tabular data.",
        "A socket is an endpoint of a network connection.",
        "Decimal arithmetic is correctly rounded.",
    ]
    rows = api.embed([*texts, "Which module can read tables of data?"]).json()["result"]["data"]
    nearness = [cosine(row, rows[-1]) for row in rows[:-1]]

    assert nearness.index(max(nearness)) == 0
    assert max(nearness) > 0.3 > sorted(nearness)[1]


@pytest.mark.parametrize("text", ["   ", "!!!", "你好世界", "\ud83d", "x" * 5000])
def test_any_text_has_a_vector(text: str) -> None:
    assert math.isclose(1.0, math.hypot(*vector(text, 384)), rel_tol=1e-5)


def test_vector_json_equals_vector() -> None:
    text = "The quick brown fox, the lazy dog; and 1,000 words."

    assert vector(text, 384) == json.loads(vector_json(text, 384))


def test_pooling_is_reported_and_has_its_own_space(api: Api) -> None:
    mean, cls = (api.embed(["hello"], pooling=pooling).json()["result"] for pooling in ("mean", "cls"))

    assert (mean["pooling"], cls["pooling"]) == ("mean", "cls")
    assert abs(cosine(mean["data"][0], cls["data"][0])) < 0.5
    assert api.embed(["hello"]).json()["result"]["data"] == mean["data"]


def test_queries_documents_and_instruction_of_qwen3(api: Api) -> None:
    def first(**body: Any) -> list[float]:
        return api.run(QWEN3, body).json()["result"]["data"][0]

    document = first(documents=["cats"])
    assert document == first(text="cats") == first(queries=["cats"])
    assert document != first(queries=["cats"], instruction="Find recipes")
    assert document == first(documents=["cats"], instruction="Find recipes")


def test_bge_en_truncates_a_text_at_512_tokens(api: Api) -> None:
    long = " ".join(f"word{number}" for number in range(1000))
    same = " ".join(f"word{number}" for number in range(393))

    one, two = api.embed([long, same]).json()["result"]["data"]
    assert one == two


def test_the_openai_route_returns_floats_for_base64(api: Api) -> None:
    request = {"model": BGE, "input": ["hello", "world"], "encoding_format": "base64", "dimensions": 8}
    body = api.http.post("/ai/v1/embeddings", json=request).json()

    assert (body["object"], body["model"]) == ("list", BGE)
    assert [(row["index"], len(row["embedding"])) for row in body["data"]] == [(0, 768), (1, 768)]
    assert api.embed(["hello"]).json()["result"]["data"][0] == body["data"][0]["embedding"]
    assert body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] > 0


def test_bge_m3_has_three_forms(api: Api) -> None:
    contexts = [{"text": "a dog"}, {"text": "a cat"}]
    scored = api.run(M3, {"query": "cat", "contexts": contexts}).json()["result"]["response"]
    embedded = api.run(M3, {"contexts": contexts}).json()["result"]

    assert [row["id"] for row in scored] == [0, 1]
    assert scored[1]["score"] > scored[0]["score"]
    assert (embedded["shape"], len(embedded["response"][1]), embedded["pooling"]) == ([2, 1024], 1024, "mean")


def test_the_reranker_scores_between_0_and_1_and_sorts_when_cut(api: Api) -> None:
    contexts = [{"text": "a dog"}, {"text": "a cat sat"}, {"text": "my cat"}]
    model = "@cf/baai/bge-reranker-base"
    every = api.run(model, {"query": "my cat", "contexts": contexts}).json()["result"]
    best = api.run(model, {"query": "my cat", "contexts": contexts, "top_k": 2}).json()["result"]

    assert [row["id"] for row in every["response"]] == [0, 1, 2]
    assert [row["id"] for row in best["response"]] == [2, 1]
    assert all(0 < row["score"] < 1 for row in every["response"])
    assert every["usage"]["total_tokens"] > 0


def test_relevance_grows_with_the_share_of_the_query() -> None:
    scores = [relevance("red car", text) for text in ("red car", "a red bus in the long street", "blue sky", "")]

    assert sorted(scores, reverse=True) == scores
    assert scores[-1] == 0.0


def test_texts_are_counted(api: Api) -> None:
    api.embed(["a", "b"])
    api.embed("a")

    log = api.emulator.log
    assert (log.texts_embedded, log.texts_repeated, log.times_embedded("a")) == (3, 1, 2)


def test_a_decision_model_answers_typed_questions(api: Api) -> None:
    questions = {
        "urgent": {"type": "noul", "instructions": "Is checkout failing?"},
        "team": {
            "type": "choice",
            "instructions": "Who?",
            "criteria": {"billing": "invoices", "shop": "checkout fails"},
        },
        "grade": {"type": "score", "instructions": "How bad?", "criteria": ["one customer", "every customer fails"]},
    }
    state = "Checkout fails for every customer."
    body = {"model": "clef", "state": state, "questions": questions}
    result = api.run("@cf/cloudflare/clef", body).json()["result"]
    answers = result["answers"]

    assert answers["urgent"]["noul"] > 0.5
    assert answers["team"]["choice"] == "shop"
    assert sum(answers["team"]["probabilities"].values()) == pytest.approx(1)
    assert answers["grade"]["score"] > 0.5
    assert answers["grade"]["legend"] == {"0": "one customer", "1": "every customer fails"}
    assert api.run("@cf/cloudflare/clef", {**body, "model": "clef-flash"}).json()["errors"][0]["code"] == 5006
