"""``workers-ai chat``, ``embed`` and ``rerank``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from workers_ai.cli import _chat
from workers_ai_emulator import Emulator, Fault

CHAT = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
SKY = "The sky is blue because air scatters blue light more than red light."


def sent(emulator: Emulator) -> Any:
    return emulator.log.entries[-1].json


def error_line(result: Any) -> str:
    """Return the only line on stderr, without the name of the command."""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("workers-ai: ")


def test_an_answer_is_streamed(workers_ai: Any, emulator: Emulator) -> None:
    result = workers_ai("chat", "Why", "is the sky", "blue?", "--system", "Be brief.", "--max-tokens", "90")
    assert (result.stdout, result.stderr) == (f"{SKY}\n", "")
    assert emulator.log.entries[-1].headers["x-session-affinity"]
    assert sent(emulator) == {
        "model": CHAT,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"}],
        "max_tokens": 90,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    ("arguments", "prompt"),
    [
        ([], "some notes"),
        (["-"], "some notes"),
        (["Summarize", "this:", "-"], "Summarize this:\n\nsome notes"),
        (["-", "Is this", "right?"], "some notes\n\nIs this right?"),
    ],
)
def test_a_prompt_from_stdin(workers_ai: Any, emulator: Emulator, arguments: list[str], prompt: str) -> None:
    workers_ai("chat", *arguments, stdin="\ufeffsome notes\n")
    assert sent(emulator)["messages"] == [{"role": "user", "content": prompt}]


def test_an_answer_as_json_has_its_usage(workers_ai: Any, emulator: Emulator) -> None:
    answer = json.loads(workers_ai("chat", "Why is the sky blue?", "--json", "-m", "@cf/openai/gpt-oss-120b").stdout)
    assert "stream" not in sent(emulator)
    assert (answer["model"], answer["text"], answer["finish_reason"]) == ("@cf/openai/gpt-oss-120b", SKY, "stop")
    assert answer["usage"]["output_tokens"] > 0
    assert answer["reasoning"]


def test_a_session_continues_with_its_model(workers_ai: Any, emulator: Emulator) -> None:
    workers_ai("chat", "Hello", "--session", "trip.json", "-m", "@cf/openai/gpt-oss-120b", "-s", "Be brief.")
    first = sent(emulator)["messages"]
    affinity = emulator.log.entries[-1].headers["x-session-affinity"]
    workers_ai("chat", "And then?", "--session", "trip.json", "--json", "-s", "Be brief.")
    assert sent(emulator)["model"] == "@cf/openai/gpt-oss-120b"
    assert [*first, {"role": "user", "content": "And then?"}] == [
        message for message in sent(emulator)["messages"] if message["role"] != "assistant"
    ]
    assert emulator.log.entries[-1].headers["x-session-affinity"] == affinity
    roles = [message["role"] for message in json.loads(Path("trip.json").read_text())["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    wrong = workers_ai("chat", "Hi", "--session", "trip.json", "--system", "Be loud.", status=1)
    assert "trip.json has another system message" in error_line(wrong)


@pytest.mark.parametrize("content", ["no json", "[]", '{"model": "m"}', '{"messages": [1], "model": "m"}'])
def test_a_file_that_is_not_a_session_is_kept(workers_ai: Any, emulator: Emulator, content: str) -> None:
    Path("notes.json").write_text(content)
    result = workers_ai("chat", "Hello", "--session", "notes.json", status=1)
    assert "notes.json is not a session" in error_line(result)
    assert (Path("notes.json").read_text(), emulator.log.requests) == (content, 0)


def test_a_failed_call_keeps_no_turn(workers_ai: Any, emulator: Emulator) -> None:
    emulator.faults.add(Fault.error(429, 3036, "daily free allocation used up"))
    result = workers_ai("chat", "Hello", "--session", "trip.json", status=1)
    assert "code 3036" in error_line(result)
    assert not Path("trip.json").exists()


def test_errors_of_token_and_connection_suggest_doctor(workers_ai: Any, emulator: Emulator) -> None:
    emulator.settings.tokens = []
    assert error_line(workers_ai("embed", "text", status=1)).endswith(
        "CLOUDFLARE_ACCOUNT_ID. Run `workers-ai doctor` to find the cause."
    )
    emulator.faults.add(*[Fault.drop()] * 3)
    assert error_line(workers_ai("rerank", "query", "text", status=1)).endswith(
        "Run `workers-ai doctor` to find the cause."
    )


def test_an_interrupted_stream_prints_the_received_text(workers_ai: Any, emulator: Emulator) -> None:
    emulator.faults.add(Fault.say("Half an answer"), Fault.cut(after_events=2))
    result = workers_ai("chat", "Hello", "--session", "trip.json", status=1)
    assert result.stdout.startswith("Half")
    assert result.stdout.endswith("\n")
    assert "ended" in error_line(result)
    assert not Path("trip.json").exists()


def test_a_truncated_answer_is_reported(workers_ai: Any) -> None:
    for more in ((), ("--json",)):
        result = workers_ai("chat", "Why is the sky blue?", "--max-tokens", "2", *more)
        assert error_line(result) == "the answer is truncated: pass a larger --max-tokens"


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["chat"], 1, "the prompt is empty"),
        (["chat", "-"], 1, "the prompt is empty"),
        (["embed"], 1, "the input has no text"),
        (["embed", "a", "--file", "b.txt"], 2, "not both"),
        (["embed", "--file", "b.txt"], 1, "b.txt"),
        (["embed", "a", "--output", "a.csv"], 2, "must have one of the suffixes .jsonl, .npy, .parquet"),
        (["embed", "a", "--output", "no/a.npy"], 2, "does not exist"),
        (["rerank"], 2, "QUERY"),
        (["rerank", "query"], 1, "the input has no text"),
    ],
)
def test_wrong_usage_sends_nothing(
    workers_ai: Any, emulator: Emulator, arguments: list[str], status: int, says: str
) -> None:
    result = workers_ai(*arguments, status=status)
    assert says in " ".join(result.stderr.replace("│", "").split())
    assert emulator.log.requests == 0


def test_in_a_terminal_texts_are_required(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers_ai.cli._texts.sys", Terminal)
    result = workers_ai("embed", status=2)
    assert "pass texts, --file FILE, or lines on stdin" in " ".join(result.stderr.replace("│", "").split())


class Terminal:
    """A ``sys`` with a terminal."""

    class stdin:  # noqa: N801
        isatty = staticmethod(lambda: True)


def test_vectors_are_json_lines(workers_ai: Any, emulator: Emulator) -> None:
    lines = workers_ai("embed", "a fjord", "a cloud", "--pooling", "cls", "--truncate").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [0, 1]
    assert {len(json.loads(line)["vector"]) for line in lines} == {1024}
    assert sent(emulator) == {"text": ["a fjord", "a cloud"], "pooling": "cls", "truncate_inputs": True}


def test_queries_and_lines_of_stdin(workers_ai: Any, emulator: Emulator) -> None:
    model = "@cf/qwen/qwen3-embedding-0.6b"
    result = workers_ai("embed", "--kind", "query", "-m", model, "--json", stdin="one\n\n  \ntwo\n")
    assert sent(emulator)["queries"] == ["one", "two"]
    facts = json.loads(result.stdout)
    assert (facts["model"], facts["texts"], facts["dimensions"], len(facts["vectors"])) == (model, 2, 1024, 2)
    assert facts["usage"]["neurons"] >= 0


def test_vectors_in_files(workers_ai: Any) -> None:
    Path("docs.jsonl").write_text('{"id": "x", "text": "a fjord", "page": 3}\n{"id": "y", "text": "a cloud"}\n')
    Path("lines.txt").write_text("a fjord\na cloud\n")
    assert (
        workers_ai("embed", "-f", "lines.txt", "-o", "v.npy").stdout == "2 vectors of 1,024 dimensions are in v.npy\n"
    )
    report = json.loads(workers_ai("embed", "-f", "docs.jsonl", "-o", "v.parquet", "--json").stdout)
    assert (report["output"], "vectors" in report) == ("v.parquet", False)
    workers_ai("embed", "-f", "docs.jsonl", "-o", "v.jsonl")
    vectors = np.load("v.npy")
    assert (vectors.shape, vectors.dtype) == ((2, 1024), np.float32)
    table = pq.read_table("v.parquet").to_pylist()
    assert [(row["id"], row["metadata"]) for row in table] == [("x", '{"page": 3}'), ("y", None)]
    lines = [json.loads(line) for line in Path("v.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["x", "y"]
    for number in range(2):
        assert table[number]["vector"] == vectors[number].tolist()
        assert np.allclose(lines[number]["vector"], vectors[number])
    assert sorted(path.name for path in Path().iterdir()) == [
        "docs.jsonl",
        "lines.txt",
        "v.jsonl",
        "v.npy",
        "v.parquet",
    ]


def test_texts_are_ranked(workers_ai: Any, emulator: Emulator) -> None:
    texts = ["Bergen is rainy", "Oslo is the capital of Norway", "word " * 40]
    lines = workers_ai("rerank", "capital of Norway", *texts).stdout.splitlines()
    assert lines[0].split(maxsplit=2)[1:] == ["1", texts[1]]
    assert max(map(len, lines)) < 115
    assert sent(emulator)["query"] == "capital of Norway"
    Path("docs.csv").write_text("id,text\nb,Bergen is rainy\no,Oslo is the capital of Norway\n")
    best = json.loads(workers_ai("rerank", "capital of Norway", "-f", "docs.csv", "--top-n", "1", "--json").stdout)
    assert [(row["id"], row["text"]) for row in best] == [("o", texts[1])]
    assert 0 < best[0]["score"] <= 1
    assert workers_ai("rerank", "capital of Norway", stdin="\n".join(texts)).stdout.splitlines() == lines


@pytest.mark.parametrize("name", ["chat", "embed", "rerank"])
def test_an_interrupt_is_one_line_and_status_130(workers_ai: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    for method in ("stream_chat", "embed", "rerank"):
        monkeypatch.setattr(f"workers_ai.client.Client.{method}", interrupted)
    assert error_line(workers_ai(name, "one", "two", status=130)) == "interrupted"


def test_a_pipe_that_closes_early_prints_no_error(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: Any, **__: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("workers_ai.cli._models.listing", closed)
    assert workers_ai("models", status=1).output == ""


def typing(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> None:
    """Emulate a terminal with these lines or keys, and Ctrl-D at the end."""
    script = iter([*lines, EOFError])

    def read(prompt: str) -> str:
        line = next(script)
        if not isinstance(line, str):
            raise line
        return line

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda self: True)


def test_a_conversation_in_a_terminal(workers_ai: Any, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.faults.add(Fault.say("\x1b[2JHi\tthere\x07."))
    typing(monkeypatch, "Hello", "  ", "Why is the sky blue?")
    result = workers_ai("chat", "--session", "trip.json")
    assert result.stdout.replace("\r\n", "\n") == f"[2JHi\tthere.\n{SKY}\n"
    assert result.stderr.splitlines()[0] == f"{CHAT}. Ctrl-C stops an answer, Ctrl-D ends."
    assert [message["content"] for message in sent(emulator)["messages"]] == [
        "Hello", "\x1b[2JHi\tthere\x07.", "Why is the sky blue?",
    ]  # fmt: skip
    typing(monkeypatch)
    assert "2 earlier turns" in workers_ai("chat", "--session", "trip.json").stderr


def test_an_error_or_ctrl_c_ends_one_turn(workers_ai: Any, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.faults.add(Fault.error(403, 5035, "paid plan"))
    write = _chat._Screen.write

    def interrupt(screen: Any, text: str) -> None:
        write(screen, text)
        if "blue" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(_chat._Screen, "write", interrupt)
    typing(monkeypatch, "First", "Why is the sky blue?", "Hello")
    result = workers_ai("chat")
    assert [line.partition("(")[0].strip() for line in result.stderr.splitlines()[1:]] == [
        "workers-ai: paid plan", "workers-ai: interrupted: this turn is not saved", "",
    ]  # fmt: skip
    assert sent(emulator)["messages"] == [{"role": "user", "content": "Hello"}]


def test_ctrl_c_at_the_prompt_ends_with_130(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    typing(monkeypatch, KeyboardInterrupt)
    workers_ai("chat", status=130)


def test_a_terminal_shows_the_reasoning_apart(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    typing(monkeypatch, "Why is the sky blue?")
    result = workers_ai("chat", "-m", "@cf/openai/gpt-oss-120b")
    assert result.stdout == f"{SKY}\n"
    assert len(result.stderr.splitlines()) > 1
    assert "pass a prompt" in workers_ai("chat", "--json", status=2).stderr
