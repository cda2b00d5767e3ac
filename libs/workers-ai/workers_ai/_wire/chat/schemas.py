"""JSON schemas and tools in the form the service takes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from workers_ai._validation import require, require_kind
from workers_ai._wire.json_writing import plain_json
from workers_ai._wire.quirks import COMPLETE_TOOLS
from workers_ai.catalogue import ModelCard
from workers_ai.errors import ConfigurationError
from workers_ai.types import JSON, Api

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "bare_schema",
    "description_of",
    "inline_refs",
    "prepare_response_format",
    "prepare_tool_choice",
    "prepare_tools",
    "schema_of",
]

_FORM: Final = "the form of a tool is {'type': 'function', 'function': {'name': ...}}"
_MOST_REFS: Final = 1_000


def inline_refs(schema: JSON) -> JSON:
    """Replace local ``$ref`` by what it points to, which guided decoding needs.

    A schema where that cannot be done stays as it is: one that is recursive, grows beyond all measure, or points to
    what is not there.
    """
    if not isinstance(schema, dict) or not ("$defs" in schema or "definitions" in schema):
        return schema
    try:
        inlined = _Inlining(schema).of(schema, ())
    except _NotInlinedError:
        return schema
    return {key: value for key, value in inlined.items() if key not in ("$defs", "definitions")}


class _NotInlinedError(Exception):
    pass


class _Inlining:
    """Inlines the references of one schema."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._root = root
        self._left = _MOST_REFS

    def of(self, node: JSON, path: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [self.of(item, path) for item in node]
        if not isinstance(node, dict):
            return node
        ref = node.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/"):
            return {key: self.of(value, path) for key, value in node.items()}
        self._left -= 1
        target = self._target(ref)
        if ref in path or self._left < 0 or not isinstance(target, dict):
            raise _NotInlinedError
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return {**self.of(target, (*path, ref)), **self.of(beside, path)}

    def _target(self, ref: str) -> JSON:
        target: JSON = self._root
        for step in unquote(ref[2:]).split("/"):
            target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        return target


def schema_of(response_format: Mapping[str, JSON]) -> tuple[Mapping[str, JSON], str | None, bool | None]:
    """Schema, name and strictness out of either form of ``response_format``: named envelope or bare schema.

    Raises:
        ConfigurationError: There is no schema in it.
    """
    given = response_format.get("json_schema") or response_format.get("schema")
    if not isinstance(given, dict):
        raise ConfigurationError("response_format of type json_schema has no schema: put it under json_schema")
    if isinstance(given.get("schema"), dict) and not ("type" in given or "properties" in given):
        return _plain(given["schema"]), given.get("name"), given.get("strict")
    return _plain(given), None, None


def description_of(response_format: Mapping[str, JSON]) -> str | None:
    """Return the description beside the schema of a named ``response_format``; None where there is none."""
    given = response_format.get("json_schema")
    found = given.get("description") if isinstance(given, dict) and "schema" in given else None
    return found if isinstance(found, str) and found else None


def bare_schema(response_format: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the schema for a route without names: name and description stand in it as title and description."""
    schema, name, _ = schema_of(response_format)
    stated = {"title": name, "description": description_of(response_format)}
    return {**{key: value for key, value in stated.items() if value}, **schema}


def _plain(schema: dict[str, JSON]) -> dict[str, JSON]:
    """Return the schema as JSON data: its defaults and examples may be dates, sets or NaN."""
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError):
        plain: dict[str, JSON] = json.loads(plain_json(schema))
        return plain
    except RecursionError:
        raise ConfigurationError("a JSON schema is nested too deep") from None
    return schema


def prepare_response_format(response_format: Mapping[str, JSON], api: Api) -> dict[str, JSON]:
    """``response_format`` in the form of the route: a bare schema on the native route, a named one elsewhere.

    Which form ``/ai/v1`` wants is not documented for every model; newer models took both
    (https://github.com/cloudflare/ai/issues/559). This is the one place that decides.
    """
    require_kind("response_format", response_format, Mapping, "a dict such as {'type': 'json_object'}")
    if response_format.get("type") != "json_schema":
        return dict(response_format)
    schema, name, strict = schema_of(response_format)
    schema = inline_refs(schema)
    if api == "run":
        return {"type": "json_schema", "json_schema": inline_refs(bare_schema(response_format))}
    named: dict[str, JSON] = {"name": name or schema.get("title") or "response", "schema": schema}
    if description := description_of(response_format):
        named["description"] = description
    if strict is not None:
        named["strict"] = strict
    return {"type": "json_schema", "json_schema": named}


def prepare_tools(tools: Sequence[Mapping[str, Any]], card: ModelCard) -> list[dict[str, Any]]:
    """Tools in the nested form, with what is absent left out, or completed where the older schema demands it."""
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"tools must be a list, not a {type(tools).__name__}: {_FORM}")
    return [_tool(tool, complete=COMPLETE_TOOLS.of(card)) for tool in tools]


def _tool(tool: Mapping[str, Any], *, complete: bool) -> dict[str, Any]:
    function = (tool.get("function") or tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        raise ConfigurationError(f"a tool must be a dict: {_FORM}")
    name = function.get("name")
    if not (isinstance(name, str) and name):
        raise ConfigurationError(f"a tool has no name: {_FORM}")
    out: dict[str, Any] = {"name": name}
    if isinstance(description := function.get("description"), str) and description:
        out["description"] = description
    elif complete:
        out["description"] = name
    parameters = function.get("parameters") or None
    require_kind(f"the parameters of tool {name!r}", parameters, dict, "a JSON schema")
    if parameters is not None:
        fits = isinstance(parameters.get("properties", {}), dict)
        require(fits, f"the parameters of tool {name!r} have properties that are no object; {{}} stands for none")
        out["parameters"] = inline_refs(_plain(parameters))
    elif complete:
        out["parameters"] = {}
    if complete:
        out["parameters"] = _completed(out["parameters"])
    if function.get("strict") is not None:
        out["strict"] = function["strict"]
    return {"type": "function", "function": out}


def _completed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with ``type``, ``properties`` and a description of each, as the older schema demands."""
    out = copy.deepcopy(dict(parameters))
    out.setdefault("type", "object")
    properties = out.setdefault("properties", {})
    for name, prop in properties.items():
        if isinstance(prop, dict) and not isinstance(prop.get("description"), str):
            prop["description"] = prop.get("title") or name
    return out


def prepare_tool_choice(choice: Any, tools: Sequence[Mapping[str, Any]]) -> tuple[JSON, dict[str, JSON]]:
    """``tool_choice`` for the wire, and the parameter schemas of the tools that it forces.

    "required" is only advice to some models, the named form is enforced (https://github.com/cloudflare/ai/pull/575), so
    a choice that leaves one tool only is sent by name. "any" would be refused.

    Raises:
        ConfigurationError: The choice names none of the tools.
    """
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
    if choice in (True, "any", "required"):
        if len(schemas) == 1:
            return _named(next(iter(schemas))), schemas
        return "required", schemas
    if isinstance(choice, dict):
        function = choice.get("function") or choice.get("tool")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        if isinstance(name, str):
            return _chosen(name, schemas)
        kind = choice.get("type") or next((kind for kind in ("any", "auto", "none") if kind in choice), choice)
        return prepare_tool_choice(kind if isinstance(kind, str) else [choice], tools)
    if isinstance(choice, str) and choice not in ("auto", "none"):
        return _chosen(choice, schemas)
    if choice and not isinstance(choice, str):
        raise ConfigurationError(f"tool_choice {choice!r:.200} is none of auto, none, any, a tool's name or a dict")
    return (choice or "none"), {}


def _chosen(name: str, schemas: Mapping[str, JSON]) -> tuple[JSON, dict[str, JSON]]:
    if name not in schemas:
        raise ConfigurationError(f"tool_choice {name!r} is none of the tools: {', '.join(schemas)}")
    return _named(name), {name: schemas[name]}


def _named(name: str) -> dict[str, JSON]:
    return {"type": "function", "function": {"name": name}}
