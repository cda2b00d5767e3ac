"""Invalid arguments and inputs are rejected before anything is sent, or fail alone."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from tests.generation.conftest import KIMI, FakeQueue, Generator, inputs
from tests.support import every_row

from workers_ai import Client
from workers_ai.errors import BadRequestError, ConfigurationError
from workers_ai.generation import ChatInput, generate
from workers_ai.ingest import ingest

ROW = ("r", {"text": "x", "lang": "fr"})
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"


class NoSchema:
    """A class that cannot become a JSON schema."""


async def answered(answer: Any) -> None:
    """Do nothing."""


class Answered:
    """Do nothing."""

    async def __call__(self, answer: Any) -> None:
        """Do nothing."""


ASK = [{"role": "user", "content": "x"}]


ARGUMENTS: list[tuple[dict[str, Any], Any, str]] = [
    ({"prompt": "Hi {name}"}, ROW, r"'r' has no name for the placeholders of prompt; it has text, lang.*\{\{"),
    ({"prompt": "Hi {text.upper}"}, ROW, r"placeholder \{text\.upper\} of prompt is not a plain name"),
    ({"prompt": "Hi {text[0]}"}, ROW, "is not a plain name"),
    ({"prompt": 'As {"a": 1}: {text}'}, ROW, "not a plain name"),
    ({"prompt": "As { {text}"}, ROW, r"\{\{"),
    ({"prompt": "Hello"}, ("a", "text"), "prompt has no placeholder, so that all inputs would be the same"),
    ({"prompt": "Hello {a} {b}"}, ("a", "text"), "is one text: pass a mapping"),
    ({"prompt": " "}, ROW, "prompt must be a text"),
    ({}, ROW, "'r' is a row: pass prompt="),
    ({"prompt": "{text}"}, ("a", [{"role": "user", "content": "x"}]), "is a list of messages: omit prompt="),
    ({"prompt": "{text}"}, ("a", ChatInput([{"role": "user", "content": "x"}])), "already rendered: omit prompt="),
    (
        {},
        ("a", ChatInput([{"role": "user", "content": "x"}], {"tool": 1})),
        "the input 'a' has unknown parameters: tool",
    ),
    ({"labels": []}, ("a", "x"), "2 to 200 texts, not 0"),
    ({"labels": ["one"]}, ("a", "x"), "2 to 200 texts, not 1"),
    ({"labels": ["one", "one"]}, ("a", "x"), "'one' more than once"),
    ({"labels": [str(n) for n in range(201)]}, ("a", "x"), "not 201"),
    ({"labels": {"a", "b"}}, ("a", "x"), "labels must be a list of non-blank texts"),
    ({"labels": iter(["a", "b"])}, ("a", "x"), "labels must be a list of non-blank texts"),
    ({"labels": "abc"}, ("a", "x"), "labels must be a list of non-blank texts"),
    ({"labels": ["a", " "]}, ("a", "x"), "non-blank"),
    ({"schema": NoSchema}, ("a", "x"), "NoSchema cannot be converted to a JSON schema"),
    ({"schema": {"a": 1}}, ("a", "x"), "is not a JSON schema"),
    ({"schema": {"type": "text"}}, ("a", "x"), "is not a JSON schema: it has the unknown type 'text'"),
    ({"schema": {"properties": {"a": {"type": "str"}}}}, ("a", "x"), "properties.a has the unknown type 'str'"),
    ({"schema": {"properties": {"a": "string"}}}, ("a", "x"), "properties.a is 'string', not a schema"),
    ({"schema": {"properties": 5}}, ("a", "x"), "properties is 5, not a schema"),
    ({"schema": {"type": "array", "items": {"$ref": "#/$defs/A"}}}, ("a", "x"), "items refers to '#/\\$defs/A'"),
    ({"schema": {"$ref": "https://x.example/schema"}}, ("a", "x"), "which is not in the schema"),
    (
        {"schema": SCHEMA},
        ("a", ChatInput(ASK, {"response_format": {"type": "json_object"}})),
        "'a' has response_format",
    ),
    ({}, ("a", ChatInput(ASK, {"max_tokens": 0})), "max_tokens of the input 'a' must be a whole number"),
    ({}, ("a", ChatInput(ASK, {"max_tokens": 300_000})), "max_tokens of the input 'a' must be .* 256,000"),
    ({}, ("a", ChatInput(ASK, {}, {"stream": True})), "the input 'a' must not have stream"),
    ({"prompt": "{text}"}, ("a", {"text": b"x"}), "text of the input 'a' is bytes: decode it"),
    ({"schema": "City"}, ("a", "x"), "must be a class or a JSON schema"),
    ({"schema": SCHEMA, "labels": ["a", "b"]}, ("a", "x"), "schema or labels, not both"),
    ({"schema": SCHEMA, "extra_body": {"response_format": {}}}, ("a", "x"), "extra_body has response_format"),
    ({"extra_body": {"stream": True}}, ("a", "x"), "stream"),
    ({"extra_body": {"n": 2}}, ("a", "x"), "dedupe=False"),
    ({"extra_body": [1]}, ("a", "x"), "extra_body"),
    ({"extra_body": {"a": {1}}}, ("a", "x"), "extra_body cannot be written as JSON"),
    ({"extra_body": {"a": float("nan")}}, ("a", "x"), "extra_body cannot be written as JSON"),
    ({"max_tokens": 0}, ("a", "x"), "max_tokens must be a whole number"),
    ({"max_tokens": 300_000}, ("a", "x"), "max_tokens must be a whole number between 1 and 256,000"),
    ({"model": LLAMA, "max_tokens": None, "schema": SCHEMA}, ("a", "x"), "set max_tokens: "),
    ({"model": "@cf/zai-org/glm-4.7-flash"}, ("a", "x"), "mode='direct'"),
    ({"model": "@cf/baai/bge-m3"}, ("a", "x"), "embed with workers_ai.ingest"),
    ({"model": "@cf/baai/bge-reranker-base"}, ("a", "x"), "is a model for"),
    ({"model": "@cf/cloudflare/clef"}, ("a", "x"), "is a decision model: call it with WorkersAIDecisions"),
    ({"mode": "later"}, ("a", "x"), "mode 'later' is not one of queue, direct"),
    ({"limit_cost_usd": 1.0, "max_tokens": None}, ("a", "x"), "limit_cost_usd requires max_tokens, "),
    ({"limit_cost_usd": 1.0, "model": "@cf/acme/new"}, ("a", "x"), "the price of @cf/acme/new is unknown"),
    ({"limit_cost_usd": float("nan")}, ("a", "x"), "limit_cost_usd must be a number"),
    ({"limit_cost_usd": -1}, ("a", "x"), "limit_cost_usd must be a number"),
    ({"deadline_s": -1}, ("a", "x"), "deadline_s must be a number"),
    ({"requests_per_job": 0}, ("a", "x"), "requests_per_job"),
    ({"requests_per_job": 10**30}, ("a", "x"), "requests_per_job must be a whole number between 1 and 1,000,000"),
    ({"model": "@cf/x\ud800"}, ("a", "x"), "is malformed: use an id"),
    ({"ledger": "a\ud800"}, ("a", "x"), "ledger must be a path"),
    ({"repair": -1}, ("a", "x"), "repair"),
    ({"system": 5}, ("a", "x"), "system"),
    ({"on_answer": 5}, ("a", "x"), "on_answer must be a function"),
    ({"on_answer": Answered()}, ("a", "x"), "not a coroutine function"),
    ({"on_answer": answered}, ("a", "x"), "not a coroutine function"),
    ({"temperature": "hot"}, ("a", "x"), "temperature must be a number"),
    ({"temperature": float("nan")}, ("a", "x"), "temperature must be a number"),
    ({"stop": 5}, ("a", "x"), "stop must be a text or a list"),
    ({"stop": [5]}, ("a", "x"), "stop must be a text or a list"),
    ({"reasoning_effort": 5}, ("a", "x"), "reasoning_effort must be a text"),
    ({"ledger": 5}, ("a", "x"), "ledger must be a path"),
]


@every_row(("options", "item", "says"), ARGUMENTS)
def test_an_invalid_argument_sends_nothing(sync: Generator, options: Any, item: Any, says: str) -> None:
    queue = FakeQueue()
    with pytest.raises(ConfigurationError, match=says):
        sync([item], queue, **options)
    assert queue.sent == []


@pytest.mark.parametrize("call", [generate, ingest])
def test_an_unknown_keyword_suggests_the_nearest(call: Any, ledger: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=f"{call.__name__} has no keyword 'deadline'; did you mean 'deadline_s'"
    ):
        call(inputs(1), ledger=ledger, model=KIMI, deadline=5)


def test_the_error_of_a_retired_model_has_the_successor(sync: Generator) -> None:
    from workers_ai.catalogue import known_models

    retired = next(card for card in known_models("Text Generation") if card.retired_on and card.successor)
    with pytest.raises(ConfigurationError, match=f"was retired on .*use {retired.successor}"):
        sync(inputs(1), FakeQueue(), model=retired.id)


def test_a_batch_worker_is_rejected(account: Any, ledger: Path) -> None:
    client = Client(**account, batch_worker="https://worker.example")
    with pytest.raises(ConfigurationError, match="batch_worker= is set"):
        generate(inputs(1), ledger=ledger, model=KIMI, client=client, progress=False)


ITEMS: list[tuple[Any, str]] = [
    ("text", "an input must be"),
    (("a",), "an input must be"),
    (("a", "b", "c"), "an input must be"),
    ((1.5, "text"), "is neither a string nor an integer"),
    ((True, "text"), "is neither a string nor an integer"),
    (("\ud800", "text"), "contains a lone surrogate"),
    (("a", 5), "the input 'a' is a int"),
    (("a", ["x"]), "the input 'a' is a list"),
    (("a", None), "the input 'a' is a NoneType"),
]


@pytest.mark.parametrize(("item", "says"), ITEMS, ids=range(len(ITEMS)))
def test_an_invalid_item_ends_the_run_and_earlier_results_are_kept(sync: Generator, item: Any, says: str) -> None:
    source = [*inputs(100), item]
    queue = FakeQueue()
    with pytest.raises(BadRequestError, match=says):
        sync(source, queue, requests_per_job=100, max_concurrency=1)
    report = sync(inputs(100), queue)
    assert len(queue.sent) == 100
    assert report.answered + report.reused == 100


PIXEL = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize(
    ("given", "model", "says"),
    [
        ("", KIMI, "the input is empty"),
        (" \n", KIMI, "the input is empty"),
        ([], KIMI, "the input is empty"),
        ([{"role": "system", "content": "Be brief."}], KIMI, "the input is empty"),
        ([{"role": "user", "content": [{"type": "text", "text": " "}]}], KIMI, "the input is empty"),
        ([{"role": "user", "content": None}], KIMI, "the input is empty"),
        ("word " * 60_000, LLAMA, "the input has about .* tokens"),
        ("word " * 2_100_000, KIMI, "bytes: split it|tokens"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}]}], KIMI, "image"),  # noqa: E501
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}], LLAMA, "image"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["queue", "direct"])
def test_an_input_that_cannot_be_sent_fails_alone(
    sync: Generator, given: Any, model: str, says: str, mode: str
) -> None:
    queue = FakeQueue()
    report = sync([("good", "fine"), ("bad", given)], queue, model=model, mode=mode)
    assert [failure.id for failure in report.failures] == ["bad"]
    assert re.search(says, report.failures[0].message)
    assert queue.sent == ["fine"]


def test_a_row_fails_if_all_its_values_are_blank_or_one_is_null(sync: Generator) -> None:
    rows = [{"id": "blank", "a": " ", "b": ""}, {"id": "half", "a": "", "b": "text"}, {"id": "zero", "a": 0, "b": ""},
            {"id": "null", "a": "x", "b": None}, {"id": "nan", "a": float("nan"), "b": "x"}]  # fmt: skip
    queue = FakeQueue()
    report = sync(rows, queue, prompt="Join {a} and {b}")
    assert [failure.id for failure in report.failures] == ["blank", "null", "nan"]
    null = "a value for the prompt is null"
    assert [failure.message for failure in report.failures] == ["the input is empty", null, null]
    assert queue.sent == ["Join  and text", "Join 0 and "]


def test_a_text_near_the_window_is_sent(sync: Generator) -> None:
    report = sync([("long", "word " * 22_000)], FakeQueue(), model=LLAMA)
    assert report.answered == 1


def test_lone_surrogates_in_a_text_are_replaced(sync: Generator) -> None:
    report = sync([("a", "caf\ud800")], FakeQueue())
    assert report.answered == 1


def test_rows_of_a_database_are_mappings(sync: Generator) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        rows = database.execute("SELECT 'one' AS text, 7 AS id").fetchall()
    assert [answer.text for answer in sync(rows, FakeQueue()).answers()] == ["answer to one"]
    templated = sync([("a", rows[0])], FakeQueue(), prompt="Is {text} {id}?", ledger=sync.ledger.with_name("rows"))
    assert [answer.text for answer in templated.answers()] == ["answer to Is one 7?"]


class Row(NamedTuple):
    """A row as ``DataFrame.itertuples`` yields it."""

    text: str
    id: int


def test_rows_of_tables(sync: Generator) -> None:
    table = pa.table({"text": ["one", "two"], "id": [1, 2]})
    rows: list[Any] = [Row("one", 1), Row("two", 2)]
    for source in (rows, table.to_pylist(), zip(np.array([1, 2]), np.array(["one", "two"]), strict=True)):
        found = [(answer.id, answer.text) for answer in sync(source, FakeQueue()).answers()]
        assert found == [(1, "answer to one"), (2, "answer to two")]
    with pytest.raises(BadRequestError, match=r"the source is a Table: pass its rows, .* table\.to_pylist\(\)"):
        sync(table, FakeQueue())


def test_a_callback_that_returns_a_coroutine_raises_and_the_answers_are_kept(run: Generator) -> None:
    queue = FakeQueue()
    with pytest.raises(ConfigurationError, match="on_answer returned a coroutine"):
        run(inputs(2), queue, on_answer=lambda answer: answered(answer))
    assert run(inputs(2), queue).reused == 2
    assert len(queue.sent) == 2


def test_two_inputs_with_one_id_have_separate_answers(sync: Generator) -> None:
    report = sync([("a", "one"), ("a", "two")], FakeQueue())
    assert [(answer.id, answer.text) for answer in report.answers()] == [("a", "answer to one"), ("a", "answer to two")]
    assert report.duplicate_ids == 1


def test_a_model_without_a_queue_answers_directly(sync: Generator) -> None:
    queue = FakeQueue()
    report = sync(inputs(3), queue, model="@cf/zai-org/glm-4.7-flash", mode="direct")
    assert (report.answered, queue.direct) == (3, 3)
