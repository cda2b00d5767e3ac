"""Choices of behaviour; change them at any time, on ``emulator.settings`` or by HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints


@dataclass
class Settings:
    """How the emulated service behaves where that is a choice.

    Attributes:
        latency_s: Seconds of work per inference request.
        tokens: API tokens that are accepted; None for any that does not say of itself that it is wrong ("bad",
            "expired", "fake", "invalid", "revoked" or "wrong" as one of its words).
        refused_tokens: Tokens that are refused, with the code of the refusal: 10000, 9109 or 2009.
        list_refused_tokens: Tokens that may run models but not list them
            (https://github.com/opencodeschool/opencode.school/issues/174).
        accounts: Account ids that exist; None for any well-formed one.
        gateway_token: Token that AI Gateway asks for in ``cf-aig-authorization``; None for an open gateway.
        paid_plan: Whether the account is on the Workers Paid plan; without it some models answer 5035.
        licence_agreed: Whether the account agreed to the terms of llama-3.2-11b-vision; without it, 5016.
        unsupported_tools: What a model without tools does with them: ``ignore`` or ``reject`` (5006).
        batch_worker: Whether a deployed batch Worker answers under ``/batch``.
        batch_worker_model: Model of that Worker when a request names none.
        v1_native_usage: Whether streams on ``/ai/v1`` carry the trailing native usage event.
        v1_padding: Whether events on ``/ai/v1`` carry the padding ``p``.
        v1_usage_unasked: Usage of streams on ``/ai/v1`` without ``stream_options``: ``each`` event, the ``last``
            one or ``none``.
        v1_legacy_chunks: Whether older models stream bare chunks on ``/ai/v1`` (no index, role, finish, usage).
        v1_base64: Whether ``/ai/v1/embeddings`` honours ``encoding_format: "base64"``.
        v1_dimensions: What ``/ai/v1/embeddings`` does with ``dimensions``: ``ignore``, ``cut`` or ``reject``.
        hybrid_tool_calls: Where the hybrid family has its calls: ``both``, ``choices`` or ``top``.
        late_zeros_chance: Chance that a zero usage event follows the native usage event, for models known to
            send it.
        glm_required: What glm-4.7-flash does with ``tool_choice: "required"``: ``reject`` (a probe of autumn 2026) or
            ``accept`` (live tests of summer 2026).
        json_mode_status: HTTP status of "JSON Mode couldn't be met"; 200 sends ``success: false``.
        json_mode_code: Code of the same error; None for no code.
        schema_forms: JSON schemas that are taken: ``both`` forms on each route, or each route's ``own`` form only
            (bare on ``/ai/run``, the named envelope on ``/ai/v1``).
        long_texts: What bge-*-en does with texts above 512 tokens: ``cut`` or ``reject`` (3030).
        too_many_texts_code: Code of the refusal of more texts than a model takes.
        unit_vectors: Whether vectors have unit length.
        rerank_scores: Scores of rerankers: ``sigmoid`` (between 0 and 1) or ``raw``.
        contexts_key: Key of the vectors that bge-m3 returns for ``contexts`` alone.
        responses_stream: What the Responses route does with ``stream: true``: ``reject`` or ``whole``.
        shared_run_gateway: What ``POST /ai/run`` does with an ``@cf/`` model and no gateway header: ``reject`` or
            ``accept``.
        prefix_cache: Whether repeated prompt prefixes of one ``x-session-affinity`` are counted as cached.
        reject_on: Routes that honour ``options.rejectIfBusy``; only the first two are documented.
        busy_in_queue: Whether a full service also refuses submissions to the queue.
        max_body_bytes: Largest request body; the documented figure is 10 MB, and only for the queue.
    """

    latency_s: float = 0.0
    tokens: list[str] | None = None
    refused_tokens: dict[str, int] = field(default_factory=lambda: {"bad-token": 10000, "invalid-token": 9109})
    list_refused_tokens: list[str] = field(default_factory=list)
    accounts: list[str] | None = None
    gateway_token: str | None = None
    paid_plan: bool = True
    licence_agreed: bool = True
    unsupported_tools: Literal["ignore", "reject"] = "ignore"
    batch_worker: bool = True
    batch_worker_model: str = "@cf/baai/bge-m3"
    v1_native_usage: bool = False
    v1_padding: bool = True
    v1_usage_unasked: Literal["each", "last", "none"] = "each"
    v1_legacy_chunks: bool = False
    v1_base64: bool = False
    v1_dimensions: Literal["ignore", "cut", "reject"] = "ignore"
    hybrid_tool_calls: Literal["both", "choices", "top"] = "both"
    late_zeros_chance: float = 0.5
    glm_required: Literal["reject", "accept"] = "reject"
    json_mode_status: int = 400
    json_mode_code: int | None = 5024
    schema_forms: Literal["both", "own"] = "both"
    long_texts: Literal["cut", "reject"] = "cut"
    too_many_texts_code: int = 5006
    unit_vectors: bool = True
    rerank_scores: Literal["sigmoid", "raw"] = "sigmoid"
    contexts_key: Literal["response", "data"] = "response"
    responses_stream: Literal["reject", "whole"] = "reject"
    shared_run_gateway: Literal["reject", "accept"] = "reject"
    prefix_cache: bool = True
    reject_on: list[str] = field(
        default_factory=lambda: ["run", "run_shared", "chat_completions", "embeddings", "responses"]
    )
    busy_in_queue: bool = False
    max_body_bytes: int = 10 * 10**6

    def __post_init__(self) -> None:
        check_choices(self)


def check_choices(settings: Any) -> None:
    """Refuse a value that is not one of its field's choices.

    Raises:
        ValueError: If a field of literals holds something else.
    """
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise ValueError(f"unknown {name} {value!r}; choose one of {list(get_args(hint))}")
