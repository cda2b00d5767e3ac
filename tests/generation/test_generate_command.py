"""The command ``workers-ai generate``, and ``jobs`` on its ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
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


def test_labels_into_jsonl_then_again_for_free(command: Any, emulator: Emulator) -> None:
    result = command(*COMMAND, "--prompt", "Rate {text} in {lang}", "--labels", "good,bad")
    assert "answered   5" in result.stdout
    rows = lines()
    assert [row["id"] for row in rows] == list(range(5))
    assert {json.loads(row["data"]) for row in rows} <= {"good", "bad"}
    assert json.loads(rows[0]["metadata"]) == {"lang": "en"}
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


def test_lines_of_openai_batches(command: Any) -> None:
    body = {"model": "gpt", "messages": [{"role": "user", "content": "Hello"}], "max_completion_tokens": 50, "n": 1}
    body["metadata"] = {"part": "a"}
    Path("rows.jsonl").write_text(json.dumps({"custom_id": "r1", "method": "POST", "url": "/v1", "body": body}))
    command(*COMMAND)
    assert lines()[0]["id"] == "r1"
    Path("rows.jsonl").write_text(json.dumps({"custom_id": "r1", "body": {**body, "n": 2}}))
    assert "unsupported parameters: n" in command(*COMMAND, status=1).stderr


def test_a_dry_run_sends_nothing(command: Any, emulator: Emulator) -> None:
    assert "requests     5" in command(*COMMAND, "--dry-run").stdout
    assert emulator.queue.submitted == 0


@pytest.mark.parametrize(
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
        ([*COMMAND, "--limit-cost", "1", "--model", "@cf/acme/new"], 1, "price of @cf/acme/new is unknown"),
        ([*COMMAND[:-2], "--limit-cost", "1"], 1, r"\(options --limit-cost, --max-tokens\)"),
    ],
)
def test_bad_usage_ends_with_a_reason(command: Any, arguments: list[str], status: int, says: str) -> None:
    import re

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
