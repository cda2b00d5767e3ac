"""Argument checks that settings and wire translation share."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable


__all__ = [
    "check_header",
    "require",
    "require_int",
    "require_kind",
    "require_one_of",
    "OnBusy",
    "check_model",
    "check_on_busy",
    "unknown_keyword",
]

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")


def check_header(name: str, value: str) -> None:
    """Check that a header can be sent; its value, which may be a secret, is not shown.

    Raises:
        ConfigurationError: Name or value has characters that a header cannot carry.
    """
    if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name)):
        raise ConfigurationError(f"header name {name!r} has characters that a header cannot carry")
    if not (isinstance(value, str) and _HEADER_VALUE.fullmatch(value)):
        raise ConfigurationError(f"the value of header {name} is no text, or has characters that a header cannot carry")


def require(condition: bool, message: str) -> None:
    """Raise ``ConfigurationError(message)`` unless ``condition`` holds."""
    if not condition:
        raise ConfigurationError(message)


def require_kind(name: str, value: Any, kinds: type | tuple[type, ...], what: str) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is None or of one of the kinds; it is not shown."""
    if not (value is None or isinstance(value, kinds)):
        raise ConfigurationError(f"{name} must be {what}, not {type(value).__name__}")


def require_one_of(name: str, value: Any, options: tuple[Any, ...]) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is one of ``options``."""
    if value not in options:
        raise ConfigurationError(f"{name} {value!r:.200} is not one of {', '.join(map(str, options))}")


def require_int(name: str, value: int | None, low: int, high: int | None) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is None or a whole number from ``low`` to ``high``."""
    if value is None or (type(value) is int and low <= value and (high is None or value <= high)):
        return
    bound = f"between {low:,} and {high:,}" if high is not None else f"{low} or more"
    raise ConfigurationError(f"{name} must be a whole number {bound}, not {value!r}")


OnBusy: TypeAlias = Literal["wait", "retry", "raise"]


_LONGEST_MODEL: Final = 1000


_MODEL = re.compile(r"[^\s?#%\\\x00-\x1f\x7f]+")


def check_on_busy(on_busy: OnBusy) -> None:
    """Raise ``ConfigurationError`` unless ``on_busy`` is one of its three values."""
    require_one_of("on_busy", on_busy, ("wait", "retry", "raise"))


def check_model(model: str) -> str:
    """Return ``model`` if it is a well-formed id; known or not does not matter.

    Raises:
        ConfigurationError: It is empty or could bend the URL.
    """
    fits = isinstance(model, str) and len(model) <= _LONGEST_MODEL and _MODEL.fullmatch(model)
    if not fits or ".." in model or "//" in model or model[0] == "/":
        raise ConfigurationError(
            f"model {model!r:.200} is malformed: use an id such as '@cf/meta/llama-3.3-70b-instruct-fp8-fast' "
            "(no white space, '..', '?', '#' or '%')"
        )
    return model


def unknown_keyword(owner: str, name: str, known: Iterable[str], extra: str) -> ConfigurationError:
    """The error for a keyword that ``owner`` does not have; names the nearest one it has and where extras go."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"extra body fields go in {extra}"
    return ConfigurationError(f"{owner} has no keyword {name!r}; {hint}")
