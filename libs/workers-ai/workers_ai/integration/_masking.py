"""Mask the secrets among the arguments of a framework's methods, before other frames of a call receive them."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, TypeVar

from workers_ai._settings.secrets import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["masks_arguments"]

AnyClass = TypeVar("AnyClass", bound=type)


def masks_arguments(*names: str) -> Callable[[AnyClass], AnyClass]:
    """Return a class decorator that makes methods mask secrets in their keywords, and in options passed as a dict.

    Otherwise the frames of the framework would show ``extra_headers`` and gateway tokens in a traceback.
    """

    def decorate(cls: AnyClass) -> AnyClass:
        for name in names:
            setattr(cls, name, _masking(getattr(cls, name)))
        return cls

    return decorate


def _masking(method: Callable[..., object]) -> Callable[..., object]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def acall(*args: object, **kwargs: object) -> object:
            args = _masked(args, kwargs)
            return await method(*args, **kwargs)

        return acall

    @functools.wraps(method)
    def call(*args: object, **kwargs: object) -> object:
        args = _masked(args, kwargs)
        return method(*args, **kwargs)

    return call


def _masked(args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
    """Mask keywords in place. Return the positional arguments masked."""
    if kwargs:
        mask_secrets(kwargs)
        for name, value in kwargs.items():
            if type(value) is dict:
                kwargs[name] = _masked_options(value)
    if dict in map(type, args):
        return tuple(map(_masked_options, args))
    return args


def _masked_options(value: object) -> object:
    if type(value) is not dict:
        return value
    masked = {name: one for name, one in value.items() if isinstance(name, str)}
    mask_secrets(masked)
    changed = {name: one for name, one in masked.items() if one is not value[name]}
    return {**value, **changed} if changed else value
