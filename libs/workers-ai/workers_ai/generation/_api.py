"""Generation for callers: :func:`generate` and :func:`agenerate`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING

from workers_ai.errors import ConfigurationError
from workers_ai.generation._options import GenerateOptions, Options
from workers_ai.generation._report import GenerateReport, answer_of
from workers_ai.ledger._keywords import async_client, split_keywords, sync_client, with_signature
from workers_ai.ledger._run import Run, arun, run

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterable, Callable, Iterable
    from typing import Unpack

    from workers_ai.client import AsyncClient, Client
    from workers_ai.generation._options import GenerateKeywords

__all__ = ["agenerate", "generate"]


class _Summary:
    """Build the report of a run, and pass new answers to ``on_answer``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._invalid = self._truncated = 0

    @property
    def on_stored(self) -> Callable[[Run, list[int]], None] | None:
        """Callback for new answers, or None."""
        return None if self._options.on_answer is None else self._pass_on

    def _pass_on(self, current: Run, ids: list[int]) -> None:
        assert self._options.on_answer is not None
        for row in current.ledger.new_answers(current.number, ids):
            returned = self._options.on_answer(answer_of(row, self._options.output))
            if isinstance(returned, Coroutine):
                returned.close()
                raise ConfigurationError(
                    "on_answer returned a coroutine, which is never awaited: pass a function that is not async; the "
                    "answers are in the ledger"
                )

    def complete(self, ended: Run) -> None:
        """Count invalid and truncated answers while the ledger is open."""
        self._invalid, self._truncated = ended.ledger.answer_counts(ended.number)

    def report(self, ended: Run) -> GenerateReport:
        """Return the report."""
        tally = ended.tally
        return GenerateReport(
            model=tally.model,
            answered=tally.done,
            reused=tally.reused,
            failed=tally.failed,
            failures=ended.failures,
            invalid=self._invalid,
            truncated=self._truncated,
            retries=tally.retries,
            input_tokens=tally.tokens,
            output_tokens=tally.output_tokens,
            neurons=tally.neurons,
            cost_usd=tally.cost_usd,
            seconds=ended.seconds,
            pending=ended.pending,
            request_ids=ended.request_ids,
            ledger=ended.ledger.path,
            run=ended.number,
            duplicate_ids=ended.duplicate_ids,
            output=self._options.output,
        )


@with_signature(GenerateOptions, Options, settings=True)
def generate(
    source: Iterable[object],
    *,
    ledger: str | os.PathLike[str],
    model: str,
    client: Client | None = None,
    **keywords: Unpack[GenerateKeywords],
) -> GenerateReport:
    """Answer a corpus of any size, in bounded memory, and pay for no answer twice.

    ::

        report = generate(rows, ledger="labels.ledger", model="@cf/qwen/qwen3-30b-a3b-fp8", prompt="Classify: {text}",
                          labels=["bug", "question"], max_tokens=512)
        for answer in report.answers(): ...

    Everything is recorded in the ledger, one SQLite file on a local disk. After a kill at any point, the same call
    continues: it collects what was submitted, and sends what is missing. Failed inputs are sent again by the next call,
    answers never. Several processes may share a ledger. After a kill, at most one submission is paid for twice: one
    that was accepted but not yet recorded. With ``mode="direct"``, the requests in flight may be paid for twice.

    Args:
        source: Inputs as (id, input); read once, during the run, on the calling thread. An input is a text, a list of
            messages, a mapping for the placeholders of ``prompt``, or a :class:`ChatInput`. A mapping with ``id`` is a
            row by itself. Ids are strings or integers. A blank text, and a row whose values for ``prompt`` are all
            blank, fail and are not sent.
        ledger: Path of the ledger; created if it is missing. A ledger of another model, prompt, schema or
            parameter is rejected.
        model: Model id.
        prompt: Template with ``{name}`` placeholders; write ``{{`` and ``}}`` for literal braces.
        system: System message, for inputs without one of their own.
        schema: The form of the answers: a Pydantic class, a TypedDict, or a JSON schema.
        labels: Labels, an alternative to ``schema``. Each answer is one of them.
        max_tokens: Maximum tokens of one answer.
        temperature: Sampling temperature.
        seed: Seed of the sampling.
        stop: Texts that end an answer.
        reasoning_effort: Effort of a reasoning model, such as ``"low"``.
        extra_body: Fields added to the body of each request.
        mode: ``"queue"``, or ``"direct"`` for synchronous requests.
        requests_per_job: Maximum inputs of one submission; by default 200, and 1,000 in a run of more than a million
            inputs.
        limit_cost_usd: Maximum USD by list price that this run may spend; requires ``max_tokens``. The run reserves the
            highest price of the requests in flight, so that it stays below the limit. Each run has its own limit.
        expected_output_tokens: Used by :func:`estimate` only; accepted here so that both functions have the same
            options.
        deadline_s: Maximum seconds of the run; None for no bound.
        repair: Number of retries of an answer that does not match the schema.
        dedupe: Whether equal inputs share one answer. False samples an answer for each id.
        wait: Whether to wait for the results. False submits what the bounds allow, collects what is ready, and returns;
            the same call later collects the rest.
        on_answer: Called with each new :class:`Answer` after it is on disk, in the order of arrival, on a thread of the
            run. An error that it raises ends the run; the answers stay in the ledger.
        raise_on_failure: Raise :class:`~workers_ai.errors.BatchItemError` if an input failed.
        progress: Show a tqdm bar, or without a terminal a line on stderr every half minute; False shows nothing.
        total: Number of inputs for the bar, if ``source`` has no length.
        take_over: Treat runs of other hosts as dead at once, as for :func:`workers_ai.ingest.ingest`.
        client: A client to use; otherwise one is created from the other keywords. Its ``max_concurrency`` (8) bounds
            the direct requests in flight; a run has up to 64 submissions in the queue.
        **keywords: The options above, and arguments of :class:`~workers_ai.Client`.

    Returns:
        The report; its ``answers()`` yields an :class:`Answer` for every input.

    Raises:
        ConfigurationError: A setting is invalid, the model has no queue, a row has no value for the prompt, or the
            ledger belongs to another model, prompt, schema or parameter.
        BadRequestError: An item of the source is not an input.
        LedgerError: The ledger cannot be used: it is damaged, or its disk is full.
        BatchTimeoutError: ``deadline_s`` has passed.
        BatchItemError: An input failed, with ``raise_on_failure``.
        WorkersAIError: An error that stops the run, such as :class:`~workers_ai.errors.QuotaExhaustedError`. The same
            call continues later; ``request_ids`` lists the submissions still in the queue.
    """
    chosen, settings = split_keywords(keywords, GenerateOptions, "generate")
    options = Options(ledger, model, **chosen)
    with sync_client("generate", client, settings) as used:
        task, summary = options.task(used._connection), _Summary(options)
        outline = options.outline(source, task, summary.on_stored)
        return summary.report(run(task, source, outline, used._connection, summary.complete))


@with_signature(GenerateOptions, Options, settings=True)
async def agenerate(
    source: Iterable[object] | AsyncIterable[object],
    *,
    ledger: str | os.PathLike[str],
    model: str,
    client: AsyncClient | None = None,
    **keywords: Unpack[GenerateKeywords],
) -> GenerateReport:
    """:func:`generate` without blocking the event loop; also accepts asynchronous iterables.

    The ledger, and an iterable that is not asynchronous, are used in threads.
    """
    chosen, settings = split_keywords(keywords, GenerateOptions, "agenerate")
    options = Options(ledger, model, **chosen)
    async with async_client("agenerate", client, settings) as used:
        task, summary = options.task(used._connection), _Summary(options)
        outline = options.outline(source, task, summary.on_stored)
        return summary.report(await arun(task, source, outline, used._connection, summary.complete))
