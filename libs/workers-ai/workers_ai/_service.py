"""The service: settings, transport and flows, and how calls are cut into requests. What both clients stand on."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from workers_ai._calls.per_call import PER_CALL, override
from workers_ai._calls.requests import Calls, check_texts
from workers_ai._calls.streaming import ChatStream, open_chat
from workers_ai._limits.limiter import Gate, limiter_for
from workers_ai._settings.settings import DEADLINE_S, MAX_CONCURRENCY, check_clients, session_headers
from workers_ai._transports.http import HttpTransport
from workers_ai._validation import check_model, require_int, require_kind, require_one_of, unknown_keyword
from workers_ai._wire.chat.request import CHAT_PARAMS, ChatPlan, plan_chat
from workers_ai._wire.usage import add_usage
from workers_ai._wire.vectors import CONTEXTS_PER_REQUEST, EmbedOptions, check_embed_options, require_one_length
from workers_ai.catalogue import TEXTS_PER_REQUEST, lookup
from workers_ai.errors import BadRequestError
from workers_ai.retry import RetryEvent, RetryPolicy
from workers_ai.types import EmbedReply, RerankScore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import httpx

    from workers_ai._calls.queue import BatchFlows
    from workers_ai._calls.queued_embeddings import QueueMode
    from workers_ai._flow.steps import Flow
    from workers_ai._settings.settings import Settings
    from workers_ai._transports.batch_worker import BatchWorkerTransport
    from workers_ai._transports.binding import BindingTransport
    from workers_ai.types import JSON, Api

__all__ = ["Service", "join_embeddings", "join_rankings"]

_PLANNED: Final = frozenset({"session_id", "extra_body"})

AUTO_ROUTER: Final = "cloudflare/auto"
"""The model with which AI Gateway chooses one for each request."""


class Service:
    """Settings, transport and flows behind both faces. Pickles and copies without open connections.

    Args:
        settings: Checked settings.
        http_client: The user's own ``httpx.Client``, or None.
        http_async_client: The user's own ``httpx.AsyncClient``, or None.
        binding: The ``env.AI`` of a Python Worker in place of HTTP, or None.
        retry: When to try again; the default follows ``settings.max_retries``.
        on_retry: Called before each wait with a :class:`~workers_ai.retry.RetryEvent`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        http_client: httpx.Client | None = None,
        http_async_client: httpx.AsyncClient | None = None,
        binding: Any = None,
        retry: RetryPolicy | None = None,
        on_retry: Callable[[RetryEvent], None] | None = None,
    ) -> None:
        check_clients(http_client, http_async_client)
        self.settings = settings
        self.transport = _transport(settings, http_client, http_async_client, binding)
        self._retry = retry
        self._on_retry = on_retry
        self.calls = self._make_calls()

    def _make_calls(self) -> Calls:
        settings = self.settings
        policy = self._retry or RetryPolicy(max_retries=settings.max_retries)
        limit = settings.max_concurrency
        return Calls(
            settings,
            limiter_for(settings.base_url, settings.account_id),
            policy,
            self._on_retry,
            gate=Gate(limit) if limit else None,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**{key: value for key, value in self.__dict__.items() if key != "calls"}, "_on_retry": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.calls = self._make_calls()

    def through(self, transport: Any) -> Service:
        """Return the same service with another transport."""
        twin = copy(self)
        twin.transport = transport
        twin.calls = replace(self.calls, paced=hasattr(transport, "take_turn"))
        return twin

    def __copy__(self) -> Service:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Service:
        twin = copy(self)
        twin.transport = copy(self.transport)
        twin.calls = self._make_calls()
        return twin

    def for_call(self, options: Mapping[str, Any], *, planned: bool = False) -> tuple[Service, dict[str, Any]]:
        """Return the service of one call, and the options that are left.

        Connections and limits are shared; the settings in :class:`~workers_ai.CallKeywords` are replaced.

        Args:
            options: Options of the call.
            planned: Whether :meth:`plan` reads ``session_id`` and ``extra_body`` itself.

        Raises:
            ConfigurationError: A setting of the call is malformed.
        """
        names = PER_CALL & options.keys()
        if planned:
            names -= _PLANNED
        if not names:
            return self, dict(options)
        given = {name: options[name] for name in names}
        twin = copy(self)
        twin.settings, overrides = override(self.settings, given)
        policy = self.calls.policy
        if given.get("max_retries") is not None:
            policy = replace(policy, max_retries=twin.settings.max_retries)
        twin.calls = replace(self.calls, settings=twin.settings, policy=policy, overrides=overrides)
        return twin, {name: value for name, value in options.items() if name not in names}

    @property
    def queue(self) -> BatchFlows:
        """The flows of the asynchronous queue."""
        from workers_ai._calls.queue import BatchFlows

        return BatchFlows(self.calls)

    @property
    def concurrency(self) -> int:
        """Requests in flight of one fan-out."""
        return self.settings.max_concurrency or MAX_CONCURRENCY

    def plan(
        self,
        model: str,
        messages: Sequence[Mapping[str, JSON]],
        *,
        stream: bool,
        api: Api | None = None,
        session_id: str | None = None,
        extra_body: Mapping[str, JSON] | None = None,
        **params: Any,
    ) -> ChatPlan:
        """Plan a chat call; arguments are those of :meth:`Client.chat`."""
        if unknown := params.keys() - CHAT_PARAMS:
            raise unknown_keyword("a chat call", min(unknown), CHAT_PARAMS | PER_CALL, "extra_body")
        if self.settings.through_binding and api in (None, "chat_completions"):
            api = "run"  # a binding has no other route for chat
        try:
            return plan_chat(
                check_model(model),
                messages,
                params,
                api=api,
                stream=stream,
                reject_if_busy=self.settings.on_busy != "wait",
                extra_body=extra_body,
                headers=self._session_headers(model, session_id),
            )
        except RecursionError:
            raise BadRequestError(
                "messages, tools or schema are nested too deep, or hold themselves", model=model
            ) from None

    def _session_headers(self, model: str, session_id: str | None) -> dict[str, str]:
        """Headers of a session; the Auto Router keeps to one model through it.

        Source: https://developers.cloudflare.com/ai-gateway/features/auto-router/.
        """
        if model == AUTO_ROUTER and (affinity := session_headers(session_id or self.settings.session_id)):
            return {**affinity, "cf-aig-session-id": affinity["x-session-affinity"]}
        return session_headers(session_id)

    def open_chat(self, plan: ChatPlan) -> Flow[ChatStream]:
        """Begin a streamed answer."""
        return open_chat(self.calls.begun(), plan)

    def embeddings(
        self,
        model: str,
        texts: Sequence[str],
        *,
        kind: Literal["document", "query"] = "document",
        batch_size: int | None = None,
        empty_text: Literal["raise", "space"] = "raise",
        queue: QueueMode = "never",
        deadline_s: float | None = DEADLINE_S,
        **options: Any,
    ) -> list[Flow[EmbedReply]]:
        """Cut texts into requests of at most the model's cap; arguments are those of :meth:`Client.embed`."""
        checked = check_texts(texts, empty_text, check_model(model))
        require_int("batch_size", batch_size, 1, None)
        require_one_of("kind", kind, ("document", "query"))
        require_one_of("empty_text", empty_text, ("raise", "space"))
        require_one_of("queue", queue, ("never", "overflow", "always"))
        if unknown := options.keys() - set(EmbedOptions._fields):
            raise unknown_keyword("an embedding call", min(unknown), PER_CALL | {*EmbedOptions._fields}, "extra_body")
        cap = lookup(model).max_items or TEXTS_PER_REQUEST
        size = min(batch_size or cap, cap)
        shape = EmbedOptions(**options)
        require_one_of("pooling", shape.pooling, (None, "mean", "cls"))
        require_kind("query_instruction", shape.query_instruction, str, "text")
        check_embed_options(model, shape, queued=queue != "never")
        if queue != "never" and kind == "document":
            return self._queued(model, checked, shape, size, queue, deadline_s)
        calls = self.calls.begun()
        return [
            calls.embed(model, checked[first : first + size], shape, kind=kind, first=first)
            for first in range(0, len(checked), size)
        ]

    def _queued(
        self,
        model: str,
        texts: list[str],
        options: EmbedOptions,
        size: int,
        queue: QueueMode,
        deadline_s: float | None,
    ) -> list[Flow[EmbedReply]]:
        """Flows that embed through the queue, or directly as long as there is capacity."""
        from workers_ai._calls.queue import require_queue
        from workers_ai._calls.queued_embeddings import embed_queued, embed_with_overflow

        require_queue(model)
        batch = self.queue
        if queue == "always":
            return [embed_queued(batch, model, texts, options, deadline_s=deadline_s)] if texts else []
        return [
            embed_with_overflow(batch, model, texts[first : first + size], options, first=first, deadline_s=deadline_s)
            for first in range(0, len(texts), size)
        ]

    def rankings(
        self, model: str, query: str, texts: Sequence[str], top_n: int | None, **options: Any
    ) -> list[Flow[list[RerankScore]]]:
        """Cut texts into rerank requests; none where nothing is asked for."""
        check_model(model)
        if options:
            raise unknown_keyword("a rerank call", min(options), PER_CALL | {"top_n"}, "extra_body")
        require_int("top_n", top_n, 0, None)
        texts = check_texts(texts, "space", model)
        if top_n == 0:
            return []
        size = CONTEXTS_PER_REQUEST
        parts = [texts[first : first + size] for first in range(0, len(texts), size)]
        calls = self.calls.begun()
        return [
            calls.rerank(model, query, part, len(part) if top_n is None else min(top_n, len(part))) for part in parts
        ]


def _transport(
    settings: Settings, http_client: httpx.Client | None, http_async_client: httpx.AsyncClient | None, binding: Any
) -> HttpTransport | BatchWorkerTransport | BindingTransport:
    if binding is not None:
        from workers_ai._transports.binding import BindingTransport

        return BindingTransport(settings, binding)
    if settings.batch_worker:
        from workers_ai._transports.batch_worker import BatchWorkerTransport

        return BatchWorkerTransport(settings, http_client, http_async_client)
    return HttpTransport(settings, http_client, http_async_client)


def join_embeddings(model: str, replies: list[EmbedReply]) -> EmbedReply:
    """One reply out of those of several requests. Empties the list, so that no vector is held twice."""
    vectors: list[list[float]] = []
    usage, pooling = None, None
    for reply in replies:
        vectors += reply.vectors
        usage = add_usage(usage, reply.usage)
        pooling = reply.pooling
        reply.vectors.clear()
    require_one_length(vectors, model)
    return EmbedReply(vectors, model, usage, pooling)


def join_rankings(rankings: list[list[RerankScore]], top_n: int | None) -> list[RerankScore]:
    """The best of several requests, indexes counted over the whole list."""
    merged = [
        RerankScore(score.index + part * CONTEXTS_PER_REQUEST, score.score)
        for part, scores in enumerate(rankings)
        for score in scores
    ]
    return sorted(merged, key=lambda score: -score.score)[:top_n]
