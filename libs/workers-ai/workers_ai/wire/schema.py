"""JSON schemas and tools in the form the service takes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from workers_ai.catalogue import ModelCard
from workers_ai.errors import ConfigurationError
from workers_ai.wire.types import JSON, Api

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["inline_refs", "prepare_response_format", "prepare_tool_choice", "prepare_tools", "schema_of"]

_OLDER_SCHEMA: Final = ("gpt-oss", "qwen3-30b")
"""Models that answer in OpenAI's form but are described by the older schema of tools
(https://developers.cloudflare.com/workers-ai/models/gpt-oss-120b/)."""


def inline_refs(schema: JSON) -> JSON:
    """Replace local ``$ref`` by what it points to, which guided decoding needs; a recursive schema stays as it is."""
    if not isinstance(schema, dict) or not ("$defs" in schema or "definitions" in schema):
        return schema
    try:
        inlined = _inline(schema, schema, ())
    except _RecursiveSchemaError:
        return schema
    return {key: value for key, value in inlined.items() if key not in ("$defs", "definitions")}


class _RecursiveSchemaError(Exception):
    pass


def _inline(node: JSON, root: Mapping[str, JSON], path: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inline(item, root, path) for item in node]
    if not isinstance(node, dict):
        return node
    ref = node.get("$ref")
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return {key: _inline(value, root, path) for key, value in node.items()}
    if ref in path:
        raise _RecursiveSchemaError
    target: JSON = root
    for step in ref[2:].split("/"):
        target = target.get(step) if isinstance(target, dict) else None
    if not isinstance(target, dict):
        return node
    beside = {key: value for key, value in node.items() if key != "$ref"}
    return {**_inline(target, root, (*path, ref)), **_inline(beside, root, path)}


def schema_of(response_format: Mapping[str, JSON]) -> tuple[Mapping[str, JSON], str | None, bool | None]:
    """Schema, name and strictness out of either form of ``response_format``: named envelope or bare schema.

    Raises:
        ConfigurationError: There is no schema in it.
    """
    given = response_format.get("json_schema") or response_format.get("schema")
    if not isinstance(given, dict):
        raise ConfigurationError("response_format of type json_schema has no schema: put it under json_schema")
    if isinstance(given.get("schema"), dict) and not ("type" in given or "properties" in given):
        return given["schema"], given.get("name"), given.get("strict")
    return given, None, None


def prepare_response_format(response_format: Mapping[str, JSON], api: Api) -> dict[str, JSON]:
    """``response_format`` in the form of the route: a bare schema on the native route, a named one elsewhere.

    Which form ``/ai/v1`` wants is not documented for every model; newer models took both
    (https://github.com/cloudflare/ai/issues/559). This is the one place that decides.
    """
    if response_format.get("type") != "json_schema":
        return dict(response_format)
    schema, name, strict = schema_of(response_format)
    schema = inline_refs(schema)
    if api == "run":
        return {"type": "json_schema", "json_schema": schema}
    named: dict[str, JSON] = {"name": name or schema.get("title") or "response", "schema": schema}
    if strict is not None:
        named["strict"] = strict
    return {"type": "json_schema", "json_schema": named}


def prepare_tools(tools: Sequence[Mapping[str, Any]], card: ModelCard) -> list[dict[str, Any]]:
    """Tools in the nested form, with what is absent left out, or completed where the older schema demands it."""
    complete = card.family == "native" or any(name in card.id for name in _OLDER_SCHEMA)
    return [_tool(tool, complete=complete) for tool in tools]


def _tool(tool: Mapping[str, Any], *, complete: bool) -> dict[str, Any]:
    function = dict(tool.get("function") or {key: value for key, value in tool.items() if key != "type"})
    if not function.get("name"):
        raise ConfigurationError("a tool has no name: its form is {'type': 'function', 'function': {'name': ...}}")
    out: dict[str, Any] = {"name": function["name"]}
    if isinstance(description := function.get("description"), str) and description:
        out["description"] = description
    elif complete:
        out["description"] = out["name"]
    if isinstance(parameters := function.get("parameters"), dict):
        out["parameters"] = inline_refs(parameters)
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
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        if isinstance(name, str):
            return _chosen(name, schemas)
        return prepare_tool_choice(choice.get("type"), tools)
    if isinstance(choice, str) and choice not in ("auto", "none"):
        return _chosen(choice, schemas)
    return (choice or "none"), {}


def _chosen(name: str, schemas: Mapping[str, JSON]) -> tuple[JSON, dict[str, JSON]]:
    if name not in schemas:
        raise ConfigurationError(f"tool_choice {name!r} is none of the tools: {', '.join(schemas)}")
    return _named(name), {name: schemas[name]}


def _named(name: str) -> dict[str, JSON]:
    return {"type": "function", "function": {"name": name}}
