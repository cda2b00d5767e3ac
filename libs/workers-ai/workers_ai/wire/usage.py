"""Reading usage, whole and streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai.wire.types import JSON, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["UsageMeter", "add_usage", "read_usage"]


def _count(value: JSON) -> int:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def _detail(raw: Mapping[str, JSON], groups: tuple[str, str], key: str) -> int | None:
    for group in groups:
        details = raw.get(group)
        if isinstance(details, dict) and isinstance(details.get(key), int):
            return _count(details[key])
    return None


def read_usage(raw: JSON, neurons_header: str | None = None) -> Usage | None:
    """Read a usage record of either naming; None where there is none."""
    if not isinstance(raw, dict):
        return None
    given = _count(raw.get("prompt_tokens", raw.get("input_tokens")))
    made = _count(raw.get("completion_tokens", raw.get("output_tokens")))
    neurons = raw.get("neurons")
    if not isinstance(neurons, (int, float)) and neurons_header:
        neurons = _float(neurons_header)
    return Usage(
        input_tokens=given,
        output_tokens=made,
        total_tokens=_count(raw.get("total_tokens")) or given + made,
        cached_tokens=_detail(raw, ("prompt_tokens_details", "input_tokens_details"), "cached_tokens"),
        reasoning_tokens=_detail(raw, ("completion_tokens_details", "output_tokens_details"), "reasoning_tokens"),
        neurons=neurons if isinstance(neurons, (int, float)) else None,
    )


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _plus(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else a + b


def _plus_int(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


def add_usage(a: Usage | None, b: Usage | None) -> Usage | None:
    """Add two records; None counts as nothing."""
    if a is None or b is None:
        return a or b
    return Usage(
        a.input_tokens + b.input_tokens,
        a.output_tokens + b.output_tokens,
        a.total_tokens + b.total_tokens,
        _plus_int(a.cached_tokens, b.cached_tokens),
        _plus_int(a.reasoning_tokens, b.reasoning_tokens),
        _plus(a.neurons, b.neurons),
    )


class UsageMeter:
    """Finds the usage of a stream, whichever of the shapes on the wire it has.

    - An event without ``choices`` (the native closing chunk) counts for the whole stream: the last one wins.
    - Running totals, as older models send them: every record has the prompt in it; the largest wins.
    - Increments, as newer models send them: only one record, at the beginning, has the prompt in it; they are summed.
    """

    __slots__ = ("_closing", "_largest", "_last_has_prompt", "_sum", "_with_prompt")

    def __init__(self) -> None:
        self._closing: Usage | None = None
        self._largest: Usage | None = None
        self._sum: Usage | None = None
        self._with_prompt = 0
        self._last_has_prompt = False

    def add(self, raw: Mapping[str, JSON], *, closing: bool) -> None:
        """Take the usage record of one event; ``closing`` for an event without ``choices``."""
        usage = read_usage(raw)
        if usage is None:
            return
        if closing:
            self._closing = usage
            return
        if self._largest is None or usage.total_tokens >= self._largest.total_tokens:
            self._largest = usage
        self._sum = add_usage(self._sum, usage)
        self._last_has_prompt = usage.input_tokens > 0
        self._with_prompt += self._last_has_prompt

    def total(self) -> Usage | None:
        """Usage of the whole stream; None where no event had any."""
        if self._closing is not None:
            return self._closing
        running = self._last_has_prompt or self._with_prompt > 1
        return self._largest if running else self._sum
