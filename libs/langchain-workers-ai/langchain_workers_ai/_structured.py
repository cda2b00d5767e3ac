"""Structured output: from a schema of any kind to the keywords of a call, and from the answer to a value that fits."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.runnables import RunnableGenerator
from langchain_core.utils.function_calling import convert_to_json_schema
from langchain_core.utils.pydantic import is_basemodel_subclass

from langchain_workers_ai._parser import AnswerParser
from langchain_workers_ai._tools import recursive_schema, without_words_of_python
from workers_ai.catalogue import lookup
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.runnables import Runnable

    from langchain_workers_ai._call_options import Method, Schema
    from langchain_workers_ai.chat_models import ChatWorkersAI

__all__ = ["response_format_of", "structured"]

_METHODS = ("function_calling", "json_schema", "json_mode")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class Target(NamedTuple):
    """What an answer is to look like.

    Attributes:
        name: Name of the function or the schema, as the wire takes it.
        schema: JSON schema.
        cls: The Pydantic class to make of it; None where a dict is wanted.
    """

    name: str
    schema: dict[str, Any]
    cls: type | None


def structured(
    llm: ChatWorkersAI,
    schema: Schema,
    method: Method | None,
    *,
    include_raw: bool,
    strict: bool | None,
    **kwargs: Any,
) -> Runnable[LanguageModelInput, Any]:
    """What :meth:`ChatWorkersAI.with_structured_output` returns."""
    target = target_of(schema)
    method = method or best_method(kwargs.get("model") or llm.model)
    if method not in _METHODS:
        raise ConfigurationError(f"method {method!r} is not one of {', '.join(_METHODS)}")
    if method == "json_mode" and strict is not None:
        raise ConfigurationError("strict= has no meaning with method='json_mode'")
    keywords = _keywords(target, method, strict)
    if taken := keywords.keys() & kwargs.keys():
        raise ConfigurationError(f"{', '.join(sorted(taken))}: set by method={method!r} itself")
    asked = llm.bind(
        **keywords,
        ls_structured_output_format={"kwargs": {"method": method}, "schema": target.schema},
        **kwargs,
    )
    parser = AnswerParser(
        tool_name=target.name if method == "function_calling" else None, cls=target.cls, answer_schema=target.schema
    )
    if not include_raw:
        return asked | parser
    return asked | RunnableGenerator(parser.beside_raw, parser.abeside_raw)


def best_method(model: str) -> Method:
    """The method a model is known to do best; a forced tool call where nothing else is known."""
    card = lookup(model)
    return "json_schema" if card.tools is False or card.prefers_schema else "function_calling"


def _keywords(target: Target, method: Method, strict: bool | None) -> dict[str, Any]:
    """Keywords of the call."""
    if method == "json_mode":
        return {"response_format": {"type": "json_object"}}
    stated = {} if strict is None else {"strict": strict}
    if method == "json_schema":
        return {"response_format": _named_format(target, stated)}
    parameters = {key: value for key, value in target.schema.items() if key not in ("title", "description")}
    function = {"name": target.name, "parameters": parameters, **stated}
    if description := target.schema.get("description"):
        function["description"] = description
    return {"tools": [{"type": "function", "function": function}], "tool_choice": target.name}


def _named_format(target: Target, stated: dict[str, Any]) -> dict[str, Any]:
    named = {"name": target.name, "schema": target.schema, **stated}
    if description := target.schema.get("description"):
        named["description"] = description
    return {"type": "json_schema", "json_schema": named}


def response_format_of(given: Any) -> dict[str, Any]:
    """Return ``response_format`` as the wire has it: a dict as it is, a class as its schema.

    Raises:
        ConfigurationError: The class cannot become a schema.
    """
    return given if isinstance(given, dict) else _named_format(target_of(given), {})


def target_of(schema: Schema) -> Target:
    """Read a schema of any kind.

    Raises:
        ConfigurationError: It is none.
    """
    if isinstance(schema, dict):
        return _of_dict(schema)
    cls = schema if is_basemodel_subclass(schema) else None
    # A TypedDict of either module, typing's or typing_extensions', is known by what it requires.
    if not (cls or hasattr(schema, "__required_keys__") or (isinstance(schema, type) and is_dataclass(schema))):
        what = schema.__name__ if isinstance(schema, type) else type(schema).__name__
        raise ConfigurationError(f"schema must be a Pydantic class, a TypedDict or a dict, not {what}")
    try:
        converted: dict[str, Any] = without_words_of_python(convert_to_json_schema(schema))
    except (TypeError, ValueError) as exc:
        raise ConfigurationError(f"schema {schema.__name__} cannot become a JSON schema: {exc}") from exc
    converted = (cls and recursive_schema(cls)) or converted
    return Target(_wire_name(converted.get("title") or schema.__name__), converted, cls)


def _of_dict(schema: dict[str, Any]) -> Target:
    """Read a JSON schema, bare or in the envelope of a tool, a function or ``response_format``."""
    for envelope in ("function", "json_schema"):
        if schema.get("type") == envelope and isinstance(schema.get(envelope), dict):
            return _of_dict(schema[envelope])
    name = schema.get("name")
    if isinstance(name, str):
        for key in ("parameters", "schema", "input_schema"):
            if isinstance(inner := schema.get(key), dict):
                stated = {"description": schema["description"]} if schema.get("description") else {}
                return Target(_wire_name(name), {"title": name, **stated, **inner}, None)
    if not {"type", "properties", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"} & schema.keys():
        raise ConfigurationError(
            "schema is neither a JSON schema nor an OpenAI function: it has no type, properties or parameters"
        )
    return Target(_wire_name(schema.get("title") or "response"), schema, None)


def _wire_name(name: str) -> str:
    """A name as functions may have on the wire; that of a generic class has brackets."""
    return _NOT_IN_A_NAME.sub("_", name)[:64] or "response"
