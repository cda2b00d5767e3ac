"""Generation for callers: :func:`generate` and :func:`agenerate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workers_ai._settings.settings import CLIENT_KEYWORDS, mask_secrets, reject_settings
from workers_ai.client import AsyncClient, Client
from workers_ai.generation._options import Options
from workers_ai.generation._report import GenerateReport, answer_of
from workers_ai.ledger._run import Run, arun, run

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence

    from workers_ai.generation._report import Answer
    from workers_ai.ledger._engine import Mode
    from workers_ai.ledger._progress import Bar
    from workers_ai.types import JSON

__all__ = ["agenerate", "generate"]


class _Summary:
    """Builds the report of a run, and passes new answers to ``on_answer``."""

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
            self._options.on_answer(answer_of(row, self._options.output))

    def complete(self, ended: Run) -> None:
        """Count answers while the ledger is open."""
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


def generate(
    source: Iterable[Any],
    *,
    ledger: str | os.PathLike[str],
    model: str,
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
    mode: Mode = "queue",
    requests_per_job: int | None = None,
    limit_cost_usd: float | None = None,
    expected_output_tokens: int | None = None,
    deadline_s: float | None = None,
    repair: int = 1,
    dedupe: bool = True,
    wait: bool = True,
    on_answer: Callable[[Answer], object] | None = None,
    raise_on_failure: bool = False,
    progress: bool | Bar = True,
    total: int | None = None,
    take_over: bool = False,
    client: Client | None = None,
    **settings: Any,
) -> GenerateReport:
    """Answer a corpus of any size, in bounded memory, so that nothing is paid for twice.

    ::

        report = generate(rows, ledger="labels.ledger", model="@cf/qwen/qwen3-30b-a3b-fp8", prompt="Classify: {text}",
                          labels=["bug", "question"], max_tokens=512)
        for answer in report.answers(): ...

    Everything is recorded in the ledger, one SQLite file on a local disk. After a kill at any point, the same call
    continues: it collects what was submitted, and sends what is missing. Failed inputs are sent again by the next call,
    answers never. Several processes may share a ledger. A kill can cost one submission twice, the one whose acceptance
    was not on disk yet; with ``mode="direct"``, the requests in flight.

    Args:
        source: Inputs as (id, input); read once, during the run, on the calling thread. An input is a text, a list of
            messages, a mapping for the placeholders of ``prompt``, or a :class:`ChatInput`. A mapping with ``id`` is a
            row by itself. Ids are strings or integers.
        ledger: Path of the ledger; created if it is missing. A ledger that was made with another model, prompt, schema
            or parameter is rejected.
        model: Model id.
        prompt: Template with ``{name}`` placeholders; ``{{`` and ``}}`` stand for braces.
        system: System message.
        schema: The form of the answers: a Pydantic class, a TypedDict, or a JSON schema.
        labels: Labels of which each answer is one; an alternative to ``schema``.
        max_tokens: Tokens of one answer at most.
        temperature: Sampling temperature.
        seed: Seed of the sampling.
        stop: Texts that end an answer.
        reasoning_effort: How much a reasoning model thinks, such as ``"low"``.
        extra_body: Fields added to the body of each request.
        mode: ``"queue"``, or ``"direct"`` for synchronous requests.
        requests_per_job: Inputs of one submission; by default 200, and 1,000 in a run of more than a million inputs.
        limit_cost_usd: USD by list price that this run may spend; needs ``max_tokens``. The run reserves the highest
            price of what is in flight, so that the limit is not exceeded. The next run has the same limit again.
        expected_output_tokens: Used by :func:`estimate` only; accepted here so that both take the same arguments.
        deadline_s: Seconds the run may take; None for no bound.
        repair: Number of retries of an answer that does not match the schema.
        dedupe: Whether equal inputs share one answer. False samples an answer for each id.
        wait: Whether to wait for the results. False submits what the bounds allow, collects what is ready, and returns;
            the same call later collects the rest.
        on_answer: Called with each new :class:`Answer` after it is on disk, in the order of arrival, on a thread of the
            run.
        raise_on_failure: Raise when an input failed, in place of reporting it.
        progress: Show a tqdm bar, or without a terminal a line on stderr every half minute; False shows nothing.
        total: Number of inputs for the bar, if ``source`` has no length.
        take_over: Treat runs of other hosts as dead at once, as for :func:`workers_ai.ingest.ingest`.
        client: A client to use; otherwise one is created from ``settings``. Its ``max_concurrency`` (8) bounds the
            direct requests in flight; a run has up to 64 submissions in the queue.
        **settings: Connection settings, as for :class:`~workers_ai.Client`.

    Returns:
        The report; its ``answers()`` yields an :class:`Answer` for every input.

    Raises:
        ConfigurationError: A setting is invalid, the model has no queue, the prompt does not fit a row, or the ledger
            belongs to another model, prompt, schema or parameter.
        BadRequestError: An item of the source is not an input.
        LedgerError: The ledger cannot be used: it is damaged, or its disk is full.
        BatchTimeoutError: ``deadline_s`` has passed.
        BatchItemError: An input failed, with ``raise_on_failure``.
        WorkersAIError: An error that stops the run, such as :class:`~workers_ai.errors.QuotaExhaustedError`. The ledger
            is ready to go on, and ``request_ids`` lists the submissions still in the queue.
    """
    options = Options(
        ledger, model, prompt, system, schema, labels, max_tokens, temperature, seed, stop, reasoning_effort,
        extra_body, mode, requests_per_job, limit_cost_usd, expected_output_tokens, deadline_s, repair, dedupe, wait,
        on_answer, raise_on_failure, progress, total, take_over,
    )  # fmt: skip
    mask_secrets(settings, CLIENT_KEYWORDS)
    own = client is None
    if client is not None:
        reject_settings("generate", settings)
    client = client or Client(**settings)
    try:
        task, summary = options.task(client._connection), _Summary(options)
        outline = options.outline(source, task, summary.on_stored)
        return summary.report(run(task, source, outline, client._connection, summary.complete))
    finally:
        if own:
            client.close()


async def agenerate(
    source: Iterable[Any] | AsyncIterable[Any],
    *,
    ledger: str | os.PathLike[str],
    model: str,
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
    mode: Mode = "queue",
    requests_per_job: int | None = None,
    limit_cost_usd: float | None = None,
    expected_output_tokens: int | None = None,
    deadline_s: float | None = None,
    repair: int = 1,
    dedupe: bool = True,
    wait: bool = True,
    on_answer: Callable[[Answer], object] | None = None,
    raise_on_failure: bool = False,
    progress: bool | Bar = True,
    total: int | None = None,
    take_over: bool = False,
    client: AsyncClient | None = None,
    **settings: Any,
) -> GenerateReport:
    """:func:`generate` without blocking the event loop; also accepts asynchronous iterables.

    The ledger, and an iterable that is not asynchronous, are used in threads.
    """
    import anyio

    options = Options(
        ledger, model, prompt, system, schema, labels, max_tokens, temperature, seed, stop, reasoning_effort,
        extra_body, mode, requests_per_job, limit_cost_usd, expected_output_tokens, deadline_s, repair, dedupe, wait,
        on_answer, raise_on_failure, progress, total, take_over,
    )  # fmt: skip
    mask_secrets(settings, CLIENT_KEYWORDS)
    own = client is None
    if client is not None:
        reject_settings("agenerate", settings)
    client = client or AsyncClient(**settings)
    try:
        task, summary = options.task(client._connection), _Summary(options)
        outline = options.outline(source, task, summary.on_stored)
        return summary.report(await arun(task, source, outline, client._connection, summary.complete))
    finally:
        if own:
            with anyio.CancelScope(shield=True):
                await client.aclose()
