"""Create the request of a chat call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

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
from workers_ai._wire.json_types import JSON
from workers_ai._wire.params import RUN_ONLY_PARAMS
from workers_ai._wire.quirks import accepts_null_effort, choose_form, turns_thinking_off
from workers_ai._wire.request import ReplyContext, Request
from workers_ai.catalogue import ModelCard, lookup
from workers_ai.errors import BadRequestError, ConfigurationError
from workers_ai.types import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ChatForm", "ChatPlan", "chat_form", "run_request"]


_UNSET_IF_EMPTY: Final = frozenset({"response_format", "stop", "tools", "tool_choice"})


class ChatPlan(NamedTuple):
    """A chat call that is ready to be sent.

    Attributes:
        request: The request.
        context: Facts of the request that the reader of the reply needs.
        stream: Whether the reply is a stream.
    """

    request: Request
    context: ReplyContext
    stream: bool


class ChatForm(NamedTuple):
    """The part of a chat request that does not depend on its messages. Requests of a corpus share it.

    Attributes:
        card: Facts about the model.
        api: The route.
        params: Parameters in the form of model and route.
        added: Fields that follow the parameters in the body, unchanged.
        headers: Headers of the request.
        context: Facts of the request that the reader of the reply needs, without the ids of earlier tool calls.
        stream: Whether the reply is a stream.
    """

    card: ModelCard
    api: Api
    params: Mapping[str, JSON]
    added: Mapping[str, JSON]
    headers: Mapping[str, str]
    context: ReplyContext
    stream: bool

    def plan(self, messages: Sequence[Mapping[str, JSON]]) -> ChatPlan:
        """Create the request for some messages.

        Raises:
            BadRequestError: A message is invalid.
        """
        model = self.card.id
        body = self._body(prepare_messages(messages, self.card))
        body.update(self.added)
        known_ids = known_call_ids(messages)
        context = self.context._replace(known_ids=known_ids) if known_ids else self.context
        if self.api == "run":
            return ChatPlan(run_request(model, body, task="chat", headers=self.headers), context, self.stream)
        path = "v1/responses" if self.api == "responses" else "v1/chat/completions"
        return ChatPlan(Request(path, body, model, "chat", headers=self.headers), context, self.stream)

    def _body(self, messages: list[dict[str, JSON]]) -> dict[str, JSON]:
        model = self.card.id
        if self.api == "responses":
            return responses_body(model, messages, self.params)
        body: dict[str, JSON] = {"model": model} if self.api == "chat_completions" else {}
        if self.params.get("raw"):
            body["prompt"] = _raw_prompt(messages, model)
        else:
            body["messages"] = messages
        body.update(self.params)
        return body


def chat_form(
    model: str,
    params: Mapping[str, JSON],
    *,
    api: Api | None = None,
    stream: bool = False,
    reject_if_busy: bool = False,
    extra_body: Mapping[str, JSON] | None = None,
    headers: Mapping[str, str] | None = None,
) -> ChatForm:
    """Check and convert the parameters of chat requests.

    Args:
        model: Model id.
        params: Parameters of :data:`CHAT_PARAMS`. None means not set. A ``reasoning_effort`` of None is sent as null to
            models that accept it.
        api: The route. None chooses ``"run"`` if a parameter exists only there, or if the model accepts a schema only
            there; else ``"chat_completions"``.
        stream: Whether to request a stream. Ignored with a JSON schema or JSON mode: the service rejects a stream of
            either (5023).
        reject_if_busy: Fail at once with 3040 instead of waiting in the capacity queue
            (https://developers.cloudflare.com/workers-ai/features/reject-if-busy/).
        extra_body: Fields to add to the body unchanged.
        headers: Headers of the requests.

    Raises:
        ConfigurationError: A parameter does not exist on the chosen route, or has the wrong type.
    """
    given = {
        k: v
        for k, v in params.items()
        if (v or k not in _UNSET_IF_EMPTY)
        and (v is not None or (k == "reasoning_effort" and accepts_null_effort(model)))
        and v != ""
    }
    card = lookup(model)
    require_kind("extra_body", extra_body, Mapping, "a dict of body fields")
    api = api or _default_api(given, card)
    _check_route(api, given, model)
    forced = _prepare_params(given, card, api)
    fields = {**given, **(extra_body or {})}
    max_tokens = given.get("max_tokens")
    context = ReplyContext(
        model=model,
        forced=forced,
        json_mode="response_format" in fields or "guided_json" in fields,
        max_tokens=max_tokens if isinstance(max_tokens, int) and max_tokens else card.default_max_tokens,
        thinking_off=turns_thinking_off(card, fields),
        tools=_tool_names(fields.get("tools")),
    )
    stream = stream and api != "responses" and "response_format" not in fields
    added: dict[str, JSON] = {"stream": True} if stream else {}
    stream_options = given.pop("stream_options", None)
    if stream and api == "chat_completions":
        added["stream_options"] = stream_options or {"include_usage": True}
    added.update(extra_body or {})
    if reject_if_busy:
        options = fields.get("options")
        require_kind("options in extra_body", options, Mapping, "a dict")
        added["options"] = {**(options if isinstance(options, Mapping) else {}), "rejectIfBusy": True}
    return ChatForm(card, api, given, added, headers or {}, context, stream)


def _tool_names(tools: JSON) -> frozenset[str]:
    """Return the names of tools, nested or flat."""
    entries = (
        [tool.get("function", tool) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    )
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
    return frozenset(name for name in names if isinstance(name, str))


def run_request(
    model: str, body: dict[str, JSON], *, task: str, query: str = "", headers: Mapping[str, str] | None = None
) -> Request:
    """Return a request on the native route. Third-party ``author/model`` ids use the shared route, through a gateway.

    Source: https://developers.cloudflare.com/ai-gateway/usage/rest-api/.
    """
    if model.startswith(("@cf/", "@hf/")) or "/" not in model:
        return Request(f"run/{model}", body, model, task, query=query, headers=headers or {})
    if model.startswith("dynamic/"):
        raise ConfigurationError(
            f"{model} is a dynamic route, which api='run' does not support: use api='chat_completions'"
        )
    shared: dict[str, JSON] = {"model": model, "input": body}
    if options := body.pop("options", None):
        shared["options"] = options
    return Request("run", shared, model, task, query=query, headers={"cf-aig-gateway-id": "default", **(headers or {})})


def _default_api(given: Mapping[str, JSON], card: ModelCard) -> Api:
    """Return the native route if a parameter exists only there, else chat completions."""
    if RUN_ONLY_PARAMS & given.keys() or _guides_by_schema(given.get("response_format"), card):
        return "run"
    return "chat_completions"


def _guides_by_schema(response_format: JSON, card: ModelCard) -> bool:
    """Return whether a schema for this model must be sent as ``guided_json``."""
    wants_schema = isinstance(response_format, dict) and response_format.get("type") == "json_schema"
    return bool(wants_schema and card.guided_json and not card.json_schema)


def _check_route(api: Api, given: Mapping[str, JSON], model: str) -> None:
    if api not in ("chat_completions", "run", "responses"):
        raise ConfigurationError(f"api must be chat_completions, run or responses, not {api!r}")
    if api == "responses" and model.startswith(("@cf/", "@hf/")) and "/gpt-oss-" not in model:
        raise ConfigurationError(
            f"api='responses' exists only for gpt-oss and third-party models, not for {model}: use "
            "api='chat_completions'"
        )
    if api != "run" and (misplaced := sorted(RUN_ONLY_PARAMS & given.keys())):
        raise ConfigurationError(f"{', '.join(misplaced)} exists only on api='run': omit it, or use api='run'")


def _prepare_params(given: dict[str, JSON], card: ModelCard, api: Api) -> dict[str, JSON]:
    """Convert parameters in place for model and route. Return the schemas of forced tools by name."""
    forced: dict[str, JSON] = {}
    tools = prepare_tools(given.pop("tools", None), card)
    choice = given.pop("tool_choice", None)
    if tools:
        given["tools"] = tools
        if choice is not None:
            sent, forced = prepare_tool_choice(choice, tools)
            sent, kept = choose_form(card.id, sent, tools, card.tool_choice_refused or ())
            del given["tools"]
            chosen: dict[str, JSON] = {"tools": list(kept), "tool_choice": sent}
            given |= {name: value for name, value in chosen.items() if value}
    else:
        given.pop("parallel_tool_calls", None)
    if isinstance(stop := given.get("stop"), str):
        given["stop"] = [stop]
    if response_format := given.get("response_format"):
        if api == "run" and isinstance(response_format, dict) and _guides_by_schema(response_format, card):
            del given["response_format"]
            given["guided_json"] = inline_refs(bare_schema(response_format))
        else:
            given["response_format"] = prepare_response_format(response_format, api)
    return forced


def _raw_prompt(messages: Sequence[Mapping[str, JSON]], model: str) -> str:
    """Return the text of the only message, which ``raw=True`` sends without a chat template."""
    content = messages[0]["content"] if len(messages) == 1 else None
    if not isinstance(content, str):
        raise BadRequestError(
            "raw=True sends one prompt without a chat template: pass a single text message that includes the template",
            model=model,
        )
    return content
