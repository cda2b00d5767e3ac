"""A chat call: its plan, and the flow of a whole answer. Streams are in :mod:`workers_ai._calls.streaming`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from workers_ai._calls.per_call import PER_CALL
from workers_ai._settings.settings import session_headers
from workers_ai._validation import check_model, unknown_keyword
from workers_ai._wire.chat.reply import read_chat
from workers_ai._wire.chat.request import ChatPlan, chat_form
from workers_ai._wire.chat.stream import read_chat_events
from workers_ai._wire.params import CHAT_PARAMS
from workers_ai._wire.quirks import repair_request
from workers_ai.errors import BadRequestError
from workers_ai.types import ChatReply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from workers_ai._calls.requests import Calls, Reply
    from workers_ai._flow.steps import Flow
    from workers_ai._settings.settings import Settings
    from workers_ai._wire.json_types import JSON
    from workers_ai._wire.params import ChatKeywords
    from workers_ai._wire.request import Request
    from workers_ai.errors import WorkersAIError

__all__ = ["AUTO_ROUTER", "PLANNED", "chat", "exchange_chat", "plan_call"]

AUTO_ROUTER: Final = "cloudflare/auto"
"""Model id that lets AI Gateway choose a model for each request."""

PLANNED: Final = frozenset({"session_id", "extra_body"})
"""Settings of a call that its plan applies."""


def plan_call(
    settings: Settings,
    model: str,
    messages: Sequence[Mapping[str, JSON]],
    options: ChatKeywords,
    *,
    stream: bool,
) -> ChatPlan:
    """Check a chat call and return its plan.

    Args:
        settings: The settings of the call.
        model: Model id.
        messages: OpenAI-shaped messages.
        options: Parameters of the call, with :data:`PLANNED`.
        stream: Whether to stream the answer.

    Raises:
        BadRequestError: A message cannot be sent.
        ConfigurationError: A parameter is unknown or malformed, or the model id is malformed.
    """
    api = options.get("api")
    params = {name: value for name, value in options.items() if name not in ("api", *PLANNED)}
    if unknown := params.keys() - CHAT_PARAMS:
        raise unknown_keyword("a chat call", min(unknown), CHAT_PARAMS | PER_CALL, "extra_body")
    if api in (None, "chat_completions") and settings._through_binding:
        api = "run"  # the only chat route of a binding
    try:
        form = chat_form(
            check_model(model),
            cast("dict[str, JSON]", params),
            api=api,
            stream=stream,
            reject_if_busy=settings.on_busy != "wait",
            extra_body=options.get("extra_body"),
            headers=_session_headers(settings, model, options.get("session_id")),
        )
        return form.plan(messages)
    except RecursionError:
        raise BadRequestError(
            "messages, tools or schema are nested too deep, or contain themselves: pass flatter values", model=model
        ) from None


def _session_headers(settings: Settings, model: str, session_id: str | None) -> dict[str, str]:
    """Return the headers of a session. For the Auto Router, add the header that keeps its choice of the model.

    Source: https://developers.cloudflare.com/ai-gateway/features/auto-router/.
    """
    if model == AUTO_ROUTER and (affinity := session_headers(session_id or settings.session_id)):
        return {**affinity, "cf-aig-session-id": affinity["x-session-affinity"]}
    return session_headers(session_id)


def exchange_chat(
    calls: Calls,
    request: Request,
    *,
    stream: bool = False,
    begin: Callable[[Reply], Flow[WorkersAIError | None]] | None = None,
) -> Flow[Reply]:
    """Send a chat request. If the model rejects an optional field, drop the field and send again."""
    rejected: set[str] = set()
    while True:
        try:
            return (yield from calls.exchange(request, stream=stream, begin=begin, reads_events=True))
        except BadRequestError as exc:
            repaired = repair_request(request, exc, rejected)
            if repaired is None:
                raise
            request = repaired


def chat(calls: Calls, plan: ChatPlan) -> Flow[ChatReply]:
    """Send a chat request and return the whole answer."""
    reply = yield from exchange_chat(calls, plan.request)
    if isinstance(reply.data, bytes):
        return calls.read(read_chat_events, reply.data, plan.context, reply.headers, calls.settings._scrub)
    return calls.read(read_chat, reply.data, plan.context, reply.headers)
