"""Settings of the service. They can be changed at any time, on ``emulator.settings`` or over HTTP."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Literal, get_args, get_origin, get_type_hints


@dataclass
class Settings:
    """Settings of the emulated service.

    Attributes:
        latency_s: Seconds that each inference request takes.
        tokens: Accepted API tokens; None accepts all except those with the word "bad", "expired", "fake", "invalid",
            "revoked" or "wrong".
        refused_tokens: Rejected tokens, with their error code: 10000, 9109 or 2009.
        list_refused_tokens: Tokens that may run models but not list them
            (https://github.com/opencodeschool/opencode.school/issues/174).
        account_tokens: Tokens that an account owns. They are verified at ``/accounts/{account}/tokens/verify``, other
            tokens at ``/user/tokens/verify`` (https://github.com/benvinegar/counterscale/pull/268).
        unpermitted_tokens: Active tokens without the permission Workers AI. They return 10000 on each route of the
            account.
        accounts: Known account ids; None accepts all well-formed ids.
        gateway_token: Token that AI Gateway requires in ``cf-aig-authorization``; None for no token.
        paid_plan: Whether the account has the Workers Paid plan. Otherwise paid models return 5035.
        licence_agreed: Whether the account accepted the terms of llama-3.2-11b-vision. Otherwise it returns 5016.
        unsupported_tools: Effect of tools on a model without tool support: ``ignore`` or ``reject`` (5006).
        batch_worker: Whether a deployed batch Worker answers under ``/batch``.
        batch_worker_model: Model of that Worker for requests without ``model``.
        v1_native_usage: Whether streams on ``/ai/v1`` end with the native usage event.
        v1_padding: Whether events on ``/ai/v1`` have the padding ``p``.
        v1_usage_unasked: Usage in streams on ``/ai/v1`` without ``stream_options``: on ``each`` event, on the ``last``
            event or on ``none``.
        v1_legacy_chunks: Whether older models stream bare chunks on ``/ai/v1`` (no index, role, finish, usage).
        v1_base64: Whether ``/ai/v1/embeddings`` honours ``encoding_format: "base64"``.
        v1_dimensions: Effect of ``dimensions`` on ``/ai/v1/embeddings``: ``ignore``, ``cut`` or ``reject``.
        hybrid_tool_calls: Place of tool calls in the hybrid family: ``both``, ``choices`` or ``top``.
        late_zeros_chance: Probability of a zero usage event after the native usage event, for models that were
            recorded with it.
        glm_required: Effect of ``tool_choice: "required"`` on glm-4.7-flash: ``reject`` (a probe of autumn 2026) or
            ``accept`` (live tests of summer 2026).
        json_mode_status: HTTP status of "JSON Mode couldn't be met"; 200 sends ``success: false``.
        json_mode_code: Code of "JSON Mode couldn't be met"; None for no code.
        schema_forms: Accepted forms of JSON schemas: ``both`` forms on each route, or only the ``own`` form of a route
            (bare on ``/ai/run``, the named envelope on ``/ai/v1``).
        long_texts: Effect of texts above 512 tokens on bge-*-en: ``cut`` or ``reject`` (3030).
        too_many_texts_code: Error code for too many texts in one request.
        unit_vectors: Whether vectors have unit length.
        rerank_scores: Scores of rerankers: ``sigmoid`` (between 0 and 1) or ``raw``.
        contexts_key: Key of the vectors that bge-m3 returns for ``contexts`` without ``query``.
        responses_stream: Effect of ``stream: true`` on the Responses route: ``reject`` or ``whole``.
        shared_run_gateway: Effect of an ``@cf/`` model without the gateway header on ``POST /ai/run``: ``reject``
            or ``accept``.
        prefix_cache: Whether repeated prompt prefixes of one ``x-session-affinity`` are counted as cached.
        reject_on: Routes that honour ``options.rejectIfBusy``. Only the first two are documented.
        busy_in_queue: Whether a service at capacity also rejects submissions to the queue.
        max_body_bytes: Maximum size of a request body. Documented: 10 MB, for the queue only.
    """

    latency_s: float = 0.0
    tokens: list[str] | None = None
    refused_tokens: dict[str, int] = field(default_factory=lambda: {"bad-token": 10000, "invalid-token": 9109})
    list_refused_tokens: list[str] = field(default_factory=list)
    account_tokens: list[str] = field(default_factory=list)
    unpermitted_tokens: list[str] = field(default_factory=list)
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


def check_choices(settings: object) -> None:
    """Check all fields that have a fixed set of values.

    Raises:
        ValueError: If a ``Literal`` field has another value.
    """
    kind: type = settings.__class__
    for name, choices in _choices(kind).items():
        value = getattr(settings, name)
        if value not in choices:
            raise ValueError(f"unknown {name} {value!r}; choose one of {list(choices)}")


@functools.cache
def _choices(kind: type) -> dict[str, tuple[object, ...]]:
    """Return the choices of the ``Literal`` fields of a class. Cached, because the evaluation takes a millisecond."""
    return {name: get_args(hint) for name, hint in get_type_hints(kind).items() if get_origin(hint) is Literal}
