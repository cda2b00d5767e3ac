"""Runs without failures: requests, ledger and report."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.support import every_row

from workers_ai import Client
from workers_ai.errors import BadRequestError, BatchTimeoutError, ConfigurationError
from workers_ai.ingest import estimate, ingest
from workers_ai.ledger import _run as api
from workers_ai.ledger._ledger import Ledger
from workers_ai.ledger._store.fingerprints import Fingerprint

MODEL = "@cf/baai/bge-small-en-v1.5"


@pytest.fixture(params=["queue", "direct"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def embedded(emulator: Any, account: Any) -> Any:
    """Return the vector of a text from a direct call."""
    client = Client(http_client=httpx.Client(transport=emulator.transport()), **account)
    return lambda text, **options: client.embed(MODEL, [text], **options).vectors[0]


def test_every_document_has_the_vector_of_its_own_text(run: Any, texts: Any, embedded: Any, mode: str) -> None:
    documents = texts(250)
    report = run(documents, mode=mode)
    assert (report.embedded, report.reused, report.failed, report.retries) == (250, 0, 0, 0)
    found = list(report.vectors())
    assert [doc_id for doc_id, _ in found] == [doc_id for doc_id, _ in documents]
    for number in (0, 99, 100, 249):
        assert list(found[number][1]) == pytest.approx(embedded(documents[number][1]), abs=1e-6)


def test_a_submission_holds_requests_of_100_texts(run: Any, texts: Any, emulator: Any, submitted: Any) -> None:
    run(texts(2150))
    assert sorted([len(texts) for texts in requests] for requests in submitted()) == sorted(
        [[100] * 10, [100] * 10, [100, 50]]
    )
    assert emulator.log.routes["run"] == 0


def test_direct_requests_hold_100_texts(run: Any, texts: Any, emulator: Any) -> None:
    run(texts(250), mode="direct")
    assert emulator.log.routes["submit"] == 0
    assert sorted(len(entry.json["text"]) for entry in emulator.log.entries) == [50, 100, 100]


def test_identical_texts_are_sent_once(run: Any, emulator: Any, mode: str) -> None:
    report = run([(number, f"text {number % 7}") for number in range(70)], mode=mode)
    assert (report.embedded, report.reused) == (7, 63)
    assert (emulator.log.texts_embedded, emulator.log.texts_repeated) == (7, 0)
    vectors = dict(report.vectors())
    assert len(vectors) == 70
    assert vectors[3] == vectors[66]
    assert vectors[3] != vectors[4]


def test_a_second_run_sends_nothing_and_one_more_document_sends_one(
    run: Any, texts: Any, emulator: Any, mode: str
) -> None:
    first = run(texts(120), mode=mode)
    before = emulator.log.requests
    again = run(texts(120), mode=mode)
    assert emulator.log.requests == before
    assert (again.embedded, again.reused, again.cost_usd) == (0, 120, 0.0)
    assert list(again.vectors()) == list(first.vectors())
    more = run(texts(121), mode=mode)
    assert (more.embedded, more.reused) == (1, 120)
    assert emulator.log.texts_embedded == 121


def test_both_modes_share_a_ledger(run: Any, texts: Any, emulator: Any) -> None:
    run(texts(50))
    report = run(texts(60), mode="direct")
    assert (report.embedded, report.reused) == (10, 50)
    assert emulator.log.texts_embedded == 60


def test_ids_need_not_be_unique_and_keep_their_kind(run: Any) -> None:
    report = run([("a", "one"), ("a", "two"), (1, "one"), ("1", "three"), (-(2**63), "\N{SNOWMAN} ünï\0")])
    assert [row.id for row in report.rows()] == ["a", "a", 1, "1", -(2**63)]
    rows = list(report.rows())
    assert rows[0].vector == rows[2].vector != rows[1].vector
    assert (report.embedded, report.reused) == (4, 1)


def test_rows_of_a_database_are_mappings(run: Any) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        report = run(database.execute("SELECT 'one' AS text, 7 AS id, 'x' AS more"))
    assert [row.id for row in report.rows()] == [7]


def test_empty_input_returns_empty_output(run: Any, emulator: Any, mode: str) -> None:
    report = run([], mode=mode)
    assert (report.embedded, report.reused, report.failed, list(report.rows())) == (0, 0, 0, [])
    assert emulator.log.requests == 0


@pytest.mark.parametrize(
    ("option", "value", "differs"),
    [
        ("model", "@cf/baai/bge-base-en-v1.5", "model '@cf/baai/bge-small-en-v1.5', not '@cf/baai/bge-base-en-v1.5'"),
        ("pooling", "cls", "pooling None, not 'cls'"),
        ("instruction", "passage: ", "instruction None, not 'passage: '"),
        ("truncate_inputs", True, "truncate_inputs None, not True"),
        ("normalize", True, "normalize False, not True"),
    ],
)
def test_a_ledger_of_other_options_is_rejected(
    run: Any, texts: Any, emulator: Any, option: str, value: Any, differs: str
) -> None:
    first = run(texts(3))
    before = emulator.log.requests
    with pytest.raises(ConfigurationError, match="use another ledger") as caught:
        run(texts(3), **{option: value})
    assert differs in str(caught.value)
    assert emulator.log.requests == before
    assert len(list(first.vectors())) == 3


@every_row(
    ("options", "says"),
    [
        ({"mode": "fast"}, "mode 'fast' is not one of queue, direct"),
        ({"texts_per_job": 0}, "texts_per_job must be a whole number between 1 and 1,000,000, not 0"),
        ({"texts_per_job": 1.5}, "texts_per_job must be a whole number between 1 and 1,000,000, not 1.5"),
        ({"texts_per_job": "5"}, "texts_per_job must be a whole number between 1 and 1,000,000, not '5'"),
        ({"total": "5"}, "total must be a whole number 0 or more, not '5'"),
        ({"limit_cost_usd": math.nan}, "limit_cost_usd must be a number of 0 or more, or None, not nan"),
        ({"limit_cost_usd": -0.1}, "limit_cost_usd must be a number of 0 or more, or None, not -0.1"),
        ({"limit_cost_usd": "1"}, "limit_cost_usd must be a number of 0 or more, or None, not '1'"),
        ({"deadline_s": math.nan}, "deadline_s must be a number of 0 or more, or None, not nan"),
        ({"deadline_s": "60"}, "deadline_s must be a number of 0 or more, or None, not '60'"),
        ({"empty_text": "skip"}, "empty_text 'skip' is not one of raise, space"),
        ({"pooling": "max"}, "pooling 'max' is not one of None, mean, cls"),
        ({"truncate_inputs": "no"}, "truncate_inputs 'no' is not one of None, True, False"),
        ({"normalize": "no"}, "normalize 'no' is not one of True, False"),
        ({"instruction": 5}, "instruction must be a string or None, not 5"),
        ({"model": "no such model"}, "malformed"),
        ({"model": "@cf/qwen/qwen3-embedding-0.6b"}, "has no asynchronous queue"),
        ({"model": "@cf/someone/model", "limit_cost_usd": 1.0}, "the price of @cf/someone/model is unknown"),
    ],
)
def test_options_are_checked_before_anything_is_created(
    run: Any, ledger: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        run([("a", "text")], **options)
    assert says in str(caught.value)
    assert not ledger.exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "fast"}, "mode 'fast' is not one of queue, direct"),
        ({"model": "@cf/qwen/qwen3-embedding-0.6b"}, "has no asynchronous queue"),
        ({"texts_per_job": 0}, "texts_per_job must be a whole number between 1 and 1,000,000, not 0"),
        ({"empty_text": "skip"}, "empty_text 'skip' is not one of raise, space"),
        ({"pooling": "max"}, "pooling 'max' is not one of None, mean, cls"),
    ],
)
def test_an_estimate_rejects_the_same_arguments_as_the_run(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        estimate([("a", "text")], **{"model": MODEL, **options})
    assert says in str(caught.value)


@pytest.mark.parametrize("document", ["a", ("a", 5), ("a", "t", {}), (None, "t")])
def test_an_estimate_rejects_an_invalid_document(document: Any) -> None:
    with pytest.raises(BadRequestError):
        estimate([("a", "text"), document], model=MODEL)


@pytest.mark.parametrize("source", [5, None])
def test_a_source_that_cannot_be_read_is_rejected_before_anything_is_created(
    run: Any, ledger: Any, source: Any
) -> None:
    with pytest.raises(BadRequestError, match="must be an iterable of pairs of id and input, not"):
        run(source)
    assert not ledger.exists()


@pytest.mark.parametrize("bound", [math.inf, 10**400])
def test_an_infinite_bound_is_accepted(run: Any, texts: Any, bound: Any) -> None:
    assert run(texts(3), deadline_s=bound, limit_cost_usd=bound).embedded == 3


def test_options_are_sent_with_every_request(run: Any, emulator: Any, mode: str) -> None:
    run(
        [("a", "text")],
        model="@cf/baai/bge-m3",
        instruction="passage: ",
        truncate_inputs=True,
        pooling="cls",
        mode=mode,
    )
    body = emulator.log.entries[0].json
    sent = body["requests"][0] if mode == "queue" else body
    assert sent == {"text": ["passage: text"], "pooling": "cls", "truncate_inputs": True}


def test_normalize_scales_to_length_one(run: Any, mode: str) -> None:
    reply = {"result": {"data": [[3.0, 4.0]], "shape": [1, 2]}, "success": True, "errors": [], "messages": []}

    def answer(request: httpx.Request) -> httpx.Response:
        if mode == "direct":
            return httpx.Response(200, json=reply)
        entry = {"id": 0, "result": reply["result"], "success": True}
        return httpx.Response(200, json={"result": {"responses": [entry]}, "success": True})

    report = run([("a", "text")], normalize=True, mode=mode, transport=httpx.MockTransport(answer))
    (vector,) = (vector for _, vector in report.vectors())
    assert list(vector) == pytest.approx([0.6, 0.8])


def test_an_empty_text_is_reported_or_embedded_as_a_space(run: Any, emulator: Any, tmp_path: Any) -> None:
    report = run([("a", ""), ("b", "text")])
    assert report.failures == [("a", None, "the text is empty", 0)]
    assert (report.embedded, report.failed) == (1, 1)
    report = run([("a", ""), ("b", "text")], empty_text="space", ledger=tmp_path / "other")
    assert (report.embedded, report.failed) == (2, 0)
    assert emulator.log.times_embedded(" ") == 1


def test_a_text_that_cannot_be_sent_does_not_affect_others(run: Any, emulator: Any) -> None:
    report = run([("half", "a\ud800b"), ("whole", "text"), ("long", "x" * 9_900_001)])
    assert [(failure.id, failure.message) for failure in report.failures] == [
        ("long", "the text has 9,900,003 bytes; the limit is 9,900,000 bytes: split it"),
    ]
    vectors = dict(report.vectors())
    assert list(vectors) == ["half", "whole"], "a lone surrogate is replaced, as in direct calls"
    assert (emulator.log.texts_embedded, emulator.log.times_embedded("a\ufffdb")) == (2, 1)
    with Ledger(report.ledger) as held:
        assert held.find(["a\ud800b"]) == [vectors["half"]]


@every_row(
    ("document", "says"),
    [
        (("a", None), "the text of 'a' is a NoneType, not a string"),
        (("a", b"text"), "the text of 'a' is a bytes, not a string"),
        ((None, "text"), "the id None is neither a string nor an integer of 64 bits"),
        ((True, "text"), "the id True is neither a string nor an integer of 64 bits"),
        ((2**63, "text"), "the id 9223372036854775808 is neither"),
        (("\ud800", "text"), r"the id '\ud800' contains a lone surrogate"),
        ("text", "a document must be a pair of id and text, or a mapping with 'id' and 'text', not 'text'"),
        (
            ("a", "text", {}),
            "a document must be a pair of id and text, or a mapping with 'id' and 'text', not ('a', 'text', {})",
        ),
        (7, "a document must be a pair of id and text, or a mapping with 'id' and 'text', not 7"),
    ],
)
def test_an_invalid_document_ends_the_run_with_its_index(run: Any, document: Any, says: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        run([("fine", "text"), document])
    assert says in str(caught.value)


def test_an_endless_source_is_read_only_as_far_as_needed(run: Any, emulator: Any) -> None:
    """When the cost limit stops the run, it has read only the sent texts and one claim per worker."""
    read = itertools.count()
    source = ((number, f"text number {number}") for number in read)
    with pytest.raises(Exception, match=r"the cost limit of \$0.000001 is reached"):
        run(source, limit_cost_usd=0.000_001, texts_per_job=10, max_concurrency=2)
    assert 0 < emulator.log.texts_embedded <= 20
    assert next(read) <= 1001


def test_the_source_is_read_during_the_run(run: Any, emulator: Any) -> None:
    """The run reads at most two chunks of 1,000 texts ahead of the submitted ones."""
    ahead: list[int] = []

    def source() -> Iterator[tuple[int, str]]:
        for number in range(5000):
            if number % 1000 == 0:
                ahead.append(number - emulator.log.texts_embedded)
            yield number, f"text number {number}"

    report = run(source(), texts_per_job=500, max_concurrency=2)
    assert report.embedded == 5000
    assert max(ahead) <= 2000


def test_several_submissions_are_in_flight(run: Any, texts: Any, emulator: Any) -> None:
    """All submissions are in the queue before the first is done. Otherwise the test would never end."""
    emulator.queue.settings.progress = "never"

    def answer(request: httpx.Request) -> httpx.Response:
        if emulator.queue.submitted == 6:
            emulator.queue.settings.progress = "at_once"
        return emulator.handle(request)

    report = run(texts(60), texts_per_job=10, max_concurrency=2, transport=httpx.MockTransport(answer))
    assert report.embedded == 60
    assert emulator.log.texts_repeated == 0


def test_no_more_than_64_submissions_are_in_flight(run: Any, texts: Any, emulator: Any) -> None:
    emulator.queue.settings.progress = "never"
    with pytest.raises(BatchTimeoutError):
        run(texts(700), texts_per_job=10, deadline_s=60)
    assert emulator.queue.submitted == 64


def test_direct_requests_are_bounded_by_max_concurrency_alone(account: Any, ledger: Any) -> None:
    """65 requests are answered only after all of them arrived."""
    together = threading.Barrier(65, timeout=100)

    def answer(request: httpx.Request) -> httpx.Response:
        together.wait()
        vectors = [[1.0, 2.0]] * len(json.loads(request.content)["text"])
        return httpx.Response(200, json={"result": {"data": vectors}, "success": True})

    client = Client(http_client=httpx.Client(transport=httpx.MockTransport(answer)), max_concurrency=65, **account)
    documents = ((number, str(number)) for number in range(6500))
    report = ingest(documents, ledger=ledger, model=MODEL, client=client, mode="direct", progress=False)
    assert report.embedded == 6500


@pytest.mark.parametrize("bound", [1, 3])
def test_max_concurrency_bounds_the_requests_in_flight(run: Any, texts: Any, emulator: Any, bound: int) -> None:
    emulator.settings.latency_s = 0.01
    run(texts(100), mode="direct", model="@cf/baai/bge-m3", max_concurrency=bound)
    run(texts(1000, 100), mode="direct", model="@cf/baai/bge-m3", max_concurrency=bound)
    assert emulator.log.peak_concurrency == bound


def test_the_lease_is_renewed_while_the_source_is_read(run: Any, ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LEASE_S", 0.2)

    def lease() -> float:
        with contextlib.closing(sqlite3.connect(ledger)) as database:
            return float(database.execute("SELECT lease_until FROM runs").fetchone()[0])

    def source() -> Iterator[tuple[int, str]]:
        first = lease()
        while lease() == first:
            threading.Event().wait(0.01)
        yield 1, "text"

    assert run(source()).embedded == 1


def test_a_client_is_made_from_the_environment(
    emulator: Any, account: Any, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with emulator.serve() as url:
        monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", account["account_id"])
        monkeypatch.setenv("CLOUDFLARE_API_TOKEN", account["api_token"])
        report = ingest([("a", "text")], ledger=ledger, model=MODEL, progress=False, base_url=url)
    assert report.embedded == 1
    assert account["api_token"].encode() not in ledger.read_bytes()


def test_an_unknown_setting_suggests_the_nearest(ledger: Any, account: Any) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'max_concurrency'"):
        ingest([("a", "text")], ledger=ledger, model=MODEL, max_concurency=2, **account)


def test_the_progress_bar_ends_at_the_number_of_documents(
    run: Any, texts: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run([*texts(30), ("again", "text number 3"), ("empty", "")], progress=True)
    shown = capsys.readouterr().err.replace("\r", "\n").strip().splitlines()[-1]
    assert "100%" in shown
    assert "32/32" in shown
    assert "jobs 0, retries 0, failed 1, neurons" in shown


def test_the_bar_of_a_source_without_length_uses_total(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(((n, str(n)) for n in range(3)), progress=True, total=3)
    assert "3/3" in capsys.readouterr().err


def test_the_ledger_returns_vectors_by_text(run: Any, texts: Any, ledger: Any) -> None:
    report = run([*texts(3), ("bad", "")])
    vectors = dict(report.vectors())
    with Ledger(ledger, Fingerprint(MODEL)) as held:
        assert held.find(["text number 2", "never seen"]) == [vectors["doc-2"], None]
        assert held.message("") == "the text is empty"
        assert held.message("text number 2") is None
        assert math.isclose(math.hypot(*vectors["doc-2"]), 1.0, abs_tol=1e-5)
