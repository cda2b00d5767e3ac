"""What is sent differently from model to model, each with its evidence.

A fact that the service publishes of a single model (its price, its window, whether it takes pictures) is in the
catalogue; what is here changes or leaves out a part of the request.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from workers_ai.catalogue import ModelCard, lookup
from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from workers_ai._wire.request import Request
    from workers_ai.errors import WorkersAIError
    from workers_ai.types import JSON

__all__ = ["QUIRKS", "Quirk", "choose_form", "repair_request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirk:
    """One difference.

    Attributes:
        what: What is sent differently.
        evidence: Where it was documented or seen.
        models: Parts of the ids of the models that have it.
        families: Families of the catalogue that have it.
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
    what="a tool without a description gets its name as one; parameters get type, properties and descriptions",
    evidence=f"{_PUBLISHED}; required by the older schema, and harmless for a model that is not known",
    models=("gpt-oss", "qwen3-30b", "sea-lion"),
    families=("native", "hybrid", None),
)
DEVELOPER_IS_SYSTEM: Final = Quirk(
    what="the role developer goes out as system",
    evidence=f"{_PUBLISHED}; the older schema has no role developer",
    families=("native", "hybrid"),
)
NO_REASONING_BACK: Final = Quirk(
    what="reasoning of earlier turns is not sent back",
    evidence=f"{_PUBLISHED}; a message of the older schema has no field for it",
    families=("native", "hybrid"),
)
NINE_LETTER_IDS: Final = Quirk(
    what="ids of tool calls that are not 9 letters or digits are replaced by such ones",
    evidence=f"{_PUBLISHED}; pattern [a-zA-Z0-9]{{9}} of mistral-small-3.1 and llama-4-scout",
    models=("mistral", "llama-4"),
)
NO_USER_AFTER_TOOL: Final = Quirk(
    what="a short assistant message stands between a tool result and the user message after it",
    evidence="live probes of 2026-09 and 2026-10, one source of them https://github.com/sane-apps/translations: mistral "
    "rejects a user message straight after a tool message",
    models=("mistral",),
)
RESPONSES_IN_QUEUE: Final = Quirk(
    what="requests of the queue have the form of the Responses route",
    evidence="https://developers.cloudflare.com/workers-ai/models/gpt-oss-120b/; its schema of 2026-10-07 has no other",
    models=("gpt-oss",),
)
QUERIES_AND_DOCUMENTS: Final = Quirk(
    what="texts go out as queries or documents, and an instruction as a field of its own",
    evidence="https://developers.cloudflare.com/workers-ai/models/qwen3-embedding-0.6b/",
    models=("qwen3-embedding",),
)
GUIDED_JSON: Final = Quirk(
    what="a schema goes out as guided_json, on the native route (catalogue: guided_json without json_schema)",
    evidence=f"{_PUBLISHED}; mistral-small-3.1 and llama-4-scout have guided_json, no response_format",
)
TOOL_CHOICE_FORMS: Final = Quirk(
    what="a form of tool_choice that a model refuses is replaced by the next one (catalogue: tool_choice_refused)",
    evidence="a live probe of 2026-09: glm-4.7-flash refuses 'required' with HTTP 400 and takes the named form; "
    "https://github.com/cloudflare/ai/issues/404: mistral-small-3.1 takes tool_choice",
)
SCHEMA_BEFORE_TOOL: Final = Quirk(
    what="a structured answer is asked for by schema, not by a forced tool (catalogue: prefers_schema)",
    evidence="https://github.com/cloudflare/langchain-cloudflare, 0.3.7: tools are unreliable for it on mistral",
)

QUIRKS: Final = (
    COMPLETE_TOOLS,
    DEVELOPER_IS_SYSTEM,
    NO_REASONING_BACK,
    NINE_LETTER_IDS,
    NO_USER_AFTER_TOOL,
    RESPONSES_IN_QUEUE,
    QUERIES_AND_DOCUMENTS,
    GUIDED_JSON,
    TOOL_CHOICE_FORMS,
    SCHEMA_BEFORE_TOOL,
)
"""Every parameter that is left out or changed for some models alone."""


def choose_form(
    model: str, choice: JSON, tools: Sequence[Mapping[str, Any]], refused: Collection[str]
) -> tuple[JSON, Sequence[Mapping[str, Any]]]:
    """Return ``tool_choice`` in a form that a model takes, and the tools to send with it.

    Among ``refused``, ``"required"`` becomes the named form if there is one tool, and the named form becomes
    ``"required"`` with that tool alone. ``"auto"`` is left out, since it is the default; for ``"none"`` the tools are.

    Args:
        model: Model id, for the warning.
        choice: ``tool_choice`` of the wire.
        tools: Tools of the wire, nested or flat.
        refused: Forms that the model refuses: ``"auto"``, ``"none"``, ``"required"``, ``"named"``.

    Returns:
        The choice and the tools; None as the choice to send none.

    Warns:
        UserWarning: The model takes no form that forces a call, so that none is forced.
    """
    form = "named" if isinstance(choice, dict) else choice
    if form not in refused or form == "auto":
        return (choice if form not in refused else None), tools
    if form == "none":
        return None, ()
    if form == "required" and len(tools) == 1 and "named" not in refused:
        return _named(tools[0]), tools
    if isinstance(choice, dict) and "required" not in refused:
        name = choice.get("function", choice).get("name")
        return "required", [tool for tool in tools if _name(tool) == name]
    warnings.warn(
        f"{model} does not take tool_choice {choice!r}: no tool call is forced. Bind one tool alone, ask for it in the "
        "prompt, use method='json_schema' for a structured answer, or choose another model",
        stacklevel=2,
    )
    return None, tools


def _name(tool: Mapping[str, Any]) -> JSON:
    function: Mapping[str, JSON] = tool.get("function") or tool
    return function.get("name")


def _named(tool: Mapping[str, Any]) -> dict[str, JSON]:
    """Return the choice of one tool, nested or flat as the tool is (the Responses route has flat ones)."""
    if "function" in tool:
        return {"type": "function", "function": {"name": _name(tool)}}
    return {"type": "function", "name": _name(tool)}


def repair_request(request: Request, error: WorkersAIError, refused: set[str]) -> Request | None:
    """Return a request without the field that the service refused; None if the error names no such field.

    Two fields can be given up: ``stream_options``, since an answer without its usage is one
    (https://github.com/langchain-ai/langchain-litellm/issues/115), and a form of ``tool_choice``.

    Args:
        request: The request that was refused.
        error: The refusal.
        refused: Forms of ``tool_choice`` that this call has tried; the one of this request is added.
    """
    if type(error) is not BadRequestError or not request.body:
        return None
    body: dict[str, Any] = dict(request.body)
    if "stream_options" in error.message and "stream_options" in body:
        del body["stream_options"]
        return request._replace(body=body)
    if "tool_choice" not in body or "tool_choice" not in error.message:
        return None
    choice = body.pop("tool_choice")
    refused.add("named" if isinstance(choice, dict) else str(choice))
    known = lookup(request.model).tool_choice_refused or ()
    choice, tools = choose_form(request.model, choice, body.pop("tools", None) or (), {*known, *refused})
    body |= {name: value for name, value in (("tools", tools), ("tool_choice", choice)) if value}
    return request._replace(body=body)
