"""The ingestor with a record manager: the behaviour of LangChain's ``index``, with vectors from the queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from langchain_classic.indexes import SQLRecordManager
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, RecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore
from tests.support import Caller, wired

from langchain_workers_ai import ConfigurationError, WorkersAIBatchIngestor, WorkersAIEmbeddings
from workers_ai_emulator import Clock, Emulator
from workers_ai_emulator.state.queue import ItemFailure, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.bulk_runs import VirtualTime

MODEL = "@cf/baai/bge-small-en-v1.5"


@pytest.fixture
def emulator(clock: VirtualTime) -> Emulator:
    return Emulator(clock=Clock("jump"), queue=QueueSettings(progress="at_once"))


@pytest.fixture
def store(emulator: Emulator) -> InMemoryVectorStore:
    return InMemoryVectorStore(WorkersAIEmbeddings(**wired(emulator, model=MODEL)))


@pytest.fixture
def manager() -> RecordManager:
    return InMemoryRecordManager("tests")


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Caller:
    return Caller(request.param)


@pytest.fixture
def ingestor(
    store: InMemoryVectorStore, manager: RecordManager, tmp_path: Path
) -> Callable[..., WorkersAIBatchIngestor]:
    def make(**options: Any) -> WorkersAIBatchIngestor:
        options = {"ledger": tmp_path / "ledger", "record_manager": manager, "progress": False, **options}
        return WorkersAIBatchIngestor(store.embedding, store, **options)

    return make


def pages(*texts: str, source: str = "book") -> list[Document]:
    return [Document(text, metadata={"source": source}) for text in texts]


def counts(added: int = 0, updated: int = 0, skipped: int = 0, deleted: int = 0) -> dict[str, int]:
    return {"num_added": added, "num_updated": updated, "num_skipped": skipped, "num_deleted": deleted}


def texts(store: InMemoryVectorStore) -> list[str]:
    return sorted(entry["text"] for entry in store.store.values())


def submitted(emulator: Emulator) -> list[str]:
    entries = [entry for entry in emulator.log.entries if entry.route == "submit"]
    return sorted(text for entry in entries for item in entry.json["requests"] for text in item["text"])


def test_a_second_run_adds_nothing(
    ingestor: Callable[..., WorkersAIBatchIngestor], store: InMemoryVectorStore, emulator: Emulator, call: Caller
) -> None:
    documents = pages(*(f"page {number}" for number in range(230)))

    first = call(ingestor(batch_size=50), "ingest", documents)
    assert first.indexing == counts(added=230)
    assert (first.embedded, len(store.store)) == (230, 230)
    assert len(submitted(emulator)) == 230
    emulator.log.clear()

    second = call(ingestor(batch_size=50), "ingest", documents)
    assert second.indexing == counts(skipped=230)
    assert (second.embedded, second.reused, emulator.log.requests) == (0, 0, 0)


def test_documents_in_the_record_manager_are_not_embedded_with_a_new_ledger(
    ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller, tmp_path: Path
) -> None:
    call(ingestor(), "ingest", pages("one", "two"))
    emulator.log.clear()

    report = call(ingestor(ledger=tmp_path / "new"), "ingest", pages("one", "two", "three"))

    assert report.indexing == counts(added=1, skipped=2)
    assert (report.embedded, submitted(emulator)) == (1, ["three"])


@pytest.mark.parametrize("cleanup", ["incremental", "full", "scoped_full"])
def test_changed_documents_are_replaced(
    cleanup: Any,
    ingestor: Callable[..., WorkersAIBatchIngestor],
    store: InMemoryVectorStore,
    emulator: Emulator,
    call: Caller,
) -> None:
    options = {"cleanup": cleanup, "source_id_key": "source"}
    call(ingestor(), "ingest", pages("one", "two"), **options)
    emulator.log.clear()

    report = call(ingestor(), "ingest", pages("one", "two, revised"), **options)

    assert report.indexing == counts(added=1, skipped=1, deleted=1)
    assert texts(store) == ["one", "two, revised"]
    assert submitted(emulator) == ["two, revised"]


@pytest.mark.parametrize(
    ("cleanup", "left"),
    [
        ("full", ["b1"]),  # all documents that were not passed are deleted
        ("scoped_full", ["b1", "c1"]),  # deletes documents of the passed sources that were not passed
        ("incremental", ["b1", "c1"]),
        (None, ["b1", "b2", "c1"]),
    ],
)
def test_deleted_documents_are_cleaned_up(
    cleanup: Any,
    left: list[str],
    ingestor: Callable[..., WorkersAIBatchIngestor],
    store: InMemoryVectorStore,
    call: Caller,
) -> None:
    call(ingestor(), "ingest", [*pages("b1", "b2", source="b"), *pages("c1", source="c")], source_id_key="source")

    report = call(ingestor(), "ingest", pages("b1", source="b"), cleanup=cleanup, source_id_key="source")

    assert texts(store) == left
    assert report.indexing == counts(skipped=1, deleted=3 - len(left))


def test_cleanup_is_skipped_if_documents_failed(
    ingestor: Callable[..., WorkersAIBatchIngestor], store: InMemoryVectorStore, emulator: Emulator, call: Caller
) -> None:
    options = {"cleanup": "full", "source_id_key": "source"}
    call(ingestor(), "ingest", pages("one", "two"), **options)
    emulator.queue.settings.failures = [ItemFailure(contains="revised", code=3030)]

    broken = call(ingestor(), "ingest", pages("one", "two, revised", "three"), **options)
    assert (broken.failed, broken.indexing) == (1, counts(added=1, skipped=1))
    assert texts(store) == ["one", "three", "two"]

    emulator.queue.settings.failures = []
    mended = call(ingestor(), "ingest", pages("one", "two, revised", "three"), **options)
    assert (mended.embedded, mended.failed, mended.indexing) == (1, 0, counts(added=1, skipped=2, deleted=1))
    assert texts(store) == ["one", "three", "two, revised"]


def test_an_index_created_by_langchain_keeps_its_keys(
    ingestor: Callable[..., WorkersAIBatchIngestor],
    store: InMemoryVectorStore,
    manager: RecordManager,
    emulator: Emulator,
    call: Caller,
) -> None:
    index(pages("one", "two"), manager, store, key_encoder="sha256")
    emulator.log.clear()

    report = call(ingestor(), "ingest", pages("one", "two", "three"), key_encoder="sha256")

    assert report.indexing == counts(added=1, skipped=2)
    assert submitted(emulator) == ["three"]
    again = index(pages("one", "two", "three"), manager, store, key_encoder="sha256")
    assert again == counts(skipped=3)


def test_a_key_encoder_of_the_user(
    ingestor: Callable[..., WorkersAIBatchIngestor], store: InMemoryVectorStore, call: Caller
) -> None:
    call(ingestor(), "ingest", pages("one", "two"), key_encoder=lambda document: f"key of {document.page_content}")

    assert sorted(store.store) == ["key of one", "key of two"]


def test_force_update_writes_again_with_vectors_of_the_ledger(
    ingestor: Callable[..., WorkersAIBatchIngestor], emulator: Emulator, call: Caller
) -> None:
    call(ingestor(), "ingest", pages("one", "two"))
    emulator.log.clear()

    report = call(ingestor(), "ingest", pages("one", "two"), force_update=True)

    assert report.indexing == counts(updated=2)
    assert (report.reused, emulator.log.requests) == (2, 0)


class Remembering(InMemoryVectorStore):
    extra: Any = None

    def add_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        self.extra = kwargs.get("extra")
        return super().add_documents(documents, ids)

    async def aadd_documents(self, documents: list[Document], ids: list[str] | None = None, **kwargs: Any) -> list[str]:
        self.extra = kwargs.get("extra")
        return await super().aadd_documents(documents, ids)


@pytest.mark.parametrize("managed", [True, False])
def test_upsert_kwargs_reach_the_store(
    managed: bool, store: InMemoryVectorStore, manager: RecordManager, call: Caller, tmp_path: Path
) -> None:
    remembering = Remembering(store.embedding)
    ingestor = WorkersAIBatchIngestor(
        store.embedding,
        remembering,
        ledger=tmp_path / "l",
        record_manager=manager if managed else None,
        progress=False,
    )

    call(ingestor, "ingest", pages("one"), upsert_kwargs={"extra": 7})

    assert remembering.extra == 7


class AsyncManager(InMemoryRecordManager):
    """A record manager without blocking methods, as with an asynchronous driver."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a blocking method was called")

    exists = update = list_keys = delete_keys = get_time = _refuse

    async def aexists(self, keys: Sequence[str]) -> list[bool]:
        return InMemoryRecordManager.exists(self, keys)

    async def aupdate(self, keys: Sequence[str], **options: Any) -> None:
        self.get_time = lambda: InMemoryRecordManager.get_time(self)  # type: ignore[method-assign]
        InMemoryRecordManager.update(self, keys, **options)
        del self.get_time

    async def aget_time(self) -> float:
        return InMemoryRecordManager.get_time(self)


def test_an_asynchronous_record_manager(
    ingestor: Callable[..., WorkersAIBatchIngestor], store: InMemoryVectorStore, emulator: Emulator
) -> None:
    manager = AsyncManager("tests")
    for expected in (counts(added=2), counts(skipped=2)):
        report = Caller("async")(ingestor(record_manager=manager), "ingest", pages("one", "two"))
        assert report.indexing == expected
    assert submitted(emulator) == ["one", "two"]


def test_a_record_manager_in_a_database(
    ingestor: Callable[..., WorkersAIBatchIngestor],
    store: InMemoryVectorStore,
    emulator: Emulator,
    call: Caller,
    tmp_path: Path,
) -> None:
    is_async = call.mode == "async"
    url = f"sqlite{'+aiosqlite' if is_async else ''}:///{tmp_path / 'records'}"
    manager = SQLRecordManager("tests", db_url=url, async_mode=is_async)
    documents = pages(*(f"page {number}" for number in range(1200)))
    try:
        call(manager, "create_schema")
        for number, expected in enumerate((counts(added=1200), counts(added=1, skipped=1199, deleted=1))):
            given = [*documents[:-1], Document(f"last {number}", metadata={"source": "book"})]
            report = call(ingestor(record_manager=manager), "ingest", given, cleanup="full")
            assert report.indexing == expected
    finally:
        asyncio.run(manager.engine.dispose()) if is_async else manager.engine.dispose()
    assert len(submitted(emulator)) == 1201
    assert len(store.store) == 1200


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cleanup": "ful"}, ValueError, "cleanup should be one of"),
        ({"cleanup": "incremental"}, ValueError, "Source id key is required"),
        ({"source_id": "source"}, TypeError, "source_id"),
    ],
)
def test_options_are_checked_before_sending(
    options: dict[str, Any],
    error: type[Exception],
    words: str,
    ingestor: Callable[..., WorkersAIBatchIngestor],
    emulator: Emulator,
    call: Caller,
) -> None:
    with pytest.raises(error, match=words):
        call(ingestor(), "ingest", pages("one"), **options)

    assert emulator.log.requests == 0


def test_options_of_indexing_need_a_record_manager(
    ingestor: Callable[..., WorkersAIBatchIngestor], call: Caller
) -> None:
    with pytest.raises(
        ConfigurationError, match="cleanup cannot be used without a record manager: pass record_manager="
    ):
        call(ingestor(record_manager=None), "ingest", pages("one"), cleanup="full")


def test_the_report_lists_indexed_documents(ingestor: Callable[..., WorkersAIBatchIngestor], call: Caller) -> None:
    report = call(ingestor(), "ingest", pages("one", "two"))

    assert [line.split() for line in str(report).splitlines() if "added" in line or "deleted" in line] == [
        ["added", "2"],
        ["deleted", "0"],
    ]
    assert "<th>added</th><td>2</td>" in report._repr_html_()
