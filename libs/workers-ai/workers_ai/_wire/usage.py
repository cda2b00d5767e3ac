"""Read the usage of whole and streamed replies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeVar

from workers_ai._wire.json_types import JSON
from workers_ai.types import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["UsageMeter", "add_usage", "finite", "read_usage", "sum_usage"]

_N = TypeVar("_N", int, float)
_USUAL: Final = range(2**53)
"""Possible counts. A larger number is an error of the service, and does not fit a ledger."""


def finite(value: JSON) -> float | None:
    """Return a finite number as a float; None for any other value."""
    if type(value) is float:  # most often
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _count(value: JSON) -> int:
    if type(value) is int and value in _USUAL:
        return value
    # int() of the value itself: a float cannot hold every int.
    return int(value) if isinstance(value, (int, float)) and 0 < (finite(value) or 0) < _USUAL.stop else 0


def _neurons(raw: Mapping[str, JSON]) -> float | None:
    neurons = finite(raw.get("neurons"))
    return neurons if neurons is not None and neurons >= 0 else None


def _detail(raw: Mapping[str, JSON], groups: tuple[str, str], key: str) -> int | None:
    for group in groups:
        if group in raw and isinstance(details := raw[group], dict) and isinstance(count := details.get(key), int):
            return _count(count)
    return None


def read_usage(raw: JSON, neurons_header: str | None = None) -> Usage | None:
    """Read a usage record with the names of OpenAI or of the Responses route.

    Without a record, return only the neurons of the header; None if the header is missing, too.
    """
    if not isinstance(raw, dict):
        neurons = _float(neurons_header or "")
        return None if neurons is None else Usage(neurons=neurons)
    input_tokens = _count(raw.get("prompt_tokens", raw.get("input_tokens")))
    output_tokens = _count(raw.get("completion_tokens", raw.get("output_tokens")))
    neurons = _neurons(raw)
    if neurons is None and neurons_header:
        neurons = _float(neurons_header)
    return Usage(
        input_tokens,
        output_tokens,
        _count(raw.get("total_tokens")) or input_tokens + output_tokens,
        _detail(raw, ("prompt_tokens_details", "input_tokens_details"), "cached_tokens"),
        _detail(raw, ("completion_tokens_details", "output_tokens_details"), "reasoning_tokens"),
        neurons,
    )


def _float(text: str) -> float | None:
    try:
        return finite(float(text))
    except ValueError:
        return None


def _plus(a: _N | None, b: _N | None) -> _N | None:
    return b if a is None else a if b is None else a + b


def add_usage(a: Usage | None, b: Usage | None) -> Usage | None:
    """Return the sum of two records; None adds nothing."""
    if a is None or b is None:
        return a or b
    return Usage(
        a.input_tokens + b.input_tokens,
        a.output_tokens + b.output_tokens,
        a.total_tokens + b.total_tokens,
        _plus(a.cached_tokens, b.cached_tokens),
        _plus(a.reasoning_tokens, b.reasoning_tokens),
        _plus(a.neurons, b.neurons),
    )


def sum_usage(records: Iterable[Usage | None]) -> Usage | None:
    """Return the sum of any number of records; None adds nothing."""
    columns = list(zip(*(record for record in records if record is not None), strict=True))
    if not columns:
        return None
    input_tokens, output_tokens, total_tokens, *optional = columns
    known = [[value for value in column if value is not None] for column in optional]
    cached, reasoning, neurons = (sum(values) if values else None for values in known)
    return Usage(sum(input_tokens), sum(output_tokens), sum(total_tokens), cached, reasoning, neurons)


class UsageMeter:
    """Compute the usage of a stream from the records of its events, in any order.

    - Totals include the prompt. Older models send a total with every event, others one at the end. The largest is used.
    - Newer models send increments: only the first record includes the prompt. They are summed, unless a total follows.

    A record without tokens is ignored.
    """

    __slots__ = ("_increments", "_neurons", "_output", "_prompted", "_prompted_neurons", "_reasoning", "_totals")

    def __init__(self) -> None:
        self._prompted_neurons: float | None = None
        self._prompted: Usage | None = None
        self._totals = False
        self._increments = 0
        self._output = 0
        self._reasoning: int | None = None
        self._neurons: float | None = None

    def add(self, raw: Mapping[str, JSON]) -> None:
        """Add the usage record of one event.

        Called for every event. Most records are increments, so they are added without reading the whole record.
        """
        prompt = raw["prompt_tokens"] if "prompt_tokens" in raw else raw.get("input_tokens")
        if prompt and _count(prompt):
            self._add_prompted(read_usage(raw))
            return
        tokens = raw["completion_tokens"] if "completion_tokens" in raw else raw.get("output_tokens")
        if tokens and (tokens := 1 if tokens == 1 and type(tokens) is int else _count(tokens)):
            self._output += tokens
            self._increments += 1
        if (neurons := _neurons(raw)) is not None:
            self._neurons = (self._neurons or 0.0) + neurons
        if raw.get("completion_tokens_details"):
            self._reasoning = _plus(
                self._reasoning,
                _detail(raw, ("completion_tokens_details", "output_tokens_details"), "reasoning_tokens"),
            )

    def _add_prompted(self, usage: Usage | None) -> None:
        if usage is None:
            return
        old = self._prompted
        self._totals = self._totals or old is not None or self._increments > 0
        if usage.neurons is not None:
            self._prompted_neurons = usage.neurons
        if old is None or usage.total_tokens >= old.total_tokens:
            self._prompted = usage if old is None else _with_details(usage, old)

    def total(self, neurons_header: str | None = None) -> Usage | None:
        """Return the usage of the whole stream; None if no event had a record.

        Args:
            neurons_header: The ``cf-ai-neurons`` header, used if no record has neurons.
        """
        usage = self._sum()
        if usage is None:
            return read_usage(None, neurons_header)
        if usage.neurons is not None:
            return usage
        neurons = _plus(self._prompted_neurons, self._neurons)
        return usage._replace(neurons=_float(neurons_header or "") if neurons is None else neurons)

    def _sum(self) -> Usage | None:
        if self._totals:
            return self._prompted
        if self._prompted is None and not self._output and self._neurons is None:
            return None
        increments = Usage(
            output_tokens=self._output,
            total_tokens=self._output,
            reasoning_tokens=self._reasoning,
            neurons=self._neurons,
        )
        return add_usage(self._prompted, increments)


def _with_details(usage: Usage, earlier: Usage) -> Usage:
    """Return ``usage`` with missing details filled from an earlier record of the stream."""
    return usage._replace(
        cached_tokens=earlier.cached_tokens if usage.cached_tokens is None else usage.cached_tokens,
        reasoning_tokens=earlier.reasoning_tokens if usage.reasoning_tokens is None else usage.reasoning_tokens,
    )
