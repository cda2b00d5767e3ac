"""The ledger file: shared, damaged, full disk, older versions, and its reports."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support import every_row

from workers_ai.errors import APIResponseValidationError, BatchError, ConfigurationError
from workers_ai.ingest import LedgerError
from workers_ai.ledger._failure_policy import Retry
from workers_ai.ledger._ledger import Ledger
from workers_ai.ledger._records import Document, InFlight, Measured, text_hash
from workers_ai.ledger._store import file as ledger_file
from workers_ai.ledger._store.fingerprints import Fingerprint
from workers_ai.ledger._store.schema import connect

SHAPE = Fingerprint("@cf/baai/bge-small-en-v1.5")
GONE = 2**22 + 1
"""No process has this id: it is above the maximum of Linux."""


@pytest.fixture
def opened(ledger: Path) -> Iterator[Callable[..., Ledger]]:
    """Return a function that opens the ledger. It is closed at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(Ledger(ledger, SHAPE, **options))


def feed(ledger: Ledger, run: int, *texts: str) -> None:
    documents = [Document(text, text_hash(text), text) for text in texts]
    ledger.feed(run, documents, part=100, measure=lambda text: Measured(len(text) + 2, max(1, len(text) // 4)))


def claim(ledger: Ledger, run: int, texts: int = 1000, **bounds: Any) -> Any:
    return ledger.claim(run, texts=texts, part=100, **{"max_bytes": 10**6, "max_tokens": None, **bounds})


def packed(*values: float) -> bytes:
    return array("f", values).tobytes()


# Claims


def test_a_claimed_text_is_not_claimed_by_others(opened: Any) -> None:
    mine, yours = opened(), opened()
    me, you = mine.begin_run(), yours.begin_run()
    feed(mine, me, "a", "b", "c")
    feed(yours, you, "b", "c", "d")
    assert claim(mine, me, 2).texts == [["a", "b"]]
    assert claim(yours, you, 2).texts == [["c", "d"]]
    assert claim(mine, me) is None


def test_the_claims_of_a_dead_process_are_taken_over(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: GONE)
        died = opened()
        run = died.begin_run()
        feed(died, run, "a", "b", "c")
        sent = claim(died, run, 1)
        died.accepted(run, sent.job, "request-1")
        unsent = claim(died, run, 1)
        assert unsent.texts == [["b"]]
    heir = opened()
    mine = heir.begin_run()
    adopted = heir.adopt(mine)
    assert (adopted.request_id, adopted.groups) == ("request-1", sent.groups)
    assert heir.adopt(mine) is None
    feed(heir, mine, "a", "b", "c")
    assert claim(heir, mine).texts == [["b", "c"]]


def test_the_claims_of_a_live_process_are_kept_until_its_lease_ends(opened: Any) -> None:
    now = [1000.0]
    slow, other = opened(lease_s=60, clock=lambda: now[0]), opened(lease_s=60, clock=lambda: now[0])
    run = slow.begin_run()
    feed(slow, run, "a")
    sent = claim(slow, run)
    slow.accepted(run, sent.job, "request-1")
    mine = other.begin_run()
    now[0] += 59
    assert other.adopt(mine) is None
    slow.renew(run)
    now[0] += 59
    assert other.adopt(mine) is None
    now[0] += 2
    assert other.adopt(mine).request_id == "request-1"


def test_a_run_on_another_machine_counts_as_alive(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("platform.node", lambda: "another-machine")
        patch.setattr(os, "getpid", lambda: GONE)
        elsewhere = opened()
        run = elsewhere.begin_run()
        feed(elsewhere, run, "a")
        elsewhere.accepted(run, claim(elsewhere, run).job, "request-1")
    here = opened()
    assert here.adopt(here.begin_run()) is None


def test_a_late_result_of_a_lost_claim_is_stored_and_changes_nothing_else(opened: Any) -> None:
    now = [1000.0]
    slow, other = opened(lease_s=60, clock=lambda: now[0]), opened(lease_s=60, clock=lambda: now[0])
    run = slow.begin_run()
    feed(slow, run, "a", "b")
    sent = claim(slow, run)
    slow.accepted(run, sent.job, "request-1")
    mine = other.begin_run()
    now[0] += 61
    adopted = other.adopt(mine)
    a, b = adopted.groups[0]
    slow.store(sent.job, [(a, packed(1.0))], [Retry(1, 1, b)], run=run)
    assert other.find(["a"]) == [array("f", [1.0])]
    assert other.tries(adopted.job) == {a: (100, 0), b: (100, 0)}
    other.store(adopted.job, [(a, packed(1.0)), (b, packed(2.0))], run=mine)
    assert other.find(["a", "b"]) == [array("f", [1.0]), array("f", [2.0])]
    assert other.in_flight() == []


def test_unsent_inputs_are_released_when_a_run_ends(opened: Any) -> None:
    ledger = opened()
    run = ledger.begin_run()
    feed(ledger, run, "a", "b")
    claim(ledger, run, 1)
    ledger.end_run(run, finished=False)
    assert ledger.in_flight() == []
    assert ledger.waiting() == 2


def test_a_run_without_a_recorded_end_does_not_block_other_runs_of_the_process(opened: Any) -> None:
    first, second = opened(), opened()
    run = first.begin_run()
    feed(first, run, "a")
    first.accepted(run, claim(first, run).job, "request-1")
    first.close()
    with pytest.raises(LedgerError, match="cannot be used"):
        first.end_run(run, finished=False)
    assert second.adopt(second.begin_run()).request_id == "request-1"


@pytest.mark.parametrize(
    ("bounds", "groups"),
    [
        ({}, [["aaaa", "bbbb", "cccc", "dddd", "eeee"]]),
        ({"max_tokens": 2}, [["aaaa", "bbbb"], ["cccc", "dddd"], ["eeee"]]),
        ({"max_tokens": 2, "requests": 1}, [["aaaa", "bbbb"]]),
        ({"max_bytes": 150}, [["aaaa", "bbbb"]]),
        ({"max_bytes": 1}, [["aaaa"]]),
    ],
)
def test_a_claim_has_a_maximum_size(opened: Any, bounds: dict[str, int], groups: list[list[str]]) -> None:
    """A text of four letters has six bytes as JSON, counts as one token, and has 64 bytes of overhead."""
    ledger = opened()
    run = ledger.begin_run()
    feed(ledger, run, "aaaa", "bbbb", "cccc", "dddd", "eeee")
    assert claim(ledger, run, **bounds).texts == groups


def test_a_job_that_was_not_sent_yet_has_no_id(opened: Any) -> None:
    now = [1000.0]
    ledger = opened(clock=lambda: now[0])
    run = ledger.begin_run()
    feed(ledger, run, "a", "b")
    claim(ledger, run, 1)
    sent = claim(ledger, run, 1)
    ledger.accepted(run, sent.job, "request-1")
    now[0] += 5
    assert ledger.in_flight() == [InFlight(None, 1, 5.0, True), InFlight("request-1", 1, 5.0, True)]
    assert ledger.in_flight(run + 1) == []
    ledger.end_run(run, finished=False)
    assert ledger.in_flight() == [InFlight("request-1", 1, 5.0, False)]


# Stored data


def test_documents_of_the_last_three_runs_and_of_the_last_hour_are_kept(opened: Any) -> None:
    """Six runs, one every 800 seconds, then one after a day."""
    now = [1_000_000.0]
    ledger = opened(clock=lambda: now[0])

    def finish() -> int:
        run: int = ledger.begin_run()
        feed(ledger, run, f"text {run}")
        ledger.end_run(run, finished=True)
        now[0] += 800
        return run

    def kept() -> list[int]:
        found = []
        for run in runs:
            with contextlib.suppress(LedgerError):
                assert [row.id for row in ledger.rows(run)] == [f"text {run}"]
                found.append(run)
        return found

    runs = [finish() for _ in range(6)]
    assert kept() == runs[1:], "when the last one began, the first had ended more than an hour before"
    now[0] += 86_400
    runs.append(finish())
    assert kept() == runs[-4:]
    for run in (runs[0], 99):
        with pytest.raises(LedgerError, match=f"has no run {run}"):
            list(ledger.rows(run))


def test_the_run_that_ends_last_is_kept(opened: Any) -> None:
    now = [1_000_000.0]
    ledger = opened(clock=lambda: now[0])
    long = ledger.begin_run()
    feed(ledger, long, "long")
    for _ in range(4):
        ledger.end_run(ledger.begin_run(), finished=True)
        now[0] += 1
    ledger.end_run(long, finished=True)
    now[0] += 7200
    ledger.begin_run()
    assert [row.id for row in ledger.rows(long)] == ["long"]


def test_a_deleted_run_has_no_report(opened: Any) -> None:
    now = [1000.0]
    slow, other = (opened(lease_s=60, clock=lambda: now[0]) for _ in range(2))
    run = slow.begin_run()
    feed(slow, run, "a")
    now[0] += 61
    other.begin_run()
    feed(slow, run, "b")
    with pytest.raises(LedgerError, match=f"run {run} was deleted from the ledger"):
        slow.end_run(run, finished=True)
    slow.end_run(run, finished=False)


def test_vectors_of_another_length_are_rejected(opened: Any) -> None:
    ledger = opened()
    run = ledger.begin_run()
    feed(ledger, run, "a", "b")
    first, second = claim(ledger, run, 1), claim(ledger, run, 1)
    ledger.store(first.job, [(first.groups[0][0], packed(1.0, 2.0))], run=run)
    with pytest.raises(APIResponseValidationError, match="the vectors have 3 dimensions; those of the ledger"):
        ledger.store(second.job, [(second.groups[0][0], packed(1.0, 2.0, 3.0))], run=run)
    mixed = [(first.groups[0][0], packed(1.0, 2.0)), (second.groups[0][0], packed(1.0))]
    with pytest.raises(APIResponseValidationError, match="the vectors have 1 dimensions; those of the ledger"):
        ledger.store(second.job, mixed, run=run)
    assert ledger.find(["a", "b"]) == [array("f", [1.0, 2.0]), None]


def test_a_ledger_can_be_read_without_passing_its_model(opened: Any, ledger: Path) -> None:
    opened().close()
    with Ledger(ledger) as held:
        assert held.fingerprint == SHAPE
        assert held.counts() == {"texts": 0, "vectors": 0, "waiting": 0, "failures": 0}


def test_a_ledger_that_is_only_read_must_exist(ledger: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no ledger at"):
        Ledger(ledger)
    assert not ledger.exists()


# Unusable files


def made(run: Any, texts: Any, count: int = 300) -> Path:
    assert run(texts(count)).embedded == count
    return run.ledger  # type: ignore[no-any-return]


@pytest.mark.parametrize("rest", [1, 100, 4096, 0.5, -1])
def test_a_truncated_ledger_is_rejected_and_not_touched(run: Any, texts: Any, emulator: Any, rest: float) -> None:
    path = made(run, texts)
    whole = path.read_bytes()
    cut = whole[: int(rest * len(whole)) if rest == 0.5 else int(rest)]
    path.write_bytes(cut)
    before = emulator.log.requests
    with pytest.raises(LedgerError, match=r"truncated|not a ledger|damaged") as caught:
        run(texts(300))
    assert isinstance(caught.value, BatchError)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == cut
    assert emulator.log.requests == before
    path.write_bytes(whole)
    assert run(texts(300)).reused == 300


def test_an_empty_file_becomes_a_ledger(run: Any, texts: Any, ledger: Path) -> None:
    ledger.touch()
    assert run(texts(3)).embedded == 3


@pytest.mark.parametrize("content", [b"not a ledger at all\n" * 500, b"SQLite format 3\0" + b"\xff" * 8000, b"{}"])
def test_garbage_is_rejected_and_not_touched(run: Any, texts: Any, ledger: Path, content: bytes) -> None:
    ledger.write_bytes(content)
    with pytest.raises(LedgerError, match=r"not a ledger|truncated|damaged"):
        run(texts(3))
    assert ledger.read_bytes() == content


def test_a_damaged_ledger_raises_and_readable_data_stays(run: Any, texts: Any) -> None:
    path = made(run, texts)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = b"\xa5" * (len(data) - len(data) // 2)
    path.write_bytes(data)
    with pytest.raises(LedgerError, match="restore a copy, or choose another path"):
        run(texts(600))
    assert path.stat().st_size >= len(data)


@pytest.mark.parametrize(
    "tables", ["customers (name)", "meta (key, value)", "meta (key, value); CREATE TABLE texts (id, hash)"]
)
def test_another_database_is_rejected_and_not_touched(run: Any, texts: Any, ledger: Path, tables: str) -> None:
    changed(ledger, f"CREATE TABLE {tables}")
    before = ledger.read_bytes()
    with pytest.raises(LedgerError, match="is an SQLite file, but not a ledger"):
        run(texts(3))
    with pytest.raises(LedgerError, match="is an SQLite file, but not a ledger"):
        Ledger(ledger)
    assert ledger.read_bytes() == before
    assert list(ledger.parent.iterdir()) == [ledger]


def test_an_empty_file_that_is_only_read_stays_empty(ledger: Path) -> None:
    ledger.touch()
    with pytest.raises(ConfigurationError, match="is empty"):
        Ledger(ledger)
    assert ledger.read_bytes() == b""


def test_a_new_ledger_waits_for_the_process_that_creates_it(ledger: Path) -> None:
    """SQLite's timeout does not apply to this wait: the change to a write-ahead log fails at once."""
    other = sqlite3.connect(ledger, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.1, other.close)
    release.start()
    connect(ledger, create=True).close()
    release.join()


def test_a_ledger_that_stays_locked_is_an_error(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers_ai.ledger._store.schema._BUSY_S", 0.05)
    with contextlib.closing(sqlite3.connect(ledger, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="another process holds it"):
            connect(ledger, create=True)


def changed(path: Path, script: str) -> None:
    database = sqlite3.connect(path)
    database.executescript(script)
    database.close()


@pytest.mark.parametrize(
    "script",
    [
        "DELETE FROM meta WHERE key = 'fingerprint'",
        "UPDATE meta SET value = '{' WHERE key = 'fingerprint'",
        "UPDATE meta SET value = '[]' WHERE key = 'fingerprint'",
        """UPDATE meta SET value = '{"model": "@cf/a/b", "of_tomorrow": 1}' WHERE key = 'fingerprint'""",
        """UPDATE meta SET value = '{"model": "@cf/a/b", "pooling": 7}' WHERE key = 'fingerprint'""",
        "UPDATE meta SET value = printf('%.*c', 100000, '[') WHERE key = 'fingerprint'",
    ],
)
def test_a_ledger_of_odd_contents_is_rejected(run: Any, texts: Any, emulator: Any, script: str) -> None:
    path = made(run, texts, 3)
    changed(path, script)
    before = emulator.log.requests
    for use in (lambda: run(texts(3)), lambda: Ledger(path)):
        with pytest.raises(LedgerError, match="has invalid contents") as caught:
            use()
        assert str(path) in str(caught.value)
    assert emulator.log.requests == before


@pytest.mark.parametrize("vector", ["x'0102'", "'text'", "5"])
def test_an_invalid_vector_counts_as_damage(run: Any, texts: Any, vector: str) -> None:
    report = run(texts(3))
    changed(run.ledger, f"UPDATE vectors SET vector = {vector} WHERE id = 2")
    with pytest.raises(LedgerError, match="restore a copy"):
        list(report.vectors())
    with Ledger(run.ledger) as held, pytest.raises(LedgerError, match="restore a copy"):
        held.find(["text number 1"])


@pytest.mark.parametrize("groups", ["[1, 2]", "{", "null"])
def test_an_invalid_job_counts_as_damage(opened: Any, ledger: Path, groups: str) -> None:
    with opened() as first:
        run = first.begin_run()
        feed(first, run, "a")
        first.accepted(run, claim(first, run).job, "request-1")
        first.end_run(run, finished=False)
    changed(ledger, f"UPDATE jobs SET groups = '{groups}'")
    with opened() as second:
        mine = second.begin_run()
        with pytest.raises(LedgerError, match="has invalid contents"):
            second.in_flight()
        with pytest.raises(LedgerError, match="has invalid contents"):
            second.adopt(mine)


@pytest.mark.parametrize("replaced", [False, True])
def test_deleting_the_ledger_ends_the_run(run: Any, texts: Any, emulator: Any, ledger: Path, replaced: bool) -> None:
    """The ledger is deleted before the second of three submissions."""

    def source() -> Iterator[tuple[str, str]]:
        yield from texts(1000)
        ledger.unlink()
        if replaced:
            Ledger(ledger, SHAPE).close()
        yield from texts(2000, 1000)

    with pytest.raises(LedgerError, match="was deleted, moved or replaced while it was in use"):
        run(source(), max_concurrency=1)
    assert emulator.log.texts_embedded == 1000


def test_a_ledger_is_found_again_from_another_folder(
    run: Any, texts: Any, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ledger.parent)

    def source() -> Iterator[tuple[str, str]]:
        yield from texts(1000)
        monkeypatch.chdir("/")
        yield from texts(1000, 1000)

    assert run(source(), ledger=ledger.name).embedded == 2000


def test_a_ledger_of_another_version_is_rejected(run: Any, texts: Any) -> None:
    changed(made(run, texts), "UPDATE meta SET value = '7' WHERE key = 'version'")
    with pytest.raises(LedgerError, match="has version 7, not 1"):
        run(texts(3))


def test_a_ledger_of_the_first_release_continues(run: Any, ledger: Path) -> None:
    with contextlib.closing(sqlite3.connect(ledger)) as db:
        db.executescript(Path(__file__).with_name("ledger_version_1.sql").read_text())
    vectors = {"one": [1.0, 0.0, 0.5], "two": [0.0, 1.0, 0.25], "three": [0.5, 0.5, 0.5], "four": [0.0, 0.0, 1.0]}
    jobs, polled = {"request-three": ["three"]}, []

    def queue(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if "requests" in body:
            jobs["new"] = body["requests"][0]["text"]
            result: dict[str, Any] = {"status": "queued", "request_id": "new"}
        else:
            polled.append(body["request_id"])
            data = [vectors[text] for text in jobs[body["request_id"]]]
            item = {"id": 0, "success": True, "result": {"shape": [len(data), 3], "data": data}}
            result = {"responses": [item], "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        return httpx.Response(200, json={"success": True, "errors": [], "result": result})

    documents = [("a", "one"), ("b", "two"), ("c", ""), ("d", "three"), ("e", "four")]
    report = run(documents, transport=httpx.MockTransport(queue), take_over=True)
    assert (report.embedded, report.reused, [failure.id for failure in report.failures]) == (2, 2, ["c"])
    assert {doc: list(vector) for doc, vector in report.vectors()} == {
        doc: vectors[text] for doc, text in documents if text
    }
    assert (jobs["new"], sorted(polled)) == (["four"], ["new", "request-three"])


def test_an_empty_ledger_accepts_another_model(ledger: Path) -> None:
    """After a run with a mistyped model, the file can be used with the correct model."""
    Ledger(ledger, Fingerprint("@cf/baai/bge-m4")).close()
    with Ledger(ledger, SHAPE) as again:
        assert again.fingerprint == SHAPE
    with Ledger(ledger) as found:
        assert found.fingerprint == SHAPE


@pytest.mark.parametrize("model", ["@cf/openai/gpt-oss-120b", "@cf/baai/bge-reranker-base"])
def test_a_model_of_another_task_is_rejected_before_sending(run: Any, texts: Any, emulator: Any, model: str) -> None:
    with pytest.raises(ConfigurationError, match="use an embedding model such as"):
        run(texts(3), model=model)
    assert emulator.log.requests == 0


@pytest.mark.parametrize("place", ["missing/corpus.ledger", "folder"])
def test_an_unwritable_path_is_in_the_error(run: Any, texts: Any, tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(LedgerError, match="cannot be used") as caught:
        run(texts(3), ledger=tmp_path / place)
    assert str(tmp_path / place) in str(caught.value)


@pytest.mark.parametrize("place", [os.devnull, "pipe"])
def test_a_path_that_is_not_a_file_is_rejected_without_reading(tmp_path: Path, place: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LedgerError, match="it is a folder or a device"):
        Ledger(tmp_path / place, SHAPE)


@every_row("place", ["", ".", "/", "a\0b", 5, None, b"corpus.ledger"])
def test_an_invalid_path_is_rejected(run: Any, texts: Any, place: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"ledger must be (a|the) path"):
        run(texts(3), ledger=place)


def test_a_full_disk_raises_and_recorded_data_stays(
    run: Any, texts: Any, emulator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = ledger_file.connect

    def small(path: Path, **options: Any) -> sqlite3.Connection:
        database = connect(path, **options)
        database.execute("PRAGMA max_page_count = 500")
        return database

    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "connect", small)
        with pytest.raises(LedgerError, match="free some space and run the same call again"):
            run(texts(2000), texts_per_job=100, max_concurrency=1)
    with Ledger(run.ledger) as held:
        kept = held.counts()["vectors"]
    assert kept > 100
    report = run(texts(2000), texts_per_job=100)
    assert report.embedded + report.reused == 2000
    assert report.reused >= kept
    assert emulator.log.texts_repeated <= 100, "more than the one submission that could not be recorded"
