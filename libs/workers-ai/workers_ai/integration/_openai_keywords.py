"""Keywords of the OpenAI SDK and of other providers: translated, or ignored with one warning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = [
    "FOREIGN_KEYWORDS",
    "TRANSLATED_KEYWORDS",
    "check_one_answer",
    "translated_arguments",
    "translated_keywords",
    "warn_ignored",
]

FOREIGN_KEYWORDS: Final = frozenset(
    {"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "verbosity", "modalities",
     "prediction", "cache_control", "betas", "truncation", "include", "previous_response_id", "prompt_cache_retention",
     "include_response_headers", "extra_query"}
)  # fmt: skip
"""Keywords of other providers that have no meaning here."""

TRANSLATED_KEYWORDS: Final = frozenset({"functions", "function_call", "reasoning", "logit_bias", "n"})
"""Keywords of the OpenAI SDK that are translated to other keywords of a chat call."""


def warn_ignored(owner: str, names: Collection[str], extra: str) -> None:
    """Warn about ignored keywords; do nothing if ``names`` is empty.

    Args:
        owner: Name of the class.
        names: The ignored keywords.
        extra: Keyword for additional fields of the request body.
    """
    if names:
        warnings.warn(
            f"{owner} ignores {', '.join(sorted(names))}: Workers AI has no such parameter; "
            f"pass additional fields of the body in {extra}",
            stacklevel=2,
        )


def check_one_answer(owner: str, n: object) -> None:
    """Check that a call requests one answer.

    Raises:
        ConfigurationError: ``n`` is neither None nor 1.
    """
    if n not in (None, 1):
        raise ConfigurationError(
            f"{owner} has n={n!r:.100}: the service returns one answer per call; send one call per answer"
        )


def translated_keywords(owner: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of the OpenAI SDK as keywords of a chat call.

    Args:
        owner: Name of the class, for errors.
        given: Keywords; those of :data:`TRANSLATED_KEYWORDS` are read.
        options: Other keywords of the call. They take precedence.

    Raises:
        ConfigurationError: ``n`` is not 1.
    """
    out: dict[str, Any] = {}
    check_one_answer(owner, given.get("n"))
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


def translated_arguments(owner: str, given: dict[str, Any], fields: Collection[str], extra: str) -> dict[str, Any]:
    """Return the keywords of a chat model's constructor, with those of the OpenAI SDK translated.

    Args:
        owner: Name of the class, for errors.
        given: The keywords.
        fields: Names of the fields of the class.
        extra: Name of the field with additional fields of the request body.

    Raises:
        ConfigurationError: ``n`` is not 1.
    """
    foreign = TRANSLATED_KEYWORDS - set(fields) & given.keys()
    if not foreign:
        return given
    data = {name: value for name, value in given.items() if name not in foreign}
    translated = translated_keywords(owner, {name: given[name] for name in foreign}, data)
    if (body := translated.pop("extra_body", None)) is not None:
        own = data.pop(extra, None) or data.pop("extra_body", None) or {}
        translated[extra] = {**body, **own}
    return data | {name: value for name, value in translated.items() if name in fields}
