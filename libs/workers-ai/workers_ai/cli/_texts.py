"""``workers-ai embed`` and ``workers-ai rerank``: one call for texts from arguments, a file or stdin."""

from __future__ import annotations

import json
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from workers_ai.cli._documents import SUFFIXES, Document, InputError, read_documents
from workers_ai.errors import ConfigurationError
from workers_ai.ingest import Row
from workers_ai.ingest._parquet import whole_file, write_parquet
from workers_ai.ledger._records import text_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

    from workers_ai._wire.params import EmbedKeywords
    from workers_ai.client import Client
    from workers_ai.types import JSON, EmbedReply

__all__ = ["check_output", "embed", "read_texts", "rerank", "stdin_text"]


def stdin_text() -> str:
    """Return stdin as text.

    Raises:
        InputError: Stdin is not UTF-8.
    """
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InputError(f"stdin is not UTF-8 ({exc.reason}): convert it to UTF-8") from exc


def read_texts(given: Sequence[str], file: Path | None, argument: str) -> list[Document]:
    """Return the texts of the arguments, of a file, or of stdin. Texts without ids are numbered from 0.

    Args:
        given: Texts of the command line; ``-`` for one text per line on stdin.
        file: A file or folder as for ``ingest``, or a text file with one text per line; ``-`` for stdin.
        argument: Name of the argument, for errors.

    Raises:
        InputError: The input cannot be read, or has no text.
        typer.BadParameter: There are both texts and a file, or neither.
    """
    if given and file is not None:
        raise typer.BadParameter("pass texts or --file, not both", param_hint="--file")
    from_stdin = str(file) == "-" or list(given) == ["-"] or not (given or file or sys.stdin.isatty())
    if not (given or file or from_stdin):
        raise typer.BadParameter("is missing: pass texts, --file FILE, or lines on stdin", param_hint=argument)
    if from_stdin:
        texts: Iterable[str] = stdin_text().splitlines()
    elif file is None:
        texts = given
    elif file.is_dir() or Path(file.name.lower().removesuffix(".gz")).suffix in SUFFIXES:
        return _checked(list(read_documents(file)))
    else:
        texts = _lines(file)
    return _checked([Document(number, text, None) for number, text in enumerate(filter(str.strip, texts))])


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as exc:
        raise InputError(f"{file} is not UTF-8 ({exc.reason}): pass a text file with one text per line") from exc


def _checked(documents: list[Document]) -> list[Document]:
    if not documents:
        raise InputError("the input has no text: pass at least one")
    return documents


def embed(
    client: Client,
    model: str,
    documents: Sequence[Document],
    output: Path | None,
    as_json: bool,
    options: EmbedKeywords,
) -> str:
    """Embed texts. Return the text to print: vectors as JSON lines, or a report if there is an output file.

    Args:
        client: The client.
        model: Model id.
        documents: The texts.
        output: File for the vectors: ``.jsonl``, ``.npy`` or ``.parquet``; None to return them.
        as_json: Whether to return one JSON object, with usage.
        options: Options of ``Client.embed``.

    Raises:
        WorkersAIError: The call failed.
        OSError: The file cannot be written.
    """
    reply = client.embed(model, [document.text for document in documents], **options)
    dimensions = len(reply.vectors[0])
    usage = reply.usage and reply.usage._asdict()
    facts: dict[str, JSON] = {"model": model, "texts": len(documents), "dimensions": dimensions, "usage": usage}
    if output is None:
        return json.dumps(facts | {"vectors": reply.vectors}) if as_json else "\n".join(_json_lines(documents, reply))
    _WRITERS[output.suffix.lower()](output, documents, reply)
    if as_json:
        return json.dumps(facts | {"output": str(output)})
    return f"{len(documents):,} vectors of {dimensions:,} dimensions are in {output}"


def check_output(output: Path | None) -> None:
    """Check the name of an output file before anything is sent.

    Raises:
        typer.BadParameter: The suffix is unknown, or the folder does not exist.
        ConfigurationError: The package that writes such files is not installed.
    """
    if output is None:
        return
    if output.suffix.lower() not in _WRITERS:
        raise typer.BadParameter(f"{output} must have one of the suffixes {', '.join(_WRITERS)}", param_hint="--output")
    if not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"the folder of {output} does not exist", param_hint="--output")
    if output.suffix.lower() == ".npy":
        _numpy()


def _json_lines(documents: Sequence[Document], reply: EmbedReply) -> Iterable[str]:
    return (
        json.dumps({"id": document.id, "vector": vector}, ensure_ascii=False)
        for document, vector in zip(documents, reply.vectors, strict=True)
    )


def _write_jsonl(output: Path, documents: Sequence[Document], reply: EmbedReply) -> None:
    with whole_file(output) as file:
        file.writelines(f"{line}\n".encode() for line in _json_lines(documents, reply))


def _write_npy(output: Path, documents: Sequence[Document], reply: EmbedReply) -> None:
    np = _numpy()
    with whole_file(output) as file:
        np.save(file, np.asarray(reply.vectors, dtype=np.float32))


def _write_parquet(output: Path, documents: Sequence[Document], reply: EmbedReply) -> None:
    write_parquet(
        (
            (Row(document.id, text_hash(document.text), array("f", vector)), document.metadata)
            for document, vector in zip(documents, reply.vectors, strict=True)
        ),
        output,
    )


_WRITERS: Final[dict[str, Callable[[Path, Sequence[Document], EmbedReply], None]]] = {
    ".jsonl": _write_jsonl,
    ".npy": _write_npy,
    ".parquet": _write_parquet,
}
"""Writers by suffix."""


def _numpy() -> ModuleType:
    try:
        import numpy as np
    except ImportError as exc:
        raise ConfigurationError(".npy files require numpy: pip install numpy") from exc
    return np


def rerank(
    client: Client, model: str, query: str, documents: Sequence[Document], top_n: int | None, *, as_json: bool
) -> str:
    """Rank texts by relevance; return a line for each, best first, or a JSON list.

    Raises:
        WorkersAIError: The call failed.
    """
    scores = client.rerank(model, query, [document.text for document in documents], top_n=top_n)
    ranked = [(score.score, documents[score.index]) for score in scores]
    if as_json:
        rows = [{"id": document.id, "score": score, "text": document.text} for score, document in ranked]
        return json.dumps(rows, ensure_ascii=False)
    width = max(len(str(document.id)) for _, document in ranked)
    return "\n".join(
        f"{score:.4f}  {document.id!s:<{width}}  {_shortened(document.text)}" for score, document in ranked
    )


def _shortened(text: str, length: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 3]}..."
