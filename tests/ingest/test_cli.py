"""The command ``workers-ai``: effects, output and exit status."""

from __future__ import annotations

import builtins
import gzip
import importlib.util
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support import every_row
from typer.testing import CliRunner, Result

from workers_ai import __version__
from workers_ai.cli import _ingestion as ingestion_module
from workers_ai.cli import main
from workers_ai.cli._app import app
from workers_ai.ledger._ledger import Ledger
from workers_ai.ledger._records import Document, Measured, text_hash
from workers_ai.ledger._store.fingerprints import Fingerprint
from workers_ai_emulator import Emulator, Fault, ItemFailure

MODEL = "@cf/baai/bge-small-en-v1.5"


@pytest.fixture
def workers_ai(
    emulator: Emulator, account: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Any]:
    """Return a function that runs the command in an empty folder, against an emulator on a socket."""
    monkeypatch.chdir(tmp_path)
    with emulator.serve() as url:
        monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", account["account_id"])
        monkeypatch.setenv("CLOUDFLARE_API_TOKEN", account["api_token"])
        monkeypatch.setenv("CLOUDFLARE_BASE_URL", url)

        def run(*arguments: str, status: int = 0) -> Result:
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == status, result.output
            assert account["api_token"] not in result.output
            if status != 2:
                assert "Traceback" not in result.output
            return result

        yield run


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Return a file of 250 documents; three of them have the same text."""
    path = tmp_path / "docs.jsonl"
    rows = [{"id": f"doc-{n}", "text": f"text {min(n, 247)}", "metadata": {"n": n}} for n in range(250)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def ingest(*more: str) -> list[str]:
    return ["ingest", "docs.jsonl", "vectors.parquet", "--model", MODEL, *more]


def only_line(result: Result) -> str:
    """Return the only line on stderr."""
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("workers-ai: ")
    return line.removeprefix("workers-ai: ")


def test_a_corpus_becomes_parquet(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    result = workers_ai(*ingest())
    assert "  embedded  248\n  reused    2\n  failed    0\n" in result.stdout
    assert "  written   250 rows to vectors.parquet\n" in result.stdout
    table = pq.read_table("vectors.parquet").to_pylist()
    assert [row["id"] for row in table] == [f"doc-{n}" for n in range(250)]
    assert [json.loads(row["metadata"]) for row in table] == [{"n": n} for n in range(250)]
    assert table[3]["text_hash"] == text_hash("text 3").hex()
    assert len(table[3]["vector"]) == 384
    assert table[247]["vector"] == table[249]["vector"] != table[246]["vector"]
    assert (emulator.log.texts_embedded, emulator.log.routes["run"]) == (248, 0)
    assert sorted(path.name for path in docs.parent.iterdir()) == [
        "docs.jsonl", "vectors.parquet", "vectors.parquet.ledger",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "shown"), [("utf-8", b"na\\udcffme-\xc3\xbc.parquet\n"), ("latin-1", b"na\\udcffme-\xfc.parquet\n")]
)
def test_an_id_that_the_terminal_cannot_encode_is_escaped(
    workers_ai: Any, docs: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, shown: bytes
) -> None:
    output = Path("na\udcffme-ü.parquet")
    monkeypatch.setattr(sys, "argv", ["workers-ai", "ingest", "docs.jsonl", str(output), "--model", MODEL])
    stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    stdout.flush()
    assert stdout.buffer.getvalue().endswith(shown)  # type: ignore[attr-defined]
    with output.open("rb") as file:
        assert pq.read_table(file).num_rows == 250


def test_the_same_command_again_sends_nothing(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    workers_ai(*ingest())
    first, before = Path("vectors.parquet").read_bytes(), emulator.log.requests
    assert "  embedded  0\n  reused    250\n" in workers_ai(*ingest()).stdout
    assert emulator.log.requests == before
    assert pq.read_table("vectors.parquet").equals(pq.read_table(io.BytesIO(first)))


def test_direct_requests_and_a_ledger_of_another_name(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    workers_ai(*ingest("--mode", "direct", "--ledger", "mine", "--max-concurrency", "1"))
    assert (emulator.log.routes["run"], emulator.log.routes["submit"]) == (3, 0)
    assert (emulator.log.peak_concurrency, Path("mine").exists()) == (1, True)


def test_options_shape_the_vectors(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    docs.write_text('{"id": 1, "text": ""}\n{"id": 2, "text": "t"}\n')
    workers_ai(
        *ingest("--pooling", "cls", "--instruction", "p: ", "--truncate", "--normalize", "--empty-text", "space")
    )
    (request,) = emulator.log.entries[0].json["requests"]
    assert request == {"text": ["p:  ", "p: t"], "pooling": "cls", "truncate_inputs": True}
    with Ledger("vectors.parquet.ledger") as ledger:
        assert ledger.fingerprint.normalize


def test_failed_documents_are_all_listed_and_end_in_status_3(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    emulator.queue.settings.failures = [ItemFailure(contains='"text 2', code=5004, message="not this one")]
    result = workers_ai(*ingest(), status=3)
    failed = [n for n in range(250) if f"{min(n, 247)}".startswith("2")]
    lines = [line for line in result.stdout.splitlines() if "not this one" in line]
    assert lines == [f"  failed    doc-{n}: not this one (code 5004)" for n in failed]
    assert f"  written   {250 - len(failed)} rows" in result.stdout
    assert pq.read_table("vectors.parquet").num_rows == 250 - len(failed)


def test_a_dry_run_prints_an_estimate_and_sends_nothing(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    """248 texts, "text 0" to "text 247", have eight to ten bytes as JSON, which are two tokens each."""
    result = workers_ai(*ingest("--dry-run"))
    assert result.stdout.splitlines() == [
        f"With {MODEL}, nothing sent yet:",
        "  documents    250",
        "  texts        248 to embed",
        "  requests     3",
        "  submissions  1",
        "  tokens       496 (estimated)",
        "  neurons      0.9",
        "  cost         $0.000010",
        "  minutes      5.0",
    ]
    assert emulator.log.requests == 0
    assert [path.name for path in docs.parent.iterdir()] == ["docs.jsonl"]


def test_a_dry_run_needs_no_account_and_reads_the_ledger(
    workers_ai: Any, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers_ai(*ingest())
    docs.write_text(docs.read_text() + '\n{"id": "new", "text": "another"}')
    for name in ("CLOUDFLARE_ACCOUNT_ID", "CLOUDFLARE_API_TOKEN"):
        monkeypatch.delenv(name)
    assert "  texts        1 to embed\n" in workers_ai(*ingest("--dry-run")).stdout
    assert (
        "  texts        1 to embed\n"
        in workers_ai("ingest", "docs.jsonl", "vectors.parquet", "--resume", "--dry-run").stdout
    )


def test_resume_reads_model_and_options_from_the_ledger(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    emulator.faults.add(Fault.error(401, 10000, "no", route="submit", skip=0, times=1))
    workers_ai(*ingest("--pooling", "cls"), status=1)
    workers_ai("ingest", "docs.jsonl", "vectors.parquet", "--resume")
    assert emulator.log.entries[-1].model == MODEL
    assert {entry.json["requests"][0]["pooling"] for entry in emulator.log.entries if entry.route == "submit"} == {
        "cls"
    }
    assert pq.read_table("vectors.parquet").num_rows == 250


@pytest.mark.parametrize("more", [[], ["--model", MODEL], ["--model", MODEL, "--dry-run"]])
@pytest.mark.parametrize("empty", [False, True])
def test_resume_requires_a_ledger(
    workers_ai: Any, docs: Path, emulator: Emulator, more: list[str], empty: bool
) -> None:
    ledger = Path("vectors.parquet.ledger")
    if empty:
        ledger.touch()
    result = workers_ai("ingest", "docs.jsonl", "vectors.parquet", "--resume", *more, status=1)
    assert only_line(result) == (
        f"the ledger {ledger} is empty: pass the ledger of a run"
        if empty
        else f"there is no ledger at {ledger}: check the path"
    )
    assert emulator.log.requests == 0
    assert [path for path in Path().iterdir() if path.stat().st_size] == [Path("docs.jsonl")]


def test_resume_rejects_options_that_differ_from_the_ledger(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    workers_ai(*ingest())
    before = emulator.log.requests
    assert "was created with pooling None, not 'cls'" in only_line(
        workers_ai(*ingest("--resume", "--pooling", "cls"), status=1)
    )
    assert emulator.log.requests == before


@every_row(
    ("arguments", "says"),
    [
        (["ingest", "docs.jsonl", "vectors.parquet"], "is missing: pass a model"),
        (["ingest", "docs.jsonl", "vectors.parquet", "--resume", "--pooling", "cls"], "or pass --model"),
        (["ingest", "docs.jsonl"], "Missing argument"),
        (["ingest", "a", "b", "--mode", "fast"], "'fast' is not one of"),
        (["ingest", "a", "b", "--limit-cost", "-1"], "greater than or equal"),
        (["ingest", "a", "b", "--nodel", "c"], "No such option"),
        (["inject"], "No such command"),
    ],
)
def test_wrong_usage_is_status_2(workers_ai: Any, arguments: list[str], says: str) -> None:
    assert says in workers_ai(*arguments, status=2).stderr


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("CLOUDFLARE_ACCOUNT_ID", "or set CLOUDFLARE_ACCOUNT_ID or CF_ACCOUNT_ID. .* \\(option --account-id\\)"),
        ("CLOUDFLARE_API_TOKEN", "api_token is missing: set CLOUDFLARE_API_TOKEN or [^(]*"),
    ],
)
def test_missing_credentials_are_reported_with_option_and_variable(
    workers_ai: Any, docs: Path, monkeypatch: pytest.MonkeyPatch, variable: str, says: str
) -> None:
    monkeypatch.delenv(variable)
    assert re.search(says, only_line(workers_ai(*ingest(), status=1)))


@every_row(
    ("arguments", "says"),
    [
        (["ingest", "none.jsonl", "v.parquet", "--model", MODEL], "none.jsonl does not exist"),
        (["ingest", "docs.jsonl", "no/v.parquet", "--model", MODEL], "the folder of the output does not exist"),
        (ingest("--model", "no model"), "model 'no model' is malformed"),
        (ingest("--model", "@cf/qwen/qwen3-embedding-0.6b"), "has no asynchronous queue"),
        (ingest("--base-url", "http://example.org/client/v4"), "is not encrypted"),
        (ingest("--account-id", "../../x"), "account_id is malformed"),
        (["jobs", "none"], "there is no ledger at none"),
        (["jobs", "docs.jsonl"], "docs.jsonl exists and is not a ledger"),
    ],
)
def test_an_error_is_one_line_and_status_1(
    workers_ai: Any, docs: Path, emulator: Emulator, arguments: list[str], says: str
) -> None:
    before = docs.read_bytes()
    assert says in only_line(workers_ai(*arguments, status=1))
    assert emulator.log.requests == 0
    assert docs.read_bytes() == before


@pytest.fixture
def other_files(docs: Path, tmp_path: Path) -> Path:
    """Write files that no output may replace, and return their folder."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.txt").write_text("a note")
    (tmp_path / "hard.jsonl").hardlink_to(docs)
    (tmp_path / "soft.jsonl").symlink_to(docs)
    (tmp_path / "old.parquet").write_text("a table")
    return tmp_path


@every_row(
    ("places", "says"),
    [
        (["docs.jsonl", "docs.jsonl"], "docs.jsonl would be overwritten"),
        (["docs.jsonl", "./hard.jsonl"], "hard.jsonl would be overwritten"),
        (["docs.jsonl", "soft.jsonl"], "soft.jsonl would be overwritten"),
        (["docs.jsonl", "v.parquet", "--ledger", "docs.jsonl"], "docs.jsonl would be overwritten"),
        (["docs.jsonl", "v.parquet", "--ledger", "notes/../v.parquet"], "v.parquet would be overwritten"),
        (["docs.jsonl", "v.parquet", "--quarantine", "docs.jsonl"], "docs.jsonl would be overwritten"),
        (["docs.jsonl", "v-wal", "--ledger", "v"], "v-wal would be overwritten"),
        (["notes", "notes/a.txt"], "notes/a.txt would be overwritten"),
        (["notes", "v.parquet", "--ledger", "notes/a.txt"], "notes/a.txt would be overwritten"),
        (["docs.jsonl", "o.csv"], "the output o.csv must have the suffix .parquet"),
        (["docs.jsonl", "notes"], "the output notes is a folder: pass a file"),
        (["docs.jsonl", ""], "the output . is a folder: pass a file"),
        (["docs.jsonl", "v.parquet", "--ledger", "notes"], "the ledger notes is a folder: pass a file"),
        (["docs.jsonl", "v.parquet", "--ledger", ""], "the ledger . is a folder: pass a file"),
        (["docs.jsonl", "old.parquet"], "old.parquet exists and is not an output of this command"),
    ],
)
@pytest.mark.parametrize("more", [["--model", MODEL], ["--model", MODEL, "--dry-run"]])
def test_the_output_replaces_no_other_file(
    workers_ai: Any, other_files: Path, emulator: Emulator, places: list[str], says: str, more: list[str]
) -> None:
    before = {path: path.is_file() and path.read_bytes() for path in other_files.rglob("*")}
    assert says in only_line(workers_ai("ingest", *places, *more, status=1))
    assert emulator.log.requests == 0
    assert {path: path.is_file() and path.read_bytes() for path in other_files.rglob("*")} == before


def test_the_output_of_another_ledger_is_not_replaced(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    workers_ai(*ingest())
    sent = emulator.log.requests
    assert "was not written from the ledger b" in only_line(workers_ai(*ingest("--ledger", "b"), status=1))
    assert emulator.log.requests == sent


def test_the_output_may_be_in_the_input_folder(workers_ai: Any) -> None:
    Path("a.txt").write_text("a note")
    for _ in range(2):
        workers_ai("ingest", ".", "vectors.parquet", "--model", MODEL)
    assert pq.read_table("vectors.parquet")["id"].to_pylist() == ["a.txt"]


@pytest.mark.parametrize("name", ["CLOUDFLARE_ACCOUNT_ID", "CLOUDFLARE_API_TOKEN"])
def test_the_error_of_a_missing_credential_has_the_variable(
    workers_ai: Any, docs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name)
    assert name in only_line(workers_ai(*ingest(), status=1))


def test_a_bad_row_costs_nothing(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    docs.write_text(docs.read_text() + '\n{"id": "bad"}')
    line = only_line(workers_ai(*ingest(), status=1))
    assert line == "docs.jsonl, line 251: 'text' is missing; found 'id': pass --text-column"
    assert emulator.log.requests == 0
    assert not Path("vectors.parquet.ledger").exists()


def test_an_error_reports_the_submissions_in_the_queue(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    emulator.faults.add(Fault.error(429, 4006, "you have used up your daily free allocation", route="poll"))
    line = only_line(workers_ai(*ingest(), status=1))
    assert "code 4006" in line
    assert line.endswith("; submissions in the queue: 1 (`workers-ai jobs LEDGER` lists them)")
    shown = workers_ai("jobs", "vectors.parquet.ledger").stdout.splitlines()
    assert shown[0] == f"vectors.parquet.ledger: {MODEL}"
    assert shown[1] == "  texts 248, with a vector 0, waiting 0, failed 0, submissions in flight 1"
    (job,) = emulator.queue.jobs
    assert re.fullmatch(rf"  {job.request_id} +248 +\d+ s  ended: the next run collects it", shown[3])
    workers_ai(*ingest())
    assert emulator.queue.submitted == 1
    assert workers_ai("jobs", "vectors.parquet.ledger").stdout.splitlines()[1:] == [
        "  texts 248, with a vector 248, waiting 0, failed 0, submissions in flight 0"
    ]


def test_the_limit_on_cost_ends_the_run(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    line = only_line(workers_ai(*ingest("--limit-cost", "0.000000001"), status=1))
    assert line.startswith("the cost limit of $0.000000001 is reached: run the same call again")
    assert emulator.log.requests == 0


def test_an_interrupt_is_one_line_and_status_130(workers_ai: Any, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ingestion_module, "ingest", interrupted)
    result = workers_ai(*ingest(), status=130)
    assert only_line(result) == "interrupted: the same command continues"


def test_an_input_that_changes_during_the_run_is_an_error(
    workers_ai: Any, docs: Path, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ingestion_module.ingest

    def changing(*arguments: Any, **options: Any) -> Any:
        report = real(*arguments, **options)
        docs.write_text("\n".join(docs.read_text().splitlines()[5:]))
        return report

    monkeypatch.setattr(ingestion_module, "ingest", changing)
    line = only_line(workers_ai(*ingest(), status=1))
    assert line == "docs.jsonl changed during the run: run the same command again"
    assert not Path("vectors.parquet").exists()


def test_help_lists_every_command_and_status(workers_ai: Any) -> None:
    assert {"ingest", "jobs", "demo"} <= set(workers_ai("--help").stdout.split())
    shown = " ".join(workers_ai("ingest", "--help").stdout.split())
    for part in ("--model", "--ledger", "--mode", "--resume", "--limit-cost", "--dry-run", "130"):
        assert part in shown
    assert workers_ai("--version").stdout == f"{__version__}\n"


# The demo


def test_the_demo_without_the_emulator_prints_what_to_install(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers_ai._demo.run._parts", lambda say: [lambda stage: None])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = workers_ai("demo", status=1)
    assert "emulator: pip install" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_demo_without_a_framework_prints_what_to_install(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("langchain_part", "llama_index_part"):
        monkeypatch.setitem(sys.modules, f"workers_ai._demo.{name}", None)  # importing it fails
    result = workers_ai("demo", status=1)
    assert "the demo requires a framework" in result.stderr
    assert "pip install langchain-workers-ai" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("missing", ["typer", "rich", "tqdm"])
def test_without_the_extra_the_command_prints_it_in_one_line(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name == "workers_ai.cli._app":
            raise ModuleNotFoundError(name=missing)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SystemExit, match=r"pip install 'workers-ai\[cli\]'"):
        main()


def test_the_demo_on_an_account_needs_one(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers_ai._demo.run._parts", lambda say: [])
    monkeypatch.delenv("CLOUDFLARE_API_TOKEN")
    assert "CLOUDFLARE_API_TOKEN" in workers_ai("demo", "--live", status=1).stderr


def test_the_demo_embeds_and_labels_docstrings_and_passes_them_to_its_parts(
    workers_ai: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace the frameworks by one part that uses the service of the environment."""
    from workers_ai._demo import Stage, run

    stages: list[Stage] = []
    monkeypatch.setattr(run, "DOCUMENTS", 50)
    monkeypatch.setattr(run, "_parts", lambda say: [stages.append])
    shown = workers_ai("demo", "--live").stdout
    (stage,) = stages
    assert shown.startswith("Service: Cloudflare Workers AI on your account. Cloudflare bills the account.\n")
    assert "Embedding 50 docstrings of the Python standard library through the queue" in shown
    assert "answered   50" in shown
    assert "The same call again: 50 answers from the ledger, 0 new" in shown
    assert len({doc.id for doc in stage.corpus}) == 50
    assert all(doc.text and re.fullmatch(r"[\w/]+\.py:\d+", doc.source) for doc in stage.corpus)
    assert (stage.settings, stage.make_busy) == ({}, None)


def test_columns_chunks_and_duplicates_are_chosen_and_reported(workers_ai: Any, tmp_path: Path) -> None:
    rows = [{"key": n // 2, "body": "One sentence. " * (50 if n == 3 else 1), "text": "no"} for n in range(4)]
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, rows)))
    options = ["--id-column", "key", "--text-column", "body", "--model", MODEL]
    assert "2 ids belong to several" in workers_ai("ingest", "rows.jsonl.gz", "v.parquet", *options, "--dry-run").output
    result = workers_ai("ingest", "rows.jsonl.gz", "v.parquet", *options, "--chunk-size", "100")
    assert "duplicate 1 ids belong to several documents: 0" in result.output
    assert pq.read_table("v.parquet")["id"].to_pylist() == ["0", "0", "1", *(f"1#{n}" for n in range(8))]


def test_a_report_as_json(workers_ai: Any, docs: Path) -> None:
    planned = json.loads(
        workers_ai("ingest", "docs.jsonl", "v.parquet", "--model", MODEL, "--json", "--dry-run").output
    )
    report = json.loads(workers_ai("ingest", "docs.jsonl", "v.parquet", "--model", MODEL, "--json").output)
    assert (planned["documents"], report["embedded"], report["reused"], report["written"]) == (250, 248, 2, 250)
    assert report["failures"] == []


def test_invalid_rows_are_all_reported_or_skipped(workers_ai: Any, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"id": 1, "text": "a"}\n{"id": 2}\n[1]\n{"id": 3, "text": "b"}\n{"id": 4,\n')
    command = ["ingest", "d.jsonl", "v.parquet", "--model", MODEL]
    error = only_line(workers_ai(*command, status=1))
    assert error.startswith("3 rows are invalid: d.jsonl, line 2: 'text' is missing")
    assert "line 3" in error
    assert "line 5" in error
    workers_ai(*command, "--quarantine", "bad.jsonl")
    assert pq.read_table("v.parquet")["id"].to_pylist() == ["1", "3"]
    bad = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [row["row"] for row in bad] == [{"id": 2}, "[1]", '{"id": 4,']


def test_a_duplicate_column_is_reported(workers_ai: Any, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("id,text,text\n1,a,b\n")
    assert "the column 'text' occurs twice" in only_line(
        workers_ai("ingest", "d.csv", "v.parquet", "--model", MODEL, status=1)
    )


def test_documents_are_read_from_stdin(workers_ai: Any) -> None:
    arguments = ["ingest", "-", "v.parquet", "--model", MODEL]
    result = CliRunner().invoke(app, arguments, input='{"id": "a", "text": "one"}\n{"id": "b", "text": "two"}\n')
    assert result.exit_code == 0, result.output
    assert pq.read_table("v.parquet")["id"].to_pylist() == ["a", "b"]


def test_a_submission_that_never_ends_can_be_deleted(workers_ai: Any, docs: Path, emulator: Emulator) -> None:
    with Ledger("l", Fingerprint(MODEL)) as ledger:
        run = ledger.begin_run()
        document = Document("a", text_hash("text 1"), "text 1")
        ledger.feed(run, [document], part=100, measure=lambda text: Measured(8, 2))
        claim = ledger.claim(run, texts=9, part=100, max_bytes=1000, max_tokens=None)
        assert claim is not None
        ledger.accepted(run, claim.job, "stuck")
        ledger.end_run(run, finished=False)
    assert "no submission 'other' in flight" in only_line(workers_ai("jobs", "l", "--forget", "other", status=1))
    assert "forgot stuck" in workers_ai("jobs", "l", "--forget", "stuck").output
    workers_ai("ingest", "docs.jsonl", "v.parquet", "--model", MODEL, "--ledger", "l")
    assert emulator.log.times_embedded("text 1") == 1
