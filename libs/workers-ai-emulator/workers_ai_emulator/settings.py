"""Choices of behaviour; change them at any time, on ``emulator.settings`` or by HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Settings:
    """How the emulated service behaves where that is a choice.

    Attributes:
        latency_s: Seconds of work per inference request.
        tokens: API tokens that are accepted; None for any.
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
        v1_native_usage: Whether streams on ``/ai/v1`` carry the trailing native usage event; never seen live
            there.
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
    unsupported_tools: str = "ignore"
    batch_worker: bool = True
    batch_worker_model: str = "@cf/baai/bge-m3"
    v1_native_usage: bool = False
    prefix_cache: bool = True
    reject_on: list[str] = field(
        default_factory=lambda: ["run", "run_shared", "chat_completions", "embeddings", "responses"]
    )
    busy_in_queue: bool = False
    max_body_bytes: int = 10 * 10**6
