"""Keywords of one call, and the types of what is bound to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from langchain_workers_ai.errors import ConfigurationError
from workers_ai.config import unknown_keyword
from workers_ai.wire.params import CHAT_PARAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langchain_core.tools import BaseTool

    Tool: TypeAlias = dict[str, Any] | type | Callable[..., Any] | BaseTool
else:
    Tool = Any  # the module of LangChain's tools is not imported for the sake of a name

__all__ = ["Method", "Schema", "Tool", "check_keywords", "stop_of"]

Schema: TypeAlias = dict[str, Any] | type
Method: TypeAlias = Literal["function_calling", "json_schema", "json_mode"]

_PER_CALL: Final = CHAT_PARAMS | {
    "model", "model_name", "stop_sequences", "api", "on_busy", "reject_if_busy", "session_id", "model_kwargs",
    "stream", "stream_usage",
}  # fmt: skip


def check_keywords(owner: str, names: Iterable[str]) -> None:
    """Refuse what no call takes: a mistyped name must never end in a request body.

    Raises:
        ConfigurationError: A keyword is not known; names the nearest one that is.
    """
    for name in names:
        if name not in _PER_CALL:
            raise unknown_keyword(f"a call of {owner}", name, _PER_CALL, "model_kwargs")


def stop_of(first: Sequence[str] | str | None, second: Sequence[str] | str | None) -> list[str] | None:
    """The first of two that was given, as a list.

    Raises:
        ConfigurationError: It is neither a text nor a list.
    """
    given = second if first is None else first
    if given is None or isinstance(given, str):
        return None if given is None else [given]
    if not isinstance(given, (list, tuple)):
        raise ConfigurationError(f"stop must be a text or a list of texts, not {given!r}")
    return list(given)
