"""Estimate the requests and the cost of a generation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from workers_ai._limits.limiter import REQUESTS_PER_MINUTE
from workers_ai.catalogue import lookup
from workers_ai.generation._options import EstimateOptions, Options
from workers_ai.ledger._keywords import check_keywords, with_signature
from workers_ai.ledger._ledger import existing_ledger
from workers_ai.ledger._packing import Packer
from workers_ai.ledger._records import JOBS_IN_FLIGHT, LARGE_RUN, QUEUE_MINUTES
from workers_ai.ledger._report_text import estimate_html, estimate_text
from workers_ai.ledger._source import iter_source

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from typing import Unpack

__all__ = ["GenerateEstimate", "estimate"]

_USUAL_ANSWER: Final = 512
"""Assumed tokens of an answer without ``max_tokens``: models end before the maximum of the catalogue."""


@dataclass(frozen=True)
class GenerateEstimate:
    """Estimated requests and cost of a generation.

    Attributes:
        model: Model id.
        inputs: Inputs of the source.
        requests: Number of inputs without an answer in the ledger; equal inputs count once.
        submissions: Submissions to the queue; 0 for direct requests.
        unsendable: Distinct inputs that cannot be sent.
        input_tokens: Estimated input tokens.
        output_tokens: Expected output tokens.
        neurons: Neurons by list price; None without a price.
        cost_usd: Expected cost in USD by list price, without the free allocation; None without a price.
        max_cost_usd: The cost if every answer has ``max_tokens``, without repairs; None without a price or a bound.
        minutes: Approximate duration.
    """

    model: str
    inputs: int
    requests: int
    submissions: int
    unsendable: int
    input_tokens: int
    output_tokens: int
    neurons: float | None
    cost_usd: float | None
    max_cost_usd: float | None
    minutes: float

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON-compatible values."""
        return asdict(self)

    def _facts(self) -> list[tuple[str, str]]:
        def usd(cost: float | None) -> str:
            return "unknown" if cost is None else f"${cost:.6f}"

        facts = [
            ("inputs", f"{self.inputs:,}"),
            ("requests", f"{self.requests:,}"),
            ("submissions", f"{self.submissions:,}"),
            ("tokens in", f"{self.input_tokens:,} (estimated)"),
            ("tokens out", f"{self.output_tokens:,} (expected)"),
            ("neurons", "unknown" if self.neurons is None else f"{self.neurons:,.1f}"),
            ("cost", f"{usd(self.cost_usd)} expected, {usd(self.max_cost_usd)} at most"),
            ("minutes", f"{self.minutes:,.1f}"),
        ]
        if self.unsendable:
            facts.append(("unsendable", f"{self.unsendable:,} inputs are empty or too long"))
        return facts

    def __str__(self) -> str:
        return estimate_text(self.model, self._facts())

    def _repr_html_(self) -> str:
        return estimate_html(self.model, self._facts())


@with_signature(EstimateOptions, Options)
def estimate(
    source: Iterable[object],
    *,
    model: str,
    ledger: str | os.PathLike[str] | None = None,
    **options: Unpack[EstimateOptions],
) -> GenerateEstimate:
    """Estimate what :func:`generate` would send and cost. Read the source, but send nothing.

    Input tokens are estimated as a quarter of the bytes. A job in the queue is assumed to last five minutes; direct
    requests are sent at the documented limit per minute.

    Args:
        source: Inputs, as for :func:`generate`. Their distinct hashes are kept in memory: 100 MB for a million.
        model: Model id.
        ledger: A ledger whose answers are reused; may not exist yet.
        **options: ``prompt``, ``system``, ``schema``, ``labels``, ``max_tokens``, ``temperature``, ``seed``, ``stop``,
            ``reasoning_effort``, ``extra_body``, ``mode``, ``requests_per_job`` and ``dedupe``, as for
            :func:`generate`; and ``expected_output_tokens``, tokens of an average answer, by default half of
            ``max_tokens``; without both, 512 at most.

    Raises:
        ConfigurationError: An argument is invalid, or the ledger belongs to another model, prompt, schema or parameter.
        BadRequestError: An item of the source is not an input.
    """
    chosen = Options(ledger or "", model, **check_keywords(options, EstimateOptions, "estimate"))
    task = chosen.task(None)
    seen: set[bytes] = set()
    inputs = unsendable = tokens = made = most = unbounded = 0
    sizes: list[tuple[int, int]] = []
    with existing_ledger(ledger, chosen.fingerprint) as held:
        for document in map(task.document, iter_source(source)):
            inputs += 1
            if document.key in seen or (held is not None and held.find_answers([document.key])[0] is not None):
                continue
            seen.add(document.key)
            size, expected, _, why, bound = task.measure(document.text)
            if why is not None:
                unsendable += 1
                continue
            tokens += expected
            usual, at_most = _answer_tokens(bound, chosen)
            made += usual
            most += at_most
            unbounded += not at_most
            sizes.append((size, expected))
    card = lookup(model)
    cost = card.cost_usd(tokens, made)
    submissions = _submissions(sizes, chosen, inputs) if chosen.mode == "queue" else 0
    minutes = len(sizes) / (card.requests_per_minute or REQUESTS_PER_MINUTE["chat"])
    if chosen.mode == "queue":
        minutes = -(-submissions // JOBS_IN_FLIGHT) * QUEUE_MINUTES
    return GenerateEstimate(
        model=model,
        inputs=inputs,
        requests=len(sizes),
        submissions=submissions,
        unsendable=unsendable,
        input_tokens=tokens,
        output_tokens=made,
        neurons=task.neurons(_usage(tokens, made)),
        cost_usd=cost,
        max_cost_usd=None if unbounded else card.cost_usd(tokens, most),
        minutes=minutes,
    )


def _answer_tokens(bound: int, options: Options) -> tuple[int, int]:
    """Return the expected and the maximum tokens of an answer; 0 for an unknown maximum.

    Args:
        bound: ``max_tokens`` of the request; 0 without it.
        options: The options of the generation.
    """
    card = lookup(options.model)
    most = bound or card.default_max_tokens or card.max_output_tokens or 0
    usual = most // 2 or _USUAL_ANSWER
    if options.expected_output_tokens is not None:
        return options.expected_output_tokens, most
    return (usual if bound else min(usual, _USUAL_ANSWER)), most


def _usage(tokens: int, made: int) -> Any:
    from workers_ai.types import Usage

    return Usage(tokens, made, tokens + made)


def _submissions(sizes: Sequence[tuple[int, int]], options: Options, inputs: int) -> int:
    """Count the submissions, packed like claims."""
    limits = options.limits
    per_job = limits.grown if limits.grown is not None and inputs > LARGE_RUN else limits.per_job
    new_packer = partial(Packer, per_job, limits.max_bytes, None, None)
    packer, count = None, 0
    for size, tokens in sizes:
        if packer is None or packer.add(size, tokens, 1) == "full":
            packer = new_packer()
            packer.add(size, tokens, 1)
            count += 1
    return count
