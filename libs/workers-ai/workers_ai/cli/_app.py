"""Commands, arguments and options. A command imports its modules when it runs, so that ``--help`` is fast."""

from __future__ import annotations

import io
import itertools
import json
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workers_ai._version import __version__
from workers_ai.cli import _options as opt
from workers_ai.cli._errors import ERROR, PARTIAL, one_line_errors
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers_ai.types import JSON

__all__ = ["app", "run"]

_ENVIRONMENT = (
    "Account and token come from the environment: CLOUDFLARE_ACCOUNT_ID and CLOUDFLARE_API_TOKEN (other names: see "
    "the README). `workers-ai doctor` checks them."
)
_CONTINUES = "interrupted: the same command continues"
_CALL, _CORPUS, _ACCOUNT = "One call", "A corpus", "Your account"


def _epilog(*examples: str, credentials: str = _ENVIRONMENT) -> str:
    """Return the end of a help page: examples, and where credentials come from."""
    return "\n\n".join(["Examples:", *examples, credentials])


app = typer.Typer(
    name="workers-ai",
    help="Use Cloudflare Workers AI from the command line. Unofficial.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
)


def run() -> None:
    """Run the command line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may be unable to encode an id or a path
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


@app.command(
    epilog=_epilog(
        'workers-ai chat "Why is the sky blue?"',
        'git diff | workers-ai chat --system "You review code." "Review this change:" -',
        "workers-ai chat --session trip.json --model @cf/openai/gpt-oss-120b",
    ),
    rich_help_panel=_CALL,
)
def chat(
    prompt: opt.PromptWords = None,
    model: opt.ChatDefault = None,
    system: opt.SystemShort = None,
    session: opt.Session = None,
    max_tokens: opt.MaxTokens = None,
    temperature: opt.Temperature = None,
    as_json: opt.AsJson = False,
    account_id: opt.AccountId = None,
    base_url: opt.BaseUrl = None,
    gateway: opt.Gateway = None,
) -> None:
    """Print an answer as it arrives. In a terminal and without a prompt, start a conversation.

    Exit status: 0 answered, 1 an error, 2 usage, 130 interrupted.
    """
    interactive = not prompt and sys.stdin.isatty()
    if interactive and as_json:
        raise typer.BadParameter(
            "pass a prompt, or text on stdin: a conversation has no JSON output", param_hint="--json"
        )
    with one_line_errors():
        from workers_ai._wire.params import ChatKeywords
        from workers_ai.cli import _chat as commands
        from workers_ai.cli._texts import stdin_text
        from workers_ai.client import Client

        conversation = commands.Conversation.open(session, model, system)
        options = ChatKeywords(max_tokens=max_tokens, temperature=temperature)
        with Client(account_id=account_id, base_url=base_url, gateway=gateway) as client:
            if interactive:
                commands.converse(client, conversation, options)
                return
            words = prompt or ["-"]
            text = "\n\n".join(stdin_text().strip() if word == "-" else word for word in _joined(words)).strip()
            if not text:
                raise ConfigurationError("the prompt is empty: pass a prompt, or text on stdin")
            if as_json:
                typer.echo(commands.answer_as_json(client, conversation, text, options))
            else:
                commands.answer(client, conversation, text, options)


@app.command(
    epilog=_epilog(
        'workers-ai embed "a fjord" "a cloud"',
        "workers-ai embed --file names.txt --output names.parquet",
        "workers-ai embed --file docs.jsonl --output docs.parquet --model @cf/qwen/qwen3-embedding-0.6b",
    ),
    rich_help_panel=_CALL,
)
def embed(
    texts: opt.Texts = None,
    file: opt.TextFile = None,
    model: opt.EmbedDefault = opt.EMBED_MODEL,
    output: opt.Vectors = None,
    kind: opt.Kind = "document",
    pooling: opt.Pooling = None,
    truncate: opt.Truncate = None,
    normalize: opt.Normalize = False,
    as_json: opt.AsJson = False,
    account_id: opt.AccountId = None,
    base_url: opt.BaseUrl = None,
    gateway: opt.Gateway = None,
) -> None:
    """Embed texts at once and print the vectors as JSON lines, or write them to a file.

    For a corpus, use ingest: it continues after an interrupt.

    Exit status: 0 embedded, 1 an error, 2 usage, 130 interrupted.
    """
    with one_line_errors():
        from workers_ai._wire.params import EmbedKeywords
        from workers_ai.cli import _texts as commands
        from workers_ai.client import Client

        commands.check_output(output)
        documents = commands.read_texts(texts or (), file, "TEXT")
        options = EmbedKeywords(pooling=pooling, truncate_inputs=truncate, normalize=normalize, kind=kind)
        with Client(account_id=account_id, base_url=base_url, gateway=gateway) as client:
            typer.echo(commands.embed(client, model, documents, output, as_json, options))


@app.command(
    epilog=_epilog(
        'workers-ai rerank "capital of Norway" "Bergen is rainy" "Oslo is the capital"',
        'workers-ai rerank "capital of Norway" --file notes.txt --top-n 3',
    ),
    rich_help_panel=_CALL,
)
def rerank(
    query: opt.Query,
    texts: opt.Texts = None,
    file: opt.TextFile = None,
    model: opt.RerankDefault = opt.RERANK_MODEL,
    top_n: opt.TopN = None,
    as_json: opt.AsJson = False,
    account_id: opt.AccountId = None,
    base_url: opt.BaseUrl = None,
    gateway: opt.Gateway = None,
) -> None:
    """Rank texts by relevance to a query. Print score, id and text of each, best first.

    Exit status: 0 ranked, 1 an error, 2 usage, 130 interrupted.
    """
    with one_line_errors():
        from workers_ai.cli import _texts as commands
        from workers_ai.client import Client

        documents = commands.read_texts(texts or (), file, "TEXT")
        with Client(account_id=account_id, base_url=base_url, gateway=gateway) as client:
            typer.echo(commands.rerank(client, model, query, documents, top_n, as_json=as_json))


@app.command(
    epilog=_epilog(
        "workers-ai ingest docs.jsonl vectors.parquet --model @cf/baai/bge-m3 --dry-run",
        "workers-ai ingest notes/ vectors.parquet --model @cf/baai/bge-m3 --chunk-size 1500",
        "workers-ai ingest docs.jsonl vectors.parquet --resume",
    ),
    rich_help_panel=_CORPUS,
)
def ingest(
    source: opt.Input,
    output: opt.Output,
    model: opt.Model = None,
    ledger: opt.Ledger = None,
    mode: opt.Mode = "queue",
    resume: opt.Resume = False,
    limit_cost: opt.LimitCost = None,
    dry_run: opt.DryRun = False,
    pooling: opt.Pooling = None,
    instruction: opt.Instruction = None,
    truncate: opt.Truncate = None,
    normalize: opt.Normalize = False,
    empty_text: opt.Empty = "raise",
    id_column: opt.IdColumn = "id",
    text_column: opt.TextColumn = "text",
    chunk_size: opt.ChunkSize = None,
    quarantine: opt.Quarantine = None,
    take_over: opt.TakeOver = False,
    as_json: opt.Json = False,
    account_id: opt.AccountId = None,
    base_url: opt.BaseUrl = None,
    gateway: opt.Gateway = None,
    max_concurrency: opt.Concurrency = None,
) -> None:
    """Embed a corpus and write Parquet. After an interrupt, the same command continues.

    Exit status: 0 all embedded, 3 some failed (listed), 1 an error, 2 usage, 130 interrupted.
    """
    if model is None and not resume:
        raise typer.BadParameter("is missing: pass a model such as @cf/baai/bge-m3, or --resume", param_hint="--model")
    if model is None and (pooling or instruction or truncate is not None or normalize):
        raise typer.BadParameter(
            "uses the options in the ledger: remove --pooling, --instruction, --truncate and --normalize, "
            "or pass --model",
            param_hint="--resume",
        )
    with one_line_errors(_CONTINUES), _file_of(source) as file:
        from workers_ai.cli._documents import Columns
        from workers_ai.cli._ingestion import Ingestion
        from workers_ai.ledger._store.fingerprints import Fingerprint

        shape = None
        if model is not None:
            shape = Fingerprint(model, pooling, instruction, truncate, normalize)
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
            settings=_given(account_id=account_id, base_url=base_url, gateway=gateway, max_concurrency=max_concurrency),
        )
        if dry_run:
            found = ingestion.estimate()
            typer.echo(json.dumps(found.to_dict()) if as_json else found)
            return
        status = ingestion.run()
    raise typer.Exit(status)


@app.command(
    epilog=_epilog(
        'workers-ai generate docs.jsonl labels.jsonl --model @cf/qwen/qwen3-30b-a3b-fp8 --prompt "Classify: {text}" '
        "--labels bug,question",
        "workers-ai generate docs.jsonl labels.jsonl --resume",
    ),
    rich_help_panel=_CORPUS,
)
def generate(
    source: opt.Inputs,
    output: opt.Answers,
    model: opt.ChatModel = None,
    prompt: opt.Prompt = None,
    prompt_file: opt.PromptFile = None,
    system: opt.System = None,
    schema: opt.SchemaFile = None,
    labels: opt.Labels = None,
    max_tokens: opt.MaxTokens = None,
    temperature: opt.Temperature = None,
    ledger: opt.Ledger = None,
    mode: opt.Mode = "queue",
    requests_per_job: opt.PerJob = None,
    resume: opt.Resume = False,
    limit_cost: opt.LimitCost = None,
    repair: opt.Repair = 1,
    dry_run: opt.DryRun = False,
    id_column: opt.IdColumn = "id",
    as_json: opt.Json = False,
    account_id: opt.AccountId = None,
    base_url: opt.BaseUrl = None,
    gateway: opt.Gateway = None,
    max_concurrency: opt.Concurrency = None,
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
            "uses model, prompt, labels and parameters in the ledger: remove these options", param_hint="--resume"
        )
    if prompt is not None and prompt_file is not None:
        raise typer.BadParameter("pass --prompt or --prompt-file, not both", param_hint="--prompt")
    with one_line_errors(_CONTINUES), _file_of(source) as file:
        from workers_ai.cli._generation import Generation, read_prompt, read_schema

        if prompt_file is not None:
            shaping["prompt"] = read_prompt(prompt_file)
        run_options = {"mode": mode, "requests_per_job": requests_per_job, "limit_cost_usd": limit_cost}
        options = _given(**shaping, **run_options)
        options["repair"] = repair
        if schema is not None:
            options["schema"] = read_schema(schema)
        if labels is not None:
            options["labels"] = [label.strip() for label in labels.split(",")]
        generation = Generation(
            file, output, ledger or Path(f"{output}.ledger"), options, resume, id_column, as_json,
            _given(account_id=account_id, base_url=base_url, gateway=gateway, max_concurrency=max_concurrency),
        )  # fmt: skip
        if dry_run:
            found = generation.estimate()
            typer.echo(json.dumps(found.to_dict()) if as_json else found)
            return
        status = generation.run()
    raise typer.Exit(status)


@app.command(
    epilog=_epilog("workers-ai jobs vectors.parquet.ledger", credentials="No account or token is needed."),
    rich_help_panel=_CORPUS,
)
def jobs(ledger: opt.LedgerPath, forget: opt.Forget = None) -> None:
    """List the submissions of a ledger that are in the queue, or forget one that never finishes.

    Exit status: 0 listed or forgotten, 1 an error, 2 usage.
    """
    with one_line_errors():
        from workers_ai.cli import _jobs as commands

        typer.echo(commands.describe(ledger) if forget is None else commands.forget(ledger, forget))


@app.command(
    epilog=_epilog("workers-ai models --task text-embeddings", "workers-ai models --check --json"),
    rich_help_panel=_ACCOUNT,
)
def models(
    task: opt.Task = None,
    as_json: opt.AsJson = False,
    check: opt.Check = False,
    account_id: opt.AccountId = None,
    base_url: opt.BaseUrl = None,
) -> None:
    """List the models of the catalogue, or compare the catalogue with your account.

    Exit status: 0 listed or no difference, 3 differences (printed), 1 an error, 2 usage.
    """
    with one_line_errors():
        from workers_ai.cli import _models as commands

        if not check:
            typer.echo(commands.listing(commands.select_cards(task), as_json=as_json))
            return
        from workers_ai.client import Client

        with Client(account_id=account_id, base_url=base_url) as client:
            found = commands.check(client, task)
        rows = [row._asdict() for row in found]
        typer.echo(json.dumps(rows, indent=2) if as_json else "\n".join(map(str, found)) or "no difference")
    raise typer.Exit(PARTIAL if found else 0)


@app.command(
    epilog=_epilog("workers-ai doctor", "workers-ai doctor --gateway my-gateway --json"),
    rich_help_panel=_ACCOUNT,
)
def doctor(
    as_json: opt.AsJson = False,
    account_id: opt.AccountId = None,
    base_url: opt.BaseUrl = None,
    gateway: opt.Gateway = None,
) -> None:
    """Check versions, settings, network, clock, token and permissions, and send one call for less than $0.000001.

    Each line is a check: ok, warning (calls may work), failed (with the remedy) or skipped. The token is never printed.

    Exit status: 0 no check failed, 1 a check failed, 2 usage, 130 interrupted.
    """
    with one_line_errors():
        from workers_ai._settings.keywords import SettingKeywords
        from workers_ai.cli._doctor.command import doctor as examine

        given = SettingKeywords(account_id=account_id, base_url=base_url, gateway=gateway)
        passed = examine(given, as_json=as_json)
    raise typer.Exit(0 if passed else ERROR)


@app.command(epilog=_ENVIRONMENT, rich_help_panel=_ACCOUNT)
def probe(
    only: opt.Only = None,
    dry_run: opt.ProbeDryRun = False,
    markdown: opt.Markdown = None,
    cassettes: opt.Cassettes = Path("cassettes/live/probe"),
    no_record: opt.NoRecord = False,
    state: opt.StateFile = Path("workers-ai-probe.json"),
    anew: opt.Anew = False,
    account_id: opt.AccountId = None,
    base_url: opt.BaseUrl = None,
) -> None:
    """Test undocumented behaviour on your account, and compare it with the assumptions of this project.

    Sends at most 60 requests, for less than $0.05. After an interrupt, the same command continues.

    Exit status: 0 all agree, 3 some differ, 1 an error or open questions, 2 usage.
    """
    with one_line_errors():
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
    raise typer.Exit(ERROR if found == "open" else PARTIAL if found == "differs" else 0)


@app.command(rich_help_panel=_CALL)
def demo(live: opt.Live = False) -> None:
    """Answer questions about the docstrings of Python's standard library, with every part of this project.

    Exit status: 0 done, 1 an error, 2 usage, 130 interrupted.
    """
    with one_line_errors():
        from workers_ai._demo import run as demonstration

        demonstration.run(live=live)


def _joined(words: list[str]) -> Iterator[str]:
    """Join words to texts. Yield each ``-`` (stdin) as a separate text."""
    for is_stdin, run_of_words in itertools.groupby(words, "-".__eq__):
        yield "-" if is_stdin else " ".join(run_of_words)


def _given(**options: JSON) -> dict[str, JSON]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


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
