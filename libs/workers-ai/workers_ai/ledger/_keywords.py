"""Keywords of a run: its options, and the arguments of the client that it creates."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from workers_ai._settings.secrets import mask_secrets
from workers_ai._settings.settings import CLIENT_KEYWORDS, reject_settings, setting_parameters
from workers_ai._validation import unknown_keyword
from workers_ai.client import AsyncClient, Client, ClientArguments

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping


__all__ = ["async_client", "check_keywords", "split_keywords", "sync_client", "with_signature"]

Options = TypeVar("Options")
Function = TypeVar("Function", bound="Callable[..., object]")


def with_signature(options: type, defaults: type, *, settings: bool = False) -> Callable[[Function], Function]:
    """Return a decorator that lists each keyword in the signature of a function, in place of ``**keywords``.

    Args:
        options: The typed dict of the keywords.
        defaults: The class whose constructor has their defaults.
        settings: Whether to list the settings of a client, too.
    """

    def decorate(function: Function) -> Function:
        *own, _ = inspect.signature(function).parameters.values()
        fields = inspect.signature(defaults).parameters
        listed = [fields[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in options.__annotations__]
        listed += setting_parameters() if settings else []
        function.__signature__ = inspect.signature(function).replace(parameters=[*own, *listed])  # type: ignore[attr-defined]
        return function

    return decorate


def split_keywords(
    keywords: Mapping[str, object], options: type[Options], owner: str
) -> tuple[Options, ClientArguments]:
    """Return the options of a run, and the arguments of its client, secrets masked.

    Args:
        keywords: Keywords of the call. Secrets are masked in place, so that they are in no traceback.
        options: The typed dict of the options.
        owner: The function, for the error.

    Raises:
        ConfigurationError: A keyword is unknown.
    """
    names = options.__annotations__.keys()
    mask_secrets(cast("dict[str, object]", keywords), CLIENT_KEYWORDS | names)
    own = {name: value for name, value in keywords.items() if name in names}
    rest = {name: value for name, value in keywords.items() if name not in names}
    known = CLIENT_KEYWORDS | ClientArguments.__annotations__.keys()
    if unknown := rest.keys() - known:
        raise unknown_keyword(owner, min(unknown), known | names)
    return cast("Options", own), cast("ClientArguments", rest)


def check_keywords(keywords: Options, options: type[Options], owner: str) -> Options:
    """Return ``keywords`` if all of them are options of ``owner``.

    Raises:
        ConfigurationError: A keyword is unknown.
    """
    names, given = options.__annotations__.keys(), cast("dict[str, object]", keywords)
    mask_secrets(given, names)
    if unknown := given.keys() - names:
        raise unknown_keyword(owner, min(unknown), names)
    return keywords


@contextmanager
def sync_client(owner: str, given: Client | None, settings: ClientArguments) -> Generator[Client]:
    """Yield the client of a run: the given one, or one that is created and closed here.

    Raises:
        ConfigurationError: A setting is unknown or malformed, or settings are passed together with a client.
    """
    if given is not None:
        reject_settings(owner, settings)
        yield given
        return
    with Client(**settings) as client:
        yield client


@asynccontextmanager
async def async_client(owner: str, given: AsyncClient | None, settings: ClientArguments) -> AsyncGenerator[AsyncClient]:
    """Yield the client of a run. See :func:`sync_client`."""
    import anyio

    if given is not None:
        reject_settings(owner, settings)
        yield given
        return
    client = AsyncClient(**settings)
    try:
        yield client
    finally:
        with anyio.CancelScope(shield=True):
            await client.aclose()
