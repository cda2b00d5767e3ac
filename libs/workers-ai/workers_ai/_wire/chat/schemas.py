"""Convert JSON schemas, tools and tool choices to the form that the service accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from workers_ai._validation import require, require_kind
from workers_ai._wire.json_types import JSON
from workers_ai._wire.json_writing import is_cache_mark, plain_json
from workers_ai._wire.quirks import COMPLETE_TOOLS
from workers_ai.catalogue import ModelCard
from workers_ai.errors import ConfigurationError
from workers_ai.types import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "bare_schema",
    "description_of",
    "inline_refs",
    "prepare_response_format",
    "prepare_tool_choice",
    "prepare_tools",
    "schema_name",
    "schema_of",
]

_FORM: Final = "pass each tool as {'type': 'function', 'function': {'name': ...}}"
_MAX_REFS: Final = 1_000


def inline_refs(schema: JSON) -> JSON:
    """Replace each local ``$ref`` by its target, as guided decoding requires.

    Return the schema unchanged if it is recursive, has too many references, or has a reference without a target.
    """
    if not isinstance(schema, dict) or not ("$defs" in schema or "definitions" in schema):
        return schema
    try:
        inlined = _Inliner(schema).inline_object(schema, ())
    except _NotInlinedError:
        return schema
    return {key: value for key, value in inlined.items() if key not in ("$defs", "definitions")}


class _NotInlinedError(Exception):
    pass


class _Inliner:
    """Inline the references of one schema."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._root = root
        self._left = _MAX_REFS

    def inline(self, node: JSON, path: tuple[str, ...]) -> JSON:
        if isinstance(node, list):
            return [self.inline(item, path) for item in node]
        return self.inline_object(node, path) if isinstance(node, dict) else node

    def inline_object(self, node: Mapping[str, JSON], path: tuple[str, ...]) -> dict[str, JSON]:
        """Inline an object of the schema. ``path`` contains the references that led to this object."""
        ref = node.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/"):
            return {key: self.inline(value, path) for key, value in node.items()}
        self._left -= 1
        target = self._target(ref)
        if ref in path or self._left < 0 or not isinstance(target, dict):
            raise _NotInlinedError
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return {**self.inline_object(target, (*path, ref)), **self.inline_object(beside, path)}

    def _target(self, ref: str) -> JSON:
        target: JSON = self._root
        for step in unquote(ref[2:]).split("/"):
            target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        return target


def schema_of(response_format: Mapping[str, JSON]) -> tuple[Mapping[str, JSON], str | None, bool | None]:
    """Return schema, name and ``strict`` of a ``response_format`` with a named or bare schema.

    Raises:
        ConfigurationError: ``response_format`` has no schema.
    """
    given = response_format.get("json_schema") or response_format.get("schema")
    if not isinstance(given, dict):
        raise ConfigurationError("response_format of type json_schema has no schema: add the key json_schema")
    inner = given.get("schema")
    if isinstance(inner, dict) and not ("type" in given or "properties" in given):
        name, strict = given.get("name"), given.get("strict")
        return _plain(inner), name if isinstance(name, str) else None, strict if isinstance(strict, bool) else None
    return _plain(given), None, None


def description_of(response_format: Mapping[str, JSON]) -> str | None:
    """Return the description of a named ``response_format``; None if it has none."""
    given = response_format.get("json_schema")
    found = given.get("description") if isinstance(given, dict) and "schema" in given else None
    return found if isinstance(found, str) and found else None


def bare_schema(response_format: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the schema without its wrapper. The name becomes the title; the description is kept."""
    schema, name, _ = schema_of(response_format)
    stated = {"title": name, "description": description_of(response_format)}
    return {**{key: value for key, value in stated.items() if value}, **schema}


def _plain(schema: dict[str, JSON]) -> dict[str, JSON]:
    """Return the schema as JSON data. Its defaults and examples may be dates, sets or NaN."""
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError):
        plain: dict[str, JSON] = json.loads(plain_json(schema))
        return plain
    except RecursionError:
        raise ConfigurationError("the JSON schema is nested too deep: use a flatter schema") from None
    return schema


def schema_name(given: JSON) -> str:
    """Return the name of a schema with the characters that OpenAI's API accepts: ``Box[int]`` becomes ``Box_int_``.

    Source: https://platform.openai.com/docs/api-reference/chat/create (``response_format``: at most 64 letters, digits,
    underscores and dashes).
    """
    return re.sub(r"[^A-Za-z0-9_-]", "_", given if isinstance(given, str) else "")[:64] or "response"


def prepare_response_format(response_format: JSON, api: Api) -> dict[str, JSON]:
    """Return ``response_format`` in the form of the route: a bare schema on the native route, a named one elsewhere.

    The form for ``/ai/v1`` is not documented for every model; newer models accepted both
    (https://github.com/cloudflare/ai/issues/559). The choice is made only here.
    """
    require_kind("response_format", response_format, Mapping, "a dict such as {'type': 'json_object'}")
    if not isinstance(response_format, Mapping):
        return {}
    if response_format.get("type") != "json_schema":
        return dict(response_format)
    schema, name, strict = schema_of(response_format)
    if api == "run":
        return {"type": "json_schema", "json_schema": inline_refs(bare_schema(response_format))}
    named: dict[str, JSON] = {"name": schema_name(name or schema.get("title")), "schema": inline_refs(schema)}
    if description := description_of(response_format):
        named["description"] = description
    if strict is not None:
        named["strict"] = strict
    return {"type": "json_schema", "json_schema": named}


def prepare_tools(tools: JSON, card: ModelCard) -> list[dict[str, JSON]]:
    """Return tools in the nested form, without empty fields. For the older schema, add the fields that it requires.

    Raises:
        ConfigurationError: A tool is invalid. The message includes its index or name.
    """
    tools = tools or ()
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"tools must be a list, not a {type(tools).__name__}: {_FORM}")
    return [
        _tool(tool, index, complete=COMPLETE_TOOLS.of(card))
        for index, tool in enumerate(tools)
        if not is_cache_mark(tool)
    ]


def _tool(tool: JSON, index: int, *, complete: bool) -> dict[str, JSON]:
    function = (tool.get("function") or tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping):
        raise ConfigurationError(f"tool {index} must be a dict, not a {type(tool).__name__}: {_FORM}")
    name = function.get("name")
    if not (isinstance(name, str) and name):
        raise ConfigurationError(f"tool {index} has no name: {_FORM}")
    out: dict[str, JSON] = {"name": name}
    if isinstance(description := function.get("description"), str) and description:
        out["description"] = description
    elif complete:
        out["description"] = name
    parameters = function.get("parameters") or None
    require_kind(f"the parameters of tool {name!r}", parameters, dict, "a JSON schema")
    if isinstance(parameters, dict):
        is_object = isinstance(parameters.get("properties", {}), dict)
        require(is_object, f"properties of tool {name!r} must be an object; use {{}} if the tool takes no arguments")
        inlined = inline_refs(_plain(parameters))
        out["parameters"] = _completed(inlined) if complete and isinstance(inlined, dict) else inlined
    elif complete:
        out["parameters"] = _completed({})
    if function.get("strict") is not None:
        out["strict"] = function["strict"]
    return {"type": "function", "function": out}


def _completed(parameters: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return parameters with ``type``, ``properties`` and a description of each, as the older schema requires."""
    properties = parameters.get("properties", {})
    described: dict[str, JSON] = {}
    for name, prop in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(prop, dict) and not isinstance(prop.get("description"), str):
            prop = {**prop, "description": prop.get("title") or name}
        described[name] = prop
    return {"type": "object", **parameters, "properties": described}


def prepare_tool_choice(choice: JSON, tools: Sequence[Mapping[str, JSON]]) -> tuple[JSON, dict[str, JSON]]:
    """Return ``tool_choice`` for the service, and the parameter schemas of the tools that it forces.

    Some models treat "required" as advice but enforce the named form (https://github.com/cloudflare/ai/pull/575).
    So a choice of a single tool is sent by name. "any" would be rejected.

    Raises:
        ConfigurationError: The choice is an unknown tool, or is invalid.
    """
    functions = [function for tool in tools if isinstance(function := tool.get("function"), dict)]
    schemas = {str(function.get("name")): function.get("parameters") for function in functions}
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
        raise ConfigurationError(
            f"tool_choice must be auto, none, any, the name of a tool or a dict, not {choice!r:.200}"
        )
    return (choice or "none"), {}


def _chosen(name: str, schemas: Mapping[str, JSON]) -> tuple[JSON, dict[str, JSON]]:
    if name not in schemas:
        raise ConfigurationError(f"tool_choice {name!r} is not one of the tools: {', '.join(schemas)}")
    return _named(name), {name: schemas[name]}


def _named(name: str) -> dict[str, JSON]:
    return {"type": "function", "function": {"name": name}}
