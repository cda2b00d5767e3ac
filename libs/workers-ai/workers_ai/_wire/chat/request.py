"""From a chat call to the request of its route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from workers_ai._validation import require_kind
from workers_ai._wire.chat.messages import known_call_ids, prepare_messages
from workers_ai._wire.chat.responses_route import responses_body
from workers_ai._wire.chat.schemas import (
    bare_schema,
    inline_refs,
    prepare_response_format,
    prepare_tool_choice,
    prepare_tools,
)
from workers_ai._wire.params import CHAT_PARAMS, RUN_ONLY_PARAMS
from workers_ai._wire.quirks import choose_form
from workers_ai._wire.request import ReplyContext, Request
from workers_ai.catalogue import ModelCard, lookup
from workers_ai.errors import BadRequestError, ConfigurationError
from workers_ai.types import JSON, Api

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CHAT_PARAMS", "RUN_ONLY_PARAMS", "ChatPlan", "plan_chat", "run_request"]

_NULLABLE: Final = frozenset({"reasoning_effort"})
_UNSET_IF_EMPTY: Final = frozenset({"response_format", "stop", "tools", "tool_choice"})


class ChatPlan(NamedTuple):
    """A chat call ready to send: the request, what reading its reply needs, and whether the reply comes as a stream."""

    request: Request
    context: ReplyContext
    stream: bool


def plan_chat(
    model: str,
    messages: Sequence[Mapping[str, JSON]],
    params: Mapping[str, Any],
    *,
    api: Api | None = None,
    stream: bool = False,
    reject_if_busy: bool = False,
    extra_body: Mapping[str, JSON] | None = None,
    headers: Mapping[str, str] | None = None,
) -> ChatPlan:
    """Plan one chat call.

    Args:
        model: Model id.
        messages: OpenAI-shaped messages.
        params: Those of :data:`CHAT_PARAMS` that were set. None counts as not set, save for ``reasoning_effort``.
        api: The route; None chooses ``"run"`` where a parameter exists only there, or where the model takes a schema
            only there; else ``"chat_completions"``.
        stream: Whether a stream is wanted. A JSON schema or JSON mode is answered whole all the same: the service
            refuses the two together (5023).
        reject_if_busy: Fail at once with 3040 instead of waiting in the capacity queue
            (https://developers.cloudflare.com/workers-ai/features/reject-if-busy/).
        extra_body: Fields added to the body as they are; a caller's ``options`` are kept.
        headers: Headers of this call alone.

    Raises:
        BadRequestError: A message cannot be sent.
        ConfigurationError: A parameter does not exist on the chosen route, or is of another type.
    """
    given = {
        k: v
        for k, v in params.items()
        if (v or k not in _UNSET_IF_EMPTY) and (v is not None or k in _NULLABLE) and v != ""
    }
    card = lookup(model)
    require_kind("extra_body", extra_body, Mapping, "a dict of fields of the body")
    api = api or _default_api(given, card)
    _check_route(api, given, model)
    forced = _prepare_params(given, card, api)
    asked = given.keys() | (extra_body or {}).keys()
    json_mode = "response_format" in asked or "guided_json" in asked
    prepared = prepare_messages(messages, card)
    context = ReplyContext(
        model=model,
        known_ids=known_call_ids(messages),
        forced=forced,
        json_mode=json_mode,
        max_tokens=given.get("max_tokens") or card.default_max_tokens,
        thinking_off=_turns_thinking_off({**given, **(extra_body if isinstance(extra_body, Mapping) else {})}),
    )
    stream = stream and api != "responses" and "response_format" not in asked
    body = _body(model, prepared, given, api, stream)
    if extra_body:
        body.update(extra_body)
    if reject_if_busy:
        require_kind("options in extra_body", body.get("options"), Mapping, "a dict")
        body["options"] = {**(body.get("options") or {}), "rejectIfBusy": True}
    if api == "run":
        return ChatPlan(run_request(model, body, task="chat", headers=headers), context, stream)
    path = "v1/responses" if api == "responses" else "v1/chat/completions"
    return ChatPlan(Request(path, body, model, "chat", headers=headers or {}), context, stream)


def _turns_thinking_off(body: Mapping[str, JSON]) -> bool:
    options = body.get("chat_template_kwargs")
    off = isinstance(options, Mapping) and (options.get("enable_thinking") is False or options.get("thinking") is False)
    return off or body.get("reasoning_effort") == "none"


def run_request(
    model: str, body: dict[str, JSON], *, task: str, query: str = "", headers: Mapping[str, str] | None = None
) -> Request:
    """A request on the native route; third-party ``author/model`` ids go over the shared one, through a gateway.

    Source: https://developers.cloudflare.com/ai-gateway/usage/rest-api/.
    """
    if model.startswith(("@cf/", "@hf/")) or "/" not in model:
        return Request(f"run/{model}", body, model, task, query=query, headers=headers or {})
    if model.startswith("dynamic/"):
        raise ConfigurationError(f"{model} is a dynamic route: use api='chat_completions'; the native route has none")
    shared = {"model": model, "input": body}
    if options := body.pop("options", None):
        shared["options"] = options
    return Request("run", shared, model, task, query=query, headers={"cf-aig-gateway-id": "default", **(headers or {})})


def _default_api(given: Mapping[str, Any], card: ModelCard) -> Api:
    """Chat completions, unless something was asked for that exists on the native route alone."""
    if RUN_ONLY_PARAMS & given.keys() or _guides_by_schema(given.get("response_format"), card):
        return "run"
    return "chat_completions"


def _guides_by_schema(response_format: JSON, card: ModelCard) -> bool:
    """Whether a schema for this model has to go out as ``guided_json``."""
    wants_schema = isinstance(response_format, dict) and response_format.get("type") == "json_schema"
    return bool(wants_schema and card.guided_json and not card.json_schema)


def _check_route(api: Api, given: Mapping[str, Any], model: str) -> None:
    if api not in ("chat_completions", "run", "responses"):
        raise ConfigurationError(f"api {api!r} is not one of chat_completions, run, responses")
    if api == "responses" and model.startswith(("@cf/", "@hf/")) and "/gpt-oss-" not in model:
        raise ConfigurationError(
            f"api='responses' is for the gpt-oss models and third-party models, not for {model}: use "
            "api='chat_completions'"
        )
    if api != "run" and (misplaced := sorted(RUN_ONLY_PARAMS & given.keys())):
        raise ConfigurationError(f"{', '.join(misplaced)} exists only on api='run', not on api={api!r}")


def _prepare_params(given: dict[str, Any], card: ModelCard, api: Api) -> dict[str, JSON]:
    """Put parameters into the form of model and route; returns the schemas of the tools that are forced."""
    forced: dict[str, JSON] = {}
    tools = prepare_tools(given.pop("tools", None) or (), card)
    choice = given.pop("tool_choice", None)
    if tools:
        given["tools"] = tools
        if choice is not None:
            sent, forced = prepare_tool_choice(choice, tools)
            sent, kept = choose_form(card.id, sent, tools, card.tool_choice_refused or ())
            given |= {"tools": list(kept), "tool_choice": sent}
            for name in ("tools", "tool_choice"):
                if not given[name]:
                    del given[name]
    else:
        given.pop("parallel_tool_calls", None)
    if isinstance(stop := given.get("stop"), str):
        given["stop"] = [stop]
    if response_format := given.get("response_format"):
        if api == "run" and _guides_by_schema(response_format, card):
            del given["response_format"]
            given["guided_json"] = inline_refs(bare_schema(response_format))
        else:
            given["response_format"] = prepare_response_format(response_format, api)
    return forced


def _body(
    model: str, messages: list[dict[str, JSON]], given: dict[str, Any], api: Api, stream: bool
) -> dict[str, JSON]:
    stream_options = given.pop("stream_options", None)
    if api == "responses":
        return responses_body(model, messages, given)
    body: dict[str, JSON] = {}
    if api == "chat_completions":
        body["model"] = model
    if given.get("raw"):
        body["prompt"] = _raw_prompt(messages, model)
    else:
        body["messages"] = messages
    body.update(given)
    if stream:
        body["stream"] = True
        if api == "chat_completions":
            body["stream_options"] = stream_options or {"include_usage": True}
    return body


def _raw_prompt(messages: Sequence[Mapping[str, JSON]], model: str) -> str:
    """The text of the one message that ``raw=True`` sends without a chat template."""
    if len(messages) != 1 or not isinstance(messages[0]["content"], str):
        raise BadRequestError(
            "raw=True sends one prompt without a chat template: pass a single text message that has the template in it",
            model=model,
        )
    return messages[0]["content"]
