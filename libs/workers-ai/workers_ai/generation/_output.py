"""The form of the answers: free text, a schema, or one of several labels."""

from __future__ import annotations

import functools
import json
import operator
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import EnumType
from functools import cached_property
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from workers_ai._wire.chat.schema_validation import conform, schema_fault
from workers_ai._wire.chat.schemas import inline_refs, schema_of
from workers_ai._wire.json_parsing import after_reasoning, parse_answer
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from workers_ai.types import JSON

__all__ = ["OutputFormat"]

_MAX_LABELS: Final = 200
_QUOTES: Final = " \t\r\n\"'`*."


class OutputFormat:
    """The form of the answers, and how to parse them.

    Args:
        schema: A Pydantic class, a TypedDict, another type that pydantic understands, a JSON schema, or None.
        labels: Labels, or None. Each answer is one of them.

    Raises:
        ConfigurationError: Both are given, or one of them is invalid.
    """

    def __init__(self, schema: object = None, labels: Sequence[str] | None = None) -> None:
        if schema is not None and labels is not None:
            raise ConfigurationError("pass schema or labels, not both", arguments=("schema", "labels"))
        self.labels = None if labels is None else _checked_labels(labels)
        self._given = schema
        self._adapter: TypeAdapter[Any] | None = None
        self.schema: dict[str, JSON] | None = None
        if self.labels is not None:
            choice = {"type": "string", "enum": list(self.labels)}
            self.schema = {
                "type": "object", "title": "Label", "properties": {"label": choice}, "required": ["label"],
                "additionalProperties": False,
            }  # fmt: skip
        elif isinstance(schema, Mapping):
            self.schema = _json_schema(schema)
        elif schema is not None:
            self._adapter, self.schema = _adapter_of(schema)

    @property
    def is_text(self) -> bool:
        """Whether answers are free text."""
        return self.schema is None

    @property
    def response_format(self) -> dict[str, JSON] | None:
        """The parameter that requests this form; None for free text."""
        if self.schema is None:
            return None
        name = self.schema.get("title")
        return {
            "type": "json_schema",
            "json_schema": {"name": name if isinstance(name, str) and name else "response", "schema": self.schema},
        }

    @cached_property
    def instruction(self) -> str:
        """A system message that requests this form, for models without a parameter for it."""
        shown = json.dumps(inline_refs(self.schema), ensure_ascii=False, separators=(",", ":"))
        return f"Answer with JSON only, without any text around it. The JSON must fit this schema: {shown}"

    def parse(self, text: str) -> Any:
        """Return the value in an answer: an object of the class, JSON data, or a label; None for free text.

        Raises:
            ValueError: The answer does not match the schema or the labels.
        """
        if self.schema is None:
            return None
        if not text.strip():
            raise ValueError("the answer is empty")
        if self.labels is not None:
            return self._label(text)
        try:
            return self._value(parse_answer(text))
        except ValueError:
            raise
        except Exception as exc:  # a validator of the class may raise any error
            raise ValueError(f"{type(exc).__name__}: {exc}") from exc

    def _value(self, value: JSON) -> Any:
        assert self.schema is not None
        if self._adapter is not None:
            # As JSON: strict classes accept texts for dates and enumerations only from JSON.
            return self._adapter.validate_json(json.dumps(value))
        if self.schema.get("type") == "object" and not isinstance(value, dict):
            raise ValueError(f"the answer is a JSON {type(value).__name__}, not an object")
        return conform(value, self.schema)

    def _label(self, text: str) -> str:
        assert self.labels is not None
        found: JSON = after_reasoning(text)
        if str(found).lstrip().startswith(("{", '"', "`")):
            with suppress(ValueError):
                value = parse_answer(text)
                found = value.get("label") if isinstance(value, dict) else value
        word = found if isinstance(found, str) else json.dumps(found)
        for form in (str.strip, _bare, lambda label: _bare(label).casefold()):
            fitting = [label for label in self.labels if form(label) == form(word)]
            if len(fitting) == 1:
                return fitting[0]
        raise ValueError(f"the answer {text!r:.100} is not one of the labels")


def _bare(text: str) -> str:
    """Return a label without quotation marks around it, in the composed form of Unicode."""
    return unicodedata.normalize("NFC", text.strip(_QUOTES))


def _checked_labels(labels: Sequence[str]) -> tuple[str, ...]:
    is_list = isinstance(labels, (Sequence, EnumType)) and not isinstance(labels, str)
    if not is_list or not all(isinstance(label, str) and label.strip() for label in labels):
        raise ConfigurationError(f"labels must be a list of non-blank texts, not {labels!r:.200}")
    if not 2 <= len(labels) <= _MAX_LABELS:
        raise ConfigurationError(f"labels must be 2 to {_MAX_LABELS} texts, not {len(labels)}")
    repeated = {label for label in labels if list(labels).count(label) > 1}
    if repeated:
        raise ConfigurationError(f"labels contains {min(repeated)!r} more than once: pass each label once")
    return tuple(labels)


def _json_schema(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    try:
        bare, name, _ = schema_of({"type": "json_schema", "json_schema": dict(schema)})
    except ConfigurationError:
        raise ConfigurationError(f"schema {dict(schema)!r:.200} is not a JSON schema: add type or properties") from None
    if not {"type", "properties", "anyOf", "oneOf", "allOf", "$ref", "enum", "const"} & bare.keys():
        raise ConfigurationError(f"schema {dict(bare)!r:.200} is not a JSON schema: add type or properties")
    if why := schema_fault(bare):
        raise ConfigurationError(f"schema {dict(bare)!r:.200} is not a JSON schema: {why}")
    return {**({"title": name} if name and "title" not in bare else {}), **bare}


def _adapter_of(schema: object) -> tuple[TypeAdapter[Any], dict[str, JSON]]:
    from pydantic import TypeAdapter

    name = getattr(schema, "__name__", repr(schema))
    if isinstance(schema, (str, bytes, int, float, list, tuple)):
        raise ConfigurationError(f"schema must be a class or a JSON schema, not {schema!r:.200}")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(_supported(schema))
        found = adapter.json_schema()
    except Exception as exc:
        raise ConfigurationError(f"schema {name:.200} cannot be converted to a JSON schema: {exc!s:.300}") from exc
    return adapter, {"title": name, **found}


def _supported(kind: Any) -> Any:
    """Return a type with the TypedDicts of ``typing`` replaced: before Python 3.12 pydantic rejects those."""
    import typing_extensions as extensions

    if sys.version_info >= (3, 12):
        return kind
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        fields: dict[str, Any] = {}
        for name, hint in hints.items():
            bare = get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
            wrap = extensions.Required if name in kind.__required_keys__ else extensions.NotRequired
            fields[name] = wrap[_supported(bare)]
        make: Any = extensions.TypedDict
        return make(kind.__name__, fields)
    origin, args = get_origin(kind), get_args(kind)
    if not any(is_typeddict(part) or get_args(part) for part in args):
        return kind
    parts = tuple(map(_supported, args))
    if origin in (Union, UnionType):
        return functools.reduce(operator.or_, parts)
    return kind if origin in (Literal, Annotated) else origin[parts]
