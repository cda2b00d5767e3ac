"""Mask secrets among arguments, so that no repr and no local variable in a traceback shows them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import SecretStr

from workers_ai._validation import unknown_keyword
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Any

__all__ = ["blank", "masked_text", "masked_url", "masked_values", "masks_fields"]

AnyClass = TypeVar("AnyClass", bound=type)

_USER_OF_URL: Final = re.compile(r"//.*(?<!/)@")
"""Pattern of user and password in a URL. It does not match a model id, whose ``@`` follows a slash."""
_QUERY_OF_URL: Final = re.compile(r"([?#]).*")


def blank(value: object) -> object:
    """Return an empty value of the same type for a value that may contain a secret. Errors show only the type."""
    return type(value)() if isinstance(value, (str, bytes, bytearray, list, tuple, set, dict)) else value


def masked_text(value: object) -> object:
    """Return a text as ``SecretStr``; :func:`blank` of any other value."""
    return SecretStr(value) if isinstance(value, str) else blank(value)


def masked_values(headers: object) -> object:
    """Return a mapping with its values masked; :func:`blank` of any other value."""
    if not isinstance(headers, Mapping):
        return blank(headers)
    return {name: masked_text(value) for name, value in headers.items()}


def masked_url(url: object) -> object:
    """Return a URL with user, password and query replaced. Such a URL is rejected."""
    if not isinstance(url, str):
        return blank(url)
    return _QUERY_OF_URL.sub(r"\1redacted", _USER_OF_URL.sub("//redacted@", url))


def masks_fields(**masks: Callable[[object], object]) -> Callable[[AnyClass], AnyClass]:
    """Return a decorator of a dataclass: its constructor masks the named fields before it checks any.

    The constructor raises ``ConfigurationError`` for an unknown keyword, and removes the value: the keyword may be a
    misspelt secret. The tracebacks of its errors omit the frames of the checks.
    """

    def decorate(cls: AnyClass) -> AnyClass:
        create: Callable[..., None] = cls.__init__  # type: ignore[misc]
        names = [item.name for item in fields(cls) if item.init]

        def masked(name: str, value: object) -> object:
            return masks[name](value) if name in masks else value if name in names else blank(value)

        @functools.wraps(create)
        def masked_create(self: object, *args: Any, **kwargs: Any) -> None:
            args = (*map(masked, names, args), *args[len(names) :])
            kwargs |= {name: masked(name, value) for name, value in kwargs.items()}
            try:
                if unknown := kwargs.keys() - set(names):
                    raise unknown_keyword(cls.__name__, min(unknown), names)
                create(self, *args, **kwargs)
            except ConfigurationError as exc:
                error = exc
            else:
                return
            raise error.with_traceback(None)

        cls.__init__ = masked_create  # type: ignore[misc]
        return cls

    return decorate
