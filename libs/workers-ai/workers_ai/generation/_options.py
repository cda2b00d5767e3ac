"""Options of a generation, checked."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypedDict

from workers_ai._validation import check_model, require, require_int, require_kind, require_one_of
from workers_ai._wire.json_writing import plain_json
from workers_ai.catalogue import lookup
from workers_ai.client import ClientArguments
from workers_ai.errors import ConfigurationError
from workers_ai.generation._inputs import PromptTemplate, Renderer, check_fields
from workers_ai.generation._output import OutputFormat
from workers_ai.generation._task import GenerateTask
from workers_ai.ledger._records import Limits, check_mode
from workers_ai.ledger._run import Outline, shown, total_of
from workers_ai.ledger._store.fingerprints import ChatFingerprint

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from workers_ai._connection import Connection
    from workers_ai.generation._report import Answer
    from workers_ai.ledger._engine import Mode
    from workers_ai.ledger._progress import Bar
    from workers_ai.ledger._run import Run
    from workers_ai.types import JSON

__all__ = ["EstimateOptions", "GenerateKeywords", "GenerateOptions", "Options", "RunOptions", "SamplingOptions"]

_PER_JOB: Final = 200
_PER_LARGE_JOB: Final = 1_000
_SHORT_DEFAULT: Final = 256


class SamplingOptions(TypedDict, total=False):
    """Parameters of the model. :func:`workers_ai.generation.generate` describes them."""

    max_tokens: int | None
    temperature: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    reasoning_effort: str | None
    extra_body: Mapping[str, JSON] | None


class _PlanOptions(TypedDict, total=False):
    mode: Mode
    requests_per_job: int | None
    expected_output_tokens: int | None
    dedupe: bool


class RunOptions(_PlanOptions, total=False):
    """Options of a run that do not change the form of the answers."""

    limit_cost_usd: float | None
    deadline_s: float | None
    repair: int
    progress: bool | Bar
    take_over: bool


class EstimateOptions(SamplingOptions, _PlanOptions, total=False):
    """Options of :func:`workers_ai.generation.estimate`."""

    prompt: str | None
    system: str | None
    schema: object
    labels: Sequence[str] | None


class GenerateOptions(EstimateOptions, RunOptions, total=False):
    """All options of :func:`workers_ai.generation.generate`, which describes them."""

    wait: bool
    on_answer: Callable[[Answer], object] | None
    raise_on_failure: bool
    total: int | None


class GenerateKeywords(GenerateOptions, ClientArguments, total=False):
    """Keywords of :func:`workers_ai.generation.generate`: its options, and arguments of :class:`~workers_ai.Client`."""


def _is_async(call: Callable[[Answer], object]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)


@dataclass(frozen=True)
class Options:
    """Checked arguments of :func:`workers_ai.generation.generate` that are not connection settings."""

    ledger: str | os.PathLike[str]
    model: str
    prompt: str | None = None
    system: str | None = None
    schema: object = None
    labels: Sequence[str] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    reasoning_effort: str | None = None
    extra_body: Mapping[str, JSON] | None = None
    mode: Mode = "queue"
    requests_per_job: int | None = None
    limit_cost_usd: float | None = None
    expected_output_tokens: int | None = None
    deadline_s: float | None = None
    repair: int = 1
    dedupe: bool = True
    wait: bool = True
    on_answer: Callable[[Answer], object] | None = None
    raise_on_failure: bool = False
    progress: bool | Bar = True
    total: int | None = None
    take_over: bool = False
    output: OutputFormat = field(init=False)

    def __post_init__(self) -> None:
        check_model(self.model)
        object.__setattr__(self, "output", OutputFormat(self.schema, self.labels))
        self._check_parameters()
        self._check_sampling()
        _ = self.renderer, self.fingerprint, self.limits  # their constructors check the arguments
        self._check_model()
        self._check_numbers()

    def _check_model(self) -> None:
        card = lookup(self.model)
        if card.retired_on is not None:
            better = card.successor or "another model"
            raise ConfigurationError(f"{self.model} was retired on {card.retired_on}: use {better}")
        check_mode(self.model, self.mode)

    def _check_numbers(self) -> None:
        card = lookup(self.model)
        require_int("max_tokens", self.max_tokens, 1, card.max_output_tokens)
        require_int("total", self.total, 0, None)
        require_int("seed", self.seed, -(2**63), 2**63)
        require_int("expected_output_tokens", self.expected_output_tokens, 0, None)
        require_int("repair", self.repair, 0, 10)
        for name in ("dedupe", "wait", "raise_on_failure"):
            require_one_of(name, getattr(self, name), (True, False))
        require(
            self.on_answer is None or (callable(self.on_answer) and not _is_async(self.on_answer)),
            "on_answer must be a function of one answer, not a coroutine function: it is called on a thread of the run",
        )
        if self.max_tokens is None and not self.output.is_text and card.default_max_tokens == _SHORT_DEFAULT:
            raise ConfigurationError(
                f"set max_tokens: {self.model} stops after {_SHORT_DEFAULT} tokens by default, which truncates JSON",
                arguments=("max_tokens",),
            )
        if self.limit_cost_usd is not None:
            if card.usd_per_m_in is None:
                raise ConfigurationError(
                    f"limit_cost_usd requires a price, but the price of {self.model} is unknown: remove limit_cost_usd",
                    arguments=("limit_cost_usd",),
                )
            if self.max_tokens is None:
                raise ConfigurationError(
                    "limit_cost_usd requires max_tokens, which bounds the cost of an answer: set both",
                    arguments=("limit_cost_usd", "max_tokens"),
                )

    def _check_sampling(self) -> None:
        require(
            self.temperature is None
            or (isinstance(self.temperature, (int, float)) and 0 <= self.temperature < math.inf),
            f"temperature must be a number, 0 or more, not {self.temperature!r:.200}",
        )
        require_kind("reasoning_effort", self.reasoning_effort, str, 'a text such as "low"')
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        is_list = isinstance(stop, Sequence) and all(isinstance(text, str) and text for text in stop)
        require(stop is None or is_list, f"stop must be a text or a list of texts, not {self.stop!r:.200}")

    def _check_parameters(self) -> None:
        require_kind("extra_body", self.extra_body, Mapping, "a dict of body fields")
        extra = self.extra_body or {}
        try:
            json.dumps(dict(extra), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as exc:
            raise ConfigurationError(f"extra_body cannot be written as JSON: {exc}") from None
        check_fields(extra, "extra_body", is_text=self.output.is_text)

    @cached_property
    def renderer(self) -> Renderer:
        """Renderer of items of the source."""
        require_kind("system", self.system, str, "a text")
        template = None if self.prompt is None else PromptTemplate(self.prompt)
        most = lookup(self.model).max_output_tokens
        return Renderer(template, self.system, self.dedupe, self.output.is_text, most)

    @cached_property
    def params(self) -> dict[str, JSON]:
        """Chat parameters of all requests."""
        names = ("max_tokens", "temperature", "seed", "reasoning_effort")
        params = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.stop is not None:
            params["stop"] = [self.stop] if isinstance(self.stop, str) else list(self.stop)
        return params

    @cached_property
    def fingerprint(self) -> ChatFingerprint:
        """Options that change the answers."""
        params = dict(self.params)
        if self.extra_body:
            params["extra_body"] = dict(self.extra_body)
        if not self.dedupe:
            params["dedupe"] = False
        schema = None if self.labels is not None else self.output.schema
        plain: dict[str, Any] = json.loads(plain_json({"schema": schema, "params": params}))
        labels = None if self.output.labels is None else list(self.output.labels)
        return ChatFingerprint(self.model, self.prompt, self.system, plain["schema"], labels, plain["params"])

    @cached_property
    def limits(self) -> Limits:
        """Bounds of the run."""
        return Limits(
            _PER_JOB if self.requests_per_job is None else self.requests_per_job,
            "requests_per_job",
            deadline_s=self.deadline_s,
            cost_usd=self.limit_cost_usd,
            grown=_PER_LARGE_JOB if self.requests_per_job is None else None,
        )

    def task(self, connection: Connection | None) -> GenerateTask:
        """Return the task of the engine."""
        if connection is not None and connection.settings.batch_worker:
            raise ConfigurationError("batch_worker= is set, but a batch Worker only embeds texts: omit it")
        return GenerateTask(
            self.model, self.renderer, self.output, self.params, self.extra_body, self.repair, self.mode, connection
        )

    def outline(
        self, source: object, task: GenerateTask, on_stored: Callable[[Run, list[int]], None] | None
    ) -> Outline:
        """Return the options of the run."""
        total = total_of(source, self.total)
        return Outline(
            self.ledger, self.fingerprint, self.mode, self.limits, shown(self.progress, total, task), total, self.wait,
            take_over=self.take_over, raise_on_failure=self.raise_on_failure, on_stored=on_stored,
        )  # fmt: skip
