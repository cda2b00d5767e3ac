"""Tools in the form a call takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.utils.function_calling import convert_to_openai_tool

from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bound_tools"]


def bound_tools(tools: Sequence[Any], tool_choice: Any, strict: bool | None) -> dict[str, Any]:
    """Keywords of a call: tools as OpenAI dicts, left out where there are none; and the choice, where one was made.

    Raises:
        ConfigurationError: A tool is not a function, or the choice names none of them.
    """
    converted = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
    for tool in converted:
        if tool.get("type") != "function":
            raise ConfigurationError(f"Workers AI calls functions only; it has no tool of type {tool.get('type')!r}")
    bound: dict[str, Any] = {}
    if converted:
        bound["tools"] = converted
    if tool_choice is not None:
        _check_choice(tool_choice, [tool["function"]["name"] for tool in converted])
        bound["tool_choice"] = tool_choice
    return bound


def _check_choice(choice: Any, names: Sequence[str]) -> None:
    named = choice.get("function", choice).get("name") if isinstance(choice, dict) else choice
    if isinstance(named, str) and named not in (*names, "auto", "none", "any", "required"):
        raise ConfigurationError(f"tool_choice {named!r} is none of the tools: {', '.join(names) or 'there are none'}")
