"""Quirks: differences between models in the form of requests, each with its evidence.

Facts about a single model (price, context window, vision) are in the catalogue. A quirk changes or omits a part of the
request.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workers_ai.catalogue import ModelCard, lookup
from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from workers_ai._wire.json_types import JSON
    from workers_ai._wire.request import Request
    from workers_ai.errors import WorkersAIError

__all__ = ["QUIRKS", "Quirk", "accepts_null_effort", "choose_form", "repair_request", "turns_thinking_off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirk:
    """A difference between models in the form of a request.

    Attributes:
        what: What is different in the request.
        evidence: Source: documentation or recording.
        models: Parts of the ids of the models with this quirk.
        families: Families of the catalogue with this quirk.
    """

    what: str
    evidence: str
    models: tuple[str, ...] = ()
    families: tuple[str | None, ...] = ()

    def of(self, card: ModelCard) -> bool:
        """Return whether a model has this quirk."""
        return card.family in self.families or any(name in card.id for name in self.models)


_PUBLISHED: Final = "https://developers.cloudflare.com/workers-ai/models/ (input schema of each model)"

COMPLETE_TOOLS: Final = Quirk(
    what="a tool without a description is sent with its name as description; its parameters are sent with type, "
    "properties and descriptions",
    evidence=f"{_PUBLISHED}; required by the older schema, harmless for unknown models",
    models=("gpt-oss", "qwen3-30b", "sea-lion"),
    families=("native", "hybrid", None),
)
DEVELOPER_IS_SYSTEM: Final = Quirk(
    what="the role developer is sent as system",
    evidence=f"{_PUBLISHED}; the older schema has no role developer",
    families=("native", "hybrid"),
)
NO_REASONING_BACK: Final = Quirk(
    what="reasoning of earlier turns is not sent back",
    evidence=f"{_PUBLISHED}; a message of the older schema has no field for it",
    families=("native", "hybrid"),
)
NO_NULL_EFFORT: Final = Quirk(
    what="a reasoning_effort of None is not sent: the schema has no null",
    evidence=f"{_PUBLISHED}; only the newer schema has null. Not sent to unknown models either",
    models=("gpt-oss", "qwen3-30b", "sea-lion"),
    families=("native", "hybrid", "decision", None),
)
NINE_LETTER_IDS: Final = Quirk(
    what="ids of tool calls are replaced unless they are 9 letters or digits",
    evidence=f"{_PUBLISHED}; pattern [a-zA-Z0-9]{{9}} of mistral-small-3.1 and llama-4-scout",
    models=("mistral", "llama-4"),
)
NO_USER_AFTER_TOOL: Final = Quirk(
    what="a short assistant message is inserted between a tool result and the user message after it",
    evidence="live probes of 2026-09 and 2026-10, one source https://github.com/sane-apps/translations: mistral "
    "rejects a user message straight after a tool message",
    models=("mistral",),
)
TEMPLATE_KEEPS_THINKING: Final = Quirk(
    what="chat_template_kwargs does not turn thinking off: reasoning is not read as the answer",
    evidence="live probes of 2026-09 and 2026-10, one source https://github.com/sane-apps/translations: kimi-k2.6 "
    "stops thinking by reasoning_effort='none' alone, gpt-oss never",
    models=("kimi-k2.5", "kimi-k2.6", "gpt-oss"),
)
EFFORT_KEEPS_THINKING: Final = Quirk(
    what="reasoning_effort='none' does not turn thinking off: reasoning is not read as the answer",
    evidence="live probes of 2026-09 and 2026-10, one source https://github.com/sane-apps/translations: glm-5.3 takes "
    "none, minimal, medium and xhigh as max",
    models=("glm-5.3", "gpt-oss"),
)
RESPONSES_IN_QUEUE: Final = Quirk(
    what="requests in a batch have the form of the Responses route",
    evidence="https://developers.cloudflare.com/workers-ai/models/gpt-oss-120b/; the only form of its schema",
    models=("gpt-oss",),
)
QUERIES_AND_DOCUMENTS: Final = Quirk(
    what="texts are sent as queries or documents, and an instruction as its own field",
    evidence="https://developers.cloudflare.com/workers-ai/models/qwen3-embedding-0.6b/",
    models=("qwen3-embedding",),
)
GUIDED_JSON: Final = Quirk(
    what="a schema is sent as guided_json, on the native route (catalogue: guided_json without json_schema)",
    evidence=f"{_PUBLISHED}; mistral-small-3.1 and llama-4-scout have guided_json, no response_format",
)
TOOL_CHOICE_FORMS: Final = Quirk(
    what="a form of tool_choice that a model rejects is replaced by another (catalogue: tool_choice_refused)",
    evidence="a live probe of 2026-09: glm-4.7-flash rejects 'required' with HTTP 400 and accepts the named form; "
    "https://github.com/cloudflare/ai/issues/404: mistral-small-3.1 accepts tool_choice",
)
SCHEMA_BEFORE_TOOL: Final = Quirk(
    what="a structured answer is requested with a schema, not with a forced tool (catalogue: prefers_schema)",
    evidence="https://github.com/cloudflare/langchain-cloudflare, 0.3.7: tools are unreliable for it on mistral",
)

QUIRKS: Final = (
    COMPLETE_TOOLS,
    DEVELOPER_IS_SYSTEM,
    NO_REASONING_BACK,
    NO_NULL_EFFORT,
    NINE_LETTER_IDS,
    NO_USER_AFTER_TOOL,
    TEMPLATE_KEEPS_THINKING,
    EFFORT_KEEPS_THINKING,
    RESPONSES_IN_QUEUE,
    QUERIES_AND_DOCUMENTS,
    GUIDED_JSON,
    TOOL_CHOICE_FORMS,
    SCHEMA_BEFORE_TOOL,
)
"""All quirks: parameters that are omitted or changed for some models only."""


def accepts_null_effort(model: str) -> bool:
    """Return whether a ``reasoning_effort`` of None is sent to a model as null."""
    return not NO_NULL_EFFORT.of(lookup(model))


def turns_thinking_off(card: ModelCard, body: Mapping[str, JSON]) -> bool:
    """Return whether a request turns the thinking of a model off."""
    if body.get("reasoning_effort") == "none" and not EFFORT_KEEPS_THINKING.of(card):
        return True
    options = body.get("chat_template_kwargs")
    if not isinstance(options, Mapping) or TEMPLATE_KEEPS_THINKING.of(card):
        return False
    return options.get("enable_thinking") is False or options.get("thinking") is False


def choose_form(
    model: str, choice: JSON, tools: Sequence[Mapping[str, JSON]], rejected: Collection[str]
) -> tuple[JSON, Sequence[Mapping[str, JSON]]]:
    """Return ``tool_choice`` in a form that a model accepts, and the tools to send with it.

    If a form is rejected, ``"required"`` becomes the named form if there is one tool; the named form becomes
    ``"required"`` with that tool alone; ``"auto"`` is omitted, since it is the default; for ``"none"`` the tools are
    omitted.

    Args:
        model: Model id, for the warning.
        choice: ``tool_choice`` of the request.
        tools: Tools of the request, nested or flat.
        rejected: Forms that the model rejects: ``"auto"``, ``"none"``, ``"required"``, ``"named"``.

    Returns:
        The choice (None to send no choice), and the tools.

    Warns:
        UserWarning: The model accepts no form that forces a call. None is sent.
    """
    form = "named" if isinstance(choice, dict) else choice
    if form not in rejected or form == "auto":
        return (choice if form not in rejected else None), tools
    if form == "none":
        return None, ()
    if form == "required" and len(tools) == 1 and "named" not in rejected:
        return _named(tools[0]), tools
    if isinstance(choice, dict) and "required" not in rejected:
        return "required", [tool for tool in tools if _name(tool) == _name(choice)]
    warnings.warn(
        f"{model} does not accept tool_choice {choice!r}: no tool call is forced. Bind a single tool, request the call "
        "in the prompt, use method='json_schema' for a structured answer, or choose another model",
        stacklevel=2,
    )
    return None, tools


def _name(tool: Mapping[str, JSON]) -> JSON:
    """Return the name of a tool or of a choice, nested or flat."""
    function = tool.get("function")
    return (function if isinstance(function, dict) else tool).get("name")


def _named(tool: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the choice of one tool, nested or flat like the tool. The Responses route has flat tools."""
    if "function" in tool:
        return {"type": "function", "function": {"name": _name(tool)}}
    return {"type": "function", "name": _name(tool)}


def repair_request(request: Request, error: WorkersAIError, rejected: set[str]) -> Request | None:
    """Return a request without the field that the service rejected; None if the error mentions no such field.

    Two fields can be dropped: ``stream_options``, since an answer is useful without its usage
    (https://github.com/langchain-ai/langchain-litellm/issues/115), and a form of ``tool_choice``.

    Args:
        request: The rejected request.
        error: The error response.
        rejected: Forms of ``tool_choice`` that this call has tried. The form of this request is added.
    """
    if type(error) is not BadRequestError or not request.body:
        return None
    body = dict(request.body)
    if "stream_options" in error.message and "stream_options" in body:
        del body["stream_options"]
        return request._replace(body=body)
    if "tool_choice" not in body or "tool_choice" not in error.message:
        return None
    choice = body.pop("tool_choice")
    rejected.add("named" if isinstance(choice, dict) else str(choice))
    known = lookup(request.model).tool_choice_refused or ()
    given = body.pop("tools", None)
    tools = [tool for tool in given if isinstance(tool, dict)] if isinstance(given, list) else []
    choice, kept = choose_form(request.model, choice, tools, {*known, *rejected})
    fields: dict[str, JSON] = {"tools": kept, "tool_choice": choice}
    return request._replace(body=body | {name: value for name, value in fields.items() if value})
