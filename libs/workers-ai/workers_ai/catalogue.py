"""Facts about models, as of October 2026. The catalogue informs; it never forbids a model it does not know.

The facts are in ``data/models.json``, taken from https://developers.cloudflare.com/workers-ai/models/ and
https://developers.cloudflare.com/workers-ai/platform/pricing/; a fact that is not known is absent. ``successor`` is our
own suggestion, not the service's.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, Literal

__all__ = ["USD_PER_NEURON", "ModelCard", "known_models", "lookup", "successor"]

USD_PER_NEURON: Final = 0.000011
"""Price of one neuron in USD (https://developers.cloudflare.com/workers-ai/platform/pricing/)."""

TEXTS_PER_REQUEST: Final = 100
"""Cap used for embedding models whose own is not known; the documented cap of the bge family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What is known of one model; None means not known.

    Attributes:
        id: The id that callers use.
        task: Task name of the catalogue, such as ``"Text Generation"``.
        family: Shape of its native reply: ``"native"``, ``"openai"`` or ``"decision"``.
        context_window: Tokens of input and output together.
        max_output_tokens: Tokens of output at most.
        default_max_tokens: Tokens of output when ``max_tokens`` is not set.
        dimensions: Length of its vectors.
        max_input_tokens: Tokens of one text.
        max_items: Texts in one request.
        usd_per_m_in: USD for a million input tokens.
        usd_per_m_out: USD for a million output tokens.
        usd_per_m_cached: USD for a million input tokens read from the prefix cache.
        tools: Calls tools.
        tool_choice: False where ``tool_choice`` is refused.
        json_schema: Takes ``response_format``.
        guided_json: Takes ``guided_json`` on the native route.
        reasoning: Thinks before it answers.
        reasoning_efforts: Values of ``reasoning_effort`` it tells apart.
        default_reasoning_effort: The value used when none is set.
        vision: Takes images.
        batch: Takes the asynchronous queue.
        lora: Takes LoRA adapters.
        paid_only: Needs the Workers Paid plan.
        requests_per_minute: Documented limit per account.
        retired_on: ISO date of its withdrawal.
        successor: A current model to use instead.
    """

    id: str
    task: str | None = None
    family: Literal["native", "openai", "decision"] | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    default_max_tokens: int | None = None
    dimensions: int | None = None
    max_input_tokens: int | None = None
    max_items: int | None = None
    usd_per_m_in: float | None = None
    usd_per_m_out: float | None = None
    usd_per_m_cached: float | None = None
    tools: bool | None = None
    tool_choice: bool | None = None
    json_schema: bool | None = None
    guided_json: bool | None = None
    reasoning: bool | None = None
    reasoning_efforts: tuple[str, ...] | None = None
    default_reasoning_effort: str | None = None
    vision: bool | None = None
    batch: bool | None = None
    lora: bool | None = None
    paid_only: bool | None = None
    requests_per_minute: int | None = None
    retired_on: str | None = None
    successor: str | None = None

    def cost_usd(self, input_tokens: int, output_tokens: int = 0, cached_tokens: int = 0) -> float | None:
        """List price of these tokens in USD; None where no price is known."""
        if self.usd_per_m_in is None:
            return None
        cached_price = self.usd_per_m_in if self.usd_per_m_cached is None else self.usd_per_m_cached
        paid = (input_tokens - cached_tokens) * self.usd_per_m_in + cached_tokens * cached_price
        return (paid + output_tokens * (self.usd_per_m_out or 0.0)) / 1_000_000


@functools.cache
def _facts() -> dict[str, dict[str, Any]]:
    text = resources.files("workers_ai").joinpath("data/models.json").read_text(encoding="utf-8")
    facts: dict[str, dict[str, Any]] = json.loads(text)
    return facts


@functools.lru_cache(maxsize=512)
def lookup(model: str) -> ModelCard:
    """The card of ``model``; an empty one for a model that is not in the catalogue."""
    facts = dict(_facts().get(model, {}))
    if efforts := facts.get("reasoning_efforts"):
        facts["reasoning_efforts"] = tuple(efforts)
    return ModelCard(id=model, **facts)


def known_models(task: str | None = None) -> list[ModelCard]:
    """All cards, or those of one task, in the order of the catalogue."""
    return [lookup(model) for model, facts in _facts().items() if task is None or facts.get("task") == task]


def successor(model: str) -> str | None:
    """A current model to use instead of a retired one; None where the catalogue names none."""
    return lookup(model).successor
