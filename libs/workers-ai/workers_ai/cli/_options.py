"""Arguments and options of the commands. An option that several commands have is defined once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Callable


CHAT_MODEL: Final = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EMBED_MODEL: Final = "@cf/baai/bge-m3"
RERANK_MODEL: Final = "@cf/baai/bge-reranker-base"


def _tasks() -> list[str]:
    """Return the names of all tasks, for completion."""
    from workers_ai.catalogue import known_models

    return sorted({card.task.lower().replace(" ", "-") for card in known_models() if card.task})


def _models_of(task: str) -> Callable[[], list[str]]:
    """Return a function that returns the model ids of a task, for completion."""

    def complete() -> list[str]:
        from workers_ai.cli._models import select_cards

        return [card.id for card in select_cards(task) if card.retired_on is None]

    return complete


Input = Annotated[
    Path,
    typer.Argument(
        metavar="INPUT",
        help="JSONL or CSV (also .gz) or Parquet with id and text, a folder of texts, or - for JSONL on stdin.",
    ),
]
Output = Annotated[
    Path, typer.Argument(metavar="OUTPUT", help="Parquet file to write: id, text_hash, vector, metadata.")
]
LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="Ledger of an ingestion or a generation.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="Model id, such as @cf/baai/bge-m3; required without --resume.", show_default=False,
        autocompletion=_models_of("Text Embeddings"),
    ),
]  # fmt: skip
Ledger = Annotated[Path | None, typer.Option(help="Ledger file.", show_default="OUTPUT with .ledger added")]
Mode = Annotated[Literal["queue", "direct"], typer.Option(help="Use the asynchronous queue or direct requests.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an existing ledger with its model and options.")]
LimitCost = Annotated[
    float | None,
    typer.Option(
        metavar="USD", min=0, help="Stop before the run spends more than this, by list price.", show_default=False
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print requests, cost and time; send nothing.")]
Inputs = Annotated[
    Path,
    typer.Argument(
        metavar="INPUT",
        help="JSONL or CSV (also .gz) or Parquet with id and columns, OpenAI's batch JSONL, or - for JSONL on stdin.",
    ),
]
Answers = Annotated[Path, typer.Argument(metavar="OUTPUT", help="File to write, named .jsonl or .parquet.")]
ChatModel = Annotated[
    str | None,
    typer.Option(
        help="Model id, such as @cf/qwen/qwen3-30b-a3b-fp8; required without --resume.", show_default=False,
        autocompletion=_models_of("Text Generation"),
    ),
]  # fmt: skip
Prompt = Annotated[
    str | None, typer.Option(help="Prompt; use {name} for a column, {{ for a brace.", show_default=False)
]
PromptFile = Annotated[Path | None, typer.Option(metavar="FILE", help="File with the prompt.", show_default=False)]
System = Annotated[str | None, typer.Option(help="System message.", show_default=False)]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", metavar="FILE", help="JSON schema of the answers.", show_default=False)
]
Labels = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="Labels; each answer is one of them.", show_default=False)
]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Maximum tokens of one answer.", show_default=False)]
Temperature = Annotated[float | None, typer.Option(min=0, help="Sampling temperature.", show_default=False)]
PerJob = Annotated[int | None, typer.Option(min=1, help="Maximum inputs of one submission.", show_default="200")]
Repair = Annotated[int, typer.Option(min=0, help="Retries of an answer that does not match the schema.")]
Pooling = Annotated[Literal["mean", "cls"] | None, typer.Option(help="Pooling of the bge models.", show_default=False)]
Instruction = Annotated[str | None, typer.Option(help="Text put before each document.", show_default=False)]
Truncate = Annotated[
    bool | None,
    typer.Option("--truncate/--no-truncate", help="Let the service truncate long texts.", show_default=False),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Scale each vector to length 1.")]
Empty = Annotated[
    Literal["raise", "space"], typer.Option("--empty-text", help="Report an empty text as failed, or embed a space.")
]
IdColumn = Annotated[str, typer.Option(metavar="NAME", help="Column of the ids.")]
TextColumn = Annotated[str, typer.Option(metavar="NAME", help="Column of the texts.")]
ChunkSize = Annotated[
    int | None,
    typer.Option(
        metavar="CHARS", min=1, help="Split longer texts into chunks of at most CHARS characters.", show_default=False
    ),
]
Quarantine = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Skip invalid rows and write them to FILE.", show_default=False),
]
TakeOver = Annotated[bool, typer.Option("--take-over", help="Treat runs of other hosts on this ledger as dead.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Forget = Annotated[
    str | None,
    typer.Option(
        metavar="REQUEST_ID", help="Forget this submission; the next run sends its texts again.", show_default=False
    ),
]
AccountId = Annotated[str | None, typer.Option(help="Account id instead of the environment's.", show_default=False)]
BaseUrl = Annotated[str | None, typer.Option(help="URL up to /client/v4 instead of the service's.", show_default=False)]
Gateway = Annotated[str | None, typer.Option(help="AI Gateway id.", show_default=False)]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Requests in flight.", show_default="8")]
Task = Annotated[
    str | None,
    typer.Option(help="Task, such as text-embeddings.", show_default=False, autocompletion=_tasks),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Check = Annotated[bool, typer.Option("--check", help="Compare with models/search and models/schema of your account.")]
Only = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Test only this question; may be repeated.", show_default=False)
]
ProbeDryRun = Annotated[bool, typer.Option("--dry-run", help="List questions, calls and cost; send nothing.")]
Markdown = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the report as Markdown, too.", show_default=False)
]
Cassettes = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the recordings.")]
NoRecord = Annotated[bool, typer.Option("--no-record", help="Write no recordings.")]
StateFile = Annotated[Path, typer.Option("--state", metavar="FILE", help="File with the answers of earlier runs.")]
Anew = Annotated[bool, typer.Option("--anew", help="Ignore the answers of earlier runs.")]
Live = Annotated[bool, typer.Option("--live", help="Use your account, which is billed, instead of the emulator.")]
PromptWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROMPT",
        help="The prompt; use - for the text on stdin. Without a prompt: stdin, or a conversation in a terminal.",
        show_default=False,
    ),
]
ChatDefault = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="Model id.", autocompletion=_models_of("Text Generation"),
        show_default=f"the session's, or {CHAT_MODEL}",
    ),
]  # fmt: skip
SystemShort = Annotated[str | None, typer.Option("--system", "-s", help="System message.", show_default=False)]
Session = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Continue the conversation in this file, or start one.", show_default=False),
]
Texts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT", help="Texts. Without texts and --file: one per line on stdin (or -).", show_default=False
    ),
]
TextFile = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", metavar="FILE",
        help="Text file with one text per line, or JSONL, CSV, Parquet or a folder as for ingest.", show_default=False,
    ),
]  # fmt: skip
EmbedDefault = Annotated[
    str, typer.Option("--model", "-m", help="Model id.", autocompletion=_models_of("Text Embeddings"))
]
Kind = Annotated[Literal["document", "query"], typer.Option(help="Embed the texts as documents or as queries.")]
Vectors = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the vectors to a file with the suffix .jsonl, .npy or .parquet.",
        show_default="JSON lines on stdout",
    ),
]  # fmt: skip
Query = Annotated[str, typer.Argument(metavar="QUERY", help="The query.")]
RerankDefault = Annotated[
    str, typer.Option("--model", "-m", help="Model id.", autocompletion=_models_of("Text Classification"))
]
TopN = Annotated[int | None, typer.Option(min=1, help="Print the best N texts.", show_default="all")]
