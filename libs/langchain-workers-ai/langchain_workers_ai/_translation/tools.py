"""Tools and their schemas as keywords of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel

from workers_ai.errors import ConfigurationError
from workers_ai.integration import inline_refs, is_cache_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workers_ai._chat.call_options import Tool
    from langchain_workers_ai._types import Data, Fields
    from workers_ai.types import JSON

__all__ = ["bound_tools", "recursive_schema", "without_dict_docs"]


def bound_tools(tools: Sequence[Tool], tool_choice: Data, strict: bool | None) -> Fields:
    """Return the keywords ``tools``, as OpenAI dicts, and ``tool_choice``. Empty keywords are omitted.

    Raises:
        ConfigurationError: A tool is not a function, or ``tool_choice`` is the name of an unknown tool.
    """
    if isinstance(tools, (str, Mapping)) or not isinstance(tools or (), Iterable):
        raise ConfigurationError(f"tools must be a list of tools, not a {type(tools).__name__}")
    converted = [_converted(tool, strict) for tool in tools or () if not is_cache_mark(tool)]
    for tool in converted:
        if tool.get("type") != "function":
            raise ConfigurationError(
                f"a tool has type {tool.get('type')!r}, which Workers AI does not support: use tools of type 'function'"
            )
    bound: Fields = {}
    if converted:
        bound["tools"] = converted
    if tool_choice is not None and tool_choice is not False:
        _check_choice(tool_choice, [tool["function"]["name"] for tool in converted])
        bound["tool_choice"] = tool_choice
    return bound


def _converted(tool: Tool, strict: bool | None) -> Fields:
    try:
        converted: Fields = without_dict_docs(convert_to_openai_tool(tool, strict=strict))
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as exc:
        raise ConfigurationError(
            f"a {type(tool).__name__} cannot become a tool ({exc}): pass a tool, a function, a class or an OpenAI dict"
        ) from exc
    schema = getattr(tool, "tool_call_schema", tool)
    if isinstance(schema, type) and is_basemodel_subclass(schema) and (parameters := recursive_schema(schema)):
        parameters = {key: value for key, value in parameters.items() if key not in ("title", "description")}
        converted["function"]["parameters"] = parameters
    return converted


def without_dict_docs(schema: JSON) -> JSON:
    """Return the schema without the docstring of ``dict``, which LangChain adds for a TypedDict without one."""
    if isinstance(schema, list):
        return [without_dict_docs(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_dict_docs(value)
        for key, value in schema.items()
        if not (key == "description" and value == dict.__doc__)
    }


def recursive_schema(cls: type[BaseModel]) -> Fields | None:
    """Return the schema of a class that refers to itself; None for other classes.

    LangChain returns an empty schema for such a class.
    """
    own = cls.model_json_schema() if issubclass(cls, BaseModel) else cls.schema()
    defined = own.get("$defs") or own.get("definitions")
    if not defined or inline_refs(own) is not own:
        return None
    # The top level of such a schema is a reference. The service requires an object there.
    top = defined.get(own.pop("$ref", "").rpartition("/")[2], {})
    return {**top, **own}


def _check_choice(choice: Data, names: Sequence[str]) -> None:
    named = choice.get("function", choice).get("name") if isinstance(choice, dict) else choice
    if isinstance(named, str) and named not in (*names, "auto", "none", "any", "required"):
        remedy = f"use one of {', '.join(names)}" if names else "pass the tool in tools"
        raise ConfigurationError(f"tool_choice {named!r} is not one of the tools: {remedy}")
