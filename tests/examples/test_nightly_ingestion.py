"""The nightly ingestion: only changes are paid for, and a stopped run is continued."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from langchain_workers_ai import WorkersAIEmbeddings
from workers_ai_emulator import Emulator, ItemFailure

TEXTS = {"ferry.md": "The ferry to Moss leaves at 14:02.", "museum.txt": "The museum is closed on Mondays."}


@pytest.fixture
def nightly(load: Callable[[str], ModuleType], workers_ai_emulator_env: Emulator, short_waits: None) -> ModuleType:
    """Return the example; the queue of the emulator answers the first poll."""
    workers_ai_emulator_env.queue.settings.progress = "at_once"
    return load("nightly_ingestion")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two texts."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for name, text in TEXTS.items():
        (notes / name).write_text(text)
    (notes / "photo.png").write_bytes(b"\x89PNG")
    return notes


def sources(nightly: ModuleType, index: Path, question: str) -> list[str]:
    """Return the sources that a search finds."""
    store = nightly.open_store(index, WorkersAIEmbeddings(model=nightly.MODEL))
    return [found.metadata["source"] for found in store.similarity_search(question, k=9)]


def test_a_second_night_pays_for_changes_only(
    nightly: ModuleType, folder: Path, tmp_path: Path, workers_ai_emulator: Emulator
) -> None:
    index = tmp_path / "index"
    assert nightly.main(folder, index) == nightly.DONE
    assert sources(nightly, index, "When does the ferry leave?") == ["ferry.md", "museum.txt"]
    (folder / "museum.txt").unlink()
    (folder / "deep").mkdir()
    (folder / "deep" / "tickets.rst").write_text("Tickets for the ferry are sold on board.")
    before = workers_ai_emulator.log.texts_embedded
    assert nightly.main(folder, index) == nightly.DONE
    assert workers_ai_emulator.log.texts_embedded - before == 1
    assert set(sources(nightly, index, "Where are tickets?")) == {"ferry.md", "deep/tickets.rst"}


def test_a_stopped_run_is_continued(
    nightly: ModuleType,
    folder: Path,
    tmp_path: Path,
    workers_ai_emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = workers_ai_emulator.queue.settings
    queue.progress = "never"
    monkeypatch.setattr(nightly, "DEADLINE_S", 0.2)
    assert nightly.main(folder, tmp_path / "index") == nightly.RUN_AGAIN
    queue.progress = "polls"
    monkeypatch.setattr(nightly, "DEADLINE_S", 60)
    assert nightly.main(folder, tmp_path / "index") == nightly.DONE
    assert workers_ai_emulator.log.routes["submit"] == 1, "nothing is submitted twice"


def test_failed_chunks_are_reported(
    nightly: ModuleType, folder: Path, tmp_path: Path, workers_ai_emulator: Emulator
) -> None:
    workers_ai_emulator.queue.settings.failures = [ItemFailure(contains="museum", code=5004)]
    assert nightly.main(folder, tmp_path / "index") == nightly.SOME_FAILED
    assert sources(nightly, tmp_path / "index", "museum") == ["ferry.md"]
