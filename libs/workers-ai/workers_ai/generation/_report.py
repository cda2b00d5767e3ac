"""Answers, and the report of a generation."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from workers_ai._wire.chat.reply import early_end, read_chat
from workers_ai._wire.json_parsing import read_json
from workers_ai._wire.request import ReplyContext
from workers_ai.generation._inputs import ChatInput, canonical, input_hash
from workers_ai.generation._output import OutputFormat
from workers_ai.ledger._records import Failure
from workers_ai.ledger._report_text import report_html, report_text
from workers_ai.ledger._store.file import LedgerFile
from workers_ai.types import ChatReply, Usage

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Self

    from workers_ai.ledger._records import AnswerRow
    from workers_ai.types import JSON

__all__ = ["Answer", "Answers", "GenerateReport", "chat_reply"]


@dataclass(frozen=True)
class Answer:
    """The answer to one input, or its error.

    Attributes:
        id: Id of the input.
        hash: SHA-256 of the input, the key in the ledger.
        text: The answer as the model wrote it; None if there is no answer.
        data: The parsed answer: an object of the schema's class, JSON data, or a label. None for free text, and for an
            answer that does not match the schema.
        finish_reason: Why the model stopped (``"stop"``, ``"length"``, ...); None if there is no answer.
        usage: Tokens and neurons of the answer; None if not reported, and for a failed input.
        error: Why the input failed, or why its answer does not match the schema; None for a usable answer.
        message: The assistant message: ``content``, and where present ``reasoning_content``, ``tool_calls``,
            ``refusal``, ``logprobs``. None if there is no answer.
    """

    id: str | int
    hash: bytes
    text: str | None
    data: Any = None
    finish_reason: str | None = None
    usage: Usage | None = None
    error: Failure | None = None
    message: dict[str, JSON] | None = field(default=None, repr=False)


def answer_of(row: AnswerRow, output: OutputFormat) -> Answer:
    """Return a row of the ledger as an answer, parsed."""
    if row.answer is None:
        why = row.error or "there is no answer yet"
        return Answer(row.id, row.hash, None, error=Failure(row.id, row.code, why, row.position))
    message = read_json(row.answer)
    text = message.get("content") or ""
    usage = None
    if row.input_tokens is not None:
        made = row.output_tokens or 0
        usage = Usage(row.input_tokens, made, row.input_tokens + made, neurons=row.neurons)
    data, error = None, None
    try:
        data = output.parse(text)
    except ValueError as exc:
        error = Failure(row.id, None, misfit(exc, row.finish), row.position)
    return Answer(row.id, row.hash, text, data, row.finish, usage, error, message)


def misfit(error: ValueError, finish: str | None) -> str:
    """Return the error message of an answer that does not match the schema."""
    why = early_end(finish)
    return (f"{why}: " if why else "") + f"the answer does not fit the schema: {error!s:.500}"


def chat_reply(answer: Answer, model: str) -> ChatReply:
    """Return an answer as :meth:`workers_ai.Client.chat` returns it."""
    usage: dict[str, JSON] | None = None
    if answer.usage is not None:
        usage = {"prompt_tokens": answer.usage.input_tokens, "completion_tokens": answer.usage.output_tokens}
        if answer.usage.neurons is not None:
            usage["neurons"] = answer.usage.neurons
    message = answer.message or {}
    choice = {"message": message, "finish_reason": answer.finish_reason, "logprobs": message.get("logprobs")}
    return read_chat({"choices": [choice], "usage": usage, "model": model}, ReplyContext(model))


class Answers:
    """Answers of a ledger by input, for adapters of frameworks.

    Args:
        ledger: Path of the ledger.

    Raises:
        ConfigurationError: There is no ledger, or it contains embeddings.
        LedgerError: The file cannot be used.
    """

    def __init__(self, ledger: str | os.PathLike[str]) -> None:
        self._ledger = LedgerFile(ledger, task="generate")

    def find(self, inputs: Sequence[ChatInput], ids: Sequence[str | int] | None = None) -> list[ChatReply | None]:
        """Return the answers to rendered requests, in their order; None for a request without one.

        Args:
            inputs: Requests, as they were passed to :func:`generate`.
            ids: Their ids if they were generated with ``dedupe=False``.
        """
        rows = self._ledger.find_answers(self._hashes(inputs, ids))
        model = self._ledger.fingerprint.model
        text = OutputFormat()
        return [None if row is None else chat_reply(answer_of(row, text), model) for row in rows]

    def errors(self, inputs: Sequence[ChatInput], ids: Sequence[str | int] | None = None) -> list[Failure | None]:
        """Return the failures of requests, in their order; None for a request that has not failed."""
        found = self._ledger.find_failures(self._hashes(inputs, ids))
        return [
            None if failure is None else Failure(ids[index] if ids else index, failure[0], failure[1], index)
            for index, failure in enumerate(found)
        ]

    def _hashes(self, inputs: Sequence[ChatInput], ids: Sequence[str | int] | None) -> list[bytes]:
        if ids is None:
            return [input_hash(canonical(chat)) for chat in inputs]
        return [input_hash(canonical(chat), doc_id) for chat, doc_id in zip(inputs, ids, strict=True)]

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True)
class GenerateReport:
    """The result of one generation. ``answered + reused + failed + pending`` is the number of inputs.

    Attributes:
        model: Model id.
        answered: Inputs answered in this run.
        reused: Inputs that cost nothing: their answer was in the ledger, another process with the same ledger generated
            it, or another input is the same.
        failed: Inputs without a usable answer, including ``invalid`` ones.
        failures: The first 10,000 failures, as (id, code, message, position).
        invalid: Inputs whose answer does not match the schema, even after repairs; the text is kept.
        truncated: Answers that ended at ``max_tokens``.
        retries: Submissions and requests that were sent again, whole or in part, and retried answers.
        input_tokens: Input tokens of this run; estimated where the service does not report them.
        output_tokens: Output tokens of this run; estimated where the service does not report them.
        neurons: Neurons of this run; by list price where the service does not report them, None without a price.
        cost_usd: Their list price in USD, without the free allocation; None without a price.
        seconds: Duration in seconds.
        pending: Inputs without an answer yet, with ``wait=False``.
        request_ids: Request ids of the submissions that are still in the queue.
        ledger: The ledger's file.
        run: Number of the run in the ledger.
        duplicate_ids: Number of ids that several inputs share.
    """

    model: str
    answered: int
    reused: int
    failed: int
    failures: list[Failure]
    invalid: int
    truncated: int
    retries: int
    input_tokens: int
    output_tokens: int
    neurons: float | None
    cost_usd: float | None
    seconds: float
    pending: int
    request_ids: tuple[str, ...] = field(repr=False)
    ledger: Path = field(repr=False)
    run: int = field(repr=False)
    duplicate_ids: int = 0
    output: OutputFormat = field(default_factory=OutputFormat, repr=False, compare=False)

    def answers(self) -> Iterator[Answer]:
        """Yield an answer for every input of this run, in the order of the source; in bounded memory.

        Failed inputs have an ``error``; answers are parsed as they are read.

        Raises:
            LedgerError: The run was deleted: the ledger keeps runs of the last hour, and the last three.
        """
        with LedgerFile(self.ledger) as ledger:
            for row in ledger.answers(self.run):
                yield answer_of(row, self.output)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values: failures as objects, the ledger as text."""
        facts = {name.name: getattr(self, name.name) for name in fields(self) if name.name != "output"}
        listed = [failure._asdict() for failure in self.failures]
        return {**facts, "failures": listed, "ledger": str(self.ledger), "request_ids": list(self.request_ids)}

    def _facts(self) -> list[tuple[str, str]]:
        facts = [(name, f"{getattr(self, name):,}") for name in ("answered", "reused", "failed")]
        for name in ("pending", "invalid", "truncated"):
            facts += [(name, f"{count:,}")] if (count := getattr(self, name)) else []
        facts += [("retries", f"{self.retries:,}"), ("tokens in", f"{self.input_tokens:,}")]
        facts += [("tokens out", f"{self.output_tokens:,}")]
        if self.neurons is not None and self.cost_usd is not None:
            facts += [("neurons", f"{self.neurons:,.2f}"), ("cost", f"${self.cost_usd:.6f}")]
        facts += [("duplicate ids", f"{self.duplicate_ids:,}")] if self.duplicate_ids else []
        rate = f" ({self.answered / self.seconds:,.0f} answers/s)" if self.answered and self.seconds else ""
        return [*facts, ("seconds", f"{self.seconds:,.1f}{rate}")]

    def summary(self, failures: int = 10) -> str:
        """Return the report as lines of text, with at most this number of failures."""
        return report_text(f"Generation with {self.model}", self._facts(), self.failures[:failures], self.failed)

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return report_html(f"Generation with {self.model}", self._facts(), self.failures, self.failed)
