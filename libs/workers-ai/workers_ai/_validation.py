"""Argument checks that settings and wire translation share."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import SecretStr

__all__ = [
    "OnBusy",
    "check_header",
    "check_model",
    "check_on_busy",
    "require",
    "require_int",
    "require_kind",
    "require_one_of",
    "unknown_keyword",
]

OnBusy: TypeAlias = Literal["wait", "retry", "raise"]
"""What to do when the service is at capacity: wait in its capacity queue, retry with backoff, or raise."""

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_LONGEST_MODEL: Final = 1000
_MODEL: Final = re.compile(r"[^\s?#%\\\x00-\x1f\x7f\ud800-\udfff]+")


def check_header(name: str, value: SecretStr | str) -> None:
    """Check that a header can be sent. The error does not show the value, which may be a secret.

    Raises:
        ConfigurationError: Name or value is not text, or contains a character that headers do not allow.
    """
    if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name)):
        raise ConfigurationError(
            f"header name {name!r} contains a character that header names do not allow: use letters, digits and hyphens"
        )
    if not _is_header_value(value):
        raise ConfigurationError(
            f"the value of header {name} must be text of printable ASCII characters, without line breaks"
        )


def _is_header_value(value: object) -> bool:
    reveal = getattr(value, "get_secret_value", None)
    text = value if reveal is None else reveal()
    return isinstance(text, str) and bool(_HEADER_VALUE.fullmatch(text))


def require(condition: bool, message: str, *arguments: str) -> None:
    """Raise ``ConfigurationError(message, arguments=arguments)`` unless ``condition`` holds."""
    if not condition:
        raise ConfigurationError(message, arguments=arguments)


def require_kind(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is None or an instance of ``kinds``. The value is not shown."""
    if not (value is None or isinstance(value, kinds)):
        raise ConfigurationError(f"{name} must be {expected}, not {type(value).__name__}", arguments=(name,))


def require_one_of(name: str, value: object, options: tuple[object, ...]) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is one of ``options``."""
    if value not in options:
        raise ConfigurationError(
            f"{name} {value!r:.200} is not one of {', '.join(map(str, options))}", arguments=(name,)
        )


def require_int(name: str, value: int | None, low: int, high: int | None) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is None or a whole number from ``low`` to ``high``."""
    if value is None or (type(value) is int and low <= value and (high is None or value <= high)):
        return
    bound = f"between {low:,} and {high:,}" if high is not None else f"{low} or more"
    raise ConfigurationError(f"{name} must be a whole number {bound}, not {value!r}", arguments=(name,))


def check_on_busy(on_busy: OnBusy) -> OnBusy:
    """Return ``on_busy``.

    Raises:
        ConfigurationError: ``on_busy`` is not ``"wait"``, ``"retry"`` or ``"raise"``.
    """
    require_one_of("on_busy", on_busy, ("wait", "retry", "raise"))
    return on_busy


def check_model(model: str) -> str:
    """Return ``model`` if it is a well-formed id. The catalogue need not contain it.

    Raises:
        ConfigurationError: ``model`` is empty, too long, or contains characters that change the URL.
    """
    fits = isinstance(model, str) and len(model) <= _LONGEST_MODEL and _MODEL.fullmatch(model)
    if not fits or ".." in model or "//" in model or model[0] == "/":
        raise ConfigurationError(
            f"model {model!r:.200} is malformed: use an id such as '@cf/meta/llama-3.3-70b-instruct-fp8-fast' "
            "(no white space, '..', '?', '#' or '%')",
            arguments=("model",),
        )
    return model


def unknown_keyword(owner: str, name: str, known: Iterable[str], extra: str | None = None) -> ConfigurationError:
    """Return the error for an unknown keyword of ``owner``.

    The message suggests the most similar keyword of ``known``. If none is similar, it mentions ``extra``, the keyword
    for extra body fields. Without ``extra``, it lists all known keywords.
    """
    names = sorted(known)
    if near := difflib.get_close_matches(name, names, n=1, cutoff=0.6):
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"extra body fields go in {extra}" if extra else f"it accepts {', '.join(names)}"
    return ConfigurationError(f"{owner} has no keyword {name!r}; {hint}")
