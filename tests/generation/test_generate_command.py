"""The command ``workers-ai generate``, and ``jobs`` on its ledger."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support import every_row
from typer.testing import CliRunner, Result

from workers_ai.cli._app import app
from workers_ai_emulator import Emulator, ItemFailure, QueueSettings

MODEL = "@cf/moonshotai/kimi-k2.6"
COMMAND = ("generate", "rows.jsonl", "out.jsonl", "--model", MODEL, "--max-tokens", "200")


@pytest.fixture
def emulator() -> Emulator:
    return Emulator(queue=QueueSettings("at_once"))


@pytest.fixture
def command(emulator: Emulator, account: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Return a function that runs ``workers-ai`` in a folder with rows, against an emulator."""
    monkeypatch.chdir(tmp_path)
    rows = [{"id": n, "text": f"Say hello {n}", "lang": "en"} for n in range(5)]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with emulator.serve() as url:
        monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", account["account_id"])
        monkeypatch.setenv("CLOUDFLARE_API_TOKEN", account["api_token"])
        monkeypatch.setenv("CLOUDFLARE_BASE_URL", url)

        def run(*arguments: str, status: int = 0) -> Result:
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == status, result.output
            return result

        yield run


def lines(path: str = "out.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_labels_are_written_to_jsonl_and_a_second_run_costs_nothing(command: Any, emulator: Emulator) -> None:
    result = command(*COMMAND, "--prompt", "Rate {text} in {lang}", "--labels", "good,bad")
    assert "answered   5" in result.stdout
    rows = lines()
    assert [row["id"] for row in rows] == list(range(5))
    assert {row["data"] for row in rows} <= {"good", "bad"}
    assert rows[0]["metadata"] == {"lang": "en"}
    assert list(rows[0]) == [
        "id", "input_hash", "answer", "data", "finish_reason", "input_tokens", "output_tokens", "error_code", "error",
        "metadata",
    ]  # fmt: skip
    again = command("generate", "rows.jsonl", "out.jsonl", "--resume", "--json")
    assert json.loads(again.stdout)["reused"] == 5
    assert emulator.queue.submitted == 1
    shown = command("jobs", "out.jsonl.ledger").stdout
    assert "inputs 5, with an answer 5, waiting 0" in shown


def test_a_failed_row_is_in_the_parquet_file(command: Any, emulator: Emulator) -> None:
    emulator.queue.settings.failures.append(ItemFailure(contains="hello 3", code=5004, message="not this one"))
    arguments = list(COMMAND)
    arguments[2] = "out.parquet"
    result = command(*arguments, status=3)
    assert "3: not this one (code 5004)" in result.stdout
    table = pq.read_table("out.parquet").to_pylist()
    assert [row["answer"] is None for row in table] == [False, False, False, True, False]
    assert (table[3]["error_code"], table[3]["id"]) == (5004, "3")


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["name", "tags"],
}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_objects_are_json_values_in_jsonl_and_json_text_in_parquet(command: Any, suffix: str) -> None:
    Path("schema.json").write_text(json.dumps(SCHEMA))
    Path("rows.jsonl").write_text('{"id": "\u00e9", "text": "hi", "score": NaN, "tags": ["a", {"b": 1}]}')
    output = f"out.{suffix}"
    command("generate", "rows.jsonl", output, *COMMAND[3:], "--schema", "schema.json")
    (row,) = lines() if suffix == "jsonl" else pq.read_table(output).to_pylist()
    if suffix == "parquet":
        row |= {name: json.loads(row[name]) for name in ("data", "metadata")}
    assert row["id"] == "\u00e9"
    assert row["data"].keys() == {"name", "tags"}
    assert isinstance(row["data"]["tags"], list)
    assert row["data"] == json.loads(row["answer"])
    assert row["metadata"] == {"score": None, "tags": ["a", {"b": 1}]}


def test_a_row_without_a_column_of_the_prompt_is_named_before_anything_is_sent(
    command: Any, emulator: Emulator
) -> None:
    rows = [{"id": n, "text": "hi"} for n in range(1500)]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"id": "odd", "lang": "en"}])))
    assert (
        "the input 'odd' has no text for the placeholders" in command(*COMMAND, "--prompt", "{text}", status=1).stderr
    )
    assert emulator.log.requests == 0


def test_a_null_text_fails_alone_and_files_may_begin_with_a_byte_order_mark(command: Any, emulator: Emulator) -> None:
    Path("rows.jsonl").write_text('{"id": 1, "text": null}\n{"id": 2, "text": "hi"}')
    command(*COMMAND, status=3)
    assert [row["error"] for row in lines()] == ["the input is empty", None]
    Path("prompt.txt").write_text("\ufeffRead {text}", encoding="utf-8")
    Path("schema.json").write_text("\ufeff" + json.dumps(SCHEMA), encoding="utf-8")
    files = ("--prompt-file", "prompt.txt", "--schema", "schema.json")
    command("generate", "rows.jsonl", "two.jsonl", *COMMAND[3:], *files, status=3)
    assert prompts(emulator) == ["hi", "Read hi"]


def prompts(emulator: Emulator) -> list[str]:
    """Return the texts of all items."""
    sent = [item for entry in emulator.log.entries for item in (entry.json or {}).get("requests", ())]
    return [item["messages"][-1]["content"] for item in sent]


def test_messages_of_a_table_are_json_text_in_csv(command: Any, emulator: Emulator) -> None:
    with Path("rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "messages"), ("a", json.dumps(ASK)), ("b", "[]")])
    command("generate", "rows.csv", *COMMAND[2:], status=3)
    assert [(row["id"], row["error"]) for row in lines()] == [("a", None), ("b", "the input is empty")]
    (sent,) = (item for entry in emulator.log.entries for item in (entry.json or {}).get("requests", ()))
    assert sent["messages"] == ASK
    Path("rows.csv").write_text("id,messages\na,hello\n")
    assert (
        "rows.csv, line 2: 'messages' is not a JSON list"
        in command("generate", "rows.csv", *COMMAND[2:], status=1).stderr
    )


PIXEL = "data:image/png;base64,iVBORw0KGgo="
ASK = [{"role": "user", "content": "Hello"}]
FLAT_TOOL = {"type": "function", "name": "clock", "description": "Time.", "parameters": {"type": "object"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
LINES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"model": "gpt", "messages": ASK, "max_completion_tokens": 50, "n": 1, "metadata": {"part": "a"}, "user": "u"},
        {"messages": ASK, "max_tokens": 50},
    ),
    ({"model": MODEL, "messages": ASK, "top_p": 0.5, "stop": None}, {"messages": ASK, "top_p": 0.5}),
    ({"input": "Hello", "max_output_tokens": 60}, {"messages": ASK, "max_tokens": 60}),
    (
        {"input": "Hello", "instructions": "Be brief.", "reasoning": {"effort": "low"}, "store": False},
        {"messages": [{"role": "system", "content": "Be brief."}, *ASK], "reasoning_effort": "low"},
    ),
    (
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
                {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "noon"},
            ],
            "tools": [FLAT_TOOL],
        },
        {"messages": [*ASK, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                      {"role": "tool", "tool_call_id": "c1", "content": "noon"}]},
    ),
    (
        {"input": "Hello", "text": {"format": {"type": "json_schema", "name": "City", "schema": SCHEMA}}},
        {"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {"title": "City", **SCHEMA}}},
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": PIXEL, "detail": "auto"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}]},
    ),
]  # fmt: skip


def test_lines_of_openai_batches(command: Any, emulator: Emulator) -> None:
    for number, (body, _) in enumerate(LINES):
        url = "/v1/responses" if "input" in body else "/v1/chat/completions"
        line = {"custom_id": f"r{number % 6}", "method": "POST", "url": url, "body": body}
        with Path("rows.jsonl").open("a" if number else "w") as file:
            file.write(json.dumps(line) + "\n")
    found = json.loads(command(*COMMAND, "--temperature", "0.5", "--json").stdout)
    assert (found["answered"], found["reused"], found["duplicate_ids"]) == (7, 0, 1)
    assert [row["id"] for row in lines()] == ["r0", "r1", "r2", "r3", "r4", "r5", "r0"]
    sent = [item for entry in emulator.log.entries for item in (entry.json or {}).get("requests", ())]
    assert len(sent) == 7
    for item, (body, expected) in zip(sent, LINES, strict=True):
        assert {name: item[name] for name in expected} == expected
        assert item["temperature"] == 0.5
        assert item["max_tokens"] == expected.get("max_tokens", 200)
        assert not {"model", "user", "metadata", "n", "store", "stop", "input"} & item.keys()
        assert [tool["function"]["name"] for tool in item.get("tools", ())] == ["clock"] * len(body.get("tools", ()))


@every_row(
    ("changes", "says"),
    [
        ({"body": {"messages": ASK, "n": 2}}, "n: write one line for each answer"),
        ({"body": {"messages": ASK, "stream": True}}, "stream"),
        ({"body": {"messages": ASK, "logit_bias": {}}}, "unsupported parameters: logit_bias"),
        ({"body": {"messages": ASK, "model": "@cf/other/model"}}, "pass one file for each model"),
        ({"body": {"messages": "hi"}}, "messages must be a list of objects"),
        ({"body": {"input": 5}}, "input must be a text or a list"),
        ({"body": {"input": [{"type": "web_search_call"}]}}, "unsupported type 'web_search_call': remove it"),
        ({"body": {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}}, "unsupported type 'input_file'"),
        ({"body": {"input": "hi", "reasoning": "low"}}, "reasoning must be an object"),
        ({"body": {"input": "hi", "text": {"format": "json"}}}, "format must be an object"),
        ({"body": {"prompt": "hi"}}, "neither messages nor input"),
        ({"url": "/v1/embeddings"}, "the url '/v1/embeddings' is not supported: use /chat/completions or /responses"),
        ({"custom_id": None}, "neither a string nor an integer"),
    ],
)
def test_an_invalid_line_of_a_batch_is_reported_before_anything_is_sent(
    command: Any, emulator: Emulator, changes: dict[str, Any], says: str
) -> None:
    good = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": ASK}}
    Path("rows.jsonl").write_text("\n".join(json.dumps(line) for line in (good, {**good, **changes})))
    assert says in command(*COMMAND, status=1).stderr
    assert "rows.jsonl, line 2" in command(*COMMAND, status=1).stderr
    assert emulator.log.requests == 0


def test_a_dry_run_sends_nothing(command: Any, emulator: Emulator) -> None:
    assert "requests     5" in command(*COMMAND, "--dry-run").stdout
    assert emulator.queue.submitted == 0


@every_row(
    ("arguments", "status", "says"),
    [
        (["generate", "rows.jsonl", "out.jsonl"], 2, "--model"),
        ([*COMMAND, "--resume"], 2, "--resume"),
        ([*COMMAND, "--ledger", "rows.jsonl"], 2, "overwritten"),
        (["generate", "rows.jsonl", "rows.jsonl", "--model", MODEL], 2, "overwritten"),
        (["generate", "rows.jsonl", "out.csv", "--model", MODEL], 2, "jsonl or .parquet"),
        (["generate", "none.jsonl", "out.jsonl", "--model", MODEL], 1, "does not exist"),
        ([*COMMAND, "--prompt", "{nothing}"], 1, r"has no nothing .*\(option --prompt\)"),
        ([*COMMAND, "--prompt", "a", "--prompt-file", "b"], 2, "not both"),
        ([*COMMAND, "--schema", "rows.jsonl"], 1, "is not JSON"),
        ([*COMMAND, "--prompt-file", "latin.txt"], 1, "latin.txt is not UTF-8"),
        ([*COMMAND, "--limit-cost", "1", "--model", "@cf/acme/new"], 1, "price of @cf/acme/new is unknown"),
        ([*COMMAND[:-2], "--limit-cost", "1"], 1, r"\(options --limit-cost, --max-tokens\)"),
    ],
)
def test_invalid_usage_prints_a_reason(command: Any, arguments: list[str], status: int, says: str) -> None:
    import re

    Path("latin.txt").write_bytes(b"caf\xe9 {text}")
    result = command(*arguments, status=status)
    assert re.search(says, result.stderr)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_output_of_another_ledger_is_not_replaced(command: Any, emulator: Emulator, suffix: str) -> None:
    output, other = f"out.{suffix}", f"other.{suffix}"
    command("generate", "rows.jsonl", output, "--model", MODEL)
    written, sent = Path(output).read_bytes(), emulator.log.requests
    Path(other).write_text('{"id": 1, "text": "notes"}\n')
    for name, says in ((output, "was not written from the ledger"), (other, "is not an output of this command")):
        result = command("generate", "rows.jsonl", name, "--model", MODEL, "--ledger", "other.ledger", status=2)
        assert says in " ".join(result.stderr.replace("│", " ").split())
    assert (Path(output).read_bytes(), emulator.log.requests) == (written, sent)
    command("generate", "rows.jsonl", output, "--resume")
