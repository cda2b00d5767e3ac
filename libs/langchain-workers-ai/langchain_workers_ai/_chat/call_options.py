"""Keywords of one call and of a constructor."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from langchain_core.runnables.config import var_child_runnable_config
from pydantic import SecretStr

from langchain_workers_ai._chat.profiles import ResolvedProfile
from langchain_workers_ai.errors import ConfigurationError
from workers_ai.integration import CHAT_PARAMS, PER_CALL, masked_headers, require_kind, unknown_keyword

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    "constructor_keywords",
    "mask_keywords",
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
_TRANSLATED: Final = frozenset({"functions", "function_call", "reasoning", "logit_bias", "n"})
"""Keywords of the OpenAI SDK that are translated to other keywords."""
_IGNORED: Final = frozenset(
    {"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "verbosity", "modalities",
     "prediction", "cache_control", "betas", "truncation", "include", "previous_response_id", "prompt_cache_retention",
     "include_response_headers", "extra_query"}
)  # fmt: skip
"""Keywords of other providers that have no meaning here. They are ignored with a warning."""
_TRANSPORT: Final = PER_CALL - {"extra_body"} | {"stream_usage"}
"""Keywords that change how a request is sent, but not its answer."""


def read_keywords(owner: str, given: Mapping[str, object]) -> dict[str, object]:
    """Return the keywords of one call by their own names.

    Keywords of the OpenAI SDK are translated. Keywords without a meaning here are ignored with one warning.

    Raises:
        ConfigurationError: A keyword is unknown (the message suggests the nearest known one), or given twice.
    """
    options: dict[str, object] = {}
    ignored = []
    for name, value in given.items():
        own = _ALIASES.get(name, name)
        if name in _IGNORED:
            ignored += [name] if value is not None else []
        elif name in _TRANSLATED:
            continue
        elif own not in _OWN:
            raise unknown_keyword(f"a call of {owner}", name, {*_OWN, *_ALIASES}, "model_kwargs")
        elif options.get(own) is None:
            options[own] = value
        elif value is not None:
            raise ConfigurationError(f"a call of {owner} has {own} twice, once as {name}: pass it once")
    _warn_ignored(owner, ignored)
    return {**options, **_translated(owner, given, options)}


def _warn_ignored(owner: str, names: Sequence[str]) -> None:
    """Warn about ignored keywords."""
    if names:
        warnings.warn(
            f"{owner} ignores {', '.join(sorted(names))}: Workers AI has no such parameter; "
            "pass additional fields of the body in model_kwargs",
            stacklevel=2,
        )


def _translated(owner: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of the OpenAI SDK as keywords of this package."""
    out: dict[str, Any] = {}
    _check_one_answer(owner, given.get("n"))
    if functions := given.get("functions"):
        out["tools"] = [{"type": "function", "function": function} for function in functions]
        choice = given.get("function_call")
        if choice is not None:
            out["tool_choice"] = choice
    reasoning = given.get("reasoning")
    if isinstance(reasoning, Mapping) and "effort" in reasoning and "reasoning_effort" not in options:
        out["reasoning_effort"] = reasoning["effort"]
    if (bias := given.get("logit_bias")) is not None:
        out["extra_body"] = {"logit_bias": bias, **(options.get("extra_body") or {})}
    return out


def constructor_keywords(owner: str, given: dict[str, Any], fields: frozenset[str]) -> dict[str, object]:
    """Return the keywords of a constructor. Keywords of the OpenAI SDK are translated or ignored, as for a call.

    Args:
        owner: Name of the class, for errors and warnings.
        given: The keywords.
        fields: Names of the fields of the class.

    Raises:
        ConfigurationError: ``n`` is not 1.
    """
    foreign = (_IGNORED | _TRANSLATED) - fields
    data = {name: value for name, value in given.items() if name not in foreign}
    if isinstance(data.get("profile"), ResolvedProfile):  # copied from an object whose model may differ
        del data["profile"]
    if len(data) < len(given):
        _warn_ignored(owner, [name for name in _IGNORED - fields if given.get(name) is not None])
        translated = _translated(owner, {name: given[name] for name in foreign & given.keys()}, data)
        if (body := translated.pop("extra_body", None)) is not None:
            own = data.pop("model_kwargs", None) or data.pop("extra_body", None) or {}
            translated["model_kwargs"] = {**body, **own}
        data |= {name: value for name, value in translated.items() if name in fields}
    return data


def _check_one_answer(owner: str, n: object) -> None:
    """Raise ``ConfigurationError`` if ``n`` is not 1."""
    if n not in (None, 1):
        raise ConfigurationError(f"{owner} has n={n!r}: the service returns one answer per call; use batch()")


def traced_keywords(given: Mapping[str, object]) -> dict[str, object]:
    """Return the keywords that can change the answer: only these belong in a trace and a cache key."""
    return {name: value for name, value in given.items() if name not in _TRANSPORT}


def mask_keywords(given: dict[str, Any]) -> dict[str, object]:
    """Return keywords with secrets masked."""
    masked = dict(given)
    if given.get("extra_headers"):
        masked["extra_headers"] = masked_headers("extra_headers", given["extra_headers"])
    gateway = given.get("gateway")
    if isinstance(gateway, Mapping) and isinstance(gateway.get("token"), str):
        masked["gateway"] = {**gateway, "token": SecretStr(gateway["token"])}
    return masked


def pick_stop(first: object, second: object) -> list[str] | None:
    """Return the first of two stop arguments that is set, as a list.

    Raises:
        ConfigurationError: It is neither a string nor a list.
    """
    given = second if first is None else first
    if given is None or isinstance(given, str):
        return None if given is None else [given]
    if not isinstance(given, (list, tuple)):
        raise ConfigurationError(f"stop must be a string or a list of strings, not {given!r}")
    return list(given)


def thread_id(run_manager: BaseRunManager | None) -> str | None:
    """Return the ``thread_id`` of the LangGraph run of this call, or None."""
    config = var_child_runnable_config.get()
    found = ((config or {}).get("configurable") or {}).get("thread_id")
    if found is None and run_manager is not None:
        found = (run_manager.metadata or {}).get("thread_id")
    return None if found is None else str(found)


def merge_body(*given: Mapping[str, Data] | None) -> Fields:
    """Return the additional fields of the body. A later field replaces an earlier one of the same name.

    Raises:
        ConfigurationError: An argument is not a dict.
    """
    out: Fields = {}
    for fields in given:
        require_kind("model_kwargs", fields, dict, "a dict of fields of the body")
        out |= fields or {}
    return out
