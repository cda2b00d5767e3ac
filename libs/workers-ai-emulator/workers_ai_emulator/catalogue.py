"""Facts about each model, from the public price list, limits page and model cards.

Sources: https://developers.cloudflare.com/workers-ai/platform/pricing/,
https://developers.cloudflare.com/workers-ai/platform/limits/ and
https://developers.cloudflare.com/workers-ai/models/.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

Family = Literal["native", "openai", "hybrid", "decision", ""]
Engine = Literal["sglang", "vllm"]


@dataclass(frozen=True, slots=True)
class Model:
    """One model of the catalogue.

    Attributes:
        id: Id in requests, such as ``@cf/baai/bge-m3``.
        task: Name of the task in the catalogue.
        family: Shape of a chat result: ``native`` (``result.response``), ``openai`` (a ``chat.completion``
            inside ``result``) or ``hybrid`` (both in one object).
        engine: Inference engine. It sets the extra keys of replies: ``matched_stop`` (sglang) or null keys (vLLM).
        reasoning_keys: Keys of a message that contain the reasoning.
        thinking_switch: Parameter that turns thinking off: ``template`` (``chat_template_kwargs``), ``effort``
            (``reasoning_effort: "none"``) or ``none``.
        answers_in_reasoning: Whether a stream without reasoning has the answer in ``delta.reasoning``.
        late_zeros: Whether a zero usage event may follow the native usage event of a stream.
        served_as: Model name in replies of ``/ai/run``; None for the id.
        served_as_json: Model that answers requests with a JSON schema.
        usage_without_neurons: Whether ``usage`` lacks ``neurons``.
        schema: Generation of the input schema, ``old`` or ``new``.
        tool_calls: Form of native tool calls, ``flat`` or ``nested``.
        json_mode: Empty if structured output works, ``refused`` (5025) or ``ignored`` (the answer is prose).
        context_window: Context window in tokens.
        default_max_tokens: Output tokens if the request sets no limit.
        usd_in_per_m: List price of a million input tokens, in US dollars.
        usd_out_per_m: List price of a million output tokens.
        usd_cached_in_per_m: List price of a million cached input tokens; None if no discount is published.
        dimensions: Length of a vector.
        max_input_tokens: Tokens per text, or per request for bge-m3.
        max_text_tokens: Tokens per text if ``max_input_tokens`` is a limit per request.
        max_items: Texts per request.
        rpm: Requests per minute and account for the model's task, or for the model itself when ``paid_only``.
        batch: Whether the model supports the asynchronous queue.
        responses: Whether the model supports the Responses route.
        retired_on: Date of retirement (ISO).
        alias_of: Model that answers in place of this retired model.
        reasoning_effort: The property ``reasoning_effort`` of the catalogue.
    """

    id: str
    task: str = "Text Generation"
    family: Family = ""
    engine: Engine = "sglang"
    reasoning_keys: tuple[str, ...] = ("reasoning_content",)
    thinking_switch: Literal["template", "effort", "none"] = "template"
    answers_in_reasoning: bool = False
    late_zeros: bool = False
    served_as: str | None = None
    served_as_json: str | None = None
    usage_without_neurons: bool = False
    schema: Literal["old", "new", ""] = ""
    tool_calls: Literal["flat", "nested"] = "flat"
    json_mode: Literal["", "refused", "ignored"] = ""
    context_window: int | None = None
    default_max_tokens: int | None = None
    usd_in_per_m: float = 0.0
    usd_out_per_m: float = 0.0
    usd_cached_in_per_m: float | None = None
    function_calling: bool = False
    batch: bool = False
    reasoning: bool = False
    reasoning_effort: dict[str, Any] | None = None
    vision: bool = False
    lora: bool = False
    dimensions: int | None = None
    max_input_tokens: int | None = None
    max_text_tokens: int | None = None
    max_items: int | None = None
    paid_only: bool = False
    responses: bool = False
    retired_on: str | None = None
    alias_of: str | None = None
    rpm: int | None = None

    @property
    def strings_only(self) -> bool:
        """Return whether ``content`` must be a string (older text-only schemas)."""
        return self.schema == "old" and not self.vision


_ID_WITHOUT_MARK = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.:@-]+)+")
_GATEWAY_AUTHORS = {"google", "openai"}  # they also have models in the catalogue of AI Gateway


def is_third_party(name: str) -> bool:
    """Return whether AI Gateway routes the name: ``author/model``, ``dynamic/route`` or ``cloudflare/auto``.

    False for an id of this catalogue without its ``@``, such as ``cf/baai/bge-m3`` or ``meta/llama-3``: it is unknown.
    """
    if name == "cloudflare/auto":
        return True
    return _ID_WITHOUT_MARK.fullmatch(name) is not None and name.partition("/")[0] not in _catalogue_authors()


@functools.cache
def _catalogue_authors() -> frozenset[str]:
    return frozenset({"cf", "hf", *(model_id.split("/")[1] for model_id in models())}) - _GATEWAY_AUTHORS


def is_chat(name: str) -> bool:
    """Return whether the model answers chat requests; True for unknown models."""
    model = models().get(name)
    return model is None or (model.task == "Text Generation" and model.family != "decision")


@functools.cache
def models() -> dict[str, Model]:
    """Return all models by id, in the order of the catalogue."""
    text = resources.files("workers_ai_emulator").joinpath("models.json").read_text(encoding="utf-8")
    return {row["id"]: Model(**row) for row in json.loads(text)}
