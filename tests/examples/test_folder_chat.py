"""The chat over a folder: answers, sources, follow-up questions, errors, and the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from workers_ai_emulator import Emulator, Fault

TEXTS = {
    "ferry.md": "The ferry to Moss leaves at 14:02.",
    "prices/tickets.txt": "Tickets for the ferry are sold on board. A ticket costs 40 kroner.",
    "museum.md": "The museum is closed on Mondays. " + "It shows ships and engines of the last two centuries. " * 40,
}

# LlamaIndex imports LangChain if it is installed, and reads attributes that pydantic deprecates.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with three texts."""
    for name, text in TEXTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def example(load: Callable[[str], ModuleType], workers_ai_emulator_env: Emulator) -> Iterator[ModuleType]:
    """Return the example; the queue answers the first poll. LlamaIndex leaves its event loop open."""
    workers_ai_emulator_env.queue.settings.progress = "at_once"
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield load("folder_chat")
    asyncio.set_event_loop(None)
    loop.close()


def test_a_conversation(
    example: ModuleType,
    folder: Path,
    workers_ai_emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two questions; the second follows up on the first. Between them, the model fails and a stream is interrupted."""
    workers_ai_emulator.faults.add(Fault.error(400, 5004, "bad input", route="chat_completions", skip=1))
    workers_ai_emulator.faults.add(Fault.cut(after_events=4, skip=1))
    said = iter(["When does the ferry to Moss leave?", "Why?", "", "How?", "And what does a ticket cost?"])
    monkeypatch.setattr("builtins.input", typed(said))
    example.main(folder)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "The ferry to Moss leaves at 14:02."
    assert shown[1].startswith("  [1] ferry.md (0.")
    assert shown[4].startswith("error: ")
    assert "error: the stream ended" in shown[5]
    assert shown[6] == "A ticket costs 40 kroner."
    assert shown[7].startswith("  [1] prices/tickets.txt (0.")


def typed(lines: Iterator[str]) -> Callable[[str], str]:
    """Return a function like ``input`` that returns these lines, then raises EOFError."""

    def read(prompt: str) -> str:
        line = next(lines, None)
        if line is None:
            raise EOFError
        return line

    return read


def test_an_empty_folder_is_an_error(example: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no .md, .rst, .txt files"):
        example.open_chat(tmp_path)


def test_a_second_start_embeds_nothing(example: ModuleType, folder: Path, workers_ai_emulator: Emulator) -> None:
    example.open_chat(folder)
    embedded = workers_ai_emulator.log.texts_embedded
    assert embedded > 3, "the long text is split"
    example.open_chat(folder)
    assert workers_ai_emulator.log.texts_embedded == embedded
