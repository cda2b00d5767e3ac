"""Keywords of one call and of a constructor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from langchain_core.runnables.config import var_child_runnable_config

from langchain_workers_ai.errors import ConfigurationError
from workers_ai.integration import (
    CHAT_PARAMS,
    FOREIGN_KEYWORDS,
    PER_CALL,
    TRANSLATED_KEYWORDS,
    require_kind,
    translated_keywords,
    unknown_keyword,
    warn_ignored,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.callbacks import BaseRunManager
    from langchain_core.tools import BaseTool

    from langchain_workers_ai._types import Data, Fields

    Tool: TypeAlias = Mapping[str, object] | type | Callable[..., object] | BaseTool
else:
    Tool = object  # importing LangChain's tools takes time

__all__ = [
    "Method",
    "Schema",
    "Tool",
    "merge_body",
    "pick_stop",
    "read_keywords",
    "thread_id",
    "traced_keywords",
]

Schema: TypeAlias = dict[str, Any] | type
Method: TypeAlias = Literal["function_calling", "json_schema", "json_mode"]

_OWN: Final = CHAT_PARAMS | PER_CALL | {"model", "api", "model_kwargs", "stream", "stream_usage"}
_ALIASES: Final = {
    "model_name": "model",
    "stop_sequences": "stop",
    "max_completion_tokens": "max_tokens",
    "request_timeout": "timeout",
}
"""Aliases of this package and of the OpenAI SDK."""

_TRANSPORT: Final = PER_CALL - {"extra_body"} | {"stream_usage"}
"""Keywords that change how a request is sent, but not its answer."""


def read_keywords(owner: str, given: Mapping[str, object]) -> dict[str, object]:
    """Return the keywords of one call, with aliases replaced.

    Keywords of the OpenAI SDK are translated. Keywords without an effect here are ignored with one warning.

    Raises:
        ConfigurationError: A keyword is unknown (the message suggests the nearest known one), or given twice.
    """
    options: dict[str, object] = {}
    ignored = []
    for name, value in given.items():
        own = _ALIASES.get(name, name)
        if name in FOREIGN_KEYWORDS:
            ignored += [name] if value is not None else []
        elif name in TRANSLATED_KEYWORDS:
            continue
        elif own not in _OWN:
            raise unknown_keyword(f"a call of {owner}", name, {*_OWN, *_ALIASES}, "model_kwargs")
        elif options.get(own) is None:
            options[own] = value
        elif value is not None:
            raise ConfigurationError(f"a call of {owner} has {own} twice, once as {name}: pass it once")
    warn_ignored(owner, ignored, "model_kwargs")
    return {**options, **translated_keywords(owner, given, options)}


def traced_keywords(given: Mapping[str, object]) -> dict[str, object]:
    """Return the keywords that can change the answer. Traces and cache keys contain only these."""
    return {name: value for name, value in given.items() if name not in _TRANSPORT}


def pick_stop(first: object, second: object) -> list[str] | None:
    """Return the first of two stop arguments that is set, as a list.

    Raises:
        ConfigurationError: The argument is neither a string nor a list.
    """
    given = second if first is None else first
    if given is None or isinstance(given, str):
        return None if given is None else [given]
    if not isinstance(given, (list, tuple)):
        raise ConfigurationError(f"stop must be a string or a list of strings, not {given!r:.200}")
    return list(given)


def thread_id(run_manager: BaseRunManager | None) -> str | None:
    """Return the ``thread_id`` of the LangGraph run of this call, or None."""
    config = var_child_runnable_config.get()
    found = ((config or {}).get("configurable") or {}).get("thread_id")
    if found is None and run_manager is not None:
        found = (run_manager.metadata or {}).get("thread_id")
    return None if found is None else str(found)


def merge_body(*given: Mapping[str, Data] | None) -> Fields:
    """Merge dicts of additional body fields. A later field replaces an earlier field of the same name.

    Raises:
        ConfigurationError: An argument is not a dict.
    """
    out: Fields = {}
    for fields in given:
        require_kind("model_kwargs", fields, dict, "a dict of fields of the body")
        out |= fields or {}
    return out
