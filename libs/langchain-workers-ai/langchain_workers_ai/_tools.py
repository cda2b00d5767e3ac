"""Tools and their schemas in the form a call takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel

from workers_ai.errors import ConfigurationError
from workers_ai.integration import inline_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bound_tools", "recursive_schema", "without_words_of_python"]


def bound_tools(tools: Sequence[Any], tool_choice: Any, strict: bool | None) -> dict[str, Any]:
    """Keywords of a call: tools as OpenAI dicts, left out where there are none; and the choice, where one was made.

    Raises:
        ConfigurationError: A tool is not a function, or the choice names none of them.
    """
    if isinstance(tools, (str, Mapping)) or not isinstance(tools or (), Iterable):
        raise ConfigurationError(f"tools must be a list of tools, not a {type(tools).__name__}")
    converted = [_converted(tool, strict) for tool in tools or ()]
    for tool in converted:
        if tool.get("type") != "function":
            raise ConfigurationError(f"Workers AI calls functions only; it has no tool of type {tool.get('type')!r}")
    bound: dict[str, Any] = {}
    if converted:
        bound["tools"] = converted
    if tool_choice is not None and tool_choice is not False:
        _check_choice(tool_choice, [tool["function"]["name"] for tool in converted])
        bound["tool_choice"] = tool_choice
    return bound


def _converted(tool: Any, strict: bool | None) -> dict[str, Any]:
    try:
        converted: dict[str, Any] = without_words_of_python(convert_to_openai_tool(tool, strict=strict))
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as exc:  # whatever LangChain trips over
        raise ConfigurationError(f"a {type(tool).__name__} cannot become a tool: {exc}") from exc
    schema = getattr(tool, "tool_call_schema", tool)
    if is_basemodel_subclass(schema) and (parameters := recursive_schema(schema)):
        parameters = {key: value for key, value in parameters.items() if key not in ("title", "description")}
        converted["function"]["parameters"] = parameters
    return converted


def without_words_of_python(schema: Any) -> Any:
    """The schema without the documentation of ``dict``, which LangChain's conversion gives to a bare TypedDict."""
    if isinstance(schema, list):
        return [without_words_of_python(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_words_of_python(value)
        for key, value in schema.items()
        if not (key == "description" and value == dict.__doc__)
    }


def recursive_schema(cls: Any) -> dict[str, Any] | None:
    """The schema of a class that refers to itself, of which LangChain's conversion keeps nothing; None for another."""
    own = cls.model_json_schema() if issubclass(cls, BaseModel) else cls.schema()
    defined = own.get("$defs") or own.get("definitions")
    if not defined or inline_refs(own) is not own:
        return None
    # Such a schema is a mere reference at its top, where the service looks for an object.
    top = defined.get(own.pop("$ref", "").rpartition("/")[2], {})
    return {**top, **own}


def _check_choice(choice: Any, names: Sequence[str]) -> None:
    named = choice.get("function", choice).get("name") if isinstance(choice, dict) else choice
    if isinstance(named, str) and named not in (*names, "auto", "none", "any", "required"):
        raise ConfigurationError(f"tool_choice {named!r} is none of the tools: {', '.join(names) or 'there are none'}")
