"""Facts about models, as of October 2026. Models that are not in the catalogue work, too.

The facts are in ``data/models.json``, taken from https://developers.cloudflare.com/workers-ai/models/ and
https://developers.cloudflare.com/workers-ai/platform/pricing/; an unknown fact is absent. ``successor`` is a
suggestion of this package, not of the service.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any, Final, Literal

from workers_ai._html import fact_table

__all__ = ["USD_PER_NEURON", "ModelCard", "known_models", "lookup", "successor"]

USD_PER_NEURON: Final = 0.000011
"""Price of one neuron in USD (https://developers.cloudflare.com/workers-ai/platform/pricing/)."""

_TEXTS_PER_REQUEST: Final = 100
"""Texts per request for models whose own limit is unknown: the documented limit of the bge family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Facts about one model; None means unknown.

    Attributes:
        id: Model id.
        task: Task name of the catalogue, such as ``"Text Generation"``.
        family: Form of its native reply: ``"native"`` (``response``), ``"openai"`` (``choices``), ``"hybrid"`` (both)
            or ``"decision"``.
        context_window: Maximum tokens of input and output together.
        max_output_tokens: Maximum number of output tokens.
        default_max_tokens: Tokens of output when ``max_tokens`` is not set.
        dimensions: Length of its vectors.
        max_input_tokens: Maximum tokens of one text.
        max_items: Maximum texts in one request.
        usd_per_m_in: USD for a million input tokens.
        usd_per_m_out: USD for a million output tokens.
        usd_per_m_cached: USD for a million input tokens read from the prefix cache.
        usd_per_audio_minute: USD for a minute of audio, input or output.
        usd_per_k_characters: USD for a thousand characters of speech.
        tools: Supports tool calls.
        tool_choice_refused: Forms of ``tool_choice`` that it rejects: any of ``"auto"``, ``"none"``, ``"required"`` and
            ``"named"``.
        prefers_schema: Whether a schema yields structured answers more reliably than a forced tool.
        json_schema: Supports ``response_format``.
        guided_json: Supports ``guided_json`` on the native route.
        reasoning: Reasons before it answers.
        reasoning_efforts: Supported values of ``reasoning_effort``.
        default_reasoning_effort: Value that the model uses if none is set.
        vision: Accepts images.
        audio: Accepts audio.
        video: Accepts video.
        batch: Supports the asynchronous queue.
        lora: Supports LoRA adapters.
        paid_only: Requires the Workers Paid plan.
        requests_per_minute: Documented limit per account.
        retired_on: ISO date of its retirement.
        successor: A current model to use instead.
        alias_of: Model that answers in place of this one and is charged.
    """

    id: str
    task: str | None = None
    family: Literal["native", "openai", "hybrid", "decision"] | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    default_max_tokens: int | None = None
    dimensions: int | None = None
    max_input_tokens: int | None = None
    max_items: int | None = None
    usd_per_m_in: float | None = None
    usd_per_m_out: float | None = None
    usd_per_m_cached: float | None = None
    usd_per_audio_minute: float | None = None
    usd_per_k_characters: float | None = None
    tools: bool | None = None
    tool_choice_refused: tuple[str, ...] | None = None
    prefers_schema: bool | None = None
    json_schema: bool | None = None
    guided_json: bool | None = None
    reasoning: bool | None = None
    reasoning_efforts: tuple[str, ...] | None = None
    default_reasoning_effort: str | None = None
    vision: bool | None = None
    audio: bool | None = None
    video: bool | None = None
    batch: bool | None = None
    lora: bool | None = None
    paid_only: bool | None = None
    requests_per_minute: int | None = None
    retired_on: str | None = None
    successor: str | None = None
    alias_of: str | None = None

    @property
    def texts_per_request(self) -> int:
        """Maximum number of texts in one embedding request: ``max_items``, or 100 if unknown."""
        return self.max_items or _TEXTS_PER_REQUEST

    def cost_usd(
        self,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_tokens: int = 0,
        *,
        audio_minutes: float = 0.0,
        characters: int = 0,
    ) -> float | None:
        """Return the list price in USD of tokens, minutes of audio and characters of speech; None if unknown."""
        cost = audio_minutes * (self.usd_per_audio_minute or 0.0) + characters / 1_000 * (
            self.usd_per_k_characters or 0.0
        )
        if self.usd_per_m_in is None:
            priced = (self.usd_per_audio_minute, self.usd_per_k_characters) != (None, None)
            return cost if priced and not (input_tokens or output_tokens) else None
        cached_price = self.usd_per_m_in if self.usd_per_m_cached is None else self.usd_per_m_cached
        paid = (input_tokens - cached_tokens) * self.usd_per_m_in + cached_tokens * cached_price
        return cost + (paid + output_tokens * (self.usd_per_m_out or 0.0)) / 1_000_000

    def _repr_html_(self) -> str:
        facts = [(one.name, getattr(self, one.name)) for one in fields(self) if one.name != "id"]
        return fact_table(self.id, [(name, _shown(value)) for name, value in facts if value is not None])


def _shown(value: Any) -> str:
    """Return a fact as readable text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


@functools.cache
def _facts() -> dict[str, dict[str, Any]]:
    text = resources.files("workers_ai").joinpath("data/models.json").read_text(encoding="utf-8")
    facts: dict[str, dict[str, Any]] = json.loads(text)
    return facts


@functools.lru_cache(maxsize=512)
def lookup(model: str) -> ModelCard:
    """Return the card of ``model``; a card without facts for a model that is not in the catalogue."""
    own = _facts().get(model, {})
    facts = {**_facts().get(own.get("alias_of", ""), {}), **own}
    for name in ("reasoning_efforts", "tool_choice_refused"):
        if name in facts:
            facts[name] = tuple(facts[name])
    return ModelCard(id=model, **facts)


def known_models(task: str | None = None) -> list[ModelCard]:
    """Return all cards, or the cards of one task, in the order of the catalogue."""
    return [card for card in map(lookup, _facts()) if task is None or card.task == task]


def successor(model: str) -> str | None:
    """Return a current model to use instead of a retired one; None if the catalogue suggests none."""
    return lookup(model).successor
