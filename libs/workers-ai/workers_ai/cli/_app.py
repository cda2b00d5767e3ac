"""Commands, arguments and options. A command imports its modules when it runs, so that ``--help`` is fast."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from workers_ai._version import __version__
from workers_ai.errors import ConfigurationError, WorkersAIError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["app", "run"]

ERROR: Final = 1
DIFFERENCES: Final = 3
INTERRUPTED: Final = 130

_ENVIRONMENT = (
    "Account and token come from the environment: CLOUDFLARE_ACCOUNT_ID and CLOUDFLARE_API_TOKEN (other names: see "
    "the README)."
)

app = typer.Typer(
    name="workers-ai",
    help="Use Cloudflare Workers AI from the command line. Unofficial.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


_Input = Annotated[
    Path,
    typer.Argument(
        metavar="INPUT",
        help="JSONL or CSV (also .gz) or Parquet with id and text, a folder of texts, or - for JSONL on stdin.",
    ),
]
_Output = Annotated[
    Path, typer.Argument(metavar="OUTPUT", help="Parquet file to write: id, text_hash, vector, metadata.")
]
_LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="Ledger of an ingestion or a generation.")]
_Model = Annotated[
    str | None, typer.Option(help="Model id, such as @cf/baai/bge-m3; required without --resume.", show_default=False)
]
_Ledger = Annotated[Path | None, typer.Option(help="Ledger file.", show_default="OUTPUT with .ledger added")]
_Mode = Annotated[Literal["queue", "direct"], typer.Option(help="Use the asynchronous queue or direct requests.")]
_Resume = Annotated[bool, typer.Option("--resume", help="Continue an existing ledger with its model and options.")]
_LimitCost = Annotated[
    float | None,
    typer.Option(
        metavar="USD", min=0, help="Stop before the run spends more than this, by list price.", show_default=False
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print requests, cost and time; send nothing.")]
_Inputs = Annotated[
    Path,
    typer.Argument(
        metavar="INPUT",
        help="JSONL or CSV (also .gz) or Parquet with id and columns, OpenAI's batch JSONL, or - for JSONL on stdin.",
    ),
]
_Answers = Annotated[Path, typer.Argument(metavar="OUTPUT", help="File to write, named .jsonl or .parquet.")]
_ChatModel = Annotated[
    str | None,
    typer.Option(help="Model id, such as @cf/qwen/qwen3-30b-a3b-fp8; required without --resume.", show_default=False),
]
_Prompt = Annotated[
    str | None, typer.Option(help="Prompt; {name} stands for a column, {{ for a brace.", show_default=False)
]
_PromptFile = Annotated[Path | None, typer.Option(metavar="FILE", help="File with the prompt.", show_default=False)]
_System = Annotated[str | None, typer.Option(help="System message.", show_default=False)]
_SchemaFile = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE", help="JSON schema of the answers.", show_default=False)
]
_Labels = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="Labels of which each answer is one.", show_default=False)
]
_MaxTokens = Annotated[int | None, typer.Option(min=1, help="Tokens of one answer at most.", show_default=False)]
_Temperature = Annotated[float | None, typer.Option(min=0, help="Sampling temperature.", show_default=False)]
_PerJob = Annotated[int | None, typer.Option(min=1, help="Inputs of one submission.", show_default="200")]
_Repair = Annotated[int, typer.Option(min=0, help="Retries of an answer that does not match the schema.")]
_Pooling = Annotated[Literal["mean", "cls"] | None, typer.Option(help="Pooling of the bge models.", show_default=False)]
_Instruction = Annotated[str | None, typer.Option(help="Text put before each document.", show_default=False)]
_Truncate = Annotated[
    bool | None,
    typer.Option("--truncate/--no-truncate", help="Let the service truncate long texts.", show_default=False),
]
_Normalize = Annotated[bool, typer.Option("--normalize", help="Scale each vector to length 1.")]
_Empty = Annotated[
    Literal["raise", "space"], typer.Option("--empty-text", help="Report an empty text as failed, or embed a space.")
]
_IdColumn = Annotated[str, typer.Option(metavar="NAME", help="Column of the ids.")]
_TextColumn = Annotated[str, typer.Option(metavar="NAME", help="Column of the texts.")]
_ChunkSize = Annotated[
    int | None,
    typer.Option(
        metavar="CHARS", min=1, help="Split longer texts into chunks of at most CHARS characters.", show_default=False
    ),
]
_Quarantine = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Skip invalid rows and write them to FILE.", show_default=False),
]
_TakeOver = Annotated[bool, typer.Option("--take-over", help="Treat runs of other hosts on this ledger as dead.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
_Forget = Annotated[
    str | None,
    typer.Option(
        metavar="REQUEST_ID", help="Forget this submission; the next run sends its texts again.", show_default=False
    ),
]
_AccountId = Annotated[str | None, typer.Option(help="Account id instead of the environment's.", show_default=False)]
_BaseUrl = Annotated[
    str | None, typer.Option(help="URL up to /client/v4 instead of the service's.", show_default=False)
]
_Gateway = Annotated[str | None, typer.Option(help="AI Gateway id.", show_default=False)]
_Concurrency = Annotated[int | None, typer.Option(min=1, help="Requests in flight.", show_default="8")]
_Task = Annotated[str | None, typer.Option(help="Task, such as text-embeddings.", show_default=False)]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Check = Annotated[bool, typer.Option("--check", help="Compare with models/search and models/schema of your account.")]
_Only = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Ask this question only; may be repeated.", show_default=False)
]
_ProbeDryRun = Annotated[bool, typer.Option("--dry-run", help="List questions, calls and cost; send nothing.")]
_Markdown = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the report as Markdown, too.", show_default=False)
]
_Cassettes = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the recordings.")]
_NoRecord = Annotated[bool, typer.Option("--no-record", help="Keep no recordings.")]
_StateFile = Annotated[Path, typer.Option("--state", metavar="FILE", help="File with the answers of earlier runs.")]
_Anew = Annotated[bool, typer.Option("--anew", help="Ignore the answers of earlier runs.")]
_Live = Annotated[bool, typer.Option("--live", help="Use your account, which is billed, instead of the emulator.")]


def run() -> None:
    """Run the command line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not encode every id and path
    app()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(epilog=_ENVIRONMENT)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog=_ENVIRONMENT)
def ingest(
    source: _Input,
    output: _Output,
    model: _Model = None,
    ledger: _Ledger = None,
    mode: _Mode = "queue",
    resume: _Resume = False,
    limit_cost: _LimitCost = None,
    dry_run: _DryRun = False,
    pooling: _Pooling = None,
    instruction: _Instruction = None,
    truncate: _Truncate = None,
    normalize: _Normalize = False,
    empty_text: _Empty = "raise",
    id_column: _IdColumn = "id",
    text_column: _TextColumn = "text",
    chunk_size: _ChunkSize = None,
    quarantine: _Quarantine = None,
    take_over: _TakeOver = False,
    as_json: _Json = False,
    account_id: _AccountId = None,
    base_url: _BaseUrl = None,
    gateway: _Gateway = None,
    max_concurrency: _Concurrency = None,
) -> None:
    """Embed a corpus and write Parquet. After an interrupt, the same command continues.

    Exit status: 0 all embedded, 3 some failed (listed), 1 an error, 2 usage, 130 interrupted.
    """
    if model is None and not resume:
        raise typer.BadParameter("is missing: pass a model such as @cf/baai/bge-m3, or --resume", param_hint="--model")
    if model is None and (pooling or instruction or truncate is not None or normalize):
        raise typer.BadParameter(
            "takes the options of the vectors from the ledger: remove them, or pass --model", param_hint="--resume"
        )
    with _one_line_errors(), _file_of(source) as file:
        from workers_ai.cli._documents import Columns
        from workers_ai.cli._ingestion import Ingestion
        from workers_ai.ingest import Fingerprint

        shape = None
        if model is not None:
            shape = Fingerprint(model, pooling, instruction, truncate, normalize)
        given = {
            "account_id": account_id,
            "base_url": base_url,
            "gateway": gateway,
            "max_concurrency": max_concurrency,
        }
        ingestion = Ingestion(
            source=file,
            output=output,
            ledger=ledger or Path(f"{output}.ledger"),
            shape=shape,
            resume=resume,
            mode=mode,
            limit_cost_usd=limit_cost,
            empty_text=empty_text,
            columns=Columns(id_column, text_column, chunk_size),
            quarantine=quarantine,
            take_over=take_over,
            as_json=as_json,
            settings={name: value for name, value in given.items() if value is not None},
        )
        if dry_run:
            found = ingestion.estimate()
            typer.echo(json.dumps(found.to_dict()) if as_json else found)
            return
        status = ingestion.run()
    raise typer.Exit(status)


@app.command(epilog=_ENVIRONMENT)
def generate(
    source: _Inputs,
    output: _Answers,
    model: _ChatModel = None,
    prompt: _Prompt = None,
    prompt_file: _PromptFile = None,
    system: _System = None,
    schema: _SchemaFile = None,
    labels: _Labels = None,
    max_tokens: _MaxTokens = None,
    temperature: _Temperature = None,
    ledger: _Ledger = None,
    mode: _Mode = "queue",
    requests_per_job: _PerJob = None,
    resume: _Resume = False,
    limit_cost: _LimitCost = None,
    repair: _Repair = 1,
    dry_run: _DryRun = False,
    id_column: _IdColumn = "id",
    as_json: _Json = False,
    account_id: _AccountId = None,
    base_url: _BaseUrl = None,
    gateway: _Gateway = None,
    max_concurrency: _Concurrency = None,
) -> None:
    """Answer a corpus and write JSONL or Parquet. After an interrupt, the same command continues.

    Exit status: 0 all answered, 3 some failed (listed), 1 an error, 2 usage, 130 interrupted.
    """
    shaping = {
        "model": model, "prompt": prompt, "system": system, "max_tokens": max_tokens, "temperature": temperature,
    }  # fmt: skip
    if model is None and not resume:
        raise typer.BadParameter("is missing: pass a chat model, or --resume", param_hint="--model")
    if resume and (schema or labels or prompt_file or any(value is not None for value in shaping.values())):
        raise typer.BadParameter(
            "takes model, prompt and parameters from the ledger: remove those options", param_hint="--resume"
        )
    if prompt is not None and prompt_file is not None:
        raise typer.BadParameter("pass --prompt or --prompt-file, not both", param_hint="--prompt")
    with _one_line_errors(), _file_of(source) as file:
        from workers_ai.cli._generation import Generation, read_schema

        if prompt_file is not None:
            shaping["prompt"] = prompt_file.read_text(encoding="utf-8")
        run_options = {"mode": mode, "requests_per_job": requests_per_job, "limit_cost_usd": limit_cost}
        options: dict[str, object] = {
            name: value for name, value in {**shaping, **run_options}.items() if value is not None
        }
        options["repair"] = repair
        if schema is not None:
            options["schema"] = read_schema(schema)
        if labels is not None:
            options["labels"] = [label.strip() for label in labels.split(",")]
        given = {
            "account_id": account_id, "base_url": base_url, "gateway": gateway, "max_concurrency": max_concurrency,
        }  # fmt: skip
        generation = Generation(
            file, output, ledger or Path(f"{output}.ledger"), options, resume, id_column, as_json,
            {name: value for name, value in given.items() if value is not None},
        )  # fmt: skip
        if dry_run:
            found = generation.estimate()
            typer.echo(json.dumps(found.to_dict()) if as_json else found)
            return
        status = generation.run()
    raise typer.Exit(status)


@app.command()
def jobs(ledger: _LedgerPath, forget: _Forget = None) -> None:
    """List the submissions of a ledger that are in the queue, or forget one that never finishes."""
    with _one_line_errors():
        from workers_ai.cli import _jobs as commands

        typer.echo(commands.describe(ledger) if forget is None else commands.forget(ledger, forget))


@app.command(epilog=_ENVIRONMENT)
def models(
    task: _Task = None,
    as_json: _AsJson = False,
    check: _Check = False,
    account_id: _AccountId = None,
    base_url: _BaseUrl = None,
) -> None:
    """List the models of the catalogue, or compare the catalogue with your account.

    Exit status: 0 listed or no difference, 3 differences (printed), 1 an error, 2 usage.
    """
    with _one_line_errors():
        from workers_ai.cli import _models as commands

        if not check:
            typer.echo(commands.listing(commands.select_cards(task), as_json=as_json))
            return
        from workers_ai.client import Client

        with Client(account_id=account_id, base_url=base_url) as client:
            found = commands.check(client, task)
        rows = [row._asdict() for row in found]
        typer.echo(json.dumps(rows, indent=2) if as_json else "\n".join(map(str, found)) or "no difference")
    raise typer.Exit(DIFFERENCES if found else 0)


@app.command(epilog=_ENVIRONMENT)
def probe(
    only: _Only = None,
    dry_run: _ProbeDryRun = False,
    markdown: _Markdown = None,
    cassettes: _Cassettes = Path("cassettes/live/probe"),
    no_record: _NoRecord = False,
    state: _StateFile = Path("workers-ai-probe.json"),
    anew: _Anew = False,
    account_id: _AccountId = None,
    base_url: _BaseUrl = None,
) -> None:
    """Ask your account the questions that only the service can answer, and compare with what is assumed here.

    Sends at most 60 requests, for less than $0.05. An interrupted run goes on with the same command.

    Exit status: 0 all agree, 3 some differ, 1 an error or open questions, 2 usage.
    """
    with _one_line_errors():
        from workers_ai.cli._probe import command

        try:
            questions = command.select(only or ())
        except ConfigurationError as exc:
            raise typer.BadParameter(exc.message, param_hint="--only") from exc
        if dry_run:
            command.show_plan(questions)
            return
        found = command.probe(
            questions, markdown=markdown, cassettes=None if no_record else cassettes, state_file=state, anew=anew,
            account_id=account_id, base_url=base_url,
        )  # fmt: skip
    raise typer.Exit(ERROR if found == "open" else DIFFERENCES if found == "differs" else 0)


@app.command()
def demo(live: _Live = False) -> None:
    """Answer questions about the docstrings of Python's standard library, with every part of this project."""
    with _one_line_errors():
        from workers_ai._demo import run as demonstration

        demonstration.run(live=live)


@contextmanager
def _file_of(source: Path) -> Iterator[Path]:
    """Yield the input as a file that can be read twice; copy stdin for ``-``."""
    if str(source) != "-":
        yield source
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdin.jsonl"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


_OPTIONS: Final = (
    (r"queue='never' or mode='direct'", "--mode direct"),
    (r"\blimit_cost_usd\b", "--limit-cost"),
    (r"\btruncate_inputs\b", "--truncate"),
    (
        r"\b(prompt|system|schema|labels|max_tokens|requests_per_job|account_id|base_url|gateway|max_concurrency"
        r"|pooling|instruction|model|mode|ledger|empty_text)= ?",
        r"--\1 ",
    ),
    (r"(?<!-)\baccount_id\b", "--account-id"),
    (r"pass api_token= \(or api_key=\) or set", "set"),
)
"""Names of Python arguments in messages, and the options of the command."""


def _as_command(text: str) -> str:
    """Replace names of Python arguments in a message by options of the command."""
    for name, option in _OPTIONS:
        text = re.sub(name, option, text)
    return re.sub(r"(--[a-z_]+)( (?=[,;:.]))?", lambda found: found[1].replace("_", "-"), text)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn an error into one line on stderr and an exit status."""
    try:
        yield
    except KeyboardInterrupt:
        _end("interrupted: the same command continues", INTERRUPTED)
    except (WorkersAIError, OSError) as exc:
        left = len(getattr(exc, "request_ids", ()))
        hint = f"; submissions in the queue: {left} (`workers-ai jobs LEDGER` lists them)" if left else ""
        _end(_as_command(" ".join(str(exc).split())) + hint, ERROR)


def _end(text: str, status: int) -> None:
    typer.echo(f"workers-ai: {text}", err=True)
    sys.stderr.flush()
    raise typer.Exit(status)
