"""Generation in Ray Data."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
from pydantic_core import to_json

from workers_ai._connection import Connection
from workers_ai._engine_settings import bulk_settings
from workers_ai._validation import require
from workers_ai.client import Client
from workers_ai.generation._api import generate
from workers_ai.generation._inputs import PromptTemplate
from workers_ai.generation._options import Options

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from workers_ai import RetryPolicy, SettingKeywords
    from workers_ai.generation._report import Answer
    from workers_ai.types import JSON

__all__ = ["WorkersAIGenerator"]


class WorkersAIGenerator:
    """A callable class that adds a column of answers, and a column of errors, to each batch.

    ::

        answers = ray.data.read_parquet("docs.parquet").map_batches(
            WorkersAIGenerator,
            fn_constructor_kwargs={
                "model": "@cf/qwen/qwen3-30b-a3b-fp8", "prompt": "Summarize: {text}", "max_tokens": 300,
                "ledger": "/data/answers.ledger",
            },
            batch_size=200,
            compute=ray.data.ActorPoolStrategy(size=1),
        )

    One batch is one submission of the asynchronous queue. A failed row does not fail its block: its answer is null, and
    its error is the reason. Ray loses the results of an interrupted run; with ``ledger`` the next run sends only the
    rows without an answer. A ledger is a file on a local disk: on a cluster, each node has its own.

    Args:
        model: Model id.
        column: Column of texts, used without ``prompt`` and ``messages_column``.
        messages_column: Column of lists of OpenAI-shaped messages, in place of ``column``.
        prompt: Template of the prompt. Its ``{name}`` placeholders are columns.
        system: System message.
        schema: A Pydantic class, a TypedDict or a JSON schema. Answers are JSON text that matches it.
        labels: Labels. Each answer is one of them.
        max_tokens: Maximum tokens of an answer.
        temperature: Sampling temperature.
        seed: Seed of the sampling.
        stop: Texts that end an answer.
        reasoning_effort: Effort of a reasoning model, such as ``"low"``.
        extra_body: Fields added to the body of each request.
        output: Column of answers.
        error: Column of errors; "" for an answered row.
        ledger: Path of the ledger, on a local disk. None uses a temporary one for the life of the actor.
        mode: ``"queue"``, or ``"direct"`` for direct requests.
        retry: The retry policy; the default follows ``max_retries``.
        **settings: Settings of :class:`workers_ai.Client`. Defaults: ``max_retries`` 10, ``on_busy`` ``"retry"``. A
            token from the environment must be in the environment of Ray's workers.

    Raises:
        ConfigurationError: An argument is invalid, or the model has no queue.
    """

    def __init__(
        self,
        model: str,
        *,
        column: str = "text",
        messages_column: str | None = None,
        prompt: str | None = None,
        system: str | None = None,
        schema: object = None,
        labels: Sequence[str] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        reasoning_effort: str | None = None,
        extra_body: Mapping[str, JSON] | None = None,
        output: str = "answer",
        error: str = "error",
        ledger: str | os.PathLike[str] | None = None,
        mode: Literal["queue", "direct"] = "queue",
        retry: RetryPolicy | None = None,
        **settings: Unpack[SettingKeywords],
    ) -> None:
        require(prompt is None or messages_column is None, "pass prompt= or messages_column=, not both")
        require(output != error, f"output and error are both {output!r}: use two different columns")
        if ledger is None:
            folder = tempfile.mkdtemp(prefix="workers-ai-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            ledger = Path(folder) / "ledger"
        self._columns = [messages_column or column] if prompt is None else list(PromptTemplate(prompt).names)
        self._is_row = prompt is not None
        self._output = output
        self._error = error
        self._labels = labels is not None
        self._schema = schema is not None
        self._options: dict[str, Any] = {
            "ledger": ledger,
            "model": model,
            "prompt": prompt,
            "system": system,
            "schema": schema,
            "labels": labels,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "stop": stop,
            "reasoning_effort": reasoning_effort,
            "extra_body": extra_body,
            "mode": mode,
            "progress": False,
        }
        Options(**self._options)  # check the arguments before the first batch
        self._client = Client._of(Connection.open(bulk_settings("WorkersAIGenerator", settings), retry=retry))

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Add the answers and errors of one batch.

        Raises:
            ConfigurationError: A column is missing, or the ledger belongs to another model, prompt or parameter.
            WorkersAIError: An error that stops the run, such as :class:`~workers_ai.errors.QuotaExhaustedError`.
        """
        for name in self._columns:
            require(name in batch, f"the batch has no column {name!r}: use one of {', '.join(batch)}")
        size = len(batch[self._columns[0]])
        answers: list[str | None] = [None] * size
        errors = ["the input is null"] * size
        if inputs := list(self._inputs(batch)):
            report = generate(inputs, requests_per_job=len(inputs), client=self._client, **self._options)
            for answer in report.answers():
                answers[int(answer.id)], errors[int(answer.id)] = self._read(answer)
        return {
            **batch,
            self._output: np.asarray(answers, dtype=object),
            self._error: np.asarray(errors, dtype=object),
        }

    def _inputs(self, batch: dict[str, NDArray[Any]]) -> Iterator[tuple[int, object]]:
        """Yield the inputs without a null, with their position as id."""
        columns = [batch[name].tolist() for name in self._columns]
        for index, values in enumerate(zip(*columns, strict=True)):
            if any(value is None for value in values):
                continue
            if self._is_row:
                yield index, dict(zip(self._columns, values, strict=True))
            else:
                (value,) = values
                yield index, value if isinstance(value, str) else [_without_nulls(message) for message in value]

    def _read(self, answer: Answer) -> tuple[str | None, str]:
        """Return the answer and the error of a row."""
        if answer.error is not None:
            return None, answer.error.message
        if self._labels:
            return answer.data, ""
        return to_json(answer.data).decode() if self._schema else answer.text, ""


def _without_nulls(message: dict[str, object]) -> dict[str, object]:
    """Return a message without the nulls that Arrow adds for keys that only other messages have."""
    return {name: value for name, value in message.items() if value is not None}
