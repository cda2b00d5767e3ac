"""Keywords of the constructors of framework classes, for type checkers and editors.

Pydantic derives the constructor of a class from its fields, with their names and types. This module declares the
aliases and the wider types that the classes accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workers_ai._wire.params import ChatParams, EmbedShape
from workers_ai.client import ClientArguments

if TYPE_CHECKING:
    from workers_ai.types import Api

__all__ = ["ChatConstructor", "ConnectionConstructor", "EmbeddingConstructor"]


class ConnectionConstructor(ClientArguments, total=False):
    """Keywords of every class with settings."""

    model_name: str
    """Alias of ``model``."""


class ChatConstructor(ChatParams, ConnectionConstructor, total=False):
    """Keywords of a chat model."""

    api: Api | None
    """The route."""
    stop_sequences: Sequence[str] | str | None
    """Alias of ``stop``."""


class EmbeddingConstructor(EmbedShape, ConnectionConstructor, total=False):
    """Keywords of an embedding model."""
