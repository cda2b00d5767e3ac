"""Structured output: translate a schema to the keywords of a call and to a parser of its answer."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, NamedTuple

from langchain_core.runnables import RunnableGenerator
from langchain_core.utils.function_calling import convert_to_json_schema
from langchain_core.utils.pydantic import is_basemodel_subclass

from langchain_workers_ai._translation.parser import AnswerParser
from langchain_workers_ai._translation.tools import recursive_schema, without_dict_docs
from langchain_workers_ai._types import Fields
from workers_ai.catalogue import lookup
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.messages import BaseMessage

    from langchain_workers_ai._chat.call_options import Method, Schema

__all__ = ["response_format_of", "structured_call", "value_or_raw"]

_METHODS = ("function_calling", "json_schema", "json_mode")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class Target(NamedTuple):
    """The schema of an answer.

    Attributes:
        name: Name of the function or the schema on the wire.
        schema: JSON schema of the answer.
        cls: The Pydantic class to return; None for a dict.
    """

    name: str
    schema: Fields
    cls: type | None


def structured_call(
    schema: Schema, method: Method | None, strict: bool | None, given: Mapping[str, object], model: str
) -> tuple[Fields, AnswerParser]:
    """Return the keywords of a call whose answer fits a schema, and the parser of that answer.

    Args:
        schema: The schema; see :meth:`ChatWorkersAI.with_structured_output`.
        method: The method; None for the best method for the model.
        strict: Sent with the schema if set.
        given: Other keywords of the call.
        model: The model of the call.

    Raises:
        ConfigurationError: The schema, the method or a keyword is invalid.
    """
    target = _target_of(schema)
    method = method or _best_method(model)
    if method not in _METHODS:
        raise ConfigurationError(f"method {method!r} is invalid: use one of {', '.join(_METHODS)}")
    if method == "json_mode" and strict is not None:
        raise ConfigurationError("strict= is invalid with method='json_mode': leave it out")
    keywords = _keywords(target, method, strict)
    if taken := sorted(keywords.keys() & given.keys()):
        raise ConfigurationError(f"{', '.join(taken)} is set by method={method!r} and cannot be passed: leave it out")
    trace = {"kwargs": {"method": method}, "schema": target.schema}
    parser = AnswerParser(
        tool_name=target.name if method == "function_calling" else None, cls=target.cls, answer_schema=target.schema
    )
    return {**keywords, "ls_structured_output_format": trace, **given}, parser


def value_or_raw(parser: AnswerParser) -> RunnableGenerator[BaseMessage, Fields]:
    """Return a runnable that yields the raw answer, its value and the parsing error."""
    return RunnableGenerator(parser.transform_with_raw, parser.atransform_with_raw)


def _best_method(model: str) -> Method:
    """Return the best method for a model. For an unknown model, this is a forced tool call."""
    card = lookup(model)
    return "json_schema" if card.tools is False or card.prefers_schema else "function_calling"


def _keywords(target: Target, method: Method, strict: bool | None) -> Fields:
    """Return the keywords of the call."""
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


def _named_format(target: Target, stated: dict[str, bool]) -> Fields:
    named = {"name": target.name, "schema": target.schema, **stated}
    if description := target.schema.get("description"):
        named["description"] = description
    return {"type": "json_schema", "json_schema": named}


def response_format_of(given: Schema) -> Fields:
    """Return ``response_format`` in its wire form: a dict unchanged, a class as its schema.

    Raises:
        ConfigurationError: The class cannot become a schema.
    """
    return given if isinstance(given, dict) else _named_format(_target_of(given), {})


def _target_of(schema: Schema) -> Target:
    """Return the target of a schema of any supported kind.

    Raises:
        ConfigurationError: ``schema`` is not a supported kind, or cannot become a JSON schema.
    """
    if isinstance(schema, dict):
        return _of_dict(schema)
    cls = schema if is_basemodel_subclass(schema) else None
    # ``__required_keys__`` marks a TypedDict of typing and of typing_extensions.
    if not (cls or hasattr(schema, "__required_keys__") or (isinstance(schema, type) and is_dataclass(schema))):
        name = schema.__name__ if isinstance(schema, type) else type(schema).__name__
        raise ConfigurationError(f"schema must be a Pydantic class, a TypedDict or a dict, not {name}")
    try:
        converted: Fields = without_dict_docs(convert_to_json_schema(schema))
    except (TypeError, ValueError) as exc:
        raise ConfigurationError(
            f"schema {schema.__name__} cannot become a JSON schema ({exc}): use types that JSON supports"
        ) from exc
    converted = (cls and recursive_schema(cls)) or converted
    return Target(_wire_name(converted.get("title") or schema.__name__), converted, cls)


def _of_dict(schema: Fields) -> Target:
    """Return the target of a JSON schema, bare or in the envelope of a tool, a function or ``response_format``."""
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
            "schema is neither a JSON schema nor an OpenAI function: add type, properties or parameters"
        )
    return Target(_wire_name(schema.get("title") or "response"), schema, None)


def _wire_name(name: str) -> str:
    """Return a name without characters that are invalid in function names, such as the brackets of a generic class."""
    return _NOT_IN_A_NAME.sub("_", name)[:64] or "response"
